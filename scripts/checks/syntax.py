"""Scripts can be parsed: a test that no one runs often should not be the first to find out."""

import ast
import subprocess

NAME = "syntax"


def check(tree):
    failures = [wrong for path in tree.scripts("python") for wrong in python_failures(path, tree.read(path))]
    return failures + [wrong for path in tree.scripts("sh") for wrong in shell_failures(path, tree.read(path))]


def python_failures(path, text):
    try:
        ast.parse(text, path)
    except SyntaxError as error:
        return [f"{path}:{error.lineno}: {error.msg}"]
    return []


def shell_failures(path, text):
    first = text.partition("\n")[0]
    run = subprocess.run(["bash" if "bash" in first else "sh", "-n"], input=text, capture_output=True, text=True)
    return [f"{path}:1: {line}" for line in run.stderr.splitlines()] if run.returncode else []


def self_test():
    assert not python_failures("x", "print(1)\n") and python_failures("x", "print(1\n")
    assert not shell_failures("x", "#!/bin/bash\na=(1 2)\n") and shell_failures("x", "#!/bin/sh\nif true\n")
