"""Statistics and budget of the far memory of this process; of its whole job, by the command ``farheap``, under
``farheap run``."""

import contextlib
import dataclasses
import html
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any, Iterator, Mapping, Union

from . import _runtime
from ._commands import PROGRAMS
from ._errors import FarheapError
from ._shell import in_jupyter

_SETTLED_S = 3.0  # a child of fork answers when it has lived for a second
_USAGE = 2  # exit code of the command: its words were wrong
_CLEAR = "\r\033[K"

_forked_at = -_SETTLED_S


def _note_fork() -> None:
    global _forked_at
    _forked_at = time.monotonic()


os.register_at_fork(after_in_child=_note_fork)


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1000:
            break
        count /= 1024
    else:
        unit = "TiB"
    return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.3g} {unit}"


@dataclasses.dataclass(frozen=True)
class Statistics:
    """The work of the far memory of this process, or of its job under ``farheap run``, so far."""

    budget_bytes: int  #: how much may be local
    local_bytes: int  #: how much is local now
    peak_local_bytes: int
    far_bytes: int  #: how much is remote now
    misses: int  #: accesses that waited for the far tier
    prefetch_hits: int  #: accesses that would have, but for prefetching
    fetched_bytes: int  #: came from the far tier
    evicted_bytes: int  #: left local memory
    written_bytes: int  #: of them, to the far tier; the rest was there already
    waited_s: float  #: how long threads have waited, all together
    counters: Mapping[str, Any] = dataclasses.field(repr=False)  #: all of them, as ``farheap stats --json`` prints them

    @classmethod
    def from_counters(cls, counters: Mapping[str, Any]) -> "Statistics":
        """From what ``farheap stats --json`` prints."""
        page = os.sysconf("SC_PAGE_SIZE")
        same = {name: counters[name] for name in ("budget_bytes", "local_bytes", "peak_local_bytes", "far_bytes", "misses",
                                                  "prefetch_hits")}
        moved = {f"{name}_bytes": counters[f"{name}_pages"] * page for name in ("fetched", "evicted", "written")}
        return cls(**same, **moved, waited_s=counters["wait_ns"] / 1e9, counters=counters)

    def __str__(self) -> str:
        return (f"local {_size(self.local_bytes)} of {_size(self.budget_bytes)}, far {_size(self.far_bytes)}, "
                f"{self.misses} misses, {self.prefetch_hits} prefetch hits, waited {self.waited_s:.2f} s")

    def _repr_html_(self) -> str:
        rows = (("local", f"{_size(self.local_bytes)} of {_size(self.budget_bytes)}"), ("far", _size(self.far_bytes)),
                ("misses", f"{self.misses:,}"), ("prefetch hits", f"{self.prefetch_hits:,}"),
                ("fetched", _size(self.fetched_bytes)), ("evicted", _size(self.evicted_bytes)),
                ("waited", f"{self.waited_s:.2f} s"))
        share = 100 * min(1.0, self.local_bytes / max(self.budget_bytes, 1))
        bar = (f'<div style="width:20em;background:#ddd"><div style="width:{share:.0f}%;height:0.6em;background:#4a7">'
               "</div></div>")
        cells = "".join(f'<tr><th style="text-align:left">{name}</th><td style="text-align:right">{html.escape(value)}</td></tr>'
                        for name, value in rows)
        return f"{bar}<table>{cells}</table>"


def _need_far_memory() -> None:
    if not _runtime.is_active():
        raise FarheapError("this process has no far memory; start it by `python -m farheap run`, or use farheap.memory()")


def own_environment() -> dict[str, str]:
    """This process's environment for the command ``farheap``, which itself runs without far memory."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD" and not name.startswith("FARHEAP_")}


def _ask(*words: str) -> str:
    """The command's output about this process. Errors of it are raised as they are worded."""
    environment = own_environment()
    while True:
        done = subprocess.run([PROGRAMS / "farheap", *words], text=True, capture_output=True, env=environment,
                              stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            return done.stdout
        message = done.stderr.strip().removeprefix("farheap: error: ")
        if done.returncode == _USAGE:
            raise ValueError(message)
        if time.monotonic() > _forked_at + _SETTLED_S:
            raise FarheapError(message)
        time.sleep(0.1)


def stats() -> Statistics:
    """The statistics of this process, or of its job: all processes of one ``farheap run``."""
    _need_far_memory()
    text = _ask("stats", "--json", str(os.getpid())) if _runtime.under_run() else _runtime.statistics()
    return Statistics.from_counters(json.loads(text))


def resize(local: Union[str, int]) -> None:
    """Changes the budget while the program runs, up or down.

    `local`: ``"3G"``, ``"512M"``, ``"25%"`` of this machine, or a number of bytes.

    Returns at once; a smaller budget is reached by eviction. Raises ValueError for what is not a size.
    """
    _need_far_memory()
    if _runtime.under_run():
        _ask("resize", str(os.getpid()), _runtime.budget_text(local).decode())
    else:
        _runtime.resize(local)


@contextlib.contextmanager
def watch(seconds: float = 0.5) -> Iterator[None]:
    """While the block runs, a line on standard error says what is local and far, kept up to date every `seconds`.

    On a terminal and in Jupyter. Elsewhere, in a log say, there is one line at the end.
    """
    if not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ValueError(f"seconds is {seconds!r}; give how often the line is to be kept up to date, for example 0.5")
    first = stats()
    done = threading.Event()
    line = threading.Thread(target=_keep_line, args=(seconds, done), daemon=True, name="farheap.watch")
    live = sys.stderr.isatty() or in_jupyter()
    if live:
        line.start()
    try:
        yield
    finally:
        done.set()
        if live:
            line.join()
        last = stats()
        print(f"{_CLEAR if live else ''}farheap: {last}; here {last.misses - first.misses} misses, waited "
              f"{last.waited_s - first.waited_s:.2f} s", file=sys.stderr, flush=True)


def _keep_line(seconds: float, done: threading.Event) -> None:
    while not done.wait(seconds):
        with contextlib.suppress(FarheapError):
            print(f"{_CLEAR}farheap: {stats()}", end="", file=sys.stderr, flush=True)
