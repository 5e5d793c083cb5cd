// How long system calls take: run it natively, and under `farheap run --fault-mode inline|thread --local 32M --far
// memory:`. Prints the median of five loops for each kind, in microseconds. For docs/decisions/0030-call-sites.md.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t far_bytes = std::size_t{64} << 20;
constexpr int loops = 5;

template <typename Call>
void measure(const char* name, int calls, Call call) {
  std::array<double, loops> us{};
  for (double& loop : us) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      if (!call(i)) std::abort();
    }
    loop = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
  }
  std::sort(us.begin(), us.end());
  std::printf("%-42s %7.2f us (%.2f to %.2f)\n", name, us[loops / 2], us.front(), us.back());
}

}  // namespace

int main() {
  auto* const far = static_cast<char*>(std::malloc(far_bytes));
  std::memset(far, 1, far_bytes);
  static char local[4096];
  const int zeros = open("/dev/zero", O_RDONLY);
  int ends[2];
  if (zeros < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
  constexpr int calls = 40'000;
  measure("lseek, no memory", calls, [&](int) { return lseek(zeros, 0, SEEK_CUR) == 0; });
  measure("read of 64 B into local memory", calls, [&](int) { return read(zeros, local, 64) == 64; });
  measure("read of 64 B into far, resident memory", calls,
          [&](int i) { return read(zeros, far + i % 64 * 4096, 64) == 64; });
  measure("read of 256 KiB into far, resident memory", calls / 20,
          [&](int) { return read(zeros, far, 262'144) == 262'144; });
  measure("64 B through a pair of sockets, far to far", calls,
          [&](int) { return write(ends[0], far, 64) == 64 && read(ends[1], far + 8192, 64) == 64; });
}
