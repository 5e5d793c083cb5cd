"""Tests of the farheap command as a user meets it. Usage: farheap_test.py PATH_OF_FARHEAP"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

FARHEAP = os.path.abspath(sys.argv.pop(1))
NOBODY = 65534

# Prints what `farheap run` handed over. See make_installation().
SHOW = "import json, os, sys; print(json.dumps([dict(os.environ), os.getpid(), sys.argv[1:]]))"


def farheap(*arguments, **options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FARHEAP_")}
    environment.update(options.pop("env", {}))
    return subprocess.run([options.pop("command", FARHEAP), *arguments], capture_output=True, text=True, timeout=240,
                          env=environment, stdin=subprocess.DEVNULL, **options)


class command_test(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="farheap-test-")
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, text, mode=0o755):
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def check_refused(self, code, *arguments, says, **options):
        """One line on standard error that holds `says`; nothing else; exit code `code`."""
        ended = farheap(*arguments, **options)
        self.assertEqual(ended.returncode, code, ended)
        self.assertEqual(ended.stdout, "")
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
        self.assertTrue(ended.stderr.startswith("farheap: error: "), ended.stderr)
        self.assertIn(says, ended.stderr)
        return ended.stderr

    def make_installation(self):
        """A farheap whose runtime is an empty library, so that what it hands over can be seen by any program."""
        os.makedirs(self.path("bin"))
        os.makedirs(self.path("lib"))
        shutil.copy(FARHEAP, self.path("bin/farheap"))
        compiler = shutil.which("cc") or shutil.which("gcc") or self.skipTest("no C compiler")
        subprocess.run([compiler, "-shared", "-x", "c", "/dev/null", "-o", self.path("lib/libfarheap-preload.so")],
                       check=True)
        return self.path("bin/farheap")


class usage_test(command_test):
    def test_commands(self):
        self.check_refused(2, says="the commands are run, trace, tune, resize, add-server, remove-server, stats, top, metrics, report, doctor, help")
        self.check_refused(2, "rn", says="'rn'")
        self.check_refused(2, "help", "rn", says="'rn'")
        for words in (["help"], ["--help"], ["help", "run"], ["run", "--help"], ["doctor", "--help"], ["--version"]):
            ended = farheap(*words)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))
            self.assertIn("farheap", ended.stdout)

    def test_options(self):
        self.check_refused(2, "run", says="no program")
        self.check_refused(2, "run", "--", says="no program")
        self.check_refused(2, "run", "--bogus", "--", "true", says="--bogus")
        self.check_refused(2, "run", "--bogus", "true", says="--bogus")
        self.check_refused(2, "run", "stray", "--", "true", says="stray")
        self.check_refused(2, "run", "--local", says="--local")
        self.check_refused(2, "run", "--local", "1G", "--local", "2G", "--", "true", says="--local")
        self.check_refused(2, "run", "--local=", "--", "true", says="--local")
        self.check_refused(2, "doctor", "--jason", says="--jason")

    def test_budget(self):
        for text in ("lots", "-1G", "0%", "101%", "x%", "15M", "0"):
            self.check_refused(2, "run", "--local=" + text, "--", "true", says="--local: ")
        self.check_refused(2, "run", "--local", "15M", "--", "true", says="16.0 MiB")

    def test_names(self):
        self.check_refused(2, "run", "--policy", "oracle", "--", "true", says="2q, second-chance, fifo")
        self.check_refused(2, "run", "--policy", "second", "--", "true", says="'second'")
        self.check_refused(2, "run", "--policy", "second-chance, fifo", "--", "true", says="2q, second-chance, fifo")
        self.check_refused(2, "run", "--fault-mode", "psychic", "--", "true", says="psychic")
        self.check_refused(2, "run", "--far", "ftp://x", "--", "true", says="ftp")
        self.check_refused(2, "run", "--far", "memory:?latency=soon", "--", "true", says="soon")
        self.check_refused(2, "run", "--far", "memory:?speed=1", "--", "true", says="speed")

    def test_resize_and_stats(self):
        self.check_refused(2, "resize", "12", says="SIZE")
        self.check_refused(2, "resize", "x", "1G", says="'x'")
        self.check_refused(2, "resize", "1", "huge", says="'huge'")
        self.check_refused(1, "resize", str(os.getpid()), "1G", says="farheap run")
        self.check_refused(2, "add-server", "12", says="HOST:PORT")
        self.check_refused(2, "add-server", "12", "cache1", says="'cache1'")
        self.check_refused(1, "add-server", str(os.getpid()), "cache1:7000", says="farheap run")
        self.check_refused(2, "stats", "-5", says="-5")
        self.check_refused(1, "stats", str(os.getpid()), says="farheap run")


class program_test(command_test):
    def test_missing(self):
        self.check_refused(127, "run", "--", "no-such-program-anywhere", says="PATH")
        self.check_refused(127, "run", "--", self.path("none"), says="does not exist")

    def test_not_executable(self):
        self.check_refused(126, "run", "--", self.write("data", "x", 0o644), says="chmod")
        self.check_refused(126, "run", "--", self.directory, says="directory")
        self.check_refused(126, "run", "--", self.write("text", "x\n"), says="#!")
        self.check_refused(126, "run", "--", self.write("lost", "#!/no/interpreter\n"), says="/no/interpreter")

    def test_static(self):
        compiler = shutil.which("cc") or self.skipTest("no C compiler")
        source = self.write("main.c", "int main(void) { return 0; }\n")
        if subprocess.run([compiler, "-static", source, "-o", self.path("static")], capture_output=True).returncode:
            self.skipTest("static linking does not work here")
        self.check_refused(1, "run", "--", self.path("static"), says="statically linked")
        self.check_refused(1, "run", "--", self.write("script", f"#!{self.path('static')}\n"), says="statically linked")


class environment_test(command_test):
    def test_directories_and_files(self):
        self.check_refused(1, "run", "--far", "file:" + self.path("none/x"), "--", "true", says="none/x")
        self.check_refused(1, "run", "--", "true", env={"FARHEAP_DIR": self.path("none")}, says=self.path("none"))
        for wrong, says in (("none/x.json", "none"), (".", "directory"), ("file/x.json", "not a directory")):
            self.write("file", "")
            self.check_refused(1, "run", "--stats-json", self.path(wrong), "--", "true", says=says)

    def test_permission(self):
        message = self.check_refused(1, "run", "--fault-mode", "inline", "--", "true",
                                     env={"FARHEAP_DISABLE": "userfaultfd"}, says="vm.unprivileged_userfaultfd=1")
        self.assertIn("/dev/userfaultfd", message)
        disabled = {"FARHEAP_DISABLE": "userfaultfd_kernel_faults"}
        self.check_refused(1, "run", "--fault-mode", "thread", "--", "true", env=disabled, says="no permission")
        disabled = {"FARHEAP_DISABLE": "sigbus"}
        self.check_refused(1, "run", "--fault-mode", "inline", "--", "true", env=disabled, says="--fault-mode thread")

    def test_runtime_missing(self):
        os.makedirs(self.path("bin"))
        shutil.copy(FARHEAP, self.path("bin/farheap"))
        self.check_refused(1, "run", "--far", "memory:", "--", "true", command=self.path("bin/farheap"),
                           says="lib/libfarheap-preload.so")

    def run_and_show(self, *options, env=None):
        installed = self.make_installation()
        started = subprocess.Popen([installed, "run", *options, "--", sys.executable, "-c", SHOW, "--", "-x", "a b"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.directory,
                                   env={**os.environ, **(env or {})})
        out, err = started.communicate(timeout=240)
        if "no permission for userfaultfd" in err:
            self.skipTest(err)
        self.assertEqual(started.returncode, 0, err)
        environment, pid, arguments = json.loads(out)
        self.assertEqual(pid, started.pid, "the program takes the place of farheap")
        self.assertEqual(arguments, ["--", "-x", "a b"])
        self.assertEqual(environment["FARHEAP_MAIN_PID"], str(pid))
        return environment, err

    def test_everything_is_handed_over(self):
        environment, said = self.run_and_show(
            "--local", "64M", "--far", "memory:?latency=5us", "--fault-mode", "inline", "--policy", "fifo",
            "--stats-json", "stats.json", "--verbose", env={
                "FARHEAP_FAR_UNDER_LIMIT": "of:an-outer-run",
                "LD_PRELOAD": "/lib/x86_64-linux-gnu/libm.so.6",
                "ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.assertEqual(environment["FARHEAP_LOCAL_BYTES"], str(64 << 20))
        self.assertEqual(environment["FARHEAP_FAR"], "memory:?latency=5us")
        self.assertNotIn("FARHEAP_FAR_UNDER_LIMIT", environment)
        self.assertEqual(environment["FARHEAP_FAULT_MODE"], "inline")
        self.assertEqual(environment["FARHEAP_POLICY"], "fifo")
        self.assertEqual(environment["FARHEAP_STATS_JSON"], os.path.realpath(self.directory) + "/stats.json")
        self.assertEqual(environment["FARHEAP_VERBOSE"], "1")
        library = os.path.realpath(self.path("lib/libfarheap-preload.so"))
        self.assertEqual(environment["LD_PRELOAD"], library + ":/lib/x86_64-linux-gnu/libm.so.6")
        self.assertIn("64.0 MiB", said)

    def test_defaults(self):
        environment, said = self.run_and_show("--local", "5%", env={"FARHEAP_STATS_JSON": "/of/an/outer/run"})
        self.assertRegex(environment["FARHEAP_FAR"], r"^(zmem:\d+M\?leave=\d+M,)?file:$")
        self.assertEqual(environment["FARHEAP_FAR_UNDER_LIMIT"], "file:")
        self.assertEqual(environment["FARHEAP_FAULT_MODE"], "auto")
        self.assertEqual(environment["FARHEAP_POLICY"], "2q")
        self.assertNotIn("FARHEAP_STATS_JSON", environment)
        self.assertEqual(environment["FARHEAP_VERBOSE"], "0")
        self.assertEqual(said, "")

    def test_paths_are_for_programs_in_other_directories(self):
        here = os.path.realpath(self.directory)
        os.mkdir(self.path("tier"))
        environment, _ = self.run_and_show("--local", "64M", "--far", "zmem:1G,file:tier?direct=0", env={"FARHEAP_DIR": "tier"})
        self.assertEqual(environment["FARHEAP_FAR"], f"zmem:1G,file:{here}/tier?direct=0")
        self.assertEqual(environment["FARHEAP_DIR"], here + "/tier")

    def test_the_directory_of_temporary_files_is_for_programs_in_other_directories(self):
        os.mkdir(self.path("tier"))
        environment, _ = self.run_and_show("--local", "64M", "--far", "file:", env={"FARHEAP_DIR": "", "TMPDIR": "tier"})
        self.assertEqual((environment["FARHEAP_FAR"], environment["TMPDIR"]), ("file:", "tier"))
        self.assertEqual(environment["FARHEAP_DIR"], os.path.realpath(self.directory) + "/tier")

    def test_the_default_tier_without_a_disk(self):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as ram:
            environment, said = self.run_and_show("--local", "64M", env={"FARHEAP_DIR": ram})
            self.assertEqual(environment["FARHEAP_FAR"], "zmem:")
            self.assertEqual(said, "")

    def test_a_device_is_not_followed(self):
        environment, _ = self.run_and_show("--stats-json", "/dev/stderr")
        self.assertEqual(environment["FARHEAP_STATS_JSON"], "/dev/stderr")


class doctor_test(command_test):
    def test_json_and_text_agree(self):
        machine, text = farheap("doctor", "--json"), farheap("doctor")
        self.assertEqual(machine.returncode, text.returncode)
        document = json.loads(machine.stdout)
        self.assertEqual(document["works"], machine.returncode == 0)
        for one in document["findings"]:
            self.assertIn(one["name"], text.stdout)
            if one["status"] in ("no", "fallback"):
                self.assertTrue(one["advice"], one)
        self.assertEqual(document["works"], all(one["status"] != "no" for one in document["findings"]))

    def status_of(self, name, disable):
        ended = farheap("doctor", "--json", env={"FARHEAP_DISABLE": disable})
        found = {one["name"]: one for one in json.loads(ended.stdout)["findings"]}
        return found[name], ended.returncode

    def test_disabled_features(self):
        found, _ = self.status_of("move", "move")
        self.assertEqual((found["status"], found["value"]), ("fallback", "instead: write-protect, copy, drop; inline mode by "
                                                                   "default, which refuses io_uring, libaio and RDMA"))
        found, code = self.status_of("permission", "userfaultfd")
        self.assertEqual((found["status"], code), ("no", 1))

    def test_an_ordinary_user_is_told_what_to_do(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become somebody else")
        if pathlib.Path("/proc/sys/vm/unprivileged_userfaultfd").read_text().strip() != "0":
            self.skipTest("ordinary users may use userfaultfd here")
        os.chmod(self.directory, 0o755)
        shutil.copy(FARHEAP, self.path("farheap"))
        ended = farheap("doctor", command=self.path("farheap"), user=NOBODY, group=NOBODY, extra_groups=[])
        self.assertRegex(ended.stdout, r"permission +fallback")
        self.assertIn("`farheap run` takes --fault-mode inline", ended.stdout)
        self.assertIn("sysctl vm.unprivileged_userfaultfd=1", ended.stdout)
        self.check_refused(1, "run", "--fault-mode", "thread", "--", "true", command=self.path("farheap"), user=NOBODY, group=NOBODY,
                           extra_groups=[], says="sysctl vm.unprivileged_userfaultfd=1")


class remote_test(command_test):
    """The command's side of the protocol, against a runtime that is a few lines of Python."""

    def serve(self, reply, *arguments):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("\0farheap-%d" % os.getpid())
            listener.listen(1)
            started = subprocess.Popen([FARHEAP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            listener.settimeout(240)
            peer, _ = listener.accept()
            with peer:
                request = peer.recv(4096)
                if reply is not None:
                    peer.send(reply)
            out, err = started.communicate(timeout=240)
            return request, started.returncode, out, err

    def test_resize(self):
        request, code, out, err = self.serve(b"farheap/1 ok\n", "resize", str(os.getpid()), "1G")
        self.assertEqual((request, code, err), (b"farheap/1 resize 1073741824\n", 0, ""))
        self.assertIn("1.00 GiB", out)

    def test_stats(self):
        reply = b'farheap/1 ok {"local_bytes": 2147483648, "misses": 12, "wait_ns": 1500}\n'
        request, code, out, _ = self.serve(reply, "stats", str(os.getpid()), "--json")
        self.assertEqual((request, code), (b"farheap/1 stats\n", 0))
        self.assertEqual(json.loads(out), {"local_bytes": 2147483648, "misses": 12, "wait_ns": 1500})
        _, code, out, _ = self.serve(reply, "stats", str(os.getpid()))
        self.assertEqual(code, 0)
        for part in ("local_bytes", "2.00 GiB", "12", "1.50 us"):
            self.assertIn(part, out)

    def test_top_shows_names_that_are_not_utf8(self):
        comm = pathlib.Path("/proc/self/comm")
        before = comm.read_bytes().rstrip(b"\n")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("\0farheap-%d" % os.getpid())
            listener.listen(8)

            def answer():
                while True:
                    try:
                        peer, _ = listener.accept()
                    except OSError:
                        return
                    with peer:
                        if peer.recv(4096):
                            peer.send(b'farheap/1 ok {"misses": 12}\n')

            answering = threading.Thread(target=answer)
            answering.start()
            try:
                comm.write_bytes(b"caf\xe9")
                ended = farheap("top", "--json", "--once", "--interval", "0.1", str(os.getpid()))
            finally:
                comm.write_bytes(before)
                listener.shutdown(socket.SHUT_RDWR)
                answering.join()
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(json.loads(ended.stdout)["jobs"][0]["program"], "caf\ufffd")

    def test_bad_replies(self):
        for reply, says in ((b"farheap/1 error no\n", "no"), (b"farheap/9 ok\n", "another version"), (b"", "refused"),
                            (None, "refused"), (b"farheap/1 ok nonsense\n", "not JSON")):
            _, code, out, err = self.serve(reply, "stats", str(os.getpid()))
            self.assertEqual((code, out), (1, ""), reply)
            self.assertEqual(err.count("\n"), 1)
            self.assertIn(says, err)


if __name__ == "__main__":
    unittest.main()
