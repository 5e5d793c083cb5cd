// Handlers of fork that were registered before any constructor of a library has run, and use far memory: before the
// fork, and after it in the parent and in the child. Prints what they read.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

namespace {

constexpr std::size_t bytes = std::size_t{64} << 20;
constexpr std::size_t page = 4096;

unsigned char* data = nullptr;
unsigned long before = 0;
unsigned long after = 0;

unsigned long sum() {
  unsigned long all = 0;
  for (std::size_t i = 0; data != nullptr && i < bytes; i += page) all += data[i];
  return all;
}

void prepare() {
  before = sum();
}

void resume() {
  after = sum();
}

void register_handlers(int, char**, char**) {
  pthread_atfork(prepare, resume, resume);
}

__attribute__((section(".preinit_array"), used)) void (*const first)(int, char**, char**) = register_handlers;

}  // namespace

int main() {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return 2;
  data = static_cast<unsigned char*>(mapped);
  for (std::size_t i = 0; i < bytes; i += page) data[i] = static_cast<unsigned char>(i / page % 251);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(before == after && before == sum() ? 0 : 1);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 2;
  std::printf("before %lu after %lu child %d\n", before, after, status);
  return 0;
}
