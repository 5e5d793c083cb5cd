"""Programs that check every byte of their memory, on several memory servers that are killed, cut off, paused, started
again, added and missing beside them."""

import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import support
from farheapd_test import metrics_of, value_in

FARHEAPD = support.BUILD / "bin" / "farheapd"
TOKEN = "0123456789abcdef0123456789abcdef"
ROUNDS = 100 if support.SOAK else 2


class Server:
    """A farheapd, in a network namespace of its own or on loopback. Its address stays the same when it starts again."""

    def __init__(self, folder, namespace=None, address="127.0.0.1", port=0, options=(), grace="60s"):
        self.folder, self.namespace, self.address = folder, namespace, address
        self.port = port or support.reserve_port()
        self.options, self.grace = options, grace
        self.process = None
        self.start()

    def start(self):
        inside = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        protected = ["--token-file", self.folder / "token"] if self.namespace else []
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".log", delete=False) as errors:
            self.errors = pathlib.Path(errors.name)
            self.process = support.start([*inside, FARHEAPD, "--listen", f"{self.address}:{self.port}", "--memory",
                                          "1G", "--threads", "1", "--grace", self.grace, *protected, *self.options],
                                         stdout=subprocess.PIPE, stderr=errors, text=True)
        line = self.process.stdout.readline()
        if not re.search(rf"listening on .*:{self.port}\n", line):
            raise RuntimeError(f"farheapd did not start: it printed {line!r}")

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def kill(self):
        support.end(self.process)
        self.process.wait(support.DEADLINE_S)
        self.process.stdout.close()

    def log(self):
        """What the present process has said."""
        return self.errors.read_text(encoding="utf-8")

    def value(self, name):
        """A number that it counts; it has --metrics."""
        return value_in(metrics_of(self.log()), name)

    def where(self):
        return f"{self.address}:{self.port}"


class Servers(support.ProgramsBesideFailures):
    def setUp(self):
        super().setUp()
        token = self.folder / "token"
        token.write_text(TOKEN + "\n")
        token.chmod(0o600)

    def server(self, *arguments, **options):
        server = Server(self.folder, *arguments, **options)
        self.addCleanup(server.kill)
        return server

    def go_on(self, process, seconds):
        """Lets the program run on, or end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)

    def expect_running(self, process):
        self.assertIsNone(process.poll(), f"the program ended too early: {self.texts()}")

    def wait_until_far(self, process, server, size_bytes=(64 if support.SOAK else 16) * support.MIB):
        """Waits until a server holds so much."""
        support.wait_until(lambda: support.resident_bytes(server.process.pid) >= size_bytes,
                           f"{server.where()} held {size_bytes >> 20} MiB", process=process)

    def wait_until_whole(self, process):
        """Until all servers answer and each page has all its copies: then the next server may fail."""
        def is_whole():
            told = support.run([support.FARHEAP, "stats", "--json", process.pid])
            now = json.loads(told.out) if told.code == 0 else {}
            return (now.get("away_servers"), now.get("lacking_copies")) == (0, 0)

        support.wait_until(is_whole, "every page had its copies again", process=process)

    def far(self, servers, options="copies=2&timeout=2s"):
        return f"tcp://{','.join(server.where() for server in servers)}?{options}"


class Namespaces:
    """Network namespaces, each joined to this one by a veth pair. Use it in a `with` statement, which removes them."""

    def __init__(self, count):
        self.names = [f"farheap-{os.getpid()}-{i}" for i in range(count)]
        self.subnet = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"

    def __enter__(self):
        support.need(os.geteuid() == 0, "network namespaces need root")
        support.need(shutil.which("ip"), "network namespaces need the command ip (Debian: iproute2)")
        for i, name in enumerate(self.names):
            for command in (f"netns add {name}",
                            f"link add fh{os.getpid()}{i} type veth peer name eth0 netns {name}",
                            f"addr add {self.subnet}.{4 * i + 1}/30 dev fh{os.getpid()}{i}",
                            f"link set fh{os.getpid()}{i} up",
                            f"-n {name} addr add {self.address(i)}/30 dev eth0",
                            f"-n {name} link set eth0 up",
                            f"-n {name} link set lo up"):
                done = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
                if done.returncode != 0:
                    self.__exit__()
                    raise unittest.SkipTest(f"network namespaces are not permitted here: {done.stderr.strip()}")
        return self

    def address(self, i):
        return f"{self.subnet}.{4 * i + 2}"

    def cut(self, i, down):
        """Cuts a namespace off, or joins it again."""
        subprocess.run(["ip", "link", "set", f"fh{os.getpid()}{i}", "down" if down else "up"], check=True)

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


class CopiesOnThreeServers(Servers):
    def test_one_killed_one_cut_off_one_paused(self):
        with contextlib.ExitStack() as stack:
            nets = stack.enter_context(Namespaces(3))
            servers = [self.server(name, nets.address(i), 7000) for i, name in enumerate(nets.names)]
            far = self.far(servers, f"copies=2&token-file={self.folder / 'token'}&timeout=1s")
            process = self.begin_verifier(far)
            pause_s = 4 if support.SOAK else 1.5
            for server in servers:
                self.wait_until_far(process, server)
            servers[0].signal(signal.SIGSTOP)
            self.go_on(process, pause_s)
            servers[0].signal(signal.SIGCONT)
            self.wait_until_whole(process)
            nets.cut(1, True)
            self.go_on(process, pause_s)
            nets.cut(1, False)
            self.wait_until_whole(process)
            servers[2].kill()
            self.go_on(process, pause_s)
            servers[2].start()
            err = self.finish_verifier(process)
            self.assertNotIn(TOKEN, err)

    def play_rounds(self, servers, seed, one_round):
        """Programs that run while one_round(process, chance) makes trouble; the last one is left alone."""
        chance = random.Random(seed)
        for number in range(ROUNDS):
            process = self.begin_verifier(self.far(servers))
            self.go_on(process, chance.uniform(0.1, 2.5))
            try:
                one_round(process, chance)
            except AssertionError as failure:
                raise AssertionError(f"in round {number}: {failure}") from None
        self.finish_verifier(self.begin_verifier(self.far(servers)))
        print(f"{self.id()}: {ROUNDS} rounds", file=sys.stderr)

    def test_servers_killed_at_random(self):
        """One server is killed, and started again empty."""
        servers = [self.server() for _ in range(3)]

        def kill_a_server(process, chance):
            victim = chance.choice(servers)
            victim.kill()
            self.go_on(process, chance.uniform(0, 1))
            victim.start()
            self.go_on(process, chance.uniform(0, 1))
            self.finish_verifier(process)

        self.play_rounds(servers, 1, kill_a_server)

    def test_clients_killed_at_random(self):
        """The slots that a dead client held come back when its grace period is over; others never notice."""

        def kill_the_client(process, _chance):
            support.end(process)
            process.wait(support.DEADLINE_S)

        self.play_rounds([self.server() for _ in range(2)], 2, kill_the_client)


def add_server(process, where):
    return subprocess.run([support.FARHEAP, "add-server", str(process.pid), where], capture_output=True, text=True,
                          timeout=support.DEADLINE_S)


class ServersThatCome(Servers):
    def test_one_is_added_and_an_old_one_killed(self):
        servers = [self.server() for _ in range(2)]
        process = self.begin_verifier(self.far(servers))
        self.wait_until_far(process, servers[0])
        added = self.server()
        done = add_server(process, added.where())
        self.assertEqual((done.returncode, done.stderr), (0, ""), done)
        self.assertIn(added.where(), done.stdout)
        self.wait_until_far(process, added)
        servers[0].kill()
        support.wait_until(lambda: f"{servers[0].where()} does not answer" in self.texts()[1],
                           "the death of the old one was noticed", process=process)
        self.finish_verifier(process)

    def test_a_single_one_grows(self):
        server = self.server()
        process = self.begin_verifier(self.far([server], "timeout=5s"))
        self.wait_until_far(process, server)
        added = self.server()
        self.assertEqual(add_server(process, added.where()).returncode, 0)
        self.wait_until_far(process, added)
        self.finish_verifier(process)

    def test_what_cannot_be_added_is_told(self):
        server = self.server()
        process = self.begin_verifier(self.far([server], "timeout=2s"))
        self.wait_until_far(process, server)
        gone = self.server()
        gone.kill()
        for where, reason in ((server.where(), "already"), (gone.where(), "check the address"),
                              ("no-such-host.invalid:7000", "cannot be resolved")):
            done = add_server(process, where)
            self.assertEqual((done.returncode, done.stdout), (1, ""), done)
            self.assertIn(where, done.stderr)
            self.assertIn(reason, done.stderr)
        self.expect_running(process)

    def test_other_far_tiers_take_none(self):
        process = self.begin_verifier("memory:")
        support.wait_until(lambda: add_server(process, "127.0.0.1:1").stderr.find("takes no servers") >= 0,
                           "the runtime said that memory: takes no servers", process=process)

    def test_one_is_missing_at_the_start_and_comes_later(self):
        servers = [self.server() for _ in range(2)]
        servers[1].kill()
        process = self.begin_verifier(self.far(servers))
        self.wait_until_far(process, servers[0])
        servers[1].start()
        self.wait_until_far(process, servers[1])
        err = self.finish_verifier(process)
        self.assertRegex(err, f"warning: .*{re.escape(servers[1].where())}.* Going on without it")
        self.assertIn(f"{servers[1].where()} answers", err)

    def test_without_copies_or_without_any_server_nothing_starts(self):
        servers = [self.server() for _ in range(2)]
        servers[1].kill()
        for options, named in (("copies=1&timeout=1s", servers[1]), ("copies=2&timeout=1s", servers[0])):
            outcome = support.run_far(["true"], self.local_bytes, far=self.far(servers, options))
            self.assertEqual(outcome.code, 1, outcome)
            self.assertIn(named.where(), outcome.err)
            servers[0].kill()


class Parity(Servers):
    def test_servers_killed_at_random(self):
        """One of three is killed, and started again empty."""
        servers = [self.server() for _ in range(3)]
        chance = random.Random(7)
        for _ in range(ROUNDS):
            process = self.begin_verifier(self.far(servers, "parity=2+1&timeout=2s"))
            self.go_on(process, chance.uniform(0.1, 2.5))
            victim = chance.choice(servers)
            victim.kill()
            self.go_on(process, chance.uniform(0, 1))
            victim.start()
            self.finish_verifier(process)
        self.finish_verifier(self.begin_verifier(self.far(servers, "parity=2+1")))

    def test_a_lost_server_is_rebuilt_and_then_another_may_be_lost(self):
        servers = [self.server() for _ in range(4)]
        process = self.begin_verifier(self.far(servers, "parity=2+1&timeout=1s"))
        for server in servers:
            self.wait_until_far(process, server)
        protected = "all are protected by parity"
        before = self.texts()[1].count(protected)
        servers[0].kill()
        support.wait_until(lambda: process.poll() is not None or self.texts()[1].count(protected) > before,
                           "the pages of the lost server were written again", process=process)
        servers[1].kill()
        err = self.finish_verifier(process)
        self.assertIn("its pages are being rebuilt on other servers", err)

    def test_what_makes_no_sense_is_refused(self):
        servers = [self.server() for _ in range(2)]
        for options, reason in (("parity=2+1", "parity=2+1 needs 3 servers, and 2 are named"),
                                ("parity=2+1&copies=2", "keep one of them"),
                                ("parity=two", "write for example parity=2+1")):
            outcome = support.run_far(["true"], self.local_bytes, far=self.far(servers, options))
            self.assertEqual(outcome.code, 2, outcome)
            self.assertIn(reason, outcome.err)


class OutOfReach(Servers):
    """All servers at once: the bytes are alive, and the program's own network is the likely culprit."""

    def pause_all(self, options):
        servers = [self.server() for _ in range(2)]
        process = self.begin_verifier(self.far(servers, "copies=2&timeout=1s" + options))
        for server in servers:
            self.wait_until_far(process, server)
        for server in servers:
            server.signal(signal.SIGSTOP)
        return process, servers

    def test_reads_wait_for_longer_than_it_takes_to_give_both_up(self):
        process, servers = self.pause_all("")
        support.wait_until(lambda: self.texts()[1].count("is considered lost") >= 2, "both were given up",
                           process=process)
        support.wait_until(lambda: "waits for pages on" in self.texts()[1], "it was told that reads wait",
                           process=process)
        time.sleep(1)
        self.expect_running(process)
        for server in servers:
            server.signal(signal.SIGCONT)
        err = self.finish_verifier(process)
        self.assertLessEqual(err.count("waits for pages on"), 1 + err.count("answers again"), err[-3000:])

    def test_whoever_prefers_to_fail_says_so(self):
        process, _ = self.pause_all("&patience=10s")
        process.wait(support.DEADLINE_S)
        out, err = self.texts()
        self.assertEqual(process.returncode, -signal.SIGABRT, err[-3000:])
        self.assertNotIn("corrupt", out)
        self.assertRegex(err, r"the program needs the bytes at 0x[0-9a-f]+, and they are lost")


class PausedClient(Servers):
    """A program that is stopped in a debugger, or with its container, for longer than servers wait for a word of it."""

    def pause(self, options=()):
        """Until the server has ended its connections."""
        server = self.server(grace="1s", options=["--silence", "1s", "--metrics", "127.0.0.1:0", *options])
        process = self.begin_verifier(self.far([server], "timeout=20s"))
        self.wait_until_far(process, server)
        os.killpg(process.pid, signal.SIGSTOP)
        support.wait_until(lambda: server.value("connections") == 0, "the program had been silent for too long")
        return process, server

    def test_its_bytes_outlive_silence_and_grace(self):
        process, server = self.pause()
        time.sleep(2)
        os.killpg(process.pid, signal.SIGCONT)
        err = self.finish_verifier(process)
        self.assertIn("the connection is lost", err, "the pause was longer than the silence that the server allows")
        self.assertIn(f"{server.where()} answers again", err)

    def test_a_lease_that_is_over_ends_it_with_a_clear_message(self):
        process, server = self.pause(["--lease", "15s"])
        support.wait_until(lambda: server.value("sessions_expired_total") > 0, "the lease was over")
        os.killpg(process.pid, signal.SIGCONT)
        process.wait(support.DEADLINE_S)
        out, err = self.texts()
        self.assertEqual(process.returncode, -signal.SIGABRT, err[-3000:])
        self.assertNotIn("corrupt", out)
        self.assertIn(f"{server.where()} has lost the slots of this program", err)


class NamedTwice(Servers):
    def test_a_server_under_two_names_is_no_place_for_two_copies(self):
        server = self.server()
        port = server.where().rpartition(":")[2]
        far = f"tcp://127.0.0.1:{port},localhost:{port}?copies=2&timeout=2s"
        outcome = support.run_far(["true"], self.local_bytes, far=far)
        self.assertNotEqual(outcome.code, 0, outcome)
        self.assertIn(f"127.0.0.1:{port} and localhost:{port} are one and the same server", outcome.err)


class OneCopy(Servers):
    def test_a_lost_server_ends_the_program_with_a_clear_message(self):
        server = self.server()
        process = self.begin_verifier(self.far([server], "timeout=5s&patience=10s"))
        self.wait_until_far(process, server)
        server.kill()
        process.wait(support.DEADLINE_S)
        out, err = self.texts()
        self.assertEqual(process.returncode, -signal.SIGABRT, err[-3000:])
        self.assertNotIn("corrupt", out)
        self.assertRegex(err, r"the program needs the bytes at 0x[0-9a-f]+, and they are lost: .*" +
                         re.escape(server.where()))

    def test_a_paused_server_only_delays(self):
        server = self.server()
        process = self.begin_verifier(self.far([server], "timeout=20s"))
        self.wait_until_far(process, server)
        server.signal(signal.SIGSTOP)
        time.sleep(3)
        server.signal(signal.SIGCONT)
        self.finish_verifier(process)

    def test_children_of_fork_never_use_their_parents_connections(self):
        forker = [support.PROGRAMS / "forker", "64", "3"]
        native = support.run(forker)
        self.assertEqual(native.code, 0, native)
        server = self.server()
        outcome = support.run_far(forker, self.local_bytes, far=f"tcp://{server.where()}")
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.out, native.out, outcome)


if __name__ == "__main__":
    support.main()
