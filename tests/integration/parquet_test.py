"""A Parquet file that PyArrow reads becomes a far data frame, as examples/parquet.py shows."""

import pathlib
import tempfile
import unittest

import support

LIBRARY = support.BUILD / "bin" / "examples" / "parquet.so"
EXAMPLE = support.SOURCE / "examples" / "parquet.py"

# Several row groups; nulls; texts with a dictionary and without; numbers of all sizes. And what PyArrow makes of it.
WRITER = """
import decimal, pathlib, sys
import pyarrow, pyarrow.parquet
folder, rows = pathlib.Path(sys.argv[1]), int(sys.argv[2])
km = [None if i % 7 == 0 else (i * 37 % 1000) / 8 for i in range(rows)]
table = pyarrow.table({
    "unused": pyarrow.array([decimal.Decimal(i) for i in range(rows)], pyarrow.decimal128(20, 2)),
    "vendor": pyarrow.array([None if i % 11 == 0 else f"vendor {i * i % 13}" for i in range(rows)], pyarrow.string()),
    "code": pyarrow.array([f"code {i % 3}" for i in range(rows)], pyarrow.string()).dictionary_encode(),
    "number": pyarrow.array([i % 5 for i in range(rows)], pyarrow.uint16()),
    "km": pyarrow.array(km, pyarrow.float64()),
    "minutes": pyarrow.array([i % 90 for i in range(rows)], pyarrow.int32()),
})
pyarrow.parquet.write_table(table, folder / "trips.parquet", row_group_size=30_000)
for key in ("vendor", "code", "number"):
    for value in ("km", "minutes"):
        grouped = table.group_by(key).aggregate([(value, "count"), (value, "mean")]).to_pylist()
        rows_with_keys = sorted((row for row in grouped if row[key] is not None), key=lambda row: row[key])
        lines = [f"{row[key]}: {row[value + '_count']} values, mean {row[value + '_mean']}\\n" for row in rows_with_keys]
        (folder / f"{key}-{value}").write_text("".join(lines))
"""


class Parquet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python = support.VENV_OF_PACKAGE_PYTHON
        support.need(python.exists(), f"there is no {python}; run "
                     "evaluation/apps/flights/setup build/venv-python python/tests/requirements.txt")
        support.need(LIBRARY.exists(), f"there is no {LIBRARY}; run make examples")
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))

    def example(self, *words):
        return support.run([support.VENV_OF_PACKAGE_PYTHON, "-B", EXAMPLE, LIBRARY, *words])

    def write(self, rows):
        writer = self.folder / "write.py"
        writer.write_text(WRITER)
        wrote = support.run([support.VENV_OF_PACKAGE_PYTHON, "-B", writer, self.folder, rows])
        self.assertEqual(wrote.code, 0, wrote)
        return self.folder / "trips.parquet"

    def test_groups_are_those_of_arrow(self):
        for rows in (100_000, 0):
            table = self.write(rows)
            for key in ("vendor", "code", "number"):
                for value in ("km", "minutes"):
                    with self.subTest(rows=rows, key=key, value=value):
                        ran = self.example(table, key, value)
                        self.assertEqual(ran.code, 0, ran)
                        self.assertEqual(ran.out, (self.folder / f"{key}-{value}").read_text())

    def test_says_what_it_cannot_take(self):
        table = self.write(10)
        refused = self.example(table, "vendor", "unused")
        self.assertEqual(refused.code, 1, refused)
        self.assertRegex(refused.err, "'unused'")
        unknown = self.example(table, "vendor", "km", "nowhere:")
        self.assertEqual(unknown.code, 1, unknown)
        self.assertRegex(unknown.err, "nowhere")


if __name__ == "__main__":
    support.main()
