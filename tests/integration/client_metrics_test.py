"""What `farheap metrics` says of a program whose memory servers come and go."""

import os
import re
import subprocess
import urllib.error
import urllib.request

import support
from servers_test import Servers

TOKEN = "abcdefghijklmnopqrstuvwxyz012345"


class Port:
    """A `farheap metrics --listen`."""

    def __init__(self, *options):
        self.process = support.start([support.FARHEAP, "metrics", "--listen", "127.0.0.1:0", *options],
                                     stdout=subprocess.PIPE, text=True)
        self.url = re.search(r"http://\S+", self.process.stdout.readline())[0]

    def read(self, token=None):
        request = urllib.request.Request(self.url, headers={"Authorization": f"Bearer {token}"} if token else {})
        with urllib.request.urlopen(request, timeout=support.DEADLINE_S) as reply:
            return reply.read().decode()

    def value(self, name, pid):
        """The sample of a process, or None."""
        found = re.search(rf'^farheap_{name}{{pid="{pid}",[^}}]*}} ([0-9.]+)$', self.read(), re.MULTILINE)
        return float(found[1]) if found else None

    def end(self):
        support.end(self.process)
        self.process.wait(support.DEADLINE_S)
        self.process.stdout.close()


class ClientMetrics(Servers):
    def test_a_server_that_is_away_shows(self):
        port = Port()
        self.addCleanup(port.end)
        servers = [self.server() for _ in range(3)]
        process = self.begin_verifier(self.far(servers, "copies=2&timeout=10s"))
        for server in servers:
            self.wait_until_far(process, server)

        def shows(condition, what):
            support.wait_until(condition, what, process=process)

        def counted(name):
            return port.value(name, process.pid) or 0

        # Processes publish their counts a few times a second.
        shows(lambda: port.value("servers", process.pid) == 3, "three servers were shown")
        shows(lambda: counted("evicted_pages_total") > 0, "evictions were shown")
        shows(lambda: port.value("away_servers", process.pid) == 0, "no server was shown as away")
        servers[1].kill()
        shows(lambda: port.value("away_servers", process.pid) == 1, "one server was shown as away")
        shows(lambda: counted("lacking_copies") > 0 or counted("repaired_copies_total") > 0,
              "copies were shown as lacking, or as made again")
        top = [support.FARHEAP, "top", "--once", "--interval", "0.1", str(process.pid)]
        # One that a stalled machine keeps from answering is away for a moment, too.
        shows(lambda: "1 of 3 servers away" in subprocess.run(top, text=True, capture_output=True, check=True,
                                                              timeout=support.DEADLINE_S).stdout, "`top` showed it")
        servers[1].start()
        shows(lambda: port.value("away_servers", process.pid) == 0, "the server was shown as back")
        shows(lambda: port.value("lacking_copies", process.pid) == 0, "all copies were shown as made again")
        shows(lambda: counted("repaired_copies_total") > 0 and counted("degraded_seconds_total") > 0,
              "repairs, and their time, were shown")
        self.finish_verifier(process)
        self.assertIsNone(port.value("servers", process.pid))

    def test_the_port_wants_its_token(self):
        file = self.folder / "metrics-token"
        file.write_text(TOKEN + "\n")
        os.chmod(file, 0o600)
        port = Port("--token-file", str(file))
        self.addCleanup(port.end)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            port.read()
        self.assertEqual(refused.exception.code, 401)
        self.assertIn("--token-file", refused.exception.read().decode())
        refused.exception.close()
        self.assertIn("# TYPE farheap_misses_total counter", port.read(TOKEN))
        outcome = support.run([support.FARHEAP, "metrics", "--listen", "0.0.0.0:0"], deadline_s=240)
        self.assertEqual(outcome.code, 2)
        self.assertIn("can be reached from other machines", outcome.err)


if __name__ == "__main__":
    support.main()
