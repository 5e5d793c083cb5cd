// A program with an allocator of its own that is not ready before main, like Lisp systems that are dumped to a file:
// memory that is given out earlier must never be released. Prints "ready".
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

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) {
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
  if (ready || block == nullptr) return;
  static constexpr char message[] = "released before main\n";
  static_cast<void>(!write(2, message, sizeof message - 1));
  _exit(9);
}

}  // extern "C"

int main() {
  ready = true;
  std::puts("ready");
}
