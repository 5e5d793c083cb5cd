"""Programs with hints: alone, and under farheap run, built in every way in which programs are built."""

import pathlib
import subprocess
import tempfile
import unittest

import support

BUDGET = 16 * support.MIB
SIZE_MIB = 64
BUILDS = {
    "C": ["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-x", "c"],
    "C, at a fixed address": ["cc", "-std=c11", "-O2", "-no-pie", "-fno-pie", "-x", "c"],
    "C++": ["c++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-x", "c++"],
    "C++, not optimised": ["c++", "-std=c++20", "-O0", "-x", "c++"],
    "C, static": ["cc", "-std=c11", "-O2", "-static", "-x", "c"],
}


class Hints(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.programs = {}
        source = pathlib.Path(__file__).with_name("hinter.cc")
        for name, command in BUILDS.items():
            program = pathlib.Path(cls.directory.name, f"program-{len(cls.programs)}")
            subprocess.run([*command, "-I", support.SOURCE / "include", source, "-o", program], check=True)
            cls.programs[name] = program

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def test_alone_they_do_nothing(self):
        for name, program in self.programs.items():
            with self.subTest(name):
                outcome = support.run([program, SIZE_MIB])
                self.assertEqual(outcome.code, 0, outcome)
                self.assertEqual(outcome.out, "0 wrong, hints unbound\n")

    def test_under_farheap_they_find_the_misses(self):
        for name, program in self.programs.items():
            if "static" in name:
                continue
            for mode in ("thread", "inline"):
                with self.subTest(name, mode=mode):
                    outcome = support.run_far([program, str(SIZE_MIB)], BUDGET, far="memory:", mode=mode)
                    self.assertEqual(outcome.code, 0, outcome)
                    self.assertEqual(outcome.out, "0 wrong, hints bound\n")
                    self.assertGreater(outcome.stats["hinted_misses"], 7000)  # half of the accesses were prefetched
                    # The rest are pages whose hint was overtaken by the evictor.
                    self.assertLess(outcome.stats["write_faults"], outcome.stats["hinted_misses"] / 7)

    def test_a_system_call_into_a_page_that_is_on_its_way(self):
        """The thread that asked for it waits inside the kernel, where it hears of no completion of an io_uring."""
        for mode in ("thread", "inline"):
            with self.subTest(mode=mode):
                outcome = support.run_far([self.programs["C"], str(SIZE_MIB), "into"], BUDGET, far="file:/var/tmp",
                                          mode=mode)
                self.assertEqual(outcome.code, 0, outcome)
                self.assertEqual(outcome.out, "0 wrong, hints bound\n")

    def test_on_a_stack_in_far_memory(self):
        """The runtime's own code runs on it, and may miss there at any time."""
        for mode in ("thread", "inline"):
            with self.subTest(mode=mode):
                outcome = support.run_far([self.programs["C"], str(SIZE_MIB), "far-stack"], BUDGET, far="memory:",
                                          mode=mode)
                self.assertEqual(outcome.code, 0, outcome)
                self.assertEqual(outcome.out, "0 wrong, hints bound\n")

    def test_with_every_policy(self):
        program = self.programs["C"]
        for policy in ("2q", "second-chance", "fifo", "lru", "lru:3", "priority"):
            with self.subTest(policy):
                outcome = support.run([support.FARHEAP, "run", "--local", str(BUDGET), "--far", "memory:", "--policy",
                                       policy, "--", program, SIZE_MIB])
                self.assertEqual(outcome.code, 0, outcome)
                self.assertEqual(outcome.out, "0 wrong, hints bound\n")


if __name__ == "__main__":
    support.main()
