"""Unmodified programs under --fault-mode inline, with less memory than they use: the kernel meets far buffers, paths, locks
and arguments in their system calls, and the output is the native one."""

import hashlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

import support
from fork_test import MULTIPROCESSING, PIPELINE, SUBPROCESS
from programs_test import SQL

MAKE_FAR = """
import os, sys
cold = [bytes([number % 251]) * 4096 for number in range(16_000)]    # 64 MiB
def make_far():
    return sum(block[9] for block in cold)                            # all older memory is far now
"""

FILES = MAKE_FAR + """
path = os.path.join(sys.argv[1], "a-file")
with open(path, "wb") as file:
    for block in cold:
        file.write(block)
whole = bytearray(64 << 20)                                           # in one read, more than the budget
make_far()
with open(path, "rb", buffering=0) as file:
    print(file.readinto(whole), hash(bytes(whole)) == hash(b"".join(cold)))
print(os.path.getsize(path), sum(whole[::4096]), make_far())
with open(path, "wb", buffering=0) as file:
    print(file.write(whole))                                          # in one write
print(open(path, "rb").read() == whole)
names = [os.path.join(sys.argv[1], "a-long-enough-name-%05d" % number) for number in range(2000)]
for name in names:
    with open(name, "w") as file:
        file.write(name)
make_far()
print(sum(os.stat(name).st_size for name in names), len(os.listdir(sys.argv[1])))
os.chdir(sys.argv[1])
print(sum(len(open(name).read()) for name in names), os.getcwd() == os.path.realpath(sys.argv[1]))
"""

VECTORS = MAKE_FAR + """
import socket, threading
def every_byte(step, *arguments):
    done = 0
    while (now := step(done, *arguments)) > 0:
        done += now
    return done

def exchange(write, read, close):
    received = [bytearray(100_000) for _ in range(200)]
    views = [memoryview(block) for block in received]
    make_far()
    def send():
        parts = [memoryview(block) for block in cold]
        first = 0
        while first < 4800:
            sent = write(parts[first:first + 100])
            while sent > 0:
                part = parts[first]
                if sent >= len(part):
                    sent -= len(part)
                    first += 1
                else:
                    parts[first] = part[sent:]
                    sent = 0
        close()
    sender = threading.Thread(target=send)
    sender.start()
    total, index, rest = 0, 0, views[:]
    while rest and (now := read(rest[:50])) > 0:
        total += now
        while rest and now >= len(rest[0]):
            now -= len(rest.pop(0))
        if now:
            rest[0] = rest[0][now:]
    sender.join()
    make_far()
    print(total, b"".join(received)[:total] == b"".join(cold[:4800])[:total])

out, into = os.pipe()
exchange(lambda parts: os.writev(into, parts), lambda parts: os.readv(out, parts), lambda: os.close(into))
left, right = socket.socketpair()
exchange(lambda parts: left.sendmsg(parts), lambda parts: right.recvmsg_into(parts)[0], left.close)
left, right = socket.socketpair()
big = b"".join(cold)
sender = threading.Thread(target=lambda: (left.sendall(big), left.close()))
sender.start()
received = bytearray(len(big))
view, total = memoryview(received), 0
while (now := right.recv_into(view[total:])) > 0:
    total += now
sender.join()
print(total, received == big)
"""

SIGNALS = MAKE_FAR + """
import ctypes, faulthandler, select, signal, threading, time
print(ctypes.CDLL(None).prctl(59, 0, 0, 0, 0))                        # no dispatch of system calls, as it should think
faulthandler.enable()                                                 # asks for a signal stack of its own
seen = []
def handler(number, frame):
    seen.append((number, sum(block[1] for block in cold[:5000])))
signal.signal(signal.SIGALRM, handler)
signal.signal(signal.SIGUSR1, handler)
signal.signal(signal.SIGBUS, handler)
for round in range(3):
    out, into = os.pipe()
    buffer = bytearray(1 << 20)
    make_far()
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    late = threading.Timer(0.3, lambda: os.write(into, b"late" * 1000))
    late.start()
    print(os.readv(out, [buffer]), bytes(buffer[:8]))                 # interrupted, then goes on
    late.join()                                                       # it blocks no signal, so it would take one
    while os.path.exists(f"/proc/self/task/{late.native_id}"):        # Python is done with it before the kernel is
        time.sleep(0.001)
    os.close(out), os.close(into)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))                # also those that must never be blocked
os.kill(os.getpid(), signal.SIGUSR1)
print(make_far(), signal.SIGUSR1 in signal.sigpending())
print(signal.sigtimedwait([signal.SIGUSR1], 5).si_signo == signal.SIGUSR1)
signal.pthread_sigmask(signal.SIG_UNBLOCK, range(1, 65))
os.kill(os.getpid(), signal.SIGBUS)                                   # its own, not one of ours
print(seen, select.select([], [], [], 0.01), make_far())
"""

SPAWNS = MAKE_FAR + """
import subprocess
words = ["word-%06d" % number for number in range(2000)]
environment = {"NAME_%d" % number: "value %d" % number * 10 for number in range(500)}
environment["PATH"] = os.environ["PATH"]
for round in range(5):
    make_far()
    pid = os.posix_spawn("/bin/sh", ["/bin/sh", "-c", 'echo $# $NAME_77', *words], environment)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    make_far()
    print(subprocess.run(["/bin/echo", *words[:100]], stdout=subprocess.PIPE, env=environment).stdout[-30:])
    print(os.system("exit 3"), os.popen("echo through a shell").read(), end="", flush=True)
    make_far()
    child = os.fork()
    if child == 0:
        print("child", make_far(), flush=True)
        os.execve("/bin/echo", ["echo", *words[:50]], environment)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
try:
    os.execv("/no/such/program", words)
except FileNotFoundError:
    print("no such program", make_far())
"""

THREADS = MAKE_FAR + """
import concurrent.futures, queue, threading
def work(part):
    return sum(block[part % 4096] for block in cold[part::16])
for _ in range(20):                                                   # many short threads
    threads = [threading.Thread(target=work, args=(part,)) for part in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(list(pool.map(work, range(20))))
line, total = queue.Queue(10), []
def consume():
    while (item := line.get()) is not None:
        total.append(item[7])
consumers = [threading.Thread(target=consume) for _ in range(4)]
[consumer.start() for consumer in consumers]
for block in cold:
    line.put(block)
for _ in consumers:
    line.put(None)
[consumer.join() for consumer in consumers]
print(sum(total))
"""

# A kernel that refuses system call user dispatch, as those before Linux 5.11 do: prctl(59, ...) fails with EINVAL.
WITHOUT_DISPATCH = """
import ctypes, os, struct, sys
program = b"".join(struct.pack("HBBI", *step) for step in [
    (0x20, 0, 0, 0), (0x15, 0, 3, 157), (0x20, 0, 0, 16), (0x15, 0, 1, 59), (0x06, 0, 0, 0x00050016),
    (0x06, 0, 0, 0x7fff0000)])
kept = ctypes.create_string_buffer(program)
filters = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(kept)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
if prctl(38, 1, 0, 0, 0) != 0 or prctl(22, 2, ctypes.byref(filters), 0, 0) != 0:
    sys.exit("no seccomp: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"""


# Transfers of more than a part at a time, past the page cache: the kernel takes whole blocks alone.
DIRECT = """
import mmap, os, sys
private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
size = 24 << 20
device = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
written = mmap.mmap(-1, size, private)
for at in range(0, size, 4096):
    written[at:at + 8] = (at * 7 + 1).to_bytes(8, "little")
print(os.pwrite(device, written, 0))
press = mmap.mmap(-1, 96 << 20, private)
for at in range(0, 96 << 20, 4096):
    press[at] = 1
back, done = mmap.mmap(-1, size, private), 0
while done < size and (now := os.preadv(device, [memoryview(back)[done:]], done)) > 0:
    done += now
print(done, back[:] == written[:])
"""


class Inline(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(dir=os.environ.get("FARHEAP_DIR", "/var/tmp"))
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def compare(self, program, budget_bytes=None, result=lambda outcome: outcome.out, far_used=True, **options):
        """Runs natively, then inline within the budget, or a quarter of the native peak; the results must agree."""
        native = support.run(program, **options)
        self.assertEqual(native.code, 0, native)
        expected = result(native)
        self.assertTrue(expected)
        budget_bytes = budget_bytes or max(native.peak_bytes // 4, 16 * support.MIB)
        outcome = support.run_far(program, budget_bytes, far="memory:", mode="inline", **options)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(result(outcome), expected, outcome)
        self.assertIsNotNone(outcome.stats, outcome)
        self.assertEqual(outcome.stats["fault_mode"], "inline")
        if far_used:
            self.assertGreater(outcome.stats["fetched_pages"], 0, "far memory was never used")
        self.assertEqual(outcome.stats["over_budget_pages"], 0, outcome.stats)
        return outcome

    def compare_script(self, text):
        script = self.directory / "script.py"
        script.write_text(text)
        place = self.directory / "place"
        place.mkdir()
        self.compare([sys.executable, script, place], 32 * support.MIB)

    def test_refused_without_dispatch(self):
        command = [sys.executable, "-c", WITHOUT_DISPATCH]
        able = support.run(command + ["/bin/true"])
        support.need("no seccomp" not in able.err, able.err.strip())
        program = ["/bin/echo", "it ran"]
        refused = support.run(command + support.farheap_command(program, 32 * support.MIB, "memory:", "inline"))
        self.assertNotEqual(refused.code, 0, refused)
        self.assertNotIn("it ran", refused.out)
        self.assertRegex(refused.err, r"^farheap: error: .*--fault-mode thread\n$")
        thread = support.run(command + support.farheap_command(program, 32 * support.MIB, "memory:", "thread"))
        self.assertEqual((thread.code, thread.out), (0, "it ran\n"), thread)

    def test_files(self):
        self.compare_script(FILES)

    def test_devices_with_large_blocks(self):
        disk, script = self.directory / "disk", self.directory / "script.py"
        script.write_text(DIRECT)
        with disk.open("wb") as file:
            file.truncate(32 * support.MIB)
        attach = ["losetup", "--find", "--show", "--sector-size", "4096", disk]
        support.need(os.geteuid() == 0 and shutil.which("losetup"), "loop devices need root, and losetup (Debian: mount)")
        attached = subprocess.run(attach, capture_output=True, text=True)
        support.need(attached.returncode == 0, f"no loop devices here: {attached.stderr}")
        device = attached.stdout.strip()
        self.addCleanup(subprocess.run, ["losetup", "--detach", device])
        self.compare([sys.executable, script, device], 32 * support.MIB + 4096)

    def test_pipes_and_sockets(self):
        self.compare_script(VECTORS)

    def test_signals(self):
        self.compare_script(SIGNALS)

    def test_spawned_programs(self):
        self.compare_script(SPAWNS)

    def test_subprocess(self):
        self.compare_script(SUBPROCESS)

    def test_children(self):
        self.compare_script(MULTIPROCESSING)

    def test_threads(self):
        self.compare_script(THREADS)

    def test_shell_pipeline(self):
        # The shell itself needs no far memory; the programs it starts each have a far heap of their own.
        self.compare(["sh", "-c", PIPELINE], 16 * support.MIB, far_used=False)

    def test_verifier(self):
        program = [support.PROGRAMS / "verifier", "--seed", "11", "--threads", "4", "--operations", "200", "--live-mib",
                   "128", "--largest-mib", "16"]
        self.compare(program)

    def test_calls_that_do_not_return_as_usual(self):
        outcome = self.compare([support.PROGRAMS / "caller", self.directory / "file"], 32 * support.MIB)
        self.assertEqual(outcome.err.count("is no thread (clone with CLONE_VM)"), 1, outcome)

    def test_virtual_machines(self):
        program = [support.PROGRAMS / "machine"]
        native = support.run(program)
        if native.code == support.SKIPPED:
            self.skipTest(native.out)
        self.assertEqual(native.code, 0, native)
        by_choice = support.run_far(program, 32 * support.MIB, far="memory:")
        self.assertEqual(by_choice.code, 0, by_choice)
        self.assertEqual(by_choice.stats["fault_mode"], "thread", by_choice)
        self.assertGreater(by_choice.stats["fetched_pages"], 128, by_choice)
        refused = support.run_far(program, 32 * support.MIB, far="memory:", mode="inline")
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("gives far memory to a virtual machine (KVM), which is refused", refused.err)

    def test_ends_when_the_kernel_stops_its_last_thread(self):
        # Strict seccomp: the next system call but read and write stops the thread, and natively the process with it.
        program = [sys.executable, "-c", "import ctypes, os; ctypes.CDLL(None).prctl(22, 1, 0, 0, 0); os.getppid()"]
        native = support.run(program)
        support.need(native.code == -9, "no strict seccomp here")
        for mode in ("thread", "inline"):
            with self.subTest(mode=mode):
                self.assertEqual(support.run_far(program, 32 * support.MIB, far="memory:", mode=mode, deadline_s=240).code, -9)

    def test_the_default_for_a_program_with_a_filter_of_its_own(self):
        for program in ([support.PROGRAMS / "sandboxed", "64"], [support.PROGRAMS / "sandboxed", "64", "stop"]):
            native = support.run(program)
            support.need(native.code != 77, "no seccomp here")
            self.assertEqual(native.code, 0, native)
            outcome = support.run_far(program, 16 * support.MIB, far="memory:")
            self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)
            self.assertIn("farheap: peak local", outcome.err, outcome)

    def test_calls_of_the_c_library_cost_no_signal(self):
        command = support.farheap_command(["/bin/true"], 32 * support.MIB, "memory:", "inline")
        outcome = support.run(command[:2] + ["--verbose"] + command[2:])
        self.assertRegex(outcome.err, r"[1-9][0-9]{2} call sites of the C library are taken over")

    def test_sort(self):
        text, ordered = self.directory / "text", self.directory / "ordered"
        source = random.Random(2)
        with text.open("w") as file:
            for _ in range(20):
                file.write(source.randbytes(support.MIB // 2).hex("\n", 64) + "\n")

        def digest(_):
            value = hashlib.sha256(ordered.read_bytes()).hexdigest()
            ordered.unlink()
            return value

        self.compare(["sort", "--parallel=2", "--buffer-size=1G", "-o", ordered, text], result=digest,
                     environment={"LC_ALL": "C"})

    def test_sqlite(self):
        script = self.directory / "script.sql"
        script.write_text(SQL.format(rows=150_000))
        self.compare(["sqlite3", ":memory:", f".read {script}"])


if __name__ == "__main__":
    support.main()
