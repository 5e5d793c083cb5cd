"""The compile door: programs with sanitizers, with far memory and natively."""

import pathlib
import shutil
import unittest

import support
from compiling import CLANG, CLANGXX, SOURCES, Directory, compiled

# Package libclang-rt-19-dev.
HAS_SANITIZERS = any(pathlib.Path("/usr/lib/llvm-19/lib/clang/19/lib").glob("*/libclang_rt.dfsan*.a"))
HAS_LLD = shutil.which("ld.lld-19") is not None
# The search for leaks stops the runtime's threads.
WITHOUT_LEAKS = {"ASAN_OPTIONS": "detect_leaks=0", "LSAN_OPTIONS": "detect_leaks=0"}


@unittest.skipUnless(HAS_SANITIZERS, "there are no sanitizers of clang 19")
class Sanitizers(Directory):
    def built(self, *options):
        program = self.directory / "sanitized"
        compiled(CLANG, "-O2", "-Werror", *options, SOURCES / "reader.c", "-o", program)
        self.assertEqual(compiled(program, "gather", environment=WITHOUT_LEAKS), "right\n")
        return program

    def test_programs_with_sanitizers_have_far_memory(self):
        link_time = [["-fsanitize=cfi", "-flto=thin", "-fvisibility=hidden"]] if HAS_LLD else []
        for number, options in enumerate(
                [["-fsanitize=address"], ["-fsanitize=undefined,integer", "-fno-sanitize=unsigned-integer-overflow,unsigned-shift-base"],
                 ["-fsanitize=leak"], ["-fsanitize=safe-stack"], ["-fsanitize=dataflow"],
                 ["-fsanitize=address", "-ffar-objects"], *link_time]):
            program = self.built(*options)
            for mode in support.of_today(support.MODES, number):
                with self.subTest(options, mode=mode):
                    outcome = support.run_far([program, "gather"], 16 * support.MIB, "memory:", mode, environment=WITHOUT_LEAKS)
                    self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                    self.assertGreater(outcome.stats["evicted_pages"], 4000, outcome.stats)

    # They take what the runtime does for the program's doing, and stopped it or went on for ever.
    def test_programs_with_sanitizers_that_note_all_accesses_run_natively(self):
        for option, name in [("memory", "MemorySanitizer"), ("thread", "ThreadSanitizer")]:
            for also in [[], ["-ffar-objects"]]:
                program = self.built(f"-fsanitize={option}", *also)
                with self.subTest(name, also=also):
                    outcome = support.run_far([program, "gather"], 16 * support.MIB, "memory:", "inline")
                    self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                    self.assertRegex(outcome.err, rf"^farheap: warning: a program with {name} has no far memory; .*\n$")

    # What it has labelled, and what a copy of that is labelled.
    def test_labels_of_values_are_as_with_clang(self):
        main = self.directory / "labels.c"
        main.write_text("""
#include <sanitizer/dfsan_interface.h>
#include <stdlib.h>
#include <string.h>
int main(int count, char** words) {
  const size_t bytes = 1 << 20;
  char* const from = calloc(bytes, 1);
  char* const to = calloc(bytes, 1);
  dfsan_set_label(1, from + 1000, 8);
  memcpy(to, from, bytes - (size_t)count);
  long sum = 0;
  for (long i = 0; i < 2000; ++i) sum += to[i * count];
  return dfsan_has_label(dfsan_get_label(sum), 1) ? 7 : 1;
}
""")
        program = self.directory / "labels"
        for options in [[], ["-fno-sanitize=all", "-fsanitize=dataflow"]]:
            compiled(CLANG, "-O2", "-fsanitize=dataflow", *options, main, "-o", program)
            compiled(program, expected=7)
        # Without the sanitizer the passes run.
        text = compiled(CLANG, "-O2", "-fsanitize=dataflow", "-fno-sanitize=dataflow", "-S", SOURCES / "reader.c", "-o", "-")
        self.assertIn("__farheap_gather", text)

    def test_address_sanitizer_finds_what_is_wrong(self):
        main = self.directory / "freed.cc"
        main.write_text("#include <cstdlib>\nint main(int n, char**) {\n  long* a = (long*)std::malloc(1 << 20);\n"
                        "  for (long i = 0; i < 1 << 17; ++i) a[i] = i * n;\n  std::free(a);\n  long sum = 0;\n"
                        "  for (long i = n; i < 1 << 17; i = i * 3 + 1) sum += a[i];\n  return (int)(sum & 1);\n}\n")
        program = self.directory / "freed"
        compiled(CLANGXX, "-O2", "-g", "-fsanitize=address", main, "-o", program)
        said = compiled(program, expected=1)
        self.assertRegex(said, r"heap-use-after-free[^$]*freed\.cc:7")


if __name__ == "__main__":
    support.main()
