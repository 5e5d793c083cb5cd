// Writes of devices to memory: reads with O_DIRECT into more memory than the budget, while other memory is touched; and
// io_uring and libaio, which are used if the kernel has them. Knows nothing of Farheap.
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace {

constexpr size_t mib = size_t{1} << 20;
constexpr size_t file_bytes = 4 * mib;
constexpr size_t buffer_bytes = 24 * mib;
constexpr size_t other_bytes = 24 * mib;
constexpr size_t step_bytes = 1 * mib;

std::atomic<bool> done{false};

std::uint64_t value_of(size_t at) {
  return at * 0x9e3779b97f4a7c15u + 1;
}

void* touch_others(void*) {
  auto* const other = static_cast<volatile unsigned char*>(malloc(other_bytes));
  while (!done) {
    for (size_t at = 0; at < other_bytes && !done; at += 4096) other[at] = static_cast<unsigned char>(other[at] + 1);
  }
  return nullptr;
}

int make_file(const char* directory) {
  const int file = open(directory, O_TMPFILE | O_RDWR | O_DIRECT, 0600);
  if (file < 0) return -1;
  void* block = nullptr;
  if (posix_memalign(&block, 4096, file_bytes) != 0) abort();
  for (size_t at = 0; at < file_bytes / 8; ++at) static_cast<std::uint64_t*>(block)[at] = value_of(at);
  if (write(file, block, file_bytes) != static_cast<ssize_t>(file_bytes)) return -1;
  free(block);
  return file;
}

size_t read_and_compare(int file, unsigned char* buffer, int passes) {
  size_t wrong = 0;
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t at = 0; at < buffer_bytes; at += step_bytes) {
      memset(buffer + at, pass, step_bytes);
      const size_t from = (at + static_cast<size_t>(pass) * step_bytes) % file_bytes;
      size_t got = 0;
      while (got < step_bytes) {  // reading less than all is legal
        const ssize_t now = pread(file, buffer + at + got, step_bytes - got, static_cast<off_t>(from + got));
        if (now <= 0) return ~size_t{0};
        got += static_cast<size_t>(now);
      }
      const auto* const values = reinterpret_cast<const std::uint64_t*>(buffer + at);
      for (size_t i = 0; i < step_bytes / 8; ++i) wrong += values[i] != value_of(from / 8 + i);
    }
  }
  return wrong;
}

}  // namespace

int main(int count, char** arguments) {
  io_uring_params ring{};
  const long opened = syscall(SYS_io_uring_setup, 4, &ring);
  printf("io_uring: %s\n", opened >= 0 ? "there" : strerror(errno));
  unsigned long context = 0;
  const long asynchronous = syscall(SYS_io_setup, 4, &context);
  printf("libaio: %s\n", asynchronous == 0 ? "there" : strerror(errno));
  const int file = make_file(count > 1 ? arguments[1] : "/var/tmp");
  if (file < 0) {
    printf("no O_DIRECT: %s\n", strerror(errno));
    return 0;
  }
  void* buffer = nullptr;
  if (posix_memalign(&buffer, 4096, buffer_bytes) != 0) abort();
  pthread_t other;
  pthread_create(&other, nullptr, touch_others, nullptr);
  const size_t wrong = read_and_compare(file, static_cast<unsigned char*>(buffer), 6);
  done = true;
  pthread_join(other, nullptr);
  printf("%zu wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}
