"""C++ sources are as clang-format leaves them."""

import os
import re
import subprocess

NAME = "format"
CLANG_FORMAT = "clang-format-19"


def check(tree):
    return [f"{path}:{line}: not in the project's format; run 'make format'"
            for path, line in unformatted(tree.root, tree.cpp_files())]


def fix(tree):
    if tree.cpp_files():
        subprocess.run([CLANG_FORMAT, "-i", *tree.cpp_files()], cwd=tree.root, check=True)


def unformatted(root, paths):
    """The first offending line of each file that clang-format would change."""
    parts = [paths[i::os.cpu_count()] for i in range(os.cpu_count())]
    running = [subprocess.Popen([CLANG_FORMAT, "--dry-run", *part], cwd=root, stderr=subprocess.PIPE, text=True)
               for part in parts if part]
    first = {}
    for process in running:
        messages = process.communicate()[1]
        if process.returncode != 0:
            raise RuntimeError(f"{CLANG_FORMAT} failed: {messages.strip()}")
        for path, line in re.findall(r"^(\S+?):(\d+):\d+: warning: ", messages, re.MULTILINE):
            first.setdefault(path, int(line))
    return sorted(first.items())


def self_test():
    for source, clean in (("int main() {}\n", True), ("int  main( ){}\n", False)):
        run = subprocess.run([CLANG_FORMAT, "--style=Google", "--dry-run", "-Werror"], input=source, text=True,
                             stderr=subprocess.DEVNULL)
        assert (run.returncode == 0) == clean, source
