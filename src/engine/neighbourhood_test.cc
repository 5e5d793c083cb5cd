#include "engine/neighbourhood.h"

#include <gtest/gtest.h>

#include "tests/support/page_states.h"

namespace far::engine {
namespace {

constexpr std::uint64_t budget_pages = 1024;  // 128 evictions are an epoch
constexpr std::size_t region_pages = neighbourhood::region_pages;

class region_fetch : public testing::Test {
 protected:
  static constexpr page_id regions = 8192;

  // A region of which so many pages are here, and the others Remote.
  page_id new_region(std::size_t here) {
    const page_id first = next_region_++ * region_pages;
    const unsigned left = time_.epoch() - (have_just_left_ ? 0 : 8);
    for (std::size_t i = 0; i < region_pages; ++i) {
      put(pages_, first + i, i < here ? state::resident : state::remote, left);
    }
    return first;
  }
  void pass_epochs(std::uint64_t epochs) { count_.evicted_pages.add(epochs * budget_pages / 8); }

  // A region that the program goes on to use: whichever page was the sample is missed.
  void use_whole_region() {
    const page_id first = new_region(8);
    static_cast<void>(asked_.around(first + 8));
    for (page_id page = first + 9; page < first + region_pages; ++page) asked_.note_miss(page);
  }
  void use_whole_regions(int times) {
    for (int i = 0; i < times; ++i) use_whole_region();
    pass_epochs(2);
  }
  // Regions of which the program uses half, and no more.
  void use_half_regions(int times) {
    for (int i = 0; i < times; ++i) {
      static_cast<void>(asked_.around(new_region(8) + 8));
      pass_epochs(2);
    }
  }
  // Misses elsewhere; as many pages leave meanwhile.
  void miss_others(int times) {
    for (int i = 0; i < times; ++i) {
      asked_.note_miss(new_region(0));
      count_.evicted_pages.add();
    }
  }
  [[nodiscard]] window around_in_use() { return asked_.around(new_region(8) + 8); }

  residency pages_{regions * region_pages};
  budget local_{budget_pages};
  counters count_;
  eviction_clock time_{local_, count_};
  neighbourhood asked_{pages_, time_, count_};
  page_id next_region_ = 1;
  bool have_just_left_ = false;
};

TEST_F(region_fetch, does_not_begin_before_samples_were_wanted) {
  EXPECT_EQ(around_in_use().count, 0u);
  EXPECT_EQ(around_in_use().count, 0u);
  use_whole_regions(100);
  const page_id first = new_region(8);
  const window region = asked_.around(first + 10);
  EXPECT_EQ(count_.sampled_pages.get(), 102u);
  EXPECT_EQ(count_.wanted_samples.get(), 100u);
  EXPECT_EQ(region.count, region_pages);
  EXPECT_EQ(first + 10 + static_cast<page_id>(region.first), first);
  EXPECT_EQ(region.stride, 1);
  EXPECT_FALSE(region.is_walk) << "a write to one page does not say that the others will be written to";
  ASSERT_TRUE(region.left_out.has_value());
  EXPECT_GE(*region.left_out, first + 8);
  EXPECT_LT(*region.left_out, first + region_pages);
  EXPECT_NE(*region.left_out, first + 10);
}

TEST_F(region_fetch, samples_no_pages_whose_objects_come_one_by_one) {
  for (int i = 0; i < 100; ++i) {
    const page_id first = new_region(8);
    for (page_id page = first + 8; page < first + region_pages; ++page) {
      pages_.update(page, [](page_word word) { return word.with_object_path(true); });
    }
    static_cast<void>(asked_.around(first + 8));
  }
  pass_epochs(2);
  use_whole_regions(100);
  EXPECT_EQ(around_in_use().count, region_pages);
  EXPECT_EQ(count_.sampled_pages.get(), 100u) << "those that were used";
}

TEST_F(region_fetch, ends_when_samples_are_not_wanted) {
  use_whole_regions(100);
  ASSERT_EQ(around_in_use().count, region_pages);
  use_half_regions(1500);
  EXPECT_GT(count_.sampled_pages.get(), count_.wanted_samples.get() + 500);
  EXPECT_EQ(around_in_use().count, 0u);
  use_whole_regions(100);
  EXPECT_EQ(around_in_use().count, region_pages) << "begins again";
}

// Samples that are wanted are known to be before the others.
TEST_F(region_fetch, waits_for_all_samples_of_an_epoch) {
  for (int i = 0; i < 100; ++i) {
    use_whole_region();
    static_cast<void>(around_in_use());
    static_cast<void>(around_in_use());
    static_cast<void>(around_in_use());
    EXPECT_EQ(around_in_use().count, 0u) << i;
    if (i % 20 == 19) pass_epochs(2);
  }
  EXPECT_GT(count_.sampled_pages.get(), 3 * count_.wanted_samples.get());
  EXPECT_GT(count_.wanted_samples.get(), 0u);
}

TEST_F(region_fetch, costs_more_than_it_saves_if_few_samples_are_wanted) {
  use_half_regions(300);  // so that each one more is an answer
  for (int i = 0; i < 200; ++i) {
    use_half_regions(7);
    use_whole_regions(1);
  }
  EXPECT_EQ(around_in_use().count, 0u);
}

// Pages that come along then push out others that are wanted as much.
TEST_F(region_fetch, ends_while_pages_that_leave_are_missed_soon) {
  use_whole_regions(100);
  ASSERT_EQ(around_in_use().count, region_pages);
  have_just_left_ = true;
  miss_others(1000);
  EXPECT_EQ(around_in_use().count, 0u);
  have_just_left_ = false;
  miss_others(1000);
  EXPECT_EQ(around_in_use().count, region_pages);
}

TEST_F(region_fetch, does_not_begin_between_two_bursts_of_evictions) {
  use_whole_regions(100);
  have_just_left_ = true;
  miss_others(1000);
  for (int i = 0; i < 100; ++i) {
    for (int misses = 0; misses < 20; ++misses) {
      asked_.note_miss(new_region(0));
      EXPECT_EQ(around_in_use().count, 0u);
    }
    count_.evicted_pages.add(20);
  }
}

// Many batches may be written at a time: epochs then end in bursts, and pages that have just left are missed after
// them.
TEST_F(region_fetch, does_not_begin_in_an_epoch_that_ends_before_the_misses_come) {
  use_whole_regions(100);
  have_just_left_ = true;
  miss_others(1000);
  for (int i = 0; i < 20; ++i) {
    asked_.note_miss(new_region(0));
    EXPECT_EQ(around_in_use().count, 0u) << i;
    pass_epochs(1);
    asked_.note_miss(new_region(0));
    EXPECT_EQ(around_in_use().count, 0u) << i;
    for (int misses = 0; misses < 240; ++misses) asked_.note_miss(new_region(0));
    pass_epochs(1);
  }
}

// A faster far tier would have taken them, and they would have been missed.
TEST_F(region_fetch, ends_while_pages_are_rescued_on_their_way_out) {
  use_whole_regions(100);
  ASSERT_EQ(around_in_use().count, region_pages);
  for (int i = 0; i < 100; ++i) {
    count_.rescues.add(100);
    count_.evicted_pages.add(20);
    miss_others(1);
  }
  EXPECT_EQ(around_in_use().count, 0u);
}

// Pages that come back along with others are not missed.
TEST_F(region_fetch, ends_when_most_of_what_leaves_comes_back_along) {
  use_whole_regions(100);
  ASSERT_EQ(around_in_use().count, region_pages);
  for (int i = 0; i < 1000; ++i) {
    use_whole_region();
    count_.evicted_pages.add(16);
    count_.returned_along.add(15);
  }
  EXPECT_EQ(around_in_use().count, 0u);
}

// The counts of a child of a fork begin again.
TEST_F(region_fetch, knows_in_a_child_that_pages_that_leave_are_missed_soon) {
  use_whole_regions(100);
  have_just_left_ = true;
  miss_others(1000);
  ASSERT_EQ(around_in_use().count, 0u);
  count_.begin_again();
  for (int i = 0; i < 10; ++i) {
    miss_others(100);
    EXPECT_EQ(around_in_use().count, 0u);
  }
}

TEST_F(region_fetch, a_sample_that_is_missed_late_was_not_wanted) {
  for (int i = 0; i < 100; ++i) {
    const page_id first = new_region(8);
    static_cast<void>(asked_.around(first + 8));
    pass_epochs(3);
    for (page_id page = first + 9; page < first + region_pages; ++page) asked_.note_miss(page);
  }
  EXPECT_EQ(count_.sampled_pages.get(), 100u);
  EXPECT_EQ(count_.wanted_samples.get(), 0u);
}

TEST_F(region_fetch, a_sample_that_came_back_otherwise_tells_nothing) {
  for (int i = 0; i < 2000; ++i) {
    const page_id first = new_region(8);
    static_cast<void>(asked_.around(first + 8));
    for (page_id page = first; page < first + region_pages; ++page) put(pages_, page, state::resident, 0);
    pass_epochs(2);
  }
  EXPECT_EQ(count_.sampled_pages.get(), 0u);
}

// More of them than there is room for: those that may still be missed soon keep their places.
TEST_F(region_fetch, a_sample_is_not_given_up_before_its_time) {
  for (int i = 0; i < 2000; ++i) static_cast<void>(asked_.around(new_region(8) + 8));
  EXPECT_EQ(count_.sampled_pages.get(), 0u);
}

TEST_F(region_fetch, does_not_come_for_a_sample_alone) {
  use_whole_regions(100);
  pass_epochs(4);  // so that there is room for samples
  EXPECT_EQ(asked_.around(new_region(14) + 14).count, 0u);
  EXPECT_EQ(asked_.around(new_region(13) + 14).count, region_pages);
}

TEST_F(region_fetch, leaves_sparse_regions_alone) {
  use_whole_regions(100);
  ASSERT_EQ(around_in_use().count, region_pages);
  const std::uint64_t sampled = count_.sampled_pages.get();
  for (int i = 0; i < 1000; ++i) {
    const page_id first = new_region(7);
    EXPECT_EQ(asked_.around(first + 8).count, 0u);
    for (page_id page = first; page < first + region_pages; ++page) asked_.note_miss(page);
  }
  EXPECT_EQ(count_.sampled_pages.get(), sampled);
  const page_id filled_here = new_region(16);
  for (page_id page = filled_here; page < filled_here + region_pages; ++page) {
    pages_.update(page, [](page_word word) { return word.with_fetched(false); });
  }
  put(pages_, filled_here + 3, state::remote, 0);
  put(pages_, filled_here + 4, state::remote, 0);
  put(pages_, filled_here + 5, state::remote, 0);
  EXPECT_EQ(asked_.around(filled_here + 3).count, 0u) << "its pages have not come back, they were made here";
}

TEST_F(region_fetch, ends_at_the_end_of_the_heap) {
  use_whole_regions(100);
  residency short_heap(40);
  neighbourhood asked(short_heap, time_, count_);
  EXPECT_EQ(asked.around(39).count, 0u);
}

}  // namespace
}  // namespace far::engine
