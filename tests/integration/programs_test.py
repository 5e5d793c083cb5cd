"""Well-known programs give the same results under farheap, with a quarter of their native peak, as natively."""

import hashlib
import os
import pathlib
import random
import shutil
import tempfile
import unittest

import support

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


class Programs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(dir=os.environ.get("FARHEAP_DIR", "/var/tmp"))
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def compare(self, program, result=lambda outcome: outcome.out, **options):
        """Runs natively, then at a quarter of the native peak or the smallest budget; both must give the same result."""
        native = support.run(program, **options)
        self.assertEqual(native.code, 0, native)
        expected = result(native)
        self.assertTrue(expected)
        budget_bytes = max(native.peak_bytes // 4, 16 * support.MIB)
        outcome = support.run_far(program, budget_bytes, **options)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(result(outcome), expected, outcome)
        self.assertIsNotNone(outcome.stats, outcome)
        self.assertGreater(outcome.stats["fetched_pages"], 0, "far memory was never used")
        self.assertEqual(outcome.stats["over_budget_pages"], 0, outcome)
        return native

    def test_a_program_that_changes_its_identity(self):
        # The C library does this on every thread of the process, the runtime's included, and waits for them.
        program = "import os; os.setresgid(*os.getresgid()); os.setresuid(*os.getresuid()); print('changed')"
        for mode in ("thread", "inline"):
            with self.subTest(mode):
                outcome = support.run_far(["/usr/bin/python3", "-c", program], 16 * support.MIB, far="memory:", mode=mode,
                                          deadline_s=60)
                self.assertEqual((outcome.code, outcome.out), (0, "changed\n"), outcome)

    def test_a_library_that_prefers_its_own_names(self):
        native = support.run([support.PROGRAMS / "deep_binder", "libdeep_bound.so"])
        self.assertEqual((native.code, native.out), (0, f"{3 << 16}\n"), native)
        for mode in ("thread", "inline"):
            with self.subTest(mode):
                outcome = support.run_far([support.PROGRAMS / "deep_binder", "libdeep_bound.so"], 16 * support.MIB,
                                          far="memory:", mode=mode, deadline_s=60)
                self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)

    def test_sort(self):
        # Long lines, because only the jumps of the sort between them count.
        text, ordered = self.directory / "text", self.directory / "ordered"
        source = random.Random(2)
        with text.open("w") as file:
            for _ in range(256 if support.SOAK else 24):
                file.write(source.randbytes(support.MIB // 2).hex("\n", 64) + "\n")

        def digest(_):
            # Removed, so that a sort that writes nothing cannot pass with the result of the run before it.
            value = hashlib.sha256(ordered.read_bytes()).hexdigest()
            ordered.unlink()
            return value

        self.compare(["sort", "--parallel=2", "-S", "1G", "-T", self.directory, "-o", ordered, text], digest,
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


if __name__ == "__main__":
    support.main()
