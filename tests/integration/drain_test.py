"""Servers that leave while a program uses them: stopped one after the other and started again, or removed. Nothing is lost,
also with one copy of everything."""

import json
import re
import signal
import subprocess
import unittest

import support
from rotation_test import PROGRAM
from servers_test import Servers

LOCAL_BYTES = 24 * support.MIB


class Leaving(Servers):
    local_bytes = LOCAL_BYTES

    def begin_load(self, servers, options):
        """A program that checks and changes everything that it has stored, again and again, until its input ends."""
        self.stats = self.folder / "stats.json"
        files = [open(self.folder / name, "w", encoding="utf-8") for name in ("out", "err")]
        for file in files:
            self.addCleanup(file.close)
        command = support.farheap_command(["/usr/bin/python3", "-c", PROGRAM], self.local_bytes,
                                          self.far(servers, options), stats=self.stats)
        process = support.start(command, stdin=subprocess.PIPE, stdout=files[0], stderr=files[1])
        self.addCleanup(process.wait)
        self.addCleanup(support.end, process)
        self.await_rounds(process, 1)
        return process

    def await_rounds(self, process, count):
        rounds = self.texts()[0].count("\n")
        support.wait_until(lambda: self.texts()[0].count("\n") >= rounds + count, "the program went on",
                           deadline_s=support.DEADLINE_S, process=process)

    def end_load(self, process):
        process.stdin.close()
        self.assertEqual(process.wait(support.DEADLINE_S), 0, self.texts()[1][-3000:])
        out, err = self.texts()
        self.assertEqual(out.splitlines()[-1], "sound")
        self.assertNotIn("error:", err)
        counted = self.stats.read_text()
        self.assertIn('"lost_pages": 0,', counted)
        return err

    def stop(self, server, process):
        """As an operator does it, who waits for the end of the server."""
        server.process.send_signal(signal.SIGTERM)
        support.wait_until(lambda: server.process.poll() is not None, f"{server.where()} ended",
                           deadline_s=support.DEADLINE_S, process=process)
        self.assertEqual(server.process.returncode, 0)
        self.assertIn("stopped; no client had anything here", server.log())
        server.process.stdout.close()

    def restart_all(self, options):
        servers = [self.server(options=["--drain", "3600s"]) for _ in range(3)]
        process = self.begin_load(servers, options)
        for server in servers:
            self.stop(server, process)
            self.await_rounds(process, 1)
            again = f"{server.where()} answers again"
            before = self.texts()[1].count(again)
            server.start()
            # Whatever this server gets from now on must be copied again when the next one stops.
            support.wait_until(lambda again=again, before=before: self.texts()[1].count(again) > before,
                               f"{server.where()} was used again", process=process)
            self.await_rounds(process, 1)
        err = self.end_load(process)
        for server in servers:
            self.assertIn(f"{server.where()} is about to stop", err)

    def test_three_servers_are_restarted_one_after_the_other_with_one_copy(self):
        self.restart_all("timeout=20s")

    def test_three_servers_are_restarted_one_after_the_other_with_two_copies(self):
        self.restart_all("copies=2&timeout=20s")

    def lacking_copies(self, process):
        done = subprocess.run([support.FARHEAP, "stats", "--json", str(process.pid)], capture_output=True, text=True,
                              timeout=support.DEADLINE_S)
        self.assertEqual(done.returncode, 0, done)
        return json.loads(done.stdout)["lacking_copies"]

    def test_with_no_more_servers_than_copies_pages_go_on_leaving(self):
        """There is no other place for what the server holds, so it waits; fewer copies are written meanwhile."""
        servers = [self.server(options=["--drain", "3600s"]) for _ in range(2)]
        process = self.begin_load(servers, "copies=2&timeout=5s")
        servers[0].process.send_signal(signal.SIGTERM)
        support.wait_until(lambda: f"{servers[0].where()} is about to stop" in self.texts()[1], "the client was told",
                           process=process)
        self.await_rounds(process, 2)
        self.assertIsNone(servers[0].process.poll(), "it ended although the client needs it")
        servers[0].process.send_signal(signal.SIGTERM)  # the operator does not want to wait
        servers[0].process.wait(support.DEADLINE_S)
        servers[0].process.stdout.close()
        self.await_rounds(process, 1)
        self.assertGreater(self.lacking_copies(process), 0)
        again = f"{servers[0].where()} answers again"
        before = self.texts()[1].count(again)
        servers[0].start()
        support.wait_until(lambda: self.texts()[1].count(again) > before and
                           self.lacking_copies(process) == 0, "everything had two copies again", process=process,
                           deadline_s=support.DEADLINE_S)
        servers[1].kill()
        self.await_rounds(process, 1)
        process.stdin.close()
        self.assertEqual(process.wait(support.DEADLINE_S), 0, self.texts()[1][-3000:])
        self.assertEqual(self.texts()[0].splitlines()[-1], "sound")

    def remove(self, process, where):
        return subprocess.run([support.FARHEAP, "remove-server", str(process.pid), where], capture_output=True,
                              text=True, timeout=support.DEADLINE_S)

    def test_a_server_is_removed(self):
        servers = [self.server() for _ in range(3)]
        process = self.begin_load(servers, "timeout=20s")
        done = self.remove(process, servers[1].where())
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertIn(servers[1].where(), done.stdout)
        servers[1].kill()
        self.await_rounds(process, 2)
        err = self.end_load(process)
        self.assertIn(f"{servers[1].where()} is being removed", err)
        self.assertNotIn("does not answer", err)
        self.assertNotIn("the connection is lost", err)

    def test_what_cannot_be_removed_is_told(self):
        servers = [self.server() for _ in range(2)]
        process = self.begin_load(servers, "copies=2&timeout=20s")
        for where, reason in ((servers[0].where(), "2 copies need as many servers, and 1 would be left"),
                              ("127.0.0.1:1", "does not belong to the far tier"),
                              ("nonsense", "HOST:PORT")):
            done = self.remove(process, where)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stdout, "")
            self.assertTrue(re.search(re.escape(reason), done.stderr), done)
        self.end_load(process)


if __name__ == "__main__":
    support.main()
