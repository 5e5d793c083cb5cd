// The objects that stay in local memory, and the places of those that leave: tags with replacement of their own, scopes
// that hold more than the budget, objects that come back. On the real kernel; needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/units.h"
#include "far/runtime.h"
#include "far/shared_ptr.h"
#include "far/tag.h"
#include "far/task.h"
#include "far/unique_ptr.h"
#include "heap/grace_periods.h"
#include "heap/heap.h"
#include "heap/scope_filter.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

using replacement_test = heap::real_pager_test<>;

struct item {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 63> content{};

  explicit item(std::uint64_t value) : number(value) { content.fill(value * 31); }
  [[nodiscard]] bool is(std::uint64_t value) const { return number == value && content[62] == value * 31; }
};

using items = std::vector<unique_ptr<item>>;

constexpr std::size_t budget = 16 * mib;

runtime_options small_runtime() {
  runtime_options chosen;
  chosen.local_bytes = budget;
  chosen.workers = 1;
  chosen.evacuate_garbage_share = 2;
  return chosen;
}

items fill(const tag& in, std::size_t bytes) {
  items all;
  for (std::size_t i = 0; i < bytes / sizeof(item); ++i) all.push_back(make_unique<item>(in, i));
  return all;
}

std::uintptr_t address_of(const unique_ptr<item>& one, const scope& in) {
  return reinterpret_cast<std::uintptr_t>(&one.deref(in));
}

// How many pages of a list's objects are resident; asks without using them.
std::size_t resident_pages(runtime& farheap, const std::vector<std::uintptr_t>& pages) {
  std::size_t count = 0;
  for (const std::uintptr_t page : pages) count += detail::heap_of(farheap).memory.is_resident(page) ? 1 : 0;
  return count;
}

std::vector<std::uintptr_t> pages_of(runtime& farheap, const items& all) {
  std::vector<std::uintptr_t> pages;
  for (const auto& owner : all) {
    const scope here(farheap);
    const std::uintptr_t page = address_of(owner, here) & ~std::uintptr_t{page_bytes - 1};
    if (pages.empty() || pages.back() != page) pages.push_back(page);
  }
  return pages;
}

std::size_t count_wrong(runtime& farheap, const items& all) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const scope here(farheap);
    wrong += all[i].deref(here).is(i) ? 0 : 1;
  }
  return wrong;
}

TEST_F(replacement_test, a_runtime_has_fifteen_tags_of_at_most_three_bits) {
  runtime farheap(small_runtime());
  EXPECT_THROW(tag(farheap, {.hotness_bits = 4}), std::invalid_argument);
  EXPECT_THROW(tag(farheap, {.priority = 4}), std::invalid_argument);
  for (unsigned i = 1; i <= 15; ++i) EXPECT_EQ(tag(farheap, {.hotness_bits = i % 4}).key(), i);
  EXPECT_THROW(tag(farheap, {}), std::runtime_error);
}

TEST_F(replacement_test, objects_of_a_tag_lie_together_wherever_they_go) {
  runtime farheap(small_runtime());
  const tag first(farheap, {.hotness_bits = 2});
  const tag second(farheap, {.hotness_bits = 0});
  items of_first;
  items of_second;
  unique_ptr<int[]> large = make_unique<int[]>(second, 100'000);
  for (std::size_t i = 0; i < 1000; ++i) {
    of_first.push_back(make_unique<item>(first, i));
    of_second.push_back(make_unique<item>(second, i));
  }
  const auto misplaced = [&] {
    heap::page_table& pages = detail::heap_of(farheap).pages;
    std::size_t count = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
      const scope here(farheap);
      count += pages.tag_of(pages.page_of(address_of(of_first[i], here))) == first.key() ? 0 : 1;
      count += pages.tag_of(pages.page_of(address_of(of_second[i], here))) == second.key() ? 0 : 1;
    }
    return count;
  };
  EXPECT_EQ(misplaced(), 0u);
  {
    const scope here(farheap);
    heap::page_table& pages = detail::heap_of(farheap).pages;
    const auto at = reinterpret_cast<std::uintptr_t>(large.deref(here).data());
    EXPECT_EQ(pages.tag_of(pages.page_of(at) + 90), second.key());
  }

  EXPECT_GT(farheap.evacuate(0), 0u);
  EXPECT_EQ(misplaced(), 0u) << "after evacuation";
  farheap.set_page_path_share(2);
  farheap.evict_all();
  EXPECT_EQ(misplaced(), 0u) << "after the object path";
  EXPECT_GT(farheap.statistics().object_fetches, 1000u);
  EXPECT_EQ(count_wrong(farheap, of_first) + count_wrong(farheap, of_second), 0u);
  farheap.validate();
}

// Both lists are used again and again between stretches of a stream that is read once.
TEST_F(replacement_test, hot_pages_of_a_tag_with_more_bits_outlive_a_stream) {
  runtime farheap(small_runtime());
  const tag in_order(farheap, {.hotness_bits = 0});
  const tag long_lived(farheap, {.hotness_bits = 3});
  const items fifo = fill(in_order, 2 * mib);
  const items hot = fill(long_lived, 2 * mib);
  const std::vector<std::uintptr_t> fifo_pages = pages_of(farheap, fifo);
  const std::vector<std::uintptr_t> hot_pages = pages_of(farheap, hot);
  const items stream = fill(farheap, 3 * budget);
  farheap.set_page_path_share(0);  // pages stay where they are
  const std::size_t stretch = stream.size() / 12;
  for (std::size_t round = 0; round < 24; ++round) {
    EXPECT_EQ(count_wrong(farheap, hot), 0u);
    EXPECT_EQ(count_wrong(farheap, fifo), 0u);
    for (std::size_t i = round % 12 * stretch; i < (round % 12 + 1) * stretch; ++i) {
      const scope here(farheap);
      EXPECT_TRUE(stream[i].deref(here).is(i));
    }
  }
  // Now nobody uses them, for as long as it takes the stream to push everything else out.
  for (std::size_t i = 0; i < stream.size() / 3 * 2; ++i) {
    const scope here(farheap);
    EXPECT_TRUE(stream[i].deref(here).is(i));
  }
  // The policy's long queue may let a few go round once more that came back in every round.
  EXPECT_LT(resident_pages(farheap, fifo_pages), fifo_pages.size() / 20);
  EXPECT_GT(resident_pages(farheap, hot_pages), hot_pages.size() * 3 / 4);
}

// Reads on where it was.
class stream_reader {
 public:
  stream_reader(runtime& farheap, const items& stream) : farheap_(farheap), stream_(stream) {}
  void read(std::size_t bytes) {
    for (std::size_t i = 0; i < bytes / sizeof(item); ++i, ++next_) {
      const scope here(farheap_);
      EXPECT_TRUE(stream_[next_ % stream_.size()].deref(here).is(next_ % stream_.size()));
    }
  }

 private:
  runtime& farheap_;
  const items& stream_;
  std::size_t next_ = 0;
};

// One list is used often, and then no more; then the other, a few times. Returns how many pages of each are left when
// nobody has used either for a while.
std::array<std::size_t, 2> left_of(const replacement& how) {
  runtime_options chosen = small_runtime();
  chosen.policy = "fifo";  // nothing but the tag decides
  runtime farheap(chosen);
  const tag both(farheap, how);
  const items early = fill(both, 2 * mib);
  const items late = fill(both, 2 * mib);
  const std::array<std::vector<std::uintptr_t>, 2> pages{pages_of(farheap, early), pages_of(farheap, late)};
  const items stream = fill(farheap, 3 * budget);
  stream_reader reader(farheap, stream);
  farheap.set_page_path_share(0);  // pages stay where they are
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(count_wrong(farheap, early), 0u);
    reader.read(budget / 4);
  }
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(count_wrong(farheap, late), 0u);
    reader.read(budget / 4);
  }
  reader.read(budget * 3 / 2);
  return {resident_pages(farheap, pages[0]), resident_pages(farheap, pages[1])};
}

TEST_F(replacement_test, by_recency_what_was_used_last_stays_longest) {
  const auto [early, late] = left_of({.hotness_bits = 3, .order = replacement_order::lru});
  EXPECT_LT(early, 100u);
  EXPECT_GT(late, 500u);
}

TEST_F(replacement_test, by_frequency_a_few_uses_are_not_enough) {
  EXPECT_LT(left_of({.hotness_bits = 3})[1], 100u);
}

// Nobody uses any of three lists; a stream without a tag comes and goes.
TEST_F(replacement_test, pages_of_lower_priorities_leave_first) {
  runtime farheap(small_runtime());
  const tag first_to_leave(farheap, {.priority = 0});
  const tag last_to_leave(farheap, {.priority = 3});
  // In turns, so that the evictor comes across all of them.
  items last;
  items usual;
  items first;
  for (std::size_t i = 0; i < 2 * mib / sizeof(item); ++i) {
    last.push_back(make_unique<item>(last_to_leave, i));
    usual.push_back(make_unique<item>(farheap, i));
    for (std::size_t k = 0; k < 2; ++k) first.push_back(make_unique<item>(first_to_leave, first.size()));
  }
  const std::vector<std::uintptr_t> last_pages = pages_of(farheap, last);
  const std::vector<std::uintptr_t> usual_pages = pages_of(farheap, usual);
  const std::vector<std::uintptr_t> first_pages = pages_of(farheap, first);
  std::size_t left = 0;
  items stream;
  // Until something had to leave.
  while (left = resident_pages(farheap, first_pages), left == first_pages.size()) {
    stream.push_back(make_unique<item>(farheap, stream.size()));
    ASSERT_LT(stream.size() * sizeof(item), 2 * budget);
  }
  while (left > first_pages.size() / 2) {
    stream.push_back(make_unique<item>(farheap, stream.size()));
    ASSERT_LT(stream.size() * sizeof(item), 2 * budget);
    left = resident_pages(farheap, first_pages);
  }
  // More than a sixteenth of all pages are still of the first list.
  EXPECT_GT(resident_pages(farheap, usual_pages), usual_pages.size() * 9 / 10);
  while (stream.size() * sizeof(item) < 4 * budget) stream.push_back(make_unique<item>(farheap, stream.size()));
  EXPECT_LT(resident_pages(farheap, usual_pages), usual_pages.size() / 4);
  EXPECT_EQ(resident_pages(farheap, last_pages), last_pages.size());

  // But all of it when there is little else.
  const items more = fill(last_to_leave, 2 * budget);
  EXPECT_LT(resident_pages(farheap, last_pages), last_pages.size() / 4);
  EXPECT_EQ(count_wrong(farheap, last) + count_wrong(farheap, usual) + count_wrong(farheap, first), 0u);
  EXPECT_EQ(count_wrong(farheap, more) + count_wrong(farheap, stream), 0u);
  farheap.validate();
}

// How many pages of a hot set are left when four times the budget went by: read, or made.
std::size_t hot_pages_left(bool is_non_temporal, bool makes) {
  runtime_options chosen = small_runtime();
  runtime farheap(chosen);
  const items hot = fill(farheap, budget / 2);
  const std::vector<std::uintptr_t> pages = pages_of(farheap, hot);
  items stream = fill(farheap, 4 * budget);
  EXPECT_EQ(count_wrong(farheap, hot), 0u);
  EXPECT_EQ(count_wrong(farheap, hot), 0u);
  std::size_t wrong = 0;
  std::mt19937_64 random(7);
  for (std::size_t i = 0; i < stream.size(); ++i) {
    if (makes) {
      stream[i] = is_non_temporal ? make_unique<item>(farheap, non_temporal, i) : make_unique<item>(farheap, i);
    } else {
      const scope here(farheap);
      wrong += (is_non_temporal ? stream[i].deref(here, non_temporal) : stream[i].deref(here)).is(i) ? 0 : 1;
    }
    const std::size_t used = random() % hot.size();
    const scope here(farheap);
    wrong += i % 4 != 0 || hot[used].deref(here).is(used) ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0u);
  return resident_pages(farheap, pages) * 100 / pages.size();
}

TEST_F(replacement_test, a_non_temporal_scan_leaves_the_hot_set_where_it_is) {
  EXPECT_GT(hot_pages_left(true, false), 95u);
  EXPECT_GT(hot_pages_left(true, true), 95u);
  EXPECT_LT(hot_pages_left(false, false), 50u);
}

// The same after use(i) for so many of what was made already.
template <typename Use>
std::size_t hot_pages_left_after(runtime& farheap, std::size_t count, Use use) {
  const items hot = fill(farheap, budget / 2);
  const std::vector<std::uintptr_t> pages = pages_of(farheap, hot);
  for (int round = 0; round < 3; ++round) EXPECT_EQ(count_wrong(farheap, hot), 0u);
  std::mt19937_64 random(7);
  for (std::size_t i = 0; i < count; ++i) {
    use(i);
    const std::size_t used = random() % hot.size();
    const scope here(farheap);
    EXPECT_TRUE(i % 4 != 0 || hot[used].deref(here).is(used));
  }
  return resident_pages(farheap, pages) * 100 / pages.size();
}

struct row {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 63> more{};
};
constexpr std::size_t rows = 4 * budget / sizeof(row);

// Of an array; `copies`: without a scope.
template <typename Array>
std::size_t hot_pages_left_by_array(runtime& farheap, Array array, bool writes, bool copies) {
  for (std::size_t i = 0; i < rows; ++i) array.write(i, row{i, {}});
  return hot_pages_left_after(farheap, rows, [&](std::size_t i) {
    if (copies) {
      if (writes) array.write(i, row{i + 1, {}}, non_temporal);
      EXPECT_EQ(array.read(i, non_temporal).number, i + (writes ? 1 : 0));
    } else {
      const scope here(farheap);
      if (writes) array.deref_mut(here, i, non_temporal).number += 1;
      EXPECT_EQ(array.deref(here, i, non_temporal).number, i + (writes ? 1 : 0));
    }
  });
}

TEST_F(replacement_test, non_temporal_elements_leave_the_hot_set_where_it_is) {
  for (const bool writes : {false, true}) {
    for (const bool copies : {false, true}) {
      runtime farheap(small_runtime());
      EXPECT_GT(hot_pages_left_by_array(farheap, make_unique<row[]>(farheap, rows), writes, copies), 90u);
      EXPECT_GT(hot_pages_left_by_array(farheap, make_shared<row[]>(farheap, rows), writes, copies), 90u);
    }
  }
}

TEST_F(replacement_test, non_temporal_ranges_leave_the_hot_set_where_it_is) {
  runtime farheap(small_runtime());
  auto array = make_unique<row[]>(farheap, rows);
  auto shared = make_shared<row[]>(farheap, rows);
  const std::size_t left = hot_pages_left_after(farheap, rows, [&](std::size_t i) {
    std::array<row, 2> some{row{i, {}}, row{i + 1, {}}};
    const std::size_t first = std::min(i, rows - 2);
    array.write(first, some, non_temporal);
    shared.write(first, some, non_temporal);
    array.read(first, some, non_temporal);
    shared.read(first, some, non_temporal);
    EXPECT_EQ(some[1].number, i + 1);
  });
  EXPECT_GT(left, 90u);
}

TEST_F(replacement_test, non_temporal_copies_of_shared_objects_leave_the_hot_set_where_it_is) {
  runtime farheap(small_runtime());
  std::vector<shared_ptr<row>> shared;
  for (std::size_t i = 0; i < rows; ++i) shared.push_back(far::make_shared<row>(farheap, row{i, {}}));
  const auto few = make_shared<row[]>(farheap, 2);
  const std::size_t left = hot_pages_left_after(farheap, rows, [&](std::size_t i) {
    row copy = shared[i].read(non_temporal);
    EXPECT_EQ(copy.number, i);
    ++copy.number;
    shared[i].write(copy, non_temporal);
    const scope here(farheap);
    few.deref_mut(here, non_temporal)[i % 2] = copy;
    EXPECT_EQ(few.deref(here, non_temporal)[i % 2].number, i + 1);
  });
  EXPECT_GT(left, 90u);
}

TEST_F(replacement_test, non_temporal_looks_at_pointers_that_may_be_null_leave_the_hot_set_where_it_is) {
  runtime farheap(small_runtime());
  std::vector<unique_ptr<row>> owned;
  std::vector<shared_ptr<row>> shared;
  for (std::size_t i = 0; i < rows / 2; ++i) {
    owned.push_back(make_unique<row>(farheap, row{i, {}}));
    shared.push_back(far::make_shared<row>(farheap, row{i, {}}));
  }
  unique_ptr<row> nobody;
  const shared_ptr<row> none;
  const std::size_t left = hot_pages_left_after(farheap, rows / 2, [&](std::size_t i) {
    const scope here(farheap);
    EXPECT_EQ(owned[i].get(here, non_temporal)->number, i);
    EXPECT_EQ(shared[i].get(here, non_temporal)->number, i);
    ++owned[i].get_mut(here, non_temporal)->number;
    ++shared[i].get_mut(here, non_temporal)->number;
    EXPECT_TRUE(nobody.get(here, non_temporal) == nullptr && nobody.get_mut(here, non_temporal) == nullptr);
    EXPECT_TRUE(none.get(here, non_temporal) == nullptr && none.get_mut(here, non_temporal) == nullptr);
  });
  EXPECT_GT(left, 90u);
  for (std::size_t i = 0; i < rows / 2; ++i) ASSERT_EQ(owned[i].read().number + shared[i].read().number, 2 * i + 2);
}

TEST_F(replacement_test, what_is_made_non_temporal_is_what_was_made) {
  runtime farheap(small_runtime());
  const unique_ptr<item> one = make_unique<item>(farheap, non_temporal, 5u);
  const shared_ptr<item> shared = make_shared<item>(farheap, non_temporal, 6u);
  const unique_ptr<int[]> few = make_unique<int[]>(farheap, non_temporal, 7);
  const unique_ptr<int[]> many = make_unique<int[]>(farheap, non_temporal, 70'000);
  const shared_ptr<int[]> of_all = make_shared<int[]>(farheap, non_temporal, 8);
  EXPECT_TRUE(one.read().is(5) && shared.read().is(6));
  EXPECT_EQ(few.size() + many.size() + of_all.size(), 70'015u);
  EXPECT_EQ(many.read(69'999), 0);
}

std::set<std::uintptr_t> places(runtime& farheap, const items& all, std::size_t granularity_bytes) {
  std::set<std::uintptr_t> found;
  for (const auto& owner : all) {
    const scope here(farheap);
    found.insert(address_of(owner, here) / granularity_bytes);
  }
  return found;
}

void evict(runtime& farheap, const items& all) {
  for (const std::uintptr_t page : pages_of(farheap, all)) detail::heap_of(farheap).evict(page, page_bytes);
}

// Objects that were away for long, and objects that come back soon, all by the object path.
TEST_F(replacement_test, objects_that_come_back_soon_lie_together) {
  runtime farheap(small_runtime());
  farheap.set_page_path_share(2);
  const items seldom = fill(farheap, mib);
  const items often = fill(farheap, mib);
  evict(farheap, seldom);
  const items stream = fill(farheap, 2 * budget);
  evict(farheap, often);
  for (std::size_t i = 0; i < often.size(); ++i) {
    const scope here(farheap);
    EXPECT_TRUE(often[i].deref(here).is(i) && seldom[i].deref(here).is(i));
  }
  const std::set<std::uintptr_t> of_seldom = places(farheap, seldom, heap::segment_bytes);
  for (const std::uintptr_t segment : places(farheap, often, heap::segment_bytes)) {
    EXPECT_EQ(of_seldom.count(segment), 0u);
  }
  farheap.validate();
}

// One object of each page is used again and again. The pages came back whole, and others want their frames.
TEST_F(replacement_test, the_few_used_objects_of_whole_pages_gather_in_few) {
  runtime farheap(small_runtime());
  const items stream = fill(farheap, 3 * budget);
  items all = fill(farheap, 4 * mib);
  items used;
  for (std::size_t i = 0; i < all.size(); i += page_bytes / sizeof(item)) used.push_back(std::move(all[i]));
  std::erase_if(all, [](const unique_ptr<item>& owner) { return !owner; });
  evict(farheap, all);
  EXPECT_GT(places(farheap, used, page_bytes).size(), used.size() * 3 / 4) << "back by the page path, where they were";
  for (std::size_t i = 0; i < 2 * stream.size(); ++i) {
    const scope here(farheap);
    EXPECT_TRUE(stream[i % stream.size()].deref(here).is(i % stream.size()));
    const std::size_t again = i % used.size();
    EXPECT_TRUE(used[again].deref(here).is(again * (page_bytes / sizeof(item))));
  }
  EXPECT_LT(places(farheap, used, page_bytes).size(), used.size() / 2);
  farheap.validate();
}

// Pages that are only read come back protected against writes. A write through a pointer meets no hardware guard.
TEST_F(replacement_test, a_dereference_for_writing_lets_its_page_be_written) {
  if (!platform::probe_kernel().write_protect) GTEST_SKIP() << "this kernel cannot protect single pages against writes";
  runtime farheap(small_runtime());
  items all = fill(farheap, 2 * budget);
  for (int round = 0; round < 3; ++round) EXPECT_EQ(count_wrong(farheap, all), 0u);
  std::size_t were_protected = 0;
  for (auto& owner : all) {
    {
      const scope here(farheap);
      were_protected += detail::heap_of(farheap).memory.is_writable(address_of(owner, here)) ? 0 : 1;
    }
    const scope here(farheap);
    const item& writable = owner.deref_mut(here);
    EXPECT_TRUE(detail::heap_of(farheap).memory.is_writable(reinterpret_cast<std::uintptr_t>(&writable)));
  }
  EXPECT_GT(were_protected, 0u);
  EXPECT_EQ(count_wrong(farheap, all), 0u);
}

TEST_F(replacement_test, a_scope_that_holds_more_than_the_budget_neither_stops_nor_exceeds_it) {
  runtime farheap(small_runtime());
  farheap.set_page_path_share(2);  // objects that no scope holds come back one by one
  items all = fill(farheap, 3 * budget);
  {
    const scope here(farheap);
    std::vector<item*> references;
    for (auto& owner : all) references.push_back(&owner.deref_mut(here));
    EXPECT_GT(farheap.statistics().forced_pages, 1000u);
    EXPECT_LT(farheap.statistics().local_bytes, budget + budget / 4);
    // The references are good until the scope ends, whichever way their objects come back.
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      wrong += references[i]->is(i) ? 0 : 1;
      references[i]->content[0] += 1;
      wrong += &all[i].deref(here) == references[i] ? 0 : 1;
    }
    EXPECT_EQ(wrong, 0u);
    EXPECT_LT(farheap.statistics().local_bytes, budget + budget / 4);
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const scope here(farheap);
    wrong += all[i].deref(here).is(i) && all[i].deref(here).content[0] == i * 31 + 1 ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0u);
  farheap.validate();
}

// Segments of large arrays and of objects in turns: a walk over the arrays would read ahead beyond their ends.
TEST_F(replacement_test, a_walk_brings_no_pages_whose_objects_come_one_by_one) {
  runtime farheap(small_runtime());
  farheap.set_page_path_share(2);
  constexpr std::size_t step = page_bytes / sizeof(std::uint64_t);
  constexpr std::size_t pages_each = heap::segment_pages / 2;
  std::vector<unique_ptr<std::uint64_t[]>> arrays;
  items all;
  std::set<std::uintptr_t> behind_arrays;
  for (std::uint64_t turn = 0; turn < 8; ++turn) {
    for (int half = 0; half < 2; ++half) {
      arrays.push_back(make_unique<std::uint64_t[]>(farheap, pages_each * step));
      const scope here(farheap);
      const std::span<std::uint64_t> every = arrays.back().deref_mut(here);
      for (std::size_t i = 0; i < every.size(); i += step) every[i] = i;
      behind_arrays.insert(reinterpret_cast<std::uintptr_t>(every.data() + every.size()));
    }
    for (std::size_t i = 0; i < heap::segment_pages * (page_bytes / sizeof(item) - 1); ++i) {
      all.push_back(make_unique<item>(farheap, all.size()));
    }
  }
  const std::vector<std::uintptr_t> pages = pages_of(farheap, all);
  const auto are_neighbours = [&](std::uintptr_t page) { return behind_arrays.contains(page); };
  ASSERT_GT(std::count_if(pages.begin(), pages.end(), are_neighbours), 2);
  for (int round = 0; round < 3; ++round) {
    farheap.evict_all();
    const std::uint64_t before = farheap.statistics().page_fetches;
    for (const unique_ptr<std::uint64_t[]>& one : arrays) {
      for (std::size_t i = 0; i < one.size(); i += step) ASSERT_EQ(one.read(i), i);
    }
    EXPECT_LT(farheap.statistics().page_fetches - before, arrays.size() * pages_each / 2) << "most are read ahead";
    EXPECT_EQ(resident_pages(farheap, pages), 0u);
  }
  EXPECT_EQ(count_wrong(farheap, all), 0u);
}

// On one worker, with a far tier that answers at once. A fiber parks now and then for lack of a free frame; the one
// that runs meanwhile never has to, and if it went on for ever, the scopes of the others would hold up all pages.
TEST_F(replacement_test, fibers_in_short_scopes_do_not_force_pages_out) {
  runtime_options chosen = small_runtime();
  chosen.far = "memory:";
  runtime farheap(chosen);
  const items all = fill(farheap, 3 * budget);
  const runtime_statistics before = farheap.statistics();
  std::vector<task<std::size_t>> readers;
  for (std::size_t reader = 0; reader < 4; ++reader) {
    readers.push_back(farheap.spawn([&farheap, &all, reader] {
      std::mt19937_64 random(reader);
      std::size_t wrong = 0;
      for (int i = 0; i < 50'000; ++i) {
        const std::uint64_t number = random() % all.size();
        const scope here(farheap);
        wrong += all[number].deref(here).is(number) ? 0 : 1;
      }
      return wrong;
    }));
  }
  for (task<std::size_t>& reader : readers) EXPECT_EQ(reader.join(), 0u);
  const runtime_statistics after = farheap.statistics();
  const std::uint64_t evicted = after.evicted_pages - before.evicted_pages;
  EXPECT_GT(evicted, 5'000u);
  // A few, where the system stops the worker in a scope for long.
  EXPECT_LT(after.forced_pages - before.forced_pages, evicted / 4);
}

// Each period costs a fence that interrupts the other processors, and a batch that leaves takes several looks.
TEST_F(replacement_test, looks_at_pages_in_use_share_grace_periods) {
  runtime farheap(small_runtime());
  detail::object_heap& objects = detail::heap_of(farheap);
  heap::scope_filter filter;
  filter.attach(objects, [](void*) {}, nullptr);
  const items all = fill(tag(farheap, {}), 64 * page_bytes);
  std::vector<engine::page_id> pages;
  for (const std::uintptr_t address : pages_of(farheap, all)) pages.push_back(objects.pages.page_of(address));
  pages.resize(std::min<std::size_t>(pages.size(), 64));
  const heap::grace_number before = heap::scopes_without_log.last_over();
  for (int looks = 0; looks < 64; ++looks) {
    ASSERT_EQ(count_wrong(farheap, all), 0u);
    const engine::eviction_look seen = filter.look({pages}, false);
    ASSERT_EQ(static_cast<std::size_t>(std::popcount(seen.warm)), pages.size());
  }
  EXPECT_LE(heap::scopes_without_log.last_over() - before, 8u) << "one that began before may be among them";
}

}  // namespace
}  // namespace far
