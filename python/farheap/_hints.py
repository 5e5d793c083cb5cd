"""A program's hints and questions about single arrays."""

from typing import Any, Iterator, Optional

from . import _runtime
from ._ranges import ranges_of

_CHUNK_BYTES = 4 << 20


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


def scan(data: Any, rows: Optional[int] = None) -> Iterator[Any]:
    """Goes through the data in pieces of `rows` rows: while one is used, the next is brought in.

    ``for part in farheap.scan(table, rows=100_000): total += part.sum()``

    The pieces are views, for arrays ``data[i:i + rows]`` and for frames ``data.iloc[i:i + rows]``. By default a piece has
    about 4 MiB. The budget should have room for several.
    """
    count = len(data)
    if rows is None:
        whole = sum(size for _, size in ranges_of(data))
        rows = max(1, count * _CHUNK_BYTES // max(whole, 1))
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
