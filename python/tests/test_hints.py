"""A program's questions and hints about its arrays, and its statistics."""

import contextlib
import contextvars
import io
import unittest

import farheap
import numpy
import pandas
from farheap._ranges import ranges_of
from far_memory import BUDGET, MIB, UNDER_RUN, flights, memory, numbers, wait_until


class Hints(unittest.TestCase):
    def setUp(self):
        self.enterContext(memory())

    def test_evict_and_prefetch(self):
        array = numbers(MIB)
        farheap.evict(array)
        away = farheap.stats()
        self.assertGreaterEqual(away.far_bytes, array.nbytes - 2 * 4096)
        farheap.prefetch(array[:MIB // 2])
        wait_until(lambda: farheap.stats().local_bytes - away.local_bytes >= 4 * MIB - 2 * 4096)
        self.assertTrue((array == numbers(MIB)).all())

    def test_frames(self):
        table = flights()[["year", "distance", "dep_delay", "dest", "time_hour"]].copy()
        farheap.evict(table)
        self.assertGreater(farheap.stats().far_bytes, 4 * MIB)
        for part in (table, table["distance"], table["time_hour"], table.set_index("distance").index):
            self.assertTrue(farheap.is_far(part))
        pandas.testing.assert_frame_equal(table, flights()[list(table)])

    def test_views_and_buffers(self):
        array = numbers(MIB).reshape(-1, 16)
        for view in (array.T, array[::-3, 2:5], memoryview(array)):
            self.assertTrue(farheap.is_far(view))
        self.assertFalse(farheap.is_far(numpy.empty(0)))
        self.assertFalse(farheap.is_far(memoryview(b"")))
        for view in (array, array[::-3, 2:5], array[5], array[:1, ::-1], numpy.frombuffer(array, numpy.uint8)):
            self.assertEqual(ranges_of(memoryview(view)), ranges_of(view))
        self.assertEqual(farheap.is_far(bytes(4 * MIB)), UNDER_RUN)
        self.assertTrue(farheap.is_far(pandas.array(numbers(MIB), dtype="Int64")))

    def test_masks(self):
        with memory():
            mask = numpy.zeros(MIB, bool)
        outside = contextvars.Context().run(numpy.zeros, MIB)
        self.assertEqual(farheap.is_far(outside), UNDER_RUN)
        self.assertTrue(farheap.is_far(numpy.ma.masked_array(outside, mask)))
        self.assertEqual(farheap.is_far(numpy.ma.masked_array(outside)), UNDER_RUN)

    def test_what_it_does_not_know(self):
        for call in (farheap.is_far, farheap.evict, farheap.prefetch):
            with self.assertRaisesRegex(TypeError, "give a NumPy array"):
                call({})

    def test_scan(self):
        array = numbers(5 * MIB)
        farheap.evict(array)
        for rows in (100_000, None):
            parts = list(farheap.scan(array, rows))
            self.assertTrue((numpy.concatenate(parts) == array).all())
        self.assertEqual(sum(len(part) for part in farheap.scan(flights(), rows=50_000)), len(flights()))
        self.assertEqual(list(farheap.scan(array[:0])), [])
        with self.assertRaisesRegex(ValueError, "at least one row"):
            farheap.scan(array, rows=0)


class Statistics(unittest.TestCase):
    def setUp(self):
        self.enterContext(memory())

    def test_counts(self):
        before = farheap.stats()
        array = numbers(8 * MIB)
        self.assertTrue((array == numbers(8 * MIB)).all())
        after = farheap.stats()
        self.assertEqual(after.budget_bytes, 32 * MIB)
        self.assertGreater(after.evicted_bytes, before.evicted_bytes)
        self.assertGreater(after.fetched_bytes, before.fetched_bytes)
        self.assertIn("of 32 MiB", str(after))
        self.assertIn("<table>", after._repr_html_())
        self.assertEqual(after.counters["budget_bytes"], after.budget_bytes)

    def test_resize(self):
        self.addCleanup(farheap.resize, BUDGET)
        farheap.resize("64M")
        self.assertEqual(farheap.stats().budget_bytes, 64 * MIB)
        for wrong in ("lots", "1K", "-3"):
            with self.assertRaises(ValueError):
                farheap.resize(wrong)

    def test_watch(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), farheap.watch():
            numbers(8 * MIB).sum()
        self.assertRegex(said.getvalue(), r"^farheap: local .* of 32 MiB, far .*; here \d+ misses, waited .* s\n$")


if __name__ == "__main__":
    unittest.main()
