// Copies of objects on the real kernel. Needs permission for userfaultfd.
#include "pager/object_copies.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/units.h"
#include "pager/pager.h"
#include "platform/kernel_features.h"

namespace far::pager {
namespace {

constexpr std::size_t area_bytes = 8 * mib;
constexpr std::size_t numbers = area_bytes / sizeof(std::uint64_t);
constexpr std::size_t objects_apart = page_bytes / sizeof(std::uint64_t) + 11;

class object_copies_test : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!platform::probe_kernel().userfaultfd) {
      GTEST_SKIP() << "no userfaultfd: " << std::strerror(platform::probe_kernel().userfaultfd_error_code);
    }
    options chosen;
    chosen.budget_bytes = 32 * mib;
    chosen.far_uri = GetParam();
    chosen.object_readers = 1;
    chosen.copied_bytes = 64;
    result<std::unique_ptr<pager>> created = pager::create(chosen);
    ASSERT_TRUE(created.ok()) << created.error().message;
    pager_ = std::move(created).value();
    const result<std::byte*> mapped = pager_->map(area_bytes, PROT_READ | PROT_WRITE, page_bytes);
    ASSERT_TRUE(mapped.ok());
    area_ = reinterpret_cast<std::uint64_t*>(mapped.value());
    for (std::size_t i = 0; i < numbers; ++i) area_[i] = i * 3 + 1;
    evict();
  }

  // Until all has been written, too.
  void evict() {
    const auto is_away = [this] {
      for (std::size_t place = 0; place < numbers; place += page_bytes / sizeof(std::uint64_t)) {
        if (!pager_->is_away(at(place))) return false;
      }
      return true;
    };
    do {
      pager_->evict(reinterpret_cast<std::byte*>(area_), area_bytes);
    } while (!is_away());
  }
  std::optional<std::uint64_t> read(std::size_t place) {
    std::uint64_t found = 0;
    if (!read_bytes(at(place), sizeof found, &found)) return std::nullopt;
    return found;
  }
  // As compiled code does it.
  bool read_bytes(const std::byte* address, std::size_t bytes, std::uint64_t* found) {
    auto* const to = reinterpret_cast<std::byte*>(found);
    const copy_lookup lookup = pager_->find_copy(address, bytes, to);
    return lookup == copy_lookup::found || (lookup == copy_lookup::none && pager_->bring_copy(address, bytes, to));
  }
  [[nodiscard]] const std::byte* at(std::size_t place) const {
    return reinterpret_cast<const std::byte*>(&area_[place]);
  }

  std::unique_ptr<pager> pager_;
  std::uint64_t* area_ = nullptr;
};

TEST_P(object_copies_test, objects_come_without_their_pages) {
  for (int round = 0; round < 2; ++round) {
    for (std::size_t place = 0; place < numbers; place += objects_apart) {
      ASSERT_EQ(read(place), place * 3 + 1);
      ASSERT_TRUE(pager_->is_away(at(place)));
    }
  }
  EXPECT_EQ(pager_->snapshot().fetched_pages, 0u);
  EXPECT_EQ(pager_->snapshot().hinted_misses, (numbers + objects_apart - 1) / objects_apart) << "once each";
  EXPECT_GT(pager_->snapshot().local_bytes, 15 * mib) << "what copies may take counts";
  ASSERT_TRUE(pager_->resize(16 * mib).ok());
  EXPECT_LT(pager_->snapshot().local_bytes, 9 * mib);
  EXPECT_EQ(read(objects_apart), objects_apart * 3 + 1);
  pager_->validate();
}

TEST_P(object_copies_test, many_come_side_by_side) {
  std::vector<const std::byte*> wanted;
  for (std::size_t place = 0; place < numbers; place += objects_apart) wanted.push_back(at(place));
  wanted.push_back(wanted.front());
  wanted.push_back(reinterpret_cast<const std::byte*>(this));
  EXPECT_EQ(pager_->make_copies(wanted), wanted.size() - 2);
  EXPECT_EQ(pager_->make_copies(wanted), 0u);
  EXPECT_EQ(pager_->snapshot().fetched_pages, 0u);
  for (std::size_t place = 0; place < numbers; place += objects_apart) ASSERT_EQ(read(place), place * 3 + 1);
}

TEST_P(object_copies_test, a_page_that_was_written_has_no_old_copies) {
  constexpr std::size_t place = 5 * objects_apart;
  for (std::uint64_t round = 0; round < 5; ++round) {
    ASSERT_EQ(read(place), (place + round) * 3 + 1);
    area_[place] = (place + round + 1) * 3 + 1;
    EXPECT_EQ(read(place), std::nullopt) << "it is here";
    evict();
    ASSERT_EQ(read(place + 8), (place + 8) * 3 + 1);
  }
  ASSERT_TRUE(pager_->discard(reinterpret_cast<std::byte*>(area_), area_bytes).ok());
  EXPECT_EQ(read(place), std::nullopt);
  EXPECT_EQ(area_[place], 0u);
}

TEST_P(object_copies_test, what_the_program_may_not_read_is_left_to_the_kernel) {
  constexpr std::size_t place = 5 * objects_apart;
  auto* const start = reinterpret_cast<std::byte*>(area_);
  ASSERT_EQ(read(place), place * 3 + 1);
  ASSERT_TRUE(pager_->protect(start, area_bytes, PROT_NONE).ok());
  EXPECT_EQ(read(place), std::nullopt);
  EXPECT_EQ(read(place + objects_apart), std::nullopt);
  const std::byte* const wanted = at(place + 2 * objects_apart);
  EXPECT_EQ(pager_->make_copies({&wanted, 1}), 0u);
  ASSERT_TRUE(pager_->protect(start, area_bytes, PROT_READ).ok());
  EXPECT_EQ(read(place), place * 3 + 1);
  EXPECT_EQ(pager_->snapshot().fetched_pages, 0u);
}

// At a fork the kernel forgets what it knows of writes. Pages that have hashes of their parts, too, are not written for
// that.
TEST_P(object_copies_test, clean_pages_leave_a_child_without_being_written) {
  std::uint64_t sum = 0;
  for (std::size_t place = 0; place < numbers; place += page_bytes / sizeof(std::uint64_t)) sum += area_[place];
  pager_->prepare_fork();
  const pid_t child = fork();
  if (child == 0) {
    pager_->after_fork_in_child({});
    const std::uint64_t before = pager_->snapshot().written_pages;
    area_[0] = 7;
    evict();
    const bool is_right = pager_->snapshot().written_pages - before <= 64 && area_[0] == 7 && area_[513] == 513 * 3 + 1;
    _exit(is_right && sum != 0 ? 0 : 1);
  }
  pager_->after_fork_in_parent();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_P(object_copies_test, pages_of_which_much_is_read_come_themselves) {
  constexpr std::size_t lines = page_bytes / 64;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < lines; ++i) {
    const std::size_t place = i * 27 % lines * 8;
    const std::optional<std::uint64_t> found = read(place);
    copied += found ? 1 : 0;
    ASSERT_EQ(found.value_or(area_[place]), place * 3 + 1);
  }
  EXPECT_EQ(copied, 16u);
  EXPECT_EQ(read(0), std::nullopt);
}

TEST_P(object_copies_test, walks_go_by_pages) {
  std::size_t copied = 0;
  for (std::size_t place = numbers / 2; place > 0; place -= 4) {
    const std::optional<std::uint64_t> found = read(place);
    copied += found ? 1 : 0;
    ASSERT_EQ(found.value_or(area_[place]), place * 3 + 1);
  }
  EXPECT_LT(copied, 16u);
  EXPECT_GT(pager_->snapshot().prefetched_pages, area_bytes / page_bytes / 4);
}

TEST_P(object_copies_test, what_lies_on_two_lines_is_left_to_the_page) {
  std::uint64_t found = 0;
  const std::byte* const across = at(8) - 4;
  EXPECT_FALSE(read_bytes(across, sizeof found, &found));
  EXPECT_TRUE(read_bytes(across, 4, &found));
}

INSTANTIATE_TEST_SUITE_P(tiers, object_copies_test,
                         ::testing::Values("memory:", "memory:?latency=5us&gbps=25", "file:"));

}  // namespace
}  // namespace far::pager
