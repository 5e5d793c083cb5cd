"""Far memory in user space: Python programs in less memory than they use.

An unchanged program runs in 2 GiB by ``python -m farheap run --local 2G job.py``. Or arrays alone are far, without
that command::

    with farheap.memory(local="2G", far="zmem:"):
        table = numpy.load("table.npy")

In both, :func:`stats`, :func:`resize`, :func:`watch`, :func:`is_far`, :func:`prefetch`, :func:`evict` and :func:`scan`
tell and steer what is local. :func:`trace` finds the lines that would wait.
"""

from importlib.metadata import PackageNotFoundError as _NotInstalled
from importlib.metadata import version as _version
from typing import Any as _Any

from ._arrow import far_table
from ._errors import FarheapError
from ._hints import evict, is_far, prefetch, scan
from ._memory import memory
from ._statistics import Statistics, resize, stats, watch
from ._trace import Trace, trace


def load_ipython_extension(shell: _Any) -> None:
    """``%load_ext farheap``: brings the cell magic ``%%far --local 2G --far zmem:``."""
    from ._notebook import load_extension

    load_extension(shell)


try:
    __version__ = _version("farheap")
except _NotInstalled as _error:
    raise ImportError("this is the source of the package farheap, which is not installed; build it by `make wheel`, and then: pip install "
                      "build/packages/farheap-*.whl") from _error
__all__ = ["FarheapError", "Statistics", "Trace", "evict", "far_table", "is_far", "memory", "prefetch", "resize", "scan", "stats",
           "trace", "watch"]
