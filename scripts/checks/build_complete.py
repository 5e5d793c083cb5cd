"""No source file is left out of the build."""

import json
import os

NAME = "build-complete"
SUFFIXES = (".cc", ".c", ".cpp")


def check(tree):
    commands = tree.build / "compile_commands.json"
    if not commands.is_file():
        return [f"{commands}: not there; run 'make build' first"]
    built = {os.path.relpath(os.path.join(entry["directory"], entry["file"]), tree.root)
             for entry in json.loads(commands.read_text())}
    sources = [path for path in tree.files if path.endswith(SUFFIXES)]
    return left_out(sources, built)


def left_out(sources, built):
    return [f"{path}:1: no target compiles it; name it in its folder's CMakeLists.txt, or remove it"
            for path in sources if path not in built]


def self_test():
    assert left_out(["src/a.cc", "src/b.cc"], {"src/a.cc", "build/x.cc"})[0].startswith("src/b.cc:1:")
    assert not left_out(["src/a.cc"], {"src/a.cc"})
