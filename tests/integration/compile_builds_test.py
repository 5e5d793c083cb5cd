"""The compile door: what builds ask of the wrappers, and code that is for other systems, or hard to double."""

import collections
import json
import os
import re
import shutil
import unittest

import support
from compiling import CLANG, CLANGXX, INCLUDE, SOURCES, Directory, compiled, functions_of

GATHER = ("long at(const long* a, const unsigned* b, long n);\n"
          "long at(const long* a, const unsigned* b, long n) {\n"
          "  long sum = 0;\n  for (long i = 0; i < n; ++i) sum += a[b[i]];\n  return sum;\n}\n")


class Builds(Directory):
    def source(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    # The C library keeps room for thread-local variables of few libraries that are opened late.
    def test_many_libraries_can_be_opened_late(self):
        part = self.source("part.c", GATHER)
        main = self.source("opener.c", """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char** names) {
  fputs("begun\\n", stderr);
  enum { size = 1 << 20 };
  long* const a = malloc(4 * size * sizeof *a);
  unsigned* const b = malloc(size / 16 * sizeof *b);
  for (unsigned i = 0; i < 4 * size; ++i) a[i] = i;
  for (unsigned i = 0; i < size / 16; ++i) b[i] = i * 2654435761u >> 10;
  for (int i = 1; i < count; ++i) {
    void* const library = dlopen(names[i], RTLD_NOW);
    if (library == NULL) return puts(dlerror()), 1;
    long (*at)(const long*, const unsigned*, long);
    *(void**)&at = dlsym(library, "at");
    printf("%ld\\n", at(a, b, size / 16));
  }
  return 0;
}
""")
        program = self.directory / "opener"
        compiled("clang-19", "-O2", main, "-o", program)
        libraries = [self.directory / f"part-{i}.so" for i in range(8)]
        for library in libraries:
            compiled(CLANG, "-O2", "-ffar-objects", "-fPIC", "-shared", part, "-o", library)
        begun, right = compiled(program, *libraries).split("\n", 1)
        self.assertEqual((begun, right.splitlines()), ("begun", right.splitlines()[:1] * len(libraries)))
        # What is not linked by the wrappers is not started again, least of all in the middle of its run.
        path = f"{support.BUILD / 'bin'}:{os.environ['PATH']}"
        found = compiled(program, *libraries, environment={"FARHEAP_LOCAL": "16M", "FARHEAP_FAR": "memory:", "PATH": path})
        self.assertEqual(found, f"begun\n{right}")
        outcome = support.run_far([program, *libraries], 16 * support.MIB, "memory:", "inline")
        self.assertEqual((outcome.code, outcome.out), (0, right), outcome)
        self.assertGreater(outcome.stats["prefetched_pages"], 8000, outcome.stats)

    def test_headers_and_objects_of_objects_are_not_linked(self):
        header = self.source("part.h", "#pragma once\nstatic inline int part(void) { return 3; }\n")
        main = self.source("main.c", "#include \"part.h\"\nint other(void);\nint main(void) { return part() + other(); }\n")
        other = self.source("other.c", "int other(void);\nint other(void) { return 4; }\n")
        program = self.directory / "program"
        for options in [[header], ["-x", "c-header", header], ["-xc-header", header]]:
            with self.subTest(options[0]):
                said = compiled(CLANG, "-O2", "-Werror", *options, "-o", f"{header}.pch")
                self.assertEqual(said, "")
                compiled(CLANG, "-O2", "-include-pch", f"{header}.pch", main, other, "-o", program)
                compiled(program, expected=7)
        for option in [["-r"], ["-Wl,-r"], ["-Wl,--relocatable"], ["-Xlinker", "-r"]]:
            with self.subTest(option):
                joined = [self.directory / "joined-main.o", self.directory / "joined-other.o"]
                for part, to in zip([main, other], joined):
                    compiled(CLANG, "-O2", "-nostdlib", "-no-pie", *option, part, "-o", to)
                compiled(CLANG, *joined, "-o", program)
                compiled(program, expected=7)

    def test_response_files_may_hold_options_of_the_passes_and_further_files(self):
        part = self.source("responded.c", GATHER)
        report = self.directory / "responded.json"
        text = self.directory / "responded.s"
        inner = self.source("inner", f"--farheap-report='{report}' -S")
        outer = self.source("outer", f"@{inner} -O2 {part}")
        self.assertEqual(compiled(CLANG, "-Werror", f"@{outer}", "-o", text), "")
        self.assertIn("__farheap", text.read_text())
        self.assertTrue(report.read_text())
        self.source("inner", "--farheap-off -S")
        compiled(CLANG, f"@{outer}", "-o", text)
        self.assertNotIn("__farheap", text.read_text())
        # They may be longer than any command line, and have anything in them.
        long = f" -D{'X' * 1000}" * 7_000
        quoted = self.source("quoted.c", '_Static_assert(sizeof NAME == sizeof "a  / b", NAME);\n')
        self.source("inner", r"""--farheap-off -c '-DNAME="a  \\\\ b"'""")
        self.source("outer", f"@{inner} {quoted}" + long)
        self.assertEqual(compiled(CLANG, f"@{outer}", "-o", self.directory / "quoted.o"), "")
        # One without options of ours is passed as it is.
        self.source("inner", "-c -DNAME=" + "'a b'" * 4)
        self.source("outer", f"@{inner} -O2 {part}" + long)
        self.assertEqual(compiled(CLANG, "-Wall", "-Werror", f"@{outer}", "-o", self.directory / "responded.o"), "")
        self.source("inner", f"--farheap-off @{inner}")
        said = compiled(CLANG, f"@{outer}", expected=1)
        self.assertRegex(said, r"^farheap-clang: error: '@.*inner' leads to response files 64 deep; one includes itself\n$")

    # -Wl takes a comma for the end of a word.
    @unittest.skipUnless(shutil.which("ld.lld-19"), "there is no lld-19")
    def test_paths_with_commas_reach_the_linker(self):
        folder, program = self.directory / "one,two", self.directory / "commas"
        folder.mkdir()
        compiled(CLANG, "-O2", "-flto", f"--farheap-report={folder / 'report.json'}", SOURCES / "reader.c", "-o", program)
        self.assertIn('"kind":"gather"', (folder / "report.json").read_text())
        self.assertEqual(compiled(program, "pick"), "right\n")

    # Clang itself is the reference: it prints the words that it was given by a file in the text of a diagnostic.
    def test_words_of_response_files_are_those_that_clang_reads(self):
        texts = [r"""'a\'b' 'c\\d' "e\"f" g\ h""", r"""x'y "z' "p 'q" \'r""", "''a '' \"\" b", "a\r\nb\tc\vd", r"e\\f 'g\h'", "last\\"]
        for text in texts:
            with self.subTest(text):
                given = self.source("given", text)
                wanted = re.findall(r"no such file or directory: '(.*)'", compiled("clang-19", f"@{given}", expected=1))
                self.assertTrue(wanted)
                # An option of ours makes the wrapper read the file itself.
                self.source("given", "--farheap-off " + text)
                said = compiled(CLANG, f"@{given}", expected=1)
                self.assertEqual(re.findall(r"no such file or directory: '(.*)'", said), wanted)

    def echo(self):
        echo = self.source("echo-clang", '#!/bin/sh\n[ "$1" = -dumpversion ] && echo 19.1.7 || printf "%s\\n" "$@"\n')
        echo.chmod(0o755)
        return {"FARHEAP_CLANG": str(echo)}

    def test_files_behind_two_dashes_are_linked_with_the_support(self):
        part = self.source("behind.c", "int part(const int* a, const int* b);\n"
                                      "int part(const int* a, const int* b) { return a[b[0]]; }\n")
        main = self.source("dashed.c", "int part(const int*, const int*);\n"
                                       "int main(void) { int a = 7, b = 0; return part(&a, &b); }\n")
        program = self.directory / "dashed"
        words = self.source("words", f"-O2 -o {program} -- {part.name}")
        for given in [["-O2", "-o", program, "--", part.name, main], [f"@{words}", main],
                      ["--farheap-no-streams", f"@{words}", main]]:
            with self.subTest(given):
                program.unlink(missing_ok=True)
                self.assertEqual(compiled(CLANG, "-Wall", "-Werror", *given, folder=self.directory), "")
                compiled(program, expected=7)
                self.assertIn("__farheap_compiled", compiled("nm", program))
        # Behind it, a word like an option of ours is a file.
        said = compiled(CLANG, "-c", "--", "--farheap-off", expected=1)
        self.assertIn("no such file or directory: '--farheap-off'", said)

    def test_what_clang_links_is_linked_with_the_support(self):
        archive = "-Wl,--whole-archive,libx.a,--no-whole-archive"
        for words, is_linked in [(["-shared", archive], True), (["-Xlinker", "x.o"], True), (["-l", "x"], True),
                                 (["-lx"], True), (["-v"], False), (["-L", "x"], False), (["-c", archive], False),
                                 (["-MJ", "x.json"], False), (["-include-pch", "x.pch"], False),
                                 (["-working-directory", "x"], False), (["-cxx-isystem", "x"], False),
                                 (["-ivfsoverlay", "x"], False), (["-Xarch_host", "-O2"], False),
                                 (["-Xlinker", "-r", "x.o"], False)]:
            with self.subTest(words):
                said = compiled(CLANG, *words, environment=self.echo())
                self.assertEqual("libfarheap-compiled.a" in said, is_linked, said)
        for words, restarts in [(["x.o"], True), (["-shared", "x.o"], False), (["-Wl,-shared", "x.o"], False),
                                (["-Xlinker", "-Bshareable", "x.o"], False)]:
            with self.subTest(words):
                self.assertEqual("__farheap_restart" in compiled(CLANG, *words, environment=self.echo()), restarts)

    def test_one_clang_serves_both_wrappers(self):
        main = self.source("both.cc", "#include <string>\nint main(int count, char**) { return std::string(count, 'a').size() + 6; }\n")
        program = self.directory / "both"
        for clang in ["clang-19", "clang++-19"]:
            with self.subTest(clang):
                compiled(CLANGXX, "-O0", main, "-o", program, environment={"FARHEAP_CLANG": clang})
                compiled(program, expected=7)
                said = compiled(CLANG, "-###", "-xc", main, environment={"FARHEAP_CLANG": clang})
                self.assertNotIn("-lstdc++", said)

    def test_sources_may_come_from_a_pipe_and_be_bitcode(self):
        part = self.source("piped.c", GATHER + "int main(void) { return 7; }\n")
        program = self.directory / "piped"
        script = f"'{CLANG}' -O2 -x c <(cat '{part}') -o '{program}'"
        self.assertEqual(compiled("bash", "-c", script), "")
        compiled(program, expected=7)
        code = self.directory / "piped.bc"
        compiled("clang-19", "-O1", "-emit-llvm", "-c", part, "-o", code)
        renamed = self.directory / "piped.code"
        renamed.write_bytes(code.read_bytes())
        for words in [[code], ["-x", "ir", renamed], ["-xir", renamed]]:
            with self.subTest(words):
                self.assertEqual(compiled(CLANG, "-O2", *words, "-o", program), "")
                compiled(program, expected=7)
                self.assertIn("__farheap_gather", compiled("nm", program))
        said = compiled(CLANG, "-O2", renamed, "-o", program, expected=1)
        self.assertIn("was compiled with -flto", said)

    # It sets how many threads the linker may have, where there is -flto.
    def test_options_about_link_time_optimisation_do_not_ask_for_it(self):
        part = self.source("jobs.c", GATHER)
        text = self.directory / "jobs.s"
        compiled(CLANG, "-O2", "-flto-jobs=2", "-S", part, "-o", text)
        self.assertIn("__farheap_gather", text.read_text())

    @unittest.skipUnless(shutil.which("ld.lld-19"), "there is no lld-19")
    def test_objects_replace_pages_with_link_time_optimisation(self):
        part, program = self.directory / "reader.o", self.directory / "reader"
        for option in ["-flto=thin", "-flto"]:
            compiled(CLANG, "-O3", option, "-ffar-objects", "-c", SOURCES / "reader.c", "-o", part)
            compiled(CLANG, "-O3", option, "-ffar-objects", part, "-o", program)
            with self.subTest(option):
                outcome = support.run_far([program, "pick"], 16 * support.MIB, "memory:?latency=5us", "inline")
                self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                self.assertGreater(outcome.stats["hinted_misses"], 10000, outcome.stats)
                self.assertLess(outcome.stats["fetched_pages"], 2000, outcome.stats)

    # Guards read them.
    def test_without_guards_a_program_asks_for_no_objects(self):
        for also, asks in [([], True), (["--farheap-no-guards"], False)]:
            for option in [[], ["-flto"]]:
                text = compiled(CLANG, "-O2", "-ffar-objects", *also, *option, "-S", "-emit-llvm", SOURCES / "reader.c", "-o", "-")
                with self.subTest(also=also, option=option):
                    asked = re.search(r"^@far_compiled_object_bytes = weak .*constant i32 64", text, re.MULTILINE)
                    self.assertEqual(asked is not None, asks)

    # What is linked again later is optimised now.
    @unittest.skipUnless(shutil.which("ld.lld-19"), "there is no lld-19")
    def test_objects_of_objects_have_the_passes_with_link_time_optimisation(self):
        part = self.source("joined.c", GATHER + "int main(void) { return 7; }\n")
        joined, program = self.directory / "joined.o", self.directory / "joined"
        for option in ["-flto=thin", "-flto"]:
            for relocatable in ["-r", "-Wl,-r"]:
                with self.subTest(option, relocatable=relocatable):
                    compiled(CLANG, "-O2", option, "-nostdlib", "-no-pie", relocatable, part, "-o", joined)
                    self.assertIn("__farheap_gather", compiled("nm", joined))
                    self.assertNotIn("__farheap_restart", compiled("nm", joined))
                    compiled(CLANG, joined, "-o", program)
                    compiled(program, expected=7)

    # Others do not load the passes.
    def test_link_time_optimisation_is_refused_with_other_linkers(self):
        for words, wrong in [(["-fuse-ld=bfd"], "-fuse-ld=bfd"), (["-fuse-ld=lld", "-fuse-ld=gold"], "-fuse-ld=gold"),
                             (["--ld-path=/x/ld.bfd", "-fuse-ld=lld"], "--ld-path=/x/ld.bfd"),
                             (["-r", "-fuse-ld=bfd"], "-fuse-ld=bfd"), (["-fuse-ld=bfd", "-fuse-ld=lld"], ""),
                             (["-fuse-ld=bfd", "--ld-path=/x/ld.lld-19"], ""), (["-fuse-ld=bfd", "-c"], ""),
                             (["-fuse-ld=bfd", "--farheap-off"], ""), (["-fuse-ld=bfd", "-fno-lto"], "")]:
            with self.subTest(words):
                said = compiled(CLANG, "-flto", *words, "x.o", environment=self.echo(), expected=1 if wrong else 0)
                refused = f"farheap-clang: error: -flto needs lld 19; leave {wrong} out\n"
                if wrong:
                    self.assertEqual(said, refused)
                else:
                    self.assertNotIn("error", said)

    # Their objects have no code yet, as those that are named themselves.
    def test_libraries_for_the_linker_are_not_linked_without_the_passes(self):
        main = self.source("main-of-library.c", "int part(const int*, const int*);\n"
                                                "int main(void) { int a = 7, b = 0; return part(&a, &b); }\n")
        part = self.source("part-of-library.c", "int part(const int* a, const int* b);\n"
                                                "int part(const int* a, const int* b) { return a[b[0]]; }\n")
        folder = self.directory / "libraries"
        folder.mkdir()
        late, usual = folder / "late.o", folder / "usual.o"
        archive, thin, plain = folder / "liblate.a", folder / "libthin.a", folder / "libusual.a"
        compiled(CLANG, "-O2", "-flto=thin", "-c", part, "-o", late)
        compiled(CLANG, "-O2", "-c", part, "-o", usual)
        a_long_name = folder / "an-object-with-a-long-name.o"
        a_long_name.write_bytes(late.read_bytes())
        compiled("llvm-ar-19", "rcs", archive, late)
        compiled("llvm-ar-19", "rcs", "--thin", thin, usual, a_long_name)
        compiled("llvm-ar-19", "rcs", plain, usual)
        program = self.directory / "with-library"
        for words, wrong in [([f"-L{folder}", "-llate"], archive), (["-llate", "-L", folder], archive),
                             (["--library-directory", folder, "-l", "late"], archive), ([thin], thin),
                             ([f"-L{folder}", "-l:liblate.a"], archive), ([f"-Wl,-L,{folder},-l,late"], archive),
                             ([f"-Wl,--library-path={folder}", "-Wl,--library=late"], archive),
                             ([f"-Wl,--whole-archive,{archive},--no-whole-archive"], archive),
                             (["-Xlinker", archive], archive)]:
            with self.subTest(words):
                said = compiled(CLANG, main, *words, "-o", program, expected=1)
                self.assertEqual(said, f"farheap-clang: error: '{wrong}' was compiled with -flto; link it with -flto, too, "
                                       "which is when the passes run\n")
                if shutil.which("ld.lld-19"):
                    compiled(CLANG, "-O2", "-flto=thin", main, *words, "-o", program)
                    compiled(program, expected=7)
        # Where the linker looks by itself.
        own = self.directory / "root" / "usr" / "lib"
        own.mkdir(parents=True)
        (own / "liblate.a").write_bytes(archive.read_bytes())
        said = compiled(CLANG, f"--sysroot={self.directory / 'root'}", usual, "-llate", "-o", program, expected=1)
        self.assertIn("/usr/lib/liblate.a' was compiled with -flto", said)
        # A shared library counts more than an archive, unless only archives are asked for.
        compiled(CLANG, "-O2", "-fPIC", "-shared", part, "-o", folder / "liblate.so")
        for words, is_wrong in [([], False), (["-static"], True), (["-Wl,-Bstatic"], True), (["-Wl,-Bstatic,-Bdynamic"], False),
                                (["-Wl,--push-state,-Bstatic,--pop-state"], False)]:
            with self.subTest(words):
                said = compiled(CLANG, *words, main, f"-L{folder}", "-llate", "-Wl,-Bdynamic", "-o", program, expected=int(is_wrong))
                self.assertEqual("was compiled with -flto" in said, is_wrong, said)
        compiled(CLANG, main, f"-L{folder}", "-lusual", "-o", program, environment={"LIBRARY_PATH": str(folder)})
        compiled(program, expected=7)
        (folder / "liblate.so").unlink()
        said = compiled(CLANG, main, "-llate", "-o", program, expected=1, environment={"LIBRARY_PATH": f"/nowhere:{folder}"})
        self.assertIn(f"'{archive}' was compiled with -flto", said)
        # Clang's own folders come before those of the environment and of words for the linker.
        (folder / "libz.a").write_bytes(archive.read_bytes())
        (own / "libz.a").write_bytes(plain.read_bytes())
        for words, environment in [([], {"LIBRARY_PATH": str(folder)}), ([f"-Wl,-L,{folder}"], {})]:
            with self.subTest(words, environment=environment):
                said = compiled(CLANG, f"--sysroot={self.directory / 'root'}", "-nostdlib", "-r", usual, *words, "-lz", "-o",
                                program, environment=environment)
                self.assertEqual(said, "")
        # Data that is linked as bytes.
        compiled(CLANG, "-r", "-nostdlib", f"-Wl,-b,binary,{late},-b,elf64-x86-64", usual, "-o", program)

    def test_configuration_files_may_hold_options_of_the_passes_and_of_clang(self):
        part = self.source("configured.c", GATHER)
        folder = self.directory / "configuration"
        folder.mkdir()
        text, report = self.directory / "configured.s", self.directory / "configured.json"
        inner = folder / "inner"
        inner.write_text("# --farheap-off\n  -O2 \\\n  -DX=\"a b\"\n-DFOLDER=<CFGDIR>/x\n")
        outer = folder / "outer.cfg"
        for own, has_code in [("", True), ("--farheap-off", False), (f"--farheap-report='{report}'", True),
                              ("-m32", False), ("--target=aarch64-linux-gnu", False), ("-flto", False)]:
            outer.write_text(f"{own}\n@inner\n-lm\n")
            for words in [[f"--config={outer}"], ["--config", outer], [f"--config-user-dir={folder}", "--config=outer.cfg"],
                          [f"@{self.source('configuring', f'--config={outer}')}"]]:
                with self.subTest(own, words=words):
                    said = compiled(CLANG, "-Wall", "-Werror", *words, "-S", part, "-o", text)
                    self.assertEqual(said, "")
                    self.assertEqual("__farheap" in text.read_text(), has_code)
        self.assertTrue(report.read_text())
        outer.write_text("-shared")
        library = self.directory / "libconfigured.so"
        compiled(CLANG, f"--config={outer}", "-fPIC", part, "-o", library)
        self.assertNotIn("__farheap_restart", compiled("nm", library))
        said = compiled(CLANG, "--config=nowhere.cfg", "-S", part, "-o", text, expected=1)
        # Clang may have been built with folders of its own for them, so the words are its.
        self.assertIn("nowhere.cfg", said.splitlines()[0])
        self.assertIn("error: configuration file", said)

    # Clang names them by its mode, and by the target of the command line.
    def test_configuration_files_that_clang_finds_by_itself(self):
        part = self.source("found.c", GATHER)
        text = self.directory / "found.s"
        folder = self.directory / "found"
        folder.mkdir()
        by_user = f"--config-user-dir={folder}"

        def has_code(*words, **environment):
            said = compiled(CLANG, "-Wall", "-Werror", "-O2", *words, "-S", part, "-o", text, environment=environment)
            self.assertEqual(said, "")
            return "__farheap" in text.read_text()

        usual = folder / "clang.cfg"
        for options, is_ours in [("-DX", True), ("-m32", False), ("--target=aarch64-linux-gnu", False), ("-flto -lm", False),
                                 ("-fsanitize=dataflow", False)]:
            usual.write_text(options)
            for where in [by_user, f"--config-system-dir={folder}"]:
                with self.subTest(options, where=where):
                    self.assertEqual(has_code(where), is_ours)
                    self.assertEqual(has_code(where, "-ffar-objects"), is_ours)
        usual.write_text("-flto")
        self.assertTrue(has_code(by_user, "-fno-lto"), "the command line counts more")
        self.assertTrue(has_code(by_user, "--no-default-config"))
        self.assertTrue(has_code(by_user, CLANG_NO_DEFAULT_CONFIG="1"))
        named = folder / "named"
        named.write_text("-fno-lto")
        self.assertTrue(has_code(by_user, f"--config={named}"), "those that are named come behind")
        # The user's come first, and alone.
        (folder / "system").mkdir()
        (folder / "system" / "clang.cfg").write_text("-fno-lto")
        self.assertFalse(has_code(f"--config-system-dir={folder / 'system'}", by_user))
        # By mode and target.
        usual.rename(folder / "clang++.cfg")
        self.assertTrue(has_code(by_user))
        library = self.directory / "found.o"
        compiled(CLANGXX, "-x", "c++", by_user, "-c", part, "-o", library)
        self.assertEqual(library.read_bytes()[:2], b"BC", "bitcode")
        (folder / "x86_64-unknown-linux-gnu.cfg").write_text("-flto")
        self.assertTrue(has_code(by_user))
        self.assertFalse(has_code(by_user, "--target=x86_64-linux-gnu"))
        # Where clang is.
        (folder / "clang-19").symlink_to(shutil.which("clang-19"))
        (folder / "clang.cfg").write_text("-flto")
        self.assertFalse(has_code("-no-canonical-prefixes", FARHEAP_CLANG=str(folder / "clang-19")))
        self.assertFalse(has_code("-no-canonical-prefixes", PATH=f"{folder}:{os.environ['PATH']}"))
        self.assertTrue(has_code(PATH=f"{folder}:{os.environ['PATH']}"), "the one that it links to has no configuration")

    # Bitcode of the door may be compiled again by it.
    def test_bitcode_is_prepared_once(self):
        part = self.source("again.c", GATHER + "long last(long* const* list, long n);\n"
                           "long last(long* const* list, long n) {\n"
                           "  while (n-- > 0) list = (long* const*)list[1];\n  return **list;\n}\n")
        user = self.source("again-user.c", "long at(const long* a, const unsigned* b, long n);\n"
                           "long twice(const long* a, const unsigned* b, long n);\n"
                           "long twice(const long* a, const unsigned* b, long n) { return at(a, b, n) * at(a, b, n / 2); }\n")
        code = self.directory / "again.bc"

        def calls(text):
            return collections.Counter(re.findall(r"__farheap_(?:guard|guards|guard_written|gather|stream|read)\b", text))

        for options in [[], ["--farheap-no-streams"], ["-ffar-objects"]]:
            compiled(CLANG, "-O2", *options, "-emit-llvm", "-c", part, "-o", code)
            once = compiled(CLANG, "-O2", *options, "-S", part, "-o", "-")
            again = compiled(CLANG, "-O2", *options, "-S", code, "-o", "-")
            self.assertTrue(calls(once))
            # A second round of optimization may find that some are needless.
            self.assertEqual(calls(again) - calls(once), collections.Counter(), options)
        # As inlining has it: the caller has had nothing to prepare.
        both = self.directory / "both.bc"
        compiled(CLANG, "-O2", "-emit-llvm", "-c", user, "-o", self.directory / "user.bc")
        linked = shutil.which("llvm-link-19")
        if linked:
            compiled(linked, code, self.directory / "user.bc", "-o", both)
            text = compiled(CLANG, "-O3", "-mllvm", "-inline-threshold=10000", "-S", both, "-o", "-")
            functions = functions_of(text, r"^(\w+):", r"^\.Lfunc_end")
            of_one = calls(functions["at"])
            self.assertTrue(calls(functions["twice"]))
            self.assertEqual(calls(functions["twice"]) - of_one - of_one, collections.Counter())

    def test_what_is_not_linked_is_not_told_of_the_support(self):
        part = self.source("plain.c", "int main(void) { return 7; }\n")
        header = self.source("plain.h", "int plain(void);\n")
        pch = f"{header}.pch"
        compiled(CLANG, "-x", "c-header", header, "-o", pch)
        made = self.directory / "plain.out"
        for options in [["--compile", part], ["--preprocess", part], ["--assemble", part], ["-verify-pch", pch],
                        ["--driver-mode=cpp", part], ["-Xclang", "-fsyntax-only", "-fsyntax-only", part],
                        ["--emit-static-lib", part], ["-c", "-x", "c", part, "-xnone", header]]:
            with self.subTest(options):
                output = [] if options[0] == "-verify-pch" or len(options) > 4 else ["-o", made]
                self.assertEqual(compiled(CLANG, "-Werror", *options, *output, folder=self.directory), "")
        self.assertNotIn(b"__farheap", made.read_bytes())
        # What -x said of a name before is over.
        said = compiled(CLANG, "-x", "c-header", header, "-xnone", part, "-###")
        self.assertIn("c-header", said)
        self.assertIn("19.", compiled(CLANG, "-cc1", "-version"))
        said = compiled(CLANG, "--driver-mode=cl", "/c", part, expected=1)
        self.assertRegex(said, r"^farheap-clang: error: '--driver-mode=cl' is .*; use clang-cl\n$")

    # Outside of loops they are called whenever a page has left, and most pages are here: none saves all registers.
    def test_guards_of_pages_that_are_here_take_few_instructions(self):
        library = next((support.BUILD / "lib").rglob("libfarheap-compiled.a"))
        for call, most in [("__farheap_guard", 16), ("__farheap_guard_written", 16), ("__farheap_guards", 34)]:
            with self.subTest(call):
                code = compiled("objdump", "-d", "--no-show-raw-insn", f"--disassemble={call}", library)
                instructions = re.findall(r"^ +[0-9a-f]+:\t", code, re.MULTILINE)
                self.assertIn(len(instructions), range(5, most + 1), code)

    def test_options_of_the_passes_leave_the_assembler_alone(self):
        part = self.source("part.S", ".globl part\npart: mov $7, %eax\nret\n.section .note.GNU-stack\n")
        main = self.source("main-of-part.c", "int part(void);\nint main(void) { return part(); }\n")
        program = self.directory / "assembled"
        for option in ["-ffar-objects", f"--farheap-report={self.directory / 'report'}"]:
            for also in [["-save-temps=obj"], ["-fno-integrated-as"], []]:
                with self.subTest(option, also=also):
                    self.assertEqual(compiled(CLANG, "-O2", option, *also, part, main, "-o", program), "")
                    compiled(program, expected=7)

    def test_other_systems_are_left_alone(self):
        part = self.source("walk.c", GATHER)
        text = self.directory / "walk.s"
        echo = self.source("echo-clang", '#!/bin/sh\n[ "$1" = -dumpversion ] && echo 19.1.7 || echo "$@"\n')
        echo.chmod(0o755)
        for options, has_code in [(["--target=x86_64-unknown-linux-musl"], True), (["--target=x86_64-w64-mingw32"], False),
                                  (["-target", "x86_64-w64-mingw32", "-m64"], False),
                                  (["--target=x86_64-apple-darwin"], False), (["--target=x86_64-unknown-none"], False),
                                  (["-mcmodel=kernel"], False), (["--target=i686-linux-gnu", "-m64"], True),
                                  (["-m64", "--target=i686-linux-gnu"], True),
                                  (["-m32", "--target=x86_64-linux-gnu"], False)]:
            with self.subTest(options):
                compiled(CLANG, "-O2", *options, "-S", part, "-o", text)
                self.assertEqual("__farheap" in text.read_text(), has_code)
                linking = compiled(CLANG, *options, part, environment={"FARHEAP_CLANG": str(echo)})
                self.assertEqual("libfarheap-compiled.a" in linking, has_code)

    # They save what they use themselves, without vector registers, which no slow path saves.
    def test_functions_that_save_all_registers_are_left_alone(self):
        body = "{\n  while (key != 0 && table[key] != 7) key = table[key];\n  *found = key;\n}\n"
        part = self.source("handlers.c", "extern long *table, *found;\nlong *table, *found;\nstruct frame;\n"
                           f"void usual(long key);\nvoid usual(long key) {body}"
                           "__attribute__((no_caller_saved_registers)) void saving(long key);\n"
                           f"void saving(long key) {body}"
                           "__attribute__((interrupt)) void handler(struct frame* frame, unsigned long error);\n"
                           f"void handler(struct frame* frame, unsigned long error) {{ long key = (long)error; {body}}}\n")
        text = compiled(CLANG, "-O2", "-mgeneral-regs-only", "-S", part, "-o", "-")
        code = functions_of(text, r"^(\w+):", r"^\.Lfunc_end")
        self.assertEqual({name: "__farheap" in code[name] for name in code},
                         {"usual": True, "saving": False, "handler": False})

    # A row of less than 16 KiB would run a copy of the loop.
    def test_assembly_is_not_doubled(self):
        part = self.source("assembly.c", """
#include <stdio.h>
#include <stdlib.h>
long sum(const long* a, long rows, long n);
__attribute__((noinline)) long sum(const long* a, long rows, long n) {
  long all = 0;
  for (long k = 0; k < rows; ++k) {
    for (long i = 0; i < n; ++i) {
      all += a[k * n + i];
      __asm__ volatile("the_only_one_%c0:" : : "i"(7));
    }
  }
  return all;
}
int main(void) {
  long* const a = calloc(1 << 20, sizeof *a);
  a[1 << 19] = 5;
  printf("%ld\\n", sum(a, 1024, 1024));
  return 0;
}
""")
        program = self.directory / "assembly"
        compiled("clang-19", "-O1", part, "-o", program)
        compiled(CLANG, "-O1", part, "-o", program)
        self.assertEqual(compiled(program), "5\n")

    # A copy of inexact arithmetic may round otherwise, so what it leads to is not read.
    def test_pointers_are_not_followed_by_way_of_inexact_arithmetic(self):
        part = self.source("inexact.c", "struct item { long value; };\n"
                           "long total(const float* x, struct item* const* t, long n);\n"
                           "long total(const float* x, struct item* const* t, long n) {\n  long sum = 0;\n"
                           "  for (long i = 0; i < n; ++i) sum += t[(int)(x[i] * 7.1f + 3.3f)]->value;\n  return sum;\n}\n")
        for options, why in [(["-O2"], "read, computed, followed"), (["-O2", "-ffast-math"], "read, computed")]:
            report = self.directory / "inexact.json"
            report.unlink(missing_ok=True)
            compiled(CLANG, *options, f"--farheap-report={report}", "-c", part, "-o", self.directory / "inexact.o")
            said = [json.loads(line) for line in report.read_text().splitlines()]
            self.assertEqual([line["why"] for line in said if line["kind"] == "gather"], [why])

    def test_a_swift_error_has_no_address(self):
        part = self.source("error.c", """
#include <far/local.h>
struct failure;
FAR_FAR __attribute__((swiftcall)) long fails(long n, __attribute__((swift_context)) long* a,
                                              __attribute__((swift_error_result)) struct failure** error);
FAR_FAR __attribute__((swiftcall)) long fails(long n, __attribute__((swift_context)) long* a,
                                              __attribute__((swift_error_result)) struct failure** error) {
  long sum = 0;
  for (long i = 0; i < n; ++i) if (*error == 0) sum += a[i * n];
  *error = (struct failure*)a;
  return sum;
}
""")
        for level in ["-O1", "-O2", "-O3"]:
            compiled(CLANG, level, "-Xclang", "-llvm-verify-each", "-I", INCLUDE, "-c", part, "-o", self.directory / "error.o")

    # Such a program's memcpy() calls its memmove(), or the other way round, also for the parts of a long copy.
    def test_programs_may_have_copies_of_their_own(self):
        for define in [[], ["-DMEMMOVE"]]:
            with self.subTest(define):
                program = self.directory / "own_copies"
                compiled(CLANG, "-O2", *define, SOURCES / "own_copies.c", "-o", program)
                outcome = support.run_far([program], 16 * support.MIB, "memory:", "inline")
                self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                self.assertGreater(outcome.stats["prefetched_pages"], 4000, outcome.stats)


if __name__ == "__main__":
    support.main()
