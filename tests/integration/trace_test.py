"""Programs under `farheap trace`: the files say where they missed, and the programs notice nothing."""

import collections
import dataclasses
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import support

BUDGET = 24 * support.MIB

# Visits a table at random in one line of one function, and fills it in another.
PROGRAM = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define BYTES (64UL << 20)
static unsigned char* table;
__attribute__((noinline)) static unsigned long visit(unsigned long times, unsigned long x) {
  unsigned long sum = 0;
  for (unsigned long i = 0; i < times; ++i) {
    x ^= x << 13; x ^= x >> 7; x ^= x << 17;
    sum += table[x % BYTES];  /* line: visit */
  }
  return sum;
}
__attribute__((noinline)) static void fill(void) {
  for (unsigned long i = 0; i < BYTES; i += 8)
    *(unsigned long*)(table + i) = i * 2654435761u;  /* line: fill */
}
__attribute__((noinline)) static void change(unsigned long times) {
  for (unsigned long i = 0; i < times; ++i) {
    volatile unsigned char* at = table + i * 7919 * 4096 % BYTES;
    unsigned char was = *at;  /* line: look */
    *at = (unsigned char)(was + 1);  /* line: change */
  }
}
__attribute__((noinline)) static void* take(void) {
  return malloc(BYTES);  /* line: take */
}
/* Blocks that are copied when they grow, and one that cannot. */
__attribute__((noinline)) static unsigned long grow(size_t too_much) {
  unsigned char* blocks[8];
  unsigned long sum = 0;
  for (int i = 0; i < 8; ++i) memset(blocks[i] = malloc(1 << 20), i, 1 << 20);
  sum += visit(20000, 3);
  for (int i = 0; i < 8; ++i) {
    blocks[i] = realloc(blocks[i], 4 << 20);  /* line: grow */
    sum += blocks[i][4097];
  }
  if (realloc(table, too_much) == NULL) ++sum;
  for (int i = 0; i < 8; ++i) free(blocks[i]);
  return sum;
}
static void* run(void* seed) {
  return (void*)visit(2000, (unsigned long)seed);
}
/* Memory calls that wait for misses. */
static atomic_int forks_wanted = 30;
static void* lock_often(void* unused) {
  for (unsigned long i = 0; atomic_load(&forks_wanted) > 0; ++i) {
    unsigned char* at = table + i * 7919 * 4096 % (BYTES - (1 << 16));
    at -= (size_t)at % 4096;
    mlock(at, 1 << 16);
    munlock(at, 1 << 16);
  }
  return unused;
}
static void fork_often(void) {
  pthread_t locking;
  pthread_create(&locking, NULL, lock_often, NULL);
  for (; atomic_load(&forks_wanted) > 0; atomic_fetch_sub(&forks_wanted, 1)) {
    if (fork() == 0) _exit(0);
    wait(NULL);
  }
  pthread_join(locking, NULL);
}
int main(int count, char** words) {
  const char* action = count > 1 ? words[1] : "";
  table = take();
  fill();
  unsigned long sum = visit(4000, 88172645463325252UL);
  /* Pages that were only read when they were here last come back unwritable. */
  if (strcmp(action, "change") == 0) {
    sum += visit(60000, 7);
    change(2000);
  }
  if (strcmp(action, "grow") == 0) sum += grow((size_t)-1 / 2);
  if (strcmp(action, "threads") == 0) {
    pthread_t threads[3];
    for (unsigned long i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, run, (void*)(i + 5));
    for (int i = 0; i < 3; ++i) {
      void* part;
      pthread_join(threads[i], &part);
      sum += (unsigned long)part;
    }
  }
  if (strcmp(action, "fork") == 0) {
    fflush(stdout);
    if (fork() == 0) {
      printf("child %lu\n", visit(1000, 99));
      exit(0);
    }
    wait(NULL);
  }
  if (strcmp(action, "fork_often") == 0) fork_often();
  if (strcmp(action, "write") == 0) {
    int to = open("/dev/null", 1);
    sum += (unsigned long)write(to, table, 1 << 20);  /* line: write */
  }
  printf("%lu\n", sum);
  fflush(stdout);
  if (strcmp(action, "exec") == 0) execl("/bin/true", "true", NULL);
  if (strcmp(action, "abort") == 0) abort();
  if (strcmp(action, "exit") == 0) _exit(5);
  free(table);
  return 3;
}
""".replace("#include <pthread.h>", "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <pthread.h>")

PYTHON = """
import random
def build(count):
    return [bytes([number % 251]) * 4000 for number in range(count)]
def visit(items, order):
    total = 0
    for number in order:
        total += items[number][17]
    return total
def main():
    items = build(14000)
    chance = random.Random(5)
    print(visit(items, [chance.randrange(14000) for _ in range(6000)]))
main()
"""


@dataclasses.dataclass
class Trace:
    """The content of a file (src/trace/format.h)."""

    started: int
    pid: int
    sampled: int
    whole: bool = True
    stacks: dict = dataclasses.field(default_factory=dict)
    python_stacks: dict = dataclasses.field(default_factory=dict)
    misses: list = dataclasses.field(default_factory=list)
    allocations: list = dataclasses.field(default_factory=list)
    releases: list = dataclasses.field(default_factory=list)
    maps: list = dataclasses.field(default_factory=list)
    end: object = None


Miss = collections.namedtuple("Miss", "time address thread stack python kind in_kernel reserved")
Release = collections.namedtuple("Release", "time address")
Allocation = collections.namedtuple("Allocation", "time address bytes thread stack")
End = collections.namedtuple("End", "time misses hinted fetched recording_ns lost")


def read_trace(path):
    data = path.read_bytes()
    magic, version, page, started, budget, pid, sampled = struct.unpack_from("<8sIIQQII", data)
    assert (magic, version, page, budget) == (b"FARTRACE", 2, 4096, BUDGET), (magic, version, page, budget)
    found = Trace(started, pid, sampled)
    at = 40
    while at + 8 <= len(data):
        kind, size = struct.unpack_from("<II", data, at)
        payload = data[at + 8:at + 8 + size]
        at += 8 + (size + 7) // 8 * 8
        if kind == 1:
            number, depth = struct.unpack_from("<II", payload)
            found.stacks[number] = struct.unpack_from(f"<{depth}Q", payload, 8)
        elif kind == 2:
            found.python_stacks[struct.unpack_from("<I", payload)[0]] = payload[8:].decode().splitlines()
        elif kind == 3:
            found.misses.append(Miss(*struct.unpack("<QQIIIBBH", payload[:32])))
        elif kind == 4:
            found.allocations.append(Allocation(*struct.unpack("<QQQII", payload)))
        elif kind == 5:
            found.releases.append(Release(*struct.unpack("<QQ", payload)))
        elif kind == 6:
            found.maps.append(payload.decode())
        elif kind == 8:
            found.end = End(*struct.unpack("<6Q", payload))
    found.whole = at == len(data)
    return found


READ, WRITE, PROTECTION, FIRST_TOUCH = KINDS = range(4)


class Lines:
    """Names of functions and lines of the addresses of one program, by addr2line."""

    def __init__(self, program, trace):
        self.program = program
        spans = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \S+ +(.*)$", trace.maps[-1], re.M)
        parts = [(int(start, 16), int(end, 16), int(offset, 16)) for start, end, offset, name in spans
                 if name == str(program)]
        self.base = parts[0][0]
        self.end = parts[-1][1]
        self.known = {}

    def line_at(self, address, is_return=False):
        """(function, line), or None outside the program. Of a return address, the call before it."""
        if not self.base <= address < self.end:
            return None
        offset = address - self.base - is_return
        if offset not in self.known:
            text = subprocess.run(["addr2line", "-f", "-e", self.program, hex(offset)], capture_output=True, text=True,
                                  check=True).stdout.split("\n")
            self.known[offset] = (text[0], int(re.match(r".*:(\d+|\?)", text[1])[1].replace("?", "0")))
        return self.known[offset]

    def stack(self, addresses):
        named = [self.line_at(address, number > 0) for number, address in enumerate(addresses)]
        return [name[0] for name in named if name]


def line_of(mark):
    return next(number for number, line in enumerate(PROGRAM.split("\n"), 1) if f"/* line: {mark} */" in line)


class TraceTest(unittest.TestCase):
    """Programs in C are built with and without frame pointers."""

    @classmethod
    def setUpClass(cls):
        support.need(shutil.which("gcc") and shutil.which("addr2line"), "no gcc and addr2line here")
        cls.directory = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.directory.name)
        source = cls.root / "program.c"
        source.write_text(PROGRAM)
        cls.programs = {}
        for name, options in {"plain": ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"],
                              "without": ["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]}.items():
            cls.programs[name] = cls.root / name
            subprocess.run(["gcc", "-g", "-pthread", *options, source, "-o", cls.programs[name]], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def traced(self, program, *options, code=0):
        """Runs a program natively and traced; the traces, that of the first process first."""
        native = support.run(program)
        directory = self.root / f"trace-{time.monotonic_ns()}"
        stats = directory.with_suffix(".json")
        outcome = support.run([support.FARHEAP, "trace", "--local", BUDGET, "-o", directory, "--stats-json", stats,
                               "--far", "memory:", *options, "--", *program])
        self.assertEqual(outcome.out, native.out, str(outcome))
        self.assertEqual(outcome.code, code, str(outcome))
        self.assertEqual(native.code, code - 256 if code < 0 else (128 - code if code > 128 else code))
        files = list(directory.glob("misses-*.trace"))
        self.assertIn(str(directory), outcome.err)
        self.assertEqual({path.stat().st_mode & 0o777 for path in files}, {0o600})
        traces = sorted(map(read_trace, files), key=lambda trace: trace.started)
        for trace in traces:
            self.assertTrue(trace.whole)
        self.stats = support.json.loads(stats.read_text()) if stats.exists() else None
        return traces

    def functions(self, program, trace, kinds=KINDS):
        """How many misses each function of the program had, by its name and line."""
        lines = Lines(program, trace)
        counted = collections.Counter()
        for miss in trace.misses:
            if miss.kind in kinds:
                counted[lines.line_at(trace.stacks[miss.stack][0])] += 1
        return counted

    def test_misses_are_where_they_are(self):
        for name, program in self.programs.items():
            with self.subTest(name):
                trace, = self.traced([program], code=3)
                reads = self.functions(program, trace, kinds=(READ,))
                first_touches = self.functions(program, trace, kinds=(FIRST_TOUCH,))
                self.assertEqual(reads.most_common(1)[0][0], ("visit", line_of("visit")))
                self.assertEqual(first_touches.most_common(1)[0][0], ("fill", line_of("fill")))
                self.assertNotIn(("visit", line_of("visit")), first_touches)
                lines = Lines(program, trace)
                common = collections.Counter(miss.stack for miss in trace.misses if miss.kind == READ).most_common(1)[0][0]
                self.assertEqual(lines.stack(trace.stacks[common])[:2], ["visit", "main"])
                # Random reads of 64 MiB in 24 MiB miss more often than not.
                self.assertGreater(reads["visit", line_of("visit")], 1500)

    def test_every_miss_is_there(self):
        trace, = self.traced([self.programs["without"]], code=3)
        counted = self.stats
        self.assertEqual(len(trace.misses), trace.end.misses)
        self.assertEqual(trace.end.lost, 0)
        self.assertEqual(trace.end.fetched, counted["fetched_pages"])
        # Every fetch that somebody waited for was a miss of the guard; so were some first touches, and no more.
        least = counted["misses"]
        most = least + counted["waits"] + counted["rescues"] + counted["zero_fills"] + counted["write_faults"]
        self.assertGreaterEqual(trace.end.misses, least)
        self.assertLessEqual(trace.end.misses, most)
        self.assertGreater(trace.end.recording_ns, 0)
        first_touches = sum(miss.kind == FIRST_TOUCH for miss in trace.misses)
        self.assertGreater(first_touches, 0)
        self.assertLessEqual(first_touches, counted["zero_fills"] + counted["waits"])

    def test_allocations(self):
        trace, = self.traced([self.programs["without"]], code=3)
        table, = [block for block in trace.allocations if block.bytes == 64 << 20]
        self.assertEqual(Lines(self.programs["without"], trace).stack(trace.stacks[table.stack])[:2], ["take", "main"])
        self.assertIn(table.address, [release.address for release in trace.releases])
        inside = sum(table.address <= miss.address < table.address + table.bytes for miss in trace.misses)
        self.assertGreater(inside, 0.9 * len(trace.misses))

    def test_a_release_comes_before_the_block_is_gone(self):
        trace, = self.traced([self.programs["without"], "grow"], code=3)
        lines = Lines(self.programs["without"], trace)
        copied = [miss for miss in trace.misses
                  if any(lines.line_at(frame, True) == ("grow", line_of("grow")) for frame in trace.stacks[miss.stack])]
        seen = 0
        for block in (block for block in trace.allocations if block.bytes == 1 << 20):
            release = next(release for release in trace.releases
                           if release.address == block.address and release.time >= block.time)
            misses = [miss for miss in copied if block.address <= miss.address < block.address + block.bytes]
            self.assertTrue(all(miss.time >= release.time for miss in misses))
            seen += len(misses)
        self.assertGreater(seen, 0)

    def test_a_block_that_cannot_grow_is_still_there(self):
        trace, = self.traced([self.programs["without"], "grow"], code=3)
        table, = {block.address for block in trace.allocations if block.bytes == 64 << 20}
        taken, again = [block.time for block in trace.allocations if block.address == table]
        refused, freed = [block.time for block in trace.releases if block.address == table]
        self.assertTrue(taken <= refused <= again <= freed)

    def test_writes_to_clean_pages(self):
        program = self.programs["without"]
        trace, = self.traced([program, "change"], code=3)
        self.assertEqual(self.functions(program, trace, kinds=(PROTECTION,)).most_common(1)[0][0], ("change", line_of("change")))

    def test_system_calls(self):
        program = self.programs["without"]
        trace, = self.traced([program, "write"], code=3)
        lines = Lines(program, trace)
        stacks = {tuple(lines.stack(trace.stacks[miss.stack])) for miss in trace.misses if miss.in_kernel}
        self.assertIn(("main",), {stack[:1] for stack in stacks})
        written = [miss for miss in trace.misses if miss.in_kernel
                   and any(lines.line_at(frame, True) == ("main", line_of("write")) for frame in trace.stacks[miss.stack])]
        self.assertGreater(len(written), 5)

    def test_sampling(self):
        trace, = self.traced([self.programs["without"]], "--sample", "10", code=3)
        self.assertEqual(trace.sampled, 10)
        self.assertEqual(len(trace.misses), -(-trace.end.misses // 10))

    def test_threads(self):
        trace, = self.traced([self.programs["without"], "threads"], code=3)
        lines = Lines(self.programs["without"], trace)
        by_thread = collections.Counter(miss.thread for miss in trace.misses
                                        if lines.stack(trace.stacks[miss.stack])[:2] == ["visit", "run"])
        self.assertEqual(len(by_thread), 3)
        self.assertNotIn(trace.pid, by_thread)

    def test_fork(self):
        parent, child = self.traced([self.programs["without"], "fork"], code=3)
        self.assertNotEqual(parent.pid, child.pid)
        self.assertIn(("visit", line_of("visit")), self.functions(self.programs["without"], child))
        self.assertEqual({miss.thread for miss in child.misses}, {child.pid})
        self.assertEqual(len(child.misses), child.end.misses)

    def test_a_fork_waits_for_no_miss_that_is_being_recorded(self):
        traces = self.traced([self.programs["without"], "fork_often"], code=3)
        self.assertEqual(len(traces), 31)
        self.assertTrue(any(miss.in_kernel for miss in traces[0].misses))

    def test_other_ways_out(self):
        program = self.programs["without"]
        trace, = self.traced([program, "exit"], code=5)
        self.assertEqual(len(trace.misses), trace.end.misses)
        trace, = self.traced([program, "abort"], code=128 + signal.SIGABRT)
        self.assertIsNone(trace.end)
        self.assertGreater(len(trace.misses), 1500)
        traces = self.traced([program, "exec"])
        self.assertEqual(len(traces), 2)
        self.assertEqual(traces[0].pid, traces[1].pid)
        self.assertGreater(max(len(trace.misses) for trace in traces), 1500)

    def test_python(self):
        script = self.root / "a script.py"
        script.write_text(PYTHON)
        lines = PYTHON.split("\n")
        python = sys.executable
        exported = subprocess.run([python, "-c", "import ctypes; ctypes.CDLL(None)._Py_DumpTraceback"],
                                  capture_output=True, check=False).returncode == 0
        support.need(exported, f"{python} shows no _Py_DumpTraceback")
        trace, = self.traced([python, script])
        tops = collections.Counter(tuple(trace.python_stacks[miss.python][:2]) for miss in trace.misses
                                   if miss.kind == WRITE and miss.python)
        visit = 1 + next(number for number, line in enumerate(lines) if "items[number][17]" in line)
        main = 1 + next(number for number, line in enumerate(lines) if "print(visit" in line)
        self.assertIn((f"{script}:{visit} visit", f"{script}:{main} main"), tops)
        self.assertGreater(tops[f"{script}:{visit} visit", f"{script}:{main} main"], 500)

    def test_directories_that_cannot_be_used(self):
        full = self.root / "full"
        full.mkdir()
        (full / "a file").write_text("")
        for directory, word in [(full, "not empty"), (self.root / "no" / "where", "No such"),
                                (full / "a file", "Not a directory|exists|not empty")]:
            outcome = support.run([support.FARHEAP, "trace", "-o", directory, "--", "true"])
            self.assertEqual(outcome.code, 1, str(outcome))
            self.assertRegex(outcome.err, word)
        outcome = support.run([support.FARHEAP, "trace", "-o", self.root / "none", "--", "/no/such/program"])
        self.assertEqual(outcome.code, 127)
        self.assertFalse((self.root / "none").exists())


if __name__ == "__main__":
    support.main()
