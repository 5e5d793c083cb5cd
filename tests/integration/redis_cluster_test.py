"""Programs that check every byte of their memory over a Redis Cluster of six nodes, whose masters are killed, replaced,
paused and emptied, and whose hash slots move, beside them."""

import contextlib
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import support
from redis_test import REDIS, Server

ROUNDS = 100 if support.SOAK else 3
FAULTS = ("move", "kill", "takeover", "pause", "flush")
SLOTS = 16384


class Node(Server):
    """A node of a cluster."""

    def __init__(self, folder):
        self.bus_port = support.reserve_port()
        super().__init__(folder, "--cluster-enabled", "yes", "--cluster-port", str(self.bus_port),
                         "--cluster-node-timeout", "30000", "--cluster-require-full-coverage", "no",
                         "--cluster-allow-replica-migration", "no", "--repl-diskless-sync-delay", "0", starts=False)

    def masters(self):
        """{port: hash slots} of the masters that this node thinks well of, and the ports of replicas in step."""
        owned, replicas = {}, 0
        for line in self.command("CLUSTER", "NODES").splitlines():
            fields = line.split()
            if len(fields) < 8 or "@" not in fields[1]:
                continue  # not a node: it does not answer yet
            port = int(re.search(r":(\d+)@", fields[1])[1])
            flags = fields[2].split(",")
            if "fail" in flags or "fail?" in flags or "handshake" in flags:
                continue
            replicas += "slave" in flags
            ranges = [tuple(map(int, (word.split("-") * 2)[:2])) for word in fields[8:] if not word.startswith("[")]
            if "master" in flags and ranges:
                owned[port] = ranges
        return owned, replicas


def covers(ranges, slot):
    return any(first <= slot <= last for first, last in ranges)


class Cluster:
    """Three masters, each with a replica. The nodes find what they would have told each other in their folders."""

    def __init__(self, folder):
        self.nodes = []
        for number in range(6):
            place = folder / f"node{number}"
            place.mkdir()
            self.nodes.append(Node(place))
        names = [f"{number:040x}" for number in range(1, 7)]
        for me in self.nodes:
            lines = []
            for number, node in enumerate(self.nodes):
                role = f"slave {names[number - 3]}" if number > 2 else "master -"
                slots = "" if number > 2 else f"{SLOTS * number // 3}-{SLOTS * (number + 1) // 3 - 1}"
                lines.append(f"{names[number]} {node.where()}@{node.bus_port} {'myself,' * (node is me)}{role} "
                             f"0 0 {number + 1} connected {slots}".rstrip())
            (me.folder / "nodes.conf").write_text("\n".join(lines) + "\nvars currentEpoch 6 lastVoteEpoch 0\n")
        for node in self.nodes:
            node.start()
        self.wait_until_whole()

    def end(self):
        for node in self.nodes:
            node.kill()

    def wait_until_whole(self):
        support.wait_until(self.is_whole, "three masters owned all hash slots, and each had a replica in step")

    def is_whole(self):
        for node in self.nodes:
            owned, replicas = node.masters()
            covered = sum(last - first + 1 for ranges in owned.values() for first, last in ranges)
            if covered != SLOTS or replicas != 3:
                return False
            if "cluster_state:ok" not in node.command("CLUSTER", "INFO"):  # masters take no writes for two seconds
                return False
            if "role:slave" in (role := node.command("INFO", "replication")) and "link_status:up" not in role:
                return False
        return True

    def at(self, port):
        return next(node for node in self.nodes if node.port == port)

    def masters(self):
        """The masters, and their hash slots; asks one that answers."""
        owned = self.nodes[0].masters()[0]
        return {self.at(port): ranges for port, ranges in owned.items()}

    def replica_of(self, master):
        return next(node for node in self.nodes
                    if f"master_port:{master.port}\n" in node.command("INFO", "replication").replace("\r", "") + "\n")

    def used_slots(self, node):
        keys = node.command("KEYS", "*").split()
        return sorted({int(node.command("CLUSTER", "KEYSLOT", key)) for key in {key.rsplit(":", 2)[0] for key in keys}})

    def move(self, slot, source, target):
        """A hash slot moves while its keys are used, a few at a time, as redis-cli --cluster reshard does it."""
        number = str(slot)
        source_id, target_id = (node.command("CLUSTER", "MYID") for node in (source, target))
        target.command("CLUSTER", "SETSLOT", number, "IMPORTING", source_id)
        source.command("CLUSTER", "SETSLOT", number, "MIGRATING", target_id)
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", number, "3").split():
            source.command("MIGRATE", "127.0.0.1", str(target.port), "", "0", "10000", "KEYS", *keys)
        for node in (target, source):
            assert node.command("CLUSTER", "SETSLOT", number, "NODE", target_id) == "OK"


class RedisCluster(support.ProgramsBesideFailures):
    cluster = None

    def setUp(self):
        support.need(REDIS and shutil.which("redis-cli"), "redis-server and redis-cli are not installed")
        super().setUp()
        # Whole again after each test.
        if self.cluster is None:
            folder = tempfile.TemporaryDirectory()
            self.addClassCleanup(folder.cleanup)
            type(self).cluster = Cluster(pathlib.Path(folder.name))
            self.addClassCleanup(self.cluster.end)

    def far(self, options):
        return f"redis+cluster://{','.join(node.where() for node in self.cluster.nodes[:2])}?{options}"

    def wait_until_far(self, process):
        support.wait_until(lambda: sum(support.resident_bytes(node.process.pid) for node in self.cluster.masters())
                           >= 48 * support.MIB, "the masters held 48 MiB", process=process)

    def test_hash_slots_that_move_lose_nothing(self):
        """One copy: what moves is followed."""
        process = self.begin_verifier(self.far("timeout=60s"))
        self.wait_until_far(process)
        masters = list(self.cluster.masters())
        for number, source in enumerate(masters):
            for slot in self.cluster.used_slots(source)[:1]:
                self.cluster.move(slot, source, masters[(number + 1) % 3])
        self.assertNotIn("has lost", self.finish_verifier(process))

    def cause(self, fault, process, chance):
        """A fault; returns what mends it."""
        masters = list(self.cluster.masters())
        victim, other = chance.sample(masters, 2)
        if fault == "move":
            for slot in self.cluster.used_slots(victim):
                self.cluster.move(slot, victim, other)
        elif fault == "flush":
            victim.command("FLUSHALL")
        elif fault == "takeover":
            self.cluster.replica_of(victim).command("CLUSTER", "FAILOVER", "TAKEOVER")
        elif fault == "kill":
            replica = self.cluster.replica_of(victim)
            victim.kill()
            # By itself the cluster would fail over as well where a busy machine makes a node wait: a second failure.
            if chance.random() < 0.7:
                replica.command("CLUSTER", "FAILOVER", "TAKEOVER")
            return victim.start
        else:
            victim.signal(signal.SIGSTOP)
            return lambda: victim.signal(signal.SIGCONT)
        return lambda: None

    def test_random_faults_with_two_copies(self):
        far = self.far("copies=2&timeout=1s&prefix=job42")
        chance = random.Random(18)
        for number in range(ROUNDS):
            fault = chance.choice(FAULTS) if support.SOAK else FAULTS[number % len(FAULTS)]
            process = self.begin_verifier(far)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.2, 2.5))
            mend = self.cause(fault, process, chance)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, 4 if support.SOAK else 2))
            mend()
            try:
                self.finish_verifier(process)
            except AssertionError as failure:
                raise AssertionError(f"in round {number}, {fault}: {failure}") from None
            self.cluster.wait_until_whole()
            if support.SOAK:
                print(f"round {number}: {fault}", file=sys.stderr, flush=True)
        print(f"{self.id()}: {ROUNDS} rounds", file=sys.stderr)


if __name__ == "__main__":
    support.main()
