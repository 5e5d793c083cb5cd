"""Programs with AddressSanitizer under `farheap run`, beside other processes. statics_test.py has their static arrays."""

import pathlib
import shutil
import socket
import subprocess
import tempfile
import unittest

import support

BUDGET = 24 * support.MIB
PAGE = 4096
CLANG = shutil.which("clang-19") or shutil.which("clang")
WAITER = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static const size_t bytes = 64 << 20;
int main(void) {
  unsigned char* const made = malloc(bytes);
  for (size_t i = 0; i < bytes; i++) made[i] = (unsigned char)(i / 4096 % 251);
  printf("%zu\\n", (size_t)made);
  fflush(stdout);
  getchar();
  size_t wrong = 0;
  for (size_t i = 0; i < bytes; i++) wrong += made[i] != i / 4096 % 251;
  // It joins the job after a second, without the threads of its parent.
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    sleep(3);
    _exit(made[0] != 0);
  }
  if (waitpid(child, &status, 0) != child || status != 0) return printf("the child: %x\\n", status), 2;
  free(made);
  return wrong != 0;
}
"""


def ask(process, request):
    """The reply of a program's runtime, on its control socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.settimeout(support.DEADLINE_S)
        asking.connect(f"\0farheap-{process.pid}")
        asking.send(f"farheap/1 {request}\n".encode())
        return asking.recv(16384).decode()


class Sanitized(unittest.TestCase):
    # The runtime's threads are none that the sanitizer has seen start: it would end the program at their pthread_detach().
    @unittest.skipUnless(CLANG, "there is no clang")
    def test_others_bring_its_memory_in(self):
        with tempfile.TemporaryDirectory() as directory:
            source, program = pathlib.Path(directory) / "waiter.c", pathlib.Path(directory) / "waiter"
            source.write_text(WAITER)
            subprocess.run([CLANG, "-O1", "-fsanitize=address", source, "-o", program], check=True)
            for mode in support.MODES:
                with self.subTest(mode=mode):
                    self.bring_in_memory_of(program, mode)

    def bring_in_memory_of(self, program, mode):
        command = ["env", "ASAN_OPTIONS=detect_leaks=0", *support.farheap_command([program], BUDGET, "memory:", mode)]
        with tempfile.TemporaryFile("w+") as errors:
            process = support.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
            self.addCleanup(support.end, process)
            address = int(process.stdout.readline())
            for page in range(0, 64 * support.MIB, 512 * PAGE):
                self.assertEqual(ask(process, f"bring {address + page} {PAGE} read"), "farheap/1 ok\n")
            process.communicate("\n", timeout=support.DEADLINE_S)
            errors.seek(0)
            self.assertEqual(process.returncode, 0, errors.read())


if __name__ == "__main__":
    support.main()
