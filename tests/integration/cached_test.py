"""evaluation/apps/cached answers as memcached does, and keeps every value under farheap."""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import support

LONG_KEY = b"k" * 251


def stored(command, value, times=1):
    """A storing command with its value."""
    return (command + b" %d\r\n" % len(value) + value + b"\r\n") * times


# Each is a step of its own, whose replies are compared before the next.
SCRIPT = [
    stored(b"set a 0 0", b"1"),
    b"get a\r\n", b"gets a\r\n", b"get a a missing a\r\n", b" get  a \r\n", b"get a\n",
    stored(b"set flags 4294967295 0", b"x"), b"get flags\r\n",
    stored(b"set flags 4294967297 0", b"x"), b"get flags\r\n",
    stored(b"set flags +7 0", b"x"), b"get flags\r\n",
    stored(b"add a 1 0", b"2"), stored(b"add b 1 0", b"2"), stored(b"add b 1 0", b"2"),
    stored(b"replace a 2 0", b"three"), stored(b"replace missing 2 0", b"three"), b"get a b missing\r\n",
    stored(b"append a 9 0", b"-after"), stored(b"prepend a 9 0", b"before-"), stored(b"append missing 0 0", b"x"),
    stored(b"prepend missing 0 0", b"x"), b"gets a\r\n",
    stored(b"set empty 0 0", b""), b"get empty\r\n", b"incr empty 1\r\n",
    stored(b"set binary 0 0", b"\r\n\0END\r\n get a\r\n"), b"get binary\r\n",
    stored(b"set " + b"k" * 250 + b" 0 0", b"longest"), b"get " + b"k" * 250 + b"\r\n",
    # noreply, and pipelines
    b"set a 0 0 1 noreply\r\n9\r\nget a\r\n", b"delete a noreply\r\nget a\r\n",
    b"set a 5 0 2\r\n10\r\nincr a 1\r\nget a\r\n",
    b"add a 0 0 1 noreply\r\nx\r\nreplace a 3 0 1 noreply\r\n7\r\nget a\r\n", b"incr a 2 noreply\r\nget a\r\n",
    b"touch a 0 noreply\r\nget a\r\n", b"verbosity 1 noreply\r\nget a\r\n", b"set a 0 0 1 other\r\nx\r\n",
    b"set a 0 0 2 noreply\r\nxxx\r\nget a\r\n", b"set a 0 0 1 noreply x\r\nx\r\n", b"set a 0 0 abc noreply\r\n",
    # incr, decr
    stored(b"set n 3 0", b"10"), b"incr n 5\r\n", b"decr n 6\r\n", b"get n\r\n", b"incr n 100\r\n", b"gets n\r\n",
    b"decr n 1000\r\n", b"get n\r\n", b"incr n 18446744073709551615\r\n", b"incr n 2\r\n", b"get n\r\n",
    b"incr n 18446744073709551616\r\n", b"incr n -1\r\n", b"incr n x\r\n", b"incr n 1x\r\n", b"incr n\r\n",
    b"incr n 1 2 3\r\n", b"incr missing 1\r\n", b"decr missing 1\r\n", stored(b"set text 0 0", b"abc"),
    b"incr text 1\r\n",
    stored(b"set text 0 0", b" 5 abc"), b"incr text 1\r\n", b"get text\r\n", stored(b"set text 0 0", b"-5"),
    b"incr text 1\r\n", b"decr " + LONG_KEY + b" 1\r\n", stored(b"set text 0 0", b"99999999999999999999"),
    b"incr text 1\r\n",
    # cas
    stored(b"set c 0 0", b"1"), b"gets c\r\n", b"cas c 0 0 1 1\r\n2\r\n", b"cas missing 0 0 1 1\r\n2\r\n",
    b"cas c 0 0 1\r\n2\r\n",
    b"cas c 0 0 1 x\r\n2\r\n", b"gets a c n\r\n",
    # delete, touch
    b"delete a\r\n", b"delete a\r\n", b"delete\r\n", b"delete a 0\r\n", b"delete a 5\r\n", b"delete a 0 noreply\r\n",
    b"delete a 0 0\r\n", b"delete a 0 0 0\r\n", b"delete " + LONG_KEY + b"\r\n", b"touch n 100\r\n",
    b"touch missing 100\r\n",
    b"touch n x\r\n", b"touch n\r\n", b"touch " + LONG_KEY + b" 0\r\n", b"touch n -1\r\n", b"get n\r\n",
    # expiry
    stored(b"set e 0 -1", b"x"), b"get e\r\n", stored(b"set e 0 1000", b"x"), b"get e\r\n", stored(b"set e 0 2592001",
    b"x"),
    b"get e\r\n", stored(b"set e 0 2147483647", b"x"), b"get e\r\n", b"set e 0 2147483648 1\r\nx\r\n", b"get e\r\n",
    # errors
    b"\r\n", b"\n", b"x\r\n", b"bad\r\n", b"GET a\r\n", b"get\r\n", b"get \r\n", b"gets\r\n",
    b"get " + LONG_KEY + b"\r\n",
    b"get c " + LONG_KEY + b" c\r\n", b"set\r\n", b"set a\r\n", b"set a 0 0\r\n", b"set a 0 0 abc\r\n",
    b"set a x 0 1\r\n1\r\n",
    b"set a -1 0 1\r\n1\r\n", b"set a 0 x 1\r\n1\r\n", b"set a 0 0 -1\r\n", 
    b"set a 0 0 99999999999999999999\r\n", b"set " + LONG_KEY + b" 0 0 1\r\nx\r\n", b"set a 0 0 3\r\nabcd\r\nget a\r\n",
    b"set a 0 0 3\r\nab\r\n\r\nget a\r\n", b"set a 0 0 1\nx\n\r\n", b"\0\r\n", b"verbosity\r\n", b"verbosity x\r\n",
    b"verbosity noreply\r\n", b"verbosity 1\r\n", b"stats nonsense\r\n", b"stats reset\r\n", b"get a\x00b c\r\n",
    # too large
    stored(b"set a 0 0", b"old"), stored(b"set a 0 0", b"x" * 1048577), b"get a\r\n", stored(b"set a 0 0", b"old"),
    stored(b"add a 0 0", b"x" * 1048576), b"get a\r\n", b"get " + b"c missing " * 400 + b"\r\n",
    stored(b"set big 0 0", b"x" * 600000), stored(b"append big 0 0", b"x" * 600000), b"get big\r\n",
    b"get " + b"c " * 30 + LONG_KEY + b"\r\n", b"get d\r\r\n", b"incr c 0x10\r\n", b"touch c 0 x\r\n",
    # flush_all
    b"flush_all x\r\n", b"flush_all 0 0 0\r\n", b"flush_all 1000\r\n", b"get c\r\n", b"flush_all\r\n", b"get c\r\n",
    stored(b"set c 0 0", b"new"), b"gets c\r\n", b"flush_all 0\r\n", b"get c\r\n", b"flush_all noreply\r\n",
    b"flush_all -1\r\n",
    b"quit\r\n",
]


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb")

    def close(self):
        self.file.close()
        self.socket.close()

    def send(self, text):
        self.socket.sendall(text)

    def step(self, text):
        """The answers to it: all until the version, which is asked for behind it. Ends with <end> if closed."""
        self.send(text + b"version\r\n")
        answer = b""
        while not (end := re.search(rb"VERSION [^\r\n]*\r\n\Z", answer)):
            part = self.socket.recv(1 << 16)
            if not part:
                return answer + b"<end>"
            answer += part
        return answer[:end.start()]

    def get(self, key):
        """A value, or None."""
        self.send(b"get " + key + b"\r\n")
        line = self.file.readline()
        if line == b"END\r\n":
            return None
        value = self.file.read(int(line.split()[3]))
        assert self.file.readline() == b"\r\n" and self.file.readline() == b"END\r\n"
        return value

    def stats(self):
        self.send(b"stats\r\n")
        found = {}
        while (line := self.file.readline()) != b"END\r\n":
            _, name, value = line.decode().split()
            found[name] = value
        return found


@contextlib.contextmanager
def serving(command, end_signal=signal.SIGTERM):
    """A cached that was started by a command with --port 0, and its port. It must end well when it is asked to."""
    process = support.start(command, stdout=subprocess.PIPE)
    try:
        line = process.stdout.readline().decode()
        yield process, int(line.split()[-1])
        process.send_signal(end_signal)
        assert process.wait(60) == 0, f"cached ended with code {process.returncode}"
    finally:
        support.end(process)
        process.stdout.close()
        process.wait()


@contextlib.contextmanager
def memcached():
    """The port of a real memcached."""
    port = support.reserve_port()
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    process = support.start(["memcached", "-l", "127.0.0.1", "-p", str(port), "-t", "1", "-m", "64", *user])

    def answers():
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True

    try:
        support.wait_until(answers, "memcached answers", process=process)
        yield port
    finally:
        support.end(process)
        process.wait()


def value_of(number):
    """Of 0 to 100000 bytes, 50000 on average."""
    source = random.Random(number)
    return source.randbytes(source.randrange(100_001))


class Server:
    """What all builds do, with their items in plain memory or in containers."""

    PROGRAM = None
    OPTIONS = []

    def cached(self, *options):
        return [support.BUILD / "bin" / "apps" / self.PROGRAM, "--port", "0", *self.OPTIONS, *options]

    def connect(self, port):
        client = Client(port)
        self.addCleanup(client.close)
        return client

    def replay(self, port):
        client = self.connect(port)
        return [client.step(text) for text in SCRIPT]

    def compare_with_memcached(self, command):
        support.need(shutil.which("memcached"), "there is no memcached on this machine")
        with memcached() as port:
            expected = self.replay(port)
        with serving(command) as (_, port):
            for step, wanted, answer in zip(SCRIPT, expected, self.replay(port)):
                self.assertEqual(answer[:500], wanted[:500], step[:200])
                self.assertEqual(len(answer), len(wanted), step[:200])
        self.assertTrue(expected[-1].endswith(b"<end>"))

    def test_answers_as_memcached_does(self):
        self.compare_with_memcached(self.cached())

    def test_ends_when_it_is_interrupted(self):
        with serving(self.cached(), signal.SIGINT) as (_, port):
            client = self.connect(port)
            client.step(stored(b"set a 0 0", b"v"))
            client.send(b"set a 0 0 100\r\nhalf of a value")

    def test_many_items(self):
        # In few shards, so that their tables grow many times.
        with serving(self.cached("--memory", "16M")) as (_, port):
            client = self.connect(port)
            numbers = range(30_000)
            client.step(b"".join(b"set k%d 0 0 %d noreply\r\n%d\r\n" % (n, len(str(n)), n) for n in numbers))
            self.assertEqual(client.stats()["curr_items"], "30000")
            for first in range(0, 30_000, 500):
                keys = range(first, first + 500)
                wanted = b"".join(b"VALUE k%d 0 %d\r\n%d\r\n" % (n, len(str(n)), n) for n in keys) + b"END\r\n"
                self.assertEqual(client.step(b"get" + b"".join(b" k%d" % n for n in keys) + b"\r\n"), wanted)

    def test_command_line_clients(self):
        support.need(shutil.which("memccat"), "the tools of libmemcached are not on this machine")
        with serving(self.cached()) as (_, port), tempfile.TemporaryDirectory() as directory:
            servers = f"--servers=127.0.0.1:{port}"
            path = pathlib.Path(directory, "some-file")
            path.write_text("the content of a file\n" * 1000)
            self.assertEqual(support.run(["memccp", servers, path]).code, 0)
            shown = support.run(["memccat", servers, "some-file"])
            self.assertEqual(shown.out.rstrip("\n"), path.read_text().rstrip("\n"), shown)
            self.assertEqual(support.run(["memcexist", servers, "some-file"]).code, 0)
            self.assertEqual(support.run(["memctouch", servers, "--expire=1000", "some-file"]).code, 0)
            stats = support.run(["memcstat", servers])
            self.assertRegex(stats.out, r"curr_items: 1\b", stats)
            self.assertEqual(support.run(["memcrm", servers, "some-file"]).code, 0)
            self.assertNotEqual(support.run(["memcexist", servers, "some-file"]).code, 0)
            self.assertEqual(support.run(["memcflush", servers]).code, 0)

    def test_stays_within_its_memory(self):
        with serving(self.cached("--memory", "16M")) as (_, port):
            client = self.connect(port)
            client.step(stored(b"set favourite 0 0", b"f" * 1000))
            for number in range(5_000):
                client.step(stored(b"set k%d 0 0" % number, b"%d" % number * 2_500))
                self.assertEqual(client.get(b"favourite"), b"f" * 1000, f"in use, but gone after {number} items")
            stats = client.stats()
            self.assertLessEqual(int(stats["bytes"]), 16 * support.MIB)
            self.assertGreater(int(stats["bytes"]), 15 * support.MIB)
            self.assertEqual(int(stats["curr_items"]) + int(stats["evictions"]), 5_001)
            self.assertIsNone(client.get(b"k0"))
            self.assertEqual(client.get(b"k4999"), b"4999" * 2_500)

    def test_values_expire(self):
        with serving(self.cached()) as (_, port):
            client = self.connect(port)
            # On a machine that stalls it may expire before it is touched: again, then.
            support.wait_until(lambda: client.step(stored(b"set touched 0 2", b"x") + b"touch touched 1000\r\n").endswith(
                b"TOUCHED\r\n"), "a value is touched")
            client.step(stored(b"set e 0 2", b"x") + stored(b"set stays 0 0", b"x"))
            support.wait_until(lambda: client.get(b"e") is None, "a value expires")
            self.assertEqual(client.get(b"touched"), b"x")
            client.step(b"flush_all 2\r\n")
            support.wait_until(lambda: client.get(b"stays") is None, "a delayed flush_all")
            self.assertIsNone(client.get(b"touched"))

    def test_endless_line(self):
        with serving(self.cached()) as (process, port):
            for text in (b"x" * 2_049, b"set " + b"a" * 3_000, b"get" * 1_000, b"\x80" * 3_000,
                         b"get " + b"k " * (1 << 20)):
                client = self.connect(port)
                with contextlib.suppress(ConnectionError):
                    client.send(text)
                    self.assertEqual(client.file.read(), b"", f"{text[:20]} was not refused")
            client = self.connect(port)
            client.step(stored(b"set a 0 0", b"v"))
            # Long, but right.
            self.assertEqual(client.step(b"get " + b"missing " * 100_000 + b"a\r\n"), b"VALUE a 0 1\r\nv\r\nEND\r\n")
            self.assertLess(support.resident_bytes(process.pid), 64 * support.MIB)

    def test_client_that_does_not_read(self):
        value = bytes(1_000_000)
        with serving(self.cached("--threads", "1")) as (process, port):
            client = self.connect(port)
            self.assertEqual(client.step(stored(b"set big 0 0", value)), b"STORED\r\n")
            sleeper = self.connect(port)
            asked = 500
            sleeper.send(b"get " + b"big " * (asked // 2) + b"\r\n" + b"get big\r\n" * (asked // 2))
            for _ in range(100):
                self.assertEqual(client.get(b"big"), value)
            self.assertLess(support.resident_bytes(process.pid), 64 * support.MIB)
            read = 0
            while (line := sleeper.file.readline()) != b"":
                if line.startswith(b"VALUE"):
                    self.assertEqual(sleeper.file.read(len(value)), value)
                    read += 1
                if line == b"END\r\n" and read == asked:
                    break
            self.assertEqual(read, asked)

    def test_bytes_one_by_one(self):
        text = stored(b"set a 0 0", b"value") + b"get a\r\n" + b"set b 0 0 1 noreply\r\nx\r\ngets a b\r\nbad\r\n"
        with serving(self.cached()) as (_, port):
            at_once = self.connect(port)
            expected = at_once.step(text)
            slow = self.connect(port)
            slow.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i in range(len(text)):
                slow.send(text[i:i + 1])
            # Only the unique numbers differ.
            self.assertEqual(*(re.sub(rb" \d+\r\n(value|x)", rb"\1", answer) for answer in (slow.step(b""), expected)))
            with self.subTest("a value that never comes"):
                gone = self.connect(port)
                gone.send(b"set a 0 0 1000\r\nhalf")
                gone.socket.shutdown(socket.SHUT_WR)
                self.assertEqual(gone.file.read(), b"")
                self.assertEqual(at_once.get(b"a"), b"value")

    def test_too_many_connections(self):
        with serving(self.cached("--connections", "3")) as (_, port):
            clients = [self.connect(port) for _ in range(3)]
            for client in clients:
                self.assertEqual(client.step(b""), b"")
            self.assertEqual(self.connect(port).file.read(), b"SERVER_ERROR Too many open connections\r\n")
            clients[0].step(b"quit\r\n")
            support.wait_until(lambda: clients[1].stats()["curr_connections"] == "2", "a connection is closed")
            self.assertEqual(self.connect(port).step(b""), b"")


class Cached(Server, unittest.TestCase):
    PROGRAM = "cached"

    def test_answers_as_memcached_does_under_farheap(self):
        self.compare_with_memcached(support.farheap_command(self.cached(), 32 * support.MIB))

    def test_keeps_every_value_under_farheap(self):
        count = 20_000 if support.SOAK else 4_000
        command = support.farheap_command(self.cached("--memory", "4G"), 32 * support.MIB)
        with serving(command) as (process, port):
            client = self.connect(port)
            for number in range(count):
                client.send(stored(b"set key-%d %d 0" % (number, number), value_of(number)))
                self.assertEqual(client.file.readline(), b"STORED\r\n")
            self.assertGreater(int(client.stats()["bytes"]), count * 49_000)
            other = self.connect(port)
            for number in random.Random(1).sample(range(count), count):
                got = (client if number % 2 else other).get(b"key-%d" % number)
                self.assertTrue(got == value_of(number), f"value {number} is not what was stored")
            stats = support.run([support.FARHEAP, "stats", str(process.pid), "--json"])
            self.assertIn('"misses"', stats.out)
            self.assertGreater(json.loads(stats.out)["misses"], 0, "far memory was never used")


class CachedOnStdContainers(Server, unittest.TestCase):
    PROGRAM = "cached-std"


class CachedOnFarContainers(Server, unittest.TestCase):
    PROGRAM = "cached-far"
    OPTIONS = ["--local", "16M"]

    def test_keeps_every_value(self):
        with serving(self.cached("--memory", "1G")) as (process, port):
            load = [support.BUILD / "bin" / "apps" / "cached-load", "--port", port, "--json", "--keys", "60000",
                    "--value-bytes", "600"]
            for more in (["--zipf", "0", "--operations", "60000"], ["--churn", "5000", "--operations", "60000"]):
                outcome = support.run([*load, *more])
                self.assertEqual(outcome.code, 0, outcome)
                report = json.loads(outcome.out)
                self.assertEqual(report["hits"], report["gets"])
                self.assertGreater(report["gets"], 50_000)
            stats = support.run([support.FARHEAP, "stats", str(process.pid), "--json"])
            self.assertGreater(json.loads(stats.out)["misses"], 0, stats)

    def test_wrong_arguments(self):
        for options, said in [(["--local", "1M"], "give at least 16"), (["--far", "nonsense:"], "there is no 'nonsense:'")]:
            outcome = support.run([support.BUILD / "bin" / "apps" / self.PROGRAM, *options])
            self.assertEqual((outcome.code, outcome.out), (1, ""), outcome)
            self.assertIn(said, outcome.err)


class Load(unittest.TestCase):
    def load(self, *options):
        return support.run([support.BUILD / "bin" / "apps" / "cached-load", "--json", *options])

    def test_no_server(self):
        outcome = self.load("--port", support.reserve_port())
        self.assertEqual((outcome.code, outcome.out), (1, ""), outcome)
        self.assertIn("is a server running there?", outcome.err)

    def test_finds_a_value_that_was_not_set(self):
        """A server that always has the same value."""
        answers = {b"set": b"STORED\r\n", b"get": b"VALUE key-000000000000 0 1\r\n!\r\nEND\r\n"}
        with socket.create_server(("127.0.0.1", 0)) as server:
            def serve():
                with server.accept()[0] as peer, peer.makefile("rwb") as file:
                    while line := file.readline():
                        if line[:3] in answers:
                            file.write(answers[line[:3]])
                            file.flush()
            thread = threading.Thread(target=serve)
            thread.start()
            outcome = self.load("--port", server.getsockname()[1], "--keys", "1", "--connections", "1", "--gets", "1")
            thread.join()
        self.assertEqual((outcome.code, outcome.out), (1, ""), outcome)
        self.assertIn("the server said 'VALUE", outcome.err)


if __name__ == "__main__":
    support.main()
