#include "pager/address_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>
#include <random>
#include <vector>

namespace far::pager {
namespace {

TEST(address_map, takes_aligned_ranges_and_reuses_holes) {
  address_map map(4096);
  EXPECT_EQ(map.take(1, 1, 3), 0u);
  EXPECT_EQ(map.take(512, 512, 3), 512u);
  EXPECT_EQ(map.take(511, 1, 3), 1u);  // the hole that alignment left fits exactly
  EXPECT_EQ(map.pages_in_use(), 1024u);
  const auto parts = map.remove({512, 512});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].range.count, 512u);
  map.put_back(parts[0].range);
  EXPECT_EQ(map.take(512, 512, 1), 512u);
  EXPECT_EQ(map.take(4096, 1, 1), std::nullopt);
}

TEST(address_map, parts_split_when_a_piece_is_removed_or_protected) {
  address_map map(1000);
  ASSERT_EQ(map.take(100, 1, 3), 0u);
  map.change({10, 20}, [](mapping_traits& traits) { traits.protection = 1; });
  EXPECT_EQ(map.find(9)->traits.protection, 3);
  EXPECT_EQ(map.find(10)->traits.protection, 1);
  EXPECT_EQ(map.find(30)->range.first, 30u);
  const auto parts = map.remove({20, 5});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].range.first, 20u);
  EXPECT_EQ(parts[0].range.count, 5u);
  EXPECT_FALSE(map.find(22));
  EXPECT_FALSE(map.take_at({20, 5}, 3)) << "removed, but not put back yet";
  map.put_back(parts[0].range);
  EXPECT_TRUE(map.take_at({20, 5}, 3));
}

TEST(address_map, a_part_that_was_given_back_is_not_removed_from_its_next_user) {
  address_map map(20);
  ASSERT_EQ(map.take(20, 1, 3), 0u);
  map.change({10, 10}, [](mapping_traits& traits) { traits.protection = 1; });
  const auto parts = map.remove({0, 20});
  ASSERT_EQ(parts.size(), 2u);
  map.put_back(parts[0].range);
  EXPECT_EQ(map.take(5, 1, 3), 0u);
  EXPECT_EQ(parts[1].range.first, 10u);
  map.put_back(parts[1].range);
  EXPECT_TRUE(map.find(0));
}

TEST(address_map, what_is_taken_out_is_nobody_elses_until_it_is_used) {
  address_map map(1024);
  EXPECT_EQ(map.take_out(4, 1), 0u);
  EXPECT_TRUE(map.take_out_at({8, 4}));
  EXPECT_FALSE(map.take_out_at({6, 4}));
  EXPECT_EQ(map.take_out(2048, 1), std::nullopt);
  for (const page_range& taken : {page_range{0, 4}, page_range{8, 4}}) {
    EXPECT_FALSE(map.look(taken)) << "somebody is at work on it";
    EXPECT_FALSE(map.take_over(taken));
    EXPECT_FALSE(map.remove_whole(taken));
    EXPECT_FALSE(map.take_at(taken, 3));
    EXPECT_TRUE(map.remove(taken).empty());
  }
  EXPECT_EQ(map.pages_in_use(), 8u);
  map.use({0, 4}, 3);
  map.put_back({8, 4});
  EXPECT_EQ(map.find(3)->traits.protection, 3);
  EXPECT_TRUE(map.take_over({8, 4}));
}

TEST(address_map, a_range_is_taken_over_in_one_step) {
  address_map map(40);
  ASSERT_EQ(map.take(10, 1, 3), 0u);
  ASSERT_TRUE(map.take_at({15, 10}, 1));
  const auto parts = map.take_over({5, 25});  // used, free, used, free
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].range.first, 5u);
  EXPECT_EQ((*parts)[0].range.count, 5u);
  EXPECT_EQ((*parts)[1].range.first, 15u);
  EXPECT_EQ((*parts)[1].range.count, 10u);
  EXPECT_FALSE(map.take_at({12, 1}, 3)) << "free before, and nobody else's now";
  EXPECT_FALSE(map.take_over({29, 2})) << "somebody is at work on a part";
  EXPECT_EQ(map.pages_in_use(), 30u);
  map.use({5, 25}, 2);
  EXPECT_EQ(map.find(12)->traits.protection, 2);
  EXPECT_EQ(map.find(4)->traits.protection, 3);
  EXPECT_TRUE(map.take_over({29, 2}));
}

TEST(address_map, a_range_is_removed_when_nobody_else_is_at_work_on_a_part) {
  address_map map(40);
  ASSERT_TRUE(map.take_at({5, 10}, 1));
  ASSERT_TRUE(map.take_at({20, 10}, 3));
  const auto out = map.remove({8, 2});
  EXPECT_FALSE(map.remove_whole({0, 30}));
  EXPECT_EQ(map.find(5)->range.count, 3u) << "nothing was removed";
  map.use(out[0].range, out[0].traits);
  const auto parts = map.remove_whole({0, 30});
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->size(), 2u) << "what is free stays so";
  EXPECT_EQ((*parts)[1].range.first, 20u);
  EXPECT_TRUE(map.take_at({15, 5}, 3));
}

TEST(address_map, alignment_counts_from_address_zero) {
  address_map map(4096, 3 * 512);
  EXPECT_EQ(map.take(10, 1024, 3), 512u);
  EXPECT_EQ(map.take(1, std::uint64_t{1} << 51, 3), std::nullopt);
  EXPECT_EQ(map.take(std::uint64_t{1} << 52, 1, 3), std::nullopt);
}

TEST(address_map, a_look_tells_parts_in_order_and_waits_for_those_taken_out) {
  address_map map(100);
  ASSERT_TRUE(map.take_at({10, 10}, 3));
  ASSERT_TRUE(map.take_at({30, 10}, 1));
  map.change({15, 5}, [](mapping_traits& traits) { traits.locked = true; });
  const auto seen = map.look({12, 20});
  ASSERT_TRUE(seen);
  ASSERT_EQ(seen->size(), 3u);
  EXPECT_EQ((*seen)[0].range.first, 12u);
  EXPECT_EQ((*seen)[0].range.count, 3u);
  EXPECT_FALSE((*seen)[0].traits.locked);
  EXPECT_TRUE((*seen)[1].traits.locked);
  EXPECT_EQ((*seen)[2].range.first, 30u);
  EXPECT_EQ((*seen)[2].range.count, 2u);
  const auto out = map.remove({15, 2});
  ASSERT_EQ(out.size(), 1u);
  EXPECT_FALSE(map.look({12, 20})) << "somebody has taken a part out";
  EXPECT_TRUE(map.look({17, 20}));
  map.use(out[0].range, out[0].traits);
  EXPECT_TRUE(map.look({12, 20}));
  const auto locked = map.find_all([](const mapping_traits& traits) { return traits.locked; });
  ASSERT_EQ(locked.size(), 1u) << "neighbours that are alike are one part again";
  EXPECT_EQ(locked[0].range.first, 15u);
  EXPECT_EQ(locked[0].range.count, 5u);
}

TEST(address_map, random_use_never_hands_out_a_page_twice) {
  constexpr std::uint64_t pages = 5000;
  address_map map(pages);
  std::vector<bool> taken(pages, false);
  std::mt19937_64 random(11);
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0) {
      const std::uint64_t count = 1 + random() % 60;
      const auto first = map.take(count, std::uint64_t{1} << random() % 5, 3);
      if (!first) continue;
      for (page_id page = *first; page < *first + count; ++page) {
        ASSERT_FALSE(taken[page]);
        taken[page] = true;
      }
    } else {
      const page_range range{random() % pages, 1 + random() % 80};
      for (const address_map::part& part : map.remove(range)) {
        for (page_id page = part.range.first; page < part.range.end(); ++page) {
          ASSERT_TRUE(taken[page]);
          taken[page] = false;
        }
        map.put_back(part.range);
      }
      for (page_id page = range.first; page < std::min(range.end(), pages); ++page) ASSERT_FALSE(taken[page]);
    }
  }
  EXPECT_EQ(map.pages_in_use(), static_cast<std::uint64_t>(std::count(taken.begin(), taken.end(), true)));
}

TEST(address_map, knows_which_pages_no_thread_may_read) {
  address_map map(4096);
  unreadable_pages noted(4096);
  map.note_unreadable_in(noted);
  const auto unreadable = [&](page_range range) {
    std::size_t seen = 0;
    for (page_id page = range.first; page < range.end(); ++page) seen += noted.contains(page) ? 1 : 0;
    return seen;
  };
  const page_range everything{0, 4096};
  const page_range area{50, 1000};
  ASSERT_TRUE(map.take_at(area, PROT_READ | PROT_WRITE));
  EXPECT_EQ(unreadable(everything), 0u);
  const auto change = [&](page_range range, int protection, bool fenced = false, std::int8_t key = no_key) {
    map.change(range, [&](mapping_traits& traits) {
      traits.protection = protection;
      traits.fenced = fenced;
      traits.key = key;
    });
  };
  const page_range part{63, 130};
  for (const auto& protect :
       {std::function([&] { change(part, PROT_NONE); }), std::function([&] { change(part, PROT_EXEC); }),
        std::function([&] { change(part, PROT_READ, true); }),
        std::function([&] { change(part, PROT_READ | PROT_WRITE, false, 1); })}) {
    protect();
    EXPECT_EQ(unreadable(part), part.count);
    EXPECT_EQ(unreadable(everything), part.count);
    change({100, 10}, PROT_READ);
    EXPECT_EQ(unreadable(everything), part.count - 10);
    change(part, PROT_WRITE, false, 0);
    EXPECT_EQ(unreadable(everything), 0u);
  }
  EXPECT_FALSE(mapping_traits(PROT_READ).is_writable());
  mapping_traits with_key(PROT_READ | PROT_WRITE);
  EXPECT_TRUE(with_key.is_writable());
  with_key.key = 1;
  EXPECT_FALSE(with_key.is_writable());
  change(part, PROT_NONE);
  for (const address_map::part& one : map.remove(area)) map.put_back(one.range);
  ASSERT_TRUE(map.take_at(area, PROT_READ));
  EXPECT_EQ(unreadable(everything), 0u) << "others have it now";
}

}  // namespace
}  // namespace far::pager
