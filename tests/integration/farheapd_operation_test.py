"""What operators ask of farheapd: whether it could start, and what it has done."""

import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import support
import wire_client
from farheapd_test import FARHEAPD, TOKEN, Server, token_file
from wire_client import Client


class Checking(unittest.TestCase):
    """`--check` says what stands in the way, and starts no server."""

    def check(self, *arguments):
        return support.run([FARHEAPD, "--check", *arguments], deadline_s=240)

    def test_a_server_that_would_serve(self):
        with token_file(f"alice {TOKEN}\nbob {TOKEN}2\n") as tokens:
            outcome = self.check("--memory", "64M", "--listen", "127.0.0.1:0", "--token-file", tokens)
        self.assertEqual((outcome.code, outcome.err), (0, ""), outcome)
        for line in (r"--listen +ok +127\.0\.0\.1:0, with tokens, not encrypted", r"tokens +ok +of 2 tenant",
                     r"memory +\w+ +--memory 64\.0 MiB, and ", r"huge pages +", r"NUMA +", r"descriptors +",
                     r"io_uring +", r"farheapd would serve\."):
            self.assertRegex(outcome.out, line)
        self.assertNotIn(TOKEN, outcome.out)

    def test_a_running_server_is_not_disturbed(self):
        with Server() as server, server.welcome() as client:
            outcome = self.check("--memory", "64M", "--listen", f"127.0.0.1:{server.port}")
            self.assertEqual(outcome.code, 0, outcome)
            self.assertRegex(outcome.out, r"--listen +note .*in use")
            self.assertEqual(client.allocate(0, 1), wire_client.OK)

    def test_what_stands_in_the_way(self):
        with token_file(TOKEN) as tokens:
            outcome = self.check("--memory", "64M", "--listen", "192.0.2.1:7070", "--token-file", tokens)
        self.assertEqual(outcome.code, 1, outcome)
        self.assertRegex(outcome.out, r"--listen +PROBLEM ")
        self.assertEqual(self.check().code, 2)

    def test_plugins(self):
        serves = ["--memory", "64M", "--listen", "127.0.0.1:0"]
        plugin = support.BUILD / "bin/examples/plugins/sorted.so"
        outcome = self.check(*serves, "--plugin", plugin)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertRegex(outcome.out, r"plugins +ok +sorted 1\.0\n")
        for files, why in ((["/dev/null"], "/dev/null"), ([plugin, plugin], "there is another plugin 'sorted'")):
            outcome = self.check(*serves, *(word for file in files for word in ("--plugin", file)))
            self.assertEqual(outcome.code, 1, outcome)
            self.assertRegex(outcome.out, rf"plugins +PROBLEM +--plugin .*{why}")

    def test_certificates(self):
        support.need(shutil.which("openssl"), "there is no openssl command on this machine to make a certificate")
        with tempfile.TemporaryDirectory() as directory:
            key, certificate = pathlib.Path(directory, "key.pem"), pathlib.Path(directory, "certificate.pem")

            def check(days, *names):
                subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                                "-nodes", "-subj", "/CN=farheapd", *names, "-days", str(days), "-keyout", key, "-out",
                                certificate], check=True, capture_output=True)
                key.chmod(0o600)
                outcome = self.check("--memory", "64M", "--listen", "127.0.0.1:0", "--tls-cert", certificate,
                                     "--tls-key", key)
                return re.search("^certificate.*", outcome.out, re.MULTILINE)[0]
            names = ["-addext", "subjectAltName=DNS:cache1,IP:10.0.0.1"]
            self.assertRegex(check(300, *names), r"ok +DNS:cache1, IP Address:10\.0\.0\.1; valid for (299|300) days")
            self.assertRegex(check(3, *names), r"note +.*valid for (2|3) days")
            self.assertRegex(check(300), r"PROBLEM +it has no subject alternative names")


class VersionSkew(unittest.TestCase):
    """Clients of every release before this one, and of one to come, on one server and in one session."""

    def test_each_client_is_served_in_its_own_version(self):
        with Server() as server:
            for newest, spoken, identity_bytes, lease_ms in ((1, 1, 0, None), (2, 2, 16, 3_600_000),
                                                             (3, 3, 16, 3_600_000), (4, 4, 16, 3_600_000),
                                                             (5, 5, 16, 3_600_000), (9, 5, 16, 3_600_000)):
                with server.welcome(newest=newest) as client:
                    self.assertEqual(client.version, spoken)
                    self.assertEqual((len(client.identity), client.lease_ms), (identity_bytes, lease_ms))
                    self.assertEqual(client.allocate(0, 1), wire_client.OK)
                    self.assertEqual(client.write(3, b"bytes"), wire_client.OK)
                    # An upgraded program joins as what it is; so does one that was rolled back.
                    for other in (1, 2, 3, 4, 5):
                        with server.welcome(newest=other, session=client.session, channel=1) as joined:
                            self.assertEqual(joined.read((3, 0, 5)).payload, b"bytes")
                    self.assertEqual(client.ask(wire_client.CLOSE).status, wire_client.OK)

    def test_clients_of_older_versions_are_told_of_the_end(self):
        for newest in (1, 5):
            with Server("--drain", "600s") as server, server.welcome(newest=newest) as client:
                client.allocate(0, 1)
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(client.receive().op, wire_client.DRAINING)
                self.assertEqual(client.free(0, 1), wire_client.OK)
                self.assertEqual(server.process.wait(support.DEADLINE_S), 0)


class Logging(unittest.TestCase):
    def test_json(self):
        with Server("--log-format", "json", "--log-level", "debug", "--patience", "3s") as server:
            with server.welcome(tenant="alice") as client:
                client.read((0, 0, 4096))
                self.assertTrue(client.is_ended())
            with server.client() as late:
                self.assertTrue(late.is_ended())
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(support.DEADLINE_S), 0)
            lines = [json.loads(line) for line in server.log().splitlines()]
        for line in lines:
            self.assertRegex(line["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["severity"], ("warning", "info", "debug"))
        told = {line["reason"]: line for line in lines if "reason" in line}
        self.assertEqual(told["foreign_slot"]["tenant"], "alice")
        self.assertRegex(told["foreign_slot"]["peer"], r"^127\.0\.0\.1:\d+$")
        self.assertRegex(told["foreign_slot"]["session"], r"^[0-9a-f]{8}$")
        self.assertNotIn(client.session.hex()[:8], told["foreign_slot"]["session"])
        self.assertEqual(told["foreign_slot"]["severity"], "warning")
        self.assertNotIn("session", told["late_handshake"])
        self.assertIn("draining", " ".join(line["message"] for line in lines))

    def test_a_log_that_nobody_reads_stops_nobody(self):
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(writer, b"." * 4095)
        process = support.start([FARHEAPD, "--listen", "127.0.0.1:0", "--memory", "64M", "--threads", "1", "--log-level",
                                 "debug"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=writer, text=True)
        try:
            port = int(re.search(r":(\d+)", process.stdout.readline())[1])
            for _ in range(3):
                with Client(port) as stranger:
                    stranger.send_raw(bytes(100))
                    self.assertTrue(stranger.is_ended())
                with Client(port).shake_hands() as client:
                    self.assertEqual(client.allocate(0, 1), wire_client.OK)
                    client.ask(wire_client.CLOSE)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(support.DEADLINE_S), 0)
        finally:
            support.end(process)
            process.wait(support.DEADLINE_S)
            process.stdout.close()
            os.close(reader)
            os.close(writer)


class ServiceManager(unittest.TestCase):
    """What systemd hears from a service of the type notify."""

    def test_it_is_told_of_each_phase(self):
        with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(support.DEADLINE_S)
            path = pathlib.Path(directory, "notify")
            manager.bind(str(path))
            os.environ["NOTIFY_SOCKET"] = str(path)
            try:
                server = Server()
            finally:
                del os.environ["NOTIFY_SOCKET"]
            with server:
                self.assertIn(b"READY=1", manager.recv(4096).splitlines())
                server.process.send_signal(signal.SIGHUP)
                self.assertIn(b"RELOADING=1", manager.recv(4096).splitlines())
                self.assertIn(b"READY=1", manager.recv(4096).splitlines())
                server.process.send_signal(signal.SIGTERM)
                self.assertIn(b"STOPPING=1", manager.recv(4096).splitlines())
                self.assertEqual(server.process.wait(support.DEADLINE_S), 0)

    def test_abstract_sockets_and_managers_that_are_gone(self):
        name = f"@farheapd-test-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(support.DEADLINE_S)
            manager.bind("\0" + name[1:])
            os.environ["NOTIFY_SOCKET"] = name
            try:
                with Server():
                    self.assertIn(b"READY=1", manager.recv(4096).splitlines())
                manager.close()
                with Server() as alone:
                    support.wait_until(lambda: "the service manager cannot be told" in alone.log(), "it was logged")
                    with alone.welcome() as client:
                        self.assertEqual(client.allocate(0, 1), wire_client.OK)
            finally:
                del os.environ["NOTIFY_SOCKET"]


class Stopping(unittest.TestCase):
    def test_clients_are_told_and_waited_for(self):
        with Server("--drain", "600s") as server, server.welcome() as client:
            client.allocate(0, 1)
            client.write(0, b"fetch me")
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(client.receive().op, wire_client.DRAINING)
            self.assertEqual(client.allocate(1, 1), wire_client.STOPPING)
            self.assertEqual(client.read((0, 0, 8)).payload, b"fetch me")
            with server.client() as late, self.assertRaisesRegex(wire_client.Refused, "draining"):
                late.shake_hands()
            # Whoever lost its connection comes back for its bytes, and is told, too.
            client.socket.close()
            with server.welcome(session=client.session) as again:
                self.assertEqual(again.receive().op, wire_client.DRAINING)
                self.assertEqual(again.read((0, 0, 8)).payload, b"fetch me")
                self.assertIsNone(server.process.poll())
                self.assertEqual(again.free(0, 1), wire_client.OK)
                # It still has its connection, and needs nothing any more.
                self.assertEqual(server.process.wait(support.DEADLINE_S), 0)
            self.assertIn("stopped; no client had anything here", server.log())

    def test_clients_that_are_away_may_come_back_within_their_grace(self):
        with Server("--drain", "600s", "--grace", "500ms", "--metrics", "127.0.0.1:0") as server:
            with server.welcome() as client:
                client.allocate(0, 1)
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(client.receive().op, wire_client.DRAINING)
            self.assertEqual(server.process.wait(support.DEADLINE_S), 0)

    def test_not_for_ever(self):
        with Server("--drain", "500ms") as server, server.welcome() as client:
            client.allocate(0, 2)
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(support.DEADLINE_S), 0)
            self.assertTrue(client.is_ended())
            self.assertIn("clients had 4.00 MiB here", server.log())

    def test_a_second_signal_ends_it_at_once(self):
        with Server("--drain", "600s") as server, server.welcome() as client:
            client.allocate(0, 1)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(client.receive().op, wire_client.DRAINING)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(support.DEADLINE_S), 0)

    def test_without_clients_at_once(self):
        with Server("--drain", "600s") as server, server.welcome():
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(support.DEADLINE_S), 0)


if __name__ == "__main__":
    support.main()
