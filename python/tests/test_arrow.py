"""Arrow's buffers in far memory: those that are made in a block, and tables that are copied."""

import asyncio
import importlib.util
import io
import os
import random
import threading
import unittest
from unittest import mock

import farheap
import numpy
import pandas
from far_memory import BUDGET, MIB, UNDER_RUN, flights, memory, numbers, only_in_process, run_in_child, run_program, wait_until
from farheap import _runtime

HAS_ARROW = importlib.util.find_spec("pyarrow") is not None
if HAS_ARROW:
    import pyarrow
    import pyarrow.compute
    import pyarrow.csv
    import pyarrow.parquet

ROWS = 300_000


def table(rows, seed=0):
    return pyarrow.table({"number": numbers(rows, seed), "text": [f"row {i % 97}" for i in range(rows)],
                          "kind": pyarrow.array([("a", "b", None)[i % 3] for i in range(rows)]).dictionary_encode()})


def plain_table(rows, seed=0):
    """The same; its memory is that of Arrow alone, as NumPy's arrays are copied."""
    return table(rows, seed).take(pyarrow.array(range(rows)))


def default_pool():
    return pyarrow.default_memory_pool().backend_name


@unittest.skipUnless(HAS_ARROW, "pyarrow is not installed")
class ArrowTables(unittest.TestCase):
    def test_equal_and_far(self):
        original = table(ROWS)
        moved = farheap.far_table(original, local=BUDGET, far="memory:")
        self.assertTrue(moved.equals(original))
        self.assertEqual(moved.schema, original.schema)
        self.assertTrue(farheap.is_far(moved))
        self.assertEqual(farheap.is_far(original), UNDER_RUN)
        farheap.evict(moved)
        self.assertGreater(farheap.stats().far_bytes, 2 * MIB)
        self.assertTrue(moved.equals(original))

    def test_batches_one_at_a_time(self):
        schema = pyarrow.schema([("number", pyarrow.int64())])
        batches = (pyarrow.record_batch([range(i * 100_000, (i + 1) * 100_000)], schema=schema) for i in range(8))
        moved = farheap.far_table(pyarrow.RecordBatchReader.from_batches(schema, batches), local=BUDGET, far="memory:")
        self.assertEqual(moved.num_rows, 800_000)
        self.assertEqual(moved["number"].to_pylist(), list(range(800_000)))
        self.assertTrue(farheap.is_far(moved))

    def test_real_data(self):
        original = pyarrow.Table.from_pandas(flights())
        self.assertTrue(farheap.far_table(original, local=BUDGET, far="memory:").equals(original))

    def test_what_goes_wrong(self):
        with self.assertRaisesRegex(TypeError, "Table or RecordBatchReader"):
            farheap.far_table([1, 2, 3])


@only_in_process
@unittest.skipUnless(HAS_ARROW, "pyarrow is not installed")
class Buffers(unittest.TestCase):
    """Which buffers are far. The default pool is Arrow's own outside of blocks."""

    def setUp(self):
        self.pool = default_pool()
        self.addCleanup(lambda: self.assertEqual(default_pool(), self.pool))

    def is_far(self):
        return farheap.is_far(pyarrow.array(list(range(ROWS))))

    def test_inside_and_outside(self):
        with memory():
            inside, small = plain_table(ROWS), pyarrow.array([1, 2, 3])
            for column in inside.columns:
                self.assertTrue(farheap.is_far(column))
            self.assertEqual(default_pool(), "system")
        self.assertEqual(default_pool(), self.pool)
        self.assertFalse(farheap.is_far(small))
        self.assertFalse(self.is_far())
        local = pyarrow.array(list(range(ROWS)), memory_pool=pyarrow.system_memory_pool())
        self.assertFalse(farheap.is_far(local))
        farheap.evict(inside)
        self.assertTrue(inside.equals(table(ROWS)))

    def test_what_arrows_threads_make(self):
        with memory():
            text = io.BytesIO()
            pyarrow.csv.write_csv(table(ROWS), text)
            read = pyarrow.csv.read_csv(io.BytesIO(text.getvalue()))
            file = io.BytesIO()
            pyarrow.parquet.write_table(read, file)
            back = pyarrow.parquet.read_table(io.BytesIO(file.getvalue()))
        self.assertTrue(farheap.is_far(read["number"]))
        self.assertTrue(farheap.is_far(back["number"]))
        self.assertTrue(read.equals(back))
        self.assertTrue((read["number"].to_numpy() == numbers(ROWS)).all())

    def test_blocks_that_overlap(self):
        async def block(steps):
            with memory():
                for _ in range(steps):
                    await asyncio.sleep(0)
                    self.assertTrue(self.is_far())

        async def all_of_them():
            await asyncio.gather(block(1), block(4), block(2))

        asyncio.run(all_of_them())
        self.assertFalse(self.is_far())
        with self.assertRaises(KeyError), memory(), memory():
            raise KeyError
        self.assertFalse(self.is_far())

    def test_a_pool_of_the_programs_own(self):
        other = next(name for name in pyarrow.supported_memory_backends() if name not in ("system", self.pool))
        chosen = getattr(pyarrow, f"{other}_memory_pool")()
        self.addCleanup(pyarrow.set_memory_pool, pyarrow.default_memory_pool())
        with memory():
            pyarrow.set_memory_pool(chosen)
            self.assertFalse(self.is_far())
        self.assertEqual(default_pool(), other)
        pyarrow.set_memory_pool(getattr(pyarrow, f"{self.pool}_memory_pool")())

    def test_texts_of_pandas(self):
        with memory():
            column = pandas.Series([str(i) for i in range(ROWS)], dtype="str")
            self.assertTrue(farheap.is_far(column))
            upper = column.str.cat(["x"] * ROWS)
        farheap.evict(column)
        self.assertEqual(upper.iloc[-1], f"{ROWS - 1}x")
        self.assertTrue((column.astype(int).to_numpy() == numpy.arange(ROWS)).all())

    def test_polars(self):
        if importlib.util.find_spec("polars") is None:
            self.skipTest("Polars is not installed")
        import polars

        with memory():
            original = plain_table(ROWS)
            frame = polars.from_arrow(original)
            back = frame.to_pandas()
        self.assertTrue(farheap.is_far(frame))  # the numbers; Polars keeps texts its own way
        self.assertTrue(farheap.is_far(frame["number"]))
        self.assertFalse(farheap.is_far(polars.Series(range(ROWS))))
        farheap.evict(frame)
        self.assertEqual(frame["number"].sum(), int(numbers(ROWS).sum()))
        self.assertTrue((back["number"] == numbers(ROWS)).all())

    def test_the_librarys_own_pool(self):
        """What takes no pool of the caller's is far if the program was started for it, and equal in any case."""
        program = """
            import farheap, pyarrow
            plain = pyarrow.table({"key": range(100_000), "value": range(100_000)})
            with farheap.memory(local="32M", far="memory:"):
                sums = plain.group_by("key").aggregate([("value", "sum")])
                both = plain.join(plain, "key", right_suffix="_right")
            print(farheap.is_far(sums), farheap.is_far(both), farheap.is_far(pyarrow.array(list(range(100_000)))),
                  sums["value_sum"].to_pylist() == sums["key"].to_pylist(), both["value"].equals(both["value_right"]))
            """
        for pool, far in (("system", True), (self.pool, False)):
            with self.subTest(pool):
                done = run_program(program, ARROW_DEFAULT_MEMORY_POOL=pool)
                self.assertEqual(done.stdout, f"{far} {far} False True True\n", done.stderr)

    def test_an_arrow_that_cannot_be_served(self):
        with (mock.patch.object(_runtime.library(), "farheap_serve_arrow", return_value=2),
              self.assertWarnsRegex(RuntimeWarning, "buffers of pyarrow .* stay local: .*use `farheap run`") as warned, memory()):
            self.assertFalse(self.is_far())
            self.assertTrue(farheap.is_far(numbers(MIB)))
            self.assertEqual(default_pool(), self.pool)
        self.assertEqual(warned.filename, __file__)

    def test_buffers_that_grow_across_the_end_of_a_block(self):
        piece = bytes(range(256)) * 1024
        with memory():
            sink = pyarrow.BufferOutputStream()
            for _ in range(8):
                sink.write(piece)
        for _ in range(8):
            sink.write(piece)
        self.assertEqual(sink.getvalue().to_pybytes(), piece * 16)

    def test_memory_is_given_back(self):
        def held():
            counted = farheap.stats()
            return counted.far_bytes + counted.local_bytes

        with memory():
            before = held()
            for turn in range(12):
                made = plain_table(ROWS, turn)
                self.assertEqual(made["number"][5].as_py(), int(numbers(1, turn + 5)[0]))
                made = pyarrow.concat_tables([made, made]).combine_chunks()
                del made
        wait_until(lambda: held() <= before + 6 * MIB)  # some is kept for the next buffer

    def test_fork(self):
        with memory():
            made = plain_table(ROWS)
            farheap.evict(made)

            def child():
                assert (made["number"].to_numpy() == numbers(ROWS)).all()
                assert farheap.is_far(plain_table(ROWS))

            self.assertEqual(run_in_child(child), 0)
        self.assertTrue(made.equals(table(ROWS)))

    def test_random_operations(self):
        """The same operations in blocks and outside, in several threads at once, give the same."""
        seed = int(os.environ.get("FARHEAP_PYTHON_SEED", random.randrange(1 << 32)))
        operations = (lambda one, at: one.slice(at).combine_chunks(),
                      lambda one, at: one.sort_by([("text", "ascending"), ("number", "descending")]),
                      lambda one, at: one.filter(pyarrow.compute.greater(one["number"], one["number"][at])),
                      lambda one, at: one.take(pyarrow.array(range(at, len(one))[::-1])),
                      lambda one, at: pyarrow.concat_tables([one, one.slice(at)]).combine_chunks(),
                      lambda one, at: one.set_column(0, "number", pyarrow.compute.bit_wise_xor(one["number"], at + 1)),
                      lambda one, at: pyarrow.Table.from_pandas(one.to_pandas(), schema=one.schema, preserve_index=False))
        failures = []

        def work(number):
            choose = random.Random(seed + number)
            plain = table(40_000, number)
            far = plain
            for step in range(25):
                operation, at = choose.randrange(len(operations)), choose.randrange(len(plain))
                with memory():
                    far = operations[operation](far, at)
                if choose.random() < 0.3:
                    farheap.evict(far)
                plain = operations[operation](plain, at)
                if not far.equals(plain):
                    failures.append(f"FARHEAP_PYTHON_SEED={seed}, thread {number}, step {step}, operation {operation}")
                    return
                if not 10 < len(plain) < 150_000:
                    plain = far = table(40_000, step)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()
