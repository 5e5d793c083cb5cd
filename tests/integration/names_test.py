"""Programs whose memory servers have names, and move to other addresses of them while the programs run.

Each program sees a hosts file of its own, which the test writes again."""

import os
import selectors
import socket
import subprocess
import threading

import support
from servers_test import Server

PLACES = ("127.0.0.2", "127.0.0.3")


class Relay:
    """Passes on what comes to an address, as if the server was there."""

    def __init__(self, address, port, server):
        self.server = ("127.0.0.1", server.port)
        self.listener = socket.create_server((address, port))
        self.ways = {}
        self.stopping, self.wake = socket.socketpair()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def close(self):
        """Ends every connection, and listens no more."""
        self.wake.close()
        self.thread.join(30)

    def _serve(self):
        with selectors.DefaultSelector() as ready:
            ready.register(self.listener, selectors.EVENT_READ)
            ready.register(self.stopping, selectors.EVENT_READ)
            while self._pass_on(ready, [key.fileobj for key, _ in ready.select()]):
                pass
            for end in (self.listener, self.stopping, *self.ways):
                end.close()

    def _pass_on(self, ready, readable):
        for end in readable:
            if end is self.stopping:
                return False
            if end is self.listener:
                client = end.accept()[0]
                server = socket.create_connection(self.server)
                self.ways.update({client: server, server: client})
                for each in (client, server):
                    ready.register(each, selectors.EVENT_READ)
            elif end in self.ways:
                self._pass_on_from(ready, end)
        return True

    def _pass_on_from(self, ready, end):
        other = self.ways[end]
        try:
            data = end.recv(1 << 18)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for each in (end, other):
                ready.unregister(each)
                del self.ways[each]
                each.close()


class Names(support.ProgramsBesideFailures):
    def setUp(self):
        super().setUp()
        support.need(os.geteuid() == 0, "a hosts file of its own needs root")
        self.hosts = self.folder / "hosts"
        sources = self.folder / "nsswitch.conf"
        sources.write_text("hosts: files\n")
        self.name_places({})
        mounts = f"mount --bind {self.hosts} /etc/hosts && mount --bind {sources} /etc/nsswitch.conf"
        self.surroundings = ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"]
        probe = subprocess.run([*self.surroundings, "true"], capture_output=True, text=True, check=False)
        support.need(probe.returncode == 0, f"mounts are not possible here: {probe.stderr.strip()}")

    def name_places(self, names):
        """The hosts file from now on: each name, and where it leads."""
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in names.items())]
        self.hosts.write_text("\n".join(lines) + "\n")

    def server(self):
        server = Server(self.folder)
        self.addCleanup(server.kill)
        return server

    def relay(self, address, port, server):
        relay = Relay(address, port, server)
        self.addCleanup(relay.close)
        return relay

    def wait_until_said(self, process, text):
        support.wait_until(lambda: text in self.texts()[1], f"the program said {text!r}: {self.texts()[1]}",
                           process=process)

    def wait_until_far(self, process, server):
        support.wait_until(lambda: support.resident_bytes(server.process.pid) >= 16 * support.MIB,
                           f"{server.where()} held 16 MiB", process=process)

    def begin_and_move(self, server, to):
        """A program whose server's name leads to another address, and to what is there, once the server holds bytes."""
        port = support.reserve_port(*PLACES)
        before = self.relay(PLACES[0], port, server)
        self.name_places({"far.test": PLACES[0]})
        process = self.begin_verifier(f"tcp://far.test:{port}?timeout=1s")
        self.wait_until_far(process, server)
        before.close()
        self.name_places({"far.test": PLACES[1]})
        self.relay(PLACES[1], port, to)
        return process, port

    def test_a_server_that_moves_is_found_again(self):
        server = self.server()
        process, _ = self.begin_and_move(server, server)
        self.wait_until_said(process, "has been found at another address of its name")
        self.wait_until_said(process, "answers again")
        self.finish_verifier(process)

    def test_another_server_of_the_name_does_not_end_the_program(self):
        server, stranger = self.server(), self.server()
        process, port = self.begin_and_move(server, stranger)
        self.wait_until_said(process, "another server, without the bytes of this program, answers")
        self.relay(PLACES[0], port, server)
        self.wait_until_said(process, "answers again")
        self.finish_verifier(process)

    def test_children_of_fork_and_added_servers_are_looked_up_too(self):
        """By the same way as servers that move: the C library's tables are in far memory by then."""
        server, added = self.server(), self.server()
        forker = [support.PROGRAMS / "forker", "64", "3"]
        native = support.run(forker)
        self.name_places({"far.test": "127.0.0.1"})
        process = self.begin(forker, f"tcp://far.test:{added.port}")
        self.finish(process, native.out)
        process = self.begin_verifier(f"tcp://far.test:{server.port}?timeout=1s")
        self.wait_until_far(process, server)
        self.name_places({"far.test": "127.0.0.1", "more.test": "127.0.0.1"})
        for name, code in (("more.test", 0), ("missing.test", 1)):
            done = support.run([support.FARHEAP, "add-server", str(process.pid), f"{name}:{added.port}"])
            self.assertEqual(done.code, code, done)
        self.assertIn("the name missing.test has no address now", done.err)
        self.finish_verifier(process)

    def test_a_server_whose_name_has_no_address_yet_takes_part_later(self):
        present, late = self.server(), self.server()
        self.name_places({"first.test": "127.0.0.1"})
        far = f"tcp://first.test:{present.port},second.test:{late.port}?copies=2&timeout=1s"
        process = self.begin_verifier(far)
        self.wait_until_said(process, "Going on without it")
        self.name_places({"first.test": "127.0.0.1", "second.test": "127.0.0.1"})
        self.wait_until_far(process, late)
        self.finish_verifier(process)


if __name__ == "__main__":
    support.main()
