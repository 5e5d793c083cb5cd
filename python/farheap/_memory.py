"""``with farheap.memory(...)``: arrays that NumPy makes inside lie in far memory."""

import contextlib
import ctypes
import functools
from typing import Any, Callable, Iterator, Optional

from . import _runtime
from ._errors import FarheapError

_CAPSULE = b"mem_handler"  # the name that NEP 49 gives to capsules with a handler
# Places in NumPy's table of functions, the same since version 1.22; they are a part of its binary interface.
_SET_HANDLER = 304
_DEFAULT_HANDLER = 306


@contextlib.contextmanager
def memory(local: Optional[str] = None, far: Optional[str] = None) -> Iterator[None]:
    """Arrays that NumPy makes inside the block lie in far memory, and through NumPy those of pandas and others.

    `local`: how much of it may be local, ``"2G"``, ``"512M"`` or ``"25%"`` of this machine; half of what is available by
    default. `far`: the far tier, as for ``farheap run --far``; ``"file:"`` by default.

    Arrays outlive the block. Blocks may be nested. A block is about its own thread and context: other threads, and
    asyncio tasks that were there before, are not concerned. Arrays below 64 KiB stay local, as do Python objects.

    A process has one far heap. The first block starts it; `local` of a later one resizes it, as `farheap.resize()` does,
    and `far` must be the same, or left out. Under ``farheap run`` everything is far already, and the block changes
    nothing, whatever it is given. Raises FarheapError where the machine does not permit far memory, and says what to do.
    """
    if _runtime.under_run():
        yield
        return
    handler_of_numpy = _handler_setter()
    if not _runtime.start(local, far) and local is not None:
        _runtime.resize(local)
    before = handler_of_numpy(_handler())
    try:
        yield
    finally:
        handler_of_numpy(before)


@functools.cache
def _functions_of_numpy() -> Any:
    """NumPy's table of functions for C."""
    try:
        import numpy
    except ImportError as error:
        raise FarheapError("farheap.memory() is about arrays of NumPy, which is not installed; install numpy, or use "
                           "`farheap run`") from error
    if tuple(int(part) for part in numpy.__version__.split(".")[:2]) < (1, 22):
        raise FarheapError(f"NumPy {numpy.__version__} does not let others allocate its arrays; install 1.22 or later, or use "
                           "`farheap run`")
    try:
        from numpy._core import _multiarray_umath as core
    except ImportError:  # NumPy 1
        from numpy.core import _multiarray_umath as core  # type: ignore
    return ctypes.cast(_pointer_in(core._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))


def _pointer_in(capsule: Any, name: Optional[bytes]) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, name)


@functools.cache
def _handler_setter() -> Callable[[Any], Any]:
    """NumPy's PyDataMem_SetHandler: takes the handler of this context from now on, returns the one before."""
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_functions_of_numpy()[_SET_HANDLER])


@functools.cache
def _handler() -> Any:
    """The capsule with the handler that allocates in far memory. Arrays keep it as long as they are there."""
    default = ctypes.cast(_functions_of_numpy()[_DEFAULT_HANDLER], ctypes.POINTER(ctypes.py_object))[0]
    ours = _runtime.library().farheap_numpy_handler(_pointer_in(default, _CAPSULE))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ours, _CAPSULE, None)
