"""The wheel's tag: any Python 3, since nothing is compiled against Python, on the platform of the bundled programs."""

import pathlib
import sys

# scripts/make-wheel writes it, beside the programs.
PLATFORM = pathlib.Path(__file__).resolve().with_name("PLATFORM")
if not PLATFORM.exists():
    sys.exit("farheap: error: this folder has no built programs in it; run `make wheel` at the top of the source tree, and then "
             "`pip install build/packages/farheap-*.whl`")

from setuptools import Distribution, setup  # noqa: E402

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel


class platform_distribution(Distribution):
    def has_ext_modules(self):
        return True


class platform_wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", PLATFORM.read_text().strip()


setup(distclass=platform_distribution, cmdclass={"bdist_wheel": platform_wheel})
