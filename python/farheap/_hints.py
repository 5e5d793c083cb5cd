"""A program's hints and questions about single arrays."""

from typing import Any, Iterator, Optional, Sized, TypeVar

from . import _runtime
from ._ranges import ranges_of

_CHUNK_BYTES = 4 << 20

_Data = TypeVar("_Data", bound=Sized)


def is_far(data: Any) -> bool:
    """Whether any of the data lies in far memory, that is, may be remote. It may well be local at the moment.

    `data`: a NumPy array, a pandas or pyarrow object, or a buffer, as for all functions here. False without far memory.
    """
    return any(_runtime.overlaps(*piece) for piece in ranges_of(data))


def prefetch(data: Any) -> None:
    """Starts to bring the data in, and waits for nothing.

    It ends where the budget does, so prefetch what is used next. Does nothing for what is local.
    """
    for address, size in ranges_of(data):
        if _runtime.overlaps(address, size):
            _runtime.prefetch(address, size)


def evict(data: Any) -> None:
    """Sends the data to the far tier now, and leaves its local memory to others.

    For what will not be used for a while; it comes back when it is touched. Does nothing for what is not in far memory.
    """
    for address, size in ranges_of(data):
        if _runtime.overlaps(address, size):
            _runtime.evict(address, size)


def scan(data: _Data, rows: Optional[int] = None) -> Iterator[_Data]:
    """Goes through the data in pieces of `rows` rows: while one is used, the next is brought in.

    ``for part in farheap.scan(table, rows=100_000): total += part.sum()``

    The pieces are views, for arrays ``data[i:i + rows]`` and for frames ``data.iloc[i:i + rows]``. By default a piece has
    about 4 MiB. The budget should have room for several.
    """
    whole = sum(size for _, size in ranges_of(data))
    try:
        count = len(data)
    except TypeError:
        raise TypeError("farheap.scan() goes through rows, and an array without dimensions has none; use its value") from None
    if rows is None:
        rows = max(1, count * _CHUNK_BYTES // max(whole, 1))
    if not hasattr(rows, "__index__"):
        raise TypeError(f"rows is {rows!r}; give a whole number, as in farheap.scan(data, rows=100_000)")
    if rows < 1:
        raise ValueError(f"rows is {rows}; a piece has at least one row")
    at = data.iloc if hasattr(data, "iloc") else data
    return _pieces(at, count, rows)


def _pieces(at: Any, count: int, rows: int) -> Iterator[Any]:
    following = at[:rows]
    for first in range(0, count, rows):
        piece, following = following, at[first + rows:first + 2 * rows]
        prefetch(following)
        yield piece
