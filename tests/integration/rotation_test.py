"""Tokens and certificates that are replaced while a program uses the server: on the server by SIGHUP, in the program
when it connects again."""

import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import support

FARHEAPD = support.BUILD / "bin" / "farheapd"
LOCAL_BYTES = 24 * support.MIB
OLD, NEW = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"

# Fills 64 MiB, checks and changes all of it again and again, and ends when its standard input does.
PROGRAM = """
import select, sys
SIZE, COUNT = 1 << 20, 64
def content(block, round_number):
    return bytes([(block * 7 + round_number * 13 + i) & 0xff for i in range(256)]) * (SIZE // 256)
blocks = [bytearray(content(block, 0)) for block in range(COUNT)]
round_number = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for block in range(COUNT):
        assert blocks[block] == content(block, round_number), (block, round_number)
        blocks[block][:] = content(block, round_number + 1)
    round_number += 1
    print(round_number, flush=True)
print("sound", flush=True)
"""


class Relay:
    """Between a program and a server, so that their connections can be broken off."""

    def __init__(self, port):
        self.server_port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.lock = threading.Lock()
        self.open = []
        self.ends = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.server_port))
            with self.lock:
                self.open += [near, far]
            threading.Thread(target=self.carry, args=(near, far), daemon=True).start()

    @staticmethod
    def carry(near, far):
        other = {near: far, far: near}
        try:
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    data = ready.recv(1 << 18)
                    if not data:
                        raise ConnectionError
                    other[ready].sendall(data)
        except (OSError, ValueError):
            for end in (near, far):
                end.close()

    def break_off(self):
        with self.lock:
            for end in self.open:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.open = []

    def close(self):
        self.listener.close()
        self.break_off()


def replace(path, text):
    """As those do who replace files: another one under the same name."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o600)
    fresh.rename(path)


class Rotation(unittest.TestCase):
    def setUp(self):
        support.need(shutil.which("openssl"), "there is no openssl command on this machine to make a certificate")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make_certificate(self, name):
        """The texts of a certificate and its key; clients that trust it trust only it."""
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key,
                        "-out", certificate], check=True, capture_output=True)
        return certificate.read_text(), key.read_text()

    def text(self, name):
        return (self.folder / name).read_text(encoding="utf-8")

    def start(self, name, command, **options):
        files = [open(self.folder / f"{name}.{kind}", "w", encoding="utf-8") for kind in ("out", "err")]
        for file in files:
            self.addCleanup(file.close)
        process = support.start(command, stdout=files[0], stderr=files[1], **options)
        self.addCleanup(process.wait)
        self.addCleanup(support.end, process)
        return process

    def reload(self, server):
        before = self.text("server.err").count("reloaded")
        os.kill(server.pid, signal.SIGHUP)
        support.wait_until(lambda: self.text("server.err").count("reloaded") > before, "the server reloaded its files",
                           process=server)

    def connect_again(self, relay, program):
        def counts():
            err = self.text("program.err")
            return err.count("the connection is lost"), err.count("answers again")
        before = counts()
        relay.break_off()
        support.wait_until(lambda: counts()[1] > before[1], "the program connected again", process=program)
        # And it goes on with its work: pages move in every round.
        rounds = self.text("program.out").count("\n")
        support.wait_until(lambda: self.text("program.out").count("\n") >= rounds + 2, "the program went on",
                           deadline_s=support.DEADLINE_S, process=program)

    def test_under_load_without_an_error(self):
        old, new = self.make_certificate("old"), self.make_certificate("new")
        certificate, key, trusted = (self.folder / name for name in ("server.pem", "server.key", "trusted.pem"))
        server_tokens, program_token = self.folder / "tokens", self.folder / "token"
        replace(certificate, old[0])
        replace(key, old[1])
        replace(trusted, old[0])
        replace(server_tokens, OLD + "\n")
        replace(program_token, OLD + "\n")
        server = self.start("server", [FARHEAPD, "--listen", "127.0.0.1:0", "--memory", "512M", "--token-file",
                                       server_tokens, "--tls-cert", certificate, "--tls-key", key])
        listening = support.wait_until(lambda: re.search(r"127\.0\.0\.1:(\d+)\n", self.text("server.out")),
                                       "the server listened", process=server)
        relay = Relay(int(listening[1]))
        self.addCleanup(relay.close)
        stats = self.folder / "stats.json"
        far = f"tcp://127.0.0.1:{relay.port}?tls=1&ca={trusted}&token-file={program_token}&connections=1"
        program = self.start("program", support.farheap_command(["/usr/bin/python3", "-c", PROGRAM], LOCAL_BYTES, far,
                                                                stats=stats), stdin=subprocess.PIPE)
        support.wait_until(lambda: self.text("program.out"), "a round was over", deadline_s=support.DEADLINE_S,
                           process=program)

        # First the server accepts both tokens, and the program both certificates.
        replace(server_tokens, f"{OLD}\n{NEW}\n")
        self.reload(server)
        replace(trusted, old[0] + new[0])
        # Then each begins to use the new ones,
        replace(certificate, new[0])
        replace(key, new[1])
        self.reload(server)
        replace(program_token, NEW + "\n")
        self.connect_again(relay, program)
        # and the old ones are taken away.
        replace(server_tokens, NEW + "\n")
        self.reload(server)
        replace(trusted, new[0])
        self.connect_again(relay, program)

        program.stdin.close()
        self.assertEqual(program.wait(support.DEADLINE_S), 0, self.text("program.err"))
        self.assertEqual(self.text("program.out").splitlines()[-1], "sound")
        self.assertNotIn("error:", self.text("program.err"))
        counted = stats.read_text()
        self.assertIn('"lost_pages": 0,', counted)
        self.assertIn('"backend_errors": 0,', counted)
        self.assertGreater(int(re.search(r'"fetched_pages": (\d+)', counted)[1]), 0)
        self.assertIsNone(server.poll(), self.text("server.err"))


if __name__ == "__main__":
    support.main()
