// Memory calls near the limit on mappings, on the real kernel: what it refuses changes nothing. Needs permission for
// userfaultfd.
#include "tests/support/scarce_mappings.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "pager/pager.h"
#include "platform/advice.h"
#include "platform/kernel_features.h"

namespace far::pager {
namespace {

constexpr int both = PROT_READ | PROT_WRITE;
constexpr std::size_t bytes = 8 * mib;

class scarce_mappings_test : public ::testing::TestWithParam<fault_mode> {
 protected:
  void SetUp() override {
    if (!platform::probe_kernel().userfaultfd) {
      GTEST_SKIP() << "no userfaultfd: " << std::strerror(platform::probe_kernel().userfaultfd_error_code);
    }
    options chosen;
    chosen.budget_bytes = 32 * mib;
    chosen.mode = GetParam();
    result<std::unique_ptr<pager>> created = pager::create(chosen);
    ASSERT_TRUE(created.ok()) << created.error().message;
    pager_ = std::move(created).value();
    // In the midst of memory that is alike, so that the kernel has to split its mapping.
    from_ = pager_->map(bytes + 4 * mib, both, 2 * mib).value() + 2 * mib;
    for (std::size_t at = 0; at < bytes; at += page_bytes) from_[at] = content(at);
    to_ = pager_->map(bytes + 4 * mib, both, 2 * mib).value() + 2 * mib;
    ASSERT_TRUE(pager_->unmap(to_, bytes + 2 * mib).ok());
  }

  // From here on the page's block is guarded.
  void guard(std::byte* page) { ASSERT_TRUE(pager_->advise(page, page_bytes, MADV_PAGEOUT).ok()); }

  static std::byte content(std::size_t at) { return static_cast<std::byte>(at / page_bytes * 7 + at / mib + 1); }

  // Whether the first `moved` bytes of what was at from_ are there. Of fenced memory, every page but the fences.
  static bool is_whole(const std::byte* at, std::size_t moved, bool fenced) {
    for (std::size_t place = 0; place < moved; place += page_bytes) {
      if (!(fenced && is_fence(place)) && at[place] != content(place)) return false;
    }
    return true;
  }
  static bool is_fence(std::size_t at) { return at % mib == mib / 2; }

  // The kernel's count, in KiB.
  static std::string locked() {
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line) && line.find("VmLck:") != 0) {
    }
    return line;
  }

  // Whether the kernel would leave this page out of a core file.
  static bool is_undumped(const std::byte* page) {
    std::ifstream mappings("/proc/self/smaps");
    std::string line;
    bool is_here = false;
    while (std::getline(mappings, line)) {
      std::uintptr_t first = 0;
      std::uintptr_t end = 0;
      char dash = 0;
      std::istringstream words(line);
      if (words >> std::hex >> first >> dash >> end && dash == '-') {
        const auto address = reinterpret_cast<std::uintptr_t>(page);
        is_here = address >= first && address < end;
      }
      if (is_here && line.rfind("VmFlags:", 0) == 0) return line.find(" dd") != std::string::npos;
    }
    return false;
  }

  // Moves it with ever more mappings left, until the kernel allows it.
  void move_at_last(std::size_t moved, bool fenced) {
    const std::string locked_before = locked();
    int refused = 0;
    int wrong = 0;
    bool is_moved = false;
    {
      test::scarce_mappings others;
      if (!others.are_used_up()) GTEST_SKIP() << "vm.max_map_count is too high to be used up";
      while (!is_moved && refused < 100) {
        is_moved =
            pager_->remap(from_, moved, moved, {.may_move = true, .keep_source = keeps_source_, .target = to_}).ok();
        if (is_moved) break;
        ++refused;
        wrong += !is_whole(from_, bytes, fenced) || locked() != locked_before;
        // The target is as free as before.
        if (pager_->map_at(to_, moved, both, pager::overlap::refuse).ok()) {
          for (std::size_t at = 0; at < moved; at += page_bytes) wrong += to_[at] != std::byte{0};
          wrong += pager_->unmap(to_, moved).ok() ? 0 : 1;
        }
        others.give_back();
      }
    }
    EXPECT_GT(refused, 0);
    EXPECT_EQ(wrong, 0);
    ASSERT_TRUE(is_moved);
    EXPECT_TRUE(is_whole(to_, moved, fenced));
    EXPECT_EQ(locked(), locked_before);
    for (std::size_t at = 0; keeps_source_ && at < moved; at += page_bytes) ASSERT_EQ(from_[at], std::byte{0}) << at;
    EXPECT_TRUE(pager_->unmap(to_, moved).ok());
    pager_->validate();
  }

  std::unique_ptr<pager> pager_;
  std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  bool keeps_source_ = false;
};

TEST_P(scarce_mappings_test, memory_that_cannot_be_moved_stays) {
  move_at_last(bytes, false);
}

// The target needs fewer mappings than its source.
TEST_P(scarce_mappings_test, memory_that_cannot_be_guarded_stays) {
  guard(to_ - page_bytes);
  move_at_last(bytes, false);
}

TEST_P(scarce_mappings_test, memory_of_several_parts_that_cannot_be_moved_stays) {
  for (std::size_t at = 0; at < bytes; at += page_bytes) {
    if (!is_fence(at)) continue;
    if (!pager_->advise(from_ + at, page_bytes, MADV_GUARD_INSTALL).ok()) GTEST_SKIP() << "no fences here";
  }
  move_at_last(bytes, true);
}

TEST_P(scarce_mappings_test, memory_that_cannot_be_moved_stays_locked) {
  if (!pager_->lock(from_, bytes, 0).ok()) GTEST_SKIP() << "no permission for mlock";
  keeps_source_ = true;
  move_at_last(bytes - mib, false);
}

// Part of the target is in a block that is guarded, so that it is two mappings to the kernel: it marks one, and has no
// room to split the other.
TEST_P(scarce_mappings_test, a_move_that_fails_leaves_no_marks) {
  std::byte* const reserved = to_ + 16 * bytes;
  ASSERT_TRUE(pager_->map_at(reserved, bytes, PROT_NONE, pager::overlap::refuse).ok());
  ASSERT_TRUE(pager_->advise(reserved, bytes, MADV_DONTDUMP).ok());
  ASSERT_TRUE(pager_->advise(reserved, bytes, MADV_NOHUGEPAGE).ok());
  bool is_moved = false;
  std::size_t left = 0;
  for (; left < 8 && !is_moved; ++left) {
    std::byte* const place = to_ + left * 2 * bytes;
    ASSERT_TRUE(pager_->map_at(place, page_bytes, both, pager::overlap::refuse).ok());
    guard(place);
    std::byte* const target = place + mib;
    {
      test::scarce_mappings others;
      if (!others.are_used_up()) GTEST_SKIP() << "vm.max_map_count is too high to be used up";
      for (std::size_t i = 0; i < left; ++i) others.give_back();
      is_moved = pager_->remap(reserved, bytes, bytes, {.may_move = true, .target = target}).ok();
    }
    EXPECT_EQ(is_undumped(target), is_moved) << left;
    EXPECT_EQ(is_undumped(target + bytes - page_bytes), is_moved) << left;
    EXPECT_TRUE(pager_->unmap(target, bytes).ok());
    EXPECT_FALSE(is_undumped(target)) << left;
  }
  EXPECT_GT(left, 2U);
  EXPECT_TRUE(is_moved);
  pager_->validate();
}

// The same of advice: what the kernel has marked before it fails is known, and ends with the mapping.
TEST_P(scarce_mappings_test, advice_that_fails_leaves_no_marks) {
  bool is_marked = false;
  std::size_t left = 0;
  for (; left < 8 && !is_marked; ++left) {
    std::byte* const place = to_ + left * 2 * bytes;
    ASSERT_TRUE(pager_->map_at(place, bytes, both, pager::overlap::refuse).ok());
    for (std::size_t at = 0; at < bytes; at += page_bytes) place[at] = content(at);
    guard(place);
    {
      test::scarce_mappings others;
      if (!others.are_used_up()) GTEST_SKIP() << "vm.max_map_count is too high to be used up";
      for (std::size_t i = 0; i < left; ++i) others.give_back();
      is_marked = pager_->advise(place + mib, 4 * mib, MADV_DONTDUMP).ok();
    }
    EXPECT_TRUE(pager_->unmap(place, bytes).ok());
    for (std::size_t at = 0; at < bytes; at += mib) EXPECT_FALSE(is_undumped(place + at)) << left << ", " << at;
  }
  EXPECT_GT(left, 2U);
  EXPECT_TRUE(is_marked);
  pager_->validate();
}

INSTANTIATE_TEST_SUITE_P(modes, scarce_mappings_test, ::testing::Values(fault_mode::thread, fault_mode::in_line),
                         [](const auto& test) { return test.param == fault_mode::thread ? "thread" : "in_line"; });

}  // namespace
}  // namespace far::pager
