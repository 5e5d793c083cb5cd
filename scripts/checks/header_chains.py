"""Which headers are compiled together, so that this shows as much as to compile each alone.

A chain is headers of which each includes the one before it. In one source, in this order, each still meets nothing that
it does not include itself. So the standard library's headers, most of what a compiler reads, are read once for a chain.
"""

import json
import os
import pathlib
import re

FOLDERS = ("include", "src", "evaluation", "evaluation/bench", "tools", "preload", "tests", "")  # as in cmake/headers.cmake


def write(tree):
    """Writes the sources that CMake made for single headers anew where a header stands in another chain. The source of a
    chain is that of its last header; the others have none."""
    folder = tree.build / "header_check"
    commands = json.loads((tree.build / "compile_commands.json").read_text())
    paths = [pathlib.Path(entry["directory"], entry["file"]) for entry in commands]
    sources = {str(path.relative_to(folder))[:-len(".cc")]: path for path in paths if path.is_relative_to(folder)}
    inside = included(tree, [header for header in sources if header in tree.files])
    text = {header: "" for header in sources}
    for chain in chains(inside):
        text[chain[-1]] = "".join(f'#include "{tree.root}/{header}"\n' for header in chain)
    for header, path in sources.items():
        if path.read_text() != text[header]:
            path.write_text(text[header])


def included(tree, headers):
    """{header: those of `headers` that it includes, directly or not}."""
    files = frozenset(tree.files)
    direct = {}

    def reached(header):
        found, waiting = set(), [header]
        while waiting:
            path = waiting.pop()
            if path not in direct:
                direct[path] = [file for name in certain_includes(tree.read(path)) if (file := find(name, files))]
            waiting += [file for file in direct[path] if file not in found]
            found.update(direct[path])
        return found - {header}

    return {header: reached(header) & set(headers) for header in headers}


def certain_includes(text):
    """What a file includes whatever is defined."""
    names, depth = [], 0
    for line in text.splitlines():
        if re.match(r"\s*#\s*if", line):
            depth += 1
        elif re.match(r"\s*#\s*endif", line):
            depth -= 1
        elif depth == 0 and (match := re.match(r'\s*#\s*include\s*["<](.+?)[">]', line)):
            names.append(match[1])
    return names


def find(name, files):
    return next((path for folder in FOLDERS if (path := os.path.normpath(os.path.join(folder, name))) in files), None)


def chains(inside):
    """Every header in one chain, long ones first."""
    by_size = sorted(inside, key=lambda header: (-len(inside[header]), header))
    placed = set()
    found = []
    for last in by_size:
        chain = [last] if last not in placed else []
        while chain:
            placed.add(chain[0])
            below = next((one for one in by_size if one in inside[chain[0]] and one not in placed), None)
            if below is None:
                found.append(chain)
                break
            chain.insert(0, below)
    return found


def self_test():
    assert certain_includes('#pragma once\n#include "a.h"\n#if X\n#include "b.h"\n#endif\n#include <c>\n') == ["a.h", "c"]
    assert find("base/a.h", {"src/base/a.h"}) == "src/base/a.h" and find("vector", {"src/base/a.h"}) is None
    assert chains({"a": set(), "b": {"a"}, "c": {"a", "b"}, "d": {"a"}}) == [["a", "b", "c"], ["d"]]
    assert chains({"a": set(), "b": set()}) == [["a"], ["b"]]
