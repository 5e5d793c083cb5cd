"""Programs that fork: their output is right, or the child that cannot go on is stopped with a clear message."""

import contextlib
import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import support

PIPELINE = r"""
seq 1 200000 | awk '{ print $1 % 1000, $1 }' | sort -k1,1n -k2,2n | uniq -c | tail -n 3
value=$(seq 1 10 | { total=0; while read n; do total=$((total + n)); done; echo $total; })
echo "total $value"
(echo from a subshell; exit 3) || echo "code $?"
"""

SUBPROCESS = """
import os, subprocess, sys
big = bytes(range(256)) * (256 << 10)                     # 64 MiB
words = list(range(1_000_000))
for _ in range(2):
    child = "import sys; data = sys.stdin.buffer.read(); print(len(data), sum(data))"
    done = subprocess.run([sys.executable, "-c", child], input=big, stdout=subprocess.PIPE, check=True)
    print(done.stdout.decode().strip())
print(os.popen("echo through a shell").read().strip(), sum(words), big[12345], big.count(7))
"""

MULTIPROCESSING = """
import multiprocessing, sys
context = multiprocessing.get_context("fork")
data = [list(range(part, 1_000_000 + part)) for part in range(3)]

def work(part, pipe):
    data[part].append(part)                               # writes as well as reads, of inherited objects
    pipe.send((part, sum(data[part]), len(data[part])))
    pipe.close()

children = []
for part in range(3):
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(part, sender))
    child.start()
    sender.close()
    children.append((child, receiver))
for child, receiver in children:
    try:
        print(receiver.recv())
    except EOFError:
        print("child stopped")
    child.join()
print([sum(part) for part in data], [len(part) for part in data])
"""

CLOSES_EVERYTHING = """
import os
data = bytearray(100 << 20)
for page in range(0, len(data), 4096):
    data[page] = page >> 12 & 255
expected = sum(page & 255 for page in range(len(data) >> 12))
os.closerange(3, 65536)                                   # as daemons do; far memory must survive it
assert sum(data[::4096]) == expected
child = os.fork()
if child == 0:
    os.closerange(3, 65536)
    assert sum(data[::4096]) == expected
    for page in range(0, len(data), 4096):
        data[page] = 1
    os._exit(7 if sum(data[::4096]) == len(data) >> 12 else 1)
for value in (2, 3):                                      # slots that the child still needs fall free here
    for page in range(0, len(data), 4096):
        data[page] = value
print(sum(data[::4096]), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


# Asks for RDMA, with a descriptor that is none.
CHANGES_ITS_USER = """
import errno, fcntl, os
data = bytearray(64 << 20)
for page in range(0, len(data), 4096):
    data[page] = page >> 12 & 255
expected = sum(page & 255 for page in range(len(data) >> 12))
def ask():
    try:
        fcntl.ioctl(999, 0xc0181b01)
    except OSError as refused:
        print(errno.errorcode[refused.errno], flush=True)
ask()
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for _ in range(2):
    child = os.fork()
    if child == 0:
        ask()
        os._exit(0 if sum(data[::4096]) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert sum(data[::4096]) == expected
"""


class Fork(unittest.TestCase):
    def compare(self, program, budget_bytes, **options):
        """The native output; or no wrong line, and a message of farheap for what is not there."""
        native = support.run(program)
        self.assertEqual(native.code, 0, native)
        outcome = support.run_far(program, budget_bytes, **options)
        self.assertNotIn("wrong data", outcome.out, outcome)
        if "child stopped" in outcome.out:
            self.assertRegex(outcome.err, r"farheap: .*fork", f"a child was stopped without a clear message; {outcome}")
            reported = [line for line in outcome.out.splitlines()
                    if not line.startswith(("child stopped", "not all children"))]
            self.assertLessEqual(set(reported), set(native.out.splitlines()), outcome)
            print("note: children were stopped with a message:", outcome.err.splitlines()[0])
            return
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.out, native.out, outcome)

    def compare_script(self, text, budget_bytes):
        with tempfile.TemporaryDirectory() as directory:
            script = pathlib.Path(directory, "script.py")
            script.write_text(text)
            self.compare([sys.executable, script], budget_bytes)

    def test_children_that_fit_in_the_budget(self):
        self.compare([support.PROGRAMS / "forker", 16, 3], 64 * support.MIB)

    def test_children_of_far_memory(self):
        self.compare([support.PROGRAMS / "forker", 64, 3], 16 * support.MIB)

    def test_a_fork_on_a_stack_in_far_memory(self):
        self.compare([support.PROGRAMS / "forker", 64, 12, "far-stack"], 16 * support.MIB)

    def test_handlers_that_use_far_memory(self):
        for mode in support.of_today(support.MODES):
            with self.subTest(mode=mode):
                self.compare([support.PROGRAMS / "fork_handlers"], 16 * support.MIB, mode=mode, deadline_s=240)

    def test_children_let_go_of_pages_that_were_leaving_at_the_fork(self):
        for mode in support.of_today(support.MODES, 1):
            with self.subTest(mode=mode):
                self.compare([support.PROGRAMS / "forker", 64, 3, "let-go"], 16 * support.MIB,
                             far="memory:?latency=10ms", mode=mode, deadline_s=240)

    def test_shell_pipeline(self):
        self.compare(["sh", "-c", PIPELINE], 64 * support.MIB)

    def test_subprocess_after_far_memory(self):
        self.compare_script(SUBPROCESS, 32 * support.MIB)

    def test_descriptors_are_closed_behind_our_back(self):
        self.compare_script(CLOSES_EVERYTHING, 24 * support.MIB)

    def test_multiprocessing(self):
        self.compare_script(MULTIPROCESSING, 32 * support.MIB)

    def test_children_of_a_process_that_restricts_its_system_calls(self):
        program = [support.PROGRAMS / "sandboxed", "8", "fork"]
        native = support.run(program)
        support.need(native.code != 77, "no seccomp here")
        self.assertEqual((native.code, native.out.count("child: 0, still")), (0, 3), native)
        for mode, far in itertools.product(("thread", "inline"), ("memory:", "zmem:", "file:")):
            with self.subTest(mode=mode, far=far):
                outcome = support.run_far(program, 32 * support.MIB, far=far, mode=mode)
                self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)
                self.assertEqual(outcome.err.count("cannot serve misses"), 1, outcome)

    def test_children_of_such_a_process_whose_memory_has_left_are_stopped(self):
        outcome = support.run_far([support.PROGRAMS / "sandboxed", "48", "fork"], 32 * support.MIB, far="memory:", mode="thread")
        self.assertIn("cannot go on with its far memory", outcome.err, outcome)
        self.assertRegex(outcome.out, "^child: 256, still [0-9]+\n$", outcome)

    def test_children_of_a_process_that_changed_its_user_let_no_device_write(self):
        """They may not see their page tables, and so cannot move pages, which is what keeps them from devices."""
        support.need(os.geteuid() == 0, "only root can change its user")
        for mode in ("inline", "thread"):
            with self.subTest(mode=mode):
                outcome = support.run_far([sys.executable, "-c", CHANGES_ITS_USER], 24 * support.MIB, mode=mode)
                self.assertEqual(outcome.code, 0, outcome)
                parent, *children = outcome.out.split()
                support.need(parent == "EBADF", "no kernel that moves pages")
                self.assertEqual(children, ["EPERM" if mode == "inline" else "EBADF"] * 2, outcome)
                self.assertEqual(outcome.err.count("the child of one that has changed its user"), mode == "thread")


@contextlib.contextmanager
def memory_server(*options):
    """A farheapd, ready; yields what its last ready line names."""
    server = support.start([support.BUILD / "bin" / "farheapd", "--memory", "2G", *options], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True)
    try:
        while line := server.stdout.readline():
            if found := re.fullmatch(r"listening on ([0-9.]+:[0-9]+|shm:\S+)\n", line):
                if "--shm" not in options or found[1].startswith("shm:"):
                    yield found[1]
                    return
        raise RuntimeError("farheapd did not start")
    finally:
        support.end(server)
        server.wait(support.DEADLINE_S)
        server.stdout.close()


class ForkThatLasts(unittest.TestCase):
    """Children that live on with three times their budget, and parents that end first."""

    budget_bytes = 16 * support.MIB

    def far_tiers(self):
        directory = self.enterContext(tempfile.TemporaryDirectory(dir="/var/tmp"))
        self.directory = pathlib.Path(directory)
        yield "memory:"
        yield "zmem:512M"
        yield f"zmem:16M,file:{directory}"
        yield f"file:{directory}"
        with memory_server("--listen", "127.0.0.1:0") as address:
            yield f"tcp://{address}"
        with memory_server("--listen", "127.0.0.1:0", "--shm", f"fork-{os.getpid()}") as name:
            yield name

    def start_file_tier(self):
        directory = self.enterContext(tempfile.TemporaryDirectory(dir="/var/tmp"))
        self.directory = pathlib.Path(directory)
        return f"file:{directory}"

    def run_prefork(self, mebibytes, children, rounds, way, far, mode="thread", **options):
        program = [support.PROGRAMS / "prefork", mebibytes, children, rounds * (8 if support.SOAK else 1), way]
        outcome = support.run_far(program, self.budget_bytes, far=far, mode=mode, **options)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertNotIn("wrong data", outcome.out, outcome)
        self.assertNotIn("cannot", outcome.err, outcome)
        return outcome

    def test_workers_of_every_far_tier(self):
        # A day has every second tier, in one mode, which is the other one two days later.
        for number, far in enumerate(self.far_tiers()):
            for is_chosen in support.of_today((True, False), number):
                for mode in support.of_today(support.MODES, number + support.DAY // 2) if is_chosen else ():
                    with self.subTest(far=far, mode=mode):
                        self.run_prefork(48, 2, 1, "workers", far, mode)

    def test_grandchildren(self):
        for mode, far in support.of_today([("thread", self.start_file_tier()), ("inline", "memory:")]):
            with self.subTest(mode=mode, far=far):
                self.run_prefork(32, 2, 1, "tree", far, mode)

    def test_children_are_killed(self):
        self.run_prefork(32, 2, 2, "killed", self.start_file_tier())

    def test_forks_beside_threads_that_miss(self):
        for mode, far in support.of_today([("thread", self.start_file_tier()), ("inline", "memory:")], 1):
            with self.subTest(mode=mode, far=far):
                self.run_prefork(24, 1, 3, "storm", far, mode)

    def test_children_that_fork_while_they_begin_to_evict(self):
        """The runtime's threads allocate while a fork waits for them, and holds the program's allocator."""
        file = self.start_file_tier()
        for mode, far in support.of_today([("thread", file), ("inline", "memory:"), ("inline", file), ("thread", "memory:")]):
            with self.subTest(mode=mode, far=far):
                self.run_prefork(32, 4, 1, "nested", far, mode, deadline_s=240)

    def test_a_child_keeps_its_budget(self):
        """Other memory in it: libraries, stacks, buffers, and tables of ours, a percent of what is used."""
        for mode in ("thread", "inline"):
            with self.subTest(mode=mode):
                outcome = self.run_prefork(96, 1, 1, "resident", self.start_file_tier(), mode)
                most_kib = int(re.search(r"most anonymous memory: (\d+) KiB", outcome.out)[1])
                self.assertLess(most_kib << 10, self.budget_bytes + 24 * support.MIB)

    def test_a_daemon_whose_parent_is_gone(self):
        for far in self.far_tiers():
            with self.subTest(far=far):
                result = self.directory / "result"
                result.unlink(missing_ok=True)
                program = [support.PROGRAMS / "prefork", 48, 1, 1, "daemon"]
                outcome = support.run(support.farheap_command(program, self.budget_bytes, far),
                                      environment={"RESULT": str(result)})
                self.assertEqual(outcome.code, 0, outcome)
                support.wait_until(lambda path=result: path.exists() and path.read_text() == "all data right\n",
                                   "the daemon has verified its memory", deadline_s=240)

    def test_far_memory_comes_back_to_its_size_after_each_round_of_a_pool(self):
        # The children's slots are freed a while after their end: it asks again until they are.
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        script = pathlib.Path(folder.name, "probe.py")
        script.write_text(PROBE)
        probe = shlex.join([sys.executable, "-B", str(script), os.path.dirname(os.path.abspath(__file__)), str(support.FARHEAP)])
        outcome = self.run_prefork(32, 3, 4, "pool", self.start_file_tier(), environment={"FARHEAP_PROBE": probe})
        far = [find_far_bytes(json.loads(line)) for line in outcome.out.splitlines() if line.startswith("{")]
        self.assertGreaterEqual(len(far), 4, outcome)
        # Everything outside the budget is far: no more than everything, and the first round is as good as the last.
        for bytes_far in far:
            self.assertLessEqual(bytes_far, 40 * support.MIB, far)

    def test_children_of_a_program_with_few_descriptors(self):
        """They begin with those that their parent's rings had; where there are no more, threads make the transfers."""
        for number, limit in enumerate((32, 26)):
            for mode in support.of_today(support.MODES, number):
                with self.subTest(limit=limit, mode=mode):
                    program = [support.PROGRAMS / "prefork", "48", "2", "1", "workers"]
                    limited = ["sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *program]
                    outcome = support.run_far(limited, self.budget_bytes, far=self.start_file_tier(), mode=mode)
                    self.assertEqual(outcome.code, 0, outcome)
                    self.assertNotIn("wrong data", outcome.out, outcome)
                    self.assertNotRegex(outcome.err, "cannot (go on|open)", outcome)

    def test_children_of_a_daemon_close_all_descriptors_but_the_runtimes(self):
        for mode in support.of_today(support.MODES):
            with self.subTest(mode=mode):
                limited = ["sh", "-c", 'ulimit -n 32; exec "$@"', "sh", support.PROGRAMS / "daemon", "48"]
                outcome = support.run_far(limited, self.budget_bytes, far=self.start_file_tier(), mode=mode)
                self.assertEqual(outcome.code, 0, outcome)

    def test_a_child_that_cannot_have_a_far_tier_of_its_own_says_so_and_loses_nothing(self):
        far = self.start_file_tier()
        gone = pathlib.Path(self.directory, "will", "be", "gone")
        gone.mkdir(parents=True)
        program = [sys.executable, "-c", LOSES_ITS_DIRECTORY, str(gone)]
        outcome = support.run_far(program, 24 * support.MIB, far=f"{far}/will/be/gone")
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.err.count("cannot open a far tier of its own"), 1, outcome)


LOSES_ITS_DIRECTORY = """
import os, sys
data = bytearray(64 << 20)
for page in range(0, len(data), 4096):
    data[page] = page >> 12 & 255
os.rmdir(sys.argv[1])                                     # its own file there is open
os.rmdir(os.path.dirname(sys.argv[1]))
child = os.fork()
if child == 0:
    expected = sum(page & 255 for page in range(len(data) >> 12))
    right = sum(data[::4096]) == expected
    for page in range(0, len(data), 4096):
        data[page] = 1
    os._exit(0 if right and sum(data[::4096]) == len(data) >> 12 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


PROBE = """import json, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from fork_test import find_far_bytes
limit = time.monotonic() + 200
while True:
    told = subprocess.run([sys.argv[2], "stats", "--json", sys.argv[3]], capture_output=True, text=True, check=True).stdout
    if find_far_bytes(json.loads(told)) <= 40 << 20 or time.monotonic() > limit:
        break
    time.sleep(0.1)
print(told, end="")
"""


def find_far_bytes(tree):
    """Of the one process that `farheap stats --json` tells of."""
    if isinstance(tree, dict):
        if "far_bytes" in tree:
            return tree["far_bytes"]
        tree = list(tree.values())
    if isinstance(tree, list):
        found = [value for value in map(find_far_bytes, tree) if value is not None]
        return found[-1] if found else None
    return None


if __name__ == "__main__":
    support.main()
