#include "backend/zmem/page_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace far::backend {
namespace {

using bytes = std::vector<std::byte>;

// Pages of all kinds: empty, of one word, easy to compress, hard, impossible.
bytes make_page(std::mt19937_64& random) {
  bytes content(page_bytes);
  const std::uint64_t word = random();
  const std::size_t kind = random() % 6;
  if (kind == 0) return content;
  for (std::size_t i = 0; i < content.size(); i += 8) std::memcpy(&content[i], &word, 8);
  if (kind == 1) return content;
  const std::size_t noise = kind == 2 ? page_bytes : random() % page_bytes;
  for (std::size_t i = 0; i < noise; ++i) content[i] = static_cast<std::byte>(random());
  return content;
}

// Random writes, reads, frees and compaction of the slots below `slots`, against a model.
class traffic {
 public:
  traffic(page_store& tested, std::uint64_t first, std::uint64_t slots, std::uint64_t seed)
      : tested_(tested), first_(first), slots_(slots), random_(seed), with_({}) {}
  ~traffic() {
    for (const auto& [slot, page] : model_) tested_.free(slot);
  }

  void step() {
    const std::uint64_t slot = first_ + random_() % slots_;
    const std::size_t offset = random_() % 3 == 0 ? random_() % page_bytes : 0;
    const std::size_t length = offset == 0 && random_() % 2 == 0 ? page_bytes : 1 + random_() % (page_bytes - offset);
    switch (random_() % 4) {
      case 0: return free(slot);
      case 1: return check(slot, offset, length);
      default: return write(slot, offset, length);
    }
  }

  void check_all() {
    for (const auto& [slot, page] : model_) check(slot, 0, page_bytes);
  }

 private:
  void free(std::uint64_t slot) {
    if (model_.erase(slot) > 0) tested_.free(slot);
  }

  void check(std::uint64_t slot, std::size_t offset, std::size_t length) {
    const auto found = model_.find(slot);
    if (found == model_.end()) return;
    bytes into(length);
    ASSERT_EQ(tested_.read(slot, offset, into, with_), 0);
    ASSERT_EQ(std::memcmp(into.data(), found->second.data() + offset, length), 0) << slot << " at " << offset;
  }

  void write(std::uint64_t slot, std::size_t offset, std::size_t length) {
    if (!model_.contains(slot)) {
      if (!tested_.promise(1)) return;
      model_.emplace(slot, bytes(page_bytes));
      if (length < page_bytes) return;
    }
    const bytes page = make_page(random_);
    const int failure = tested_.write(slot, offset, std::span(page).subspan(offset, length), with_);
    if (failure == ENOSPC) return check(slot, 0, page_bytes);
    ASSERT_EQ(failure, 0);
    std::memcpy(model_[slot].data() + offset, page.data() + offset, length);
  }

  page_store& tested_;
  const std::uint64_t first_;
  const std::uint64_t slots_;
  std::mt19937_64 random_;
  page_codec with_;
  std::map<std::uint64_t, bytes> model_;
};

TEST(page_store, agrees_with_a_model) {
  page_store tested(64 * mib, 4096);
  traffic one(tested, 0, 4096, 1);
  for (int i = 0; i < 30'000; ++i) {
    one.step();
    if (HasFatalFailure()) return;
    if (i % 64 == 0) tested.tend();
    if (i % 10'000 == 0) tested.validate();
  }
  one.check_all();
}

TEST(page_store, a_full_one_agrees_with_a_model) {
  page_store tested(mib, 4096);
  {
    traffic one(tested, 0, 2000, 2);
    for (int i = 0; i < 30'000; ++i) {
      one.step();
      if (HasFatalFailure()) return;
      if (i % 5000 == 0) tested.validate();
    }
    EXPECT_LE(tested.occupied_bytes(), mib);
    one.check_all();
  }
  EXPECT_EQ(tested.occupied_bytes(), 0u);
}

TEST(page_store, threads_do_not_disturb_each_other) {
  page_store tested(16 * mib, 4096);
  std::atomic<bool> stop{false};
  std::thread tends([&] {
    while (!stop) {
      tested.tend();
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> running;
  for (std::uint64_t id = 0; id < 4; ++id) {
    running.emplace_back([&, id] {
      traffic one(tested, id * 1024, 1024, id);
      for (int i = 0; i < 4000 && !testing::Test::HasFatalFailure(); ++i) one.step();
      one.check_all();
    });
  }
  for (std::thread& thread : running) thread.join();
  stop = true;
  tends.join();
  tested.validate();
  EXPECT_EQ(tested.occupied_bytes(), 0u);
}

TEST(page_store, a_page_of_one_word_takes_no_room) {
  page_store tested(mib, 16);
  page_codec with({});
  bytes page(page_bytes);
  for (std::size_t i = 0; i < page.size(); ++i) page[i] = static_cast<std::byte>(i % 8);
  ASSERT_TRUE(tested.promise(1));
  ASSERT_EQ(tested.write(3, 0, page, with), 0);
  EXPECT_EQ(tested.occupied_bytes(), 0u);
  for (const std::size_t offset : {0u, 1u, 5u, 4000u}) {
    bytes part(90);
    ASSERT_EQ(tested.read(3, offset, part, with), 0);
    EXPECT_EQ(std::memcmp(part.data(), page.data() + offset, part.size()), 0) << offset;
  }
  EXPECT_TRUE(tested.promise(256)) << "its promise is used up";
}

TEST(page_store, what_is_freed_goes_back_to_the_kernel) {
  constexpr std::uint64_t slots = 16'384;
  page_store tested(128 * mib, slots);
  page_codec with({});
  std::mt19937_64 random(5);
  bytes page(page_bytes);
  ASSERT_TRUE(tested.promise(slots));
  for (slot_id slot = 0; slot < slots; ++slot) {
    for (std::size_t i = 0; i < page.size() / 2; ++i) page[i] = static_cast<std::byte>(random());
    ASSERT_EQ(tested.write(slot, 0, page, with), 0);
  }
  const std::uint64_t full_bytes = tested.occupied_bytes();
  EXPECT_LT(full_bytes, slots * page_bytes * 6 / 10);
  // All but every tenth: each zone still has some.
  for (slot_id slot = 0; slot < slots; ++slot) {
    if (slot % 10 != 0) tested.free(slot);
  }
  EXPECT_EQ(tested.occupied_bytes(), full_bytes);
  EXPECT_TRUE(tested.wants_tending());
  while (tested.tend()) {
  }
  EXPECT_LT(tested.occupied_bytes(), full_bytes / 8);
  tested.validate();
  for (slot_id slot = 0; slot < slots; slot += 10) tested.free(slot);
}

}  // namespace
}  // namespace far::backend
