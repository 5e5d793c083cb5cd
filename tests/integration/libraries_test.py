"""Well-known C and C++ libraries and a server, compiled by farheap-clang, pass their own tests: natively, and with a quarter of
their memory. Sources are those of Debian's packages; a library whose source cannot be had is skipped."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import support

FETCH_DEADLINE_S = 120
SUITE_DEADLINE_S = 1200
CTEST = r"Test +#\d+: (.+?) \.+ *(\w[\w ]*?) +[\d.]+ sec"
AUTOMAKE = r"^(PASS|FAIL|SKIP|XFAIL|ERROR): (\S+)"
BZIP2_FLAGS = "CC=$CC CFLAGS='-O2 -D_FILE_OFFSET_BITS=64'"


@dataclasses.dataclass(frozen=True)
class Library:
    """`build` and `test` are shell commands in the folder of its source, with the compilers in CC and CXX. `verdict`
    matches what each test says of itself, which is the same in every run; there are at least `least` of them."""

    package: str
    build: str
    test: str
    verdict: str
    least: int


def cmake(*options):
    return f"cmake -S . -B made -DCMAKE_BUILD_TYPE=Release {' '.join(options)} && cmake --build made --parallel 2"


def without_addresses(text):
    return re.sub(r"\S+://\S+", "...", text).strip()


class Sources:
    """Debian's source packages, by way of lists that only this test has: the machine's settings stay as they are."""

    def __init__(self, directory):
        self.directory = directory
        lists = directory / "etc"
        lists.mkdir()
        (directory / "lists" / "partial").mkdir(parents=True)
        for path in [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]:
            pattern = {".sources": r"^Types:.*", ".list": r"^deb(?=\s)"}.get(path.suffix)
            if pattern and path.is_file():
                source = "Types: deb-src" if path.suffix == ".sources" else "deb-src"
                (lists / path.name).write_text(re.sub(pattern, source, path.read_text(), flags=re.MULTILINE))
        settings = {"Dir::Etc::SourceList": "/dev/null", "Dir::Etc::SourceParts": lists, "APT::Sandbox::User": "root",
                    "Dir::State::Lists": directory / "lists", "Dir::Cache": directory / "cache"}
        self.options = [f"-o{name}={value}" for name, value in settings.items()]
        self.missing = "there is no apt-get, or no dpkg-source"
        if shutil.which("apt-get") and shutil.which("dpkg-source"):
            self.missing = self.why_not("update")

    def why_not(self, *command):
        """Why apt-get cannot do it, or None."""
        try:
            done = subprocess.run(["apt-get", "-q", *self.options, *command], cwd=self.directory, text=True,
                                  timeout=FETCH_DEADLINE_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
        except subprocess.TimeoutExpired:
            return f"the package archive did not answer within {FETCH_DEADLINE_S} s"
        wrong = [line for line in done.stdout.splitlines() if line.startswith("E:")]
        return without_addresses(wrong[-1]) if wrong else f"code {done.returncode}" if done.returncode else None

    def unpack(self, package):
        """The folder of its source. Skips the test when it cannot be had."""
        support.need(self.missing is None, f"no lists of source packages: {self.missing}")
        reason = self.why_not("source", "--download-only", package)
        support.need(reason is None, f"no source of {package}: {reason}")
        [description] = self.directory.glob(f"{package}_*.dsc")
        target = self.directory / package
        subprocess.run(["dpkg-source", "--no-check", "-x", description, target], check=True, timeout=FETCH_DEADLINE_S,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return target


def is_of_the_door(path):
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF" and b"__farheap_compiled" in file.read()


class Libraries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        kept = tempfile.TemporaryDirectory(dir=os.environ.get("FARHEAP_DIR", "/var/tmp"))
        cls.addClassCleanup(kept.cleanup)
        cls.sources = Sources(pathlib.Path(kept.name))

    def verdicts(self, library, outcome):
        self.assertEqual(outcome.code, 0, outcome)
        found = sorted(re.findall(library.verdict, outcome.out + outcome.err, re.MULTILINE))
        self.assertGreaterEqual(len(found), library.least, outcome)
        return found

    def check(self, *recipe):
        """Builds it once; its tests then give the same verdicts natively and in each fault mode."""
        library = Library(*recipe)
        folder = self.sources.unpack(library.package)
        options = {"environment": {"PATH": f"{support.BUILD / 'bin'}:{os.environ['PATH']}", "LC_ALL": "C",
                                   "CC": "farheap-clang", "CXX": "farheap-clang++"},
                   "deadline_s": SUITE_DEADLINE_S}
        build, test = (["/bin/sh", "-ec", f"cd '{folder}' && {command}"] for command in (library.build, library.test))
        built = support.run(build, **options)
        self.assertEqual(built.code, 0, built)
        self.assertTrue(any(is_of_the_door(path) for path in folder.rglob("*") if path.is_file()), built)
        native = support.run(test, **options)
        expected = self.verdicts(library, native)
        budget_bytes = max(native.peak_bytes // 4, 16 * support.MIB)
        for mode in ("inline", "thread"):
            with self.subTest(library.package, mode=mode):
                far = support.run_far(test, budget_bytes, far="memory:", mode=mode, **options)
                self.assertEqual(self.verdicts(library, far), expected)
                self.assertIsNotNone(far.stats, far)
                print(f"{library.package}, {mode}: {len(expected)} verdicts; {budget_bytes >> 20} of "
                      f"{native.peak_bytes >> 20} MiB local, {far.stats['fetched_pages']} pages fetched", flush=True)

    def test_zlib(self):
        self.check("zlib", "./configure && make -j2", "make test", r"^\t*\*\*\* (zlib .*) \*\*\*", 2)

    def test_bzip2(self):
        self.check("bzip2", f"make -j2 {BZIP2_FLAGS} bzip2", f"make {BZIP2_FLAGS} test", r"^cmp (.*)", 3)

    def test_lz4(self):
        self.check("lz4", "make -j2 -C tests CC=$CC fuzzer frametest",
                   "cd tests && ./fuzzer -s1 -i300 && ./frametest -v -s1 -i300",
                   r"(all \w+ tests .*|tests? completed.*)", 1)

    def test_zstd(self):
        self.check("libzstd", "make -j2 -C tests CC=$CC fuzzer zstreamtest invalidDictionaries legacy poolTests",
                   "cd tests && ./invalidDictionaries && ./legacy && ./poolTests && ./fuzzer -v -s1 -i100 && "
                   "./zstreamtest -v -s1 -i100 && ./zstreamtest --newapi -s1 -i100", r"^test *(\d+) : .*?: ?OK", 100)

    def test_jansson(self):
        self.check("jansson", cmake("-DJANSSON_BUILD_DOCS=OFF"), "ctest --test-dir made", CTEST, 100)

    def test_cjson(self):
        self.check("cjson", cmake("-DENABLE_CJSON_UTILS=ON"), "ctest --test-dir made", CTEST, 15)

    def test_libsodium(self):
        self.check("libsodium", "autoreconf -fi && ./configure --disable-dependency-tracking && make -j2 && "
                   "make -j2 -C test/default check TESTS=", "make -C test/default check", AUTOMAKE, 60)

    def test_pugixml(self):
        self.check("pugixml", cmake("-DBUILD_TESTING=ON", "-DPUGIXML_BUILD_TESTS=ON"), "made/pugixml-check",
                   r"^(Success: .*)", 1)

    def test_tinyxml2(self):
        self.check("tinyxml2", cmake("-DBUILD_TESTING=ON"), "made/xmltest", r"^\[(pass|fail)\](.*)", 100)

    def test_fmt(self):
        self.check("fmtlib", cmake("-DFMT_DOC=OFF", "-DFMT_TEST=ON"), "ctest --test-dir made", CTEST, 15)

    def test_memcached(self):
        self.check("memcached", "./configure --disable-docs --disable-coverage && make -j2 testapp timedrun memcached-debug",
                   "./testapp && for one in slabs_reassign slabs-reassign2 lru-maintainer; do perl t/$one.t; done",
                   r"^((?:not )?ok \d+ - .*)", 200)


if __name__ == "__main__":
    support.main()
