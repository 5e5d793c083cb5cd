// Hints on the real kernel, through far/hint.h as programs use it. Needs permission for userfaultfd.
#include "pager/hints.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "engine/residency.h"
#include "pager/pager.h"
#include "platform/kernel_features.h"

extern "C" const far_hint_view* far_hint_find_view() {
  return &far::pager::hint_view();
}

namespace far::pager {
namespace {

constexpr std::size_t budget_pages = 4096;
constexpr std::size_t budget = budget_pages * page_bytes;

class hints_test : public ::testing::Test {
 protected:
  void start(const char* far_uri = "memory:", const char* policy = "second-chance") {
    if (!platform::probe_kernel().userfaultfd) {
      GTEST_SKIP() << "no userfaultfd: " << std::strerror(platform::probe_kernel().userfaultfd_error_code);
    }
    options chosen;
    chosen.budget_bytes = budget;
    chosen.far_uri = far_uri;
    chosen.policy = policy;
    result<std::unique_ptr<pager>> created = pager::create(chosen);
    ASSERT_TRUE(created.ok()) << created.error().message;
    far_ = std::move(created).value();
    serve_hints(*far_);
  }
  void TearDown() override {
    if (far_ == nullptr) return;
    far_->validate();
    stop_serving_hints(*far_);
  }

  // Pages with content, all of them Remote.
  std::byte* make_remote(std::size_t pages) {
    std::byte* const block = make(pages);
    far_->evict(block, pages * page_bytes);
    return block;
  }
  std::byte* make(std::size_t pages) {
    const result<std::byte*> mapped = far_->map(pages * page_bytes, PROT_READ | PROT_WRITE, 2 * mib);
    EXPECT_TRUE(mapped.ok());
    for (std::size_t i = 0; i < pages; ++i) number(mapped.value(), i) = i * 31 + 7;
    return mapped.value();
  }
  static std::uint64_t& number(std::byte* block, std::size_t page) {
    return *reinterpret_cast<std::uint64_t*>(block + page * page_bytes);
  }
  static std::size_t count_wrong(std::byte* block, std::size_t pages) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < pages; ++i) wrong += number(block, i) == i * 31 + 7 ? 0 : 1;
    return wrong;
  }
  [[nodiscard]] std::string residents(const std::byte* block, std::size_t pages) const {
    std::string found;
    const std::uint8_t* const states = far_->state_bytes() + (block - far_->start()) / page_bytes;
    for (std::size_t i = 0; i < pages; ++i) {
      const std::uint8_t state = __atomic_load_n(states + i, __ATOMIC_RELAXED);
      found += state == engine::residency::byte_of_resident ? 'x' : '.';
    }
    return found;
  }
  // Waits for what was only read ahead. Less than the second after which the reclaimer looks at everything unasked.
  void settle(const std::byte* block, std::size_t pages, const std::string& expected) {
    for (int i = 0; i < 700 && residents(block, pages) != expected; ++i) {
      static_cast<void>(far_->snapshot());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(residents(block, pages), expected);
  }
  // Accesses that the hardware guard had to resolve.
  [[nodiscard]] std::uint64_t unhinted() const {
    const engine::statistics now = far_->snapshot();
    return now.misses + now.waits + now.zero_fills + now.write_faults - now.hinted_misses;
  }

  std::unique_ptr<pager> far_;
};

TEST_F(hints_test, what_was_hinted_is_there) {
  start("memory:?latency=20us");
  if (IsSkipped()) return;
  std::byte* const block = make_remote(1024);
  std::mt19937_64 random(5);
  const std::uint64_t before = unhinted();
  for (int i = 0; i < 300; ++i) {
    const std::size_t page = random() % 1024;
    far_hint(&number(block, page));
    EXPECT_EQ(number(block, page), page * 31 + 7);
  }
  EXPECT_EQ(unhinted(), before);
  EXPECT_GT(far_->snapshot().hinted_misses, 100u);
}

// Of a range that compiled code is going to overwrite, the bytes of whole pages are not read.
TEST_F(hints_test, pages_that_are_overwritten_come_empty_and_may_be_written) {
  start("memory:?latency=20us");
  if (IsSkipped()) return;
  std::byte* const block = make_remote(64);
  const engine::statistics before = far_->snapshot();
  far_hint_site site{__FILE__, __LINE__, 0};
  hint_view().miss(block + 100, 10 * page_bytes, far_hint_overwrite, &site);
  EXPECT_EQ(residents(block, 12), ".xxxxxxxxx..");
  EXPECT_EQ(far_->snapshot().fetched_pages, before.fetched_pages);
  EXPECT_LT(far_->snapshot().far_bytes, before.far_bytes) << "their slots are free";
  const std::uint64_t unhinted_before = unhinted();
  for (std::size_t i = 1; i < 10; ++i) {
    EXPECT_EQ(number(block, i), 0u);
    number(block, i) = i * 31 + 7;
  }
  EXPECT_EQ(unhinted(), unhinted_before);
  far_->evict(block, 64 * page_bytes);
  EXPECT_EQ(count_wrong(block, 64), 0u);
}

// More than there is room for: what was brought first may leave meanwhile, and comes back.
TEST_F(hints_test, more_pages_may_be_overwritten_than_fit) {
  start();
  if (IsSkipped()) return;
  constexpr std::size_t pages = budget_pages + 512;
  std::byte* const block = make_remote(pages);
  far_hint_site site{__FILE__, __LINE__, 0};
  hint_view().miss(block, pages * page_bytes, far_hint_overwrite, &site);
  for (std::size_t i = 0; i < pages; ++i) number(block, i) = i * 31 + 7;
  EXPECT_EQ(count_wrong(block, pages), 0u);
  EXPECT_LE(far_->snapshot().peak_local_bytes, budget);
}

// A handler of the program's for writes there may want to look at them.
TEST_F(hints_test, pages_that_may_not_be_written_keep_their_bytes) {
  start();
  if (IsSkipped()) return;
  std::byte* const block = make_remote(16);
  far_hint_site site{__FILE__, __LINE__, 0};
  ASSERT_TRUE(far_->protect(block + 4 * page_bytes, page_bytes, PROT_READ).ok());
  hint_view().miss(block, 16 * page_bytes, far_hint_overwrite, &site);
  EXPECT_EQ(residents(block, 16), std::string(16, '.'));
  EXPECT_EQ(count_wrong(block, 16), 0u);
}

// Pages that the program names are wanted, so they count as missed; neighbours that are read ahead do not.
TEST_F(hints_test, pages_that_are_named_soon_after_they_left_stay) {
  start("memory:", "2q");
  if (IsSkipped()) return;
  std::byte* const block = make_remote(64);
  for (std::size_t i = 0; i < 16; ++i) far_hint(&number(block, i), .prefetch = true);
  far_->prefetch(block + 16 * page_bytes, 16 * page_bytes);
  settle(block, 32, std::string(32, 'x'));
  static_cast<void>(make(budget_pages + 1024));  // pushes others out
  EXPECT_EQ(residents(block, 32), std::string(16, 'x') + std::string(16, '.'));
}

TEST_F(hints_test, a_write_hint_makes_the_page_writable) {
  start();
  if (IsSkipped()) return;
  std::byte* const block = make_remote(512);
  EXPECT_EQ(count_wrong(block, 512), 0u);
  far_->evict(block, 512 * page_bytes);
  EXPECT_EQ(count_wrong(block, 512), 0u);  // read only, this time
  far_->evict(block, 512 * page_bytes);
  const std::uint64_t before = unhinted();
  for (std::size_t i = 0; i < 512; i += 2) {
    far_hint(&number(block, i));
    far_hint(&number(block, i), .mutate = true);
    number(block, i) = i * 31 + 7;
  }
  EXPECT_EQ(unhinted(), before);
  far_->evict(block, 512 * page_bytes);
  EXPECT_EQ(count_wrong(block, 512), 0u);
}

TEST_F(hints_test, reads_ahead_in_either_direction_and_over_a_region) {
  start("memory:?latency=20us");
  if (IsSkipped()) return;
  std::byte* const block = make_remote(64);
  far_hint(&number(block, 10), .read_ahead = 5);
  settle(block, 32, "..........xxxxxx................");
  far_hint(&number(block, 30), .read_ahead = -5);
  settle(block, 32, "..........xxxxxx.........xxxxxx.");
  far_hint(&number(block, 2), .size = 3 * page_bytes + 1, .read_ahead = 1);
  settle(block, 32, "..xxxxx...xxxxxx.........xxxxxx.");
  far_hint(&number(block, 11), .read_ahead = 20);  // nothing is missing, so nothing is done
  settle(block, 32, "..xxxxx...xxxxxx.........xxxxxx.");
  EXPECT_EQ(count_wrong(block, 64), 0u);
}

TEST_F(hints_test, a_scan_has_its_next_pages_on_their_way) {
  start();
  if (IsSkipped()) return;
  std::byte* const block = make_remote(128);
  const auto up = [&](std::size_t page) { far_hint(&number(block, page), .read_ahead = 16, .sequential = true); };
  const auto down = [&](std::size_t page) { far_hint(&number(block, page), .read_ahead = -16, .sequential = true); };
  const auto expect = [&](std::size_t at_start, std::size_t at_end) {
    settle(block, 128,
           std::string(at_start, 'x') + std::string(128 - at_start - at_end, '.') + std::string(at_end, 'x'));
  };
  up(0);
  expect(17, 0);
  for (std::size_t page = 1; page < 8; ++page) up(page);
  expect(17, 0);
  up(8);
  expect(25, 0);
  down(127);
  expect(25, 17);
  for (std::size_t page = 126; page >= 120; --page) down(page);
  expect(25, 24);  // at page 120
  for (std::size_t page = 9; page < 64; ++page) up(page);
  expect(73, 24);
}

TEST_F(hints_test, a_prefetch_waits_for_nothing) {
  start("memory:?latency=200ms");
  if (IsSkipped()) return;
  std::byte* block = nullptr;
  auto took = std::chrono::steady_clock::duration::max();
  // Again where others had the processor meanwhile.
  for (int i = 0; i < 5 && took >= std::chrono::milliseconds(200); ++i) {
    block = make_remote(64);
    const auto since = std::chrono::steady_clock::now();
    for (std::size_t page = 0; page < 64; page += 16) {
      far_hint(&number(block, page), .size = 2 * page_bytes, .prefetch = true);
    }
    far_hint(&number(block, 63), .read_ahead = -2, .prefetch = true);
    took = std::chrono::steady_clock::now() - since;
  }
  EXPECT_LT(took, std::chrono::milliseconds(200)) << "one transfer takes that long";
  const std::string wanted = "xx..............xx..............xx..............xx...........xxx";
  settle(block, 64, wanted);
  const std::uint64_t before = unhinted();
  for (std::size_t i = 0; i < 64; ++i) {
    if (wanted[i] == 'x') {
      EXPECT_EQ(number(block, i), i * 31 + 7);
    }
  }
  EXPECT_EQ(unhinted(), before);
}

TEST_F(hints_test, a_region_larger_than_the_budget_does_not_push_out_its_own_beginning) {
  start();
  if (IsSkipped()) return;
  constexpr std::size_t pages = 4 * budget_pages;
  std::byte* const block = make(pages);
  EXPECT_EQ(count_wrong(block, pages), 0u);  // the last pages are here, and frames are short
  const std::uint64_t before = far_->snapshot().fetched_pages;
  far_hint(block, .size = pages * page_bytes, .prefetch = true);
  far_->prefetch(block, pages * page_bytes);
  EXPECT_LT(far_->snapshot().fetched_pages - before, budget_pages);
}

TEST_F(hints_test, one_about_the_end_of_everything_stays_within) {
  start();
  if (IsSkipped()) return;
  std::byte* const block = make_remote(8);
  std::byte* const start_of_all = const_cast<std::byte*>(far_->start());
  far_hint(start_of_all, .read_ahead = -64);
  far_hint(start_of_all + far_->pages() * page_bytes - 1, .size = SIZE_MAX, .read_ahead = 64);
  far_hint(block, .size = SIZE_MAX, .read_ahead = 1'000'000);
  far_hint(block, .read_ahead = -1'000'000);
  EXPECT_EQ(count_wrong(block, 8), 0u);
}

TEST_F(hints_test, one_about_memory_that_is_not_there_does_nothing) {
  start();
  if (IsSkipped()) return;
  std::byte* const block = make(16);
  ASSERT_TRUE(far_->unmap(block, 16 * page_bytes));
  int local = 0;
  const engine::statistics before = far_->snapshot();
  for (const bool write : {false, true}) {
    far_hint(block + 5 * page_bytes, .mutate = write, .size = 4 * page_bytes);
    far_hint(far_->start() + 1024 * mib, .mutate = write);
    far_hint(&local, .mutate = write);
    far_hint(nullptr, .mutate = write);
    far_hint(reinterpret_cast<void*>(UINTPTR_MAX), .mutate = write, .size = 100);
  }
  const engine::statistics after = far_->snapshot();
  EXPECT_EQ(after.local_bytes, before.local_bytes);
  EXPECT_EQ(after.fetched_pages + after.zero_fills, before.fetched_pages + before.zero_fills);
}

TEST_F(hints_test, a_first_touch_can_be_hinted) {
  start();
  if (IsSkipped()) return;
  const result<std::byte*> fresh = far_->map(1024 * page_bytes, PROT_READ | PROT_WRITE, 2 * mib);
  ASSERT_TRUE(fresh.ok());
  far_->evict(fresh.value(), 1024 * page_bytes);  // nothing to evict, but from now on its blocks are guarded
  for (std::size_t i = 0; i < 1024; ++i) {
    far_hint(&number(fresh.value(), i), .mutate = true);
    EXPECT_EQ(number(fresh.value(), i), 0u);
    number(fresh.value(), i) = i * 31 + 7;
  }
  EXPECT_GT(far_->snapshot().hinted_misses, 0u);
  EXPECT_EQ(far_->snapshot().write_faults, 0u);
  EXPECT_EQ(count_wrong(fresh.value(), 1024), 0u);
  ASSERT_TRUE(far_->protect(fresh.value(), 1024 * page_bytes, PROT_NONE));
  far_hint(fresh.value() + 5 * page_bytes, .mutate = true);
}

// In memory that fits the runtime is called once for each page, and not at all on later rounds.
TEST_F(hints_test, what_fits_costs_a_call_a_page_once) {
  start();
  if (IsSkipped()) return;
  std::byte* const block = make(256);
  std::uint64_t calls = 0;
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 256 * 4; ++i) far_hint(&number(block, i / 4));
    for (const hint_site& site : hint_sites()) {
      if (site.line == __LINE__ - 2 && std::string(site.file).ends_with("hints_test.cc")) calls = site.calls();
    }
    EXPECT_EQ(calls, 256u) << round;
  }
  EXPECT_EQ(far_->snapshot().misses, 0u);
}

TEST_F(hints_test, threads_count_apart_and_all_of_them_count) {
  start();
  if (IsSkipped()) return;
  constexpr std::size_t threads = 2 * hint_site::tallies;
  std::byte* const block = make(threads);
  far_hint_site site{"threads", 1, 0};
  for (std::size_t i = 0; i < threads; ++i) {
    std::thread([&, i] {
      std::uintptr_t last_page = UINTPTR_MAX;
      far_hint_at(block + i * page_bytes, far_hint_options{.sequential = true}, &last_page, &site);
    }).join();
  }
  ASSERT_NE(site.number, 0u);
  EXPECT_EQ(hint_sites()[site.number - 1].calls(), threads);
}

// Each time that a library is opened its lines come anew, and there is room for a thousand lines in all.
TEST_F(hints_test, a_line_of_a_library_that_is_opened_again_is_listed_once) {
  start();
  if (IsSkipped()) return;
  std::byte* const block = make(1);
  far_hint_site first{"opened-again.c", 7, 0};
  hint_view().miss(block, 1, 0, &first);
  const std::size_t listed = hint_sites().size();
  for (int again = 1; again < 2000; ++again) {
    far_hint_site site{"opened-again.c", 7, 0};
    hint_view().miss(block, 1, 0, &site);
    ASSERT_EQ(site.number, first.number);
  }
  EXPECT_EQ(hint_sites().size(), listed);
  EXPECT_EQ(hint_sites()[first.number - 1].calls(), 2000u);
  far_hint_site other{"opened-again.c", 8, 0};
  hint_view().miss(block, 1, 0, &other);
  EXPECT_NE(other.number, first.number);
}

TEST_F(hints_test, a_sequential_one_counts_once_a_page) {
  start();
  if (IsSkipped()) return;
  std::byte* const block = make_remote(64);
  far_hint_site site{__FILE__, __LINE__, 0};
  std::uintptr_t last_page = UINTPTR_MAX;
  far_hint_options options;
  options.sequential = true;
  for (std::size_t at = 0; at < 64 * page_bytes; at += 64) far_hint_at(block + at, options, &last_page, &site);
  ASSERT_NE(site.number, 0u);
  EXPECT_EQ(hint_sites()[site.number - 1].calls(), 64u);
  EXPECT_GE(hint_sites()[site.number - 1].misses(), 1u);
  EXPECT_EQ(last_page, reinterpret_cast<std::uintptr_t>(block) / page_bytes + 63);
}

TEST_F(hints_test, a_scan_is_no_reason_for_a_page_to_stay) {
  start();
  if (IsSkipped()) return;
  std::byte* const block = make_remote(64);
  const std::uint8_t* const marks = far_->use_bytes() + (block - far_->start()) / page_bytes;
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < 64; ++i) far_hint(&number(block, i), .sequential = true);
    EXPECT_EQ(residents(block, 64), std::string(64, 'x'));
    EXPECT_EQ(std::count(marks, marks + 64, 0), 64) << "round " << round;
  }
  far_hint(&number(block, 5));
  EXPECT_NE(marks[5], 0);
}

// A hint keeps a page as an access would that the hardware guard sees; priorities choose who leaves.
TEST_F(hints_test, used_pages_stay) {
  for (const char* const policy : {"2q", "second-chance", "lru", "priority"}) {
    start("memory:", policy);
    if (IsSkipped()) return;
    std::byte* const hot = make(64);
    std::byte* const stream = make_remote(2 * budget_pages);
    for (std::size_t i = 0; i < 2 * budget_pages; ++i) {
      far_hint(&number(stream, i), .eviction_priority = 3);
      EXPECT_EQ(number(stream, i), i * 31 + 7);
      for (std::size_t at = 0; i % 64 == 0 && at < 64; ++at) far_hint(&number(hot, at));
    }
    EXPECT_EQ(residents(hot, 64), std::string(64, 'x')) << policy;
    stop_serving_hints(*far_);
    far_.reset();
  }
}

TEST_F(hints_test, pages_of_a_higher_priority_leave_first) {
  start("memory:", "priority");
  if (IsSkipped()) return;
  std::byte* const kept = make_remote(budget_pages / 2);
  std::byte* const stream = make_remote(4 * budget_pages);
  for (std::size_t i = 0; i < budget_pages / 2; ++i) far_hint(&number(kept, i));
  for (std::size_t i = 0; i < 4 * budget_pages; ++i) {
    far_hint(&number(stream, i), .eviction_priority = 2);
    EXPECT_EQ(number(stream, i), i * 31 + 7);
  }
  EXPECT_EQ(residents(kept, budget_pages / 2), std::string(budget_pages / 2, 'x'));
}

// Hints of all kinds, right and wrong, also about memory that comes and goes, beside threads that check every byte.
TEST_F(hints_test, wrong_and_late_ones_change_nothing) {
  start("memory:?latency=5us");
  if (IsSkipped()) return;
  constexpr std::size_t pages = 2 * budget_pages;
  constexpr std::size_t passing_pages = 500;
  std::byte* const block = make(pages);
  std::atomic<std::byte*> passing{block};  // comes and goes
  std::atomic<bool> done{false};
  std::vector<std::thread> others;
  for (unsigned seed = 0; seed < 2; ++seed) {
    others.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      while (!done.load()) {
        const std::byte* const at = random() % 2 == 0 ? block + random() % ((pages + 1024) * page_bytes)
                                                      : passing.load() + random() % (passing_pages * page_bytes);
        const int ahead = static_cast<int>(random() % 40) - 20;
        far_hint(at, .mutate = random() % 2 == 0, .size = random() % (4 * page_bytes), .read_ahead = ahead,
                 .eviction_priority = static_cast<unsigned char>(random() % 4), .prefetch = random() % 3 == 0);
      }
    });
  }
  others.emplace_back([&] {
    while (!done.load()) {
      const result<std::byte*> mapped = far_->map(passing_pages * page_bytes, PROT_READ | PROT_WRITE, page_bytes);
      if (!mapped) continue;
      passing.store(mapped.value());
      for (std::size_t i = 0; i < passing_pages; i += 3) number(mapped.value(), i) = i;
      for (std::size_t i = 0; i < passing_pages; ++i) {
        ASSERT_EQ(number(mapped.value(), i), i % 3 == 0 ? i : 0) << "fresh memory is zeros";
      }
      ASSERT_TRUE(far_->unmap(mapped.value(), passing_pages * page_bytes));
    }
  });
  std::mt19937_64 random(9);
  for (int i = 0; i < 40'000; ++i) {
    const std::size_t page = random() % pages;
    ASSERT_EQ(number(block, page), page * 31 + 7);
    if (i % 3 == 0) number(block, page) = page * 31 + 7;
  }
  done.store(true);
  for (std::thread& thread : others) thread.join();
  EXPECT_EQ(count_wrong(block, pages), 0u);
  far_->validate();
  ASSERT_TRUE(far_->unmap(block, pages * page_bytes));
  EXPECT_EQ(far_->snapshot().local_bytes, 0u) << "nothing is left in memory that was released";
  EXPECT_EQ(far_->snapshot().far_bytes, 0u);
}

// As compiled loops do it, which announce what they walk over in ranges.
TEST_F(hints_test, a_walk_that_is_announced_again_finds_some_of_what_there_is_room_for) {
  start("memory:", "2q");
  if (IsSkipped()) return;
  constexpr std::size_t pages = 3 * budget_pages;
  constexpr std::size_t range = 64;
  std::byte* const block = make(pages);
  far_hint_site site = {__FILE__, __LINE__, 0};
  const std::uint64_t later = far_hint_pack(far_hint_options{.sequential = true, .prefetch = true});
  const std::uint64_t now = far_hint_pack(far_hint_options{.sequential = true});
  const auto walk = [&] {
    const std::uint64_t before = far_->snapshot().fetched_pages;
    for (std::size_t first = 0; first < pages; first += range) {
      take_hint(block + first * page_bytes, range * page_bytes, later, &site);
      take_hint(block + first * page_bytes, range * page_bytes, now, &site);
      for (std::size_t i = first; i < first + range; ++i) EXPECT_EQ(number(block, i), i * 31 + 7);
    }
    return far_->snapshot().fetched_pages - before;
  };
  static_cast<void>(walk());
  for (int again = 0; again < 2; ++again) EXPECT_LT(walk(), pages - budget_pages / 8);
}

}  // namespace
}  // namespace far::pager
