"""Arrow's buffers in blocks of ``farheap.memory()``.

Arrow has one default pool for the process. While blocks are open, it is the pool "system", whose large buffers the native
library then serves (native/arrow_allocations.h).
"""

import contextlib
import sys
import warnings
from typing import Any, Iterator

from . import _runtime

_open_blocks = 0
_pool_before: Any = None  # the default pool when the first of the open blocks began


@contextlib.contextmanager
def far_buffers() -> Iterator[None]:
    """Arrow's large buffers are far inside, if pyarrow has been imported; otherwise nothing happens."""
    pyarrow = sys.modules.get("pyarrow")
    entered = hasattr(pyarrow, "set_memory_pool") and _enter(pyarrow)
    try:
        yield
    finally:
        if entered:
            _leave(pyarrow)


def _enter(pyarrow: Any) -> bool:
    global _open_blocks, _pool_before
    with _runtime.changing:
        if _open_blocks == 0:
            if _runtime.library().farheap_serve_arrow() != 0:
                warnings.warn(f"the buffers of pyarrow {pyarrow.__version__} stay local: it has no library libarrow.so of its own; "
                              "use `farheap run`, or install pyarrow with pip", RuntimeWarning, stacklevel=6)
                return False
            _pool_before = pyarrow.default_memory_pool()
            pyarrow.set_memory_pool(pyarrow.system_memory_pool())
        _open_blocks += 1
        _runtime.library().farheap_allocate_arrow_far(1)
        return True


def _leave(pyarrow: Any) -> None:
    """A pool that the program itself has chosen inside stays."""
    global _open_blocks, _pool_before
    with _runtime.changing:
        _runtime.library().farheap_allocate_arrow_far(0)
        _open_blocks -= 1
        if _open_blocks == 0:
            if pyarrow.default_memory_pool().backend_name == "system":
                pyarrow.set_memory_pool(_pool_before)
            _pool_before = None
