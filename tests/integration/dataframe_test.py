"""far::dataframe answers random questions about random tables as pandas does, wherever they are answered."""

import json
import pathlib
import tempfile
import unittest

import support

REFERENCE = pathlib.Path(__file__).with_name("dataframe_reference.py")
EDGES = ("nulls", "zeros", "extremes", "overflow")
PLACEMENTS = ("there", "here", "automatic")
ROWS_AND_SEEDS = [(0, 1), (1, 1), (30, 1), (30, 2), (4_000, 1)]
if support.SOAK:
    ROWS_AND_SEEDS = [(rows, seed) for rows in (0, 1, 2, 30, 400, 4_000) for seed in range(30)]


def same(found, expected):
    """Whether two values are equal, floats bit for bit but for the signs of zeros."""
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in found)
    if isinstance(found, bool) != isinstance(expected, bool):
        return False
    return found == expected


class Dataframe(unittest.TestCase):
    def compare(self, rows, seed):
        with tempfile.TemporaryDirectory() as folder:
            reference = support.run([support.VENV_PYTHON, REFERENCE, folder, seed, rows])
            self.assertEqual(reference.code, 0, reference)
            ran = support.run([support.PROGRAMS / "frame_queries", folder])
            self.assertEqual(ran.code, 0, ran)
            questions = json.loads(pathlib.Path(folder, "questions.json").read_text())["questions"]
            answers = json.loads(pathlib.Path(folder, "answers.json").read_text())
        found = [json.loads(line) for line in ran.out.splitlines()]
        self.assertEqual(len(found), len(questions) * len(PLACEMENTS))
        for i, one in enumerate(found):
            question, expected = questions[i % len(questions)], answers[i % len(questions)]
            if not same(one, expected):
                self.fail(f"{rows} rows, seed {seed}, {PLACEMENTS[i // len(questions)]}: {json.dumps(question)}\n"
                          f"far: {json.dumps(one)[:2000]}\npandas: {json.dumps(expected)[:2000]}")

    def test_answers_as_pandas_does(self):
        support.need(support.VENV_PYTHON.exists(), f"there is no {support.VENV_PYTHON}; run evaluation/apps/flights/setup")
        for rows, seed in ROWS_AND_SEEDS:
            with self.subTest(rows=rows, seed=seed):
                self.compare(rows, seed)

    def test_answers_as_pandas_does_at_the_edges(self):
        support.need(support.VENV_PYTHON.exists(), f"there is no {support.VENV_PYTHON}; run evaluation/apps/flights/setup")
        for case in EDGES:
            with self.subTest(case=case):
                self.compare(case, 1)


if __name__ == "__main__":
    support.main()
