#!/usr/bin/env python3
"""A server under load, for `farheap-bench run`.

    server.py redis|memcached [--quick] [-- LAUNCHER...]

LAUNCHER is what runs the server, such as `farheap run --local 64M --`. Starts the server on a free port of loopback and
fills it. Redis is asked for random keys by redis-benchmark; memcached for keys by Zipf's distribution, one in ten of which
is set, by cached-load, which verifies every value. Both have 16 requests under way on a connection. Prints one JSON object:
`seconds` and `operations_per_s` of the requests, `p50_ns` and `p99_ns` of the latency of one (memcached: of 16), `peak_bytes`
and `cpu_ns` of the server, and `checksum`, that of Redis's data, or of how many gets and hits there were.
"""

import argparse
import csv
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

VALUE_BYTES = 512
READY_S = 60
END_S = 60


def fail(message):
    sys.exit(f"server.py: {message}")


class Client:
    """A connection that sends one command and reads one simple reply."""

    def __init__(self, port, deadline):
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    fail(f"the server did not listen within {READY_S} s: {error}")
                time.sleep(0.05)
        self.stream = self.socket.makefile("rb")

    def call(self, *words):
        request = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in (str(word).encode() for word in words))
        self.socket.sendall(b"*%d\r\n" % len(words) + request)
        reply = self.stream.readline()
        if not reply or reply.startswith(b"-"):
            fail(f"{words[0]}: the server said {reply!r}")
        return reply[1:].strip().decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peak_bytes(process_id):
    for line in pathlib.Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return fail("the kernel does not tell the server's peak memory")


def output_of(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        fail(f"{command[0]} failed: {done.stderr or done.stdout}")
    return done.stdout


class Redis:
    programs = {"redis-server": "redis-server", "redis-benchmark": "redis-server"}

    def __init__(self, quick, directory):
        self.port = free_port()
        self.keys, self.requests = (60_000, 100_000) if quick else (500_000, 2_000_000)
        self.command = ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--dir", directory,
                        "--enable-debug-command", "local"]

    def load(self, client):
        # redis-benchmark's random numbers have twelve digits.
        for first in range(0, self.keys, 500):
            script = ("for i = ARGV[1], ARGV[2] do redis.call('SET', string.format('key:%012d', i), "
                      "string.rep(string.format('%08x', i), ARGV[3] / 8)) end return redis.status_reply('OK')")
            client.call("EVAL", script, 0, first, min(first + 500, self.keys) - 1, VALUE_BYTES)
        start = time.monotonic()
        table = output_of(["redis-benchmark", "-p", self.port, "-c", 8, "-P", 16, "-n", self.requests, "-r", self.keys,
                           "--csv", "GET", "key:__rand_int__"])
        seconds = time.monotonic() - start
        rows = list(csv.DictReader(io.StringIO(table)))
        if len(rows) != 1:
            fail(f"redis-benchmark printed no row: {table}")
        return {"seconds": seconds, "operations_per_s": float(rows[0]["rps"]),
                "p50_ns": float(rows[0]["p50_latency_ms"]) * 1e6, "p99_ns": float(rows[0]["p99_latency_ms"]) * 1e6,
                "checksum": client.call("DEBUG", "DIGEST")}


class Memcached:
    programs = {"memcached": "memcached"}

    def __init__(self, quick, _):
        self.port = free_port()
        self.keys, self.requests = (80_000, 200_000) if quick else (600_000, 800_000)
        # It stays root, so that it may leave its statistics. Nothing is evicted by memcached itself, so each get hits.
        user = ["-u", "root"] if os.geteuid() == 0 else []
        self.command = ["memcached", "-l", "127.0.0.1", "-p", self.port, "-U", 0, "-t", 2, "-m", 2048, *user]

    def load(self, _):
        tool = pathlib.Path(__file__).resolve().parents[3] / "build/bin/apps/cached-load"
        if not tool.exists():
            fail(f"there is no {tool}; build it with: make examples")
        measured = json.loads(output_of([tool, "--json", "--port", self.port, "--keys", self.keys, "--zipf", 0.99,
                                         "--gets", 0.9, "--connections", 2, "--value-bytes", VALUE_BYTES, "--operations",
                                         self.requests]))
        if measured["hits"] != measured["gets"]:
            fail(f"memcached has lost some of its values: {measured}")
        return {"seconds": measured["seconds"], "operations_per_s": measured["throughput"],
                "p50_ns": measured["batch_us"]["p50"] * 1e3, "p99_ns": measured["batch_us"]["p99"] * 1e3,
                "checksum": f"{measured['gets']} {measured['hits']}"}


SERVERS = {"redis": Redis, "memcached": Memcached}


def run(kind, launcher):
    command = [*launcher, shutil.which(kind.command[0]), *(str(word) for word in kind.command[1:])]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        figures = kind.load(Client(kind.port, time.monotonic() + READY_S))
        figures["peak_bytes"] = peak_bytes(server.pid)
    finally:
        # Not by `server`, which would take its status, and what it used, when it has ended by itself.
        os.kill(server.pid, signal.SIGTERM)
        deadline = time.monotonic() + END_S
        while (ended := os.wait4(server.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                os.kill(server.pid, signal.SIGKILL)
            time.sleep(0.02)
        server.returncode = os.waitstatus_to_exitcode(ended[1])
    usage = ended[2]
    return {**figures, "cpu_ns": (usage.ru_utime + usage.ru_stime) * 1e9}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=SERVERS)
    parser.add_argument("--quick", action="store_true", help="fewer keys and requests")
    own, launcher = sys.argv[1:], []
    if "--" in own:
        own, launcher = own[:own.index("--")], own[own.index("--") + 1:]
    chosen = parser.parse_args(own)
    kind = SERVERS[chosen.server]
    for needed, package in kind.programs.items():
        if shutil.which(needed) is None:
            fail(f"there is no {needed}; install it with: apt-get install {package}")
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(run(kind(chosen.quick, directory), launcher)))


if __name__ == "__main__":
    main()
