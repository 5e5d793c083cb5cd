"""farheapd, started as its users start it, and clients that behave and misbehave."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import support
import wire_client
from support import MIB
from wire_client import Client

FARHEAPD = support.BUILD / "bin" / "farheapd"
TOKEN = "0123456789abcdef0123456789abcdef"
BLOCK_BYTES = 2 * MIB


class Server:
    """A farheapd on a port of its own. Use it in a `with` statement, which ends it. Unless the arguments say otherwise, it is
    patient, so that the test may be late where the machine stalls."""

    def __init__(self, *arguments, memory="64M"):
        self.errors = tempfile.TemporaryFile("w+")
        patience = [] if "--patience" in arguments else ["--patience", "60s"]
        self.process = support.start([FARHEAPD, "--listen", "127.0.0.1:0", "--memory", memory, *patience, *arguments],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", line)
        if not found:
            self.process.wait(support.DEADLINE_S)
            raise AssertionError(f"farheapd did not start: {line!r} {self.log()}")
        self.port = int(found[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        support.end(self.process)
        self.process.wait(support.DEADLINE_S)
        self.process.stdout.close()
        self.errors.close()

    def log(self):
        # The server writes where the file's position is, which it shares: it stays where it is.
        return os.pread(self.errors.fileno(), os.fstat(self.errors.fileno()).st_size, 0).decode()

    def client(self, **options):
        return Client(self.port, **options)

    def welcome(self, **options):
        """A client that has shaken hands. An impatient server ends the connection of one that a stalled machine holds up in
        the middle: again, then."""
        limit = time.monotonic() + support.DEADLINE_S
        while True:
            began = time.monotonic()
            client = Client(self.port)
            try:
                return client.shake_hands(**options)
            except ConnectionError:
                client.socket.close()
                if not began + 1 < time.monotonic() < limit:
                    raise
            except BaseException:
                client.socket.close()
                raise

    def metrics(self):
        return metrics_of(self.log())

    def metrics_url(self):
        return metrics_url(self.log())

    def value(self, name):
        return value_in(self.metrics(), name)


def fetch(url):
    with urllib.request.urlopen(url, timeout=support.DEADLINE_S) as answer:
        return answer.read().decode()


def metrics_url(log):
    """Where a server with --metrics answers, by its log."""
    return re.search(r"metrics on (http://\S+)", log)[1]


def metrics_of(log):
    return fetch(metrics_url(log) + "metrics")


def value_in(metrics, name):
    return float(re.search(rf"^farheapd_{re.escape(name)} (\S+)$", metrics, re.MULTILINE)[1])


def pattern(slot, count):
    return bytes((slot * 31 + i * 7 + i // 256) & 0xff for i in range(count))


@contextlib.contextmanager
def token_file(text, mode=0o600):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "token")
        path.write_text(text)
        path.chmod(mode)
        yield path


class Serving(unittest.TestCase):
    engine = []

    def test_bytes_come_back(self):
        with Server(*self.engine, "--threads", "2") as server, server.welcome() as client:
            self.assertEqual(client.allocate(0, 4), wire_client.OK)
            for slot in (0, 1, 511, 512, 1023, 2047):
                self.assertEqual(client.write(slot, pattern(slot, 4096)), wire_client.OK)
            reply = client.read((511, 0, 8192), (2047, 100, 50))
            self.assertEqual(reply.payload, pattern(511, 4096) + pattern(512, 4096) + pattern(2047, 4096)[100:150])
            big = pattern(9, 900_000)
            self.assertEqual(client.write(600, big), wire_client.OK)
            self.assertEqual(client.read((600, 0, len(big))).payload, big)
            called = client.call("checksum", wire_client.encode_ranges([(600, 0, len(big))]))
            self.assertEqual(int.from_bytes(called.payload, "little"), wire_client.xxh3(big))
            self.assertEqual(client.ask(wire_client.PING).status, wire_client.OK)

    def test_connections_of_a_session_share_its_slots(self):
        with Server(*self.engine, "--threads", "2") as server, server.welcome() as first:
            first.allocate(0, 1)
            first.write(3, b"shared")
            with server.welcome(session=first.session, channel=1) as second:
                self.assertEqual(second.read((3, 0, 6)).payload, b"shared")
            # The same channel again: the old connection ends.
            with server.welcome(session=first.session, channel=0) as third:
                self.assertTrue(first.is_ended())
                self.assertEqual(third.read((3, 0, 6)).payload, b"shared")

    def test_many_clients_at_once(self):
        with Server(*self.engine, "--threads", "2") as server, contextlib.ExitStack() as all_of_them:
            clients = [all_of_them.enter_context(server.welcome()) for _ in range(24)]
            for number, client in enumerate(clients):
                self.assertEqual(client.allocate(0, 1), wire_client.OK)
                client.write(0, pattern(number, 4096))
            for number, client in enumerate(clients):
                client.send(wire_client.READ, wire_client.encode_ranges([(0, 0, 4096)]))
            for number, client in enumerate(clients):
                self.assertEqual(client.receive().payload, pattern(number, 4096))


class ServingOnEpoll(Serving):
    engine = ["--epoll"]


class Limits(unittest.TestCase):
    def test_memory_is_never_exceeded(self):
        memory = 256 * MIB
        with Server("--grace", "200ms", memory="256M") as server:
            before = support.resident_bytes(server.process.pid)
            for round_number in range(4):
                with server.welcome() as one, server.welcome() as other:
                    self.assertEqual(one.allocate(0, 100), wire_client.OK)
                    self.assertEqual(other.allocate(0, 29), wire_client.NO_SPACE)
                    self.assertEqual(other.allocate(0, 28), wire_client.OK)
                    self.assertEqual(one.allocate(100, 1), wire_client.NO_SPACE)
                    self.assertEqual(one.capacity()["server_free_slots"], 0)
                    # The slots lent before have been zeroed.
                    self.assertEqual(one.read((51_199, 0, 4096)).payload, bytes(4096))
                    one.write(51_199, pattern(round_number, 4096))
                    used = support.resident_bytes(server.process.pid) - before
                    self.assertGreater(used, memory * 0.9, "blocks are filled when they are allocated")
                    self.assertLess(used, memory + 32 * MIB)
                    one.ask(wire_client.CLOSE)
                    other.ask(wire_client.CLOSE)
            support.wait_until(lambda: support.resident_bytes(server.process.pid) - before < 32 * MIB,
                               "freed blocks are back at the machine")

    def test_quotas(self):
        with token_file(f"small {TOKEN}\nlarge {TOKEN}2\n") as tokens, \
             Server("--token-file", tokens, "--quota", "small=8M") as server, \
             server.welcome(tenant="small", token=TOKEN) as small, \
             server.welcome(tenant="large", token=TOKEN + "2") as large:
            self.assertEqual(small.quota_slots, 4 * wire_client.BLOCK_SLOTS)
            self.assertEqual(small.allocate(0, 5), wire_client.NO_SPACE)
            self.assertEqual(small.allocate(0, 4), wire_client.OK)
            self.assertEqual(large.allocate(0, 20), wire_client.OK)
            self.assertEqual(small.free(0, 1), wire_client.OK)
            self.assertEqual(small.allocate(7, 1), wire_client.OK)

    def test_slots_outlive_their_connections_for_the_grace_period(self):
        # Where the machine stalls, the client may come back too late.
        self.assertTrue(any(self.slots_outlive_a_connection(lease_s) for lease_s in (8, 60, 300)))

    def slots_outlive_a_connection(self, lease_s):
        """False: the client has not come back within the lease."""
        lease = f"{lease_s}s"
        with Server("--grace", lease, "--lease", lease, "--metrics", "127.0.0.1:0") as server:
            with server.welcome() as client:
                client.allocate(0, 3)
                client.write(5, b"still here")
                session = client.session
                left = time.monotonic()
            try:
                with server.welcome(session=session) as again:
                    self.assertEqual(again.read((5, 0, 10)).payload, b"still here")
            except wire_client.Refused:
                if time.monotonic() < left + lease_s:
                    raise
                return False
            support.wait_until(lambda: server.value("used_bytes") == 0, "the session has expired",
                               deadline_s=lease_s + support.DEADLINE_S)
            with server.client() as late, self.assertRaisesRegex(wire_client.Refused, "unknown session"):
                late.shake_hands(session=session)
            self.assertEqual(server.value("sessions_expired_total"), 1)
            return True

    def test_slots_outlive_the_grace_period_until_somebody_needs_the_memory(self):
        with Server("--grace", "100ms", "--metrics", "127.0.0.1:0", memory="16M") as server:
            with server.welcome() as client:
                client.allocate(0, 5)
                client.write(5, b"still here")
                session = client.session
            support.wait_until(lambda: server.value("away_sessions") == 1, "the server has noticed")
            self.assertEqual(server.value("away_bytes"), 5 * wire_client.BLOCK_SLOTS * 4096)
            time.sleep(0.5)
            with server.welcome(session=session) as again:
                self.assertEqual(again.read((5, 0, 10)).payload, b"still here")
            support.wait_until(lambda: server.value("away_sessions") == 1, "the server has noticed again")
            time.sleep(0.5)
            with server.welcome() as other:
                self.assertEqual(other.allocate(0, 4), wire_client.OK)
                with server.client() as late, self.assertRaisesRegex(wire_client.Refused, "unknown session"):
                    late.shake_hands(session=session)
            self.assertEqual(server.value("sessions_ended_early_total"), 1)
            support.wait_until(lambda: "ended before their lease" in server.log(), "the log names it")


class Misbehaving(unittest.TestCase):
    """Each loses its connection; another client goes on as if nothing had happened."""

    def setUp(self):
        self.server = self.enterContext(Server("--threads", "1", "--patience", "5s"))
        self.honest = self.enterContext(self.server.welcome())
        self.honest.allocate(0, 1)
        self.honest.write(0, pattern(0, 4096))

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), self.server.log())
        self.assertEqual(self.honest.read((0, 0, 4096)).payload, pattern(0, 4096))

    def loses_its_connection(self, client, reason):
        self.assertTrue(client.is_ended())
        support.wait_until(lambda: reason in self.server.log(), f"the log says {reason}")

    def test_foreign_slot(self):
        with self.server.welcome() as client:
            self.assertEqual(client.read((0, 0, 4096)).status, wire_client.NOT_ALLOCATED)
            self.loses_its_connection(client, "foreign_slot")

    def test_noise(self):
        with self.server.client() as client:
            client.send_raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(100))
            self.loses_its_connection(client, "malformed")

    def test_bad_length(self):
        with self.server.welcome() as client:
            client.send(wire_client.READ, announced=(1 << 20) + 1)
            self.loses_its_connection(client, "malformed")

    def test_unknown_opcode(self):
        with self.server.welcome() as client:
            client.send(99)
            self.loses_its_connection(client, "malformed")

    def test_damaged_payload_is_told(self):
        with self.server.welcome() as client:
            client.allocate(0, 1)
            data = wire_client.encode_write([(0, 0, 4)], b"data")
            reply = client.ask(wire_client.WRITE, data, payload_checksum=1)
            self.assertEqual(reply.status, wire_client.BAD_CHECKSUM)
            self.assertEqual(client.read((0, 0, 4)).payload, bytes(4))

    def test_half_open_connections(self):
        with self.server.client() as client, self.server.client() as other:
            other.send_raw(wire_client.encode_message(wire_client.HELLO, b"x" * 60)[:50])
            self.honest.ask(wire_client.PING)
            self.loses_its_connection(client, "late_handshake")
            self.assertTrue(other.is_ended())
            self.honest.ask(wire_client.PING)

    def test_slow_reader(self):
        with self.server.client(receive_bytes=4096) as client:
            client.shake_hands()
            client.allocate(0, 1)
            request = wire_client.encode_message(wire_client.READ, wire_client.encode_ranges([(0, 0, 1 << 20)]))
            client.socket.settimeout(0.5)
            before = support.resident_bytes(self.server.process.pid)
            with contextlib.suppress(OSError):
                for count in range(100_000):
                    client.send_raw(request)
                    if count % 1000 == 0:
                        self.honest.ask(wire_client.PING)
            self.assertLess(support.resident_bytes(self.server.process.pid) - before, 16 * MIB)
            support.wait_until(lambda: "slow_reader" in self.server.log(), "the log says slow_reader")
            self.honest.ask(wire_client.PING)

    def test_many_strangers_do_not_keep_a_client_out(self):
        with contextlib.ExitStack() as strangers:
            for _ in range(400):
                strangers.enter_context(self.server.client())
            with self.server.welcome() as client:
                self.assertEqual(client.allocate(0, 1), wire_client.OK)


class Security(unittest.TestCase):
    def refuses(self, *arguments, words=()):
        outcome = support.run([FARHEAPD, *arguments], deadline_s=240)
        self.assertGreater(outcome.code, 0, outcome)
        self.assertEqual(outcome.out, "", outcome)
        lines = outcome.err.splitlines()
        self.assertEqual(len(lines), 1, outcome)
        self.assertRegex(lines[0], r"^farheapd: \S")
        self.assertNotIn(TOKEN, lines[0])
        for word in words:
            self.assertIn(word, lines[0])

    def test_beyond_loopback_only_with_a_token_or_tls(self):
        for where in ("0.0.0.0:0", "[::]:0"):
            self.refuses("--memory", "64M", "--listen", where, words=["--listen", "--token-file", "127.0.0.1"])
            self.refuses("--memory", "64M", "--listen", "127.0.0.1:0", "--metrics", where, words=["--metrics"])
        with token_file(TOKEN) as tokens:
            process = support.start([FARHEAPD, "--memory", "64M", "--listen", "0.0.0.0:0", "--token-file", tokens],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.wait, support.DEADLINE_S)
            self.addCleanup(support.end, process)
            self.assertRegex(process.stdout.readline(), r"^listening on 0\.0\.0\.0:\d+$")

    def test_a_token_has_to_be_known(self):
        with token_file(f"# tenants\nalice {TOKEN}\n{TOKEN}3\n") as tokens, \
             Server("--token-file", tokens) as server:
            with server.welcome(tenant="alice", token=TOKEN) as alice, server.welcome(token=TOKEN + "3") as other:
                self.assertEqual(alice.allocate(0, 1), wire_client.OK)
                with server.client() as thief, self.assertRaisesRegex(wire_client.Refused, "unknown session"):
                    thief.shake_hands(token=TOKEN + "3", session=alice.session)
                self.assertEqual(other.allocate(0, 1), wire_client.OK)
            for tenant, token in (("alice", TOKEN + "3"), ("alice", ""), ("nobody", TOKEN)):
                with server.client() as client, self.assertRaisesRegex(wire_client.Refused, "token"):
                    client.shake_hands(tenant=tenant, token=token)
            self.assertNotIn(TOKEN, server.log())

    def test_files_that_others_can_read(self):
        common = ["--memory", "64M", "--listen", "127.0.0.1:0"]
        with token_file(TOKEN, mode=0o644) as path:
            self.refuses(*common, "--token-file", path, words=["--token-file", "chmod 600"])
            self.refuses(*common, "--tls-cert", path, "--tls-key", path, words=["--tls-key", "chmod 600"])
        self.refuses(*common, "--token-file", "/nowhere/token", words=["/nowhere/token"])

    def test_tls(self):
        support.need(shutil.which("openssl"), "there is no openssl command on this machine to make a certificate")
        with tempfile.TemporaryDirectory() as directory:
            key, certificate = pathlib.Path(directory, "key.pem"), pathlib.Path(directory, "certificate.pem")
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                            "-subj", "/CN=farheapd", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                            "-keyout", key, "-out", certificate], check=True, capture_output=True)
            key.chmod(0o600)
            trust = ssl.create_default_context(cafile=certificate)
            with Server("--tls-cert", certificate, "--tls-key", key) as server, server.client() as client:
                client.socket = trust.wrap_socket(client.socket, server_hostname="127.0.0.1")
                self.assertEqual(client.socket.version(), "TLSv1.3")
                client.shake_hands()
                self.assertEqual(client.allocate(0, 2), wire_client.OK)
                data = pattern(3, 1_000_000)
                self.assertEqual(client.write(3, data), wire_client.OK)
                for _ in range(8):  # more at once than TLS buffers
                    client.send(wire_client.READ, wire_client.encode_ranges([(3, 0, len(data))]))
                for _ in range(8):
                    self.assertEqual(client.receive().payload, data)
                with server.client() as plain:
                    plain.send_raw(wire_client.encode_message(wire_client.HELLO, bytes(60)))
                    self.assertTrue(plain.is_ended())
                support.wait_until(lambda: "insecure" in server.log(), "the log says insecure")
                with server.client() as old, self.assertRaises((ssl.SSLError, ConnectionError)):
                    trust.maximum_version = ssl.TLSVersion.TLSv1_2
                    trust.wrap_socket(old.socket, server_hostname="127.0.0.1")
                self.assertEqual(client.ask(wire_client.PING).status, wire_client.OK)
                client.socket.close()

    def test_bad_input(self):
        self.refuses(words=["--memory"])
        self.refuses("--memory", "banana", words=["banana"])
        self.refuses("--memory", "1M", words=["2.00 MiB"])
        self.refuses("--memory", "1000T", words=["--memory"])
        self.refuses("--memory", "64M", "--listen", "everywhere", words=["everywhere", "127.0.0.1:7070"])
        self.refuses("--memory", "64M", "--listen", "192.0.2.1:0", "--quota", "x", words=["x"])
        self.refuses("--memory", "64M", "--quota", "a b=1G", words=["--quota"])
        self.refuses("--memory", "64M", "--grace", "soon", words=["--grace", "soon"])
        self.refuses("--memory", "64M", "--tls-cert", "x", words=["--tls-key"])
        self.refuses("--memory", "64M", "--threads", "0", words=["--threads"])
        self.refuses("--memory", "64M", "--no-such-option", words=["--no-such-option", "--help"])
        self.refuses("--config", "/nowhere/farheapd.conf", words=["/nowhere/farheapd.conf"])
        with token_file(f"alice {TOKEN}") as tokens:
            self.refuses("--memory", "64M", "--token-file", tokens, "--quota", "bob=1G", words=["bob"])
        with Server() as server:
            self.refuses("--memory", "64M", "--listen", f"127.0.0.1:{server.port}", words=["another program"])

    def test_configuration_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.write('grace="3s"\nquota=["alice=8M", "bob=4M"]\nthreads=1\n')
            file.flush()
            with Server("--config", file.name) as server, server.welcome(tenant="bob") as bob:
                self.assertEqual(bob.quota_slots, 2 * wire_client.BLOCK_SLOTS)


class Metrics(unittest.TestCase):
    def test_metrics_and_page(self):
        with Server("--metrics", "127.0.0.1:0", "--quota", "alice=16M") as server, \
             server.welcome(tenant="alice") as client:
            client.allocate(0, 3)
            client.write(0, pattern(0, 4096))
            client.read((0, 0, 4096))
            # A batch is measured when its replies have been sent, which is after they have arrived.
            support.wait_until(lambda: server.value("request_duration_seconds_count") == 3, "all requests are measured")
            self.assertEqual(server.value("memory_bytes"), 64 * MIB)
            self.assertEqual(server.value("used_bytes"), 3 * BLOCK_BYTES)
            self.assertEqual(server.value('tenant_used_bytes{tenant="alice"}'), 3 * BLOCK_BYTES)
            self.assertEqual(server.value("connections"), 1)
            self.assertEqual(server.value('requests_total{operation="write"}'), 1)
            self.assertEqual(server.value("read_bytes_total"), 4096)
            page = fetch(server.metrics_url())
            for word in ("alice", "http-equiv=refresh", "16.0 MiB", "Latency"):
                self.assertIn(word, page)
            with self.assertRaises(urllib.error.HTTPError):
                fetch(server.metrics_url() + "etc/passwd")


class Reloading(unittest.TestCase):
    """SIGHUP changes some settings and not others, and with a mistake none."""

    def reload(self, server, word="reloaded"):
        before = server.log().count(word)
        server.process.send_signal(signal.SIGHUP)
        try:
            support.wait_until(lambda: server.log().count(word) > before, f"the server said: {word}",
                               process=server.process)
        except TimeoutError as late:
            raise TimeoutError(f"{late}; it said: {server.log()}") from None

    def expect(self, server, tenant, token, is_known):
        with server.client() as client:
            if is_known:
                client.shake_hands(tenant=tenant, token=token)
            else:
                with self.assertRaisesRegex(wire_client.Refused, "token"):
                    client.shake_hands(tenant=tenant, token=token)

    def test_without_anything_to_reload_it_goes_on(self):
        with Server() as server, server.welcome() as client:
            self.reload(server)
            self.assertEqual(client.allocate(0, 1), wire_client.OK)

    def test_tokens(self):
        with token_file(f"alice {TOKEN}\n") as tokens, Server("--token-file", tokens) as server:
            with server.welcome(tenant="alice", token=TOKEN) as client:
                client.allocate(0, 1)
                tokens.write_text(f"alice {TOKEN}\nalice {TOKEN}2\nbob {TOKEN}3\n")
                self.expect(server, "alice", TOKEN + "2", False)
                self.reload(server)
                for tenant, token in (("alice", TOKEN), ("alice", TOKEN + "2"), ("bob", TOKEN + "3")):
                    self.expect(server, tenant, token, True)
                tokens.write_text(f"alice {TOKEN}2\n")
                self.reload(server)
                self.expect(server, "alice", TOKEN, False)
                self.expect(server, "bob", TOKEN + "3", False)
                self.expect(server, "alice", TOKEN + "2", True)
                self.assertEqual(client.write(0, b"still here"), wire_client.OK)
            self.assertNotIn(TOKEN, server.log())

    def test_a_mistake_changes_nothing(self):
        with token_file(f"alice {TOKEN}\n") as tokens, Server("--token-file", tokens) as server:
            for text, mode in ((f"alice {TOKEN}2\nbob short\n", 0o600), (f"alice {TOKEN}2\n", 0o644), ("", 0o600)):
                tokens.write_text(text)
                tokens.chmod(mode)
                self.reload(server, "nothing is reloaded")
                self.expect(server, "alice", TOKEN, True)
                self.expect(server, "alice", TOKEN + "2", False)
            self.assertIn("chmod 600", server.log())

    def test_a_key_of_another_certificate_is_told_each_time(self):
        support.need(shutil.which("openssl"), "there is no openssl command on this machine to make a certificate")
        with tempfile.TemporaryDirectory() as directory:
            key, certificate = pathlib.Path(directory, "key.pem"), pathlib.Path(directory, "certificate.pem")

            def renew():
                subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                                "-nodes", "-subj", "/CN=farheapd", "-days", "2", "-keyout", key, "-out", certificate],
                               check=True, capture_output=True)
            renew()
            key.chmod(0o600)
            with Server("--tls-cert", certificate, "--tls-key", key) as server:
                before = key.read_text()
                renew()
                fresh = key.read_text()
                key.write_text(before)
                for _ in range(2):
                    self.reload(server, "nothing is reloaded")
                key.write_text(fresh)
                self.reload(server, "new connections get the new certificate")

    def test_quotas_levels_and_what_needs_a_new_start(self):
        with tempfile.TemporaryDirectory() as directory:
            config = pathlib.Path(directory, "farheapd.conf")
            config.write_text('quota=["alice=4M"]\nlease="100s"\n')
            with Server("--config", config) as server, server.welcome(tenant="alice") as client:
                self.assertEqual(client.allocate(0, 3), wire_client.NO_SPACE)
                config.write_text('quota=["alice=8M"]\nlease="200s"\nlog-level="debug"\n')
                self.reload(server)
                self.assertEqual(client.allocate(0, 3), wire_client.OK)
                self.assertIn("not changed before the next start: --lease", server.log())
                client.socket.close()
                support.wait_until(lambda: "tenant 'alice' at 127.0.0.1" in server.log(), "debug lines were written")

    def test_while_it_drains_it_goes_on_draining(self):
        with Server("--drain", "600s") as server, server.welcome() as client:
            client.allocate(0, 1)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(client.receive().op, wire_client.DRAINING)
            server.process.send_signal(signal.SIGHUP)
            self.assertEqual(client.ask(wire_client.PING).status, wire_client.OK)
            client.ask(wire_client.CLOSE)
            self.assertEqual(server.process.wait(support.DEADLINE_S), 0)


if __name__ == "__main__":
    support.main()
