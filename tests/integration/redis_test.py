"""Programs that check every byte of their memory over Redis servers that are killed, paused, emptied and disconnected
beside them."""

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

import support

ROUNDS = 100 if support.SOAK else 2
REDIS = shutil.which("redis-server")


def verifier(operations, seed=23):
    return [support.PROGRAMS / "verifier", "--seed", str(seed), "--threads", "4", "--operations", str(operations),
            "--live-mib", "160", "--largest-mib", "16"]


class Server:
    """A redis-server on loopback. Its port stays the same when it starts again, empty."""

    def __init__(self, folder, *arguments, starts=True):
        self.folder, self.arguments = folder, arguments
        self.port = support.reserve_port()
        self.process = None
        if starts:
            self.start()

    def start(self):
        self.process = support.start([REDIS, "--bind", "127.0.0.1", "--port", str(self.port), "--save", "",
                                      "--appendonly", "no", "--dir", self.folder, *self.arguments],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        support.wait_until(self.listens, "redis-server listened", process=self.process)

    def listens(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self):
        support.end(self.process)
        self.process.wait(support.DEADLINE_S)

    def signal(self, number):
        self.process.send_signal(number)

    def command(self, *words):
        """The reply, as redis-cli prints it."""
        done = subprocess.run(["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True, timeout=support.DEADLINE_S)
        return done.stdout.strip()

    def keys(self):
        return int(self.command("DBSIZE"))

    def where(self):
        return f"127.0.0.1:{self.port}"


class SentinelProcess(Server):
    """redis-server as a Sentinel; it writes what it finds out into its settings."""

    def __init__(self, folder, settings):
        self.settings = settings
        super().__init__(folder)

    def start(self):
        self.process = support.start([REDIS, self.settings, "--sentinel", "--bind", "127.0.0.1", "--port", str(self.port),
                                      "--dir", self.folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        support.wait_until(self.listens, "Sentinel listened", process=self.process)

    def tolerate(self, milliseconds):
        """So long may a server be silent before it is considered down."""
        assert self.command("SENTINEL", "SET", "cache", "down-after-milliseconds", milliseconds) == "OK"

    def knows(self, replica):
        return str(replica.port) in self.command("SENTINEL", "REPLICAS", "cache")


class RedisServers(support.ProgramsBesideFailures):
    def setUp(self):
        support.need(REDIS and shutil.which("redis-cli"), "redis-server and redis-cli are not installed")
        super().setUp()

    def server(self, *arguments):
        server = Server(self.folder, *arguments)
        self.addCleanup(server.kill)
        return server

    def far(self, servers, options="timeout=5s"):
        return f"redis://{','.join(server.where() for server in servers)}?{options}"

    def wait_until_far(self, process, server):
        support.wait_until(lambda: support.resident_bytes(server.process.pid) >= 32 * support.MIB,
                           f"{server.where()} held 32 MiB", process=process)


class OneServer(RedisServers):
    def test_connections_and_scripts_go_and_keys_end_with_the_program(self):
        for mode in ("inline", "thread"):
            server = self.server()
            process = self.begin_verifier(self.far([server], "timeout=20s&prefix=job42"), mode)
            self.wait_until_far(process, server)
            server.command("SCRIPT", "FLUSH")
            self.assertNotEqual(server.command("CLIENT", "KILL", "TYPE", "normal"), "0")
            server.signal(signal.SIGSTOP)
            time.sleep(0.5)
            server.signal(signal.SIGCONT)
            self.finish_verifier(process)
            keys = server.command("KEYS", "*").split()
            self.assertTrue(all(key.startswith("job42:") for key in keys), keys[:5])
            self.assertTrue(all(int(server.command("PTTL", key)) <= 10_000 for key in keys[:20]))

    def test_a_killed_program_leaves_nothing_for_longer_than_its_lease(self):
        server = self.server()
        process = self.begin(verifier(100_000), self.far([server], "lease=30s"))
        self.wait_until_far(process, server)
        self.assertGreater(server.keys(), 0)
        support.end(process)
        process.wait(support.DEADLINE_S)
        support.wait_until(lambda: server.keys() == 0, "all leases ran out")

    def test_emptied_it_ends_the_program_with_a_clear_message(self):
        server = self.server()
        process = self.begin(verifier(100_000), self.far([server], "timeout=2s"))
        self.wait_until_far(process, server)
        server.command("FLUSHALL")
        process.wait(support.DEADLINE_S)
        out, err = self.texts()
        self.assertEqual(process.returncode, -signal.SIGABRT, err[-3000:])
        self.assertNotIn("corrupt", out)
        self.assertIn("FLUSHALL", err)
        self.assertRegex(err, r"the program needs the bytes at 0x[0-9a-f]+, and they are lost")

    def test_one_that_may_evict_is_refused(self):
        server = self.server("--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru")
        outcome = support.run_far(["true"], self.local_bytes, far=self.far([server]))
        self.assertEqual(outcome.code, 1, outcome)
        self.assertIn("noeviction", outcome.err)

    def test_children_of_fork_read_what_their_parent_stored(self):
        forker = [support.PROGRAMS / "forker", "96", "2"]
        native = support.run(forker)
        self.assertEqual(native.code, 0, native)
        server = self.server()
        outcome = support.run_far(forker, self.local_bytes, far=self.far([server], "timeout=20s"))
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.out, native.out, outcome)


class Sentinel(RedisServers):
    """A master with a replica that Sentinel watches, and an independent server with the other copy of each page."""

    def start_sentinel(self, master):
        settings = self.folder / "sentinel.conf"
        settings.write_text(f"sentinel monitor cache 127.0.0.1 {master.port} 1\n"
                            "sentinel down-after-milliseconds cache 120000\n"
                            "sentinel failover-timeout cache 10000\n", encoding="utf-8")
        sentinel = SentinelProcess(self.folder, settings)
        self.addCleanup(sentinel.kill)
        return sentinel

    def test_a_failover_loses_nothing_and_the_new_master_may_be_added(self):
        master, other = self.server(), self.server()
        replica = self.server("--replicaof", "127.0.0.1", str(master.port), "--repl-diskless-sync-delay", "0")
        support.wait_until(lambda: "master_link_status:up" in replica.command("INFO", "replication"),
                           "the replica was in step", process=replica.process)
        sentinel = self.start_sentinel(master)
        support.wait_until(lambda: sentinel.knows(replica), "Sentinel knew the replica", process=sentinel.process)
        program = self.begin_verifier(self.far([master, other], "copies=2&timeout=2s"))
        self.wait_until_far(program, master)

        # Not before: it would make the replica the master where the machine stalls. Nor afterwards.
        sentinel.tolerate("3000")
        master.kill()
        support.wait_until(lambda: "role:master" in replica.command("INFO", "replication"),
                           "Sentinel made the replica the master", process=sentinel.process)
        sentinel.tolerate("120000")
        master.start()
        # Sentinel first waits until nobody has been late for 8 s, as its process or a server may be on a busy machine.
        support.wait_until(lambda: "role:slave" in master.command("INFO", "replication"),
                           "Sentinel made the old master a replica", process=sentinel.process)
        support.wait_until(lambda: "it is a replica, which takes no writes" in self.texts()[1],
                           "the program said why it did not use it", process=program)
        added = subprocess.run([support.FARHEAP, "add-server", str(program.pid), replica.where()], capture_output=True,
                               text=True, timeout=support.DEADLINE_S)
        self.assertEqual(added.returncode, 0, added.stderr)
        support.wait_until(lambda: support.resident_bytes(replica.process.pid) >= 32 * support.MIB,
                           "the new master held copies", process=program)
        self.finish_verifier(program)


class CopiesOnThreeServers(RedisServers):
    def test_servers_killed_paused_and_emptied_at_random(self):
        servers = [self.server() for _ in range(3)]
        far = self.far(servers, "copies=2&timeout=1s")
        program = verifier(400 if support.SOAK else 80)
        expected = support.run(program).out
        chance = random.Random(5)
        for number in range(ROUNDS):
            process = self.begin(program, far)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.1, 2.5))
            victim = chance.choice(servers)
            fault = chance.choice(("kill", "pause", "flush")) if support.SOAK else ("kill", "flush")[number % 2]
            if fault == "flush":
                victim.command("FLUSHALL")
            else:
                victim.kill() if fault == "kill" else victim.signal(signal.SIGSTOP)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(chance.uniform(0, 2))
                victim.start() if fault == "kill" else victim.signal(signal.SIGCONT)
            try:
                self.finish(process, expected)
            except AssertionError as failure:
                raise AssertionError(f"in round {number}, {fault} of {victim.where()}: {failure}") from None
        print(f"{self.id()}: {ROUNDS} rounds", file=sys.stderr)


if __name__ == "__main__":
    support.main()
