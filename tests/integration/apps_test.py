"""psort and taxi give the right results, with hints and without, alone and under farheap in a quarter of their memory;
the programs without hints that `farheap-bench run` measures do, too."""

import json
import os
import pathlib
import tempfile
import unittest

import support

APPS = support.BUILD / "bin" / "apps"
# taxi_reference.py needs the environment of evaluation/apps/flights.
REFERENCE = pathlib.Path(__file__).with_name("taxi_reference.py")
# The keys in which two runs that do the same may differ.
OF_THE_RUN = {"seconds", "phases", "hinted"}
SCALE = 8 if support.SOAK else 1


class Apps(unittest.TestCase):
    def report(self, outcome):
        """A program's output for machines, without what differs between runs."""
        self.assertEqual(outcome.code, 0, outcome)
        report = json.loads(outcome.out)
        self.assertGreater(report["seconds"], 0, report)
        self.assertTrue(all(seconds >= 0 for seconds in report["phases"].values()), report)
        self.assertGreaterEqual(sum(report["phases"].values()) * 1.000001, report["seconds"], report)
        return {key: value for key, value in report.items() if key not in OF_THE_RUN}

    def compare_with_farheap(self, name, *options):
        """All builds, alone and with a quarter of the peak: one result. Returns it."""
        reports = []
        for program in (name, f"{name}-basic", f"{name}-unhinted"):
            command = [APPS / program, "--json", *options]
            alone = support.run(command)
            reports.append(self.report(alone))
            self.assertEqual(json.loads(alone.out)["hinted"], program != f"{name}-unhinted")
            far = support.run_far(command, alone.peak_bytes // 4)
            reports.append(self.report(far))
            self.assertIsNotNone(far.stats, far)
            self.assertGreater(far.stats["fetched_pages"], 0, "far memory was never used")
            self.assertEqual(far.stats["over_budget_pages"], 0, far.stats)
        for report in reports[1:]:
            self.assertEqual(report, reports[0])
        return reports[0]

    def assert_close(self, found, expected, where=""):
        """Equal, but floats by one part in 10^9."""
        if isinstance(expected, dict):
            self.assertEqual(found.keys(), expected.keys(), where)
            for key, value in expected.items():
                self.assert_close(found[key], value, f"{where}/{key}")
        elif isinstance(expected, float):
            self.assertLessEqual(abs(found - expected), 1e-9 * abs(expected), f"{where}: {found}, not {expected}")
        else:
            self.assertEqual(found, expected, where)

    def test_unchanged(self):
        def checksum(outcome):
            self.assertEqual(outcome.code, 0, outcome)
            return json.loads(outcome.out)["checksum"]

        for command in (["graph", "--scale", 15, "--searches", 2],
                        ["pages", "--bytes", 64 * support.MIB, "--reads", 20_000, "--threads", 2]):
            with self.subTest(command[0]):
                command[0] = APPS / command[0]
                alone = checksum(support.run(command))
                far = support.run_far(command, 16 * support.MIB)
                self.assertEqual(checksum(far), alone)
                self.assertNotEqual(checksum(support.run([*command, "--seed", 2])), alone)

    def test_servers_under_load(self):
        support.need(support.SOAK, "it takes half a minute; FARHEAP_SOAK=1 runs it")
        program = support.SOURCE / "evaluation/apps/unchanged/server.py"
        launcher = support.farheap_command([], 24 * support.MIB)
        for server in ("redis", "memcached"):
            with self.subTest(server):
                alone, far = (support.run([program, server, "--quick", *more]) for more in ([], ["--", *launcher]))
                self.assertEqual((alone.code, far.code), (0, 0), (alone, far))
                self.assertEqual(json.loads(far.out)["checksum"], json.loads(alone.out)["checksum"])

    def test_psort(self):
        report = self.compare_with_farheap("psort", "--elements", 6_000_000 * SCALE, "--threads", 3, "--seed", 5)
        self.assertEqual(report["elements"], 6_000_000 * SCALE)
        self.assertTrue(report["verified"])
        # The same numbers by one thread, and other numbers.
        small = ["--json", "--elements", 1000]
        one, two, other = (self.report(support.run([APPS / "psort", *small, *more]))["checksum"] for more in
                           (["--threads", 1], ["--threads", 2], ["--seed", 2]))
        self.assertEqual(one, two)
        self.assertNotEqual(one, other)

    def test_taxi(self):
        report = self.compare_with_farheap("taxi", "--rows", 1_000_000 * SCALE, "--seed", 3)
        self.assertEqual(report["rows"], 1_000_000 * SCALE)
        self.assertEqual(len(report["results"]), 9)

    def test_taxi_and_pandas(self):
        support.need(support.VENV_PYTHON.exists(), f"there is no {support.VENV_PYTHON}; run evaluation/apps/flights/setup")
        with tempfile.TemporaryDirectory(dir=os.environ.get("FARHEAP_DIR", "/var/tmp")) as directory:
            csv = pathlib.Path(directory, "trips.csv")
            generated = self.report(support.run(
                [APPS / "taxi", "--json", "--rows", 200_000, "--seed", 11, "--write-csv", csv]))
            read = self.report(support.run([APPS / "taxi", "--json", "--csv", csv]))
            reference = support.run([support.VENV_PYTHON, REFERENCE, csv])
        self.assertEqual(read, generated)
        self.assertEqual(reference.code, 0, reference)
        expected = json.loads(reference.out)
        self.assert_close(read["results"], expected)
        # The data has something to find for every analysis.
        self.assertEqual(len(expected["passengers"]), 2)
        self.assertEqual(len(expected["median_by_day"]), 31)
        self.assertGreater(expected["distances"]["beyond_100_km"], 0)
        self.assertGreater(expected["stored"]["trips"], 0)

    def test_bad_input(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory, "trips.csv")
            file.write_text("a,b\n1,2\n")
            for command, message in [
                    (["taxi", "--csv", file], f"taxi: {file}: the first line is not the header"),
                    (["taxi", "--csv", file.with_name("none")], "No such file"),
                    (["taxi", "--write-csv", file / "x", "--rows", 1], "Not a directory"),
                    (["taxi", "--csv", file, "--seed", 1], "--seed excludes --csv"),
                    (["taxi", "--rows", 0], "--rows"),
                    (["taxi", "--rows", 1 << 47], "give fewer --rows"),
                    (["psort", "--threads", 0], "--threads"),
                    (["psort", "--elements", 1 << 47], "give fewer --elements")]:
                outcome = support.run([APPS / command[0], *command[1:]])
                self.assertGreater(outcome.code, 0, outcome)
                self.assertIn(message, outcome.err, outcome)
                self.assertEqual(outcome.out, "", outcome)


if __name__ == "__main__":
    support.main()
