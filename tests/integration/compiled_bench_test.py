"""`farheap-bench compiled` measures every program in every way, and notices one that computes something else."""

import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import support

BENCH = support.BUILD / "bin" / "farheap-bench"
# Each takes some seconds to compile and to measure: they take turns by day.
PROGRAMS = ["stream", "hashmap", "fourier"]
if support.SOAK:
    PROGRAMS += ["kmeans", "gradient", "integers", "multigrid", "compressor", "taxi", "cached"]
MODES = [f"{by}, farheap run, {mode}" for by in ("clang -O3", "compiled") for mode in ("inline", "thread")]
LOCAL = "clang -O3, all local"
BARE = "compiled, no runtime"
# A third of it stays out of the budget of 16 MiB, the least there is. Without the peers: swap is on for the whole machine.
SMALLEST = [*([] if support.SOAK else ["--quick"]), "--runs", "1", "--working-set", "24M", "--only", " run"]


class Compiled(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def figures(self, *options, environment=None):
        done = support.run([BENCH, "compiled", *SMALLEST, *options, "--json", "-"], environment=environment,
                           deadline_s=400)
        self.assertEqual(done.code, 0, done)
        return json.loads(done.out)

    def test_every_program_in_every_way(self):
        for name in support.of_today(PROGRAMS):
            with self.subTest(name):
                self.measure(name)

    def measure(self, name):
        plots = self.directory / "plots"
        found = self.figures("--workload", name, "--plot", plots)
        self.assertEqual(found["skipped"], [])
        self.assertIn("<svg", (plots / f"compiled-{name}.svg").read_text())
        rows = {(one["workload"], one["configuration"]): one["metrics"] for one in found["results"]}
        wanted = [(f"{name}, 100%", way) for way in [LOCAL, BARE, *MODES]]
        wanted += [(f"{name}, 25%", way) for way in [LOCAL, *MODES]]
        self.assertLessEqual(set(wanted), set(rows), rows.keys())
        for key in wanted:
            self.assertGreater(rows[key]["elapsed_ns"]["median"], 0, key)
        plain, door = (rows[f"{name}, 100%", way] for way in (LOCAL, BARE))
        for metric in ["code_bytes", "compile_ns"] + ["instructions"] * (name != "cached"):
            self.assertGreater(plain[metric]["median"], 0)
            self.assertGreater(door[metric]["median"], 0)
        self.assertGreater(door["code_bytes"]["median"], plain["code_bytes"]["median"])
        aims = {one["what"] for one in found["aims"]}
        self.assertIn("CPU time of compiling all programs over clang -O3", aims)
        self.assertIn(f"{name}, all local: time over clang -O3", aims)
        if name == "stream":
            self.assertIn("stream, 25%: speed over clang -O3 under farheap run", aims)
            for way in MODES:
                self.assertGreater(rows["stream, 25%", way]["fetched_pages"]["median"], 0, "far memory was never used")

    def test_another_result_is_an_error(self):
        # A clang that compiles another program, unless it is the one behind the compile door.
        clang = self.directory / "clang++-19"
        clang.write_text(f"""#!{sys.executable}
import os, sys
arguments = sys.argv[1:]
if not any(one.startswith("-fpass-plugin") for one in arguments):
    arguments = [one.replace("kmeans.cc", "stream.cc") for one in arguments]
os.execv("{shutil.which('clang++-19')}", ["clang++-19", *arguments])
""")
        clang.chmod(0o755)
        found = self.figures("--workload", "kmeans", environment={"PATH": f"{self.directory}:{os.environ['PATH']}"})
        reasons = {one["configuration"]: one["reason"] for one in found["skipped"]}
        self.assertLessEqual({BARE, *(way for way in MODES if way.startswith("compiled"))}, set(reasons))
        self.assertIn("its results are other ones", reasons[BARE])
        self.assertFalse([one for one in found["results"] if one["configuration"] in MODES[2:]], found["results"])


if __name__ == "__main__":
    support.main()
