#!/usr/bin/env python3
"""A Redis server under load, for `farheap-bench run`.

    redis.py [--quick] [--] LAUNCHER...     LAUNCHER: what runs the server, such as `farheap run --local 64M --`

Starts redis-server on a free port of loopback, fills it, and asks for random keys by redis-benchmark, 16 at a time on a
connection. Prints one JSON object: `seconds` and `operations_per_s` of the requests, `p50_ns` and `p99_ns` of their
latency, `peak_bytes` and `cpu_ns` of the server, and `checksum`, that of its data.
"""

import argparse
import csv
import io
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

VALUE_BYTES = 512
READY_S = 60
END_S = 60


def fail(message):
    sys.exit(f"redis.py: {message}")


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


def load(port, keys, requests):
    """One row of redis-benchmark's table, by its headings."""
    command = ["redis-benchmark", "-p", port, "-c", 8, "-P", 16, "-n", requests, "-r", keys, "--csv",
               "GET", "key:__rand_int__"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    if done.returncode != 0 or len(rows) != 1:
        fail(f"redis-benchmark failed: {done.stderr or done.stdout}")
    return {name: float(value) for name, value in rows[0].items() if name != "test"}


def run(chosen, directory):
    port = free_port()
    keys = 60_000 if chosen.quick else 500_000
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", directory,
               "--enable-debug-command", "local"]
    server = subprocess.Popen([*chosen.launcher, shutil.which("redis-server"), *options], stdout=subprocess.DEVNULL)
    try:
        client = Client(port, time.monotonic() + READY_S)
        # redis-benchmark's random numbers have twelve digits.
        for first in range(0, keys, 500):
            script = ("for i = ARGV[1], ARGV[2] do redis.call('SET', string.format('key:%012d', i), "
                      "string.rep(string.format('%08x', i), ARGV[3] / 8)) end return redis.status_reply('OK')")
            client.call("EVAL", script, 0, first, min(first + 500, keys) - 1, VALUE_BYTES)
        start = time.monotonic()
        measured = load(port, keys, 100_000 if chosen.quick else 2_000_000)
        seconds = time.monotonic() - start
        checksum = client.call("DEBUG", "DIGEST")
        peak = peak_bytes(server.pid)
    finally:
        server.terminate()
        deadline = time.monotonic() + END_S
        while (ended := os.wait4(server.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > deadline:
                server.kill()
            time.sleep(0.02)
        server.returncode = os.waitstatus_to_exitcode(ended[1])
    usage = ended[2]
    return {"seconds": seconds, "operations_per_s": measured["rps"], "p50_ns": measured["p50_latency_ms"] * 1e6,
            "p99_ns": measured["p99_latency_ms"] * 1e6, "peak_bytes": peak,
            "cpu_ns": (usage.ru_utime + usage.ru_stime) * 1e9, "checksum": checksum}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer keys and requests")
    parser.add_argument("launcher", nargs="*")
    chosen = parser.parse_args()
    for needed in ("redis-server", "redis-benchmark"):
        if shutil.which(needed) is None:
            fail(f"there is no {needed}; install it with: apt-get install redis-server")
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(run(chosen, directory)))


if __name__ == "__main__":
    main()
