#include "tests/support/slot_transfers.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

#include "base/units.h"

namespace far::testing_support {
namespace {

constexpr std::uint64_t wait_ns = 10'000'000;
constexpr std::chrono::minutes longest{2};  // on a busy machine others may be late

int transfer(backend::backend& far, backend::channel& queue, backend::operation op, backend::slot_id slot,
             std::span<std::byte> bytes) {
  const backend::request one{.op = op,
                             .slot = slot,
                             .length_bytes = static_cast<std::uint32_t>(bytes.size()),
                             .buffer = bytes.data(),
                             .cookie = slot};
  EXPECT_EQ(queue.submit({&one, 1}), 1u);
  std::array<backend::completion, 1> done;
  const auto until = std::chrono::steady_clock::now() + longest;
  while (queue.poll(done) == 0) {
    if (std::chrono::steady_clock::now() > until) return EDEADLK;
    queue.wait(wait_ns);
    far.tend();
  }
  EXPECT_EQ(done[0].cookie, slot);
  return done[0].error_code;
}

}  // namespace

std::byte content(backend::slot_id slot, std::size_t at, std::uint64_t generation) {
  return static_cast<std::byte>((slot * page_bytes + at + generation * 77) * 0x9e3779b97f4a7c15u >> 40);
}

int write_slot(backend::backend& far, backend::channel& queue, backend::slot_id slot, std::uint64_t generation) {
  std::vector<std::byte> bytes(page_bytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = content(slot, i, generation);
  return transfer(far, queue, backend::operation::write, slot, bytes);
}

int read_slot(backend::backend& far, backend::channel& queue, backend::slot_id slot, std::uint64_t generation) {
  std::vector<std::byte> bytes(page_bytes);
  if (const int code = transfer(far, queue, backend::operation::read, slot, bytes); code != 0) return code;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != content(slot, i, generation)) return EBADMSG;
  }
  return 0;
}

bool reached(backend::backend& far, const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + longest;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    far.tend();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace far::testing_support
