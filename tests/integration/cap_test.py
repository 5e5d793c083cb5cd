"""The analysis of evaluation/apps/flights survives in a memory cgroup of its budget and 200 MiB, where it is killed natively."""

import re
import unittest

import support

YEARS = 18 if support.SOAK else 8
SLACK_BYTES = 200 * support.MIB
PROGRAM = [support.VENV_PYTHON, support.SOURCE / "evaluation/apps/flights/analysis.py", "--years", YEARS]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def checksum(outcome):
    found = re.search(r"^checksum ([0-9a-f]+)$", outcome.out, re.MULTILINE)
    return found and found[1]


class Cap(unittest.TestCase):
    def test_analysis_in_a_cgroup(self):
        support.need(support.VENV_PYTHON.exists(), f"there is no {support.VENV_PYTHON}; run evaluation/apps/flights/setup")
        native = support.run(PROGRAM, environment=ENVIRONMENT)
        self.assertEqual(native.code, 0, native)
        self.assertIsNotNone(checksum(native), native)
        budget_bytes = native.peak_bytes // 4

        with support.Cgroup(budget_bytes + SLACK_BYTES) as cgroup:
            # First proof that the cgroup does what it is made for.
            self.assertNotEqual(support.run(PROGRAM, environment=ENVIRONMENT, cgroup=cgroup).code, 0,
                                "the cgroup did not limit the native run")
            outcome = support.run_far(PROGRAM, budget_bytes, far="file:", environment=ENVIRONMENT, cgroup=cgroup)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(checksum(outcome), checksum(native), outcome)
        self.assertIsNotNone(outcome.stats, outcome)
        self.assertEqual(outcome.stats["over_budget_pages"], 0, outcome.stats)


if __name__ == "__main__":
    support.main()
