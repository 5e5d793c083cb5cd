"""evaluation/apps/web answers the same requests in the same way: alone, with and without hints, under farheap,
and on far containers."""

import json
import unittest

import support

ARGUMENTS = ["--keys", "200000", "--elements", "12000", "--closed-loop", "5000", "--json"]


class Web(unittest.TestCase):
    def result(self, outcome):
        self.assertEqual(outcome.code, 0, outcome)
        return json.loads(outcome.out)

    def checksum(self, outcome, requests=5000):
        result = self.result(outcome)
        self.assertEqual(result["requests"], requests)
        return result["checksum"]

    def command(self, name, *more):
        return [support.BUILD / "bin" / "apps" / name, *ARGUMENTS, *more]

    def test_same_answers(self):
        expected = self.checksum(support.run(self.command("web", "--threads", "1")))
        self.assertEqual(self.checksum(support.run(self.command("web", "--threads", "3"))), expected)
        self.assertEqual(self.checksum(support.run(self.command("web-unhinted"))), expected)
        self.assertNotEqual(self.checksum(support.run(self.command("web", "--seed", "2"))), expected)
        for name in ("web", "web-basic", "web-unhinted"):
            with self.subTest(name):
                outcome = support.run_far(self.command(name), 32 * support.MIB)
                self.assertEqual(self.checksum(outcome), expected)
                self.assertGreater(outcome.stats["misses"], 0, "far memory was never used")

    def test_far_containers(self):
        expected = self.checksum(support.run(self.command("web")))
        for more in (["--local", "16M"], ["--local", "1G", "--threads", "3"]):
            with self.subTest(more):
                outcome = support.run(self.command("web-far", *more))
                self.assertEqual(self.checksum(outcome), expected)
                misses = self.result(outcome)["far"]["misses"]
                self.assertGreater(misses, 0 if more[1] == "16M" else -1, "far memory was never used")
        standard = support.run(self.command("web-std"))
        self.assertEqual(self.checksum(standard), expected)
        self.assertIsNone(self.result(standard)["far"])

    def test_open_loop_on_fibers(self):
        arguments = ["--keys", "100000", "--elements", "6000", "--json", "--rate", "1000", "--seconds", "1"]
        far, std = (self.result(support.run([support.BUILD / "bin" / "apps" / name, *arguments, *more]))
                    for name, more in [("web-far", ["--local", "16M"]), ("web-std", [])])
        self.assertEqual((far["requests"], far["checksum"]), (std["requests"], std["checksum"]))
        self.assertGreater(far["far"]["misses"], 0, "far memory was never used")
        self.assertLess(0, far["latency_us"]["p99"])

    def test_open_loop(self):
        program = [support.BUILD / "bin" / "apps" / "web", "--keys", "1000", "--elements", "100", "--json", "--rate", "1000"]
        first, second = (self.result(support.run([*program, "--seconds", "1"])) for _ in range(2))
        # Arrivals depend on the seed alone; a Poisson process with a mean of 1000.
        self.assertEqual(first["requests"], second["requests"])
        self.assertEqual(first["checksum"], second["checksum"])
        self.assertTrue(800 < first["requests"] < 1200, first)
        latency = first["latency_us"]
        self.assertTrue(0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"], latency)


if __name__ == "__main__":
    support.main()
