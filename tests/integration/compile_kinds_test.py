"""The compile door: kinds of programs, each beside clang's: modules, precompiled headers, libraries that come and go, linker
scripts, coverage, stacks in parts."""

import json
import os
import shutil
import textwrap
import unittest

import support
from compiling import CLANG, CLANGXX, Directory, compiled

# Most of it is far away under 16 MiB.
PICK = textwrap.dedent("""
    #include <cstdio>
    #include <vector>
    int main() {
      std::vector<long> a(8 << 20);
      std::vector<unsigned> b(1 << 16);
      for (unsigned i = 0; i < a.size(); ++i) a[i] = i;
      for (unsigned i = 0; i < b.size(); ++i) b[i] = i * 2654435761u >> 9;
      std::printf("%ld\\n", pick(a.data(), b.data(), long(b.size())));
    }
""")
RIGHT = f"{sum(i * 2654435761 % (1 << 32) >> 9 for i in range(1 << 16))}\n"
BODY = "{ long sum = 0; for (long i = 0; i < n; ++i) sum += a[b[i]]; return sum; }\n"
FUNCTION = f"pick(const long* a, const unsigned* b, long n) {BODY}"


class Kinds(Directory):
    def source(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    def expect_prefetched(self, program, *arguments, right=RIGHT, least=30_000):
        self.assertEqual(compiled(program, *arguments), right)
        for mode in support.MODES:
            with self.subTest(mode):
                outcome = support.run_far([program, *arguments], 16 * support.MIB, "memory:", mode)
                self.assertEqual((outcome.code, outcome.out), (0, right), outcome)
                self.assertGreater(outcome.stats["prefetched_pages"], least, outcome.stats)

    def test_modules(self):
        inner = self.source("inner.cppm", f"export module picking:inner;\nexport inline long {FUNCTION}")
        outer = self.source("picking.cppm", "export module picking;\nexport import :inner;\n")
        main = self.source("modular.cc", PICK.replace("int main", "import picking;\nint main", 1))
        program = self.directory / "modular"
        options = ["-std=c++20", "-O2", f"-fprebuilt-module-path={self.directory}"]
        interfaces = [(inner, self.directory / "picking-inner.pcm"), (outer, self.directory / "picking.pcm")]
        # In two steps, in one, and as inputs of the linking command.
        for source, made in interfaces:
            compiled(CLANGXX, *options, "--precompile", source, "-o", made)
            compiled(CLANGXX, *options, "-c", made, "-o", made.with_suffix(".o"))
        compiled(CLANGXX, *options, main, *[made.with_suffix(".o") for _, made in interfaces], "-o", program)
        self.expect_prefetched(program)
        compiled(CLANGXX, *options, main, *[made for _, made in interfaces], "-o", program)
        self.assertEqual(compiled(program), RIGHT)
        for option in ["-fno-lto", "-flto=thin"] if shutil.which("ld.lld-19") else ["-fno-lto"]:
            for source, made in interfaces:
                compiled(CLANGXX, *options, option, f"-fmodule-output={made}", "-c", source, "-o", made.with_suffix(".o"))
            compiled(CLANGXX, *options, option, main, *[made.with_suffix(".o") for _, made in interfaces], "-o", program)
            self.expect_prefetched(program)
        # A unit of a header.
        header = self.source("picked.h", f"#pragma once\ninline long {FUNCTION}")
        unit = self.directory / "picked.pcm"
        compiled(CLANGXX, *options, "-fmodule-header", "-xc++-user-header", header, "-o", unit)
        main = self.source("united.cc", PICK.replace("int main", 'import "picked.h";\nint main', 1))
        compiled(CLANGXX, *options, "-Wno-experimental-header-units", f"-fmodule-file={unit}", main, "-o", program)
        self.expect_prefetched(program)

    @unittest.skipUnless(shutil.which("cmake"), "there is no cmake")
    def test_headers_that_cmake_precompiles(self):
        project = self.directory / "precompiled"
        project.mkdir()
        (project / "picked.h").write_text(f"#pragma once\nstatic inline long {FUNCTION}")
        (project / "picked.cc").write_text(PICK)
        (project / "CMakeLists.txt").write_text(textwrap.dedent("""
            cmake_minimum_required(VERSION 3.20)
            project(precompiled CXX)
            add_executable(picked picked.cc)
            target_precompile_headers(picked PRIVATE picked.h <vector>)
        """))
        for options in ["-O2", "-O2 -ffar-objects", "-O2 -g -fpch-instantiate-templates"]:
            with self.subTest(options):
                build = project / f"build{options.replace(' ', '')}"
                compiled("cmake", "-S", project, "-B", build, f"-DCMAKE_CXX_COMPILER={CLANGXX}",
                         f"-DCMAKE_CXX_FLAGS={options} -Wall -Werror -Winvalid-pch")
                compiled("cmake", "--build", build)
                self.assertTrue(list(build.rglob("*.pch")))
                self.expect_prefetched(build / "picked")

    # The runtime writes into what a library holds as long as it is there, and remembers lines of it beyond that.
    def test_libraries_that_are_opened_and_closed_again_and_again(self):
        part = self.source("come-and-go.c", f"long pick(const long* a, const unsigned* b, long n);\nlong {FUNCTION}"
                           "long last(long* const* list, long n);\n"
                           "long last(long* const* list, long n) {\n"
                           "  while (n-- > 0) list = (long* const*)list[1];\n  return **list;\n}\n")
        opener = self.source("come-and-go-opener.c", textwrap.dedent("""
            #include <dlfcn.h>
            #include <pthread.h>
            #include <stdio.h>
            #include <stdlib.h>
            enum { size = 8 << 20, picked = 1 << 10, times = 1500 };
            static long* a;
            static void* run(void* name) {
              long sum = 0;
              unsigned b[picked];
              for (int i = 0; i < times; ++i) {
                for (unsigned k = 0; k < picked; ++k) b[k] = (i * picked + k) * 2654435761u >> 9;
                void* const library = dlopen(name, RTLD_NOW);
                if (library == NULL) return puts(dlerror()), NULL;
                long (*pick)(const long*, const unsigned*, long);
                *(void**)&pick = dlsym(library, "pick");
                long (*last)(long* const*, long);
                *(void**)&last = dlsym(library, "last");
                long value = i, *end[] = {&value, NULL}, *begin[] = {NULL, (long*)end};
                sum += i % 50 == 0 ? pick(a, b, picked) : last(begin, 1);
                if (dlclose(library) != 0) return puts(dlerror()), NULL;
              }
              printf("%ld\\n", sum);
              return NULL;
            }
            int main(int count, char** names) {
              a = malloc(size * sizeof *a);
              for (unsigned i = 0; i < size; ++i) a[i] = i;
              for (int i = 1; i < count; ++i) {
                pthread_t one;
                pthread_create(&one, NULL, run, names[i]);
                pthread_join(one, NULL);
              }
              pthread_t both[2];
              for (int i = 0; i < 2; ++i) pthread_create(&both[i], NULL, run, names[1 + i]);
              for (int i = 0; i < 2; ++i) pthread_join(both[i], NULL);
            }
        """))
        right = None
        for compiler in ["clang-19", CLANG]:
            program, libraries = self.directory / "come-and-go", [self.directory / f"come-and-go-{i}.so" for i in range(2)]
            for library in libraries:
                compiled(compiler, "-O2", "-fPIC", "-shared", part, "-o", library)
            compiled(compiler, "-O2", opener, "-o", program)
            right = right or compiled(program, *libraries)
        self.expect_prefetched(program, *libraries, right=right, least=10_000)

    def test_a_linker_script(self):
        alone = self.source("scripted.c", textwrap.dedent("""
            extern char begins[], ends[];
            static long data[4] = {1, 2, 3, 4};
            __attribute__((noinline)) static long pick(const long* a, const unsigned* b, long n) {
              long sum = 0;
              for (long i = 0; i < n; ++i) sum += a[b[i]];
              return sum;
            }
            void _start(void) {
              unsigned b[] = {0, 3, 3};
              __asm__ volatile("" : : "r"(b) : "memory");
              const long sum = pick(data, b, 3) + (ends - begins > 0);
              __asm__ volatile("syscall" : : "a"(60), "D"(sum));
              __builtin_unreachable();
            }
        """))
        script = self.source("scripted.ld", textwrap.dedent("""
            ENTRY(_start)
            SECTIONS {
              . = 0x400000;
              begins = .;
              .text : { *(.text .text.*) }
              .rodata : { *(.rodata .rodata.*) }
              . = ALIGN(4096);
              .data : { *(.data .data.* .data.rel.ro*) }
              .bss : { *(.bss .bss.* COMMON) }
              ends = .;
              /DISCARD/ : { *(.comment .note* .eh_frame*) }
            }
        """))
        program = self.directory / "scripted"
        options = ["-O2", "-ffreestanding", "-fno-stack-protector", "-nostdlib", "-static", f"-T{script}"]
        for compiler in ["clang-19", CLANG]:
            compiled(compiler, *options, alone, "-o", program)
            compiled(program, expected=10)
        # With the C library, and the linker's own script with a section more.
        main = self.source("extended.cc", f"static inline long {FUNCTION}{PICK}")
        more = self.source("extended.ld", "SECTIONS { .more : { KEEP(*(.more)) } } INSERT AFTER .data;\n")
        compiled(CLANGXX, "-O2", main, f"-Wl,-T,{more}", "-o", program)
        self.expect_prefetched(program)

    def test_a_static_library_takes_the_place_of_the_c_library(self):
        copies = self.source("copies.c", textwrap.dedent("""
            typedef unsigned long size;
            void* memcpy(void* to, const void* from, size bytes) {
              for (size i = 0; i < bytes; ++i) ((char*)to)[i] = ((const char*)from)[i];
              return to;
            }
            void* memset(void* to, int value, size bytes) {
              for (size i = 0; i < bytes; ++i) ((char*)to)[i] = (char)value;
              return to;
            }
        """))
        alone = self.source("with-copies.c", textwrap.dedent("""
            static char first[50000], second[50000];
            char* volatile from = first;
            char* volatile to = second;
            volatile unsigned long bytes = sizeof first;
            void _start(void) {
              __builtin_memset(from, 9, bytes);
              __builtin_memcpy(to, from, bytes);
              __asm__ volatile("syscall" : : "a"(60), "D"(to[bytes - 1]));
              __builtin_unreachable();
            }
        """))
        part, archive, program = (self.directory / name for name in ["copies.o", "libcopies.a", "with-copies"])
        compiled("clang-19", "-O2", "-ffreestanding", "-fno-builtin", "-c", copies, "-o", part)
        compiled("ar", "rcs", archive, part)
        options = ["-O2", "-fno-stack-protector", "-nostdlib", "-static", alone]
        for compiler in ["clang-19", CLANG]:
            for linker in ["bfd", "lld"] if shutil.which("ld.lld-19") else ["bfd"]:
                with self.subTest(compiler, linker=linker):
                    compiled(compiler, *options, f"-fuse-ld={linker}", archive, "-o", program)
                    compiled(program, expected=9)
            # A call of null would be worse than no program.
            self.assertIn("undefined reference to `memcpy'", compiled(compiler, *options, "-o", program, expected=1))

    def test_coverage_counts_the_same(self):
        main = self.source("covered.cc", f"static inline long {FUNCTION}{PICK}")
        tools = {name: shutil.which(f"{name}-19") for name in ["llvm-profdata", "llvm-cov"]}
        if not all(tools.values()):
            self.skipTest("there are no tools of llvm-19")

        def counts(compiler, *run):
            program, profile = self.directory / "covered", self.directory / "covered.profraw"
            compiled(compiler, "-O2", "-fprofile-instr-generate", "-fcoverage-mapping", main, "-o", program)
            outcome = support.run_far([program], 16 * support.MIB, "memory:", *run, environment={"LLVM_PROFILE_FILE": str(profile)}) \
                if run else support.run([program], {"LLVM_PROFILE_FILE": str(profile)})
            self.assertEqual((outcome.code, outcome.out), (0, RIGHT), outcome)
            merged = self.directory / "covered.profdata"
            compiled(tools["llvm-profdata"], "merge", profile, "-o", merged)
            profile.unlink()
            found = json.loads(compiled(tools["llvm-cov"], "export", program, f"-instr-profile={merged}", "--skip-functions"))
            return [one["segments"] for one in found["data"][0]["files"] if one["filename"] == str(main)]

        right = counts("clang++-19")
        self.assertTrue(right[0])
        self.assertEqual(counts(CLANGXX), right)
        for mode in support.MODES:
            self.assertEqual(counts(CLANGXX, mode), right)

        def lines(compiler):
            folder = self.directory / "lines"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            compiled(compiler, "-O2", "--coverage", "-c", main, "-o", folder / "covered.o")
            compiled(compiler, "--coverage", folder / "covered.o", "-o", folder / "covered")
            self.assertEqual(compiled(folder / "covered"), RIGHT)
            return compiled(tools["llvm-cov"], "gcov", "--stdout", "-o", folder, folder / "covered.gcda")

        self.assertEqual(lines(CLANGXX), lines("clang++-19"))

    # A slow path takes more stack than is left of a part.
    def test_functions_whose_stack_is_in_parts_are_left_alone(self):
        part = self.source("split.c", f"long pick(const long* a, const unsigned* b, long n);\nlong {FUNCTION}")
        text = self.directory / "split.s"
        compiled(CLANG, "-O2", "-fsplit-stack", "-S", part, "-o", text)
        self.assertNotIn("__farheap", text.read_text())

    def test_programs_with_calls_for_a_profiler_at_each_entry(self):
        main = self.source("profiled.cc", f"long {FUNCTION}{PICK}")
        program = self.directory / "profiled"
        os.chdir(self.directory)  # where -pg leaves its counts
        for option in ["-pg", "-finstrument-functions", "-fpatchable-function-entry=4,2"]:
            with self.subTest(option):
                compiled(CLANGXX, "-O2", option, main, "-o", program)
                self.expect_prefetched(program)


if __name__ == "__main__":
    support.main()
