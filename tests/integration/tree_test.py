"""A process tree is one job: its processes share the budget, and what they counted is told together."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

import support
from support import MIB

VERIFIER = support.PROGRAMS / "verifier"
MINIMUM_BYTES = 16 * MIB
SUMS = ("misses", "waits", "rescues", "zero_fills", "write_faults", "wait_ns", "prefetched_pages", "prefetch_hits",
        "fetched_pages", "evicted_pages", "clean_evictions", "written_pages", "user_ns", "system_ns")


def verify(seed, operations=400, live_mib=96):
    return f"{VERIFIER} --seed {seed} --threads 2 --operations {operations} --live-mib {live_mib} --largest-mib 16"


def run_options(budget_bytes, *more):
    return [support.FARHEAP, "run", "--local", str(budget_bytes), "--far", "memory:", *more, "--"]


class Tree(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="farheap-tree-")
        self.addCleanup(shutil.rmtree, self.directory)
        self.stats_path = pathlib.Path(self.directory, "stats.json")
        self.started = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.started:
            support.end(process)
            process.wait(support.DEADLINE_S)

    def make_fifo(self):
        """Its path, and a descriptor; its readers wait until that is written to or closed."""
        path = pathlib.Path(self.directory, "fifo")
        os.mkfifo(path)
        return path, os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def run_tree(self, budget_bytes, program, *options):
        outcome = support.run([*run_options(budget_bytes, "--stats-json", self.stats_path, *options), *program])
        if self.stats_path.exists():
            outcome.stats = json.loads(self.stats_path.read_text())
        return outcome

    def start_tree(self, budget_bytes, program, *options):
        process = support.start([*run_options(budget_bytes, "--stats-json", self.stats_path, *options), *program],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.started.append(process)
        return process

    def try_stats(self, pid):
        outcome = support.run([support.FARHEAP, "stats", "--json", pid], deadline_s=240)
        return json.loads(outcome.out) if outcome.code == 0 else None

    def stats(self, pid):
        return support.wait_until(lambda: self.try_stats(pid), f"statistics of process {pid}")

    def named(self, stats, name):
        return [one for one in stats["processes"] if one["program"] == name]

    def check_sums(self, stats):
        self.assertEqual(stats["process_count"], len(stats["processes"]))
        for key in SUMS:
            self.assertEqual(stats[key], sum(one[key] for one in stats["processes"]), key)

    def check_exit_line(self, outcome, processes):
        line = next(line for line in reversed(outcome.err.splitlines()) if line.startswith("farheap: peak local"))
        self.assertIn(f", {outcome.stats['misses']} misses, {outcome.stats['prefetch_hits']} prefetch hits, ", line)
        self.assertRegex(line, rf"; {processes} processes$")
        self.assertEqual(outcome.err.count("farheap: peak local"), 1, outcome)


class Sharing(Tree):
    def test_two_at_once_share_and_verify(self):
        budget = 64 * MIB
        script = f"{verify(1)} & {verify(2)} & wait %1 && wait %2"
        outcome = self.run_tree(budget, ["sh", "-c", script])
        self.assertEqual(outcome.code, 0, outcome)
        stats = outcome.stats
        verifiers = self.named(stats, "verifier")
        self.assertEqual(len(verifiers), 2, outcome)
        for one in verifiers:
            self.assertGreater(one["misses"], 0, "each needs more than the budget")
        self.assertEqual(stats["budget_bytes"], budget)
        self.assertLessEqual(stats["peak_local_bytes"], budget + 2 * MINIMUM_BYTES)
        self.check_sums(stats)
        self.check_exit_line(outcome, len(stats["processes"]))

    def test_wrappers(self):
        # Half of it would be an equal share. A Python that waits has used 10 MiB, on some machines more.
        budget = 96 * MIB
        for wrapper in (["env"], ["sh", "-c", '"$@"; exit $?', "sh"],
                        ["/usr/bin/python3", "-c", "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"]):
            with self.subTest(wrapper[0]):
                outcome = self.run_tree(budget, [*wrapper, *verify(3, 600, 192).split()])
                self.assertEqual(outcome.code, 0, outcome)
                one, = self.named(outcome.stats, "verifier")
                self.assertGreater(one["misses"], 0)
                self.assertGreater(one["peak_local_bytes"], budget * 2 // 3, "a wrapper takes only what it uses")
                self.check_sums(outcome.stats)
                # env becomes the program: one process, and one line as ever.
                self.assertEqual(len(outcome.stats["processes"]), 1 if wrapper[0] == "env" else 2)

    def watch(self, process, seconds, budget):
        """The most that was charged to all together, as seen from outside."""
        most = 0
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and process.poll() is None:
            now = self.try_stats(process.pid)
            most = max(most, now["local_bytes"] if now else 0)
            time.sleep(0.1)
        self.assertLessEqual(most, budget + 2 * MINIMUM_BYTES)

    def test_a_killed_process_gives_its_share_back(self):
        budget = 128 * MIB
        endless = 100_000_000
        script = f"{verify(4, endless, 200)} & {verify(5, endless, 200)} & wait; echo over"
        process = self.start_tree(budget, ["sh", "-c", script])

        def both():
            found = self.named(self.stats(process.pid), "verifier")
            return found if len(found) == 2 and all(one["local_bytes"] > 32 * MIB for one in found) else None

        first, second = support.wait_until(both, "both having a share", process=process)
        self.watch(process, 1, budget)
        os.kill(first["pid"], signal.SIGKILL)

        def follower():
            return any(one["pid"] == second["pid"] and one["budget_bytes"] > budget - MINIMUM_BYTES
                       for one in self.named(self.stats(process.pid), "verifier"))

        support.wait_until(follower, "the other having what the killed one held", process=process)
        resized = support.run([support.FARHEAP, "resize", process.pid, "48M"], deadline_s=240)
        self.assertEqual(resized.code, 0, resized)
        support.wait_until(lambda: self.stats(process.pid)["local_bytes"] <= 48 * MIB, "the whole job shrinking",
                           process=process)
        self.assertEqual(self.stats(process.pid)["budget_bytes"], 48 * MIB)
        text = support.run([support.FARHEAP, "stats", second["pid"]], deadline_s=240).out
        self.assertRegex(text, rf"(?m)^ *{second['pid']} +verifier ")
        os.kill(second["pid"], signal.SIGKILL)
        out = process.communicate(timeout=support.DEADLINE_S)[0]
        self.assertIn("over", out)
        stats = json.loads(self.stats_path.read_text())
        self.check_sums(stats)
        killed, = [one for one in stats["processes"] if one["pid"] == first["pid"]]
        self.assertGreater(killed["misses"], 0, "what a killed process counted is told")

    def test_a_long_name_is_cut_within_a_letter(self):
        """48 bytes of it are kept, and each of these letters takes two."""
        program = pathlib.Path(self.directory, "x" + 40 * "\u00e9")
        shutil.copy(shutil.which("sleep"), program)
        process = self.start_tree(32 * MIB, [program, "600"])
        ask = [support.FARHEAP, "stats", process.pid]
        support.wait_until(lambda: support.run(ask).code == 0, "an answer", process=process)
        outcome = support.run([*ask, "--json"])
        self.assertEqual((outcome.code, outcome.err), (0, ""), outcome)
        one, = json.loads(outcome.out)["processes"]
        self.assertEqual(one["program"], "x" + 23 * "\u00e9" + "\ufffd")

    def test_a_program_that_is_started_elsewhere(self):
        """It finds the far tier that was named beside `farheap run`, and leaves nothing where it runs."""
        place = pathlib.Path(self.directory)
        for name in ("tier", "elsewhere"):
            (place / name).mkdir()
        command = ["farheap=$0; cd $1; exec $farheap run --local 48M --far file:tier --stats-json $1/stats.json -- "
                   f"sh -c 'cd elsewhere && {verify(24, 150)}'"]
        outcome = support.run(["sh", "-c", *command, support.FARHEAP, place])
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual((list((place / "elsewhere").iterdir()), "natively" in outcome.err), ([], False), outcome)
        one, = self.named(json.loads(self.stats_path.read_text()), "verifier")
        self.assertGreater(one["misses"], 0)

    def test_a_budget_for_each(self):
        path, held = self.make_fifo()
        endless = [f"{verify(seed, 600)} --until-input-ends < {path} &" for seed in (6, 7)]
        process = self.start_tree(64 * MIB, ["sh", "-c", f"{' '.join(endless)} wait %1 && wait %2"], "--local-each")

        def both():
            found = self.named(self.stats(process.pid), "verifier")
            return len(found) == 2 and all(one["peak_local_bytes"] > 60 * MIB for one in found)

        support.wait_until(both, "both having theirs", process=process)
        os.close(held)
        out = process.communicate(timeout=support.DEADLINE_S)[0]
        self.assertEqual(process.returncode, 0, out)
        stats = json.loads(self.stats_path.read_text())
        self.assertGreater(stats["peak_local_bytes"], 64 * MIB + 2 * MINIMUM_BYTES, "both had theirs at one time")
        self.check_sums(stats)

    def test_what_still_runs_is_said(self):
        path, held = self.make_fifo()
        self.addCleanup(os.close, held)
        process = self.start_tree(64 * MIB, ["sh", "-c", f"sleep 600 > /dev/null 2>&1 & read line < {path}"])
        left, = support.wait_until(lambda: self.named(self.stats(process.pid), "sleep"), "the one behind", process=process)
        self.addCleanup(os.kill, left["pid"], signal.SIGKILL)
        os.write(held, b"end\n")
        out = process.communicate(timeout=support.DEADLINE_S)[0]
        self.assertEqual(process.returncode, 0, out)
        self.assertRegex(out, r"; 2 processes, 1 still running\n")

    def test_children_that_do_not_call_exec(self):
        code = ("import os\n"
                "block = bytearray(os.urandom(1 << 20)) * 64\n"
                "print(sum(block[::4096]))\n"
                "if os.fork() == 0:\n"
                "    print(sum(block[::4096]), flush=True)\n"
                "    os._exit(0)\n"
                "os.wait()\n")
        outcome = self.run_tree(32 * MIB, ["/usr/bin/python3", "-c", code])
        self.assertEqual(outcome.code, 0, outcome)
        first, second = outcome.out.split()
        self.assertEqual(first, second)
        main, child = sorted(outcome.stats["processes"], key=lambda one: one["pid"] != outcome.stats["pid"])
        self.assertGreater(child["fetched_pages"], 0)
        self.assertGreater(main["evicted_pages"], 0)
        self.check_sums(outcome.stats)
        self.check_exit_line(outcome, 2)

    def test_more_processes_than_minima(self):
        script = " & ".join(verify(seed, 60, 48) for seed in range(10, 16)) + " & wait"
        outcome = self.run_tree(32 * MIB, ["sh", "-c", script])
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.err.count("processes share a budget of 32.0 MiB"), 1, outcome)
        self.assertEqual(outcome.out.count("\n"), 6, outcome)

    def test_nothing_is_left_behind(self):
        def files():
            return {path for place in ("/dev/shm", "/tmp") for path in pathlib.Path(place).glob("farheap-job-*")}
        before = files()
        self.run_tree(64 * MIB, ["sh", "-c", "true; true"])
        self.assertEqual(files() - before, set())


class ChildrenOfFork(Tree):
    """Processes that fork and do not call exec are part of the job when they have lived for a moment."""

    # Goes over its memory for as long as it lives, and looks at every byte; from SIGUSR1 on it does nothing.
    WORK = ("import os, signal, sys, time\n"
            "def work(mib):\n"
            "    signal.signal(signal.SIGUSR1, lambda *_: signal.pause())\n"
            "    block = bytearray(mib << 20)\n"
            "    before = 0\n"
            "    while True:\n"
            "        now = before % 250 + 1\n"
            "        for at in range(0, len(block), 4096):\n"
            "            if block[at] != before: os._exit(3)\n"
            "            block[at] = now\n"
            "        before = now\n")
    WORKERS = WORK + ("children = []\n"
                      "for _ in range(2):\n"
                      "    child = os.fork()\n"
                      "    if child == 0: work(128)\n"
                      "    children.append(child)\n"
                      "print(*children, flush=True)\n"
                      "print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])\n")
    # Its parent is gone before it is a part of the job, and with it the job's file.
    DAEMON = WORK + ("if os.fork() != 0: os._exit(0)\n"
                     "os.setsid()\n"
                     "child = os.fork()\n"
                     "if child != 0:\n"
                     "    print(child, flush=True)\n"
                     "    os._exit(0)\n"
                     "work(160)\n")

    def one(self, job_pid, pid):
        found = self.try_stats(job_pid)
        return next((one for one in found["processes"] if one["pid"] == pid), None) if found else None

    def those(self, job_pid, *pids):
        return [self.one(job_pid, pid) for pid in pids]

    def test_workers_share(self):
        for mode in ("thread", "inline"):
            with self.subTest(mode=mode):
                self.check_workers(mode)

    def check_workers(self, mode):
        budget = 96 * MIB
        process = self.start_tree(budget, ["/usr/bin/python3", "-c", self.WORKERS], "--fault-mode", mode)
        first, second = map(int, process.stdout.readline().split())

        def both_busy():
            return all(one and one["evicted_pages"] > 0 for one in self.those(process.pid, first, second))

        support.wait_until(both_busy, "both workers being listed", process=process)
        # Asked themselves, they answer for the whole job.
        support.wait_until(lambda: self.one(second, first), "a worker answering", process=process)
        support.wait_until(lambda: self.stats(process.pid)["local_bytes"] <= budget + MINIMUM_BYTES,
                           "all together within the budget", process=process)
        os.kill(first, signal.SIGUSR1)
        support.wait_until(lambda: all(both := self.those(process.pid, first, second)) and
                           both[0]["budget_bytes"] < 32 * MIB and both[1]["budget_bytes"] > 64 * MIB,
                           "the share of the idle one going to the busy one", process=process)
        os.kill(first, signal.SIGKILL)
        support.wait_until(lambda: (one := self.one(process.pid, second)) and
                           one["budget_bytes"] > budget - MINIMUM_BYTES,
                           "the share of the killed one being free", process=process)
        os.kill(second, signal.SIGKILL)
        self.assertIn("[-9, -9]", process.communicate(timeout=support.DEADLINE_S)[0])
        stats = json.loads(self.stats_path.read_text())
        self.check_sums(stats)
        self.assertEqual(stats["process_count"], 3)

    def test_a_daemon_whose_parent_is_gone(self):
        budget = 96 * MIB
        process = self.start_tree(budget, ["/usr/bin/python3", "-c", self.DAEMON])
        daemon = int(next(line for line in process.stdout if line.strip().isdigit()))
        self.addCleanup(os.kill, daemon, signal.SIGKILL)
        self.assertEqual(process.wait(support.DEADLINE_S), 0)

        def whole():
            one = self.one(daemon, daemon)
            return one and one["evicted_pages"] > 0 and one["budget_bytes"] == budget

        support.wait_until(whole, "the daemon having the whole budget")
        shown = json.loads(support.run([support.FARHEAP, "top", "--json", "--interval", "0.2"]).out)
        self.assertIn(daemon, [one["pid"] for job in shown["jobs"] for one in job["processes"]])
        self.assertEqual(support.run([support.FARHEAP, "resize", daemon, "48M"], deadline_s=240).code, 0)
        support.wait_until(lambda: (one := self.one(daemon, daemon)) and one["local_bytes"] <= 48 * MIB,
                           "the daemon shrinking")

    def test_who_forks_while_it_joins(self):
        """Children of a child, forked all the time while it becomes a part of the job, see their memory and end."""
        code = ("import os, time\n"
                "block = bytearray(os.urandom(1 << 20)) * 32\n"
                "whole = sum(block[::4096])\n"
                "if os.fork() == 0:\n"
                "    limit = time.monotonic() + 2\n"
                "    count = 0\n"
                "    while time.monotonic() < limit or count < 50:\n"
                "        count += 1\n"
                "        child = os.fork()\n"
                "        if child == 0: os._exit(0 if sum(block[::65536]) >= 0 else 1)\n"
                "        if os.waitpid(child, 0)[1] != 0: os._exit(1)\n"
                "    os._exit(0 if sum(block[::4096]) == whole else 1)\n"
                "raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))\n")
        outcome = self.run_tree(24 * MIB, ["/usr/bin/python3", "-c", code])
        self.assertEqual(outcome.code, 0, outcome)
        self.assertGreater(outcome.stats["process_count"], 3)


class Natives(Tree):
    """Programs that the runtime cannot be loaded into."""

    CHILD = support.PROGRAMS / "static_child"

    def check_named_once(self, command, times=1):
        outcome = self.run_tree(64 * MIB, command)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.out.count("static child"), 3, outcome)
        self.assertEqual(outcome.err.count("is statically linked: it runs natively"), times, outcome)

    def test_named_once_by_every_way(self):
        child = str(self.CHILD)
        self.check_named_once(["sh", "-c", f"{child}; {child}; sh -c '{child}; true'; true"])
        code = (f"import os, subprocess\n"
                f"subprocess.run(['{child}'])\n"
                f"os.waitpid(os.posix_spawn('{child}', ['x'], os.environ), 0)\n"
                f"subprocess.run(['static_child'], env=dict(os.environ, PATH='{self.CHILD.parent}'))\n")
        self.check_named_once(["/usr/bin/python3", "-c", code])

    def test_named_where_a_script_names_it(self):
        script = pathlib.Path(self.directory, "script")
        script.write_text(f"#!{self.CHILD}\n")
        script.chmod(0o755)
        self.check_named_once(["sh", "-c", f"{script}; {script}; {script}"])

    def test_not_named_where_it_is_meant(self):
        child = str(self.CHILD)
        self.check_named_once(["sh", "-c", f"unset LD_PRELOAD; {child}; {child}; {child}"], times=0)

    def test_a_set_user_id_program(self):
        support.need(os.geteuid() == 0, "only root can make a program of another user")
        program = pathlib.Path(self.directory, "other")
        shutil.copy("/bin/true", program)
        os.chmod(self.directory, 0o755)
        os.chown(program, 65534, 65534)
        program.chmod(0o4755)
        outcome = self.run_tree(64 * MIB, ["sh", "-c", f"{program}; {program}; true"])
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.err.count("gains rights when it starts"), 1, outcome)

    def test_what_was_counted_before_exec_is_told(self):
        outcome = self.run_tree(48 * MIB, ["/usr/bin/python3", "-c",
                                           "import os, ctypes\n"
                                           "b = bytearray(96 << 20)\n"
                                           "b[::4096] = bytes([1]) * len(b[::4096])\n"
                                           "os.execv('/bin/sh', ['sh', '-c', 'true; true'])\n"])
        self.assertEqual(outcome.code, 0, outcome)
        main, = [one for one in outcome.stats["processes"] if one["pid"] == outcome.stats["pid"]]
        self.assertEqual(main["program"], "sh")
        self.assertGreater(main["evicted_pages"], 0)
        self.assertGreater(main["peak_local_bytes"], 32 * MIB)
        self.check_sums(outcome.stats)


class Top(Tree):
    """`farheap top`, looked at through a terminal."""

    def start_two(self):
        endless = 100_000_000
        process = self.start_tree(64 * MIB, ["sh", "-c", f"{verify(30, endless, 64)} & {verify(31, endless, 64)} & wait"])
        support.wait_until(lambda: len(self.named(self.stats(process.pid), "verifier")) == 2, "two running",
                           process=process)
        return process

    def open_terminal(self, *arguments):
        """`farheap top` in a terminal of 24 lines of 80 characters: its process, and the terminal's descriptor."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.addCleanup(os.close, ours)
        self.modes_before = termios.tcgetattr(theirs)
        self.addCleanup(os.close, theirs)
        self.theirs = theirs
        process = support.start([support.FARHEAP, "top", "--interval", "0.2", *map(str, arguments)],
                                stdin=theirs, stdout=theirs, stderr=theirs)
        self.started.append(process)
        return process, ours

    def read_until(self, terminal, wanted, deadline_s=240):
        """The text on the screen when the last whole screen matches `wanted`."""
        text = ""
        limit = time.monotonic() + deadline_s
        while time.monotonic() < limit:
            if select.select([terminal], [], [], 0.2)[0]:
                text += os.read(terminal, 65536).decode()
            for screen in text.split("\x1b[H")[1:]:
                if "\x1b[J" in screen and re.search(wanted, screen):
                    return re.split("\r+\n", screen[:screen.index("\x1b[J")].replace("\x1b[K", ""))
        raise TimeoutError(f"the terminal does not show {wanted!r}: {text[-3000:]!r}")

    def test_live(self):
        job = self.start_two()
        top, terminal = self.open_terminal(job.pid)
        lines = self.read_until(terminal, r"verifier +[0-9.]+[MK]/[0-9.]+M +[0-9.]+M +[1-9][0-9]* ")
        self.assertLessEqual(len(lines), 24)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertRegex(lines[0], r"^farheap top: 1 job, 3 processes, by misses")
        self.assertRegex(lines[1], rf"^sh \({job.pid}\): 3 of 3 processes run, local [0-9.]+M of 64.0M, far ")
        self.assertIn("misses/s  hits/s evicted/s waited% errors", lines[3])
        self.assertEqual(sorted(line.split()[1] for line in lines[4:7]), ["sh", "verifier", "verifier"])
        os.write(terminal, b"p")
        lines = self.read_until(terminal, "by PID")
        numbers = [int(line.split()[0]) for line in lines[4:7]]
        self.assertEqual(numbers, sorted(numbers))
        os.write(terminal, b"q")
        self.assertEqual(top.wait(support.DEADLINE_S), 0)
        rest = ""

        def is_given_back():
            # What is behind the last screen may come in parts, and later than the end of who has written it.
            nonlocal rest
            if select.select([terminal], [], [], 0)[0]:
                rest += os.read(terminal, 65536).decode()
            return rest.endswith("\x1b[?25h\x1b[?1049l")

        support.wait_until(is_given_back, "the screen was given back")
        self.assertEqual(termios.tcgetattr(self.theirs), self.modes_before)

    def test_control_c_and_the_end_of_what_is_shown(self):
        job = self.start_two()
        top, terminal = self.open_terminal()
        self.read_until(terminal, "verifier")
        os.write(terminal, b"\x03")
        self.assertEqual(top.wait(support.DEADLINE_S), 0)
        top, terminal = self.open_terminal(job.pid)
        self.read_until(terminal, "verifier")
        support.end(job)
        self.assertEqual(top.wait(support.DEADLINE_S), 0)

    def test_once(self):
        job = self.start_two()
        outcome = support.run([support.FARHEAP, "top", "--once", "--interval", "0.5", job.pid])
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(len(re.findall(r"(?m)^ *\d+ verifier ", outcome.out)), 2, outcome)
        self.assertNotIn("\x1b", outcome.out)
        found = json.loads(support.run([support.FARHEAP, "top", "--json", "--interval", "0.5"]).out)
        one, = [one for one in found["jobs"] if one["pid"] == job.pid]
        self.assertEqual(sorted(process["program"] for process in one["processes"]), ["sh", "verifier", "verifier"])
        self.assertLessEqual(one["local_bytes"], 64 * MIB + 2 * MINIMUM_BYTES)
        refused = support.run([support.FARHEAP, "top", "--once", "x"])
        self.assertEqual(refused.code, 2, refused)
        refused = support.run([support.FARHEAP, "top", "--once", os.getpid()])
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("farheap run", refused.err)


class StartUp(Tree):
    def test_a_helper_that_keeps_the_name(self):
        """(helper) & exec program: the helper was forked by what the program was before."""
        code = ("import os, sys, time\n"
                "if os.fork() == 0:\n"
                "    time.sleep(5)\n"
                "    os._exit(0)\n"
                "os.execv(sys.argv[1], sys.argv[1:])\n")
        process = self.start_tree(64 * MIB, ["/usr/bin/python3", "-c", code,
                                             *verify(20, 100_000_000, 32).split()])
        support.wait_until(lambda: (now := self.try_stats(process.pid)) and self.named(now, "verifier"),
                           "the program answering under the name of its process", process=process)

    def test_a_process_of_another_user(self):
        support.need(os.geteuid() == 0, "only root may change its user")
        code = ("import os, subprocess, sys\n"
                "def drop():\n"
                "    os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
                "sys.exit(subprocess.run(sys.argv[1:], preexec_fn=drop).returncode)\n")
        outcome = self.run_tree(48 * MIB, ["/usr/bin/python3", "-c", code, *verify(21, 150, 64).split()])
        self.assertEqual(outcome.code, 0, outcome)
        one, = self.named(outcome.stats, "verifier")
        self.assertGreater(one["misses"], 0)
        self.assertNotIn("budget of its own", outcome.err)
        self.check_sums(outcome.stats)


if __name__ == "__main__":
    support.main()
