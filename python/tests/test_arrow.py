"""Arrow tables in far memory."""

import importlib.util
import unittest

import farheap
from far_memory import BUDGET, MIB, UNDER_RUN, flights


@unittest.skipIf(importlib.util.find_spec("pyarrow") is None, "pyarrow is not installed")
class ArrowTables(unittest.TestCase):
    def setUp(self):
        import pyarrow

        self.pa = pyarrow

    def table(self, rows):
        return self.pa.table({"number": range(rows), "text": [f"row {i % 97}" for i in range(rows)],
                              "kind": self.pa.array([("a", "b", None)[i % 3] for i in range(rows)]).dictionary_encode()})

    def test_equal_and_far(self):
        table = self.table(200_000)
        moved = farheap.far_table(table, local=BUDGET, far="memory:")
        self.assertTrue(moved.equals(table))
        self.assertEqual(moved.schema, table.schema)
        self.assertTrue(farheap.is_far(moved))
        self.assertEqual(farheap.is_far(table), UNDER_RUN)
        farheap.evict(moved)
        self.assertGreater(farheap.stats().far_bytes, 2 * MIB)
        self.assertTrue(moved.equals(table))

    def test_batches_one_at_a_time(self):
        schema = self.pa.schema([("number", self.pa.int64())])
        batches = (self.pa.record_batch([range(i * 100_000, (i + 1) * 100_000)], schema=schema) for i in range(8))
        moved = farheap.far_table(self.pa.RecordBatchReader.from_batches(schema, batches), local=BUDGET, far="memory:")
        self.assertEqual(moved.num_rows, 800_000)
        self.assertEqual(moved["number"].to_pylist(), list(range(800_000)))
        self.assertTrue(farheap.is_far(moved))

    def test_real_data(self):
        table = self.pa.Table.from_pandas(flights())
        self.assertTrue(farheap.far_table(table, local=BUDGET, far="memory:").equals(table))

    def test_what_goes_wrong(self):
        with self.assertRaisesRegex(TypeError, "Table or RecordBatchReader"):
            farheap.far_table([1, 2, 3])


if __name__ == "__main__":
    unittest.main()
