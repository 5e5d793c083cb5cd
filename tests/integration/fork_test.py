"""Programs that fork: what they print is right, or the child that cannot go on is stopped with a clear message."""

import pathlib
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


class Fork(unittest.TestCase):
    def compare(self, program, budget_bytes):
        """The native output; or no wrong line, and a message of farheap for what is not there."""
        native = support.run(program)
        self.assertEqual(native.code, 0, native)
        outcome = support.run_far(program, budget_bytes)
        self.assertNotIn("wrong data", outcome.out, outcome)
        if "child stopped" in outcome.out:
            self.assertRegex(outcome.err, r"farheap: .*fork", f"a child was stopped without a clear message; {outcome}")
            told = [line for line in outcome.out.splitlines()
                    if not line.startswith(("child stopped", "not all children"))]
            self.assertLessEqual(set(told), set(native.out.splitlines()), outcome)
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

    def test_shell_pipeline(self):
        self.compare(["sh", "-c", PIPELINE], 64 * support.MIB)

    def test_subprocess_after_far_memory(self):
        self.compare_script(SUBPROCESS, 32 * support.MIB)

    def test_descriptors_are_closed_behind_our_back(self):
        self.compare_script(CLOSES_EVERYTHING, 24 * support.MIB)

    def test_multiprocessing(self):
        self.compare_script(MULTIPROCESSING, 32 * support.MIB)


if __name__ == "__main__":
    support.main()
