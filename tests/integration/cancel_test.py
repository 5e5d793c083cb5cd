"""Threads that are cancelled while the runtime works on them: its calls are cancellation points."""

import support
from servers_test import Servers


class Cancelled(Servers):
    # Over a server: a thread that misses waits for the socket.
    def test_threads_that_miss_end_between_two_accesses(self):
        server = self.server()
        for mode, how in [("inline", []), ("inline", ["hints"]), ("thread", ["hints"]), ("inline", ["calls"]),
                          ("thread", ["calls"])]:
            with self.subTest(mode=mode, how=how):
                outcome = support.run_far([support.PROGRAMS / "canceller", *how], 16 * support.MIB, f"tcp://{server.where()}", mode)
                self.assertEqual((outcome.code, outcome.out), (0, "cancelled: 12 of 12\n"), outcome)
                self.assertGreater(outcome.stats["misses"], 12, outcome.stats)


if __name__ == "__main__":
    support.main()
