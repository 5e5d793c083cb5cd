"""The commands that the wheel brings: ``farheap`` and ``farheapd``."""

import os
import pathlib
import sys
from typing import NoReturn, Sequence

PROGRAMS = pathlib.Path(__file__).resolve().parent / "bin"
# Options of `farheap run` and `farheap trace` that take a word of their own.
_OPTIONS_WITH_VALUE = frozenset(
    ("--local", "--far", "--fault-mode", "--policy", "--free-ahead", "--batch", "--stats-json", "-o", "--output", "--sample"))

_OF_INTERPRETER = ("-m", "-c", "-")
_PROGRAM_STARTS = ("--", *_OF_INTERPRETER)


def what_to_do() -> str:
    """When a program or library of the package is missing."""
    if not PROGRAMS.exists():
        return (f"{PROGRAMS.parent} is the source of the package; start Python in another folder, or build the package by `make wheel` "
                "and install it")
    return "install the package again with: pip install --force-reinstall farheap"


def execute(name: str, arguments: Sequence[str]) -> NoReturn:
    """Becomes one of the programs in the wheel."""
    program = PROGRAMS / name
    try:
        os.execv(program, [name, *arguments])
    except OSError as error:
        sys.exit(f"farheap: error: {program} cannot be executed: {error.strerror}; {what_to_do()}")


def with_interpreter(arguments: Sequence[str]) -> list[str]:
    """``run`` and ``trace`` of a Python script become those of this interpreter with the script.

    ``python -m farheap run --local 2G job.py -x`` is ``farheap run --local 2G -- python job.py -x``. Arguments that
    are neither a script (``job.py``) nor something that the interpreter takes (``-m job``, ``-c "..."``, ``-`` for
    standard input) stay as they are.
    """
    if not arguments or arguments[0] not in ("run", "trace"):
        return list(arguments)
    at = 1
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] not in _PROGRAM_STARTS:
        at += 2 if arguments[at] in _OPTIONS_WITH_VALUE else 1
    options, program = list(arguments[:at]), list(arguments[at:])
    if program[:1] == ["--"]:
        program = program[1:]
    if not program:
        return list(arguments)
    if program[0] in _OF_INTERPRETER or program[0].endswith(".py"):
        program.insert(0, sys.executable)
    return [*options, "--", *program]


def run_farheap() -> NoReturn:
    """The command ``farheap``."""
    execute("farheap", sys.argv[1:])


def run_farheapd() -> NoReturn:
    """The command ``farheapd``: lends this machine's memory to programs on others."""
    execute("farheapd", sys.argv[1:])
