"""Unmodified programs as Debian packages them give the same results under farheap, in a part of their native memory, as
natively. A program that is not installed is skipped by name."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import support

# Both in the soak, and every other day the one or the other.
MODES = ("thread", "inline") if support.SOAK else (("thread", "inline")[support.DAY % 2],)
SHARES = (0.5, 0.25) if support.SOAK else (0.25,)
FAR = "file:/var/tmp" if support.SOAK else "memory:"

NODE = """
const map = new Map();
let state = 12345;
const next = () => state = (state * 1103515245 + 12345) % 2147483648;
for (let i = 0; i < 400000; i++) map.set('key' + next() % 1000003, { n: i, text: 'value ' + i, list: [i, i + 1] });
const sorted = [...map.entries()].sort((a, b) => a[0] < b[0] ? -1 : 1);
const words = new Float64Array(1 << 22).map((_, i) => i * 3);
let sum = 0;
for (const [key, value] of sorted) sum = (sum * 31 + key.length + value.list[1] + value.text.length) % 1000000007;
for (let i = 0; i < words.length; i += 7) sum = (sum + words[i]) % 1000000007;
console.log(map.size, sum, JSON.stringify(sorted.slice(0, 3)));
"""

JAVA = """
import java.util.*;
public class Churn {
  public static void main(String[] arguments) {
    HashMap<Integer, byte[]> kept = new HashMap<>();
    Random random = new Random(7);
    long sum = 0;
    for (int i = 0; i < 500000; i++) {
      int key = random.nextInt(60000);
      byte[] old = kept.get(key);
      if (old != null) for (byte b : old) sum = sum * 31 + b;
      byte[] fresh = new byte[512 + key % 512];
      Arrays.fill(fresh, (byte) (key * 7 + i));
      if (i % 3 == 0) kept.put(key, fresh);
    }
    for (int key : new TreeSet<>(kept.keySet())) for (byte b : kept.get(key)) sum = sum * 31 + b;
    System.out.println(kept.size() + " " + sum);
  }
}
"""

GO = """
package main

// #include <stdlib.h>
// #include <string.h>
// static unsigned long sum(unsigned char* at, size_t bytes) {
//   unsigned long total = 0;
//   for (size_t i = 0; i < bytes; i += 64) total = total * 31 + at[i];
//   return total;
// }
import "C"
import ("fmt"; "unsafe")

func main() {
	var total uint64
	var blocks []unsafe.Pointer
	kept := make([][]byte, 0)
	for i := 0; i < 96; i++ {
		block := C.malloc(1 << 20)
		C.memset(block, C.int(i+1), 1<<20)
		blocks = append(blocks, block)
		kept = append(kept, make([]byte, 1<<18))
		kept[i][i] = byte(i)
	}
	for round := 0; round < 3; round++ {
		for i, block := range blocks {
			total = total*31 + uint64(C.sum((*C.uchar)(block), 1<<20)) + uint64(kept[i][i])
		}
	}
	for _, block := range blocks {
		C.free(block)
	}
	fmt.Println(total)
}
"""


def cxx_source(types):
    """A file that takes the compiler some hundred MiB."""
    parts = ["#include <algorithm>", "#include <functional>", "#include <map>", "#include <regex>", "#include <string>",
             "#include <unordered_map>", "#include <vector>"]
    for i in range(types):
        parts.append(f"struct type{i} {{ int key = {i}; std::map<std::string, std::vector<type{i}>> inner; }};\n"
                     f"int use{i}(std::vector<type{i}> in) {{ std::sort(in.begin(), in.end(), [](const type{i}& a, "
                     f"const type{i}& b) {{ return a.key < b.key; }}); std::unordered_map<int, type{i}> latest; "
                     f"for (auto& entry : in) latest[entry.key] = entry; return static_cast<int>(latest.size()) + {i}; }}")
    return "\n".join(parts)


class Redis:
    """A connection that speaks RESP."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def send(self, *words):
        words = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))

    def reply(self):
        line = self.file.readline().rstrip(b"\r\n").decode()
        kind, rest = line[:1], line[1:]
        if kind == "$":
            return None if rest == "-1" else self.file.read(int(rest) + 2)[:-2].decode()
        if kind == "-":
            raise RuntimeError(rest)
        return rest

    def call(self, *words):
        self.send(*words)
        return self.reply()


class Packages(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    def budget(self, native_peak, share):
        return max(16 * support.MIB, int(native_peak * share))

    def compare(self, program, result=lambda outcome: outcome.out, **options):
        native = support.run(program, **options)
        self.assertEqual(native.code, 0, native)
        expected = result(native)
        self.assertTrue(expected, native)
        for share in SHARES:
            for mode in MODES:
                with self.subTest(mode=mode, share=share):
                    outcome = support.run_far(program, self.budget(native.peak_bytes, share), far=FAR, mode=mode, **options)
                    self.assertEqual(outcome.code, 0, outcome)
                    self.assertEqual(result(outcome), expected, outcome)

    def need(self, *programs):
        for program in programs:
            support.need(shutil.which(program), f"there is no {program} on this machine: scripts/install-packages programs")

    def test_node(self):
        self.need("node")
        self.compare(["node", self.write("script.js", NODE)])

    def test_java(self):
        self.need("javac", "java")
        subprocess.run(["javac", "-d", self.directory, self.write("Churn.java", JAVA)], check=True, capture_output=True)
        # Each fault mode meets each of them within four days.
        for collector in support.of_today(("Serial", "G1"), support.DAY // 2):
            with self.subTest(collector):
                self.compare(["java", f"-XX:+Use{collector}GC", "-Xms192m", "-Xmx192m", "-cp", self.directory, "Churn"])

    @unittest.skipUnless(support.SOAK, "its compiler takes longer than the test: FARHEAP_SOAK=1")
    def test_cgo(self):
        self.need("go", "gcc")
        self.write("main.go", GO)
        program = self.directory / "program"
        subprocess.run(["go", "build", "-o", program, "main.go"], cwd=self.directory, check=True, capture_output=True,
                       env={**os.environ, "GOCACHE": str(self.directory / "cache"), "GO111MODULE": "off", "CGO_ENABLED": "1",
                            "GOFLAGS": "", "GOTOOLCHAIN": "local"})
        self.compare([program])

    def test_compiler(self):
        self.need("g++")
        source = self.write("large.cc", cxx_source(120 if support.SOAK else 8))
        product = self.directory / "large.o"

        def digest(_):
            value = hashlib.sha256(product.read_bytes()).hexdigest()
            product.unlink()
            return value

        self.compare(["g++", "-std=c++17", "-O1", "-c", source, "-o", product], digest)

    def test_stress_ng(self):
        self.need("stress-ng")
        operations = 50 if support.SOAK else 1
        methods = ["--vm", "1", "--vm-bytes", "48m", "--vm-method", "all", "--vm-ops", str(16 * operations)]
        for name in ("mmap", "mremap", "brk", "fork", "sigsegv"):
            methods += [f"--{name}", "1", f"--{name}-ops", str(20 * operations)]
        methods += ["--mmap-bytes", "24m", "--mremap-bytes", "16m"]
        program = ["stress-ng", *methods, "--verify", "--timeout", "600" if support.SOAK else "20", "--temp-path",
                   self.directory]
        for mode in MODES:
            with self.subTest(mode=mode):
                outcome = support.run_far(program, 24 * support.MIB, far=FAR, mode=mode)
                self.assertEqual(outcome.code, 0, outcome)
                self.assertIn("successful run completed", outcome.out + outcome.err, outcome)

    @contextlib.contextmanager
    def server(self, program, port, budget_bytes=None, mode=None):
        """A server on a port of loopback, natively without a budget; ended by SIGTERM, and must end well."""
        command = [str(part) for part in program]
        if budget_bytes:
            command = support.farheap_command(command, budget_bytes, FAR, mode)
        log = self.directory / f"log-{port}"
        with log.open("w") as file:
            process = support.start(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        try:
            def answers():
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    return True
                return False
            support.wait_until(answers, f"{program[0]} listens: {log.read_text()[-500:]}", process=process)
            yield process
            process.send_signal(signal.SIGTERM)
            self.assertIn(process.wait(support.DEADLINE_S), (0, -signal.SIGTERM), log.read_text()[-2000:])
        finally:
            if process.poll() is None:
                support.end(process)
                process.wait()

    def fill_redis(self, redis):
        redis.call("DEBUG", "POPULATE", 200_000 if support.SOAK else 60_000, "key", 500)
        for i in range(0, 3000):
            redis.send("RPUSH", f"list:{i % 50}", *(f"{i}:{j}" for j in range(20)))
        for _ in range(0, 3000):
            redis.reply()
        return redis.call("DEBUG", "DIGEST")

    def redis_server(self, port):
        return ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", self.directory,
                "--enable-debug-command", "yes", "--dbfilename", f"{port}.rdb", "--daemonize", "no"]

    def save_in_background(self, redis):
        """The digest of the saved data is that at the fork, whatever is written meanwhile."""
        digest = redis.call("DEBUG", "DIGEST")
        before = int(redis.call("LASTSAVE"))
        time.sleep(1.1)  # the time of a save is in seconds
        redis.call("BGSAVE")
        for i in range(2000):
            redis.call("SET", f"key:{i * 7}", "written while it is saved")
        support.wait_until(lambda: int(redis.call("LASTSAVE")) > before, "BGSAVE ends")
        return digest

    def test_redis(self):
        self.need("redis-server")
        port = support.reserve_port()
        with self.server(self.redis_server(port), port) as process, Redis(port) as redis:
            expected = self.fill_redis(redis)
            peak = support.resident_bytes(process.pid)
        for share in SHARES:
            for mode in MODES:
                with self.subTest(mode=mode, share=share):
                    port = support.reserve_port()
                    with self.server(self.redis_server(port), port, self.budget(peak, share), mode), Redis(port) as redis:
                        self.assertEqual(self.fill_redis(redis), expected)
                        saved = self.save_in_background(redis)
                        self.assertEqual(saved, expected)
                        written = redis.call("DEBUG", "DIGEST")
                        self.assertNotEqual(written, expected)
                    # The file that the child wrote, read by a native server.
                    check = support.reserve_port()
                    native = self.redis_server(check)
                    native[native.index(f"{check}.rdb")] = f"{port}.rdb"
                    with self.server(native, check), Redis(check) as redis:
                        support.wait_until(lambda: "\nloading:0" in redis.call("INFO", "persistence"), "the file is read")
                        self.assertEqual(redis.call("DEBUG", "DIGEST"), expected)

    def test_memcached(self):
        self.need("memcached")
        items = 40_000

        def value(i):
            return (b"%08d" % (i * 7919 % 1_000_003)) * 200

        for mode in MODES:
            port = support.reserve_port()
            user = ["-u", "nobody"] if os.geteuid() == 0 else []
            program = ["memcached", "-p", port, "-l", "127.0.0.1", "-m", "128", "-t", "2", *user]
            with self.subTest(mode=mode), self.server(program, port, 32 * support.MIB, mode):
                with socket.create_connection(("127.0.0.1", port), timeout=120) as link, link.makefile("rb") as replies:
                    for first in range(0, items, 100):
                        link.sendall(b"".join(b"set key%d 0 0 1600\r\n%s\r\n" % (i, value(i))
                                              for i in range(first, first + 100)))
                        for _ in range(100):
                            self.assertEqual(replies.readline(), b"STORED\r\n")
                    for first in range(0, items, 100):
                        link.sendall(b"".join(b"get key%d\r\n" % i for i in range(first, first + 100)))
                        for i in range(first, first + 100):
                            self.assertEqual(replies.readline(), b"VALUE key%d 0 1600\r\n" % i)
                            self.assertEqual(replies.read(1602), value(i) + b"\r\n")
                            self.assertEqual(replies.readline(), b"END\r\n")

    def test_nginx(self):
        self.need("nginx")
        port = support.reserve_port()
        content = hashlib.sha256(b"page").hexdigest() * 4096
        self.write("page.txt", content)
        self.directory.chmod(0o755)
        configuration = self.write("nginx.conf", f"""
            daemon off; worker_processes 3; pid {self.directory}/pid; error_log {self.directory}/error.log;
            events {{ worker_connections 64; }}
            http {{ access_log off; client_body_temp_path {self.directory}/body; proxy_temp_path {self.directory}/proxy;
              fastcgi_temp_path {self.directory}/fastcgi; uwsgi_temp_path {self.directory}/uwsgi;
              scgi_temp_path {self.directory}/scgi; gzip on; gzip_types text/plain;
              server {{ listen 127.0.0.1:{port}; root {self.directory}; }} }}""")

        def get():
            with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
                link.sendall(b"GET /page.txt HTTP/1.0\r\nHost: localhost\r\n\r\n")
                with link.makefile("rb") as reply:
                    return reply.read().split(b"\r\n\r\n", 1)[1].decode()

        for mode in MODES:
            with self.subTest(mode=mode), self.server(["nginx", "-c", configuration], port, 16 * support.MIB, mode) as master:
                for _ in range(40):
                    self.assertEqual(get(), content)
                master.send_signal(signal.SIGHUP)  # new workers, and the old ones end
                for _ in range(40):
                    self.assertEqual(get(), content)


if __name__ == "__main__":
    support.main()
