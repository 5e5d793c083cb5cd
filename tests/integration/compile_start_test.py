"""The compile door: when FARHEAP_LOCAL restarts a program, and guards of libraries whose constructors start threads."""

import os
import subprocess

import support
from compiling import CLANG, CLANGXX, Directory, compiled

FIRST_LINE = ("#include <iostream>\n#include <string>\n"
              "static std::string first = [] { std::string line; std::getline(std::cin, line); return line; }();\n")
LOADER = "/lib64/ld-linux-x86-64.so.2"


class Start(Directory):
    def source(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    # Its input shows what ran twice. It is more than a buffer of the C library holds.
    def started(self, *command, expected=0, local="64M"):
        environment = dict(os.environ, FARHEAP_LOCAL=local, FARHEAP_FAR="memory:",
                           PATH=f"{support.BUILD / 'bin'}:{os.environ['PATH']}")
        done = subprocess.run([str(one) for one in command], input="".join(f"{i}\n" for i in range(100_000)), text=True,
                              capture_output=True, env=environment, timeout=support.DEADLINE_S, check=False)
        self.assertEqual(done.returncode, expected, done)
        return done.stdout, done.stderr

    def test_constructors_of_a_program_run_once(self):
        main = self.source("main.cc", FIRST_LINE + "int main(int count, char** words) {\n"
                           "  std::cout << first << ' ' << count << ' ' << words[count - 1] << '\\n';\n}\n")
        program = self.directory / "program"
        for options in [[], ["-no-pie"], ["-O2", "-Wl,--gc-sections", "-ffunction-sections"], ["-O2", "-static-libstdc++"]]:
            with self.subTest(options):
                self.assertEqual(compiled(CLANGXX, *options, main, "-Wall", "-Werror", "-o", program), "")
                out, said = self.started(program, "word")
                self.assertEqual(out, "0 2 word\n", said)
                self.assertIn("farheap: peak local", said)
                # It was started by hand, not by `farheap run`, which starts no loader.
                if os.path.exists(LOADER):
                    out, said = self.started(LOADER, program, "word")
                    self.assertEqual(out, "0 2 word\n", said)
                    self.assertIn("farheap: peak local", said)
        if os.path.exists(LOADER):
            out, said = self.started(LOADER, "--library-path", self.directory, program, expected=127)
            self.assertEqual(out, "")
            self.assertRegex(said, r"^farheap: FARHEAP_LOCAL is set, and the dynamic loader was started with options, "
                                   r".* LD_LIBRARY_PATH .*, or unset FARHEAP_LOCAL .*\n$")

    # The kernel writes a line feed as a number where it lists what is mapped.
    def test_a_path_may_have_anything_in_it(self):
        main = self.source("named.c", "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 0; }\n")
        for name in ["two\nlines", "of\\012number", " a blank (deleted)", "a\nb\\012c"]:
            with self.subTest(name):
                folder = self.directory / name
                folder.mkdir()
                program = folder / "the\nprogram"
                compiled(CLANG, "-O2", main, "-o", program)
                commands = [[program]] + ([[LOADER, program]] if os.path.exists(LOADER) and "\\" not in name else [])
                for command in commands:
                    out, said = self.started(*command)
                    self.assertEqual(out, "ran\n", said)
                    self.assertIn("farheap: peak local", said)

    def test_constructors_of_libraries_run_once(self):
        part = self.source("part.cc", FIRST_LINE + "std::string at_first();\nstd::string at_first() { return first; }\n")
        main = self.source("user.cc", "#include <iostream>\n#include <string>\nstd::string at_first();\n"
                                      "int main() { std::cout << at_first() << '\\n'; }\n")
        library, program = self.directory / "libpart.so", self.directory / "user"
        for linker in [[], ["-fuse-ld=lld"]]:
            with self.subTest(linker):
                compiled(CLANGXX, "-O2", "-fPIC", *linker, "-shared", part, "-o", library)
                self.assertNotIn("__farheap_restart", compiled("nm", library))
                compiled(CLANGXX, "-O2", *linker, main, library, f"-Wl,-rpath,{self.directory}", "-o", program)
                out, said = self.started(program)
                self.assertEqual(out, "0\n", said)
                self.assertIn("farheap: peak local", said)

    # There is no far memory in it, so it must not run as if there were.
    def test_a_static_program_says_that_it_has_no_far_memory(self):
        main = self.source("static.c", "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 0; }\n")
        program = self.directory / "static"
        for options in [["-static"], ["-static-pie"]]:
            with self.subTest(options):
                compiled(CLANG, "-O2", *options, main, "-o", program)
                self.assertEqual(compiled(program), "ran\n")
                out, said = self.started(program, expected=1)
                self.assertEqual(out, "")
                self.assertRegex(said, r"^farheap: error: '.*/static' is statically linked, .*\n$")

    # A thread may be in the middle of a function that has loaded the table of before the runtime, and not its mask.
    def test_guards_of_a_library_whose_constructor_starts_a_thread_stay_off(self):
        part = self.source("threads.c", """
#include <pthread.h>
#include <unistd.h>
long at(const long* a, const unsigned* b, long n);
long at(const long* a, const unsigned* b, long n) {
  long sum = 0;
  for (long i = 0; i < n; ++i) sum += a[b[i]];
  return sum;
}
#ifdef THREAD
static void* sleep_on(void* none) { for (;;) pause(); return none; }
__attribute__((constructor)) static void begin(void) { pthread_t thread; pthread_create(&thread, 0, sleep_on, 0); }
#endif
""")
        main = self.source("asks.c", """
#include <stdio.h>
#include <stdlib.h>
long at(const long* a, const unsigned* b, long n);
int main(void) {
  enum { size = 4 << 20, asked = 1 << 16 };
  long* const a = malloc(size * sizeof *a);
  unsigned* const b = malloc(asked * sizeof *b);
  for (unsigned i = 0; i < size; ++i) a[i] = i;
  for (unsigned i = 0; i < asked; ++i) b[i] = i * 2654435761u >> 10;
  printf("%ld\\n", at(a, b, asked));
  return 0;
}
""")
        library, program = self.directory / "libthreads.so", self.directory / "asks"
        said = {}
        for options in [(), ("-DTHREAD",)]:
            compiled(CLANG, "-O2", "--farheap-no-streams", "-fPIC", "-shared", *options, part, "-pthread", "-o", library)
            compiled("clang-19", "-O2", main, library, f"-Wl,-rpath,{self.directory}", "-o", program)
            for mode in ["inline", "thread"]:
                outcome = support.run_far([program], 16 * support.MIB, "memory:", mode)
                self.assertEqual(outcome.code, 0, outcome)
                said[options, mode] = outcome
        self.assertEqual(len({one.out for one in said.values()}), 1, said)
        for (options, mode), outcome in said.items():
            with self.subTest(options, mode=mode):
                guarded = outcome.stats["hinted_misses"]
                self.assertTrue(guarded < 100 if options else guarded > 10_000, outcome.stats)


if __name__ == "__main__":
    support.main()
