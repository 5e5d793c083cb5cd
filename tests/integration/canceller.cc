// Threads that read far memory at random are cancelled, one after the other: with `hints`, whose work the runtime does
// on the thread itself, in `calls` that the kernel serves with it, or without. Prints how many ended so. Knows nothing
// of Farheap but the header.
#include <far/hint.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t bytes = 48 << 20;
constexpr int rounds = 12;
constexpr int call_bytes = 20'000;

unsigned char* memory = nullptr;
bool has_hints = false;
int zeros = -1;  // where calls read from
volatile std::uint64_t sum = 0;

void* read_until_cancelled(void* /*context*/) {
  for (std::uint64_t random = 1;; pthread_testcancel()) {
    for (int i = 0; i < 500; ++i) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      unsigned char* const place = &memory[(random >> 30) % (bytes - call_bytes)];
      if (has_hints) far_hint(place);
      if (zeros < 0) {
        sum = sum + *place;
      } else if (read(zeros, place, call_bytes) != call_bytes) {
        std::abort();
      }
    }
  }
  return nullptr;
}

}  // namespace

int main(int count, char** arguments) {
  has_hints = count > 1 && std::strcmp(arguments[1], "hints") == 0;
  const bool has_calls = count > 1 && std::strcmp(arguments[1], "calls") == 0;
  if (has_calls && (zeros = open("/dev/zero", O_RDONLY | O_CLOEXEC)) < 0) return 1;
  memory = static_cast<unsigned char*>(std::malloc(bytes));
  if (memory == nullptr) return 1;
  for (std::size_t i = 0; i < bytes; i += 4096) memory[i] = static_cast<unsigned char>(i >> 12);
  int cancelled = 0;
  for (int i = 0; i < rounds; ++i) {
    pthread_t thread{};
    if (pthread_create(&thread, nullptr, read_until_cancelled, nullptr) != 0) return 1;
    usleep(10'000 + 777 * i);
    pthread_cancel(thread);
    void* ended = nullptr;
    pthread_join(thread, &ended);
    if (ended == PTHREAD_CANCELED) ++cancelled;
  }
  std::printf("cancelled: %d of %d\n", cancelled, rounds);
  std::free(memory);
  return 0;
}
