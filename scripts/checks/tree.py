"""The files that the checks look at."""

import functools
import pathlib
import subprocess

CPP_SUFFIXES = (".cc", ".h", ".c", ".cpp")


class Tree:
    """A checkout: the files that git tracks or would track, as paths relative to its root."""

    def __init__(self, root, build=None, with_clang_build=False):
        """`with_clang_build`: a build of all libraries with clang follows (thread_safety.py)."""
        self.with_clang_build = with_clang_build
        self.root = pathlib.Path(root)
        self.build = pathlib.Path(build) if build else self.root / "build"

    @functools.cached_property
    def files(self):
        listed = subprocess.run(
            ["git", "-c", f"safe.directory={self.root}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=self.root, check=True, capture_output=True).stdout.decode().split("\0")
        return sorted({path for path in listed if path and (self.root / path).is_file()})

    def read(self, path):
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def is_text(self, path):
        with open(self.root / path, "rb") as file:
            return b"\0" not in file.read(8192)

    def cpp_files(self):
        return [path for path in self.files if path.endswith(CPP_SUFFIXES)]

    def scripts(self, language):
        """Files in `language` ("python" or "sh"; bash counts as sh), by suffix or by their first line."""
        suffix = {"python": ".py", "sh": ".sh"}[language]
        return [path for path in self.files if path.endswith(suffix) or self._interpreter(path) == language]

    def _interpreter(self, path):
        if pathlib.PurePath(path).suffix:
            return None
        with open(self.root / path, "rb") as file:
            first = file.readline(120)
        if not first.startswith(b"#!"):
            return None
        return "python" if b"python" in first else "sh" if first.rstrip().endswith(b"sh") else None
