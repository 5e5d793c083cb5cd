"""Well-known programs give the same results under farheap, with a quarter of their native peak, as natively."""

import hashlib
import os
import pathlib
import random
import shutil
import tempfile
import unittest

import support

# The modes take turns, so that the test stays short; None is the default, which chooses.
MODE = ("inline", "thread", None)[support.DAY % 3]

SQL = """
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, cents INTEGER, note TEXT);
CREATE TABLE customers(id INTEGER PRIMARY KEY, city INTEGER, name TEXT);
WITH RECURSIVE counter(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < {rows})
  INSERT INTO orders SELECT n, (n * 7919) % ({rows} / 10) + 1, (n * 104729) % 100003,
    printf('order %08d of many, to be sent soon', (n * 15485863) % {rows}) FROM counter;
WITH RECURSIVE counter(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < {rows} / 10)
  INSERT INTO customers SELECT n, n % 97, printf('customer %d', n) FROM counter;
CREATE INDEX by_customer ON orders(customer);
SELECT city, count(*), sum(cents), max(note) FROM orders JOIN customers ON customers.id = orders.customer
  GROUP BY city ORDER BY city;
SELECT count(*), sum(length(note)) FROM (SELECT note FROM orders ORDER BY note LIMIT 1000);
UPDATE orders SET cents = cents + 1 WHERE customer % 3 = 0;
DELETE FROM orders WHERE id % 5 = 0;
SELECT count(*), sum(cents), sum(id) FROM orders;
PRAGMA integrity_check;
"""

DUCKDB = """
import duckdb
rows = {rows}
connection = duckdb.connect(config={{"threads": 2, "memory_limit": "8GB"}})
run = lambda text: connection.execute(text).fetchall()
run(f'''CREATE TABLE events AS SELECT i AS id, (i * 7919) % 100003 AS person, (i * 104729) % 1009 AS kind,
        hash(i) AS code, 'event number ' || (i * 15485863 % {{rows}}) AS label FROM range({{rows}}) t(i)''')
run("CREATE TABLE people AS SELECT i AS person, i % 211 AS town FROM range(100003) t(i)")
print(run('''SELECT town, count(*), sum(kind), max(label), bit_xor(code) FROM events JOIN people USING (person)
             GROUP BY town ORDER BY town'''))
print(run("SELECT kind, count(DISTINCT person), min(label) FROM events GROUP BY kind ORDER BY kind"))
print(run(f"SELECT id, label FROM events ORDER BY code, id LIMIT 50 OFFSET {{rows // 2}}"))
run("DELETE FROM events WHERE id % 3 = 0")
print(run("SELECT count(*), sum(id), sum(length(label)) FROM events"))
"""


PYTHON = """
import hashlib, random
source = random.Random(3)
people = {{i: (f'person {{i}}', [source.randrange(1000) for _ in range(8)]) for i in range({rows})}}
towns = {{}}
for number, (name, visits) in people.items():
    for town in visits:
        towns.setdefault(town, []).append(number)
for number in source.sample(range({rows}), {rows} // 3):
    del people[number]
digest = hashlib.sha256()
for town in sorted(towns):
    digest.update(repr([people[number][0] for number in towns[town] if number in people][:50]).encode())
print(len(people), digest.hexdigest())
"""


class Programs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(dir=os.environ.get("FARHEAP_DIR", "/var/tmp"))
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def compare(self, program, result=lambda outcome: outcome.out, far=None, mode=None, fits=False, **options):
        """Runs natively, then at a quarter of the native peak or the smallest budget; both must give the same result.
        `fits`: the smallest budget may be all that the process, or the one that starts others, needs."""
        native = support.run(program, **options)
        self.assertEqual(native.code, 0, native)
        expected = result(native)
        self.assertTrue(expected)
        budget_bytes = max(native.peak_bytes // 4, 16 * support.MIB)
        outcome = support.run_far(program, budget_bytes, far, mode, **options)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(result(outcome), expected, outcome)
        self.assertIsNotNone(outcome.stats, outcome)
        if not fits:
            self.assertGreater(outcome.stats["fetched_pages"], 0, "far memory was never used")
        self.assertEqual(outcome.stats["over_budget_pages"], 0, outcome)
        return native

    def compare_file(self, program, made, mode=MODE, **options):
        """The same for a program that writes the file `made`. It is removed after each run, so that a program that
        writes nothing cannot pass with the result of the run before it. Returns what was in it."""
        contents = []

        def take(_):
            contents.append(made.read_bytes())
            made.unlink()
            return hashlib.sha256(contents[-1]).hexdigest()

        self.compare(program, take, mode=mode, **options)
        return contents[0]

    def make_text(self, name, lines, seed):
        """Words of a small vocabulary, so that compressors and deltas find something."""
        source = random.Random(seed)
        words = [source.randbytes(source.randrange(1, 6)).hex() for _ in range(4000)]
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            for _ in range(lines):
                file.write(" ".join(source.choices(words, k=12)) + "\n")
        return path

    def test_a_program_that_changes_its_identity(self):
        # The C library does this on every thread of the process, the runtime's included, and waits for them.
        program = "import os; os.setresgid(*os.getresgid()); os.setresuid(*os.getresuid()); print('changed')"
        for mode in ("thread", "inline"):
            with self.subTest(mode):
                outcome = support.run_far(["/usr/bin/python3", "-c", program], 16 * support.MIB, far="memory:", mode=mode,
                                          deadline_s=240)
                self.assertEqual((outcome.code, outcome.out), (0, "changed\n"), outcome)

    def test_a_debugger(self):
        for program in (support.PROGRAMS / "mapper", "/nowhere"):
            command = [support.PROGRAMS / "tracer", program, "foreign_neighbours"]
            native = support.run(command)
            outcome = support.run_far(command, 16 * support.MIB, far="memory:", deadline_s=240)
            self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)

    def test_an_allocator_of_the_programs_own(self):
        native = support.run([support.PROGRAMS / "own_allocator"])
        self.assertEqual((native.code, native.out), (0, "ready\n"), native)
        # Without io_uring, threads of the runtime start others while the program runs.
        for mode, far, disabled in (("thread", "memory:", ""), ("inline", "file:", "io_uring")):
            with self.subTest(mode, far=far):
                outcome = support.run_far([support.PROGRAMS / "own_allocator"], 16 * support.MIB, far=far, mode=mode,
                                          environment={"FARHEAP_DISABLE": disabled}, deadline_s=240)
                self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)
                self.assertGreater(outcome.stats["misses"], 0, outcome)

    def test_a_program_that_reads_its_own_memory(self):
        # All that it does; and where a way to open the file is the first.
        for part in ((), ("openat2",), ("openat",), ("descriptors",), ("streams",), ("ifstream",)):
            command = [support.PROGRAMS / "self_reader", *part]
            native = support.run(command)
            self.assertEqual((native.code, native.out[-5:]), (0, "done\n"), native)
            for mode in ("thread", "inline"):
                with self.subTest(mode, part=part):
                    outcome = support.run_far(command, 16 * support.MIB, far="memory:", mode=mode, deadline_s=240)
                    self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)
                    self.assertGreater(outcome.stats["misses"], 0, outcome)

    def test_a_library_that_prefers_its_own_names(self):
        native = support.run([support.PROGRAMS / "deep_binder", "libdeep_bound.so"])
        self.assertEqual((native.code, native.out), (0, f"{3 << 16}\n"), native)
        for mode in ("thread", "inline"):
            with self.subTest(mode):
                outcome = support.run_far([support.PROGRAMS / "deep_binder", "libdeep_bound.so"], 16 * support.MIB,
                                          far="memory:", mode=mode, deadline_s=240)
                self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)

    def test_sort(self):
        # Long lines, because only the jumps of the sort between them count.
        text, ordered = self.directory / "text", self.directory / "ordered"
        source = random.Random(2)
        with text.open("w") as file:
            for _ in range(256 if support.SOAK else 24):
                file.write(source.randbytes(support.MIB // 2).hex("\n", 64) + "\n")

        self.compare_file(["sort", "--parallel=2", "-S", "1G", "-T", self.directory, "-o", ordered, text], ordered, mode=None,
                          environment={"LC_ALL": "C"})

    def test_sqlite(self):
        support.need(shutil.which("sqlite3"), "there is no sqlite3 on this machine")
        script = self.directory / "script.sql"
        script.write_text(SQL.format(rows=2_000_000 if support.SOAK else 100_000))
        native = self.compare(["sqlite3", "-batch", "-bail", "-cmd", "PRAGMA temp_store=MEMORY", ":memory:",
                               f".read {script}"])
        self.assertTrue(native.out.endswith("ok\n"), native)

    def test_duckdb(self):
        support.need(support.VENV_PYTHON.exists(), f"there is no {support.VENV_PYTHON}; run evaluation/apps/flights/setup")
        script = self.directory / "script.py"
        script.write_text(DUCKDB.format(rows=24_000_000 if support.SOAK else 1_000_000))
        self.compare([support.VENV_PYTHON, script])

    def test_clang(self):
        compiler = shutil.which("clang++-19")
        support.need(compiler, "there is no clang++-19 on this machine")
        made = self.directory / "made.o"
        source = support.SOURCE / "src" / "engine" / "neighbourhood.cc"
        self.compare_file([compiler, "-std=c++20", "-O2", "-g", f"-I{support.SOURCE / 'src'}", f"-I{support.SOURCE / 'include'}",
                           "-c", "-o", made, source], made)

    def test_git(self):
        support.need(shutil.which("git"), "there is no git on this machine")
        origin, copy = self.directory / "origin", self.directory / "copy"
        environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": str(self.directory)}
        for role in ("AUTHOR", "COMMITTER"):
            environment.update({f"GIT_{role}_NAME": "somebody", f"GIT_{role}_EMAIL": "somebody@example.org",
                                f"GIT_{role}_DATE": "2001-01-01T00:00:00Z"})

        def git(*arguments, place=origin):
            outcome = support.run(["git", "-C", place, *arguments], environment=environment)
            self.assertEqual(outcome.code, 0, outcome)
            return outcome.out

        origin.mkdir()
        git("init", "--quiet", "--initial-branch=main")
        for revision in range(3):
            for number in range(32):
                path = self.make_text(f"origin/folder-{number % 7}/text-{number}", 1600, number)
                lines = path.read_text().splitlines()
                random.Random(revision).shuffle(lines[:200])
                path.write_text("\n".join(lines[revision * 20:]) + "\n")
            git("add", "--all")
            git("commit", "--quiet", "--message", f"revision {revision}")
        expected = git("rev-list", "--objects", "--all")

        def objects_of(repository):
            git("fsck", "--full", "--strict", place=repository)
            return git("rev-list", "--objects", "--all", place=repository)

        def take_copy(_):
            objects = objects_of(copy)
            shutil.rmtree(copy)
            return objects

        options = {"environment": environment, "mode": MODE}
        pack = ["git", "-C", origin, "-c", "pack.threads=1", "pack-objects", "--all", "--no-reuse-delta", "--window=96", "-q",
                self.directory / "pack"]
        self.compare(pack, **options)
        self.compare(["git", "clone", "--quiet", "--no-local", origin, copy], take_copy, fits=True, **options)
        self.compare(["git", "-C", origin, "gc", "--quiet", "--aggressive"], lambda _: objects_of(origin), fits=True, **options)
        self.compare(["git", "-C", origin, "grep", "--count", "ab.*cd"], fits=True, **options)
        self.compare(["git", "-C", origin, "log", "--patch", "--stat", "--no-color"],
                     lambda outcome: hashlib.sha256(outcome.out.encode()).hexdigest(), fits=True, **options)
        self.assertEqual(git("rev-list", "--objects", "--all"), expected)

    def test_grep(self):
        patterns = self.directory / "patterns"
        source = random.Random(5)
        patterns.write_text("".join(source.randbytes(8).hex() + "\n" for _ in range(600_000 if support.SOAK else 14_000)))
        text = self.make_text("text", 2000, 6)
        with text.open("a") as file:
            for pattern in patterns.read_text().split()[::100]:
                file.write(f"between {pattern} words\n")
        self.compare(["grep", "-n", "-F", "-f", patterns, text], mode=MODE, environment={"LC_ALL": "C"})

    def test_xz(self):
        support.need(shutil.which("xz"), "there is no xz on this machine")
        text = self.make_text("text", 16_000 if support.SOAK else 10_000, 7)
        content, packed = text.read_bytes(), text.with_name("text.xz")
        packed.write_bytes(self.compare_file(["xz", "--keep", "--threads=1", "-6", text], packed))
        text.unlink()
        self.assertEqual(self.compare_file(["xz", "--decompress", "--keep", packed], text, fits=True), content)

    def test_gzip(self):
        support.need(shutil.which("gzip"), "there is no gzip on this machine")
        text = self.make_text("text", 10_000, 8)
        self.compare_file(["gzip", "--keep", "--no-name", "-9", text], text.with_name("text.gz"), fits=True)

    def test_python(self):
        script = self.directory / "script.py"
        script.write_text(PYTHON.format(rows=1_000_000 if support.SOAK else 30_000))
        self.compare(["/usr/bin/python3", script], mode=MODE)


if __name__ == "__main__":
    support.main()
