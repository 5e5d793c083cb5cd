"""``with farheap.memory(...)``: arrays that NumPy makes inside lie in far memory."""

import contextlib
import contextvars
import ctypes
import functools
import importlib
from typing import Any, Callable, Iterator, Optional, Union

from . import _runtime
from ._arrow_pool import far_buffers
from ._errors import FarheapError

# Places in NumPy's table of functions, the same since version 1.22; they are a part of its binary interface.
_SET_HANDLER = 304
_DEFAULT_HANDLER = 306

_in_block: contextvars.ContextVar[bool] = contextvars.ContextVar("farheap.memory")  # tells contexts apart


@contextlib.contextmanager
def memory(local: Union[str, int, None] = None, far: Optional[str] = None) -> Iterator[None]:
    """Arrays that NumPy makes inside the block lie in far memory, and through NumPy those of pandas and others.

    `local`: how much of it may be local, ``"2G"``, ``"512M"`` or ``"25%"`` of this machine, or a number of bytes; half of
    what is available by default. `far`: the far tier, as for ``farheap run --far``; ``"file:"`` by default.

    Arrays outlive the block. Blocks may be nested. A block is about its own thread and context: other threads, and
    asyncio tasks that were there before, are not concerned. Arrays below 64 KiB stay local, as do Python objects.

    If pyarrow has been imported, the buffers that Arrow makes are far, too, and with them texts of pandas. Arrow has one
    default pool for the process: while any thread is in a block, it is a far one for all.

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
    token = _in_block.set(True)
    before = handler_of_numpy(_handler())
    try:
        with far_buffers():
            yield
    finally:
        # A generator may be ended in another thread or task, whose own handler is none of its business.
        try:
            _in_block.reset(token)
        except ValueError:
            pass
        else:
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
        core = importlib.import_module("numpy._core._multiarray_umath")
    except ImportError:  # NumPy 1
        core = importlib.import_module("numpy.core._multiarray_umath")
    return ctypes.cast(_pointer_in(core._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))


def _pointer_in(capsule: Any, name: Optional[int]) -> int:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_void_p]
    address: int = get(capsule, name)
    return address


@functools.cache
def _handler_setter() -> Callable[[Any], Any]:
    """NumPy's PyDataMem_SetHandler: takes the handler of this context from now on, returns the one before."""
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(_functions_of_numpy()[_SET_HANDLER])


def _handler() -> Any:
    """The capsule with the handler that allocates in far memory. Arrays keep it as long as they are there."""
    with _runtime.changing:  # one thread alone writes NumPy's default into the library, before any array is far
        return _make_handler()


@functools.cache
def _make_handler() -> Any:
    default = ctypes.cast(_functions_of_numpy()[_DEFAULT_HANDLER], ctypes.POINTER(ctypes.py_object))[0]
    name = _runtime.library().farheap_capsule_name()
    ours = _runtime.library().farheap_numpy_handler(_pointer_in(default, name))
    new = ctypes.pythonapi.PyCapsule_New
    # The capsule keeps the name's address, so it must be the library's: bytes of Python would go with this module.
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return new(ours, name, None)
