"""What goes wrong, and how arrays live and end: messages, signals, processes, the end of the interpreter."""

import concurrent.futures
import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import farheap
import numpy
from far_memory import BUDGET, MIB, memory, numbers, only_in_process, run_program, wait_until


def far_sum(first):
    """For other processes."""
    with memory():
        array = numbers(MIB, first)
        assert farheap.is_far(array)
        farheap.evict(array)
        return int(array.sum())


def redis_reply(port, line):
    """The first line of the reply to a command; None: nobody listens yet."""
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), 20) as connection:
        connection.sendall(f"{line}\r\n".encode())
        return connection.makefile().readline().strip()
    return None


class Messages(unittest.TestCase):
    def test_budgets(self):
        self.enterContext(memory())
        for wrong in ("", " ", "lots", "-1", "2G\0", "1K", "900%", 0):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "write for example"):
                farheap.resize(wrong)
        for wrong in (2.5, b"2G", None, True):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, "as text"):
                farheap.resize(wrong)
        self.addCleanup(farheap.resize, BUDGET)
        farheap.resize(48 * MIB)
        self.assertEqual(farheap.stats().budget_bytes, 48 * MIB)

    @only_in_process
    def test_far_tiers(self):
        """Each in a process of its own, because the first block decides. After an error another tier can be named."""
        program = """
            import farheap
            try:
                with farheap.memory(local="32M", far=eval(sys.argv[1])):
                    pass
            except Exception as error:
                print(type(error).__name__, error)
            with farheap.memory(local="32M", far="memory:"):
                print("far")
            """
        for far, said in (("'bogus:'", "ValueError .*the far tiers are memory:, .*file:"),
                          ("'zmem:abc'", "ValueError .*write for example zmem:4G"),
                          ("'file:/nonexistent/x'", "FarheapError no far memory: .*name a directory"),
                          ("'shm:/nonexistent'", "FarheapError no far memory: .*start one with farheapd --shm /nonexistent"),
                          ("'redis://127.0.0.1:1'", "FarheapError no far memory: .*check the address"),
                          ("3", "TypeError .*as text"), ("'zmem:\\0'", "ValueError .*null character")):
            with self.subTest(far):
                done = run_program(program, far)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, rf"^{said}.*\nfar\n$")

    @only_in_process
    def test_without_far_memory(self):
        done = run_program("""
            import farheap, numpy
            for call in (farheap.stats, lambda: farheap.resize("1G"), lambda: farheap.watch().__enter__()):
                try:
                    call()
                except farheap.FarheapError as error:
                    print(error)
            array = numpy.arange(10)
            farheap.prefetch(array)
            farheap.evict(array)
            print(farheap.is_far(array), [part.tolist() for part in farheap.scan(array, rows=6)])
            """)
        self.assertRegex(done.stdout, r"^(this process has no far memory; start it by .* or use farheap.memory\(\)\n){3}"
                                      r"False \[\[0, 1, 2, 3, 4, 5\], \[6, 7, 8, 9\]\]\n$", done.stderr)

    def test_rows_and_seconds(self):
        array = numpy.arange(10)
        for rows, error in ((0, ValueError), (2.5, TypeError), ("3", TypeError)):
            with self.subTest(rows), self.assertRaisesRegex(error, "row"):
                farheap.scan(array, rows)
        with self.assertRaisesRegex(TypeError, "goes through rows"):
            farheap.scan(numpy.array(3))
        with self.assertRaisesRegex(TypeError, "give a NumPy array"):
            farheap.scan([1, 2, 3], rows=2)
        for seconds in (0, -1, "often"):
            with self.subTest(seconds), self.assertRaisesRegex(ValueError, "for example 0.5"), farheap.watch(seconds):
                pass


class Lives(unittest.TestCase):
    def test_buffers_keep_the_memory(self):
        with memory():
            view = memoryview(numbers(2 * MIB))  # and nothing else does
        gc.collect()
        farheap.evict(view)
        again = numpy.frombuffer(view, numpy.int64)[5:]
        del view
        gc.collect()
        self.assertTrue(farheap.is_far(again))
        self.assertTrue((again == numbers(2 * MIB)[5:]).all())

    def test_pickle(self):
        with memory():
            array = numbers(MIB)
        farheap.evict(array)
        self.assertTrue((pickle.loads(pickle.dumps(array)) == array).all())
        buffers = []
        rest = pickle.dumps(array, protocol=5, buffer_callback=buffers.append)
        farheap.evict(array)
        shared = pickle.loads(rest, buffers=buffers)
        self.assertTrue(farheap.is_far(shared))
        self.assertTrue((shared == numbers(MIB)).all())
        with memory():
            counted = farheap.stats()
        self.assertEqual(pickle.loads(pickle.dumps(counted)), counted)
        self.assertEqual(str(pickle.loads(pickle.dumps(farheap.FarheapError("why")))), "why")

    def test_addresses_that_other_libraries_use(self):
        with memory():
            array = numpy.zeros(MIB, numpy.uint8)
        seen = (ctypes.c_char * MIB).from_buffer(array)
        farheap.evict(array)
        seen[7] = b"q"
        farheap.evict(array)
        self.assertEqual(array[7], ord("q"))
        sender, receiver = socket.socketpair()
        with sender, receiver:
            thread = threading.Thread(target=sender.sendall, args=(array,))
            thread.start()
            received = bytearray()
            while len(received) < MIB:
                received += receiver.recv(1 << 16)
            thread.join()
        self.assertEqual(received, array.tobytes())

    @only_in_process
    def test_the_package_is_imported_again(self):
        """The far heap is the process's, and arrays do not depend on the modules of the package."""
        done = run_program("""
            import gc
            import farheap, numpy
            with farheap.memory(local="32M", far="memory:"):
                array = numpy.arange(1 << 20)
            for name in [name for name in sys.modules if name.partition(".")[0] == "farheap"]:
                del sys.modules[name]
            del farheap
            gc.collect()
            import farheap
            print(farheap.is_far(array), farheap.stats().local_bytes > 0)
            with farheap.memory():
                other = numpy.arange(1 << 20)
            print(farheap.is_far(other), (array == other).all())
            del array
            del other
            """, PYTHONMALLOC="debug")  # what is freed is overwritten
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "True True\nTrue True\n", ""))

    def test_files(self):
        with memory(), tempfile.TemporaryFile() as file:
            numpy.save(file, numbers(MIB))
            file.seek(0)
            loaded = numpy.load(file)
        self.assertTrue(farheap.is_far(loaded))
        farheap.evict(loaded)
        self.assertTrue((loaded == numbers(MIB)).all())

    @only_in_process
    def test_no_memory(self):
        with memory():
            with self.assertRaises(MemoryError):
                numpy.empty(1 << 50, numpy.uint8)
            self.assertTrue(farheap.is_far(numbers(MIB)))


@only_in_process
class Ends(unittest.TestCase):
    def test_interrupts(self):
        """Ctrl-C arrives while the program waits for the far tier."""
        done = run_program("""
            import os, signal, threading
            import farheap, numpy
            with farheap.memory(local="16M", far="memory:?latency=2ms"):
                array = numpy.arange(4 << 20)
            places = numpy.random.default_rng(1).permutation(len(array) // 512) * 512
            interrupted = 0
            for _ in range(5):
                timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
                try:
                    with farheap.memory(), farheap.watch():
                        timer.start()
                        while True:
                            for place in places:
                                assert array[place] == place
                except KeyboardInterrupt:
                    interrupted += 1
                timer.join()
            print(interrupted, farheap.is_far(numpy.empty(1 << 20)), (array == numpy.arange(4 << 20)).all(),
                  farheap.stats().misses > 0)
            """)
        self.assertEqual((done.returncode, done.stdout), (0, "5 False True True\n"), done.stderr)

    def test_the_interpreter_ends_while_threads_use_far_memory(self):
        program = """
            import atexit, threading, time
            import farheap, numpy
            with farheap.memory(local="16M", far="memory:"):
                array = numpy.arange(4 << 20)
            atexit.register(lambda: print(int(array[7])))
            def work():
                while True:
                    with farheap.memory():
                        numpy.ones(1 << 18).sum()
            for _ in range(3):
                threading.Thread(target=work, daemon=True).start()
            time.sleep(0.1)
            sys.exit(int(sys.argv[1]))
            """
        for code in (0, 0, 3):
            done = run_program(program, str(code))
            self.assertEqual((done.returncode, done.stdout, done.stderr), (code, "7\n", ""))

    def test_killed(self):
        """Nothing of a process that ends at once stays: its far tier is a file without a name."""
        with tempfile.TemporaryDirectory() as folder:
            done = run_program("""
                import os
                import farheap, numpy
                with farheap.memory(local="16M", far="file:" + sys.argv[1]):
                    array = numpy.ones(8 << 20)
                print(farheap.stats().far_bytes > 0, flush=True)
                os.kill(os.getpid(), 9)
                """, folder)
            self.assertEqual((done.returncode, done.stdout), (-signal.SIGKILL, "True\n"), done.stderr)
            self.assertEqual(os.listdir(folder), [])

    def test_keys_in_redis(self):
        """They go soon after the process that made them, and not with their lease."""
        if shutil.which("redis-server") is None:
            self.skipTest("redis-server is not installed")
        with tempfile.TemporaryDirectory() as folder, socket.socket() as held:
            # Bound and not listened on, it is nobody else's; the server may listen there, because both say so.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 0))
            port = held.getsockname()[1]
            server = subprocess.Popen(["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", folder],
                                      stdout=subprocess.DEVNULL)
            try:
                wait_until(lambda: redis_reply(port, "PING") == "+PONG")
                done = run_program("""
                    import farheap, numpy
                    with farheap.memory(local="16M", far=f"redis://127.0.0.1:{sys.argv[1]}?lease=300s"):
                        array = numpy.ones(4 << 20)
                    print(farheap.stats().far_bytes > 0, int(array.sum()))
                    """, str(port))
                self.assertEqual((done.returncode, done.stdout), (0, "True 4194304\n"), done.stderr)
                longest = "local most = 0 for _, key in ipairs(redis.call('KEYS', '*')) do " \
                          "most = math.max(most, redis.call('PTTL', key)) end return most"
                self.assertLessEqual(int(redis_reply(port, f'EVAL "{longest}" 0')[1:]), 10_000)
            finally:
                server.kill()
                server.wait()

    def test_pools_of_processes(self):
        expected = [int(numbers(MIB, first).sum()) for first in range(3)]
        with memory():
            kept = numbers(4 * MIB)
            for method in ("fork", "spawn", "forkserver"):
                context = multiprocessing.get_context(method)
                with self.subTest(method), concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
                    self.assertEqual(list(pool.map(far_sum, range(3), timeout=240)), expected)
        self.assertTrue((kept == numbers(4 * MIB)).all())


if __name__ == "__main__":
    unittest.main()
