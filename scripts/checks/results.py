"""The results of the tests, added up: single GoogleTest cases where a program is one, ctest entries elsewhere."""

import dataclasses
import pathlib
import tempfile
import xml.etree.ElementTree as xml


@dataclasses.dataclass
class Tally:
    """`failures` are labels, `skips` pairs of a label and its reason."""

    passed: int = 0
    failures: list = dataclasses.field(default_factory=list)
    skips: list = dataclasses.field(default_factory=list)
    seconds: dict = dataclasses.field(default_factory=dict)  # of each label of ctest's

    def add(self, other):
        self.passed += other.passed
        self.failures += other.failures
        self.skips += other.skips
        self.seconds |= other.seconds

    def slowest(self, count):
        """The tests to look at first when all of them take too long."""
        longest = sorted(self.seconds.items(), key=lambda one: -one[1])[:count]
        return ", ".join(f"{label.rpartition(' ')[2]} {seconds:.0f} s" for label, seconds in longest)

    def skip_lines(self):
        """One line for each reason: how many were skipped for it, and one of them."""
        by_reason = {}
        for label, reason in self.skips:
            by_reason.setdefault(reason, []).append(label)
        return [f"{len(labels)}: {reason} ({labels[0]}{', ...' if len(labels) > 1 else ''})"
                for reason, labels in by_reason.items()]

    def line(self):
        return f"{self.passed} passed, {len(self.failures)} failed, {len(self.skips)} skipped"


def read(stage, junit, folder):
    """The tally of what ctest wrote to `junit`, and the GoogleTest programs to `folder`/NAME.xml."""
    tally = Tally()
    for entry in xml.parse(junit).getroot().iter("testcase"):
        label = f"{stage}: {entry.get('name')}"
        tally.seconds[label] = float(entry.get("time") or 0)
        cases = folder / f"{entry.get('name')}.xml"
        failed = entry.find("failure") is not None or entry.get("status") == "fail"
        if entry.find("skipped") is not None or entry.get("status") in ("notrun", "disabled"):
            tally.skips.append((label, last_line(entry.findtext("system-out"))))
        elif cases.is_file():
            inner = read_cases(label, cases)
            if failed and not inner.failures:
                inner.failures.append(f"{label}: it ended badly after its last case")
            tally.add(inner)
        elif failed:
            tally.failures.append(label)
        else:
            tally.passed += 1
    return tally


def read_cases(label, path):
    """The single cases of one GoogleTest program."""
    tally = Tally()
    for case in xml.parse(path).getroot().iter("testcase"):
        name = f"{label}: {case.get('classname')}.{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None:
            tally.failures.append(name)
        elif skipped is not None:
            tally.skips.append((name, last_line(skipped.get("message"))))
        elif case.get("status") == "run":
            tally.passed += 1
    return tally


def last_line(text):
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"


def self_test():
    """A failed case, a crash, a skip, and a program that fails although its cases pass must all be seen."""
    def case(name, inner="", status="run"):
        return f'<testcase classname="c" name="{name}" status="{status}">{inner}</testcase>'

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "ctest.xml").write_text("<testsuite>" + case("good") + case("bad", "<failure/>", "fail")
                                          + case("crash", "<failure/>", "fail") + case("exit", "<failure/>", "fail")
                                          + case("script") + case("absent", "<skipped/><system-out>no\nroot\n</system-out>",
                                                                  "notrun") + "</testsuite>")
        (folder / "good.xml").write_text("<t>" + case("a") + case("b", '<skipped message="x:1&#x0A;no root"/>') + "</t>")
        (folder / "bad.xml").write_text("<t>" + case("a") + case("b", '<failure message="m"/>') + "</t>")
        (folder / "exit.xml").write_text("<t>" + case("a") + "</t>")
        tally = read("s", folder / "ctest.xml", folder)
    assert tally.line() == "4 passed, 3 failed, 2 skipped", tally
    assert tally.failures[:2] == ["s: bad: c.b", "s: crash"], tally.failures
    assert tally.skip_lines() == ["1: no root (s: good: c.b)", "1: root (s: absent)"], tally.skip_lines()
    assert Tally(seconds={"s: a": 1.2, "s: b": 9, "s: c": 3}).slowest(2) == "b 9 s, c 3 s"
