"""Every header compiles alone. The compiling is Ninja's (cmake/headers.cmake), so only what changed is compiled."""

import re
import subprocess

NAME = "headers"


def check(tree):
    run = subprocess.run(["cmake", "--build", str(tree.build), "--target", "header_check", "--", "-k", "0"],
                         capture_output=True, text=True)
    return [] if run.returncode == 0 else failures_in(run.stdout + run.stderr, str(tree.root))


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
    output = "[1/2] x\nFAILED: y\n/r/src/base/a.h:3:10: error: 'string' does not name a type\nninja: stopped\n"
    assert failures_in(output, "/r") == ["src/base/a.h:3: does not compile alone: 'string' does not name a type"]
    assert "header_check" in failures_in("ninja: error: unknown target", "/r")[0]
