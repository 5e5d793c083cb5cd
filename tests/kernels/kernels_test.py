"""Programs under `farheap run`, and tests of the pager, on real older kernels: Debian's own, booted under QEMU.

A feature that a kernel lacks is missing for real there, and not by FARHEAP_DISABLE. The kernel comes from its package,
the root file system is an initramfs with the programs, their libraries and busybox. No KVM: any machine can do this,
but slowly, so few steps run by default, and all of them with FARHEAP_SOAK=1.
"""

import dataclasses
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import support  # noqa: E402

# Meta-packages: the kernel of Debian 12, and the newest one that it offers besides.
DEBIAN_12 = "linux-image-cloud-amd64"
NEWER = "linux-image-6.12-cloud-amd64"
STORE = support.BUILD / "kernels"
# Two processors that interrupt each other are slow to emulate on a busy machine.
PROCESSORS = "2" if support.SOAK else "1"
BOOT_DEADLINE_S = 1800 if support.SOAK else 240
CALLS = "/tests/memory_calls --seed 1 --seeds 3 --operations 60 --working-set 48"
VERIFIER = "/tests/verifier --seed 3 --threads 2 --largest-mib 4 --operations 15 --live-mib 48"


@dataclasses.dataclass
class Step:
    """A command in the machine. Its exit code must be 0, and its output hold `says`."""

    name: str
    command: str
    says: str = ""
    soak: bool = False


def far(command, far_tier="memory:", mode="thread", local="16M", variables=""):
    return f"{variables} farheap run --local {local} --far '{far_tier}' --fault-mode {mode} -- {command}".strip()


def steps():
    for mode in ("thread", "inline"):
        for tier in ("memory:", "file:/var/tmp"):
            short = (mode == "thread") == (tier != "memory:")
            yield Step(f"verifier_{mode}_{tier[:4]}", far(VERIFIER, tier, mode), r"verifier: checksum [0-9a-f]{16}",
                       soak=not short)
        # This and the memory calls below take half of the time, and turns.
        yield Step(f"fork_{mode}", far("/tests/dropper 24", mode=mode), "dropper: done",
                   soak=mode == "inline" or support.DAY % 2 == 0)
        yield Step(f"statics_{mode}", far("/tests/statics", mode=mode, local="32M"), "statics: done", soak=True)
    yield Step("features", "/tests/far_platform_kernel_features_test --gtest_brief=1", "PASSED")
    yield Step("address_space", "/tests/far_platform_far_address_space_test --gtest_brief=1", "PASSED", soak=True)
    yield Step("pager", "/tests/far_pager_pager_test --gtest_brief=1", "PASSED", soak=True)
    # Other seeds each day would find what nobody repeats: slow, and not the kernel that the day's fuzzing is about.
    yield Step("memory_calls_natively", CALLS, "all as on Linux")
    # On kernels without UFFDIO_MOVE devices must not write to far memory in that mode.
    yield Step("memory_calls_thread", far(f"{CALLS} --without direct,ring,pipe"), "all as on Linux",
               soak=support.DAY % 2 == 1)
    yield Step("memory_calls_inline", far(f"{CALLS} --without ring,populate-read,populate-write", mode="inline"),
               "all as on Linux", soak=True)
    for mode in ("thread", "inline"):
        yield Step(f"job_{mode}", far(f"dash -c '{VERIFIER} & {VERIFIER} --seed 4; wait $!'", mode=mode, local="40M"),
                   r"checksum [0-9a-f]{16}(?s:.)*checksum [0-9a-f]{16}(?s:.)*; 3 processes", soak=mode == "inline")
    for without in ("write_protect", "first_writes", "pagemap", "io_uring", "exact_address"):
        yield Step(f"without_{without}", far(VERIFIER, "file:/var/tmp", variables=f"FARHEAP_DISABLE={without}"),
                   r"verifier: checksum [0-9a-f]{16}", soak=True)


PROGRAMS = ["verifier", "dropper", "statics", "far_platform_kernel_features_test", "far_platform_far_address_space_test",
            "far_pager_pager_test", "memory_calls/memory_calls"]

INIT = """#!/bin/sh
export PATH=/bin HOME=/ TMPDIR=/var/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /var/tmp
ulimit -c 0
echo "kernel $(uname -r)"
{steps}
echo "all steps done"
poweroff -f
"""


def resolve(meta):
    """The kernel's package that a meta-package stands for, or None."""
    done = subprocess.run(["apt-cache", "depends", meta], capture_output=True, text=True, check=False)
    found = re.search(r"Depends: (linux-image-\S+)", done.stdout)
    return found[1] if found else None


def fetch_kernel(meta):
    """The kernel of a meta-package, downloaded once. Raises SkipTest where there is none."""
    package = resolve(meta)
    support.need(package, f"apt knows no package {meta}")
    place = STORE / package
    images = list(place.glob("boot/vmlinuz-*"))
    STORE.mkdir(parents=True, exist_ok=True)
    if images:
        return images[0]
    with tempfile.TemporaryDirectory() as directory:
        got = subprocess.run(["apt-get", "-q", "download", package], cwd=directory, capture_output=True, text=True,
                             check=False)
        archives = list(pathlib.Path(directory).glob("*.deb"))
        support.need(got.returncode == 0 and archives, f"{package} cannot be downloaded: {got.stderr[-300:]}")
        partial = STORE / f"{package}.partial-{os.getpid()}"
        subprocess.run(["dpkg-deb", "-x", archives[0], partial], check=True)
    shutil.rmtree(place, ignore_errors=True)
    partial.rename(place)
    return next(place.glob("boot/vmlinuz-*"))


def libraries_of(program):
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    return {pathlib.Path(path) for path in re.findall(r"(?:=> )?(/\S+) \(0x", done.stdout)}


def make_root(root, chosen):
    """Fills a directory with what the machine needs."""
    for name in ("bin", "lib", "tests", "proc", "sys", "dev", "var/tmp", "etc", "tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for name in ("sh", "mount", "uname", "echo", "poweroff", "cut", "true"):
        (root / "bin" / name).symlink_to("busybox")
    installed = [(support.FARHEAP, "bin/farheap"), (support.BUILD / "lib/libfarheap-preload.so", "lib/libfarheap-preload.so"),
                 ("/bin/dash", "bin/dash"),  # not static, as busybox is: a program that starts others under the run door
                 *((support.PROGRAMS / name, f"tests/{pathlib.Path(name).name}") for name in PROGRAMS
                   if any(f"/tests/{pathlib.Path(name).name} " in step.command for step in chosen))]
    needed = set()
    for source, target in installed:
        subprocess.run(["strip", "--strip-debug", "-o", root / target, source], check=True)
        (root / target).chmod(0o755)
        needed |= libraries_of(source)
    for library in needed:
        target = root / str(library).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copy(library, target)
    lines = []
    for step in chosen:
        lines += [f'echo "=== {step.name}"', f"{{ {step.command}; }} 2>&1",
                  f'echo "=== {step.name}: exit $? after $(cut -d" " -f1 /proc/uptime) s"']
    (root / "init").write_text(INIT.format(steps="\n".join(lines)))
    (root / "init").chmod(0o755)


def pack(root, archive):
    names = subprocess.run(["find", ".", "-print0"], cwd=root, capture_output=True, check=True).stdout
    packed = subprocess.run(["cpio", "--quiet", "-0", "-o", "-H", "newc"], cwd=root, input=names, capture_output=True,
                            check=True).stdout
    with gzip.open(archive, "wb", compresslevel=1) as file:
        file.write(packed)


def boot(kernel, archive):
    """The machine's output until it switched itself off."""
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1536", "-smp", PROCESSORS, "-nographic",
               "-no-reboot", "-nic", "none", "-kernel", kernel, "-initrd", archive, "-append",
               # A clock that cannot be read without a system call: the kernel's own code then makes it.
               "console=ttyS0 panic=-1 quiet tsc=unstable"]
    return support.run(command, deadline_s=BOOT_DEADLINE_S).out.replace("\r", "")


class Kernels(unittest.TestCase):
    def check(self, meta):
        for tool in ("qemu-system-x86_64", "busybox", "cpio", "strip"):
            support.need(shutil.which(tool), f"no {tool}: scripts/install-packages programs")
        kernel = fetch_kernel(meta)
        chosen = [step for step in steps() if support.SOAK or not step.soak]
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory, "root")
            make_root(root, chosen)
            archive = pathlib.Path(directory, "initramfs.gz")
            pack(root, archive)
            printed = boot(kernel, archive)
        self.assertIn("all steps done", printed, printed[-3000:])
        for step in chosen:
            with self.subTest(kernel=kernel.name, step=step.name):
                ended = re.search(rf"^=== {step.name}$(.*)^=== {step.name}: exit (\d+) after \S+ s$", printed, re.S | re.M)
                self.assertIsNotNone(ended, printed[-3000:])
                print(ended[0].rsplit("=== ")[-1], flush=True)
                self.assertEqual(ended[2], "0", ended[1][-3000:])
                self.assertRegex(ended[1], step.says)

    def test_the_kernel_of_debian_12(self):
        self.check(DEBIAN_12)

    @unittest.skipUnless(support.SOAK, "a longer test: FARHEAP_SOAK=1")
    def test_a_newer_kernel(self):
        self.check(NEWER)


if __name__ == "__main__":
    support.main()
