"""Programs start, and go on, where something is missing: rights, /proc, system calls. With far memory if at all possible,
natively if not, and never without a word."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import support

NOBODY = 65534
BUDGET = 32 * support.MIB
VERIFIER = ["--seed", "7", "--threads", "2", "--operations", "60", "--live-mib", "96", "--largest-mib", "8"]
NO_RIGHTS = "vm.unprivileged_userfaultfd=1"
NATIVELY = "runs natively"


# A process of this number's alone, so that nobody else changes how many it has. It forks when there is room for as many
# more processes and threads as its first argument says, and says how the child ended, which lives for as many seconds as
# the second one.
ALONE = 61234
AT_THE_LIMIT = """
import os, resource, sys, time
hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
def limit(most):
    resource.setrlimit(resource.RLIMIT_NPROC, (most, hard))
def fits():
    try:
        child = os.posix_spawn("/bin/true", ["true"], {})
    except BlockingIOError:
        return False
    return os.waitpid(child, 0)[1] == 0
memory = bytearray(48 << 20)
most = 1
while limit(most) or not fits():
    most += 1
limit(most + int(sys.argv[1]))
child = os.fork()
if child == 0:
    time.sleep(float(sys.argv[2]))
    os._exit(7 if sum(memory[::4096]) == 0 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Start(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.native = support.run([support.PROGRAMS / "verifier", *VERIFIER])
        assert cls.native.code == 0, cls.native
        # Where every user may read it.
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.place = pathlib.Path(cls.directory.name)
        cls.place.chmod(0o755)
        for name in ("bin/farheap", "lib/libfarheap-preload.so", "tests/verifier", "tests/dropper", "tests/forbidder"):
            target = cls.place / name
            target.parent.mkdir(exist_ok=True)
            shutil.copy(support.BUILD / name, target)

    def farheap(self, *program, far="memory:", mode=None):
        command = [self.place / "bin/farheap", "run", "--local", str(BUDGET), *(["--far", far] if far else [])]
        return [*command, *(["--fault-mode", mode] if mode else []), "--", *program]

    def verifier(self):
        return [self.place / "tests/verifier", *VERIFIER]

    def check_same(self, outcome, far):
        self.assertEqual((outcome.code, outcome.out), (0, self.native.out), outcome)
        misses = outcome.err.split(" misses,")[0].split()[-1] if " misses," in outcome.err else "0"
        self.assertEqual(int(misses) > 0, far, outcome)

    def check_said_once(self, outcome, *texts):
        lines = [line for line in outcome.err.splitlines() if "warning" in line]
        self.assertEqual(len(lines), 1, outcome)
        for text in texts:
            self.assertIn(text, lines[0])

    def as_nobody(self):
        support.need(os.geteuid() == 0, "only root can become another user")
        return ["setpriv", f"--reuid={NOBODY}", "--clear-groups"]

    def without_proc(self):
        support.need(os.geteuid() == 0, "only root can hide /proc")
        return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]

    def test_an_ordinary_user_gets_inline_mode(self):
        rights = pathlib.Path("/proc/sys/vm/unprivileged_userfaultfd")
        support.need(rights.exists() and rights.read_text().strip() == "0", "every user has all rights here")
        outcome = support.run([*self.as_nobody(), *self.farheap(*self.verifier())])
        self.check_same(outcome, far=True)
        self.assertNotIn("warning", outcome.err, "it is the default for all others, too")

    def test_natively_without_userfaultfd(self):
        outcome = support.run([*self.as_nobody(), self.place / "tests/forbidder", "userfaultfd",
                               *self.farheap(*self.verifier())])
        self.check_same(outcome, far=False)
        self.check_said_once(outcome, NO_RIGHTS, NATIVELY)

    def test_a_child_of_fork_that_may_have_no_threads(self):
        support.need(os.geteuid() == 0, "only root can become another user")
        alone = ["setpriv", f"--reuid={ALONE}", "--clear-groups"]
        for room, code, says in ((0, "1", "cannot go on with its far memory (no thread can be started"),
                                 (1, "7", "has a budget of its own")):
            # What lives on is told so after a second, or later on a busy machine.
            for lives_s in ("2", "10", "60"):
                program = ["/usr/bin/python3", "-c", AT_THE_LIMIT, str(room)]
                native = support.run([*alone, *program, "0"])
                self.assertEqual((native.code, native.out), (0, "7\n"), native)
                outcome = support.run([*alone, *self.farheap(*program, lives_s, mode="inline")])
                self.assertEqual((outcome.code, outcome.out), (0, code + "\n"), outcome)
                if says in outcome.err:
                    break
            self.assertIn(says, outcome.err)
            self.assertIn("ulimit -u", outcome.err)

    def test_a_mode_that_was_asked_for_is_not_replaced(self):
        outcome = support.run(self.farheap(*self.verifier(), mode="thread"),
                              environment={"FARHEAP_DISABLE": "userfaultfd_kernel_faults"})
        self.assertEqual(outcome.code, 1, outcome)
        self.assertIn(NO_RIGHTS, outcome.err)

    def test_a_program_that_it_starts_with_fewer_rights(self):
        outcome = support.run(self.farheap(self.place / "tests/forbidder", "userfaultfd", *self.as_nobody(),
                                           "env", *self.verifier(), mode="inline"))
        self.assertEqual((outcome.code, outcome.out), (0, self.native.out), outcome)
        self.assertIn(NATIVELY, outcome.err)

    def test_file_tier_without_io_uring(self):
        for mode in ("thread", "inline"):
            outcome = support.run([self.place / "tests/forbidder", "io_uring",
                                   *self.farheap(*self.verifier(), far=f"file:{self.place}", mode=mode)])
            self.check_same(outcome, far=True)

    def test_without_proc(self):
        settings = {"FARHEAP_LOCAL_BYTES": str(BUDGET), "FARHEAP_FAR": "memory:",
                    "LD_PRELOAD": str(self.place / "lib/libfarheap-preload.so")}
        program = ["env", *(f"{name}={value}" for name, value in settings.items()), *self.verifier()]
        for mode in ("thread", "inline"):
            outcome = support.run([*self.without_proc(), "env", f"FARHEAP_FAULT_MODE={mode}", *program])
            self.check_same(outcome, far=True)

    def test_a_limit_on_data_is_left_to_the_program(self):
        limited = ["bash", "-c", 'ulimit -d 1130000 && exec "$@"', "bash", *self.verifier()]
        outcome = support.run(self.farheap(*limited))
        self.check_same(outcome, False)
        self.check_said_once(outcome, "ulimit", NATIVELY)

    def test_natively_where_a_limit_on_data_leaves_no_room_for_tables(self):
        for limit_kib in (20_000, 500_000, 1_000_000, 1_900_000):
            with self.subTest(limit_kib=limit_kib):
                limited = ["bash", "-c", f'ulimit -d {limit_kib} && exec "$@"', "bash"]
                program = ["bash", "-c", "echo hello"] if limit_kib < 400_000 else self.verifier()
                expected = support.run([*limited, *program])
                outcome = support.run([*limited, *self.farheap(*program, far=f"file:{self.place}")])
                self.assertEqual((outcome.code, outcome.out), (expected.code, expected.out), outcome)
                self.assertEqual(outcome.code, 0, outcome)
                self.check_said_once(outcome, "ulimit -d", NATIVELY)

    def test_the_default_tier(self):
        outcome = support.run(self.farheap(*self.verifier(), far=None))
        self.check_same(outcome, far=True)
        self.assertNotIn("warning", outcome.err)

    def test_stacked_tiers_under_a_limit_on_data(self):
        for far in (None, "zmem:16M,file:"):
            with self.subTest(far=far):
                limited = ["bash", "-c", 'ulimit -d 8000000 && exec "$@"', "bash"]
                outcome = support.run([*limited, *self.farheap(*self.verifier(), far=far)])
                self.check_same(outcome, far=True)
                self.assertNotIn("warning", outcome.err)

    def test_the_default_tier_of_a_program_that_limits_its_data(self):
        limited = ["bash", "-c", 'ulimit -d 8000000 && exec "$@"', "bash", *self.verifier()]
        with tempfile.TemporaryDirectory() as place:
            report = os.path.join(place, "stats.json")
            command = self.farheap(*limited, far=None)
            command[command.index("--"):command.index("--")] = ["--stats-json", report]
            outcome = support.run(command)
            self.check_same(outcome, far=True)
            self.assertNotIn("warning", outcome.err)
            with open(report, encoding="utf-8") as file:
                self.assertEqual(json.load(file)["far"], "file:")

    def test_a_program_that_limits_its_data_below_what_it_has(self):
        for mode in ("thread", "inline"):
            with self.subTest(mode=mode):
                program = ["bash", "-c", "ulimit -d 100000; (echo child); echo parent"]
                outcome = support.run(self.farheap(*program, far=f"file:{self.place}", mode=mode))
                self.assertEqual((outcome.code, outcome.out), (0, "child\nparent\n"), outcome)

    def test_a_closed_standard_error_does_not_end_the_program(self):
        for mode in ("thread", "inline"):
            for_nobody, end = os.pipe()
            os.close(for_nobody)
            command = support.farheap_command(["true"], BUDGET, mode=mode)
            # Python leaves SIGPIPE ignored to its children, unless it is told otherwise.
            ended = subprocess.run([str(part) for part in command], stderr=end, restore_signals=True, timeout=support.DEADLINE_S,
                                   check=False)
            os.close(end)
            self.assertEqual(ended.returncode, 0, mode)

    def test_rights_given_up_before_a_fork(self):
        support.need(os.geteuid() == 0, "only root can become another user")
        for mode in ("thread", "inline"):
            for options in (["--user", str(NOBODY)], ["--root", str(self.place)],
                            ["--root", str(self.place), "--user", str(NOBODY)]):
                with self.subTest(mode=mode, options=options):
                    if mode == "thread" and "--user" in options:
                        support.need(os.path.exists("/dev/userfaultfd"), "no /dev/userfaultfd: Linux 6.1 has it")
                    outcome = support.run(self.farheap(self.place / "tests/dropper", "96", *options, mode=mode))
                    self.assertEqual((outcome.code, outcome.out), (0, "dropper: done\n"), outcome)


if __name__ == "__main__":
    support.main()
