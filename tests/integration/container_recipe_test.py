"""The recipe of the container image, as far as no container engine is needed: what it names exists, and is right."""

import fnmatch
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import support
from farheapd_test import FARHEAPD

SOURCE = pathlib.Path(__file__).resolve().parents[2]
INSTRUCTIONS = {"FROM", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}


def instructions(text):
    """(name, arguments) of each, with continued lines joined and comments left out."""
    kept = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [tuple(line.split(None, 1)) for line in kept.replace("\\\n", " ").splitlines() if line.strip()]


class Recipe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = (SOURCE / "packaging" / "Containerfile").read_text()
        cls.steps = instructions(cls.text)

    def one(self, name):
        found = [arguments for step, arguments in self.steps if step == name]
        self.assertEqual(len(found), 1, f"{name} in {self.steps}")
        return found[0]

    def test_has_nothing_that_is_not_looked_at_here(self):
        self.assertEqual({name for name, _ in self.steps}, INSTRUCTIONS)
        self.assertEqual(self.steps[0][0], "FROM")
        # Root installs, and does not serve.
        names = [name for name, _ in self.steps]
        self.assertLess(names.index("RUN"), names.index("USER"))
        self.assertLess(names.index("COPY"), names.index("RUN"))

    def test_is_for_the_release_that_the_package_is_made_on(self):
        self.assertRegex(self.one("FROM"), r"^debian:[a-z]+-slim$")
        codename = self.one("FROM").split(":")[1].removesuffix("-slim")
        release = pathlib.Path("/etc/os-release").read_text()
        support.need("ID=debian\n" in release, "packages are not made on this distribution")
        self.assertIn(f"VERSION_CODENAME={codename}\n", release)

    def test_installs_the_package_by_the_name_that_it_has(self):
        pattern, folder = self.one("COPY").split()
        made = dict(re.findall(r'set\((\w[\w-]*) "([^"\n]*)"\)', (support.BUILD / "CPackConfig.cmake").read_text()))
        # That is NAME_VERSION_ARCHITECTURE.deb.
        self.assertEqual(made["CPACK_DEBIAN_FILE_NAME"], "DEB-DEFAULT")
        name = f"{made['CPACK_DEBIAN_FARHEAP-SERVER_PACKAGE_NAME']}_{made['CPACK_PACKAGE_VERSION']}_amd64.deb"
        self.assertTrue(fnmatch.fnmatch(name, pattern), (name, pattern))
        folder_of_packages = re.search(r" (build/\S+)\n", self.text)[1]
        self.assertEqual(made["CPACK_OUTPUT_FILE_PREFIX"].rsplit("/", 2)[1:], folder_of_packages.split("/"))
        self.assertIn(f"{folder.rstrip('/')}/{pattern}", self.one("RUN"))

    def test_commands_are_those_of_a_shell(self):
        done = subprocess.run(["sh", "-n"], input=self.one("RUN"), text=True, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # Otherwise a step that fails would be passed over.
        self.assertNotIn(";", self.one("RUN"))

    def test_runs_as_the_user_of_the_service(self):
        user = self.one("USER").strip()
        self.assertIn(f"User={user}\n", (SOURCE / "packaging" / "farheapd.service").read_text())
        self.assertRegex((SOURCE / "packaging" / "farheapd.sysusers").read_text(), rf"(?m)^u!? {user} ")
        self.assertRegex(self.one("RUN"), rf"useradd --system \S.*{user}\)")
        self.assertIn(f"install -d -o {user} -g {user} /run/farheap", self.one("RUN"))
        self.assertIn("RuntimeDirectory=farheap\n", (SOURCE / "packaging" / "farheapd.service").read_text())

    def test_starts_what_the_package_installs(self):
        program, = json.loads(self.one("ENTRYPOINT"))
        with tempfile.TemporaryDirectory() as root:
            done = subprocess.run(["cmake", "--install", support.BUILD, "--component", "farheap-server", "--prefix",
                                   "/usr"], env=dict(os.environ, DESTDIR=root), capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            installed = pathlib.Path(root, program.lstrip("/"))
            self.assertTrue(installed.is_file() and os.access(installed, os.X_OK), program)

    def test_options_are_right(self):
        options = json.loads(self.one("CMD"))
        outcome = support.run([FARHEAPD, "--check", *options], deadline_s=240)
        self.assertEqual(outcome.code, 0, outcome)
        port = re.fullmatch(r"127\.0\.0\.1:(\d+)", options[options.index("--listen") + 1])[1]
        self.assertEqual(self.one("EXPOSE").strip(), port)

    def test_is_built_as_it_says(self):
        command = re.search(r"podman build .*", self.text)[0]
        self.assertIn(command, (SOURCE / "docs" / "server.md").read_text())
        self.assertTrue((SOURCE / command.split(" -f ")[1].split()[0]).is_file())
        self.assertRegex((SOURCE / "Makefile").read_text(), r"(?m)^deb\b.*:")


if __name__ == "__main__":
    support.main()
