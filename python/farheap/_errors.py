"""The errors that farheap raises of its own."""


class FarheapError(RuntimeError):
    """Far memory cannot do what was asked for; the message says why, and what to do."""

    __module__ = "farheap"  # as users know it
