"""Far memory in notebooks: the cell magic ``%%far``, and a kernel that runs under ``farheap run``."""

import argparse
import importlib.util
import json
import pathlib
import shlex
import subprocess
import sys
from typing import Any, NoReturn, Sequence

from ._commands import PROGRAMS
from ._errors import FarheapError
from ._memory import memory
from ._statistics import own_environment, watch


class _CellParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise FarheapError(f"%%far: {message}; write for example: %%far --local 2G --far zmem:")


class CellFailed(Exception):
    """The cell under ``%%far`` raised something, which has been shown: this only marks the cell as failed."""

    def _render_traceback_(self) -> list[str]:  # IPython's
        return []


def _parse(line: str) -> argparse.Namespace:
    parser = _CellParser(prog="%%far", add_help=False)
    parser.add_argument("--local")
    parser.add_argument("--far")
    return parser.parse_args(shlex.split(line))


def load_extension(shell: Any) -> None:
    """Registers ``%%far --local 2G --far zmem:``, which runs its cell in a block of `farheap.memory()`."""

    def far(line: str, cell: str) -> None:
        """Arrays that NumPy makes in this cell lie in far memory: %%far [--local SIZE] [--far URI]"""
        chosen = _parse(line)
        if shell.should_run_async(cell, transformed_cell=shell.transform_cell(cell)):
            raise FarheapError("%%far: the cell has an `await` of its own; write `with farheap.memory():` around what is to be far")
        with memory(local=chosen.local, far=chosen.far), watch():
            done = shell.run_cell(cell)
        if not done.success:
            raise CellFailed

    shell.register_magic_function(far, magic_kind="cell", magic_name="far")


def _try_run(options: Sequence[str]) -> None:
    """Ends here, with the message, if a kernel with these options could not start."""
    done = subprocess.run([PROGRAMS / "farheap", "run", *options, "--", sys.executable, "-c", ""], env=own_environment(),
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())


def install_kernel(arguments: Sequence[str]) -> None:
    """``python -m farheap kernel``: a kernel for Jupyter that runs this interpreter under ``farheap run``."""
    parser = argparse.ArgumentParser(prog="python -m farheap kernel", description=install_kernel.__doc__)
    parser.add_argument("--local", help="the budget of each notebook: 2G, 512M, or 25%% of this machine")
    parser.add_argument("--far", help="the far tier, as for `farheap run`")
    parser.add_argument("--prefix", default=sys.prefix, help="where Jupyter looks for kernels (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    if importlib.util.find_spec("ipykernel") is None:
        sys.exit(f"farheap: error: {sys.executable} has no kernel for Jupyter; install one with: pip install ipykernel")
    options = [word for name in ("local", "far") if getattr(chosen, name) for word in (f"--{name}", getattr(chosen, name))]
    _try_run(options)
    folder = pathlib.Path(chosen.prefix, "share", "jupyter", "kernels", "farheap")
    kernel = {
        "argv": [sys.executable, "-m", "farheap", "run", *options, "--", sys.executable, "-m", "ipykernel_launcher", "-f",
                 "{connection_file}"],
        "display_name": "Python (farheap)",
        "language": "python",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.json").write_text(json.dumps(kernel, indent=1) + "\n")
    except OSError as error:
        sys.exit(f"farheap: error: the kernel cannot be written to {folder}: {error.strerror}; name a folder that you may "
                 f"write to, for example: python -m farheap kernel --prefix {pathlib.Path.home() / '.local'}")
    print(f"installed the kernel 'Python (farheap)' in {folder}")
