"""Every header compiles alone, and twice as well as once.

Where NAME.cc stands beside NAME.h, its first include is that header, so that compiling the one proves the other
(without precompiled headers: presets clang and fuzz). The remaining headers are compiled by Ninja (cmake/headers.cmake),
those together of which each includes the one before (header_chains.py).
"""

import os
import re
import subprocess

from checks import header_chains

NAME = "headers"


def check(tree):
    failures = []
    for path in tree.cpp_files():
        if path.endswith(".h"):
            failures += guard_failures(path, tree.read(path))
        elif path.endswith(".cc") and (path[:-3] + ".h" in tree.files or path.startswith("src/dataframe/")):
            failures += order_failures(path, tree.read(path))
    build(tree, "build.ninja")  # so that it knows which headers there are
    header_chains.write(tree)
    run = build(tree, "header_check")
    return failures if run.returncode == 0 else failures + failures_in(run.stdout + run.stderr, str(tree.root))


def build(tree, target):
    return subprocess.run(["cmake", "--build", str(tree.build), "--target", target, "--", "-k", "0"], capture_output=True,
                          text=True)


def guard_failures(path, text):
    has_guard = "#pragma once" in text or re.search(r"^#ifndef (\w+)\n#define \1\b", text, re.MULTILINE)
    return [] if has_guard else [f"{path}:1: has no guard against being included twice"]


def order_failures(path, text):
    first = re.search(r'^#include ["<](.+?)[">]', text, re.MULTILINE)
    own = os.path.basename(path)[:-3] + ".h"
    if first and os.path.basename(first[1]) == own:
        return []
    return [f"{path}:1: includes something before {own}, so nothing shows that the header compiles alone"]


def failures_in(output, root):
    """The compiler's errors as failures; the whole output when there is none to be found in it."""
    errors = re.findall(r"^(\S+?):(\d+):\d+: (?:fatal )?error: (.*)$", output, re.MULTILINE)
    if not errors:
        return [f"build: the target header_check could not be built:\n{output.strip()}"]
    found = []
    for path, line, message in errors:
        failure = f"{path.removeprefix(root + '/')}:{line}: does not compile alone: {message}"
        if failure not in found:
            found.append(failure)
    return found


def self_test():
    header_chains.self_test()
    assert not guard_failures("a.h", "#pragma once\n") and guard_failures("a.h", "int x;\n")
    assert not guard_failures("a.h", "#ifndef A_H\n#define A_H\n")
    assert not order_failures("a/b.cc", '#include "a/b.h"\n\n#include <map>\n')
    assert order_failures("a/b.cc", '#include <map>\n#include "a/b.h"\n')
    output = "[1/2] x\nFAILED: y\n/r/src/base/a.h:3:10: error: 'string' does not name a type\nninja: stopped\n"
    assert failures_in(output, "/r") == ["src/base/a.h:3: does not compile alone: 'string' does not name a type"]
    assert "header_check" in failures_in("ninja: error: unknown target", "/r")[0]
