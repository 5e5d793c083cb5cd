"""Arrays in far memory: which are, and that they are like others."""

import asyncio
import concurrent.futures
import contextvars
import gc
import multiprocessing
import os
import random
import tempfile
import threading
import unittest

import farheap
import numpy
import pandas
from far_memory import BUDGET, MIB, flights, memory, numbers, only_in_process, run_in_child, wait_until

LARGE = MIB  # elements of 8 bytes


def total(first):
    with farheap.memory(local=BUDGET, far="memory:"):
        return int(numbers(LARGE, first).sum())


@only_in_process
class Blocks(unittest.TestCase):
    def is_far(self):
        return farheap.is_far(numpy.empty(LARGE))

    def test_large_arrays_inside_are_far(self):
        with memory():
            inside, small = numbers(LARGE), numbers(100)
        self.assertTrue(farheap.is_far(inside))
        self.assertFalse(farheap.is_far(small))
        self.assertFalse(self.is_far())
        self.assertTrue((inside == numbers(LARGE)).all())  # outlives the block

    def test_nested(self):
        with memory():
            with memory():
                self.assertTrue(self.is_far())
            self.assertTrue(self.is_far())
        self.assertFalse(self.is_far())

    def test_left_by_an_exception(self):
        with self.assertRaises(KeyError), memory():
            raise KeyError
        self.assertFalse(self.is_far())

    def test_as_decorator(self):
        self.assertTrue(memory()(self.is_far)())

    def test_other_threads_and_contexts_are_not_concerned(self):
        outside = contextvars.copy_context()
        with memory(), concurrent.futures.ThreadPoolExecutor(1) as pool:
            self.assertFalse(pool.submit(self.is_far).result())
            self.assertTrue(pool.submit(contextvars.copy_context().run, self.is_far).result())
            self.assertFalse(outside.run(self.is_far))

    def test_generators_that_end_elsewhere(self):
        """A thread that ends another one's generator stays in its own block."""
        def generate():
            with memory():
                yield

        def end(generator):
            with memory():
                generator.close()
                inside = self.is_far()
            return inside, self.is_far()

        def begin():
            generator = generate()
            next(generator)
            return generator

        context = contextvars.copy_context()  # the generator's block stays open in it
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            self.assertEqual(pool.submit(end, context.run(begin)).result(), (True, False))
        self.assertEqual(end(context.run(begin)), (True, False))

    def test_tasks_have_their_own(self):
        async def alternate(far, turns):
            for _ in range(turns):
                await asyncio.sleep(0)
                self.assertEqual(self.is_far(), far)

        async def in_block():
            with memory():
                await alternate(True, 5)
                inherits = asyncio.create_task(alternate(True, 10))
            await alternate(False, 5)
            await inherits

        async def both():
            await asyncio.gather(in_block(), alternate(False, 20), in_block())

        asyncio.run(both())

    def test_a_process_has_one_far_tier(self):
        with memory():
            with self.assertRaisesRegex(ValueError, "leave `far` out"), farheap.memory(far="zmem:1G"):
                pass
            with farheap.memory():
                self.assertTrue(self.is_far())

    def test_a_later_block_resizes(self):
        with memory():
            self.addCleanup(farheap.resize, BUDGET)
            with farheap.memory(local="48M"):
                self.assertEqual(farheap.stats().budget_bytes, 48 * MIB)
            with self.assertRaisesRegex(ValueError, "write for example"), farheap.memory(local="lots"):
                pass

    def test_nothing_leaks(self):
        def held():
            gc.collect()
            counted = farheap.stats()
            return counted.far_bytes + counted.local_bytes

        with memory():
            before = held()
            def cycle():
                for size in (LARGE, LARGE // 64, LARGE + 7, 16 * LARGE):
                    array = numpy.ones(size)
                    array.resize(size // 2, refcheck=False)
                    array.resize(size, refcheck=False)
                    self.assertEqual(array[:size // 2].sum() + array.sum(), size // 2 * 2)
            for _ in range(4):
                cycle()
        wait_until(lambda: held() <= before + 6 * MIB)  # some is kept for the next array


class Contents(unittest.TestCase):
    """The same bytes as in local memory, in a fraction of the memory."""

    def check_table(self, compute):
        with memory():
            table = flights()
            tables = pandas.concat([table] * 2, ignore_index=True)
            got = compute(tables)
        plain = compute(pandas.concat([flights()] * 2, ignore_index=True))
        (pandas.testing.assert_frame_equal if isinstance(got, pandas.DataFrame) else pandas.testing.assert_series_equal)(
            got, plain)

    def test_group(self):
        self.check_table(lambda table: table.groupby(["carrier", "month"], observed=True)[["dep_delay", "distance"]].mean())

    @only_in_process
    def test_sort(self):
        self.check_table(lambda table: table[["time_hour", "dep_delay", "dest"]].sort_values(
            ["dep_delay", "time_hour"], kind="stable"))

    @only_in_process
    def test_merge(self):
        def merged(table):
            mean = table.groupby("dest", observed=True)["arr_delay"].mean().rename("usual").reset_index()
            return table[["dest", "arr_delay", "distance"]].merge(mean, on="dest")
        self.check_table(merged)

    def test_random_operations(self):
        """The same operations on a far array and on a local one give the same."""
        seed = int(os.environ.get("FARHEAP_PYTHON_SEED", random.randrange(1 << 32)))
        choose = random.Random(seed)
        pairs = []
        for step in range(200):
            if len(pairs) < 3:
                size = choose.choice((100, 9000, 70_000, 600_000))
                with memory():
                    far = numbers(size, step)
                pairs.append((far, numbers(size, step)))
            far, plain = pairs.pop(choose.randrange(len(pairs)))
            operation = choose.randrange(9)
            place = choose.randrange(len(plain))

            def apply(array, number=operation, at=place):
                if number == 0:
                    return numpy.concatenate([array[at:], array[:at]])
                if number == 1:
                    return numpy.sort(array)
                if number == 2:
                    return array[::-1].copy()
                if number == 3:
                    return numpy.where(array % 3 == 0, array, -array)
                if number == 4:
                    array.resize(at + 1, refcheck=False)
                    return array
                if number == 5:
                    array.resize(len(array) + at, refcheck=False)
                    return array
                if number == 6:
                    array[at:] += 7
                    return array
                if number == 7:
                    return numpy.cumsum(array)
                return array.reshape(1, -1).repeat(2, axis=0)[:, at // 2:].flatten()  # a view cannot be resized

            with memory():
                far = apply(far)
                if choose.random() < 0.2:
                    farheap.evict(far)
            plain = apply(plain)
            self.assertTrue(numpy.array_equal(far, plain), f"FARHEAP_PYTHON_SEED={seed}, step {step}, operation {operation}")
            if 0 < len(plain) < 2_000_000:
                pairs.append((far, plain))

    def test_system_calls(self):
        with memory():
            array, back = numbers(2 * LARGE), numpy.empty(2 * LARGE, numpy.int64)
        farheap.evict(array)
        farheap.evict(back)
        with tempfile.TemporaryFile() as file:
            array.tofile(file)
            file.seek(0)
            self.assertEqual(file.readinto(back), back.nbytes)
        self.assertTrue((back == numbers(2 * LARGE)).all())

    def test_threads(self):
        failures = []

        def work(number):
            with memory():
                for turn in range(20):
                    size = LARGE // 8 + turn * 4096
                    if not (numbers(size, number) * 2 - numbers(size, number) == numbers(size, number)).all():
                        failures.append((number, turn))
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def test_fork(self):
        with memory():
            array = numbers(6 * LARGE)  # more than the budget

        def child():
            assert (array == numbers(6 * LARGE)).all()
            array[:] = 1
            with memory():
                assert numbers(LARGE).sum() == total(0)
            assert array.sum() == array.size
            assert farheap.stats().far_bytes > 0

        self.assertEqual(run_in_child(child), 0)
        self.assertTrue((array == numbers(6 * LARGE)).all())

    @only_in_process
    def test_fork_while_threads_allocate(self):
        done = threading.Event()

        def allocate():
            while not done.is_set():
                total(3)
        threads = [threading.Thread(target=allocate) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                self.assertEqual(run_in_child(lambda: total(5)), 0)
        finally:
            done.set()
            for thread in threads:
                thread.join()

    def test_multiprocessing(self):
        expected = [int(numbers(LARGE, first).sum()) for first in range(4)]
        with memory():
            kept = numbers(LARGE)
            for method in ("fork", "spawn"):
                with self.subTest(method=method), multiprocessing.get_context(method).Pool(2) as pool:
                    self.assertEqual(pool.map(total, range(4)), expected)
        self.assertEqual(int(kept.sum()), expected[0])


if __name__ == "__main__":
    unittest.main()
