"""A server that keeps its coldest blocks on disk: every byte comes back, a full disk loses nothing, and no file stays."""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import unittest

import support
import wire_client
from farheapd_test import FARHEAPD, Server
from support import MIB

BLOCK_SLOTS = 512
SLOT_BYTES = 4096


def contents(block, count=SLOT_BYTES):
    return bytes((block * 31 + i * 7 + i // 256) & 0xff for i in range(count))


class WithDirectory(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.disk = pathlib.Path(directory.name)

    def server(self, *options, size="256M", memory="16M"):
        return Server("--spill", self.disk, "--spill-size", size, "--metrics", "127.0.0.1:0", *options, memory=memory)

    def fill(self, client, blocks):
        """The first and the last slot of each block."""
        for block in blocks:
            for slot in (block * BLOCK_SLOTS, (block + 1) * BLOCK_SLOTS - 1):
                self.assertEqual(client.write(slot, contents(slot)), wire_client.OK)

    def compare(self, client, blocks):
        for block in blocks:
            for slot in (block * BLOCK_SLOTS, (block + 1) * BLOCK_SLOTS - 1):
                self.assertEqual(client.read((slot, 0, SLOT_BYTES)).payload, contents(slot), f"slot {slot}")

    def check_full_disk(self, server, client, reason, mend):
        """A disk with room for 16 MiB loses nothing, and takes blocks again when there is room."""
        noise = os.urandom(512 * SLOT_BYTES)
        written = []
        self.assertEqual(client.allocate(0, 7), wire_client.OK)
        for block in range(40):
            if block >= 7 and client.allocate(block, 1) != wire_client.OK:
                break
            start = block * BLOCK_SLOTS
            halves = [client.write(start + half * 256, noise[half * MIB - half * 4096:][:255 * SLOT_BYTES])
                      for half in (0, 1)]
            if halves != [wire_client.OK] * 2:
                break
            written.append(start)
        # 8 blocks of memory and 8 of disk are there at most.
        self.assertGreater(len(written), 8)
        self.assertLess(len(written), 20)
        support.wait_until(lambda: server.value("spill_failing") == 1, "noticing the full disk")
        self.assertRegex(server.log(), f"cannot write to the spill file .*{reason}.*nothing is lent beyond it")
        self.assertEqual(client.allocate(200, 20), wire_client.NO_SPACE)

        mend()
        support.wait_until(lambda: server.value("spill_failing") == 0, "noticing that there is space again")
        self.assertIn("takes blocks again", server.log())
        for start in written:
            for half in (0, 1):
                got = client.read((start + half * 256, 0, 255 * SLOT_BYTES))
                self.assertEqual(got.payload, noise[half * MIB - half * 4096:][:255 * SLOT_BYTES], start)
        self.assertEqual(client.allocate(200, 20), wire_client.OK)


class Spill(WithDirectory):
    def check_program(self, *options):
        """The verifier's far memory is several times what the server has."""
        program = [support.PROGRAMS / "verifier", "--seed", "7", "--threads", "2", "--operations", "150", "--live-mib",
                   "96", "--largest-mib", "8"]
        native = support.run(program)
        with self.server("--threads", "2", *options) as server:
            outcome = support.run_far(program, 16 * MIB, far=f"tcp://127.0.0.1:{server.port}")
            self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)
            self.assertEqual(outcome.stats["backend_errors"], 0, outcome.stats)
            self.assertGreater(server.value("spill_written_blocks_total"), 0)
            self.assertGreater(server.value("spill_read_blocks_total"), 0)
            self.assertEqual(server.value("spill_errors_total"), 0)
            self.assertLessEqual(server.value("resident_bytes"), 16 * MIB)
            self.assertEqual(list(self.disk.iterdir()), [])

    def test_a_program_in_several_times_the_memory(self):
        self.check_program()

    def test_the_same_on_epoll_and_compressed(self):
        self.check_program("--epoll", "--spill-compress", "lz4")

    def test_requests_for_blocks_on_disk(self):
        with self.server("--spill-compress", "zstd") as server, server.welcome() as client:
            self.assertEqual(client.allocate(0, 60), wire_client.OK)
            self.fill(client, range(60))
            self.compare(client, range(60))
            self.compare(client, reversed(range(60)))
            self.assertGreater(server.value("spill_written_blocks_total"), 0)
            # Compressed: hardly anything, though whole blocks are there.
            self.assertLess(server.value("spill_disk_bytes"), server.value("spill_used_bytes") / 10)
            # One request for parts of more blocks than memory has, and ranges that cross from block to block.
            wanted = [((block + 1) * BLOCK_SLOTS - 1, 0, 2 * SLOT_BYTES) for block in range(0, 59, 2)]
            expected = b"".join(contents(slot) + contents(slot + 1) for slot, _, _ in wanted)
            self.assertEqual(client.read(*wanted).payload, expected)
            called = client.call("checksum", wire_client.encode_ranges(wanted[:2]))
            self.assertEqual(called.status, wire_client.OK)
            self.assertEqual(int.from_bytes(called.payload, "little"), wire_client.xxh3(expected[:4 * SLOT_BYTES]))
            # Of so many blocks an operation refuses to wait; the connection stays.
            self.assertIn(client.call("checksum", wire_client.encode_ranges(wanted)).status,
                          (wire_client.OK, wire_client.CALL_FAILED))
            self.assertEqual(client.free(0, 60), wire_client.OK)
            self.assertEqual(client.allocate(100, 60), wire_client.OK)
            self.assertEqual(client.read((100 * BLOCK_SLOTS, 0, 4)).payload, bytes(4))
            # Slots that the session does not have still end its connection.
            client.read((500 * BLOCK_SLOTS, 0, 4))
            self.assertTrue(client.is_ended())

    def test_nothing_stays_after_a_crash(self):
        with self.server(size="64M") as server, server.welcome() as client:
            self.assertEqual(client.allocate(0, 20), wire_client.OK)
            self.fill(client, range(20))
            self.assertEqual(list(self.disk.iterdir()), [])
            spill = [link for link in pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir()
                     if os.readlink(link).startswith(str(self.disk))]
            self.assertEqual(len(spill), 1)
            facts = os.stat(spill[0])
            self.assertEqual(facts.st_mode & 0o777, 0o600)
            self.assertEqual(facts.st_nlink, 0)
            # Its space was there from the start.
            self.assertGreaterEqual(facts.st_blocks * 512, 64 * MIB)
            server.process.kill()
            server.process.wait(support.DEADLINE_S)
            self.assertEqual(list(self.disk.iterdir()), [])

    def test_options(self):
        def start(*options, memory="64M"):
            outcome = support.run([FARHEAPD, "--listen", "127.0.0.1:0", "--memory", memory, *options], deadline_s=240)
            self.assertNotEqual(outcome.code, 0, outcome)
            return outcome.err
        where = ["--spill", self.disk, "--spill-size", "64M"]
        self.assertIn("both --spill DIR and --spill-size", start("--spill", self.disk))
        self.assertIn("both --spill DIR and --spill-size", start("--spill-size", "1G"))
        self.assertIn("lz4 or zstd", start(*where, "--spill-compress", "gzip"))
        self.assertIn("add it, or leave this out", start("--spill-compress", "lz4"))
        self.assertIn("at least 64M", start("--spill", self.disk, "--spill-size", "32M"))
        self.assertIn("at least 16M", start(*where, memory="8M"))
        self.assertIn("run two servers", start(*where, "--shm", "farheap-spill-test"))
        self.assertIn("No such file", start("--spill", self.disk / "nowhere", "--spill-size", "64M"))
        self.assertIn("cannot reserve", start("--spill", self.disk, "--spill-size", "4096T"))

    def test_a_limit_on_file_sizes_is_said(self):
        outcome = support.run(["bash", "-c", 'ulimit -f 1024; exec "$@"', "bash", FARHEAPD, "--listen", "127.0.0.1:0",
                               "--memory", "64M", "--spill", self.disk, "--spill-size", "64M"], deadline_s=240)
        self.assertEqual(outcome.code, 1, outcome)
        self.assertIn("more than the limit on file sizes, 1.00 MiB; raise it (ulimit -f)", outcome.err)

    def test_a_limit_on_file_sizes_that_comes_later_loses_nothing(self):
        """Compressed blocks have no space reserved, and these cannot be compressed."""
        with self.server("--spill-compress", "lz4", "--patience", "10s") as server, server.welcome() as client:
            def limit(size_bytes):
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))
            limit(16 * MIB)
            self.check_full_disk(server, client, "File too large", lambda: limit(resource.RLIM_INFINITY))

    def test_check(self):
        def check(directory, size):
            return support.run([FARHEAPD, "--check", "--listen", "127.0.0.1:0", "--memory", "64M", "--spill", directory,
                                "--spill-size", size], deadline_s=240)
        self.assertRegex(check(self.disk, "64M").out, r"--spill +\w+ +--spill-size 64\.0 MiB, and .* are free in ")
        self.assertRegex(check(self.disk, "4096T").out, r"--spill +note ")
        outcome = check(self.disk / "nowhere", "64M")
        self.assertEqual(outcome.code, 1, outcome)
        self.assertRegex(outcome.out, r"--spill +PROBLEM +cannot make a file in ")


class FullDisk(WithDirectory):
    def setUp(self):
        super().setUp()
        support.need(os.geteuid() == 0, "mounting a small disk needs root")
        support.need(shutil.which("mount"), "there is no mount command on this machine")
        done = self.mount("-t", "tmpfs", "-o", "size=16M", "farheap-test", self.disk)
        support.need(done.returncode == 0, f"a small disk cannot be mounted here: {done.stderr.strip()}")
        self.addCleanup(support.wait_until, lambda: subprocess.run(
            ["umount", self.disk], capture_output=True, timeout=support.DEADLINE_S).returncode == 0, f"unmounting {self.disk}")

    def mount(self, *arguments):
        return subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, timeout=support.DEADLINE_S)

    def test_is_found_at_the_start(self):
        with self.assertRaisesRegex(AssertionError, "cannot reserve 64.0 MiB in .*No space"):
            self.server(size="64M")

    def test_later_it_loses_nothing(self):
        """Compressed blocks have no space reserved, and these cannot be compressed."""
        def mend():
            done = self.mount("-o", "remount,size=256M", self.disk)
            self.assertEqual(done.returncode, 0, done.stderr)
        with self.server("--spill-compress", "lz4", "--patience", "10s") as server, server.welcome() as client:
            self.check_full_disk(server, client, "No space", mend)


if __name__ == "__main__":
    support.main()
