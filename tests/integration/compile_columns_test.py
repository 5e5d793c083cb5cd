"""Loops that go through columns: rows that lie more than a page apart."""

import json
import shutil

import support
from compiling import CLANG, INCLUDE, SOURCES, Directory, compiled

BUDGET = 16 * support.MIB


class Columns(Directory):
    def test_columns_name_the_pages_of_their_rows_and_no_others(self):
        runtime_object = self.directory / "counting_runtime.o"
        report = self.directory / "columns.json"
        compiled("clang-19", "-O2", "-c", "-I", INCLUDE, SOURCES / "counting_runtime.c", "-o", runtime_object)
        for level in ["-O1", "-O2", "-O3"]:
            with self.subTest(level):
                program = self.directory / "columns"
                report.unlink(missing_ok=True)
                compiled(CLANG, level, "-g1", "-Xclang", "-llvm-verify-each", f"--farheap-report={report}", "-I", INCLUDE, SOURCES / "columns.c",
                         runtime_object, "-o", program)
                self.assertEqual(compiled(program), "counted\n")
                lines = [json.loads(line) for line in report.read_text().splitlines()]
                said = {(line["function"], line["done"], line["why"]) for line in lines if line["kind"] == "gather"}
                columns = {"take_rows": "read, column of 256", "put_rows": "written, column of 256",
                           "sum_rows": "read, column of 192", "add_to_rows": "written, column of 400",
                           "clear_rows": "written, column of 100", "sum_column": "read, column of 8",
                           "sum_backwards": "read, column of 8", "sum_few": "read, column of 8"}
                self.assertEqual(said, {(name, True, f"{why} bytes") for name, why in columns.items()} | {
                    ("follow_column", True, "read, computed, followed"), ("take_records", True, "read"),
                    ("until", False, "the number of iterations is not known"),
                    ("mend_places", False, "the loop writes to the array of indices")})

    def test_odd_columns_compute_the_same(self):
        program = self.directory / "corners"
        compiled("clang-19", "-O2", SOURCES / "column_corners.c", "-o", program)
        right = compiled(program)
        for options in ["-O1", "-O2", "-O3", "-O2 -ffar-objects", "-O2 -flto"]:
            with self.subTest(options):
                if "-flto" in options and shutil.which("ld.lld-19") is None:
                    self.skipTest("there is no ld.lld-19")
                verify = [] if "-flto" in options else ["-Xclang", "-llvm-verify-each"]
                compiled(CLANG, *options.split(), *verify, SOURCES / "column_corners.c", "-o", program)
                self.assertEqual(compiled(program), right)
        outcome = support.run_far([program], BUDGET, "memory:", "inline")
        self.assertEqual((outcome.code, outcome.out), (0, right), outcome)

    # Rows of 256 bytes that lie far apart come side by side; in the order of addresses they would be read ahead.
    def test_columns_prefetch(self):
        program, plain = self.directory / "columns", self.directory / "columns-plain"
        compiled(CLANG, "-O3", SOURCES / "reader.c", "-o", program)
        compiled(CLANG, "-O3", "--farheap-no-streams", SOURCES / "reader.c", "-o", plain)
        for mode in ["inline", "thread"]:
            with self.subTest(mode=mode):
                stats = {}
                for one in [program, plain]:
                    outcome = support.run_far([one, "columns"], BUDGET, "memory:?latency=5us", mode)
                    self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                    stats[one] = outcome.stats
                self.assertLess(stats[program]["misses"] * 3, stats[plain]["misses"], stats)
                self.assertGreater(stats[program]["prefetched_pages"], 8000, stats)


if __name__ == "__main__":
    support.main()
