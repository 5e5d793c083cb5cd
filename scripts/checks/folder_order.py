"""No #include points down the list of folders: each folder depends only on those above it."""

import re

NAME = "folder-order"

# Top first. Folders of one row stand beside each other and do not include one another; `tests` may include all.
ORDER = (
    ("include/far",),
    ("src/base",),
    ("src/platform",),
    ("src/trace",),
    ("src/wire",),
    ("src/backend",),
    ("src/device",),
    ("src/engine",),
    ("src/control",),
    ("src/pager",),
    ("src/fiber",),
    ("src/heap",),
    ("src/dataframe",),
    ("server",),
    ("preload",),
    ("compiler",),
    ("python",),
    ("tools",),
    ("evaluation/common",),
    ("evaluation/bench", "evaluation/apps", "examples"),
    ("tests",),
)
# The folder that tests beside the code may include, too.
SUPPORT = "tests/support/"
# Where the compiler looks for "x/y.h", in this order (after the folder of the including file).
ROOTS = ("src/", "include/", "", "evaluation/")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


def rank(path):
    """(row, folder) of a path, or None outside every folder of the list."""
    for row, folders in enumerate(ORDER):
        for folder in folders:
            if path.startswith(folder + "/"):
                return row, folder
    return None


def resolve(includer, name, files):
    """The file of this project that `name` means in `includer`, or None for the system's headers."""
    beside = includer.rsplit("/", 1)[0] + "/"
    for root in (beside, *ROOTS):
        path = normalise(root + name)
        if path in files:
            return path
    return None


def normalise(path):
    parts = []
    for part in path.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def violation(includer, included):
    mine, other = rank(includer), rank(included)
    if mine is None:
        return f"{includer} lies in no folder of the list; put it in one, or extend ORDER in {NAME}"
    if other is None or mine[1] == other[1]:
        return None
    if included.startswith(SUPPORT) and includer.endswith("_test.cc"):
        return None
    if mine[0] <= other[0]:
        return f"{mine[1]} may not include {other[1]}, which is not above it; move what is shared upwards"
    return None


def check_sources(sources):
    """`sources`: path -> text."""
    failures = []
    for path, text in sources.items():
        for match in INCLUDE.finditer(text):
            included = resolve(path, match.group(1), sources)
            wrong = included and violation(path, included)
            if wrong:
                line = text.count("\n", 0, match.start()) + 1
                failures.append(f'{path}:{line}: includes "{match.group(1)}": {wrong}')
        if rank(path) is None:
            failures.append(f"{path}:1: lies in no folder of the list in scripts/checks/folder_order.py")
    return failures


def check(tree):
    return check_sources({path: tree.read(path) for path in tree.cpp_files()})


def self_test():
    headers = {"src/base/a.h": "", "src/engine/e.h": "", "src/pager/p.h": "", "include/far/f.h": "", "evaluation/bench/b.h": "",
               "tools/t.h": "", "tests/support/s.h": "", "tests/unit/u.h": ""}

    def failures(path, text):
        return check_sources({**headers, path: text})

    assert not failures("src/engine/x.cc", '#include "base/a.h"\n#include "engine/e.h"\n#include <vector>\n')
    assert not failures("src/base/x.cc", "#include <far/f.h>\n")
    assert not failures("tests/unit/x.cc", '#include "pager/p.h"\n#include "b.h"\n#include "bench/b.h"\n')
    assert not failures("src/engine/x_test.cc", '#include "e.h"\n')
    assert len(failures("src/engine/x_test.cc", '#include "pager/p.h"\n')) == 1
    assert not failures("src/engine/x_test.cc", '#include "tests/support/s.h"\n')
    assert failures("src/engine/x_test.cc", '#include "tests/unit/u.h"\n')
    assert failures("src/engine/x.cc", '#include "tests/support/s.h"\n')
    assert "src/base/x.h:2:" in failures("src/base/x.h", '\n#  include "../engine/e.h"\n')[0]
    assert failures("include/far/x.h", '#include "base/a.h"\n')
    assert failures("tools/x.cc", '#include "bench/b.h"\n')
    assert failures("evaluation/apps/x.cc", '#include "bench/b.h"\n')
    assert failures("nowhere/x.cc", "")
