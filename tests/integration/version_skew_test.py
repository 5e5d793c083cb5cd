"""Programs of this release on servers of older ones: each connection speaks what the server knows, and nothing newer."""

import contextlib
import socket
import struct
import threading
import unittest

import support
import wire_client
from farheapd_test import Server
from support import MIB

LEAVING = 33
# The first version with an opcode that clients send; all others are in version 1.
FIRST_VERSION = {LEAVING: 3}


class OlderServer:
    """Makes a server one of an older release: what passes has no newer version in it. Use it in a `with` statement.

    It offers the server, in the client's name, no more than `newest`. Without a token nobody proves what was offered. An
    old server ends the connection at an opcode that it does not know; here that fails the test."""

    def __init__(self, port, newest):
        self.port_behind = port
        self.newest = newest
        self.spoken = []    # versions that were agreed on
        self.asked = set()  # opcodes of clients
        self.mistakes = []
        self.ended = []     # a mark for each thread that has passed on all there was
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets = [self.listener]
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.port_behind))
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.sockets.append(one)
                threading.Thread(target=self.pass_on, args=(client, server, self.requests), daemon=True).start()
                threading.Thread(target=self.pass_on, args=(server, client, self.answers), daemon=True).start()

    def pass_on(self, source, target, messages):
        with contextlib.suppress(OSError, EOFError):
            messages(source.makefile("rb"), target)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.ended.append(True)

    @staticmethod
    def message(stream):
        head = stream.read(wire_client.HEADER_BYTES)
        if len(head) < wire_client.HEADER_BYTES:
            raise EOFError
        op, length, cookie = head[8], *struct.unpack_from("<IQ", head, 12)
        return op, cookie, head, stream.read(length)

    def requests(self, stream, server):
        op, cookie, head, payload = self.message(stream)
        oldest, newest = struct.unpack_from("<HH", payload)
        payload = struct.pack("<HH", oldest, min(newest, self.newest)) + payload[4:]
        server.sendall(wire_client.encode_message(op, payload, cookie))
        while True:
            op, _, head, payload = self.message(stream)
            self.asked.add(op)
            if FIRST_VERSION.get(op, 1) > self.newest:
                self.mistakes.append(f"opcode {op} to a server of version {self.newest}")
            server.sendall(head + payload)

    def answers(self, stream, client):
        op, _, head, payload = self.message(stream)
        if op == wire_client.CHALLENGE:
            self.spoken.append(struct.unpack_from("<H", payload)[0])
        client.sendall(head + payload)
        while True:
            _, _, head, payload = self.message(stream)
            client.sendall(head + payload)


class VersionSkew(unittest.TestCase):
    program = [support.PROGRAMS / "verifier", "--seed", "5", "--threads", "2", "--operations", "60", "--live-mib", "48",
               "--largest-mib", "8"]

    def check(self, far, servers):
        native = support.run(self.program)
        outcome = support.run_far(self.program, 16 * MIB, far=far)
        self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)
        self.assertGreater(outcome.stats["fetched_pages"], 0, outcome.stats)
        self.assertEqual(outcome.stats["backend_errors"], 0, outcome.stats)
        for server in servers:
            support.wait_until(lambda server=server: len(server.ended) == 2 * len(server.spoken), "the last message")
            self.assertEqual(server.mistakes, [])
            self.assertEqual(set(server.spoken), {server.newest})
            self.assertIn(wire_client.READ, server.asked)
            # What the server knows is used, too.
            if server.newest >= FIRST_VERSION[LEAVING]:
                support.wait_until(lambda server=server: LEAVING in server.asked, "the notice of the program's end")

    def test_programs_on_servers_of_each_older_version(self):
        for newest in (1, 2, 3, 4):
            with self.subTest(newest=newest), Server(memory="256M") as server, OlderServer(server.port, newest) as older:
                self.check(f"tcp://127.0.0.1:{older.port}", [older])

    def test_copies_on_servers_of_different_releases(self):
        with Server(memory="256M") as one, Server(memory="256M") as other, OlderServer(one.port, 1) as first, \
                OlderServer(other.port, 3) as third:
            self.check(f"tcp://127.0.0.1:{first.port},127.0.0.1:{third.port}?copies=2", [third])
            self.assertEqual((set(first.spoken), first.mistakes), ({1}, []))


if __name__ == "__main__":
    support.main()
