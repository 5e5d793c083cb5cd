"""A program that checks every byte of its memory, on a farheapd of the same machine through shared memory."""

import contextlib
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

import support

FARHEAPD = support.BUILD / "bin" / "farheapd"
VERIFIER = [support.PROGRAMS / "verifier", "--seed", "11", "--threads", "4", "--operations", "300",
            "--live-mib", "128", "--largest-mib", "16"]
LOCAL_BYTES = 24 * support.MIB
FORKED = ("import os\n"
          "data = bytearray(b'0123456789abcdef' * (8 << 20))\n"
          "def intact(): return all(data[i:i + 16] == b'0123456789abcdef' for i in range(0, len(data), 65536))\n"
          "child = os.fork()\n"
          "if child == 0: os._exit(0 if intact() else 1)\n"
          "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), intact())\n")


@contextlib.contextmanager
def server(path, *options):
    """A farheapd that lends through shared memory alone; ready when this returns."""
    process = support.start([FARHEAPD, "--memory", "2G", "--shm", path, *options], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        if not line.startswith("listening on"):
            raise RuntimeError(f"farheapd did not start: it printed {line!r}")
        yield process
    finally:
        support.end(process)
        process.communicate()


class SharedMemory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = str(self.folder / "far.sock")

    def check(self, outcome, native):
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.out, native.out, outcome)
        self.assertGreater(outcome.stats["fetched_pages"], 0)
        self.assertGreater(outcome.stats["peak_far_bytes"], LOCAL_BYTES)
        self.assertEqual(outcome.stats["backend_errors"], 0, outcome.stats)
        # Where the server copies, a busy machine may keep so many transfers under way that eviction finds nothing to take.
        if "copy=server" not in outcome.stats["far"]:
            self.assertEqual(outcome.stats["over_budget_pages"], 0, outcome)

    def test_a_program_lives_in_the_servers_memory(self):
        native = support.run(VERIFIER)
        with server(self.path):
            for options in "", "?copy=server":
                self.check(support.run_far(VERIFIER, LOCAL_BYTES, far=f"shm:{self.path}{options}"), native)

    def test_with_a_token(self):
        token = self.folder / "token"
        token.write_text("0123456789abcdef0123456789abcdef\n")
        token.chmod(0o600)
        native = support.run(VERIFIER)
        with server(self.path, "--token-file", str(token)):
            far = f"shm:{self.path}?token-file={token}"
            self.check(support.run_far(VERIFIER, LOCAL_BYTES, far=far), native)
            refused = support.run_far(VERIFIER, LOCAL_BYTES, far=f"shm:{self.path}")
            self.assertNotEqual(refused.code, 0)
            self.assertIn("wants a token", refused.err)
            self.assertNotIn("0123456789abcdef", refused.err)

    def test_the_program_survives_its_server(self):
        with server(self.path) as process, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            program = support.start(support.farheap_command([*VERIFIER, "--until-input-ends"], LOCAL_BYTES, f"shm:{self.path}"),
                                    stdin=subprocess.PIPE, stdout=out, stderr=err)
            self.addCleanup(program.stdin.close)
            self.addCleanup(support.end, program)
            far = pathlib.Path(f"/proc/{program.pid}/smaps_rollup")

            # Far more than the launcher maps when it looks whether the server is there.
            def uses_the_server():
                with contextlib.suppress(ProcessLookupError):
                    return any(line.startswith("Pss_Shmem:") and int(line.split()[1]) > 128 << 10
                               for line in far.read_text().splitlines())
                return False

            support.wait_until(uses_the_server, "the program has far memory", process=program)
            process.send_signal(signal.SIGKILL)
            process.wait()
            program.stdin.close()
            with server(self.path):
                code = support.wait_until(lambda: (program.poll(),) if program.poll() is not None else None,
                                          "the program ends", deadline_s=support.DEADLINE_S)[0]
            out.seek(0)
            err.seek(0)
            outcome = support.Outcome(code, out.read(), err.read(), 0)
        self.assertEqual(outcome.code, 0, outcome)
        operations = re.search(r" after (\d+) operations$", outcome.out, re.MULTILINE)
        self.assertIsNotNone(operations, outcome)
        self.assertEqual(outcome.out, support.run([*VERIFIER, "--operations", operations[1]]).out, outcome)

    def test_a_forked_child_reads_its_parents_memory(self):
        with server(self.path):
            outcome = support.run_far(["/usr/bin/python3", "-c", FORKED], 32 * support.MIB, far=f"shm:{self.path}")
        self.assertEqual((outcome.code, outcome.out), (0, "0 True\n"), outcome)

    def test_without_a_server_the_error_says_what_to_do(self):
        outcome = support.run_far(["/bin/true"], LOCAL_BYTES, far="shm:nobody-listens-here")
        self.assertEqual(outcome.code, 1, outcome)
        self.assertIn("farheapd --shm nobody-listens-here", outcome.err)


if __name__ == "__main__":
    support.main()
