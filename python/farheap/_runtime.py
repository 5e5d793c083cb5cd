"""The far heap of this process: that of ``farheap run``, or else the one that ``farheap.memory()`` started."""

import ctypes
import errno
import functools
import mmap
import os
import pathlib
import threading
from typing import Callable, Optional, Union

from ._commands import what_to_do
from ._errors import FarheapError

_LIBRARY = pathlib.Path(__file__).resolve().parent / "lib" / "libfarheap-python.so"
_MADV_PAGEOUT = 21
_PREFETCH = 4  # far/hint.h: far_hint_pack()

# Held while the far heap starts, and while what its blocks share changes; and by a thread that forks, so that no child
# begins with it held by a thread that it does not have. A signal handler of the holder may fork.
changing = threading.RLock()
os.register_at_fork(before=changing.acquire, after_in_parent=changing.release, after_in_child=changing.release)

_known_tier: Optional[str] = None


class _View(ctypes.Structure):
    """far/hint.h: struct far_hint_view."""

    _fields_ = [("base", ctypes.c_size_t), ("bytes", ctypes.c_size_t), ("use", ctypes.c_void_p), ("now", ctypes.c_void_p),
                ("miss", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p))]


class _Site(ctypes.Structure):
    """far/hint.h: struct far_hint_site."""

    _fields_ = [("file", ctypes.c_char_p), ("line", ctypes.c_uint), ("number", ctypes.c_uint)]


_prefetch_site = _Site(b"farheap.prefetch", 1, 0)


def _view_of(library: ctypes.CDLL) -> _View:
    find = library.far_hint_find_view
    find.restype = ctypes.POINTER(_View)
    found: _View = find().contents
    return found


@functools.cache
def _process() -> ctypes.CDLL:
    """The symbols of the program and of what is preloaded into it."""
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def library() -> ctypes.CDLL:
    """The package's own library; to be used where ``farheap run`` is not."""
    try:
        loaded = ctypes.CDLL(str(_LIBRARY))
    except OSError as error:
        raise FarheapError(f"the library of far memory cannot be loaded: {error}; {what_to_do()}") from error
    loaded.farheap_far_tier.restype = ctypes.c_char_p
    loaded.farheap_capsule_name.restype = ctypes.c_void_p
    loaded.farheap_start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    loaded.farheap_resize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    loaded.farheap_statistics.restype = None
    loaded.farheap_statistics.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    loaded.farheap_numpy_handler.restype = ctypes.c_void_p
    loaded.farheap_numpy_handler.argtypes = [ctypes.c_void_p]
    loaded.farheap_serve_arrow.argtypes = []
    loaded.farheap_allocate_arrow_far.restype = None
    loaded.farheap_allocate_arrow_far.argtypes = [ctypes.c_int]
    loaded.farheap_evict.restype = None
    loaded.farheap_evict.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return loaded


@functools.cache
def _is_loaded() -> bool:
    """Whether the library is in this process when it is first asked: it stays when the package is imported again."""
    try:
        ctypes.CDLL(str(_LIBRARY), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    return True


def _far_tier() -> Optional[str]:
    """That of the far heap that farheap.memory() has started; None: it has not, and the library may not be there."""
    global _known_tier
    if _known_tier is None and (library.cache_info().currsize > 0 or _is_loaded()):
        started: Optional[bytes] = library().farheap_far_tier()
        _known_tier = None if started is None else started.decode()
    return _known_tier


@functools.cache
def under_run() -> bool:
    """Whether ``farheap run`` serves this process."""
    return hasattr(_process(), "far_hint_find_view") and _view_of(_process()).bytes > 0


def is_active() -> bool:
    """Whether this process has a far heap."""
    return under_run() or _far_tier() is not None


def view() -> Optional[_View]:
    """Where the far heap lies; None: there is none."""
    if under_run():
        return _view_of(_process())
    return _view_of(library()) if _far_tier() is not None else None


def budget_text(local: Union[str, int]) -> bytes:
    """A budget as the commands take it. Numbers are bytes."""
    if isinstance(local, int) and not isinstance(local, bool):
        return str(local).encode()
    if not isinstance(local, str):
        raise TypeError(f"a budget of local memory is {local!r}; write it as text, for example \"2G\" or \"25%\", or as a "
                        "number of bytes")
    if not local.strip() or "\0" in local:
        raise ValueError(f"{local!r} is not a size; write for example 512M, 2G or 1.5G, or 25%")
    return local.encode()


def start(local: Union[str, int, None], far: Optional[str]) -> bool:
    """Starts the far heap of this process. Returns whether it did: there is one at most, and it stays."""
    if far is not None and not isinstance(far, str):
        raise TypeError(f"the far tier is {far!r}; write it as text, for example \"file:\" or \"zmem:4G\"")
    if far is not None and "\0" in far:
        raise ValueError(f"the far tier {far!r} has a null character; write for example \"file:\" or \"zmem:4G\"")
    with changing:
        started = _far_tier()
        if started is None:
            wanted = "file:" if far is None else far
            _call(library().farheap_start, b"" if local is None else budget_text(local), wanted.encode())
            return True
        if far is not None and far != started:
            raise ValueError(f"the far tier of this process is {started!r} since the first farheap.memory(), and cannot "
                             f"become {far!r}; leave `far` out, or use another process")
        return False


def _call(function: Callable[..., int], *arguments: bytes) -> None:
    """Calls a function of the library that returns 0, or an errno value and a message."""
    message = ctypes.create_string_buffer(1024)
    code = function(*arguments, message, len(message))
    if code != 0:
        text = message.value.decode(errors="replace")
        raise ValueError(text) if code == errno.EINVAL else FarheapError(f"no far memory: {text}")


def resize(local: Union[str, int]) -> None:
    """Changes the budget of the far heap that this module has started."""
    _call(library().farheap_resize, budget_text(local))


def statistics() -> str:
    """The statistics of the far heap that this module has started, as JSON."""
    text = ctypes.create_string_buffer(4096)
    library().farheap_statistics(text, len(text))
    return text.value.decode()


def overlaps(address: int, size: int) -> bool:
    """Whether any byte of the range lies in the far heap."""
    heap = view()
    return heap is not None and size > 0 and address < heap.base + heap.bytes and address + size > heap.base


def prefetch(address: int, size: int) -> None:
    """Starts to fetch what is remote of a range in the far heap, as far as there is room, and waits for nothing."""
    heap = view()
    if heap is not None:
        first = max(address, heap.base)
        end = min(address + size, heap.base + heap.bytes)
        heap.miss(first, end - first, _PREFETCH, ctypes.addressof(_prefetch_site))


def evict(address: int, size: int) -> None:
    """Sends the whole pages of a range in the far heap away."""
    first = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (address + size) // mmap.PAGESIZE * mmap.PAGESIZE
    if end <= first:
        return
    if not under_run():
        library().farheap_evict(first, end - first)
        return
    advise = _process().madvise  # that of `farheap run`
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if advise(first, end - first, _MADV_PAGEOUT) != 0:
        raise OSError(ctypes.get_errno(), "the memory cannot be evicted")
