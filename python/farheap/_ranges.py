"""Where the data of arrays, tables and buffers lies."""

import ctypes
import sys
from typing import Any, Iterator

Range = tuple[int, int]  # address and bytes

_FULL_READ_ONLY = 0x011c  # PyBUF_FULL_RO: with shape and strides


def ranges_of(data: Any) -> list[Range]:
    """The address and size of each piece of memory that holds the data of `data`, without what is empty.

    For NumPy arrays, pandas and Polars objects, pyarrow arrays, tables and buffers, and what has the buffer protocol.
    Objects that an array only points to, as one of dtype ``object`` does, are not looked at.
    """
    return [(address, size) for address, size in _pieces(data) if size > 0]


def _module(name: str) -> Any:
    """A module if the program has loaded it: without it, nothing of its types can be there."""
    return sys.modules.get(name)


def _pieces(data: Any) -> Iterator[Range]:
    numpy, pandas, polars = _module("numpy"), _module("pandas"), _module("polars")
    if numpy is not None and isinstance(data, numpy.ndarray):
        yield _of_array(numpy, data)
        if isinstance(data, numpy.ma.MaskedArray) and data.mask is not numpy.ma.nomask:
            yield _of_array(numpy, data.mask)
    elif pandas is not None and isinstance(data, pandas.DataFrame):
        yield from _of_index(pandas, data.index)
        for number in range(data.shape[1]):
            yield from _of_extension(data.iloc[:, number].array)
    elif pandas is not None and isinstance(data, pandas.Series):
        yield from _of_index(pandas, data.index)
        yield from _of_extension(data.array)
    elif pandas is not None and isinstance(data, pandas.Index):
        yield from _of_index(pandas, data)
    elif pandas is not None and isinstance(data, pandas.api.extensions.ExtensionArray):
        yield from _of_extension(data)
    elif polars is not None and isinstance(data, (polars.DataFrame, polars.Series)):
        yield from _of_arrow(data.to_arrow(compat_level=polars.CompatLevel.newest()))  # copies nothing
    elif type(data).__module__.partition(".")[0] == "pyarrow":
        yield from _of_arrow(data)
    else:
        yield from _of_buffer(data)


def _of_array(numpy: Any, array: Any) -> Range:
    bounds = getattr(numpy.lib, "array_utils", numpy).byte_bounds  # NumPy 1 has it at the top
    first, end = bounds(array)
    return (first, end - first) if array.size > 0 else (first, 0)


def _of_index(pandas: Any, index: Any) -> Iterator[Range]:
    if isinstance(index, pandas.RangeIndex):
        return
    if isinstance(index, pandas.MultiIndex):
        for part in (*index.codes, *index.levels):
            yield from _pieces(part)
    else:
        yield from _of_extension(index.array)


def _of_extension(array: Any) -> Iterator[Range]:
    """Of an array of pandas, by what the kinds of them are made of."""
    if hasattr(array, "__arrow_array__") and type(array).__name__.startswith("Arrow"):
        yield from _of_arrow(array.__arrow_array__())
        return
    for name in ("_ndarray", "_data", "_mask", "left", "right", "sp_values"):
        part = getattr(array, name, None)
        if part is not None:
            yield from _pieces(part)


def _of_arrow(data: Any) -> Iterator[Range]:
    if hasattr(data, "address") and hasattr(data, "size"):  # a buffer
        yield data.address, data.size
    elif hasattr(data, "buffers"):
        for buffer in data.buffers():
            if buffer is not None:
                yield buffer.address, buffer.size
        if getattr(data, "dictionary", None) is not None:
            yield from _of_arrow(data.dictionary)
    elif hasattr(data, "chunks"):
        for chunk in data.chunks:
            yield from _of_arrow(chunk)
    elif hasattr(data, "columns"):
        for column in data.columns:
            yield from _of_arrow(column)
    else:
        raise _unknown(data)


def _of_buffer(data: Any) -> Iterator[Range]:
    try:
        view = memoryview(data)
    except TypeError:
        raise _unknown(data) from None
    with view:
        if view.nbytes > 0:
            yield _bounds_of(view)


class _Buffer(ctypes.Structure):
    """Python's Py_buffer, a part of its stable interface."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


def _bounds_of(view: memoryview) -> Range:
    """NumPy may not be there."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), _FULL_READ_ONLY)
    first = end = buffer.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    for count, step in zip(view.shape or (), view.strides or ()):
        first += min(0, (count - 1) * step)
        end += max(0, (count - 1) * step)
    return first, end + view.itemsize - first


def _unknown(data: Any) -> TypeError:
    return TypeError(f"farheap does not know where the data of a {type(data).__name__} lies; give a NumPy array, a pandas, "
                     "Polars or pyarrow object, or a buffer")
