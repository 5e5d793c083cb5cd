"""`farheap stats`, `top`, `resize` and `add-server` on processes with far::runtime objects."""

import json
import pathlib
import subprocess
import tempfile
import time
import unittest

import support

MIB = support.MIB


class LinkDoor(unittest.TestCase):
    def start(self, *arguments, before=(), stderr=None):
        process = subprocess.Popen([*before, support.PROGRAMS / "linked", *map(str, arguments)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=stderr, text=True)
        self.addCleanup(support.end, process)
        if process.stdout.readline() != "ready\n":
            process.wait()
            if not before:
                self.skipTest("no far::runtime starts here (userfaultfd, or membarrier)")
            self.fail(f"exit code {process.returncode}: {process.stderr.read() if process.stderr else ''}")
        return process

    def finish(self, process):
        out, err = process.communicate("\n", timeout=support.DEADLINE_S)
        self.assertEqual((process.returncode, out), (0, "0 wrong\n"), err)
        return err

    def ask(self, *arguments):
        return support.run([support.FARHEAP, *map(str, arguments)])

    def stats(self, pid):
        outcome = self.ask("stats", "--json", pid)
        self.assertEqual(outcome.code, 0, outcome)
        return json.loads(outcome.out)

    def listed(self, *pids):
        outcome = self.ask("top", "--json", "--interval", "0.1", *pids)
        self.assertEqual(outcome.code, 0, outcome)
        return {process["pid"]: process for job in json.loads(outcome.out)["jobs"] for process in job["processes"]}

    def test_stats_and_top_show_it(self):
        process = self.start(16, 30000)
        counted = self.stats(process.pid)
        self.assertEqual(counted["budget_bytes"], 16 * MIB)
        self.assertGreater(counted["far_bytes"], 8 * MIB)
        self.assertIn("local_bytes", self.ask("stats", process.pid).out)
        for shown in self.listed(), self.listed(process.pid):
            self.assertEqual(shown[process.pid]["program"], "linked")
            self.assertEqual(shown[process.pid]["budget_bytes"], 16 * MIB)
        self.assertIn("linked", self.ask("top", "--once", "--interval", "0.1", process.pid).out)
        self.finish(process)
        self.assertNotEqual(self.ask("stats", process.pid).code, 0)
        self.assertNotIn(process.pid, self.listed())

    def test_resize_and_add_server(self):
        process = self.start(16, 30000, 32)
        self.assertEqual(self.stats(process.pid)["budget_bytes"], 48 * MIB, "of both its runtimes")
        self.assertEqual(self.ask("resize", process.pid, "96M").code, 0)
        self.assertEqual(self.stats(process.pid)["budget_bytes"], 96 * MIB)
        refused = self.ask("resize", process.pid, "20M")
        self.assertNotEqual(refused.code, 0)
        self.assertIn("give at least 32.0 MiB", refused.err)
        refused = self.ask("add-server", process.pid, "127.0.0.1:1")
        self.assertNotEqual(refused.code, 0)
        self.assertIn("server", refused.err)
        self.finish(process)

    def run_door(self, local, mode):
        return [support.FARHEAP, "run", "--local", local, "--far", "memory:", "--fault-mode", mode, "--"]

    def wait_until(self, holds, awaited):
        deadline = time.monotonic() + 60
        while not holds():
            self.assertLess(time.monotonic(), deadline, awaited)
            time.sleep(0.1)

    def test_under_farheap_run_all_far_memory_shares_its_budget(self):
        self.finish(self.start(16, 1))
        for mode in "thread", "inline":
            with self.subTest(mode=mode):
                process = self.start(64, 100000, 64, before=self.run_door("96M", mode), stderr=subprocess.PIPE)
                counted = self.stats(process.pid)
                self.assertGreater(counted["far_bytes"], 8 * MIB, "those of the far::runtime")
                self.wait_until(lambda: self.stats(process.pid)["budget_bytes"] <= 96 * MIB, "one budget")
                self.assertEqual(self.ask("resize", process.pid, "64M").code, 0)
                self.wait_until(lambda: self.stats(process.pid)["local_bytes"] <= 64 * MIB, "a lower one")
                refused = self.ask("resize", process.pid, "32M")
                self.assertNotEqual(refused.code, 0)
                self.assertIn("give at least 48.0 MiB", refused.err)
                printed = self.finish(process)
                self.assertNotIn("budget of its own", printed)
                self.assertNotIn("far 0 B", printed)

    def test_a_trace_names_containers_and_the_lines_that_use_them(self):
        self.finish(self.start(16, 1))
        with tempfile.TemporaryDirectory() as folder:
            traced = pathlib.Path(folder, "trace")
            outcome = support.run([support.FARHEAP, "trace", "--local", "64M", "--far", "memory:", "-o", traced, "--",
                                   support.PROGRAMS / "linked", 16, 20000, 0, 3000000])
            self.assertEqual(outcome.code, 0, outcome)
            report = json.loads(self.ask("report", traced, "--json").out)
        source = (pathlib.Path(__file__).parent / "linked.cc").read_text().splitlines()
        found = {}
        for line in report["lines"]:
            if line["file"].endswith("/linked.cc"):
                self.assertEqual(line["hint"], "", line)
                found[line["container"].split("<")[0]] = source[line["line"] - 1], line["misses"]
        pointers, vector = found["far::unique_ptr"], found["far::detail::elements"]
        self.assertIn("all[i].read()", pointers[0])
        self.assertGreater(pointers[1], 1000)
        self.assertIn("table.read(index)", vector[0])
        self.assertGreater(vector[1], 500)
        self.assertGreater(report["first_touches"], 0)


if __name__ == "__main__":
    support.main()
