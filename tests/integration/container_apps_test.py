"""Programs on containers find the same on far ones as on those of the standard library, in a fraction of their memory."""

import dataclasses
import json
import unittest

import support


@dataclasses.dataclass
class App:
    """A program, and arguments with which it uses at least twice 16 MiB."""

    name: str
    arguments: list[str]

    def run(self, containers, *more):
        program = support.BUILD / "bin" / "apps" / f"{self.name}-{containers}"
        return support.run([program, "--json", *self.arguments, *more])


APPS = [
    App("analytics", ["--rows", "500000"]),
    App("graph", ["--scale", "18", "--degree", "6", "--iterations", "2"]),
    App("graph", ["--scale", "18", "--degree", "6", "--job", "triangles"]),
    App("hashmap", ["--keys", "400000", "--lookups", "300000"]),
    App("snappy", ["--files", "3", "--file-bytes", "5000001"]),
    App("wordcount", ["--bytes", "20M", "--distinct", "100000"]),
    App("wordcount", ["--bytes", "8M", "--distinct", "50000", "--job", "visitors"]),
]
SMALL = {"analytics": ["--rows", "1000"], "graph": ["--scale", "8"], "hashmap": ["--keys", "999", "--lookups", "999"], "snappy": ["--file-bytes", "9999"],
         "wordcount": ["--bytes", "100000"]}
LOCAL = ["--local", "16M"]


class ContainerApps(unittest.TestCase):
    def report(self, outcome):
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.err, "", outcome)
        return json.loads(outcome.out)

    def test_same_results(self):
        for app in APPS:
            with self.subTest(app):
                expected = self.report(app.run("std"))
                found = self.report(app.run("far", *LOCAL))
                self.assertEqual(found["results"], expected["results"])
                self.assertGreater(found["far"]["evicted_pages"], 0, "everything stayed local")
                self.assertGreater(found["far"]["misses"], 0, "far memory was never used")
                self.assertEqual((expected["containers"], found["containers"]), ("std", "far"))

    def test_results_depend_on_the_seed(self):
        for name, arguments in SMALL.items():
            with self.subTest(name):
                app = App(name, arguments)
                first, again, other = (self.report(app.run("std", "--seed", seed))["results"] for seed in "112")
                self.assertEqual(first, again)
                self.assertNotEqual(first, other)

    def test_same_results_as_with_hints(self):
        expected = self.report(support.run([support.BUILD / "bin" / "apps" / "taxi", "--rows", "50000", "--json"]))
        found = self.report(App("analytics", ["--rows", "50000"]).run("std"))
        self.assertEqual(found["results"], expected["results"])

    def test_a_table_finds_the_same_wherever_its_questions_are_answered(self):
        expected = self.report(App("analytics", ["--rows", "700000"]).run("std"))["results"]
        # Its kilometres are added in another order.
        mean_km = expected["distances"].pop("mean_km")
        table = App("analytics-table", ["--rows", "700000"])
        all_found = []
        for questions in ("there", "here", "automatic"):
            with self.subTest(questions):
                found = self.report(table.run("far", *LOCAL, "--questions", questions))
                self.assertGreater(found["far"]["evicted_pages"], 0, "everything stayed local")
                all_found.append(json.dumps(found["results"]))
                self.assertAlmostEqual(found["results"]["distances"].pop("mean_km"), mean_km, delta=1e-9)
                self.assertEqual(found["results"], expected)
        self.assertEqual(len(set(all_found)), 1, "bit for bit")

    def test_a_full_far_tier(self):
        """Nothing is lost: the program goes on in more local memory than it should, and is told so."""
        app = App("snappy", ["--files", "3", "--file-bytes", "5000001"])
        outcome = app.run("far", *LOCAL, "--far", "memory:?capacity=4M")
        self.assertEqual(outcome.code, 0, outcome)
        self.assertIn("the far tier is full", outcome.err)
        self.assertEqual(json.loads(outcome.out)["results"], self.report(app.run("std"))["results"])

    def test_wrong_arguments(self):
        for name, small in SMALL.items():
            for containers, arguments, said in [
                ("far", ["--local", "1M"], "give at least 16"),
                ("far", ["--far", "nonsense:"], "there is no 'nonsense:'"),
                ("std", LOCAL, "--local"),
                ("far", ["--seed", "x"], "--seed"),
            ]:
                with self.subTest(name, containers=containers, arguments=arguments):
                    outcome = App(name, small).run(containers, *arguments)
                    self.assertGreater(outcome.code, 0, outcome)
                    self.assertIn(said, outcome.err)
                    self.assertEqual(outcome.out, "")


if __name__ == "__main__":
    support.main()
