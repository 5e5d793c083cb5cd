"""The installed files work for others: a small project outside (outside/) is built with them, in every way, and run."""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import support

OUTSIDE = support.SOURCE / "tests" / "integration" / "outside"
COMPILERS = {"gcc": ("gcc", "g++"), "clang": ("clang-19", "clang++-19")}
PLAIN = ("-O2", "-fPIC", "-Wall", "-Wextra", "-Werror")  # flags of a user; none of ours
LONGEST_S = 600
NO_USERFAULTFD = "cannot open a userfaultfd"


def run(*command, **environment):
    """The program's output. It must end with 0, and say nothing on standard error unless it is a compiler or a build."""
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, timeout=LONGEST_S,
                          stdin=subprocess.DEVNULL, env={**os.environ, **environment})
    if NO_USERFAULTFD in done.stderr:
        raise unittest.SkipTest(done.stderr.strip())
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def need_compiler(name):
    support.need(all(shutil.which(program) for program in COMPILERS[name]), f"no {COMPILERS[name][1]} on this machine")
    return COMPILERS[name]


def need_program(name):
    support.need(shutil.which(name), f"no {name} on this machine")


def undefined_symbols(object_file):
    return run("nm", "--undefined-only", "--format=just-symbols", object_file).split()


class Installed(unittest.TestCase):
    """One prefix for all tests, in a place that the build knows nothing of."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.prefix = cls.folder / "prefix"
        run("cmake", "--install", support.BUILD, "--prefix", cls.prefix)

    def configure_outside(self, name, *options):
        folder = self.folder / name
        run("cmake", "-S", OUTSIDE, "-B", folder, "-G", "Ninja", *options)
        return folder

    def programs_are_right(self, folder, programs=("pointers-shared", "pointers-static", "counting", "hints")):
        for program in programs:
            self.assertRegex(run(folder / program), r"^(farheap [0-9.]+: right|4194304 of 4194304|right)\n$")

    def compile(self, compiler, source, *options):
        """Compiles a source to an object file, or something else that the options ask for."""
        output = self.folder / f"{compiler}-{pathlib.Path(source).stem}.o"
        language = [] if str(source).endswith(".c") else ["-std=c++20"]
        run(compiler, *PLAIN, *language, "-I", self.prefix / "include", "-c", source, "-o", output, *options)
        return output

    def test_find_package(self):
        for name in support.of_today(tuple(COMPILERS)):
            with self.subTest(compiler=name):
                c_compiler, cxx_compiler = need_compiler(name)
                folder = self.configure_outside(name, f"-DCMAKE_PREFIX_PATH={self.prefix}", "-DCMAKE_BUILD_TYPE=Release",
                                                f"-DCMAKE_C_COMPILER={c_compiler}", f"-DCMAKE_CXX_COMPILER={cxx_compiler}")
                run("cmake", "--build", folder)
                self.programs_are_right(folder)
                # A program that comes to Farheap by dlopen, and has little room left for thread-local variables.
                program = f"import ctypes; print(ctypes.CDLL('{folder}/libcounter.so').count_far(1 << 20))"
                self.assertEqual(run(sys.executable, "-c", program), f"{1 << 20}\n")

    def test_pkg_config(self):
        environment = {"PKG_CONFIG_PATH": str(next(self.prefix.glob("lib*/**/pkgconfig")))}

        def flags(*options):
            return run("pkg-config", *options, "farheap", **environment).split()

        version = re.search(r"VERSION ([0-9.]+)", (support.BUILD / "CPackConfig.cmake").read_text().replace('"', ""))
        self.assertEqual(flags("--modversion"), [version[1]])
        for name in support.of_today(tuple(COMPILERS), 1):  # the other one
            with self.subTest(compiler=name):
                c_compiler, cxx_compiler = need_compiler(name)
                folder = self.folder / f"pkg-config-{name}"
                folder.mkdir()
                objects = self.compile(cxx_compiler, OUTSIDE / "pointers.cc", *flags("--cflags"))
                libraries = flags("--libs")
                run(cxx_compiler, objects, *libraries, f"-Wl,-rpath,{flags('--variable=libdir')[0]}", "-o", folder / "pointers-shared")
                archive = [word.replace("-lfarheap", "-l:libfarheap.a") for word in flags("--libs", "--static")]
                run(cxx_compiler, objects, *archive, "-o", folder / "pointers-static")
                run(c_compiler, OUTSIDE / "hints.c", *flags("--cflags"), "-o", folder / "hints")
                self.programs_are_right(folder, ["pointers-shared", "pointers-static", "hints"])
                self.assertNotIn("libfarheap", run("ldd", folder / "pointers-static"))

    def test_as_a_part_of_another_project(self):
        # Compiles all of the library, which takes minutes, only in the soak.
        folder = self.configure_outside("fetched", f"-DOUTSIDE_FARHEAP={support.SOURCE}", "-DCMAKE_CXX_FLAGS=-O0",
                                        "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON")
        commands = {entry["file"]: entry["command"]
                    for entry in json.loads((folder / "compile_commands.json").read_text())}
        for file, command in commands.items():
            self.assertNotIn("-Werror", command, "a newer compiler's warning would end the other project's build")
            self.assertNotRegex(file, r"/(evaluation|examples)/|_test\.cc$")
        for option in ("-Wconversion", "-ftls-model", "-fvisibility", "/src"):
            self.assertNotIn(option, commands[str(OUTSIDE / "hints.c")].replace(str(OUTSIDE), ""))
        programs = ["pointers-static", "counting", "hints"] if support.SOAK else ["hints"]
        run("cmake", "--build", folder, "--target", *programs)
        self.programs_are_right(folder, programs)
        self.assertNotIn("farheap", run("cmake", "--install", folder, "--prefix", self.folder / "nothing"))

    def test_headers_need_nothing_but_themselves(self):
        """That each compiles alone, scripts/lint sees where they come from: here it is enough that none is missing."""
        headers = sorted(path.relative_to(self.prefix / "include") for path in self.prefix.glob("include/far/**/*.h"))
        self.assertIn(pathlib.Path("far/unique_ptr.h"), headers)
        (self.folder / "all.cc").write_text("".join(f'#include "{header}"\n' for header in headers))
        self.compile("g++", self.folder / "all.cc", *(["-fsyntax-only"] if support.SOAK else ["-E"]))
        (self.folder / "alone.c").write_text("#include <far/hint.h>\n")
        self.compile("gcc", self.folder / "alone.c", "-fsyntax-only", "-std=c11")

    def test_thread_local_variables_are_read_without_calls(self):
        # The result of a call may be kept by the compiler while a fiber goes on on another thread.
        for name in COMPILERS:
            with self.subTest(compiler=name):
                compilers = need_compiler(name)
                for compiler, source in zip(compilers, ("hints.c", "counter.cc")):
                    self.assertNotIn("__tls_get_addr", undefined_symbols(self.compile(compiler, OUTSIDE / source)))

    def test_the_shared_library_shows_the_public_interface_alone(self):
        library = next(self.prefix.glob("lib*/**/libfarheap.so"))
        names = run("nm", "-D", "--defined-only", "--format=just-symbols", "--demangle", library).splitlines()
        self.assertIn("far::runtime::process()", names)
        for symbol in names:
            self.assertRegex(symbol, r"^(vtable for |typeinfo (name )?for )?far::(page_lost|device_error|csv_error)\b|"
                                   r"^far::(runtime|tag|device|mutex|condition_variable|counting_semaphore|this_fiber)::|"
                                   r"^(void )?far::(column|dataframe)::[^<]*(\(|::storage|append_numbers<)|"
                                   r"^far::(read_csv|export_to_arrow|import_from_arrow)\(|"
                                   r"^far::detail::|"
                                   r"^far_hint_find_view$")
        self.assertRegex(run("readelf", "-d", library), r"soname: \[libfarheap\.so\.0\.\d+\]")

    def test_the_run_door(self):
        program = self.compile("gcc", OUTSIDE / "hints.c").with_suffix("")
        run("gcc", program.with_suffix(".o"), "-o", program)
        self.hinted_run(self.prefix, program)

    def hinted_run(self, prefix, program):
        done = support.run([prefix / "bin" / "farheap", "run", "--local", "16M", "--far", "memory:", "--", program])
        self.assertEqual((done.code, done.out), (0, "right\n"), done)
        self.assertRegex(done.err, r"farheap: peak local 16\.0 MiB of 16\.0 MiB, far [0-9.]+ MiB")
        return done

    def test_the_manual(self):
        for page, words in (("man1/farheap.1.gz", ["farheap run", "--fault-mode", "farheap doctor"]),
                            ("man8/farheapd.8.gz", ["--listen", "--token-file", "127.0.0.1:7070"])):
            path = self.prefix / "share" / "man" / page
            if shutil.which("man"):
                done = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True, timeout=support.DEADLINE_S,
                                      env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C", "MANPAGER": "cat"})
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                text = done.stdout
            else:
                text = gzip.decompress(path.read_bytes()).decode().replace("\\-", "-")
                self.assertTrue(text.startswith(".TH FARHEAP"))
            for word in ["NAME", "SYNOPSIS", "SEE ALSO", *words]:
                self.assertIn(word, text)


class Scopes(unittest.TestCase):
    def test_each_links_only_what_it_builds(self):
        """A library that a scope leaves out is not a target there, and its name goes to the linker as that of a library of the
        system."""
        for scope, target in (("run", "run_door"), ("products", "products")):
            with self.subTest(scope), tempfile.TemporaryDirectory() as folder:
                run("cmake", "-S", support.SOURCE, "-B", folder, "-G", "Ninja", f"-DFARHEAP_SCOPE={scope}",
                    "-DCMAKE_BUILD_TYPE=RelWithDebInfo")
                build = pathlib.Path(folder, "build.ninja").read_text()
                self.assertRegex(build, rf"(?m)^build {target}: phony ")
                self.assertEqual(sorted(set(re.findall(r"-l(?:far|backend|simulation)\w*", build))), [])


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need_program("dpkg-shlibdeps")
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        run("cpack", "--config", support.BUILD / "CPackConfig.cmake", "-D", f"CPACK_OUTPUT_FILE_PREFIX={cls.folder}",
            "-B", cls.folder)

    def package(self, name):
        """Its control fields, and the folder into which it is unpacked."""
        file = next(self.folder.glob(f"{name}_*.deb"))
        root = self.folder / name
        run("dpkg-deb", "-x", file, root)
        fields = run("dpkg-deb", "-f", file, "Package", "Version", "Depends", "Description")
        return fields, root

    def test_the_command(self):
        fields, root = self.package("farheap")
        self.assertRegex(fields, r"(?m)^Depends: .*\blibc6 \(>= [0-9.]+\).*\blibdw1\b")
        for path in ("bin/farheap", "lib/farheap/libfarheap-preload.so", "share/man/man1/farheap.1.gz"):
            self.assertTrue((root / "usr" / path).is_file(), path)
        self.assertEqual(list(root.glob("usr/include")), [])
        done = support.run([root / "usr/bin/farheap", "run", "--local", "16M", "--", "sh", "-c", "echo well"])
        self.assertEqual((done.code, done.out), (0, "well\n"), done)

    def test_the_server(self):
        fields, root = self.package("farheap-server")
        self.assertIn("libfmt", fields)
        self.assertTrue((root / "usr/share/man/man8/farheapd.8.gz").is_file())
        unit = root / "usr/lib/systemd/system/farheapd.service"
        for line in ("--listen 127.0.0.1:", "User=farheap\n", "NoNewPrivileges=yes\n", "ProtectSystem=strict\n"):
            self.assertIn(line, unit.read_text())
        # The options of the unit are such as the program takes.
        options = re.search(r'FARHEAPD_OPTIONS=(.*)"', unit.read_text())[1].replace(":7070", ":0").split()
        process = support.start([root / "usr/bin/farheapd", *options], stdout=subprocess.PIPE)
        try:
            self.assertRegex(process.stdout.readline(), rb"^listening on 127\.0\.0\.1:\d+\n$")
        finally:
            support.end(process)
            process.communicate()

    def test_systemd_takes_the_unit(self):
        need_program("systemd-analyze")
        _, root = self.package("farheap-server")
        exposure = run("systemd-analyze", "security", "--offline=yes", "--no-pager",
                       root / "usr/lib/systemd/system/farheapd.service")
        level = float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", exposure)[1])
        self.assertLess(level, 3, exposure)

    def test_the_library(self):
        fields, root = self.package("libfarheap-dev")
        for name in ("libboost-context-dev", "liburing-dev", "libhiredis-dev", "libc-ares-dev", "liblz4-dev", "libzstd-dev", "libssl-dev"):
            self.assertIn(name, fields)
        paths = {str(path.relative_to(root / "usr")) for path in root.glob("usr/**/*")}
        for path in ("include/far/hint.h", "lib/libfarheap.a", "lib/libfarheap.so", "lib/pkgconfig/farheap.pc",
                     "lib/cmake/farheap/farheap-config.cmake"):
            self.assertIn(path, paths)


if __name__ == "__main__":
    support.main()
