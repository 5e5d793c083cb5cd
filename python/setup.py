"""The wheel's tag: any Python 3, since nothing is compiled against Python, on the platform of the bundled programs."""

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70
    from wheel.bdist_wheel import bdist_wheel


class platform_distribution(Distribution):
    def has_ext_modules(self):
        return True


class platform_wheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(distclass=platform_distribution, cmdclass={"bdist_wheel": platform_wheel})
