"""Locks are held where the code says so (src/base/thread_annotations.h): Clang's analysis over the sources of the
products that name a lock, or whose own header does.

Nothing is built: each source is only parsed and analysed, with the standard headers parsed once for all. Where a build
with clang follows, it analyses the libraries (far_library), so that only what is in none of them is left.
"""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile

from checks.tree import Tree

NAME = "thread-safety"
COMPILER = "clang++-19"
FOLDERS = ("src/base", "src/platform", "src/trace", "src/wire", "src/backend", "src/engine", "src/control", "src/pager", "src/fiber",
           "src/heap", "src/dataframe", "server", "preload", "python/native", "tools")
IN_NO_LIBRARY = ("preload", "python/native")  # some of their sources
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-fno-caret-diagnostics"]
# Headers that most sources include anyway. No macro of ours may change what is in them.
STANDARD_HEADERS = ("algorithm", "array", "atomic", "chrono", "cstring", "functional", "map", "memory", "mutex",
                    "optional", "set", "span", "string", "thread", "unordered_map", "vector")


def reason_to_skip():
    return None if shutil.which(COMPILER) else f"no {COMPILER}: scripts/install-packages clang"


def check(tree):
    sources = sources_of(json.loads((tree.build / "compile_commands.json").read_text()), str(tree.root))
    missing = [f"{path}: is in no build" for path in tree.cpp_files()
               if is_product(path) and path.endswith(".cc") and f"{tree.root}/{path}" not in sources]
    sources = {path: flags for path, flags in sources.items()
               if names_locks(tree, path.removeprefix(f"{tree.root}/"))
               and not (tree.with_clang_build and is_in_library(path.removeprefix(f"{tree.root}/")))}
    with tempfile.TemporaryDirectory() as folder:
        header = compile_standard_headers(folder)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
            found = workers.map(lambda source: analyse(source, sources[source], header, str(tree.root)), sorted(sources))
            return missing + sorted({failure for failures in found for failure in failures})


def is_product(path):
    return path.startswith(tuple(f"{folder}/" for folder in FOLDERS)) and not path.endswith("_test.cc")


def is_in_library(path):
    return not path.startswith(tuple(f"{folder}/" for folder in IN_NO_LIBRARY))


def left_out_of(root, build):
    """The failures of a build with clang: it analyses what check() leaves to it."""
    return not_analysed(Tree(root, build), json.loads((build / "compile_commands.json").read_text()))


def not_analysed(checkout, commands):
    analysed = {os.path.relpath(entry["file"], checkout.root) for entry in commands if "-Wthread-safety" in entry["command"]}
    return [f"{path}: it names locks, and no library has it; see scripts/checks/thread_safety.py"
            for path in checkout.cpp_files()
            if path.endswith(".cc") and is_product(path) and is_in_library(path) and path not in analysed
            and names_locks(checkout, path)]


def names_locks(tree, path):
    """Most sources have nothing to do with locks; to parse them all would take a minute of CPU time."""
    header = path.removesuffix(".cc") + ".h"
    return any(re.search("(?<![bc])lock|mutex", tree.read(file)) for file in (path, header) if file in tree.files)


def sources_of(commands, root):
    """{source: its flags that say where headers are and what is defined}."""
    return {entry["file"]: [flag for flag in shlex.split(entry["command"]) if flag.startswith(("-I", "-D"))]
            for entry in commands
            if entry["file"].endswith(".cc") and is_product(entry["file"].removeprefix(f"{root}/"))}


def compile_standard_headers(folder):
    with open(f"{folder}/standard.h", "w", encoding="utf-8") as file:
        file.write("".join(f"#include <{name}>\n" for name in STANDARD_HEADERS))
    subprocess.run([COMPILER, *FLAGS[:1], "-x", "c++-header", file.name, "-o", f"{folder}/standard.pch"], check=True)
    return f"{folder}/standard.pch"


def analyse(source, flags, header, root):
    command = [COMPILER, *FLAGS, "-include-pch", header, *flags, source]
    run = subprocess.run(command, capture_output=True, text=True)
    return failures_in(run.stderr, root, source if run.returncode else None)


def failures_in(output, root, failed=None):
    """The analysis's warnings and the compiler's errors; `failed`: a source that could not be analysed."""
    found = [f"{path.removeprefix(root + '/')}:{line}: {message}"
             for path, line, message in re.findall(r"^(\S+?):(\d+):\d+: (?:warning|(?:fatal )?error): (.*)$", output, re.M)]
    return found or ([f"{failed.removeprefix(root + '/')}: {COMPILER} ends with an error: {output.strip()}"] if failed else [])


def self_test():
    assert sources_of([{"file": "/r/src/base/a.cc", "command": "c++ -I/r/src -O2 -DX=1 -c /r/src/base/a.cc"},
                       {"file": "/r/src/base/a_test.cc", "command": "c++"}, {"file": "/r/bench/b.cc", "command": "c++"}],
                      "/r") == {"/r/src/base/a.cc": ["-I/r/src", "-DX=1"]}
    warning = "/r/src/a.cc:7:3: warning: reading variable 'x' requires holding 'lock' [-Wthread-safety-analysis]\n1 warning"
    assert failures_in(warning, "/r") == [
        "src/a.cc:7: reading variable 'x' requires holding 'lock' [-Wthread-safety-analysis]"]
    with tempfile.TemporaryDirectory() as folder:
        checkout = Tree(folder)
        checkout.files = ["server/a.cc", "server/b.cc", "preload/c.cc"]
        for path in checkout.files:
            (checkout.root / path).parent.mkdir(exist_ok=True)
            (checkout.root / path).write_text("std::mutex held;\n")
        commands = [{"file": f"{folder}/server/{name}.cc", "command": f"c++ {flag}"}
                    for name, flag in (("a", "-Wthread-safety"), ("b", "-Wall"))]
        assert [failure.split(":")[0] for failure in not_analysed(checkout, commands)] == ["server/b.cc"]
    assert failures_in("", "/r") == [] and "ends with an error" in failures_in("killed", "/r", "/r/src/base/a.cc")[0]
    mistake = ("struct __attribute__((capability(\"lock\"))) lock {};\n"
               "struct account { lock held; int sum __attribute__((guarded_by(held))); int read() { return sum; } };\n")
    run = subprocess.run([COMPILER, *FLAGS, "-x", "c++", "-"], input=mistake, capture_output=True, text=True)
    assert "requires holding" in run.stderr, "the compiler finds no mistake"
