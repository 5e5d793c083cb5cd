#include "heap/page_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace far::heap {
namespace {

constexpr std::uintptr_t base = std::uintptr_t{1} << 40;

TEST(page_table, finds_live_objects) {
  page_table pages(base, 8);
  const std::vector<std::size_t> units = {1, 2, 63, 64, 100, 191, 192, 255};
  for (const std::size_t unit : units) pages.set_live(base + 3 * page_bytes + unit * unit_bytes);
  std::vector<std::size_t> found;
  pages.for_each_live(3, [&](std::size_t unit) { found.push_back(unit); });
  EXPECT_EQ(found, units);
  EXPECT_TRUE(pages.is_live(base + 3 * page_bytes + 64 * unit_bytes));
  pages.clear_live(base + 3 * page_bytes + 64 * unit_bytes);
  EXPECT_FALSE(pages.is_live(base + 3 * page_bytes + 64 * unit_bytes));
  const auto before = [&](std::size_t unit) {
    const std::uintptr_t object = pages.live_object_before(base + 3 * page_bytes + unit * unit_bytes + 5);
    return object == 0 ? std::size_t{999} : (object - base - 3 * page_bytes) / unit_bytes;
  };
  EXPECT_EQ(before(0), 999u);
  EXPECT_EQ(before(1), 1u);
  EXPECT_EQ(before(62), 2u);
  EXPECT_EQ(before(64), 63u);
  EXPECT_EQ(before(150), 100u);
  EXPECT_EQ(before(255), 255u);
}

TEST(page_table, has_a_ready_byte_for_any_address_of_a_word) {
  const page_table pages(base, 8);
  for (const std::uintptr_t address :
       {std::uintptr_t{0}, base - 1, base + 8 * page_bytes, (std::uintptr_t{1} << 47) - 1}) {
    EXPECT_EQ(pages.ready_by_page()[address / page_bytes], 0);
    EXPECT_EQ(pages.never_ready_by_page()[address / page_bytes], 0);
  }
}

TEST(page_table, adds_up_the_objects_that_were_used) {
  page_table pages(base, 8);
  const std::uintptr_t page = base + page_bytes;
  EXPECT_EQ(pages.use_of(1), page_use{});
  EXPECT_TRUE(pages.mark_used(page + 16, 5));
  EXPECT_FALSE(pages.mark_used(page + 16, 5));
  EXPECT_TRUE(pages.is_used(page + 16));
  EXPECT_FALSE(pages.is_used(page + 16 * 6)) << "the next object, of the same size";
  EXPECT_EQ(pages.use_of(1), (page_use{1, 5}));
  EXPECT_TRUE(pages.mark_used(page + 16 * 6, 5));
  EXPECT_EQ(pages.use_of(1), (page_use{2, 10}));
  EXPECT_TRUE(pages.mark_used(page + 16 * 252, 2)) << "small ones stand for their card";
  EXPECT_FALSE(pages.mark_used(page + 16 * 254, 2));
  EXPECT_EQ(pages.use_of(1), (page_use{3, 14}));
  EXPECT_EQ(pages.use_of(2), page_use{});
  EXPECT_EQ(pages.take_use(1), (page_use{3, 14}));
  EXPECT_EQ(pages.use_of(1), page_use{});
  EXPECT_FALSE(pages.is_used(page + 16));
}

// Of every size, all objects of a full page together are about a page, and each one has a card that no other object has
// if it has at least 56 bytes.
TEST(page_table, knows_a_page_that_was_used_as_a_whole) {
  for (std::size_t units = 1; units <= units_a_page; ++units) {
    page_table pages(base, 2);
    unsigned objects = 0;
    for (std::size_t at = 0; at + units <= units_a_page; at += units) {
      if (pages.mark_used(base + page_bytes + at * unit_bytes, units)) ++objects;
    }
    const page_use used = pages.use_of(1);
    EXPECT_EQ(used.objects, objects);
    EXPECT_EQ(objects, units < units_a_card ? cards_a_page : units_a_page / units) << units;
    EXPECT_EQ(used.units, objects * std::max(units, units_a_card)) << units;
  }
}

TEST(page_table, knows_that_a_page_was_used_again) {
  page_table pages(base, 8);
  pages.mark_used(base + 16, 5);
  pages.note_use_again(0);
  pages.note_use_again(0);
  pages.mark_used(base + 16 * 6, 5);
  EXPECT_EQ(pages.take_use(0), (page_use{2, 10, true}));
  EXPECT_EQ(pages.use_of(0), page_use{});
}

// What a read of an object from the far tier goes by, before it has the header.
TEST(page_table, knows_how_large_an_object_is_at_most_and_at_least) {
  page_table pages(base, 2);
  const auto object = [](std::size_t unit) { return base + page_bytes + unit * unit_bytes; };
  const auto place = [&](std::size_t unit, std::size_t units) {
    pages.count_object(object(unit), units);
    pages.set_live(object(unit));
  };
  place(1, 6);
  EXPECT_EQ(pages.most_units(object(1)), 6u);
  EXPECT_EQ(pages.least_units(object(1)), 6u);
  place(7, 3);
  place(63, 20);
  place(83, 1);
  for (const std::size_t unit : {1u, 7u, 63u, 83u}) EXPECT_EQ(pages.least_units(object(unit)), 1u);
  EXPECT_EQ(pages.most_units(object(1)), 6u) << "up to the next live object";
  EXPECT_EQ(pages.most_units(object(7)), 20u) << "as large as the largest";
  EXPECT_EQ(pages.most_units(object(63)), 20u);
  pages.clear_live(object(7));
  EXPECT_EQ(pages.most_units(object(1)), 20u) << "the next live object is further away";
  place(250, 7);
  EXPECT_EQ(pages.most_units(object(250)), 7u) << "the last half unit of the page is its own";
  pages.clear_live(object(63));
  EXPECT_EQ(pages.most_units(object(83)), 20u);
  place(64, 1);
  EXPECT_EQ(pages.most_units(object(63)), 1u) << "the next one in the next word of live bits";

  pages.count_object(base + unit_bytes, units_a_page);
  EXPECT_EQ(pages.most_units(base + unit_bytes), units_a_page) << "an object as large as its page";
}

TEST(page_table, forgets_the_sizes_of_objects_with_their_segment) {
  page_table pages(base, 2);
  pages.count_object(base + unit_bytes, 200);
  static_cast<void>(pages.uncount_object(base + unit_bytes));
  pages.forget(0, 1);
  pages.count_object(base + unit_bytes, 3);
  EXPECT_EQ(pages.most_units(base + unit_bytes), 3u);
  EXPECT_EQ(pages.least_units(base + unit_bytes), 3u);
}

// A dereference looks a null pointer's page up before it knows that it is null.
TEST(page_table, a_null_pointer_is_never_ready) {
  page_table pages(base, 8);
  for (std::size_t page = 0; page < 8; ++page) pages.make_ready(page, detail::readiness::writable);
  EXPECT_EQ(pages.ready_by_page()[0], 0);
  EXPECT_EQ(pages.never_ready_by_page()[0], 0);
  EXPECT_EQ(pages.never_ready_by_page()[base >> page_shift], 0);
  EXPECT_EQ(pages.never_ready_by_page()[(base >> page_shift) + 7], 0);
}

// The table's own share of what docs/heap.md says about local memory for a page.
TEST(page_table, takes_54_bytes_a_page) {
  static_assert(page_table::bytes_a_page() == 54);
}

TEST(page_table, a_page_is_ready_until_it_is_condemned) {
  page_table pages(base, 8);
  const std::uint64_t number = (base >> page_shift) + 5;
  const auto ready = [&] { return static_cast<detail::readiness>(pages.ready_by_page()[number]); };
  EXPECT_EQ(ready(), detail::readiness::not_ready);
  pages.make_ready(5, detail::readiness::readable);
  EXPECT_EQ(ready(), detail::readiness::readable);
  pages.make_ready(5, detail::readiness::writable);
  EXPECT_EQ(ready(), detail::readiness::writable);
  pages.make_ready(5, detail::readiness::watched);  // still writable
  EXPECT_EQ(ready(), detail::readiness::writable);
  EXPECT_EQ(pages.condemned_under(5), 0u);
  pages.condemn(5, 7);
  EXPECT_FALSE(pages.is_ready(5));
  EXPECT_EQ(pages.condemned_under(5), 7u);
  pages.claim(5);
  EXPECT_EQ(pages.condemned_under(5), 0u);
  EXPECT_FALSE(pages.is_ready(5));
}

TEST(page_table, knows_when_each_live_object_was_used) {
  page_table pages(base, 8);
  const std::uintptr_t page = base + 2 * page_bytes;
  EXPECT_TRUE(pages.are_all_used(2));
  for (const std::size_t unit : {3u, 200u}) pages.set_live(page + 16 * unit);
  EXPECT_FALSE(pages.are_all_used(2));
  pages.mark_used(page + 16 * 3, 4);
  EXPECT_FALSE(pages.are_all_used(2));
  pages.mark_used(page + 16 * 204, 4);
  EXPECT_FALSE(pages.are_all_used(2)) << "that one is not live";
  pages.mark_used(page + 16 * 200, 4);
  EXPECT_TRUE(pages.are_all_used(2));
  // Each place by itself.
  for (std::size_t unit = 0; unit < units_a_page; ++unit) {
    page_table other(base, 1);
    other.set_live(base + 16 * unit);
    EXPECT_FALSE(other.are_all_used(0)) << unit;
    other.mark_used(base + 16 * unit, 4);
    EXPECT_TRUE(other.are_all_used(0)) << unit;
  }
}

TEST(page_table, heat_rises_with_use_and_falls_without_and_leaves_the_tag_alone) {
  page_table pages(base, 8);
  pages.begin_use(3, 2, 9, true);
  EXPECT_EQ(pages.change_heat(3, false, 3, false), 0u);
  for (const unsigned heat : {1u, 2u, 3u, 3u}) EXPECT_EQ(pages.change_heat(3, true, 3, false), heat);
  EXPECT_EQ(pages.change_heat(3, false, 3, false), 2u);
  EXPECT_EQ(pages.change_heat(4, true, 0, false), 0u);
  pages.cool(3);
  EXPECT_EQ(pages.change_heat(3, true, 3, true), 3u);
  EXPECT_EQ(pages.change_heat(3, false, 3, true), 2u);
  pages.cool(3);
  EXPECT_EQ(pages.change_heat(3, false, 3, false), 0u);
  EXPECT_TRUE(pages.is_loose(3));
  EXPECT_FALSE(pages.is_loose(5));
  EXPECT_EQ(pages.tag_of(3), 9u);
  EXPECT_EQ(pages.tag_of(4), 9u);
  EXPECT_EQ(pages.tag_of(5), 0u);
}

}  // namespace
}  // namespace far::heap
