#include "backend/zmem/zmem_backend.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "base/sanitizers.h"

namespace far::backend {
namespace {

constexpr std::size_t pages = 64;

class set_clock final : public platform::clock {
 public:
  [[nodiscard]] std::uint64_t now_ns() const override { return now_ns_; }
  std::uint64_t now_ns_ = 1;
};

std::vector<std::byte> content(unsigned seed) {
  std::vector<std::byte> content(pages * page_bytes);
  for (std::size_t i = 0; i < content.size(); ++i) {
    content[i] = i % 64 < 32 ? static_cast<std::byte>((i * 2654435761u + seed * 40503u) >> 13) : std::byte{7};
  }
  return content;
}

bool transfer(channel& queue, operation op, slot_id first, std::vector<std::byte>& bytes) {
  const request one{.op = op, .slot = first, .length_bytes = pages * page_bytes, .buffer = bytes.data()};
  completion done;
  return queue.submit({&one, 1}) == 1 && queue.poll({&done, 1}) == 1 && done.error_code == 0;
}

bool holds(backend& tested, slot_id first, unsigned seed) {
  const std::unique_ptr<channel> queue = tested.open_channel(4).value();
  std::vector<std::byte> bytes(pages * page_bytes);
  return transfer(*queue, operation::read, first, bytes) && bytes == content(seed);
}

bool put(backend& tested, slot_id first, unsigned seed) {
  const std::unique_ptr<channel> queue = tested.open_channel(4).value();
  std::vector<std::byte> bytes = content(seed);
  return transfer(*queue, operation::write, first, bytes);
}

TEST(zmem_backend, reports_what_it_occupies) {
  const auto tested = zmem_backend::create({.capacity_bytes = 16 * mib}).value();
  const slot_id first = tested->allocate(pages).value();
  EXPECT_EQ(tested->report().stored_bytes, 0u);
  ASSERT_TRUE(put(*tested, first, 1));
  const capacity now = tested->report();
  EXPECT_EQ(now.used_slots, pages);
  EXPECT_GT(now.stored_bytes, 0u);
  EXPECT_LE(now.stored_bytes, pages * page_bytes * 3 / 4);
  EXPECT_EQ(now.most_stored_bytes, 16 * mib);
}

TEST(zmem_backend, a_full_one_has_no_slots_until_some_are_freed) {
  const auto tested = zmem_backend::create({.capacity_bytes = mib}).value();
  std::vector<slot_id> runs;
  while (true) {
    const result<slot_id> first = tested->allocate(pages);
    if (!first) {
      EXPECT_EQ(first.error().code, ENOSPC);
      break;
    }
    runs.push_back(first.value());
    ASSERT_TRUE(put(*tested, runs.back(), static_cast<unsigned>(runs.size())));
  }
  EXPECT_GT(runs.size(), mib / (pages * page_bytes)) << "compressed, there is room for more";
  for (std::size_t i = 0; i < runs.size(); ++i) EXPECT_TRUE(holds(*tested, runs[i], static_cast<unsigned>(i + 1)));
  tested->free(runs[0], pages);
  tested->free(runs[1], pages);
  EXPECT_TRUE(tested->allocate(pages).ok());
}

TEST(zmem_backend, takes_no_new_pages_while_the_machine_is_short_of_memory) {
  set_clock time;
  std::uint64_t available = 2 * gib;
  const auto tested = zmem_backend::create({.capacity_bytes = 64 * mib,
                                            .leave_bytes = gib,
                                            .available_bytes = [&available] { return std::optional(available); },
                                            .clock = &time})
                          .value();
  const slot_id first = tested->allocate(pages).value();
  ASSERT_TRUE(put(*tested, first, 1));
  EXPECT_EQ(tested->report().most_stored_bytes, 64 * mib);

  available = gib - 1;
  for (std::size_t taken = pages; taken < 4 * mib / page_bytes; taken += pages) {
    EXPECT_FALSE(tested->wants_tending());
    ASSERT_TRUE(tested->allocate(pages).ok());
  }
  EXPECT_TRUE(tested->wants_tending());
  EXPECT_LE(tested->tend(), 100'000'000u);
  EXPECT_EQ(tested->allocate(pages).error().code, ENOSPC);
  EXPECT_EQ(tested->report().most_stored_bytes, tested->report().stored_bytes) << "a part may move on";
  EXPECT_TRUE(holds(*tested, first, 1));

  available = gib;
  time.now_ns_ += 100'000'000 - 1;
  EXPECT_EQ(tested->tend(), 1u);
  EXPECT_EQ(tested->allocate(pages).error().code, ENOSPC);
  ++time.now_ns_;
  EXPECT_GT(tested->tend(), 100'000'000u);
  EXPECT_TRUE(tested->allocate(pages).ok());
}

TEST(zmem_backend, looks_at_the_machine_while_something_is_stored) {
  set_clock time;
  unsigned looks = 0;
  const auto look = [&looks] {
    ++looks;
    return std::optional(2 * gib);
  };
  const auto tested =
      zmem_backend::create({.capacity_bytes = 64 * mib, .leave_bytes = gib, .available_bytes = look, .clock = &time})
          .value();
  EXPECT_EQ(looks, 1u);
  time.now_ns_ += 1'000'000'000;
  tested->tend();
  EXPECT_EQ(looks, 1u) << "nothing is stored";
  const slot_id first = tested->allocate(pages).value();
  tested->tend();
  EXPECT_EQ(looks, 2u);
  tested->tend();
  EXPECT_EQ(looks, 2u) << "it has just looked";
  time.now_ns_ += 1'000'000'000;
  tested->tend();
  EXPECT_EQ(looks, 3u);
  tested->free(first, pages);
}

// Takes what it may without another look.
std::size_t take_all(backend& from) {
  std::size_t taken = 0;
  while (from.allocate(pages).ok()) taken += pages;
  return taken;
}

TEST(zmem_backend, takes_a_part_of_what_it_is_to_leave_between_two_looks) {
  std::uint64_t available = gib;
  const auto tested = zmem_backend::create({.capacity_bytes = 64 * mib,
                                            .leave_bytes = 32 * mib,
                                            .available_bytes = [&available] { return std::optional(available); }})
                          .value();
  EXPECT_EQ(take_all(*tested), (32 * mib / 8 + 32 * mib / 64) / page_bytes);
  EXPECT_TRUE(tested->wants_tending());
  available = 40 * mib;
  tested->tend();
  EXPECT_EQ(take_all(*tested), (8 * mib / 8 + 32 * mib / 64) / page_bytes) << "little is left";
  available = 32 * mib;
  tested->tend();
  EXPECT_EQ(take_all(*tested), 32 * mib / 64 / page_bytes);
}

// However many there are, and in whatever order they look.
TEST(zmem_backend, several_that_count_together_take_no_more_than_one) {
  shared_takings shared;
  std::vector<std::unique_ptr<backend>> tiers;
  for (int i = 0; i < 16; ++i) {
    tiers.push_back(zmem_backend::create({.capacity_bytes = 64 * mib,
                                          .leave_bytes = 32 * mib,
                                          .available_bytes = [] { return std::optional(gib); },
                                          .shared = &shared})
                        .value());
  }
  constexpr std::size_t most = (32 * mib / 8 + 32 * mib / 64) / page_bytes;
  std::size_t taken = 0;
  for (const auto& tier : tiers) taken += take_all(*tier);
  EXPECT_EQ(taken, most);
  tiers[3]->tend();
  EXPECT_EQ(take_all(*tiers[2]), 0u) << "it has not looked itself";
  EXPECT_EQ(take_all(*tiers[3]), most);
  tiers[2]->tend();
  EXPECT_EQ(take_all(*tiers[2]), most);
  shared.taken_pages = 0;  // the job was founded again
  EXPECT_EQ(take_all(*tiers[2]), 0u);
  EXPECT_TRUE(tiers[2]->wants_tending());
  tiers[2]->tend();
  EXPECT_EQ(take_all(*tiers[2]), most);
}

TEST(zmem_backend, takes_nothing_that_is_promised_to_the_budget) {
  shared_takings shared;
  shared.promised_bytes = 90 * mib;
  const auto tested = zmem_backend::create({.capacity_bytes = 64 * mib,
                                            .leave_bytes = 32 * mib,
                                            .available_bytes = [] { return std::optional(130 * mib); },
                                            .shared = &shared})
                          .value();
  EXPECT_EQ(take_all(*tested), (mib + mib / 2) / page_bytes);
  shared.promised_bytes = 100 * mib;
  tested->tend();
  EXPECT_EQ(take_all(*tested), 0u);
}

std::size_t resident_kib() {
  std::ifstream file("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  file >> all >> resident;
  return resident * page_bytes / kib;
}

TEST(zmem_backend, gives_the_frames_of_freed_pages_back_while_the_machine_is_short) {
  if (has_address_sanitizer) GTEST_SKIP() << "a sanitizer keeps what was freed for a while, and notes of its own";
  std::uint64_t available = gib;
  const auto tested = zmem_backend::create({.capacity_bytes = 64 * mib,
                                            .leave_bytes = 32 * mib,
                                            .available_bytes = [&available] { return std::optional(available); }})
                          .value();
  const std::size_t before_kib = resident_kib();
  std::vector<slot_id> runs;
  for (std::size_t i = 0; i < 4 * mib / page_bytes / pages; ++i) {
    runs.push_back(tested->allocate(pages).value());
    ASSERT_TRUE(put(*tested, runs.back(), static_cast<unsigned>(i)));
    if (tested->wants_tending()) tested->tend();
  }
  const std::size_t full_kib = resident_kib();
  ASSERT_GT(full_kib, before_kib + 1024) << "even compressed";
  const slot_id last = runs.back();
  runs.pop_back();
  for (const slot_id run : runs) tested->free(run, pages);
  while (tested->wants_tending()) tested->tend();
  EXPECT_GT(resident_kib() + 512, full_kib) << "they are kept for the next pages";
  available = 0;
  static_cast<void>(take_all(*tested));  // so that it looks again
  while (tested->wants_tending()) tested->tend();
  EXPECT_LT(resident_kib(), before_kib + 1024);
  tested->free(last, pages);
}

TEST(zmem_backend, a_child_of_fork_has_its_own_copy) {
  const auto tested = zmem_backend::create({.capacity_bytes = 16 * mib}).value();
  const slot_id kept = tested->allocate(pages).value();
  const slot_id dropped = tested->allocate(pages).value();
  ASSERT_TRUE(put(*tested, kept, 1) && put(*tested, dropped, 2));
  tested->prepare_fork();
  const pid_t child = fork();
  if (child == 0) {
    tested->after_fork_in_child();
    for (std::size_t i = 0; i < pages; ++i) tested->claim_in_child(kept + i);
    tested->close_claims_in_child();
    bool right = tested->report().used_slots == pages && holds(*tested, kept, 1);
    const slot_id fresh = tested->allocate(2 * pages).value();
    right = right && put(*tested, fresh, 3) && put(*tested, kept, 4) && holds(*tested, fresh, 3);
    tested->free(kept, pages);
    tested->free(fresh, 2 * pages);
    _exit(right && tested->report().stored_bytes == 0 ? 0 : 1);
  }
  tested->after_fork_in_parent();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(holds(*tested, kept, 1) && holds(*tested, dropped, 2));
}

// The page that somebody waits for comes before those that are read ahead behind it.
TEST(zmem_backend, one_read_is_made_at_a_time) {
  const auto tested = zmem_backend::create({.capacity_bytes = 16 * mib}).value();
  const slot_id first = tested->allocate(pages).value();
  ASSERT_TRUE(put(*tested, first, 1));
  const std::unique_ptr<channel> queue = tested->open_channel(4).value();
  std::vector<std::byte> bytes(pages * page_bytes);
  const std::array<request, 2> reads{request{.slot = first, .buffer = bytes.data(), .cookie = 1},
                                     request{.slot = first, .buffer = bytes.data(), .cookie = 2}};
  ASSERT_EQ(queue->submit(reads), 2u);
  std::array<completion, 4> done;
  for (const std::uint64_t expected : {1u, 2u}) {
    ASSERT_EQ(queue->poll(done), 1u);
    EXPECT_EQ(done[0].cookie, expected);
  }
}

}  // namespace
}  // namespace far::backend
