"""A small client of the wire format (docs/wire.md), for tests of farheapd: says what it is told to, right or wrong."""

import ctypes
import ctypes.util
import dataclasses
import hashlib
import hmac
import os
import socket
import struct
import unittest

import support

HELLO, CHALLENGE, PROOF, WELCOME, REFUSE = range(1, 6)
READ, WRITE, ALLOCATE, FREE, CAPACITY, CALL, PING, CLOSE = range(16, 24)
DRAINING = 32
OK, NO_SPACE, NOT_ALLOCATED, STOPPING, UNKNOWN_CALL, CALL_FAILED, BAD_CHECKSUM = range(7)

BLOCK_SLOTS = 512
SLOT_BYTES = 4096
HEADER_BYTES = 40
NEW_SESSION = bytes(16)


def load_xxhash():
    try:
        library = ctypes.CDLL("libxxhash.so.0")
    except OSError as error:
        raise unittest.SkipTest("there is no libxxhash.so.0 on this machine (libxxhash-dev brings it)") from error
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


_xxhash = None


def xxh3(data):
    global _xxhash
    if _xxhash is None:
        _xxhash = load_xxhash()
    return _xxhash.XXH3_64bits(bytes(data), len(data))


def checksum(payload):
    return xxh3(payload) if payload else 0


def encode_message(op, payload=b"", cookie=0, announced=None, payload_checksum=None):
    """`announced`: another length than the payload's; `payload_checksum`: another checksum."""
    fields = b"FARH" + struct.pack("<BBBBIQQQ", op, 0, 0, 0, len(payload) if announced is None else announced, cookie,
                                   checksum(payload) if payload_checksum is None else payload_checksum, 0)
    return struct.pack("<I", xxh3(fields) & 0xffffffff) + fields + payload


@dataclasses.dataclass
class Message:
    op: int
    is_reply: bool
    status: int
    cookie: int
    payload: bytes


class Refused(Exception):
    """The server has refused the handshake; the text is its reason."""


class Client:
    """One connection. Every wait ends at a deadline; a connection that the server has ended raises ConnectionError."""

    def __init__(self, port, host="127.0.0.1", deadline_s=support.DEADLINE_S, receive_bytes=None, source=None):
        xxh3(b"")  # loads the library before the server's patience begins
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(deadline_s)
        if source:
            self.socket.bind((source, 0))
        self.socket.connect((host, port))
        self.cookie = 0
        self.session = None
        self.quota_slots = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def shake_hands(self, tenant="default", token="", session=NEW_SESSION, channel=0, newest=1):
        """`newest`: the version of the release that this client plays."""
        name = tenant.encode()
        hello = struct.pack("<HHI", 1, newest, channel) + session + os.urandom(32) + bytes([len(name)]) + name
        self.send(HELLO, hello)
        challenge = self.expect(CHALLENGE)
        self.version = struct.unpack_from("<H", challenge)[0]
        self.identity = challenge[40:56]
        transcript = b"".join(struct.pack("<I", len(part)) + part for part in (hello, challenge))
        transcript += struct.pack("<I", 0) if self.version >= 4 else b""  # not encrypted

        def prove(side):
            return hmac.new(token.encode(), f"farheap 1 {side}".encode() + transcript, hashlib.sha256).digest()

        self.send(PROOF, prove("client") if challenge[2] else bytes(32))
        welcome = self.expect(WELCOME)
        if challenge[2] and not hmac.compare_digest(welcome[:32], prove("server")):
            raise ConnectionError("the server does not know the token")
        self.session = welcome[32:48]
        self.quota_slots = struct.unpack_from("<Q", welcome, 48)[0]
        self.lease_ms = struct.unpack_from("<Q", welcome, 64)[0] if len(welcome) > 64 else None
        return self

    def send(self, op, payload=b"", **wrong):
        self.cookie += 1
        self.send_raw(encode_message(op, payload, self.cookie, **wrong))

    def send_raw(self, data):
        self.socket.sendall(data)

    def receive_exactly(self, count):
        data = bytearray()
        while len(data) < count:
            part = self.socket.recv(min(count - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("the server has closed the connection")
            data += part
        return bytes(data)

    def receive(self):
        head = self.receive_exactly(HEADER_BYTES)
        check, magic, op, flags, status, _, length, cookie, expected, _ = struct.unpack("<I4sBBBBIQQQ", head)
        if magic != b"FARH" or check != xxh3(head[4:]) & 0xffffffff:
            raise AssertionError("a damaged header of the server")
        payload = self.receive_exactly(length)
        if checksum(payload) != expected:
            raise AssertionError("a damaged payload of the server")
        return Message(op, bool(flags & 1), status, cookie, payload)

    def expect(self, op):
        message = self.receive()
        if message.op == REFUSE:
            raise Refused(message.payload.decode())
        if message.op != op:
            raise AssertionError(f"expected message {op}, got {message}")
        return message.payload

    def ask(self, op, payload=b"", **wrong):
        """A request, and its reply."""
        self.send(op, payload, **wrong)
        reply = self.receive()
        if (reply.op, reply.is_reply, reply.cookie) != (op, True, self.cookie):
            raise AssertionError(f"this is no reply to request {op}: {reply}")
        return reply

    def allocate(self, first, count):
        return self.ask(ALLOCATE, struct.pack("<QQ", first, count)).status

    def free(self, first, count):
        return self.ask(FREE, struct.pack("<QQ", first, count)).status

    def read(self, *ranges):
        return self.ask(READ, encode_ranges(ranges))

    def write(self, slot, data, offset=0):
        return self.ask(WRITE, encode_write([(slot, offset, len(data))], data)).status

    def capacity(self):
        names = ("quota_slots", "tenant_slots", "server_free_slots", "session_slots")
        return dict(zip(names, struct.unpack("<4Q", self.ask(CAPACITY).payload)))

    def call(self, name, arguments=b""):
        return self.ask(CALL, name.encode().ljust(32, b"\0") + arguments)

    def is_ended(self):
        """Whether the server ends the connection, within the deadline. Its last messages are dropped."""
        try:
            while self.socket.recv(1 << 20):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True


def encode_ranges(ranges):
    return b"".join(struct.pack("<QII", *part) for part in ranges)


def encode_write(ranges, data):
    return struct.pack("<II", len(ranges), 0) + encode_ranges(ranges) + data
