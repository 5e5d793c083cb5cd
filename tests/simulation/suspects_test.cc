// Pages that come in for a read and are writable all the same (suspects, engine/residency.h), one situation at a time:
// a layer above says that nobody uses the pages when they leave, so the engine looks at their bytes in place.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/lock_guard.h"
#include "engine/engine.h"
#include "engine/object_reader.h"
#include "model.h"
#include "simulated_backend.h"
#include "stepped_engine.h"

namespace far::simulation {
namespace {

using engine::outcome;
using engine::state;

constexpr page_range pages{0, 64};
constexpr page_id odd = 5;    // one of them
constexpr page_id loose = 6;  // one that may be in use when it leaves

class nobody_uses_pages final : public engine::eviction_filter {
 public:
  [[nodiscard]] engine::eviction_look look(const engine::eviction_candidates&, bool) noexcept override { return {}; }
  [[nodiscard]] engine::eviction_verdict decide(const engine::eviction_candidates& leaving, bool) noexcept override {
    engine::eviction_verdict said;
    for (std::size_t i = 0; i < leaving.pages.size(); ++i) {
      if (leaves_unused(leaving.pages[i])) said.unused |= std::uint64_t{1} << i;
    }
    return said;
  }
  [[nodiscard]] bool leaves_unused(page_id page) const noexcept override { return page != loose; }
};

// With hashes of parts of pages, and with one a page.
class suspects_test : public stepped_engine, public testing::TestWithParam<bool> {
 protected:
  suspects_test() : stepped_engine(1024) {
    far_tier chosen;
    chosen.slots = 4096;
    keep(std::make_unique<simulated_backend>(threads_, random_, clock_, chosen));
    start({.budget_pages = 600, .reads_parts = GetParam(), .filter = &filter_});
    EXPECT_TRUE(engine_->ranges().allocate_guarded(pages).ok());
    write(pages);
    make_remote();
  }
  ~suspects_test() override {
    settle();
    engine_->ranges().release(pages);
  }

  void make_remote() {
    engine_->eviction().evict(pages);
    settle();
    ASSERT_EQ(state_of(odd), state::remote);
  }
  [[nodiscard]] bool is_suspect(page_id page) const { return word_of(page).dirty() && word_of(page).has_place(); }
  void read(page_range range) {
    streams_ = {};
    check(range);
  }
  // Comes and goes until nothing is expected of it but reads.
  void only_read_for_a_while() {
    for (int round = 0; round < 12; ++round) {
      read(pages);
      make_remote();
    }
  }

  nobody_uses_pages filter_;
};

TEST_P(suspects_test, a_write_needs_no_fault_and_is_kept) {
  const std::uint64_t faults = engine_->snapshot().write_faults;
  for (int round = 0; round < 3; ++round) {
    read({odd, 1});
    ASSERT_TRUE(is_suspect(odd));
    ASSERT_EQ(kernel_.touch(odd, true), simulated_kernel::fault::none);
    write_parts(odd);
    make_remote();
  }
  check(pages);
  EXPECT_EQ(engine_->snapshot().write_faults, faults);
}

TEST_P(suspects_test, one_that_was_only_read_is_dropped_like_a_clean_page) {
  read(pages);
  ASSERT_TRUE(is_suspect(odd));
  const engine::statistics before = engine_->snapshot();
  const std::uint64_t slot = word_of(odd).place();
  const std::uint64_t drops = kernel_.drops();
  engine_->eviction().evict({0, loose});
  EXPECT_EQ(kernel_.drops(), drops + 1) << "all by one call, without a copy";
  EXPECT_EQ(word_of(odd).place(), slot);
  make_remote();
  const engine::statistics after = engine_->snapshot();
  EXPECT_EQ(after.written_pages, before.written_pages);
  EXPECT_EQ(after.clean_evictions, before.clean_evictions + pages.count);
  check(pages);
}

TEST_P(suspects_test, its_parts_can_be_read_when_it_has_left) {
  if (!GetParam()) GTEST_SKIP() << "parts are not read";
  engine::object_reader* const reader = engine_->transfers().add_object_reader().value();
  read({odd, 1});
  ASSERT_TRUE(is_suspect(odd));
  make_remote();
  for (std::size_t part = 0; part < model::parts_a_page; ++part) {
    std::array<std::byte, page_bytes> copy{};
    engine::object_read one;
    one.page = odd;
    one.offset_bytes = static_cast<std::uint32_t>(part * model::part_bytes);
    one.length_bytes = model::part_bytes;
    one.buffer = copy.data() + one.offset_bytes;
    {
      const far::lock_guard guard(reader->lock);
      one.outcome = reader->start(one);
    }
    settle();
    ASSERT_EQ(one.outcome.load(), engine::read_outcome::done);
    expected_.check(odd, part, copy.data());
  }
}

TEST_P(suspects_test, none_come_while_pages_are_only_read_and_again_once_they_are_written) {
  only_read_for_a_while();
  read(pages);
  EXPECT_FALSE(is_suspect(odd));
  EXPECT_TRUE(kernel_.is_write_protected(odd));
  for (int round = 0; round < 2; ++round) {
    for (page_id page = pages.first; page < pages.end(); ++page) {
      read({page, 1});
      write({page, 1});
    }
    make_remote();
  }
  only_read_for_a_while();  // none is expected to be written because it was the last time
  for (int round = 0; round < 3; ++round) {
    for (page_id page = 0; page < pages.end(); page += 2) {
      read({page, 1});
      write({page, 1});
    }
    make_remote();
  }
  read({odd, 1});
  EXPECT_FALSE(word_of(odd).writes_expected());
  EXPECT_TRUE(is_suspect(odd));
}

TEST_P(suspects_test, one_that_stays_because_it_is_locked_keeps_what_is_written_to_it) {
  read({odd, 1});
  ASSERT_TRUE(is_suspect(odd));
  kernel_.set_locked({odd, 1}, true);
  engine_->eviction().evict({odd, 1});
  ASSERT_EQ(state_of(odd), state::resident);
  ASSERT_EQ(kernel_.touch(odd, true), simulated_kernel::fault::none);
  write_parts(odd);
  kernel_.set_locked({odd, 1}, false);
  make_remote();
  check({odd, 1});
}

TEST_P(suspects_test, a_page_that_may_be_in_use_when_it_leaves_comes_protected_once_writes_are_not_expected_of_it) {
  read({loose, 1});
  EXPECT_TRUE(is_suspect(loose)) << "it was written to the last time";
  make_remote();
  read({loose, 1});
  EXPECT_TRUE(kernel_.is_write_protected(loose));
  read({odd, 1});
  make_remote();
  read({odd, 1});
  EXPECT_TRUE(is_suspect(odd));
}

INSTANTIATE_TEST_SUITE_P(hashes, suspects_test, testing::Bool(),
                         [](const auto& chosen) { return std::string(chosen.param ? "of_parts" : "of_pages"); });

}  // namespace
}  // namespace far::simulation
