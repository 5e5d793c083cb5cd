"""Bad input gets one line that says what is wrong and what to do, and a non-zero exit code."""

import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile
import unittest

import support

FARHEAP = support.FARHEAP


class BadInput(unittest.TestCase):
    def refuses(self, command, *words, environment=None):
        """The command fails, by itself, with one line on standard error that has all the words."""
        outcome = support.run(command, environment=environment, deadline_s=240)
        self.assertGreater(outcome.code, 0, outcome)
        self.assertEqual(outcome.out, "", outcome)
        lines = outcome.err.splitlines()
        self.assertEqual(len(lines), 1, outcome)
        self.assertRegex(lines[0], r"^farheap: \S")
        for word in words:
            self.assertIn(word, lines[0])

    def refuses_run(self, *arguments, words=(), environment=None):
        self.refuses([FARHEAP, "run", *arguments, "--", "true"], *words, environment=environment)

    def test_good_input_is_taken(self):
        # Otherwise a farheap that refuses everything would pass all of the tests here.
        outcome = support.run([FARHEAP, "run", "--local", "64M", "--far", "memory:", "--", "true"])
        self.assertEqual(outcome.code, 0, outcome)

    def test_exit_code_is_the_programs(self):
        self.assertEqual(support.run([FARHEAP, "run", "--local", "64M", "--", "sh", "-c", "exit 7"]).code, 7)

    def test_unknown_program(self):
        self.refuses([FARHEAP, "run", "--", "no-such-program-here"], "no-such-program-here")
        self.refuses([FARHEAP, "run", "--", "/etc/passwd"], "/etc/passwd")

    def test_no_program(self):
        self.refuses([FARHEAP, "run", "--local", "64M"])
        self.refuses([FARHEAP, "run", "--local", "64M", "--"])

    def test_size_without_sense(self):
        for size in ["banana", "12Q", "-5M", "", "1e99G", "150%", "0%", "-3%"]:
            with self.subTest(size=size):
                self.refuses_run("--local", size, words=["--local"])

    def test_budget_below_the_minimum(self):
        for size in ["64K", "0", "4096"]:
            with self.subTest(size=size):
                self.refuses_run("--local", size, words=["budget"])

    def test_unknown_far_tier(self):
        self.refuses_run("--far", "floppy:", words=["floppy", "memory:", "file:"])
        self.refuses_run("--far", "memory:?latency=banana", words=["banana"])
        self.refuses_run("--far", "memory:?flavour=mint", words=["flavour"])

    def test_unknown_options(self):
        self.refuses_run("--fault-mode", "telepathy", words=["telepathy", "thread", "inline"])
        self.refuses_run("--policy", "oracle", words=["oracle"])
        self.refuses_run("--policy", "2q:0%", words=["2q", "100%"])
        self.refuses_run("--free-ahead", "30%", words=["--free-ahead", "25%"])
        self.refuses_run("--batch", "0", words=["--batch", "1 to 64"])
        self.refuses_run("--no-such-option", words=["--no-such-option"])
        self.refuses([FARHEAP, "fly"], "fly")

    def test_unwritable_directory(self):
        self.refuses_run("--far", "file:", words=["/proc/1/nowhere"], environment={"FARHEAP_DIR": "/proc/1/nowhere"})
        self.refuses_run("--far", "file:/proc/1/nowhere/far", words=["/proc/1/nowhere/far"])
        # A file where a directory should be.
        with tempfile.NamedTemporaryFile() as file:
            self.refuses_run("--far", "file:", words=[file.name], environment={"FARHEAP_DIR": file.name})

    def test_unwritable_statistics(self):
        self.refuses_run("--stats-json", "/proc/1/nowhere.json", words=["/proc/1/nowhere.json"])

    def test_resize_of_what_is_no_farheap_run(self):
        self.refuses([FARHEAP, "resize", os.getpid(), "64M"], str(os.getpid()))
        self.refuses([FARHEAP, "resize", "banana", "64M"], "banana")
        self.refuses([FARHEAP, "resize", 2**22 + 1, "64M"], str(2**22 + 1))

    def test_no_permission_for_userfaultfd(self):
        switch = pathlib.Path("/proc/sys/vm/unprivileged_userfaultfd")
        support.need(os.geteuid() == 0, "becoming a user without permission needs root")
        support.need(shutil.which("setpriv"), "there is no setpriv on this machine")
        support.need(switch.exists() and switch.read_text().strip() == "0",
                     "vm.unprivileged_userfaultfd lets every user of this machine use userfaultfd")
        nobody = pwd.getpwnam("nobody")
        become = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups",
                  "--inh-caps=-all"]
        device = pathlib.Path("/dev/userfaultfd")
        support.need(not device.exists() or subprocess.run([*become, "test", "-r", device]).returncode != 0,
                     "/dev/userfaultfd is open to every user of this machine")
        # A copy that this user can reach, wherever the build is.
        with tempfile.TemporaryDirectory() as directory:
            copy = pathlib.Path(directory)
            copy.chmod(0o755)
            for name in ("bin/farheap", "lib/libfarheap-preload.so"):
                (copy / name).parent.mkdir()
                shutil.copy(support.BUILD / name, copy / name)
            command = [copy / "bin/farheap", "run", "--local", "64M", "--fault-mode", "thread", "--", "true"]
            self.refuses([*become, *command], "userfaultfd")


if __name__ == "__main__":
    support.main()
