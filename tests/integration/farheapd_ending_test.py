"""The slots that farheapd keeps of programs that have ended, in good order or not, and of those whose children go on."""

import os
import pathlib
import tempfile
import unittest

import support
from farheapd_test import TOKEN, Server, token_file
from support import MIB


class Ending(unittest.TestCase):
    """How a program ends decides how long the server keeps its memory."""

    FILL = "x = bytearray(b'a' * (64 << 20)); print(sum(x[::4096]), flush=True)"

    def run_program(self, server, code):
        outcome = support.run_far(["/usr/bin/python3", "-c", code], 24 * MIB, far=f"tcp://127.0.0.1:{server.port}")
        self.assertEqual(outcome.out, f"{97 * (64 << 20) // 4096}\n", outcome)
        return outcome

    def test_in_good_order(self):
        with Server("--metrics", "127.0.0.1:0", "--grace", "200ms", "--lease", "3600s", memory="512M") as server:
            for end in ("", "; import os; os._exit(0)"):
                self.run_program(server, self.FILL + end)
                support.wait_until(lambda: server.value("sessions") == 0, "the session ended")
                support.wait_until(lambda: server.value("used_bytes") == 0, "its memory was free again")
            self.assertEqual(server.value("sessions_ended_early_total"), 0)

    def test_a_child_goes_on(self):
        """It does not read while its parent ends, and for as long as it takes the server to notice."""
        with tempfile.TemporaryDirectory() as directory, \
             Server("--metrics", "127.0.0.1:0", "--grace", "200ms", "--lease", "3600s", memory="512M") as server:
            wake, result = pathlib.Path(directory, "wake"), pathlib.Path(directory, "result")
            self.run_program(server, f"""{self.FILL}
import os, time
if os.fork() == 0:
    for descriptor in (0, 1, 2): os.close(descriptor)
    for _ in range(4000):
        if os.path.exists({str(wake)!r}): break
        time.sleep(0.05)
    open({str(result)!r} + ".new", "w").write(str(sum(x[::4096])))
    os.rename({str(result)!r} + ".new", {str(result)!r})
    os._exit(0)
""")
            # The parent had two connections, of which one opened the session.
            support.wait_until(lambda: server.value("sessions_joined_total") >= 3 and server.value("away_sessions") == 0,
                               "the child connected")
            wake.touch()
            support.wait_until(result.exists, "the child read its memory")
            self.assertEqual(result.read_text(), str(97 * (64 << 20) // 4096))

    def test_a_child_of_a_daemon(self):
        """It opens a far tier of its own, by a name with a file that was named from the directory of before."""
        with token_file(f"{TOKEN}\n") as token, Server("--token-file", token, memory="512M") as server:
            outcome = support.run_far(["/usr/bin/python3", "-c", f"""
import os
os.chdir("/")
{self.FILL}
if os.fork() == 0:
    {self.FILL.replace("x", "y").replace("b'a'", "b'b'")}
    os._exit(0)
print(os.wait()[1])
"""], 48 * MIB, far=f"tcp://127.0.0.1:{server.port}?token-file={os.path.relpath(token)}")
            self.assertEqual(outcome.out.split(), [str(byte * (64 << 20) // 4096) for byte in (97, 98)] + ["0"], outcome)
            self.assertNotIn("cannot", outcome.err)

    def test_killed(self):
        with Server("--metrics", "127.0.0.1:0", "--grace", "200ms", "--lease", "3600s", memory="512M") as server:
            self.run_program(server, self.FILL + "; import os; os.kill(os.getpid(), 9)")
            support.wait_until(lambda: server.value("away_sessions") == 1, "the connections were gone")
            # The grace period is over when a session of another program that came later has ended.
            self.run_program(server, self.FILL)
            support.wait_until(lambda: server.value("sessions") == 1, "the session of the second program ended")
            self.assertEqual(server.value("away_sessions"), 1, "it may only be paused, for all that the server knows")


if __name__ == "__main__":
    support.main()
