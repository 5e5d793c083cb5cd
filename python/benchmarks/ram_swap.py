"""Swap in RAM, for a comparison on a machine that has none.

A loop device over a file in ramfs, whose pages the kernel never swaps. In tmpfs they could be swapped to the device that
consists of them, which would then wait for itself; so what is mounted is looked at before anything else happens.

A process of its own makes it, and undoes it when its standard input ends: when the comparison ends, however it ends. That
process ignores the signals that end programs, and the kernel does not choose it when memory is short.

    ram_swap.py BYTES      that process; swap_in_ram() starts it
"""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile

MIB = 1 << 20
SPARE_BYTES = 1 << 30  # for everything else on the machine
MEMINFO = pathlib.Path("/proc/meminfo")


class SwapError(RuntimeError):
    """There is no swap, or some was left behind; the message says what to do."""


def check_room(size_bytes, job_bytes, meminfo):
    """Raises SwapError unless there is room for the device, for all that is on it when it is switched off, and the job."""
    available = int(re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo, re.M)[1]) * 1024
    needed = 2 * size_bytes + job_bytes + SPARE_BYTES
    if available < needed:
        raise SwapError(f"swap of {size_bytes // MIB} MiB in RAM takes up to {needed // MIB} MiB, and {available // MIB} MiB are "
                        "available; compare fewer rows with --count, or end other programs")


@contextlib.contextmanager
def swap_in_ram(size_bytes, job_bytes):
    """Swap of `size_bytes` while the block runs, for a job with a budget of `job_bytes`. Requires root."""
    check_room(size_bytes, job_bytes, MEMINFO.read_text())
    keeper = subprocess.Popen([sys.executable, __file__, str(size_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, start_new_session=True)
    word, _, rest = keeper.stdout.readline().rstrip("\n").partition(" ")
    ready = word == "ready"
    try:
        if not ready:
            raise SwapError(f"no swap was made: {rest or 'its process ended'}")
        print(f"compare: there is swap in RAM now; should it outlive this: {rest}", file=sys.stderr, flush=True)
        yield
    finally:
        keeper.stdin.close()
        left = keeper.stdout.read().strip()
        keeper.stdout.close()
        if keeper.wait() != 0 and ready:
            raise SwapError(left or f"the process that undoes swap in RAM was ended; when memory is free, run: {rest}")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout.strip()


class Keeper:
    def __init__(self):
        self.undo = []  # commands, in the order in which their causes came

    def make(self, size_bytes):
        folder = tempfile.mkdtemp(prefix="farheap-swap-")
        self.undo.append(("rmdir", folder))
        run("mount", "-t", "ramfs", "-o", "mode=0700", "ramfs", folder)
        self.undo.append(("umount", folder))
        mounted = run("stat", "--file-system", "--format=%T", folder)
        if mounted != "ramfs":
            raise SwapError(f"{folder} is {mounted} and not ramfs, and swap on that could wait for itself")
        path = pathlib.Path(folder, "device")
        with open(path, "wb") as file:  # all pages now, outside of the jobs' limits
            for _ in range(0, size_bytes, MIB):
                file.write(bytes(MIB))
        device = run("losetup", "--find", "--show", str(path))
        self.undo.append(("losetup", "--detach", device))
        run("mkswap", device)
        # Entered first: swapon may have an effect, and yet fail or be interrupted.
        self.undo.append(("swapoff", device))
        try:
            run("swapon", device)
        except subprocess.CalledProcessError:
            self.undo.pop()
            raise

    def words(self):
        return " && ".join(map(shlex.join, reversed(self.undo)))

    def undo_all(self):
        """Stops at what fails: what comes after it would make it worse. Returns what is left to do, or nothing."""
        while self.undo:
            try:
                run(*self.undo[-1])
            except (OSError, subprocess.CalledProcessError) as error:
                return f"{reason(error)}; what was made for swap in RAM is still there; when memory is free, run: {self.words()}"
            self.undo.pop()
        return ""


def reason(error):
    if isinstance(error, subprocess.CalledProcessError):
        return f"{shlex.join(error.cmd)} failed: {' '.join(error.stderr.split())}"
    return str(error)


def keep(size_bytes):
    """Makes the swap, says so, and undoes it when standard input ends. Returns an exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # only root may
        pathlib.Path("/proc/self/oom_score_adj").write_text("-1000")
    keeper = Keeper()
    said = ""
    try:
        keeper.make(size_bytes)
        tell(f"ready {keeper.words()}")
        sys.stdin.read()
    except (OSError, SwapError, subprocess.CalledProcessError) as error:
        said = f"failed {reason(error)}"
    left = keeper.undo_all()
    if said or left:
        tell("; ".join(filter(None, (said, left))))
    return 1 if said or left else 0


def tell(text):
    with contextlib.suppress(BrokenPipeError):
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1])))
