"""Far memory in user space: Python programs in less memory than they use.

An unchanged program runs in 2 GiB by ``python -m farheap run --local 2G job.py``.
"""

from importlib.metadata import version as _version

__version__ = _version("farheap")
