// How long a read of 4 KiB takes over shared memory, one at a time, both sides polling: prints medians and tails.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "backend/shm/shm_backend.h"
#include "platform/clock.h"
#include "tests/support/shm_test_server.h"

namespace far::server {
namespace {

constexpr std::size_t warm_up = 2'000;
constexpr std::size_t rounds = 50'000;
constexpr std::size_t slots = 8192;

bool measure(const shm_test_server& server, bool server_copies) {
  backend::shm_options chosen;
  chosen.name = server.path();
  chosen.server_copies = server_copies;
  auto opened = backend::shm_backend::create(chosen);
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", opened.error().message.c_str());
    return false;
  }
  backend::backend& far = *opened.value();
  const auto queue = far.open_channel(16).value();
  result<backend::slot_id> first = far.allocate(slots);
  while (!first.ok() && first.error().code == EAGAIN) {
    static_cast<void>(far.tend());
    first = far.allocate(slots);
  }
  if (!first.ok()) return false;
  std::vector<std::byte> page(page_bytes);
  std::vector<std::uint64_t> times_ns;
  const platform::monotonic_clock clock;
  for (std::size_t i = 0; i < warm_up + rounds; ++i) {
    const backend::request one{.slot = first.value() + i * 2654435761u % slots, .buffer = page.data()};
    backend::completion done;
    const std::uint64_t began_ns = clock.now_ns();
    if (queue->submit(std::span(&one, 1)) != 1) return false;
    while (queue->poll(std::span(&done, 1)) == 0) {
    }
    if (i >= warm_up) times_ns.push_back(clock.now_ns() - began_ns);
    if (done.error_code != 0) return false;
  }
  std::sort(times_ns.begin(), times_ns.end());
  const auto at = [&](double share) {
    return static_cast<double>(times_ns[static_cast<std::size_t>(share * static_cast<double>(rounds - 1))]) / 1000;
  };
  std::printf("%-28s p50 %6.2f us  p99 %6.2f us\n", server_copies ? "through the rings" : "the client's own copy",
              at(0.5), at(0.99));
  return true;
}

}  // namespace
}  // namespace far::server

int main() {
  using far::server::shm_test_server;
  // So long that the server's thread polls all the time, as it does while requests come one after the other.
  constexpr std::uint64_t spin_ns = 2'000'000;
  constexpr std::uint64_t patience_ns = 10'000'000'000;
  const shm_test_server server(shm_test_server::lending(std::uint64_t{256} << 20, 0), "", patience_ns, spin_ns);
  return far::server::measure(server, false) && far::server::measure(server, true) ? EXIT_SUCCESS : EXIT_FAILURE;
}
