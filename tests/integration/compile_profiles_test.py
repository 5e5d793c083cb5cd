"""The compile door with profiles, of `farheap trace` and of clang."""

import json
import shutil

import support
from compiling import CLANG, SOURCES, Directory, compiled


class Profiles(Directory):
    """-ffar-profile, and -fprofile-use."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.directory / "profiled.c"
        shutil.copy(SOURCES / "profiled.c", cls.source)
        cls.program = cls.directory / "traced"
        cls.misses = cls.directory / "misses"
        compiled(CLANG, "-O2", "-g", "--farheap-off", cls.source, "-o", cls.program)
        cls.right = compiled(cls.program)
        compiled(support.BUILD / "bin" / "farheap", "trace", "--local", "16M", "-o", cls.misses, "--", cls.program)

    def report_of(self, *options, source=None):
        report = self.directory / "report"
        report.unlink(missing_ok=True)
        said = compiled(CLANG, "-O2", f"--farheap-report={report}", *options, source or self.source, "-o",
                        self.directory / "built")
        lines = [json.loads(line) for line in report.read_text().splitlines()]
        return said, {(line["function"], line["kind"], line["done"], line["why"]) for line in lines}

    def test_only_lines_that_missed_are_guarded(self):
        said, plain = self.report_of()
        self.assertLessEqual({("of_large", "guard", True, "read"), ("of_small", "guard", True, "read")}, plain)
        for options in [[], ["-flto"], ["-g"]] if shutil.which("ld.lld-19") else [[], ["-g"]]:
            with self.subTest(options):
                said, by_profile = self.report_of(f"-ffar-profile={self.misses}", *options)
                self.assertEqual(said, "")
                self.assertIn(("of_large", "guard", True, "read"), by_profile)
                self.assertTrue(by_profile & {("of_small", "guard", False, f"{few} misses, by the profile")
                                              for few in ["no", "few"]}, by_profile)
                self.assertIn(("main", "stream", False, "no misses, by the profile"), by_profile)
                self.assertEqual(compiled(self.directory / "built"), self.right)
        self.assertNotIn(".debug_info", compiled("readelf", "-S", self.directory / "built") if options == [] else "")

    def test_a_profile_that_does_not_fit_is_said_in_one_line(self):
        edited = self.directory / "edited" / "profiled.c"
        edited.parent.mkdir()
        said, found = self.report_of(f"-ffar-profile={self.misses}", source=SOURCES / "profiled.c")
        self.assertRegex(said, r"^warning: .*profiled.c: is no part of the program that was traced for '.*', "
                               r"which is not used for it .*\n1 warning generated.\n$")
        self.assertIn(("of_small", "guard", True, "read"), found)
        text = self.source.read_text()
        self.source.write_text(text + "// later\n")
        said, found = self.report_of(f"-ffar-profile={self.misses}")
        self.source.write_text(text)
        self.assertRegex(said, r"^warning: .*profiled.c: changed since it was traced for '.*', which is not used for it; "
                               r"trace again .*\n1 warning generated.\n$")
        self.assertIn(("of_small", "guard", True, "read"), found)

    def test_a_wrong_folder_is_said_in_one_line(self):
        def folder(name, **files):
            (self.directory / name).mkdir()
            for file, text in files.items():
                (self.directory / name / file.replace("_", ".")).write_text(text)
            return self.directory / name
        begin = "farheap profile 1\nmisses 1\n"
        cases = {
            "is no folder": self.directory / "nowhere",
            "has no trace in it": folder("empty"),
            "has traces and no profile; run `farheap report": folder("older", misses_trace="?"),
            "has a profile of another release": folder("later", misses_profile="farheap profile 2\n"),
            "has a damaged profile": folder("damaged", misses_profile=begin + "and so on\n"),
            "names no source lines": folder("stripped", misses_profile=begin),
            "has no misses; trace with a smaller --local": folder(
                "large", misses_profile=begin + f"source unknown {self.source}\n"),
            "is of a program whose sources are not here": folder(
                "foreign", misses_profile=begin + "source unknown /nowhere/a.c\naccess 1 1 random\n"),
            "names no folder": "",
        }
        for message, path in cases.items():
            with self.subTest(message):
                said = compiled(CLANG, "-c", f"-ffar-profile={path}", self.source, expected=1)
                self.assertIn(message, said)
                self.assertTrue(said.startswith("farheap-clang: error: ") and said.count("\n") == 1, said)

    # The counts as clang notes them when it reads a profile; to make one takes tools that are not always there.
    def test_code_that_never_ran_is_not_guarded(self):
        source = self.directory / "counted.ll"
        source.write_text("""target triple = "x86_64-pc-linux-gnu"
define i64 @counted(ptr %p, i64 %i, i1 %rare) !prof !0 {
  %at = getelementptr ptr, ptr %p, i64 %i
  %one = load ptr, ptr %at
  br i1 %rare, label %never, label %always, !prof !1
never:
  %x = load volatile i64, ptr @g
  %deep = load i8, ptr %one
  store i8 %deep, ptr @g
  ret i64 1
always:
  %next = getelementptr i64, ptr %one, i64 %i
  %value = load i64, ptr %next
  ret i64 %value
}
@g = global i64 0
!0 = !{!"function_entry_count", i64 1000}
!1 = !{!"branch_weights", i32 0, i32 1000}
""")
        text = compiled(CLANG, "-O1", "-S", "-emit-llvm", source, "-o", "-")
        self.assertEqual(text.count("call preserve_mostcc void @__farheap_guard("), 2)
        source.write_text(source.read_text().replace("i32 0, i32 1000", "i32 10, i32 1000"))
        text = compiled(CLANG, "-O1", "-S", "-emit-llvm", source, "-o", "-")
        self.assertEqual(text.count("call preserve_mostcc void @__farheap_guard("), 3)


if __name__ == "__main__":
    support.main()
