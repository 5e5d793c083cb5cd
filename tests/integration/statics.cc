// A program whose data lies in static arrays, as HPC codes write it: STREAM's three arrays, and a table that a child of
// fork changes, too. It knows every byte, and does not know Farheap.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>

namespace {

constexpr std::size_t words = std::size_t{4} << 20;  // 32 MiB each
constexpr std::size_t page_words = 512;

std::uint64_t a[words];
std::uint64_t b[words];
std::uint64_t c[words];
std::uint64_t few[64];  // small arrays are where they were

std::uint64_t expected(std::size_t i) {
  return 3 * (i * 0x9e3779b97f4a7c15u) + 7;
}

void triad(std::size_t first, std::size_t end) {
  for (std::size_t i = first; i < end; ++i) b[i] = i * 0x9e3779b97f4a7c15u;
  for (std::size_t i = first; i < end; ++i) c[i] = 7;
  for (std::size_t i = first; i < end; ++i) a[i] = 3 * b[i] + c[i];
}

bool wrong(const char* name) {
  std::printf("statics: %s\n", name);
  return false;
}

bool check() {
  for (std::size_t i = 0; i < words; ++i) {
    if (a[i] != expected(i)) return wrong("a holds other bytes");
  }
  return true;
}

bool check_child() {
  const pid_t child = fork();
  if (child == 0) {
    if (!check()) _exit(1);
    for (std::size_t i = 0; i < words; i += page_words / 2) a[i] = ~i;
    for (std::size_t i = 0; i < words; i += page_words / 2) {
      if (a[i] != ~i) _exit(2);
    }
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0 || wrong("the child saw other bytes");
}

bool check_calls() {
  auto* const page =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(&c[words / 2]) + 4095) / 4096 * 4096);
  if (madvise(page, 64 * 4096, MADV_DONTNEED) != 0) return wrong("madvise failed");
  for (std::size_t i = 0; i < 64 * 4096; ++i) {
    if (page[i] != std::byte{0}) return wrong("dropped bytes are back");
  }
  if (mprotect(page, 4096, PROT_READ) != 0 || mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0)
    return wrong("mprotect");
  int ends[2];
  if (pipe(ends) != 0 || write(ends[1], &a[words / 3], 4096) != 4096) return wrong("write from a static array");
  if (read(ends[0], page, 4096) != 4096) return wrong("read into a static array");
  return std::memcmp(page, &a[words / 3], 4096) == 0 || wrong("a pipe changed the bytes");
}

// The arrays begin in memory that is not far, which is whole blocks of 2 MiB: a mapping over their beginning replaces a
// local piece, a far one with a hole in it, a piece of a file, and a far one again.
struct beginning {
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t mib = std::size_t{1} << 20;
  static constexpr std::size_t bytes = 8 * mib;
  static constexpr std::size_t mapped = 6 * mib + 3 * page;
  std::byte* const first =
      reinterpret_cast<std::byte*>((std::min({reinterpret_cast<std::uintptr_t>(a), reinterpret_cast<std::uintptr_t>(b),
                                              reinterpret_cast<std::uintptr_t>(c)}) +
                                    page - 1) /
                                   page * page);

  void fill(std::size_t from, std::size_t to, std::size_t salt) const {
    for (std::size_t at = from; at < to; at += 64) first[at] = static_cast<std::byte>((at / 64 * 7 + at / page) ^ salt);
  }
  [[nodiscard]] bool holds(std::size_t from, std::size_t to, std::size_t salt) const {
    for (std::size_t at = from; at < to; at += 64) {
      if (first[at] != static_cast<std::byte>((at / 64 * 7 + at / page) ^ salt)) return false;
    }
    return true;
  }
  [[nodiscard]] bool is_empty() const {
    for (std::size_t at = 0; at < mapped; at += 64) {
      if (first[at] != std::byte{0}) return false;
    }
    return true;
  }
  // So much besides that all that can leave does.
  static void press() {
    constexpr std::size_t much = 64 * mib;
    void* const block = mmap(nullptr, much, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(block, 1, much);
    munmap(block, much);
  }
  [[nodiscard]] void* map(int flags, int file = -1, std::size_t at = 0, std::size_t count = mapped) const {
    return mmap(first + at, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, file, 0);
  }

  [[nodiscard]] bool check() const {
    fill(0, bytes, 1);
    press();
    if (!holds(0, bytes, 1)) return wrong("their beginning holds other bytes");
    if (map(MAP_FIXED) != MAP_FAILED) return wrong("a file that is none was mapped");
    if (map(MAP_ANONYMOUS | MAP_FIXED_NOREPLACE) != MAP_FAILED) return wrong("something was replaced");
    if (!holds(0, bytes, 1)) return wrong("a call that fails changed bytes");
    munmap(first + 3 * mib, page);
    std::FILE* const file = std::tmpfile();
    if (ftruncate(fileno(file), page) != 0) return wrong("no file");
    if (map(MAP_FIXED, fileno(file), 4 * mib, page) == MAP_FAILED) return wrong("a file was not mapped");
    if (map(MAP_ANONYMOUS | MAP_FIXED) != first) return wrong("nothing was mapped over them");
    if (!is_empty()) return wrong("what is mapped over them is not empty");
    fill(0, mapped, 2);
    press();
    if (!holds(0, mapped, 2)) return wrong("what is mapped over them lost bytes");
    if (!holds(mapped, bytes, 1)) return wrong("what lies behind it lost bytes");
    if (munmap(first, mapped) != 0 || map(MAP_ANONYMOUS | MAP_FIXED) != first) return wrong("mapped again");
    press();
    return is_empty() || wrong("what is mapped again is not empty");
  }
};

}  // namespace

// A call's memory may begin or end beside what is far: whole arrays, and a few bytes across each edge of a block.
bool check_edges() {
  for (const std::uint64_t* const array : {a, b, c}) {
    const int file = memfd_create("array", 0);
    if (write(file, array, sizeof a) != sizeof a) return wrong("an array is not written as a whole");
    close(file);
  }
  constexpr std::uintptr_t block_bytes = std::uintptr_t{2} << 20;
  constexpr std::size_t half = 64;
  const auto [lowest, highest] = std::minmax({&a[0], &b[0], &c[0]});
  const auto first = reinterpret_cast<std::uintptr_t>(lowest) + half;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(highest) + sizeof a - half;
  for (std::uintptr_t edge = (first + block_bytes - 1) / block_bytes * block_bytes; edge < end; edge += block_bytes) {
    int sockets[2];
    unsigned char got[2 * half];
    const auto* const at = reinterpret_cast<unsigned char*>(edge - half);
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) != 0) return wrong("no socket pair");
    if (send(sockets[0], at, sizeof got, 0) != sizeof got) return wrong("a message across an edge is not sent");
    if (recv(sockets[1], got, sizeof got, 0) != sizeof got || std::memcmp(got, at, sizeof got) != 0)
      return wrong("a message across an edge is another");
    close(sockets[0]);
    close(sockets[1]);
  }
  return true;
}

int main() {
  std::thread other(triad, words / 2, words);
  triad(0, words / 2);
  other.join();
  few[1] = 1;
  if (!check() || !check_child() || !check() || !check_calls() || !check_edges() || !check() || few[1] != 1 ||
      few[2] != 0)
    return 1;
  if (!beginning().check()) return 1;
  std::puts("statics: done");
  return 0;
}
