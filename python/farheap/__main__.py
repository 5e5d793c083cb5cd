"""``python -m farheap run job.py`` and the other commands."""

from ._commands import run_module

if __name__ == "__main__":
    run_module()
