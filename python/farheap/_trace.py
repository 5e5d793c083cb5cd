"""Where a Python program would wait for far memory: the miss tracer, as a call."""

import dataclasses
import html
import os
import pathlib
import subprocess
import sys
import tempfile
import webbrowser
from typing import Optional, Union

from ._commands import PROGRAMS
from ._errors import FarheapError
from ._shell import in_jupyter
from ._statistics import own_environment

_USAGE = 2  # exit code of the command: its words were wrong


@dataclasses.dataclass(frozen=True)
class Trace:
    """The misses of one run of a program, by line of Python."""

    folder: pathlib.Path  #: holds the recorded misses and the reports
    exit_code: int  #: of the program
    summary: str = dataclasses.field(repr=False)  #: the fewest lines that explain the misses, with hints to write there

    @property
    def report(self) -> pathlib.Path:
        """The report for a browser, in one file: flame graph, misses over time, all lines."""
        return self.folder / "report.html"

    def show(self) -> None:
        """Opens the report in a browser."""
        if not webbrowser.open(self.report.as_uri()):
            raise FarheapError(f"no browser could be started; open {self.report} in one")

    def __str__(self) -> str:
        return self.summary

    def _repr_html_(self) -> str:
        page = html.escape(self.report.read_text(encoding="utf-8"), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:40em;border:0"></iframe>'


def trace(script: Union[str, "os.PathLike[str]"], *arguments: str, local: str = "64M", far: Optional[str] = None, sample: int = 1,
          output: Union[str, "os.PathLike[str]", None] = None, show: bool = True) -> Trace:
    """Runs a Python script with this interpreter in little local memory, and reports which of its lines missed.

    As ``farheap trace``: `local` is the budget, a tenth of what the script uses is a good start; `far` is the far tier;
    one miss in `sample` is recorded; `arguments` are those of the script; `output` is a new or empty folder, by default a temporary one that stays. `show` opens the report in a
    browser; Jupyter shows the result itself.
    """
    path = pathlib.Path(script)
    if not path.is_file():
        raise ValueError(f"there is no script {path}; give the path of a Python file")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="farheap-trace-") if output is None else output).absolute()
    tier = [] if far is None else ["--far", far]
    # A script may write any bytes.
    done = subprocess.run([PROGRAMS / "farheap", "trace", "--local", local, "--sample", str(sample), "--output", folder, *tier,
                           "--", sys.executable, path, *arguments], env=own_environment(), stderr=subprocess.PIPE,
                          encoding="utf-8", errors="replace")
    made = Trace(folder, done.returncode, _summary_of(folder))
    if not made.report.is_file():
        message = done.stderr.strip().rpartition("farheap: error: ")[2]
        if done.returncode == _USAGE:
            raise ValueError(message)
        raise FarheapError(f"the script was not traced: {message}")
    sys.stderr.write(done.stderr)  # what the script has said
    if show and not in_jupyter():
        made.show()
    return made


def _summary_of(folder: pathlib.Path) -> str:
    path = folder / "summary.txt"
    # Names of files are bytes, too.
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
