"""Files have at most 600 lines, functions at most 70, so that both can be read in one go."""

import ast

from . import cpp_functions

NAME = "limits"
FILE_LINES = 600
FUNCTION_LINES = 70


def check(tree):
    failures = []
    code = set(tree.cpp_files()) | set(tree.scripts("python")) | set(tree.scripts("sh"))
    code |= {path for path in tree.files if path.endswith(("CMakeLists.txt", ".cmake", "Makefile"))}
    for path in sorted(code):
        failures += file_failures(path, tree.read(path))
    for path in tree.cpp_files():
        failures += function_failures(path, cpp_functions.functions(tree.read(path)))
    for path in tree.scripts("python"):
        failures += function_failures(path, python_functions(tree.read(path)))
    return failures


def file_failures(path, text):
    lines = text.count("\n")
    if lines <= FILE_LINES:
        return []
    return [f"{path}:{FILE_LINES}: {lines} lines, and a file has at most {FILE_LINES}; give its second idea a file"]


def function_failures(path, functions):
    return [f"{path}:{first}: {name} has {last - first + 1} lines, and a function has at most {FUNCTION_LINES}; split it"
            for name, first, last in functions if last - first + 1 > FUNCTION_LINES]


def python_functions(text):
    try:
        module = ast.parse(text)
    except SyntaxError:  # another check reports it
        return []
    return [(node.name, node.lineno, node.end_lineno) for node in ast.walk(module)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def self_test():
    cpp_functions.self_test()
    assert not file_failures("x", "\n" * FILE_LINES) and file_failures("x", "\n" * (FILE_LINES + 1))
    body = "  x();\n" * (FUNCTION_LINES - 2)
    good, bad = f"void f() {{\n{body}}}\n", f"void f() {{\n{body}  y();\n}}\n"
    assert not function_failures("x", cpp_functions.functions(good))
    assert len(function_failures("x", cpp_functions.functions(bad))) == 1
    assert function_failures("x", python_functions("def f():\n" + "    x()\n" * FUNCTION_LINES))
    assert not function_failures("x", python_functions("def f():\n" + "    x()\n" * (FUNCTION_LINES - 1)))
