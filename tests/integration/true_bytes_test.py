"""The bytes that come back are those that left, or the program is stopped with a clear message."""

import os
import pathlib
import tempfile
import unittest

import support
from walk import Walk

WORKING_SET_MIB = 48
BUDGET_MIB = 16
WITHOUT_MOVE = {"FARHEAP_DISABLE": "move"}


def spoil(store):
    """Changes a bit of every page of a far tier's file, as a disk that errs does it."""
    with open(store, "r+b", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        for at in range(4096, end, 4096):
            byte = os.pread(file.fileno(), 1, at + 1234)
            os.pwrite(file.fileno(), bytes([byte[0] ^ 16]), at + 1234)


class TrueBytes(unittest.TestCase):
    def test_wrong_bytes_of_a_file_stop_the_program(self):
        """Other bytes come back, as from a page cache that could not write."""
        for mode in ("thread", "inline"):
            for direct in (0, 1):
                with self.subTest(mode=mode, direct=direct), tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
                    store = pathlib.Path(directory, "store")
                    far = f"file:{store}?direct={direct}"
                    with Walk(WORKING_SET_MIB, BUDGET_MIB * support.MIB, far=far, mode=mode) as walk:
                        walk.wait_for_passes(2)
                        for _ in range(3):  # some pages are written again meanwhile
                            spoil(store)
                        outcome = walk.wait_for_end()
                    self.assertLess(outcome.code, 0, outcome)
                    self.assertNotIn("all data right", outcome.out)
                    self.assertRegex(outcome.err, r"returned other bytes than were written to it")
                    self.assertRegex(outcome.err, r"the program is stopped rather than given wrong data")

    def test_what_devices_write_is_kept_where_the_kernel_does_not_say(self):
        outcome = support.run_far([support.PROGRAMS / "device", "/var/tmp"], 16 * support.MIB, far="memory:",
                                  environment=WITHOUT_MOVE)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertRegex(outcome.out, r"io_uring: Function not implemented\nlibaio: Function not implemented\n")
        self.assertRegex(outcome.out, r"0 wrong|no O_DIRECT")
        self.assertEqual(len([line for line in outcome.err.splitlines() if "wants io_uring, which is refused" in line]),
                         1, outcome)

    def test_what_devices_write_is_kept_where_the_kernel_says(self):
        for mode in ("thread", "inline"):
            with self.subTest(mode=mode):
                outcome = support.run_far([support.PROGRAMS / "device", "/var/tmp"], 16 * support.MIB, far="memory:",
                                          mode=mode)
                self.assertEqual(outcome.code, 0, outcome)
                self.assertRegex(outcome.out, r"0 wrong|no O_DIRECT")
                if mode == "thread":
                    self.assertNotIn("refused", outcome.err)
                else:
                    self.assertIn("io_uring: Function not implemented\nlibaio: Function not implemented\n", outcome.out)
                    self.assertRegex(outcome.err, "wants io_uring, which is refused: .* use --fault-mode thread\n")

    def test_the_thread_mode_says_what_is_not_safe(self):
        outcome = support.run_far(["true"], 16 * support.MIB, far="memory:", mode="thread", environment=WITHOUT_MOVE)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertRegex(outcome.err, r"O_DIRECT, io_uring, libaio and RDMA must not write to far memory")


if __name__ == "__main__":
    support.main()
