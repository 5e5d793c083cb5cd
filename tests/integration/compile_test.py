"""The compile door: the wrappers, the code that the passes emit, and the same results from the programs."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import sys
import unittest

import support
from compiling import CLANG, CLANGXX, INCLUDE, SOURCES, Directory, compiled, functions_of

sys.path.insert(0, str(support.SOURCE / "tests" / "compiler"))
import random_program  # noqa: E402
import random_shapes  # noqa: E402

# Half of what mixed.cc has at this size.
MIXED_ELEMENTS = 1_000_000
BUDGET = 16 * support.MIB
SEEDS = range(100, 300) if support.SOAK else range(3)
HAS_AVX2 = " avx2 " in pathlib.Path("/proc/cpuinfo").read_text()
# Package libclang-rt-19-dev.
HAS_SANITIZERS = any(pathlib.Path("/usr/lib/llvm-19/lib/clang/19/lib").glob("*/libclang_rt.asan*.a"))
# Guards in loops: shift, mask, table, compare, branch; with mask and table in registers; outside, whether a page has left.
GUARD = re.compile(r"\tmovq\t%\w+, (%\w+)\n\tshrq\t\$12, \1\n\tandq\t__farheap_compiled\(%rip\), \1\n"
                   r"\tmovq\t__farheap_compiled\+8\(%rip\), (%\w+)\n\tcmpb\t\$2, \(\2,\1\)\n\tjae\t")
GUARD_OUTSIDE = re.compile(r"\tmovq\t__farheap_compiled\+16\(%rip\), (%\w+)\n\tcmpq\t\$0, \(\1\)\n\tjne\t")
GUARD_IN_LOOP = re.compile(r"\tmovq\t%\w+, (%\w+)\n\tshrq\t\$12, \1\n\tandq\t%\w+, \1\n\tcmpb\t\$2, \(%\w+,\1\)\n\tjae\t")


class Code(Directory):
    """The code that is emitted for the functions of loops.c."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.report = cls.directory / "report.json"
        common = ["-O3", "-g1", "-S", "-I", INCLUDE, SOURCES / "loops.c"]
        compiled(CLANG, *common, "-emit-llvm", f"--farheap-report={cls.report}", "-o", cls.directory / "loops.ll")
        compiled(CLANG, *common, "-g0", "-o", cls.directory / "loops.s")
        compiled("clang-19", *common, "-emit-llvm", "-o", cls.directory / "plain.ll")
        ir = {name: functions_of((cls.directory / f"{name}.ll").read_text(), r"^define [^@]*@(\w+)\(", r"^}")
              for name in ["loops", "plain"]}
        cls.ir, cls.plain = ir["loops"], ir["plain"]
        cls.assembly = functions_of((cls.directory / "loops.s").read_text(), r"^(\w+):", r"^\.Lfunc_end")

    def streams(self, function):
        """Three go with one call."""
        calls = re.findall(r"call preserve_mostcc void @__farheap_stream\(ptr [^,]*, (.*)\)", self.ir[function])
        return sum(len(re.findall(r"ptr (?!poison)", call)) for call in calls)

    def guards(self, function):
        return len(re.findall(r"call preserve_mostcc void @__farheap_guard(?:_written)?\(", self.ir[function]))

    def test_streams_are_told_once_each(self):
        self.assertEqual({name: self.streams(name) for name in ["sum", "triad", "backwards", "rows", "smooth"]},
                         {"sum": 1, "triad": 3, "backwards": 2, "rows": 1, "smooth": 2})

    def test_loops_stay_vectorised_and_have_nothing_inside(self):
        for name in ["sum", "triad", "backwards", "smooth"]:
            with self.subTest(name):
                wide = re.compile(r"(load|store) <\d+ x ")
                self.assertGreater(len(wide.findall(self.plain[name])), 0)
                self.assertGreater(len(wide.findall(self.ir[name])), 0)
                for block in re.split(r"\n(?=\d+:)", self.ir[name]):
                    if wide.search(block):
                        self.assertNotIn("__farheap", block)

    def test_short_loops_read_nothing_of_the_runtime(self):
        for name in ["sum", "triad", "backwards", "rows", "smooth", "sum_rows"]:
            with self.subTest(name):
                before, after = self.ir[name].split("load ptr, ptr getelementptr inbounds", 1)
                self.assertIn("@__farheap_compiled", after.split("\n", 1)[0])
                self.assertRegex(before, r" = icmp ult i(32|64) %\d+, \d{3,4}\n")

    def test_short_rows_take_a_copy_that_is_as_clang_makes_it(self):
        def wide(text):
            return [text.count(" = load <") for text in re.split(r"\n(?=\d+:)", text)]
        # The split loop, for rows of more than 32768 numbers, has no vectors; rows that are reported take the copy, too.
        self.assertGreater(max(wide(self.plain["sum_rows"])), 0)
        self.assertEqual(sum(wide(self.plain["sum_rows"])), sum(wide(self.ir["sum_rows"])))
        self.assertRegex(self.ir["sum_rows"], r" = icmp ult i64 %\d+, 32769\n")
        self.assertEqual([self.streams(name) for name in ["sum_rows", "pick_rows"]], [2, 2])  # and the rows' addresses
        self.assertEqual(self.guards("pick_rows"), 0)

    def test_nothing_for_memory_that_cannot_be_far_or_is_short(self):
        for name in ["sum_static", "sum_few", "on_stack"]:
            with self.subTest(name):
                self.assertEqual((self.streams(name), self.guards(name)), (0, 0))
                self.assertNotIn("__farheap", self.ir[name])

    def test_tables_of_virtual_functions_and_caught_exceptions_have_no_guards(self):
        source = self.directory / "virtual.cc"
        source.write_text("#include <exception>\nstruct base { virtual long value() const; };\nvoid other();\n"
                          "long call(const base& one) { return one.value(); }\n"
                          "const char* why() {\n  try { other(); }\n"
                          "  catch (const std::exception& one) { return one.what(); }\n  return nullptr;\n}\n")
        report = self.directory / "virtual.json"
        compiled(CLANGXX, "-O2", "-S", f"--farheap-report={report}", source, "-o", self.directory / "virtual.s")
        self.assertNotIn("__farheap_guard", (self.directory / "virtual.s").read_text())
        whys = {json.loads(line)["why"] for line in report.read_text().splitlines()}
        self.assertLessEqual({"static", "just thrown"}, whys)

    def test_guards_are_shared_and_hoisted(self):
        self.assertEqual({name: self.guards(name) for name in ["find", "triad"]}, {"find": 1, "triad": 0})
        counter = self.ir["count"]
        self.assertLess(counter.index("@__farheap_guard"), counter.index("atomicrmw"))
        # One for both counters, in front of the loop, of a frozen address.
        self.assertEqual(len(re.findall(r"@__farheap_guard_written\(ptr %\d+\)", counter)), 1, counter)
        self.assertGreaterEqual(self.guards("pick_until"), 1)

    def test_addresses_that_advance_have_no_guard(self):
        lines = [json.loads(line) for line in self.report.read_text().splitlines()]
        said = {line["function"] for line in lines if line["why"] == "mostly in order"}
        self.assertEqual(said & {"unescape", "hop", "turn", "look_back"}, {"unescape"})
        guarded = {line["function"] for line in lines if line["kind"] == "guard" and line["done"]}
        self.assertLessEqual({"hop", "turn", "look_back"}, guarded)

    def test_independent_guards_are_checked_together(self):
        batches = {name: self.ir[name].count("call preserve_mostcc void @__farheap_guards(")
                   for name in ["distance", "exchange", "chain"]}
        self.assertEqual(batches, {"distance": 1, "exchange": 0, "chain": 0})
        self.assertEqual([self.guards(name) for name in ["distance", "exchange", "chain"]], [0, 2, 2])
        self.assertRegex(self.ir["distance"], r" = or i8 %\d+, %\d+, .*\n +%\d+ = icmp ugt i8 %\d+, 1, ")

    def test_fields_that_are_surely_on_one_page_share_a_guard(self):
        self.assertEqual({name: self.guards(name) + self.ir[name].count("@__farheap_guards(")
                          for name in ["ends", "unaligned_ends", "both_pages"]},
                         {"ends": 2, "unaligned_ends": 3, "both_pages": 3})

    def test_a_loop_looks_ahead_for_computed_addresses(self):
        function = self.ir["pick_computed"]
        self.assertEqual(self.guards("pick_computed"), 0)
        self.assertEqual(function.count("@__farheap_look("), 2)  # to request, and to wait
        self.assertEqual(function.count("@__farheap_ahead("), 2)
        lines = [json.loads(line) for line in self.report.read_text().splitlines()]
        self.assertIn(("pick_computed", "gather", True, "read, computed"),
                      {(line["function"], line["kind"], line["done"], line["why"]) for line in lines})

    def test_a_gather_that_is_told_has_no_guards_and_no_second_counter(self):
        self.assertEqual(self.guards("pick"), 0)
        self.assertIn("@__farheap_gather", self.ir["pick"])
        # One number that counts, and the sum, in the loop's longest block.
        block = max(re.split(r"\n(?=\d+:)", self.ir["pick"]), key=lambda text: text.count("load i64"))
        self.assertEqual(len(re.findall(r" = phi i64", block)), 2, block)
        lines = [json.loads(line) for line in self.report.read_text().splitlines()]
        self.assertIn(("pick", "its loop reports the gather"), {(line["function"], line["why"]) for line in lines})

    def test_a_guard_is_six_instructions_and_three_outside_of_loops(self):
        for name, guard in [("find", GUARD), ("pick_until", GUARD_IN_LOOP), ("value_of_next", GUARD_OUTSIDE)]:
            with self.subTest(name):
                self.assertRegex(self.assembly[name], guard)

    # A page that stays away helps nobody behind, so each read looks for itself.
    def test_objects_are_read_one_by_one_and_written_with_their_pages(self):
        report = self.directory / "objects.json"
        compiled(CLANG, "-O3", "-g1", "-S", "-emit-llvm", "-ffar-objects=128", f"--farheap-report={report}", "-I",
                 INCLUDE, SOURCES / "loops.c", "-o", self.directory / "objects.ll")
        text = (self.directory / "objects.ll").read_text()
        self.assertRegex(text, "@far_compiled_object_bytes = weak .*constant i32 128")
        self.assertNotIn("far_compiled_object_bytes", "".join(self.ir.values()))
        ir = functions_of(text, r"^define [^@]*@(\w+)\(", r"^}")
        reads = {name: code.count("call preserve_mostcc i64 @__farheap_read(") for name, code in ir.items()}
        guards = {name: len(re.findall(r"void @__farheap_guard(?:_written)?\(", code)) for name, code in ir.items()}
        self.assertEqual((reads["triad"], guards["triad"]), (0, 0))
        self.assertGreater(reads["find"], self.guards("find"))
        self.assertEqual(guards["find"], 0)
        self.assertEqual((reads["count"], guards["count"]), (0, self.guards("count")))  # an atomic update
        whys = {json.loads(line)["why"] for line in report.read_text().splitlines()}
        self.assertIn("read, as an object", whys)

    def test_the_report_and_the_remarks_say_why(self):
        lines = [json.loads(line) for line in self.report.read_text().splitlines()]
        said = {(line["function"], line["kind"], line["done"], line["why"]) for line in lines}
        self.assertLessEqual({("triad", "stream", True, "overwritten, step 8"), ("find", "guard", True, "read"),
            ("find", "guard", False, "behind an access of the same object"),
            ("until", "stream", False, "the loop has more than one exit, or not at its end"),
            ("find", "loop", False, "no access of it that may be far is a stream, gather or column of some length")}, said)
        self.assertTrue(all(line["file"].endswith("loops.c") and line["line"] > 0 for line in lines
                            if line["function"] == "triad"), lines)
        remarks = compiled(CLANG, "-O3", "-c", "-I", INCLUDE, "-Rpass=farheap", SOURCES / "loops.c", "-o", os.devnull)
        self.assertIn("remark: stream: overwritten, step 8 [-Rpass=farheap]", remarks)

    def test_only_what_nobody_can_read_before_is_overwritten(self):
        lines = [json.loads(line) for line in self.report.read_text().splitlines()]
        said = {(line["function"], line["why"]) for line in lines if line["kind"] == "stream" and "written" in line["why"]}
        self.assertLessEqual({(name, "overwritten, step 8") for name in ["triad", "smooth"]}, said)
        kept = {"shift", "of_another", "of_another_type", "every_second", "in_sight", "triple_all", "triple_and_mix"}
        self.assertEqual({name: why for name, why in said if name in kept},
                         {name: f"written, step {16 if name == 'every_second' else 8}" for name in kept})

    def test_what_is_told_covers_what_is_walked(self):
        compiled("clang-19", "-O2", "-c", "-I", INCLUDE, SOURCES / "counting_runtime.c", "-o", self.directory / "counting_runtime.o")
        for level in ["-O2", "-O3"]:
            with self.subTest(level):
                program = self.directory / "walks"
                compiled(CLANG, level, "-I", INCLUDE, SOURCES / "loops.c", "-c", "-o", self.directory / "loops.o")
                compiled(CLANG, "-O1", SOURCES / "walks.c", self.directory / "loops.o", self.directory / "counting_runtime.o", "-o", program)
                self.assertEqual(compiled(program), "counted\n")

    def test_gathers_name_the_pages_of_the_loop_and_no_others(self):
        runtime_object = self.directory / "counting_runtime.o"
        report = self.directory / "gathers.json"
        compiled("clang-19", "-O2", "-c", "-I", INCLUDE, SOURCES / "counting_runtime.c", "-o", runtime_object)
        for level in ["-O2", "-O3"]:
            with self.subTest(level):
                program = self.directory / "gathers"
                report.unlink(missing_ok=True)
                compiled(CLANG, level, "-g1", f"--farheap-report={report}", "-I", INCLUDE, SOURCES / "gathers.c",
                         runtime_object, "-o", program)
                self.assertEqual(compiled(program), "counted\n")
                lines = [json.loads(line) for line in report.read_text().splitlines()]
                said = {(line["function"], line["done"], line["why"]) for line in lines if line["kind"] == "gather"}
                streams = {(line["done"], line["why"]) for line in lines
                           if line["kind"] == "stream" and line["function"] == "of_divided_rows"}
                self.assertLessEqual({(True, "read, step 4"), (True, "overwritten, step 8")}, streams)
                done = {f"by_{sign}{bits}" for sign in "iu" for bits in [8, 16, 32, 64]}
                done |= {"downwards", "every_third", "of_items", "by_pointers", "that_mends_places"}
                computed = {"hashed", "two_ways"}
                self.assertEqual(said, {(name, True, "read") for name in done} | {
                    *((name, True, "read, computed") for name in computed),
                    ("of_column", True, "read, column of 8 bytes"), ("by_chance", True, "written, computed"),
                    ("twice_indexed", True, "read, computed, followed"), ("sometimes_indexed", True, "read, computed"),
                    ("scatter", True, "written"), ("of_rows", True, "read, rows"), ("of_stretches", True, "written, rows"),
                    ("that_writes", False, "the loop writes to the array of indices"),
                    ("until_negative", False, "the loop has more than one exit, or not at its end")})

    def test_pointers_are_followed_as_the_loop_follows_them_and_not_elsewhere(self):
        runtime_object = self.directory / "counting_runtime.o"
        report = self.directory / "followed.json"
        compiled("clang-19", "-O2", "-c", "-I", INCLUDE, SOURCES / "counting_runtime.c", "-o", runtime_object)
        for level, cxx in [("-O1", False), ("-O2", False), ("-O3", False), ("-O2", True)]:
            with self.subTest(level=level, cxx=cxx):
                program = self.directory / "followed"
                report.unlink(missing_ok=True)
                language = [CLANGXX, "-x", "c++", "-w"] if cxx else [CLANG, "-x", "c"]
                compiled(*language, level, "-g1", f"--farheap-report={report}", "-I", INCLUDE, SOURCES / "followed.c",
                         "-x", "none", runtime_object, "-o", program)
                self.assertEqual(compiled(program), "counted\n")
                said = [json.loads(line) for line in report.read_text().splitlines()]
                said = {(re.sub(r"^_Z\d+|P.*$", "", line["function"]), line["why"])
                        for line in said if line["kind"] == "gather"}
                followed = {"look_up", "look_up_fixed", "look_behind", "update", "that_mends_pointers", "that_asks_first",
                            "that_has_another"} | ({"that_may_stay", "that_skips_marks"} if cxx else set())
                self.assertEqual(said, {(name, "read, computed, followed") for name in followed} |
                                 {("that_mends_keys", "read, computed")})


class Wrapper(Directory):
    def source(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    def test_it_builds_programs_and_libraries_in_steps(self):
        part = self.source("part.c", "long at(long* a, const int* b, int n) { long s = 0;\n"
                                     "for (int i = 0; i < n; ++i) s += a[b[i]]; return s; }\n")
        main = self.source("main.c", "#include <stdio.h>\nlong at(long*, const int*, int);\n"
                                     "int main(void) { long a[] = {1, 2, 4}; int b[] = {0, 2}; printf(\"%ld\\n\", at(a, b, 2)); }\n")
        os.chdir(self.directory)
        compiled(CLANG, "-O2", "-S", part)
        compiled(CLANG, "-c", "part.s", "-o", "part.o")
        self.assertIn("__farheap_gather", pathlib.Path("part.s").read_text())
        self.assertIn("long at(", compiled(CLANG, "-E", part))
        compiled(CLANG, "-O2", "-fPIC", "-shared", part, "-o", "libpart.so")
        for name, inputs in {"static": ["part.o"], "shared": ["-L.", "-lpart", "-Wl,-rpath,."], "whole": [part]}.items():
            with self.subTest(name):
                compiled(CLANG, "-O1", main, *inputs, "-o", name)
                self.assertEqual(compiled(f"./{name}"), "5\n")
        warned = compiled(CLANG, "-Wall", "-Werror", "-O2", "part.o", "-x", "c", main, "-o", "whole")
        self.assertEqual(warned, "")
        self.assertIn("clang version 19", compiled(CLANG, "--version"))

    @unittest.skipUnless(shutil.which("ld.lld-19"), "there is no lld-19")
    def test_link_time_optimisation_runs_the_passes_in_the_linker(self):
        for option in ["-flto=thin", "-flto", "-flto=full"]:
            with self.subTest(option):
                program = self.directory / "linked"
                compiled(CLANG, "-O2", option, SOURCES / "reader.c", "-o", program)
                self.assertEqual(compiled(program, "pick"), "right\n")
                code = compiled("objdump", "-d", program)
                for call in ["stream", "guard"]:
                    self.assertRegex(code, rf"(call|jmp) .*<__farheap_{call}s?>")

    def test_options_reach_the_passes_in_the_linker(self):
        for option in ["-flto=thin", "-flto", "-flto=full"]:
            with self.subTest(option):
                program = self.directory / "linked"
                report = self.directory / f"report{option}"
                source = SOURCES / "reader.c"
                compiled(CLANG, "-O2", option, f"--farheap-report={report}", source, "-o", program)
                done = [json.loads(line) for line in report.read_text().splitlines()]
                self.assertEqual({one["kind"] for one in done if one["done"]}, {"stream", "gather", "guard"})
                compiled(CLANG, "-O2", option, "--farheap-no-guards", source, "-o", program)
                self.assertNotRegex(compiled("objdump", "-d", program), "(call|jmp) .*<__farheap_guard(_written)?>")

    def test_other_processors_are_left_alone(self):
        part = self.source("walk.c", "long sum(const long* a, const int* b, int n) { long s = 0;\n"
                                     "for (int i = 0; i < n; ++i) s += a[b[i]]; return s; }\n")
        text = self.directory / "walk.s"
        echo = self.source("echo-clang", '#!/bin/sh\n[ "$1" = -dumpversion ] && echo 19.1.7 || echo "$@"\n')
        echo.chmod(0o755)
        for options, has_code in [(["--target=x86_64-linux-gnu"], True), (["-m32"], False), (["-mx32"], False),
                                  (["--target=aarch64-linux-gnu"], False), (["-target", "bpf"], False)]:
            with self.subTest(options):
                compiled(CLANG, "-O2", *options, "-S", part, "-o", text)
                self.assertEqual("__farheap" in text.read_text(), has_code)
                linking = compiled(CLANG, *options, part, environment={"FARHEAP_CLANG": str(echo)})
                self.assertEqual("libfarheap-compiled.a" in linking, has_code)

    def test_options_in_files_count(self):
        part = self.source("one.c", "int main(void) { return 0; }\n")
        quoted = self.directory / "a name"
        for text, made in [(f"-O2 -c {part} -o '{quoted}.o'", f"{quoted}.o"), (f'"{quoted}.o"\n-o "{quoted}"', quoted)]:
            options = self.source("options", text)
            self.assertEqual(compiled(CLANG, "-Wall", "-Werror", f"@{options}"), "")
            self.assertTrue(pathlib.Path(made).exists(), made)
        self.assertIn("__farheap_compiled", compiled("nm", quoted))

    def test_what_is_wrong_is_said_in_one_line(self):
        part = self.source("empty.c", "int nothing;\n")
        object_file = self.directory / "empty.o"
        broken = self.directory / "bin" / "farheap-clang"
        broken.parent.mkdir()
        broken.write_bytes(CLANG.read_bytes())
        broken.chmod(0o755)
        old = self.source("old-clang", "#!/bin/sh\necho 14.0.6\n")
        old.chmod(0o755)
        cases = {
            "unknown option '--farheap-nothing'; --farheap-help lists them": [CLANG, "--farheap-nothing", part],
            "is missing; build Farheap with `make compiler`, or install it again": [broken, "-c", part],
        }
        for message, command in cases.items():
            with self.subTest(message):
                said = compiled(*command, expected=1)
                self.assertIn(message, said)
                self.assertEqual(said.count("\n"), 1, said)
        said = compiled(CLANG, "-c", part, expected=1, environment={"FARHEAP_CLANG": str(old)})
        self.assertRegex(said, r"^farheap-clang: error: FARHEAP_CLANG='.*' has version 14.0.6; the plugin is for clang 19\n$")
        said = compiled(CLANG, "-O2", "-c", f"--farheap-report={self.directory}", part.with_name("part2.c"), expected=1)
        self.assertIn("no such file", said)
        compiled(CLANG, "-c", part, "-o", object_file)

    def test_objects_have_sizes(self):
        for size in ["=0", "=63", "=65", "=4096", "=", "=x"]:
            with self.subTest(size):
                said = compiled(CLANG, f"-ffar-objects{size}", "-c", "nothing.c", expected=1)
                self.assertEqual(said, f"farheap-clang: error: '-ffar-objects{size}': objects are read 64, 128, 256 or "
                                       "512 bytes at a time\n")

    def test_objects_for_the_linker_are_not_linked_without_the_passes(self):
        part = self.source("part-of-it.c", "int part(const int* a, const int* b) { return a[b[0]]; }\n")
        main = self.source("main-of-it.c", "int part(const int*, const int*);\n"
                                           "int main(void) { int a = 7, b = 0; return part(&a, &b); }\n")
        object_file, archive = self.directory / "part-of-it.o", self.directory / "libparts.a"
        usual = self.directory / "main-of-it.o"
        compiled(CLANG, "-O2", "-c", main, "-o", usual)
        compiled(CLANG, "-O2", "-flto", "-c", part, "-o", object_file)
        compiled("ar", "rcs", archive, usual, object_file)
        for given in [[usual, object_file], [archive]]:
            said = compiled(CLANG, *given, "-o", self.directory / "whole", expected=1)
            self.assertEqual(said, f"farheap-clang: error: '{given[-1]}' was compiled with -flto; link it with -flto, too, "
                                   "which is when the passes run\n")
        if shutil.which("ld.lld-19"):
            compiled(CLANG, "-O2", "-flto", usual, object_file, "-o", self.directory / "whole")
            compiled(self.directory / "whole", expected=7)
        compiled("ar", "rcs", archive, "-D", usual)

    def test_a_program_without_the_c_library_runs_natively(self):
        alone = self.source("alone.c", "static int pick(int* const* a, const int* b, long n) {\n"
                                       "  int s = 0;\n  for (long i = 0; i < n && s < 9; ++i) s += *a[b[i]];\n  return s; }\n"
                                       "void _start(void) { int x = 5; int* a[] = {&x}; int b[] = {0, 0};\n"
                                       "  __asm__ volatile(\"\" ::: \"memory\");\n"
                                       "  __asm__ volatile(\"syscall\" :: \"a\"(60), \"D\"(pick(a, b, 2))); }\n")
        program = self.directory / "alone"
        said = compiled(CLANG, "-O2", "-ffreestanding", "-nostdlib", "-static", alone, "-o", program)
        self.assertEqual(said, "farheap-clang: warning: without the C library the program has no far memory; add -lc, or "
                               "--farheap-off\n")
        compiled(program, expected=10)
        self.assertIn("__farheap_compiled", compiled("nm", program))
        self.assertEqual(compiled(CLANG, "--farheap-off", "-O2", "-nostdlib", "-static", alone, "-o", program), "")
        main = self.source("with-c.c", "int main(void) { return 3; }\n")
        self.assertEqual(compiled(CLANG, "-nodefaultlibs", main, "-lc", "-o", program), "")
        self.assertIn("far_compiled_join", compiled("nm", program))
        compiled(program, expected=3)

    def test_help_documents_and_manual_agree(self):
        option = re.compile(r"--farheap-[a-z-]+")
        pages = [support.SOURCE / "docs" / "compile.md", support.SOURCE / "packaging" / "farheap-clang.1"]
        taken = set(option.findall(compiled(CLANG, "--farheap-help")))
        self.assertIn("--farheap-report", taken)
        for page in pages:
            self.assertEqual(set(option.findall(page.read_text().replace("\\-", "-"))), taken, page.name)


class Programs(Directory):
    # The runtime that stands in says that every page is missing and spoils registers, so all slow paths run. The
    # reference is sanitized: a program with undefined behaviour would be a mistake of the generator.
    def random_programs(self, generator, suffix, options):
        runtime_object = self.directory / "counting_runtime.o"
        compiled("clang-19", "-O2", "-c", "-I", INCLUDE, SOURCES / "counting_runtime.c", "-o", runtime_object)
        cxx = suffix == ".cc"

        def check(seed):
            source = self.directory / f"random-{seed}{suffix}"
            source.write_text(generator(seed).text())
            program = source.with_suffix("")
            sanitized = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
            compiled("clang++-19" if cxx else "clang-19", "-w", *(sanitized if HAS_SANITIZERS else ["-O0"]), source,
                     "-o", program)
            right = compiled(program, environment={"ASAN_OPTIONS": "detect_leaks=0"})
            for option in options:
                compiled(CLANGXX if cxx else CLANG, "-w", "-Xclang", "-llvm-verify-each", *option.split(), source,
                         runtime_object, "-o", program)
                for environment in [{}, {"COUNTING_RUNTIME_WAVERS": "1"}]:
                    found = compiled(program, environment=environment)
                    if found != right:
                        return f"seed {seed} {option} {environment}: {found.strip()} instead of {right.strip()}"
            program.unlink()
            return None

        with concurrent.futures.ThreadPoolExecutor(2) as workers:
            self.assertEqual([wrong for wrong in workers.map(check, SEEDS) if wrong], [])

    def test_random_programs_of_arrays_compute_the_same(self):
        options = ["-O1", "-O2 -ffar-objects", "-O3"]
        self.random_programs(random_program.Program, ".c", options + (["-O2"] if support.SOAK else []))

    def test_random_programs_of_odd_loops_compute_the_same(self):
        options = ["-O2", "-O3 -mavx2" if HAS_AVX2 else "-O3"]
        options += ["-O2 -ffar-objects=512"] + (["-O0", "-O3", "-O3 -ffar-objects"] if support.SOAK else [])
        self.random_programs(random_shapes.Program, ".cc", options)

    def test_a_program_of_everything_computes_the_same(self):
        plain = self.directory / "plain"
        compiled("clang++-19", "-O1", "-std=c++20", SOURCES / "mixed.cc", "-o", plain)
        right = compiled(plain, MIXED_ELEMENTS)
        for level in ["-O0", "-O1", "-O2", "-O3"] if support.SOAK else ["-O0", "-O3"]:
            program = self.directory / "program"
            compiled(CLANGXX, level, "-std=c++20", SOURCES / "mixed.cc", "-o", program)
            self.assertEqual(compiled(program, MIXED_ELEMENTS), right)
            for mode in ["inline", "thread"]:
                with self.subTest(level=level, mode=mode):
                    outcome = support.run_far([program, str(MIXED_ELEMENTS)], BUDGET, "memory:", mode)
                    self.assertEqual((outcome.code, outcome.out), (0, right), outcome)
                    self.assertGreater(outcome.stats["peak_far_bytes"], 0)

    # Without a runtime, with one that says that all is missing, and with far memory.
    def test_odd_corners_of_the_language_compute_the_same(self):
        runtime_object, program = self.directory / "counting_runtime.o", self.directory / "corners"
        compiled("clang-19", "-O2", "-c", "-I", INCLUDE, SOURCES / "counting_runtime.c", "-o", runtime_object)
        common = ["-std=c++20", "-frounding-math", "-w", SOURCES / "corners.cc", "-o"]
        compiled("clang++-19", "-O0", *common, program)
        right = compiled(program)
        options = ["-O1", "-O2 -g", "-O3", "-Os", "-O2 -fno-omit-frame-pointer -fstack-protector-all"]
        options += ["-O2 -ffar-objects"]
        options += ["-O3 -flto=full", "-O3 -flto=thin"] if shutil.which("ld.lld-19") else []
        for option in options if support.SOAK else options[2:3]:
            with self.subTest(option):
                part = self.directory / "corners.o"
                compiled(CLANGXX, *option.split(), "-c", *common, part)
                for linked in [[runtime_object], []]:
                    compiled(CLANGXX, *option.split(), part, *linked, "-o", program)
                    self.assertEqual(compiled(program), right)
                for mode in ["inline", "thread"] if support.SOAK else ["inline"]:
                    outcome = support.run_far([program, "24"], BUDGET, "memory:", mode)
                    self.assertEqual((outcome.code, outcome.out), (0, right), outcome)
                    self.assertGreater(outcome.stats["hinted_misses"], 0)

    # Streams and guards find what is missing before the hardware does.
    def test_streams_and_guards_replace_traps(self):
        program, plain = self.directory / "reader", self.directory / "reader-plain"
        compiled(CLANG, "-O3", SOURCES / "reader.c", "-o", program)
        compiled("clang-19", "-O3", SOURCES / "reader.c", "-o", plain)
        for how in ["walk", "pick"]:
            for mode in ["inline", "thread"]:
                with self.subTest(how=how, mode=mode):
                    traps = {}
                    for one in [program, plain]:
                        outcome = support.run_far([one, how], BUDGET, "memory:", mode)
                        self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                        traps[one] = outcome.stats["misses"] - outcome.stats["hinted_misses"]
                    self.assertLess(traps[program] * 5, traps[plain], outcome.stats)

    # Without the pass a guard waits for each missing page. With it, pages are on their way before the loop is there.
    def test_gathers_prefetch(self):
        program, plain = self.directory / "gatherer", self.directory / "gatherer-plain"
        compiled(CLANG, "-O3", SOURCES / "reader.c", "-o", program)
        compiled(CLANG, "-O3", "--farheap-no-streams", SOURCES / "reader.c", "-o", plain)
        for mode in ["inline", "thread"]:
            with self.subTest(mode=mode):
                stats = {}
                for one in [program, plain]:
                    outcome = support.run_far([one, "gather"], BUDGET, "memory:?latency=5us", mode)
                    self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                    stats[one] = outcome.stats
                self.assertLess(stats[program]["misses"] * 3, stats[plain]["misses"], stats)
                self.assertGreater(stats[program]["prefetched_pages"], stats[plain]["misses"] // 2, stats)

    # The loop computes where it reads, and its code looks ahead, also where a pointer leads. Where it cannot, four guards are checked together.
    def test_computed_addresses_and_batches_prefetch(self):
        program = self.directory / "reader"
        compiled(CLANG, "-O3", SOURCES / "reader.c", "-o", program)
        for how, mode in [("pick", "inline"), ("pick", "thread"), ("fours", "thread"), ("chains", "inline")]:
            with self.subTest(how=how, mode=mode):
                outcome = support.run_far([program, how], BUDGET, "memory:?latency=5us", mode)
                self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                self.assertGreater(outcome.stats["prefetched_pages"], 8000, outcome.stats)

    # Objects come without their pages, side by side where a loop looks ahead, and are found again.
    def test_objects_replace_pages(self):
        program = self.directory / "reader"
        compiled(CLANG, "-O3", "-ffar-objects", SOURCES / "reader.c", "-o", program)
        for how, mode in [("pick", "inline"), ("chains", "thread"), ("fours", "inline"), ("gather", "inline")]:
            with self.subTest(how=how, mode=mode):
                outcome = support.run_far([program, how], BUDGET, "memory:?latency=5us", mode)
                self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                self.assertLess(outcome.stats["peak_local_bytes"], BUDGET + support.MIB, outcome.stats)
                if how != "gather":
                    self.assertGreater(outcome.stats["hinted_misses"], 10000, outcome.stats)
                    self.assertLess(outcome.stats["fetched_pages"], 2000, outcome.stats)

    def test_objects_have_what_was_written_last(self):
        program = self.directory / "objects"
        compiled(CLANGXX, "-O2", "-std=c++20", "-pthread", "-ffar-objects=128", SOURCES / "objects.cc", "-o", program)
        for mode in ["inline", "thread"]:
            with self.subTest(mode=mode):
                outcome = support.run_far([program], BUDGET, "memory:", mode)
                self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                self.assertGreater(outcome.stats["hinted_misses"], 10000, outcome.stats)

    # Where the runtime keeps no copies, here because the program does not export what it wants, loops fetch ahead as
    # without the option.
    def test_objects_without_copies_come_with_pages_that_are_fetched_ahead(self):
        part, program = self.directory / "reader.o", self.directory / "reader"
        compiled(CLANG, "-O3", "-ffar-objects", "-c", SOURCES / "reader.c", "-o", part)
        compiled(CLANG, "-O3", part, "-o", program)
        for how, mode in [("pick", "inline"), ("pick", "thread"), ("chains", "inline")]:
            with self.subTest(how=how, mode=mode):
                outcome = support.run_far([program, how], BUDGET, "memory:?latency=5us", mode)
                self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                self.assertGreater(outcome.stats["prefetched_pages"], 8000, outcome.stats)

    # Handlers that interrupt reads, memory that may not be read any more, and small stacks.
    def test_objects_are_read_as_if_the_program_did_it(self):
        program = self.directory / "corners"
        compiled(CLANGXX, "-O2", "-std=c++20", "-ffar-objects", SOURCES / "object_corners.cc", "-o", program)
        for how in ["forks", "jumps", "protected", "stack"]:
            for mode in ["inline", "thread"]:
                with self.subTest(how=how, mode=mode):
                    outcome = support.run_far([program, how], BUDGET, "memory:", mode)
                    self.assertEqual((outcome.code, outcome.out.splitlines()[-1]), (0, "right"), outcome)
                    if how == "jumps":  # copies are found as before
                        self.assertLess(outcome.stats["misses"], 50, outcome.stats)
                    if how == "stack":
                        self.assertLess(max(map(int, re.findall(r"\d+", outcome.out))), 4096, outcome)

    # Their room counts against the limit, so the program runs without far memory; it is not stopped.
    def test_objects_find_no_room_under_a_limit_on_data(self):
        program = self.directory / "reader"
        compiled(CLANG, "-O3", "-ffar-objects", SOURCES / "reader.c", "-o", program)
        limited = ["bash", "-c", 'ulimit -d 13000000 && exec "$@"', "bash", program, "pick"]
        outcome = support.run_far(limited, 16 << 30, "file:")
        self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
        self.assertIn("runs natively", outcome.err)

    def test_the_size_of_objects_is_tuned(self):
        program = self.directory / "reader"
        compiled(CLANG, "-O3", "-ffar-objects", SOURCES / "reader.c", "-o", program)
        tune = [support.FARHEAP, "tune", "--local", BUDGET, "--far", "memory:?latency=5us", "--rounds", "1", "--", program]
        said = compiled(*tune, "pick")
        fetched = dict(re.findall(r"^(whole pages|\d+ B) .* (\d+)$", said, re.MULTILINE))
        self.assertEqual(list(fetched), ["whole pages", "64 B", "128 B", "256 B", "512 B"], said)
        self.assertLess(int(fetched["64 B"]), int(fetched["whole pages"]) / 2, said)
        self.assertRegex(said, r"-ffar-objects=\d+ takes 0\.\d\d of the time|compile without -ffar-objects")
        self.assertIn("ended with exit code 7", compiled(*tune[:-1], "sh", "-c", "exit 7", expected=7))
        self.assertIn("nothing came from the far tier", compiled(*tune[:-1], "true"))
        pages = support.run_far([program, "pick"], BUDGET, "memory:", environment={"FARHEAP_OBJECT_BYTES": "0"}).stats
        self.assertGreater(pages["fetched_pages"], int(fetched["64 B"]) * 2, pages)

    def test_the_environment_starts_the_runtime(self):
        program = self.directory / "reader"
        compiled(CLANG, "-O3", SOURCES / "reader.c", "-o", program)
        path = f"{support.BUILD / 'bin'}:{os.environ['PATH']}"
        said = compiled(program, "walk", environment={"FARHEAP_LOCAL": "16M", "FARHEAP_FAR": "memory:", "PATH": path})
        self.assertRegex(said, r"right\n(?s:.*)farheap: peak local 1\d|farheap: peak local 1\d(?s:.*)right\n")
        said = compiled(program, "walk", expected=127, environment={"FARHEAP_LOCAL": "16M", "PATH": "/nowhere"})
        self.assertIn("FARHEAP_LOCAL is set, and the command farheap cannot be started", said)
        self.assertEqual(compiled(program, "walk"), "right\n")
        compiled(CLANG, "-O0", SOURCES / "reader.c", "-o", program)
        said = compiled(program, "walk", environment={"FARHEAP_LOCAL": "16M", "FARHEAP_FAR": "memory:", "PATH": path})
        self.assertIn("farheap: peak local", said)
        compiled(CLANG, "-O2", "-static", SOURCES / "reader.c", "-o", program)
        self.assertEqual(compiled(program, "pick"), "right\n")


if __name__ == "__main__":
    support.main()
