"""A program with one thread, which counts on being alone in its process, does not notice the runtime."""

import contextlib
import itertools
import os
import pathlib
import re
import tempfile
import unittest

import support
from support import MIB

LONER = support.PROGRAMS / "loner"
BUDGET_BYTES = 32 * MIB
KSM = pathlib.Path("/sys/kernel/mm/ksm")


@contextlib.contextmanager
def merging():
    """The kernel merges pages, and quickly."""
    wanted = {"pages_to_scan": "2000", "sleep_millisecs": "20", "run": "1"}
    support.need(os.geteuid() == 0 and all((KSM / name).exists() for name in wanted), "no merging of pages here")
    before = {name: (KSM / name).read_text() for name in wanted}
    try:
        for name, value in wanted.items():
            (KSM / name).write_text(value)
        yield
    finally:
        for name, value in before.items():
            (KSM / name).write_text(value)


class Loner(unittest.TestCase):
    def compare(self, part, before=(), far="memory:", modes=("thread", "inline")):
        native = support.run([*before, LONER, part])
        self.assertEqual(native.code, 0, native)
        for mode in modes:
            with self.subTest(mode=mode, before=before):
                command = support.farheap_command([LONER, part], BUDGET_BYTES, far, mode)
                outcome = support.run([*before, *command])
                self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)
        return native

    def test_the_numbers_of_its_descriptors(self):
        self.compare("numbers", far=None)

    def test_its_table_of_descriptors(self):
        self.compare("tables")

    def test_a_user_namespace_is_refused_with_a_message(self):
        for mode in ("thread", "inline"):
            with self.subTest(mode=mode):
                outcome = support.run(support.farheap_command(["unshare", "--user", "true"], BUDGET_BYTES, "memory:", mode))
                self.assertNotEqual(outcome.code, 0, outcome)
                self.assertEqual(outcome.err.count("wants a user namespace of its own"), 1, outcome)

    def test_its_table_of_descriptors_while_others_ask_for_its_memory(self):
        self.compare("tables_beside_others", modes=("inline",))

    def test_what_it_writes_in_place_of_standard_error(self):
        for part, before, mode in itertools.product(
                ("closed", "closed_by_number", "stream_closed", "stream_not_opened", "not_replaced",
                 "copied", "copied_by_number", "copied_by_fcntl", "rotated"),
                ((), ("sh", "-c", 'exec "$@" 2>&-', "sh")), ("thread", "inline")):
            with self.subTest(part=part, before=before, mode=mode):
                command = support.farheap_command([LONER, part], BUDGET_BYTES, "memory:", mode)
                outcome = support.run([*before, *command])
                name, is_standard_error = outcome.out.split()
                text = pathlib.Path(name).read_text()
                pathlib.Path(name).unlink()
                self.assertEqual((outcome.code, is_standard_error, text, outcome.err), (0, "1", "mine", ""), outcome)

    def test_standard_error_that_is_given_again(self):
        for part, mode in itertools.product(("by_dup2", "by_fcntl", "by_number", "by_freopen"),
                                            ("thread", "inline")):
            with self.subTest(part=part, mode=mode):
                outcome = support.run(support.farheap_command([LONER, part], BUDGET_BYTES, "memory:", mode))
                self.assertEqual((outcome.code, outcome.err), (0, ""), outcome)
                self.assertRegex(outcome.out, r"^farheap: .*\n$", outcome)

    def test_streams_with_descriptors_that_are_not_its_own(self):
        self.compare("foreign_streams")

    def test_its_first_calls_do_not_ask_the_loader(self):
        self.compare("first_calls")
        for mode in ("thread", "inline"):
            with self.subTest(mode=mode), tempfile.TemporaryDirectory() as folder:
                variables = [f"LD_DEBUG_OUTPUT={folder}/log", "LD_DEBUG=files,bindings"]
                outcome = support.run(support.farheap_command(["env", *variables, LONER, "first_calls"],
                                                              BUDGET_BYTES, "memory:", mode))
                self.assertEqual(outcome.code, 0, outcome)
                started = [log.read_text().partition(f"transferring control: {LONER}\n")[2]
                           for log in pathlib.Path(folder).iterdir()]
                self.assertIn("symbol `dup2'", "".join(started))
                asked = re.findall(r"binding file \S*farheap-preload\S* .*", "".join(started))
                self.assertEqual(asked, [])

    def test_where_it_may_have_no_descriptors(self):
        native = self.compare("no_descriptors")
        self.assertIn("sleeps: 1", native.out)

    def test_its_folders(self):
        native = self.compare("folders")
        support.need("setns: 0" in native.out, "no mount namespaces here")

    def test_pages_that_the_kernel_merges(self):
        with merging():
            native = self.compare("merged")
        support.need("merges: 1" in native.out, "the kernel does not merge for a process")

    def test_pages_that_the_kernel_merges_for_a_service(self):
        # As a service manager starts it.
        asks = ["/usr/bin/python3", "-c", "import ctypes, os, sys; ctypes.CDLL(None).prctl(67, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"]
        with merging():
            self.compare("merged", before=asks, modes=("inline",))


if __name__ == "__main__":
    support.main()
