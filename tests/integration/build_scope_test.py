"""The needs of `make run` and `make build`: no test, and no package that only tests use."""

import subprocess
import tempfile
import unittest

import support


def run(*command):
    return subprocess.run(command, cwd=support.SOURCE, text=True, capture_output=True, timeout=support.DEADLINE_S)


class BuildScope(unittest.TestCase):
    def objects_of(self, scope, target):
        """The outputs that a fresh folder would build for the target, where the packages of tests are not installed."""
        absent = ["GTest", "benchmark"] + (["Boost"] if scope == "run" else [])
        with tempfile.TemporaryDirectory() as folder:
            configured = run("cmake", "-S", ".", "-B", folder, "-G", "Ninja", f"-DFARHEAP_SCOPE={scope}",
                       "--log-level=WARNING", *[f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in absent])
            self.assertEqual(configured.returncode, 0, configured.stdout + configured.stderr)
            plan = run("ninja", "-C", folder, "-n", target)
            self.assertEqual(plan.returncode, 0, plan.stdout + plan.stderr)
        steps = [line.split("] ", 1)[1].rsplit(" ", 1)[1] for line in plan.stdout.splitlines() if "] " in line]
        for step in steps:
            self.assertNotRegex(step, r"^(tests|evaluation/bench)/|_test(\.cc\.o)?$", f"'{target}' builds a part of a test")
        return steps

    def test_the_run_door_alone(self):
        steps = self.objects_of("run", "run_door")
        self.assertIn("bin/farheap", steps)
        self.assertIn("lib/libfarheap-preload.so", steps)
        # Of the server, the command has what answers a scrape.
        steps = [step for step in steps if "far_metrics_server" not in step]
        for step in steps:
            self.assertNotRegex(step, r"^(server|evaluation|examples|src/fiber|src/heap)/", "the run door needs none of it")

    def test_the_products(self):
        steps = self.objects_of("products", "products")
        for product in ["bin/farheap", "bin/farheapd", "lib/libfarheap-preload.so", "lib/libfarheap.a", "lib/libfarheap.so"]:
            self.assertIn(product, steps)
        for step in steps:
            self.assertNotRegex(step, r"^(evaluation|examples)/", "`make examples` builds them")

    def test_a_folder_never_becomes_narrower(self):
        if support.BUILD != support.SOURCE / "build":
            self.skipTest("another build folder is tested")
        before = (support.BUILD / "CMakeCache.txt").read_bytes()
        done = run("scripts/configure", "release", "build", "run")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual((support.BUILD / "CMakeCache.txt").read_bytes(), before)

    def test_a_scope_that_does_not_exist(self):
        done = run("scripts/configure", "release", "build", "some")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there are run, products and all", done.stderr)


if __name__ == "__main__":
    support.main()
