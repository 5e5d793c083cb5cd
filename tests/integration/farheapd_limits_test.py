"""farheapd keeps those who misbehave from harming others."""

import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

import support
import wire_client
from farheapd_test import FARHEAPD, TOKEN, Server, token_file
from support import MIB
from wire_client import Client, Refused

BURST = 16  # failures of an address at once


class WrongTokens(unittest.TestCase):
    def guess(self, server, source, token):
        with Client(server.port, source=source) as client:
            with self.assertRaises(Refused) as refused:
                client.shake_hands(token=token)
        return str(refused.exception)

    def test_an_address_that_guesses_has_to_wait_and_others_do_not(self):
        with token_file(TOKEN) as tokens, Server("--token-file", tokens, "--threads", "2", "--metrics",
                                                 "127.0.0.1:0") as server:
            with Client(server.port, source="127.0.0.2").shake_hands(token=TOKEN) as before:
                said = []

                def throttled():
                    said.append(self.guess(server, "127.0.0.2", f"{TOKEN}{len(said)}"))
                    return sum("throttled: " in one and "try again in a second" in one for one in said)

                # One a second is heard: on a slow machine not all those after the first are throttled.
                support.wait_until(lambda: throttled() >= BURST, "so many guesses were throttled")
                self.assertIn("token: ", said[0])
                # Who is connected already goes on, and so do others.
                self.assertEqual(before.allocate(0, 1), wire_client.OK)
                with Client(server.port, source="127.0.0.3").shake_hands(token=TOKEN) as other:
                    self.assertEqual(other.allocate(0, 1), wire_client.OK)
                def is_heard():
                    try:
                        with Client(server.port, source="127.0.0.2").shake_hands(token=TOKEN):
                            return True
                    except Refused as refused:
                        self.assertIn("throttled: ", str(refused))
                        return False

                support.wait_until(is_heard, "the right token was heard")
            self.assertGreaterEqual(server.value('connection_endings_total{reason="throttled"}'), BURST)
            self.assertNotIn(TOKEN, server.log())


class TenantLimits(unittest.TestCase):
    """What a tenant may ask for; one that asks more waits, and nobody else does."""

    def ask_all(self, client, count):
        """The seconds that so many requests took, all sent at once: also where the machine stalls, they come together."""
        began = time.monotonic()
        client.send_raw(b"".join(wire_client.encode_message(wire_client.PING, cookie=number) for number in range(count)))
        for _ in range(count):
            self.assertEqual(client.receive().status, wire_client.OK)
        return time.monotonic() - began

    def test_requests_and_connections(self):
        with tempfile.TemporaryDirectory() as folder, token_file(f"small {TOKEN}\nlarge {TOKEN}2\n") as tokens:
            config = pathlib.Path(folder, "farheapd.conf")
            config.write_text('limit=["small=connections:2,requests:100"]\n')
            with Server("--config", config, "--token-file", tokens, "--threads", "1", "--metrics",
                        "127.0.0.1:0") as server, \
                 server.welcome(tenant="small", token=TOKEN) as small, \
                 server.welcome(tenant="large", token=TOKEN + "2") as large:
                self.assertGreater(self.ask_all(small, 60), 0.4)
                self.ask_all(large, 3000)
                delays = server.value('tenant_delays_total{tenant="small"}')
                self.assertGreater(delays, 0)
                self.assertNotIn('tenant_delays_total{tenant="large"}', server.metrics())
                with server.welcome(tenant="small", token=TOKEN, session=small.session, channel=1), \
                     Client(server.port) as third:
                    with self.assertRaisesRegex(Refused, "too many connections"):
                        third.shake_hands(tenant="small", token=TOKEN)
                self.assertEqual(server.value('tenant_limit{tenant="small",kind="requests"}'), 100)

                config.write_text('limit=["small=requests:100000"]\n')
                server.process.send_signal(signal.SIGHUP)
                support.wait_until(lambda: "reloaded" in server.log(), "the server reloaded its limits")
                self.ask_all(small, 3000)  # which would take half a minute
                self.assertEqual(server.value('tenant_limit{tenant="small",kind="requests"}'), 100000)

    def test_mistakes(self):
        with token_file(f"small {TOKEN}\n") as tokens:
            for limit, word in (("small", "write for example"), ("small=speed:1", "speed"), ("a b=requests:200", "a b"),
                                ("small=requests:9", "too little"), ("other=requests:200", "no token")):
                outcome = support.run([FARHEAPD, "--memory", "64M", "--listen", "127.0.0.1:0", "--token-file", tokens,
                                       "--limit", limit])
                self.assertEqual(outcome.code, 2, outcome)
                self.assertIn(word, outcome.err)


class TlsBinding(unittest.TestCase):
    """Somebody with the server's certificate ends the encryption in between, and passes the proofs on."""

    def setUp(self):
        support.need(shutil.which("openssl"), "there is no openssl command on this machine to make a certificate")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.key, self.certificate = pathlib.Path(folder.name, "key.pem"), pathlib.Path(folder.name, "certificate.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=farheapd", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                        self.key, "-out", self.certificate], check=True, capture_output=True)
        self.key.chmod(0o600)

    def relay(self, port):
        """Returns the port of somebody in between."""
        near_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        near_side.load_cert_chain(self.certificate, self.key)
        far_side = ssl.create_default_context(cafile=self.certificate)
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def carry(source, sink):
            try:
                while data := source.recv(1 << 16):
                    sink.sendall(data)
            except OSError:
                pass
            sink.close()

        def serve():
            while True:
                try:
                    near = near_side.wrap_socket(listener.accept()[0], server_side=True)
                    far = far_side.wrap_socket(socket.create_connection(("127.0.0.1", port)),
                                               server_hostname="127.0.0.1")
                except OSError:
                    return
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()
        threading.Thread(target=serve, daemon=True).start()
        return listener.getsockname()[1]

    def test_a_proof_cannot_be_passed_on(self):
        with token_file(TOKEN) as tokens, Server("--token-file", tokens, "--tls-cert", self.certificate, "--tls-key",
                                                 self.key) as server:
            def connect(port):
                far = f"tcp://127.0.0.1:{port}?tls=1&ca={self.certificate}&token-file={tokens}"
                return support.run_far(["/bin/true"], 16 * MIB, far)
            direct = connect(server.port)
            self.assertEqual(direct.code, 0, direct)
            passed_on = connect(self.relay(server.port))
            self.assertNotEqual(passed_on.code, 0, passed_on)
            self.assertIn("token: it is not the one of this tenant", passed_on.err)


class Silence(unittest.TestCase):
    def test_it_ends_a_connection(self):
        # Where the machine stalls, whoever speaks all the time may be silent for longer than that.
        self.assertTrue(any(self.ends_who_says_nothing(silence_s) for silence_s in (4, 30, 200)))

    def ends_who_says_nothing(self, silence_s):
        """False: the one that was to speak may have been silent itself."""
        spoke = time.monotonic()
        longest_s = 0
        with Server("--threads", "1", "--silence", f"{silence_s}s") as server, server.welcome() as honest, \
             server.welcome() as silent:
            def speak():
                nonlocal spoke, longest_s
                speaks = time.monotonic()
                try:
                    self.assertEqual(honest.ask(wire_client.PING).status, wire_client.OK)
                finally:
                    longest_s = max(longest_s, time.monotonic() - spoke)
                    spoke = speaks

            def is_told():
                speak()
                return "silent" in server.log()

            try:
                honest.allocate(0, 1)
                support.wait_until(is_told, "the log says silent", deadline_s=silence_s + support.DEADLINE_S)
                self.assertTrue(silent.is_ended())
                speak()
                self.assertEqual(honest.read((0, 0, 4096)).payload, bytes(4096))
                self.assertEqual(server.log().count("silent"), 1, server.log())
            except (ConnectionError, AssertionError):
                if longest_s < silence_s:
                    raise
                return False
            return True


if __name__ == "__main__":
    support.main()
