"""The documents and --help agree: every option is described, and the commands take every option in the documents."""

import pathlib
import re
import unittest

import support

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FARHEAP = str(support.FARHEAP)
PROGRAMS = {name: str(support.FARHEAP.with_name(name)) for name in ("farheapd", "farheap-bench")}
# Where the options of each command are described.
PAGES = {"run": "docs/run.md", "top": "docs/run.md", "stats": "docs/run.md", "metrics": "docs/run.md", "doctor": "docs/run.md",
         "trace": "docs/trace.md", "report": "docs/trace.md", "tune": "docs/compile.md",
         "farheapd": "docs/server.md",
         "farheap-bench": "docs/benchmarks.md"}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def options_of(command):
    words = [PROGRAMS[command]] if command in PROGRAMS else [FARHEAP, command]
    outcome = support.run([*words, "--help"], deadline_s=240)
    assert outcome.code == 0, outcome
    return set(OPTION.findall(outcome.out)) - {"--help"}


def documents():
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def uses_in(text):
    """(command, options) for each `farheap COMMAND ...`, `farheapd ...` and `farheap-bench ...` in a text, without the
    program's own words."""
    text = re.sub(r"\\\n\s*", " ", text)
    for line in re.split(r"[\n`|;#]", text):
        found = re.search(r"(?:^|[ /])(?:farheap (run|trace|report|tune|resize|add-server|stats|top|metrics|doctor)|"
                          r"(farheapd|farheap-bench))\b(.*)", line)
        if found:
            yield found[1] or found[2], OPTION.findall(re.split(r"\s--(?:\s|$)", found[3])[0])


class Help(unittest.TestCase):
    def test_finds_uses(self):
        self.assertEqual(list(uses_in("x\n    build/bin/farheap run --local 2G -- python3 --version\n")),
                         [("run", ["--local"])])
        self.assertEqual(list(uses_in("start `farheapd --shm NAME`, then")), [("farheapd", ["--shm"])])
        self.assertEqual(list(uses_in("    farheap-bench pager --quick")), [("farheap-bench", ["--quick"])])

    def test_every_option_is_described(self):
        for command, page in PAGES.items():
            described = set(OPTION.findall((ROOT / page).read_text()))
            self.assertEqual(options_of(command) - described, set(), f"options of {command} that {page} does not name")

    def test_what_documents_write_is_taken(self):
        known = {command: options_of(command) | {"--help"} for command in [*PAGES, "resize", "add-server"]}
        uses = 0
        for document in documents():
            for command, options in uses_in(document.read_text()):
                uses += len(options)
                self.assertEqual(set(options) - known[command], set(), f"{document.name}: {command} takes no such option")
        self.assertGreater(uses, 30)

    def test_every_benchmark_is_described(self):
        listed = {line.split()[0] for line in support.run([PROGRAMS["farheap-bench"], "list"], deadline_s=240).out.splitlines()}
        headings = re.findall(r"^##+ (`[a-z]+`(?:, `[a-z]+`)*)$", (ROOT / PAGES["farheap-bench"]).read_text(), re.M)
        described = {name for heading in headings for name in re.findall("[a-z]+", heading)}
        self.assertEqual(listed, described)


if __name__ == "__main__":
    support.main()
