// Tags that are given back, and others that get their numbers. Needs permission for userfaultfd.
#include "heap/tags.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "far/memory_resource.h"
#include "far/runtime.h"
#include "far/tag.h"
#include "far/unique_ptr.h"
#include "heap/heap.h"
#include "tests/support/real_pager.h"
#include "tests/support/tag_stress.h"

namespace far {
namespace {

using stress::marked;

TEST(tag_table, gives_numbers_on_with_other_keys) {
  heap::tag_table tags;
  const heap::tag_replacement how{.most_heat = 3, .by_recency = true, .priority = 2};
  for (unsigned number = 1; number < heap::most_tags; ++number) {
    ASSERT_EQ(tags.take_unused(), number);
    EXPECT_EQ(tags.begin(number, how), number);
  }
  EXPECT_FALSE(tags.take_unused() || tags.take_given_back());
  EXPECT_EQ(tags.for_objects_of(5), 5u);
  EXPECT_EQ(tags.replacement_of(5), how);

  EXPECT_TRUE(tags.end(5));
  EXPECT_FALSE(tags.end(5)) << "twice";
  EXPECT_EQ(tags.for_objects_of(5), 0u);
  EXPECT_EQ(tags.for_copies(5), 0u);
  EXPECT_EQ(tags.replacement_of(5), heap::tag_replacement{});
  EXPECT_FALSE(tags.take_given_back()) << "its handler may be running";
  tags.ended(5);
  EXPECT_EQ(tags.take_given_back(), 5u);
  EXPECT_FALSE(tags.take_given_back()) << "one tag prepares it";
  tags.cancel(5);
  EXPECT_EQ(tags.take_given_back(), 5u);
  EXPECT_EQ(tags.for_objects_of(5), 0u);

  const heap::tag_key next = tags.begin(5, {.most_heat = 0});
  EXPECT_NE(next, 5u);
  EXPECT_EQ(heap::number_of(next), 5u);
  EXPECT_EQ(tags.for_objects_of(next), next);
  EXPECT_EQ(tags.for_objects_of(5), 0u) << "the one before is still the default tag";
  EXPECT_EQ(tags.for_copies(5), next);
  EXPECT_FALSE(tags.end(5));
  EXPECT_TRUE(tags.end(next));
}

using tags_test = heap::real_pager_test<>;

std::vector<unique_ptr<marked>> fill(const tag& in, std::uint64_t mark, std::size_t count) {
  std::vector<unique_ptr<marked>> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(make_unique<marked>(in, mark, i));
  return all;
}

std::size_t count_wrong(runtime& farheap, const std::vector<unique_ptr<marked>>& all, std::uint64_t mark) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const scope here(farheap);
    wrong += all[i].deref(here).is(mark, i) ? 0 : 1;
  }
  return wrong;
}

// How many of the objects lie in pages with that number.
std::size_t count_of_number(runtime& farheap, const std::vector<unique_ptr<marked>>& all, unsigned number) {
  const heap::page_table& pages = detail::heap_of(farheap).pages;
  std::size_t count = 0;
  for (const unique_ptr<marked>& one : all) {
    const scope here(farheap);
    const auto at = reinterpret_cast<std::uintptr_t>(&one.deref(here));
    count += pages.tag_of(pages.page_of(at)) == number ? 1 : 0;
  }
  return count;
}

// All numbers but the default tag's have been used.
std::vector<tag> use_all_numbers(runtime& farheap) {
  std::vector<tag> all;
  for (unsigned i = 1; i < heap::most_tags; ++i) all.emplace_back(farheap, replacement{.hotness_bits = 3});
  return all;
}

TEST_F(tags_test, there_is_no_end_of_tags_that_are_given_back) {
  runtime farheap(heap::small_runtime());
  const std::vector<tag> all = use_all_numbers(farheap);
  EXPECT_THROW(tag(farheap, {}), std::runtime_error);
  for (int i = 0; i < 100; ++i) {
    all[7].give_back();
    all[7].give_back();  // is not that of a later one
    const tag next(farheap, {});
    EXPECT_EQ(heap::number_of(next.key()), 8u);
    EXPECT_THROW(tag(farheap, {}), std::runtime_error);
    next.give_back();
  }
  tag(farheap).give_back();  // the default tag stays
  EXPECT_EQ(make_unique<int>(farheap, 3).read(), 3);
}

TEST_F(tags_test, objects_of_a_tag_that_was_given_back_are_those_of_the_default_tag) {
  runtime farheap(heap::small_runtime());
  const std::vector<tag> all = use_all_numbers(farheap);
  const tag& first = all[2];
  std::vector<unique_ptr<marked>> of_first = fill(first, 1, 1000);
  const std::vector<unique_ptr<marked>> rest = fill(all[3], 2, 1000);
  first.give_back();
  for (std::size_t i = 1000; i < 1100; ++i) of_first.push_back(make_unique<marked>(first, std::uint64_t{1}, i));
  const tag second(farheap, {.hotness_bits = 3});
  ASSERT_EQ(heap::number_of(second.key()), first.key());
  const std::vector<unique_ptr<marked>> of_second = fill(second, 3, 1000);
  const auto check = [&] {
    EXPECT_EQ(count_of_number(farheap, of_first, 0), of_first.size());
    EXPECT_EQ(count_of_number(farheap, of_second, first.key()), of_second.size());
    EXPECT_EQ(count_of_number(farheap, rest, all[3].key()), rest.size());
    EXPECT_EQ(count_wrong(farheap, of_first, 1) + count_wrong(farheap, of_second, 3) + count_wrong(farheap, rest, 2),
              0u);
    farheap.validate();
  };
  check();
  static_cast<void>(farheap.evacuate(0));
  check();
  farheap.set_page_path_share(2);
  farheap.evict_all();
  check();
}

TEST_F(tags_test, a_handler_is_gone_when_its_tag_is) {
  runtime farheap(heap::small_runtime());
  const std::vector<tag> all = use_all_numbers(farheap);
  all[0].give_back();
  std::size_t calls_of_first = 0;
  std::size_t wrong_for_second = 0;
  auto alive = std::make_shared<int>(0);
  const tag first(farheap, {}, before_leaving<marked>([&calls_of_first, alive](const marked&) { ++calls_of_first; }));
  const std::vector<unique_ptr<marked>> of_first = fill(first, 1, 1000);
  farheap.evict_all();
  EXPECT_EQ(calls_of_first, 1000u);
  EXPECT_EQ(count_wrong(farheap, of_first, 1), 0u);
  first.give_back();
  EXPECT_EQ(alive.use_count(), 1) << "the handler is destroyed";
  farheap.evict_all();
  EXPECT_EQ(count_wrong(farheap, of_first, 1), 0u);

  const tag second(farheap, {},
                   before_leaving<marked>([&](const marked& one) { wrong_for_second += one.tag_mark == 2 ? 0 : 1; }));
  const std::vector<unique_ptr<marked>> of_second = fill(second, 2, 1000);
  farheap.evict_all();
  EXPECT_EQ(calls_of_first, 1000u);
  EXPECT_EQ(wrong_for_second, 0u);
  EXPECT_EQ(farheap.statistics().handled_objects, 2000u);
  EXPECT_EQ(count_wrong(farheap, of_first, 1) + count_wrong(farheap, of_second, 2), 0u);
}

TEST_F(tags_test, giving_a_tag_back_waits_for_its_handler) {
  runtime farheap(heap::small_runtime());
  std::atomic<bool> called{false};
  std::atomic<bool> returned{false};
  std::atomic<bool> gives_back{false};
  const tag slow(farheap, {}, before_leaving<marked>([&](const marked&) {
                   called = true;
                   while (!gives_back) std::this_thread::yield();
                   std::this_thread::sleep_for(std::chrono::milliseconds(20));
                   returned = true;
                 }));
  const std::vector<unique_ptr<marked>> all = fill(slow, 1, 1);
  std::thread evicts([&] {
    while (!called) farheap.evict_all();
  });
  while (!called) std::this_thread::yield();
  gives_back = true;
  slow.give_back();
  EXPECT_TRUE(returned);
  evicts.join();
  EXPECT_EQ(count_wrong(farheap, all, 1), 0u);
}

TEST_F(tags_test, a_scope_that_stays_open_keeps_numbers_from_being_used_again) {
  runtime farheap(heap::small_runtime());
  const std::vector<tag> all = use_all_numbers(farheap);
  all[4].give_back();
  {
    const scope here(farheap);
    EXPECT_THROW(tag(farheap, {}), std::runtime_error);
  }
  std::optional<scope> open(std::in_place, farheap);
  std::atomic<bool> is_open{true};
  std::thread other([&] {
    EXPECT_EQ(heap::number_of(tag(farheap, {}).key()), all[4].key());
    EXPECT_FALSE(is_open);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  is_open = false;
  open.reset();
  other.join();
}

TEST_F(tags_test, plain_memory_and_large_objects_stay_usable) {
  runtime farheap(heap::small_runtime());
  const std::vector<tag> all = use_all_numbers(farheap);
  const heap::page_table& pages = detail::heap_of(farheap).pages;
  const auto number_at = [&](const void* memory) {
    return pages.tag_of(pages.page_of(reinterpret_cast<std::uintptr_t>(memory)));
  };
  memory_resource before(all[1]);
  std::vector<void*> small;
  for (int i = 0; i < 2000; ++i) small.push_back(before.allocate(160, 16));
  void* const large = before.allocate(100'000, 16);
  unique_ptr<std::uint64_t[]> numbers = make_unique<std::uint64_t[]>(all[1], 100'000);
  numbers.write(99'999, 7);
  for (int i = 0; i < 500; ++i) before.deallocate(small[static_cast<std::size_t>(i)], 160, 16);
  all[1].give_back();
  const tag next(farheap, {});
  memory_resource after(next);
  void* const fresh = after.allocate(160, 16);
  EXPECT_EQ(number_at(fresh), heap::number_of(next.key()));
  EXPECT_EQ(number_at(small[1000]), 0u);
  EXPECT_EQ(number_at(large), 0u);
  farheap.validate();
  void* const late = before.allocate(160, 16);
  EXPECT_EQ(number_at(late), 0u);
  for (std::size_t i = 500; i < small.size(); ++i) before.deallocate(small[i], 160, 16);
  before.deallocate(late, 160, 16);
  before.deallocate(large, 100'000, 16);
  after.deallocate(fresh, 160, 16);
  EXPECT_EQ(numbers.read(99'999), 7u);
  farheap.validate();
}

TEST_F(tags_test, stress) {
  stress::run_tags(heap::small_runtime(), 150);
}

}  // namespace
}  // namespace far
