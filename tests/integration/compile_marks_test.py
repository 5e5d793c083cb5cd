"""The marks of far/local.h: the code that they make, what stays local or in use, and warnings."""

import json
import re
import shutil
import unittest

import support
from compiling import CLANG, CLANGXX, INCLUDE, SOURCES, Directory, compiled, functions_of

BUDGET = 16 * support.MIB


class Code(Directory):
    """The code that is emitted for the functions of marks.c."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        report = cls.directory / "report.json"
        common = ["-O3", "-S", "-I", INCLUDE, SOURCES / "marks.c"]
        said = compiled(CLANG, *common, "-emit-llvm", f"--farheap-report={report}", "-o", cls.directory / "marks.ll")
        assert said == "", said
        cls.text = (cls.directory / "marks.ll").read_text()
        cls.ir = functions_of(cls.text, r"^define [^@]*@(\w+)\(", r"^}")
        cls.report = [json.loads(line) for line in report.read_text().splitlines()]

    def calls(self, function):
        """The guards, reports of streams, and marks of use in the function."""
        return tuple(len(re.findall(rf"call preserve_mostcc void @__farheap_{what}\(", self.ir[function]))
                     for what in ["guards?", "stream", "hot"])

    def test_what_is_said_to_be_local_gets_nothing(self):
        names = ["left_alone", "of_local_data", "of_local_region", "of_local_memory", "of_local_argument"]
        self.assertEqual({name: self.calls(name) for name in names}, {name: (0, 0, 0) for name in names})
        guards, streams, _ = self.calls("of_data")
        self.assertGreater(min(guards, streams), 0)
        self.assertEqual([self.calls(name)[0] for name in ["of_local_member", "of_member"]], [1, 2])
        self.assertEqual(self.calls("of_local_variable")[0], 1)
        self.assertEqual([self.calls(name)[0] for name in ["of_argument", "of_usual_argument"]], [1, 0])
        self.assertIn(("of_local_data", "said to be local"), {(line["function"], line["why"]) for line in self.report})

    def test_what_is_allocated_for_local_data_is_local(self):
        called = re.findall(r"call [^@]*@(\w*alloc\w*)\(", self.ir["allocate_local"])
        self.assertEqual(sorted(called), ["__farheap_local_aligned_alloc", "__farheap_local_calloc",
                                          "__farheap_local_malloc", "__farheap_local_realloc", "malloc"])

    def test_hot_structures_report_each_use(self):
        once = (0, 0, 1)
        wanted = {"find_name": once, "tally": (0, 1, 3), "of_hot_data": once, "of_hot_argument": once,
                  "of_hot_members": once, "of_hot_type": once, "twice": once, "set_limit": once,
                  "set_hot_numbers": (0, 0, 0), "on_stack_though_hot": (0, 0, 0), "of_hot_variable": once,
                  "of_hot_types": once}
        self.assertEqual({name: self.calls(name) for name in wanted}, wanted)
        # A static array is walked as memory that may be far; the walk says that it is hot.
        walk = re.search(r"@__farheap_stream\(ptr [^@]*(@__farheap_walk[.\d]*)", self.ir["sum_tallies"])[1]
        table = re.search(rf"^{re.escape(walk)} = .*$", self.text, re.MULTILINE)[0]
        self.assertIn("i64 8192, i32 8, i32 2,", table)
        self.assertEqual(self.ir["twice"].count(" load "), 2 + 1)  # the check's, and one of the member
        self.assertIn(("find_name", "read, hot"), {(line["function"], line["why"]) for line in self.report})

    def test_nothing_is_left_of_the_marks(self):
        self.assertNotRegex(self.text, r"@llvm\.(ptr|var)\.annotation|far_detail_hot_type")

    def test_a_check_of_use_is_three_instructions(self):
        text = compiled(CLANG, "-O2", "-S", "-I", INCLUDE, SOURCES / "marks.c", "-o", "-")
        function = functions_of(text, r"^(\w+):", r"^\.Lfunc_end")["of_hot_data"]
        self.assertRegex(function, r"\tmovq\t__farheap_compiled\+16\(%rip\), (%\w+)\n\tcmpq\t\$0, \(\1\)\n\tjne\t")

    def test_marks_that_do_nothing_are_warned_of(self):
        source = SOURCES / "vain_marks.cc"
        options = ["-O2", "-Wall", "-Wextra", "-pedantic", "-std=c++20", "-I", INCLUDE, source, "-o"]
        program = self.directory / "vain"
        said = compiled(CLANGXX, *options, program)
        vain = {number for number, line in enumerate(source.read_text().splitlines(), 1) if "// vain" in line}
        self.assertEqual({int(line) for line in re.findall(r"vain_marks.cc:(\d+): ", said)}, vain, said)
        self.assertEqual(said.count("warning:"), len(vain), said)
        self.assertIn("[-Wbackend-plugin]", said)
        compiled(program)
        self.assertEqual(compiled(CLANGXX, "-Wno-backend-plugin", "-c", *options, program), "")


class Programs(Directory):
    # The walk through the records pushes the index out, unless look-ups say that it is in use.
    def test_hot_structures_stay(self):
        walked = 4 * 64 * support.MIB // 4096
        fetched = {}
        for kind, options in {"hot": [], "cold": ["-DCOLD"]}.items():
            program = self.directory / kind
            compiled(CLANG, "-O2", *options, "-I", INCLUDE, SOURCES / "hot.c", "-o", program)
            right = compiled(program)
            for mode in ["inline", "thread"][:2 if kind == "hot" else 1]:
                outcome = support.run_far([program], BUDGET, "memory:", mode, policy="second-chance")
                self.assertEqual((outcome.code, outcome.out), (0, right), outcome)
                fetched[kind, mode] = outcome.stats["fetched_pages"] - walked
        for mode in ["inline", "thread"]:
            self.assertLess(fetched["hot", mode] * 2, fetched["cold", "inline"], fetched)

    def test_local_allocations_stay_local(self):
        program = self.directory / "kept"
        compiled(CLANGXX, "-O2", "-I", INCLUDE, SOURCES / "kept.cc", "-o", program)
        self.assertEqual(compiled(program, "malloc"), "right\n")
        for kind, is_far in {"call": False, "malloc": False, "new": False, "usual": True}.items():
            with self.subTest(kind):
                outcome = support.run_far([program, kind], BUDGET, "memory:", "inline")
                self.assertEqual((outcome.code, outcome.out), (0, "right\n"), outcome)
                self.assertEqual(outcome.stats["peak_far_bytes"] > BUDGET, is_far, outcome.stats)

    def test_a_static_program_has_the_operator_for_its_only_new(self):
        source, program = self.directory / "one.cc", self.directory / "one"
        source.write_text("#include \"far/local.h\"\nstatic FAR_LOCAL_DATA int* numbers;\n"
                          "int main(int count, char**) { numbers = new int[1000 * count]; return numbers == nullptr; }\n")
        compiled(CLANGXX, "-O2", "-static", "-I", INCLUDE, source, "-o", program)
        compiled(program)

    def test_marks_for_other_processors_do_nothing(self):
        source, text = self.directory / "foreign.c", self.directory / "foreign.s"
        source.write_text("#define LOCAL __attribute__((annotate(\"far_local\")))\n"
                          "void* malloc(__SIZE_TYPE__ bytes);\nLOCAL static int* numbers;\n"
                          "int* make(void);\nint* make(void) { numbers = malloc(40); return numbers; }\n")
        for options, is_local in [(["-m64"], True), (["-m32"], False), (["--target=aarch64-linux-gnu"], False),
                                  (["--target=x86_64-w64-mingw32"], False)]:
            with self.subTest(options):
                compiled(CLANG, "-O2", *options, "-S", source, "-o", text)
                self.assertEqual("__farheap_local_malloc" in text.read_text(), is_local)

    @unittest.skipUnless(shutil.which("ld.lld-19"), "there is no lld-19")
    def test_marks_work_with_link_time_optimisation(self):
        program, part = self.directory / "linked", self.directory / "hot.o"
        for option in ["-flto=thin", "-flto"]:
            with self.subTest(option):
                compiled(CLANG, "-O2", option, "-I", INCLUDE, "-c", SOURCES / "hot.c", "-o", part)
                ir = compiled("llvm-dis-19", part, "-o", "-")
                self.assertNotIn("@__farheap", ir)
                self.assertNotIn("annotation", ir)
                compiled(CLANG, "-O2", option, part, "-o", program)
                self.assertRegex(compiled("objdump", "-d", program), r"(call|jmp) .*<__farheap_hot>")


if __name__ == "__main__":
    support.main()
