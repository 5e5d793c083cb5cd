// A program with an allocator of its own that is not ready before main, like Lisp systems that are dumped to a file:
// memory that is given out earlier must never be released. Nor is it made for threads, or to be called while it is
// asking for memory itself. Works on some memory, also in a child of fork, and prints "ready".
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

alignas(64) char memory[std::size_t{8} << 20];
std::size_t used = 0;
bool ready = false;
bool busy = false;

[[noreturn]] void fail(const char* message) {
  static_cast<void>(!write(2, message, std::strlen(message)));
  _exit(9);
}

// Programs with one thread have an allocator for one thread.
class only_call {
 public:
  only_call() {
    if (gettid() != getpid()) fail("called by another thread\n");
    if (busy) fail("called while it was busy\n");
    busy = true;
  }
  ~only_call() { busy = false; }
};

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) {
  const only_call now;
  const std::size_t rounded = (bytes + 63) / 64 * 64;
  if (rounded > sizeof memory - used) return nullptr;
  used += rounded;
  return memory + used - rounded;
}

void* calloc(std::size_t count, std::size_t bytes) {
  return malloc(count * bytes);  // never given out twice, so it is still zero
}

void* realloc(void* block, std::size_t bytes) {
  void* const moved = malloc(bytes);
  if (moved != nullptr && block != nullptr) {
    const auto behind = static_cast<std::size_t>(memory + sizeof memory - static_cast<char*>(block));
    std::memmove(moved, block, bytes < behind ? bytes : behind);
  }
  return moved;
}

void free(void* block) {
  const only_call now;
  if (ready || block == nullptr) return;
  fail("released before main\n");
}

}  // extern "C"

// Also what C++ programs replace.
void* operator new(std::size_t bytes) {
  void* const block = malloc(bytes);
  if (block == nullptr) fail("nothing is left\n");
  return block;
}

void operator delete(void* block) noexcept {
  free(block);
}

void operator delete(void* block, std::size_t) noexcept {
  free(block);
}

namespace {

// Writes and reads more than its local memory, in the allocator: as one does that maps what it hands out.
void work(unsigned char seed) {
  constexpr std::size_t bytes = std::size_t{48} << 20;
  constexpr std::size_t page_bytes = 4096;
  auto* const mapped =
      static_cast<unsigned char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (mapped == MAP_FAILED) fail("no memory to work on\n");
  for (int round = 0; round < 2; ++round) {
    const only_call now;
    for (std::size_t at = 0; at < bytes; at += page_bytes) {
      const auto expected = static_cast<unsigned char>(round == 0 ? 0 : at / page_bytes * 31 + seed);
      if (mapped[at] != expected) fail("wrong bytes\n");
      mapped[at] = static_cast<unsigned char>(at / page_bytes * 31 + seed);
    }
  }
  // The threads of a runtime have things to do now and then, which only a while shows.
  const timespec while_they_work{.tv_sec = 0, .tv_nsec = 500'000'000};
  const only_call now;
  nanosleep(&while_they_work, nullptr);
  munmap(mapped, bytes);
}

}  // namespace

int main() {
  ready = true;
  work(1);
  const pid_t child = fork();
  if (child == 0) {
    work(2);
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) fail("the child has failed\n");
  std::puts("ready");
}
