"""farheap.trace(): the lines of a script that miss, and the report that a browser shows."""

import contextlib
import io
import pathlib
import tempfile
import unittest
from unittest import mock

import farheap
from far_memory import only_in_process

SCRIPT = """
import sys
import numpy
table = numpy.arange(6_000_000)
def look_up(places):
    return sum(int(table[place]) for place in places)  # the line that misses
print(look_up(range(0, len(table), 4096)), sys.argv[1:])
"""
MISSING_LINE = 6


@only_in_process
class Tracing(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.script = self.folder / "job.py"
        self.script.write_text(SCRIPT)
        self.opened = self.enterContext(mock.patch("webbrowser.open", return_value=True))

    def test_lines_are_in_the_report(self):
        traced = farheap.trace(self.script, "-x", local="16M", far="memory:", output=self.folder / "misses")
        self.assertEqual(traced.exit_code, 0)
        self.opened.assert_called_once_with((self.folder / "misses" / "report.html").as_uri())
        line = f"{self.script}:{MISSING_LINE}"
        self.assertIn(line, str(traced))
        page = traced.report.read_text(encoding="utf-8")
        self.assertIn("job.py", page)
        self.assertIn("<html", page.lower())
        self.assertIn("srcdoc", traced._repr_html_())

    def test_a_script_that_fails_is_traced(self):
        self.script.write_text(SCRIPT + "print('what it says', file=sys.stderr)\nsys.exit(3)\n")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            traced = farheap.trace(self.script, local="16M", far="memory:", output=self.folder / "misses", show=False)
        self.assertEqual(traced.exit_code, 3)
        self.assertIn("what it says", said.getvalue())
        self.opened.assert_not_called()

    def test_a_script_may_write_any_bytes(self):
        self.script.write_text(SCRIPT + "sys.stderr.buffer.write(b'caf\\xe9 au lait\\n')\n")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            traced = farheap.trace(self.script, local="16M", far="memory:", output=self.folder / "misses", show=False)
        self.assertEqual(traced.exit_code, 0)
        self.assertIn("caf\N{REPLACEMENT CHARACTER} au lait", said.getvalue())

    def test_what_goes_wrong(self):
        with self.assertRaisesRegex(ValueError, "there is no script"):
            farheap.trace(self.folder / "other.py")
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaisesRegex(ValueError, "--local"):
            farheap.trace(self.script, local="much", output=self.folder / "misses")
        (self.folder / "full").mkdir()
        (self.folder / "full" / "file").write_text("x")
        with self.assertRaisesRegex((ValueError, farheap.FarheapError), "full"):
            farheap.trace(self.script, output=self.folder / "full")
        self.opened.return_value = False
        with self.assertRaisesRegex(farheap.FarheapError, r"open .*report\.html"):
            farheap.trace(self.script, local="16M", far="memory:", output=self.folder / "misses")


if __name__ == "__main__":
    unittest.main()
