#include "preload/held_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/units.h"

namespace far::preload {
namespace {

class counted_pins final : public held_pages::world {
 public:
  void pin(const std::byte* page) override {
    ++pins_[page];
    most_ = std::max(most_, pinned());
  }
  void unpin(const std::byte* page) override {
    if (--pins_[page] == 0) pins_.erase(page);
  }
  [[nodiscard]] bool has_ended(pid_t thread) const override { return ended_.contains(thread); }

  void end(pid_t thread) { ended_.insert(thread); }
  [[nodiscard]] int pins(const std::byte* page) const { return pins_.contains(page) ? pins_.at(page) : 0; }
  [[nodiscard]] std::size_t pinned() const { return pins_.size(); }
  [[nodiscard]] std::size_t most() const { return most_; }

 private:
  std::map<const std::byte*, int> pins_;
  std::set<pid_t> ended_;
  std::size_t most_ = 0;
};

const std::byte* page(std::size_t number) {
  return reinterpret_cast<const std::byte*>((number + 1) * page_bytes);
}

TEST(held_pages, a_page_is_pinned_once_until_the_last_thread_has_ended_that_needs_it) {
  counted_pins outside;
  held_pages tested;
  tested.hold(page(1), 10, outside);
  tested.hold(page(1), 11, outside);
  tested.hold(page(2), 11, outside);
  tested.hold(page(2), 11, outside);
  EXPECT_EQ(outside.pins(page(1)), 1);
  EXPECT_EQ(outside.pins(page(2)), 1);
  outside.end(11);
  tested.release_ended(outside);
  EXPECT_EQ(outside.pins(page(1)), 1);
  EXPECT_EQ(outside.pins(page(2)), 0);
  outside.end(10);
  tested.release_ended(outside);
  EXPECT_EQ(outside.pinned(), 0u);
}

// Nobody calls release_ended() in between.
TEST(held_pages, threads_that_end_faster_than_anybody_looks_pile_up_no_pages) {
  counted_pins outside;
  held_pages tested;
  for (pid_t thread = 1; thread <= 5000; ++thread) {
    for (std::size_t i = 0; i < 5; ++i) tested.hold(page(static_cast<std::size_t>(thread) * 5 + i), thread, outside);
    outside.end(thread);
  }
  EXPECT_LT(outside.most(), 200u);
  tested.release_ended(outside);
  EXPECT_EQ(outside.pinned(), 0u);
}

}  // namespace
}  // namespace far::preload
