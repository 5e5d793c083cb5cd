#include "heap/page_table.h"

#include <gtest/gtest.h>

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

TEST(page_table, counts_cards_by_unit) {
  page_table pages(base, 8);
  const std::uintptr_t page = base + page_bytes;
  pages.mark_cards(page + 16, 1);
  EXPECT_EQ(pages.cards_in(1), 1u);
  EXPECT_TRUE(pages.has_card(page + 16));
  EXPECT_FALSE(pages.has_card(page + 32));
  pages.mark_cards(page + 16 * 6, 16 * 20);
  EXPECT_EQ(pages.cards_in(1), 21u);
  pages.mark_cards(page + 16 * 10, 8);
  EXPECT_EQ(pages.cards_in(1), 21u) << "marked already";
  pages.mark_cards(page + 16 * 40 + 8, 16);
  EXPECT_EQ(pages.cards_in(1), 23u) << "it reaches into the next unit";
  pages.mark_cards(page + page_bytes - 16, 64);
  EXPECT_EQ(pages.cards_in(1), 24u) << "no further than the page";
  EXPECT_EQ(pages.cards_in(2), 0u);
  EXPECT_EQ(pages.take_cards(1), 24u);
  EXPECT_EQ(pages.cards_in(1), 0u);
  pages.mark_cards(page, page_bytes);
  EXPECT_EQ(pages.cards_in(1), units_a_page);
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

TEST(page_table, has_all_cards_when_each_live_object_begins_in_one) {
  page_table pages(base, 8);
  const std::uintptr_t page = base + 2 * page_bytes;
  EXPECT_TRUE(pages.has_all_cards(2));
  pages.set_live(page + 16 * 3);
  pages.set_live(page + 16 * 200);
  EXPECT_FALSE(pages.has_all_cards(2));
  pages.mark_cards(page + 16 * 3, 16);
  EXPECT_FALSE(pages.has_all_cards(2));
  pages.mark_cards(page + 16 * 200, 16);
  EXPECT_TRUE(pages.has_all_cards(2));
}

TEST(page_table, heat_rises_with_use_and_falls_without_and_leaves_the_tag_alone) {
  page_table pages(base, 8);
  pages.begin_use(3, 2, 9, true);
  EXPECT_EQ(pages.change_heat(3, false, 3), 0u);
  for (const unsigned heat : {1u, 2u, 3u, 3u}) EXPECT_EQ(pages.change_heat(3, true, 3), heat);
  EXPECT_EQ(pages.change_heat(3, false, 3), 2u);
  EXPECT_EQ(pages.change_heat(4, true, 0), 0u);
  pages.cool(3);
  EXPECT_EQ(pages.change_heat(3, false, 3), 0u);
  EXPECT_TRUE(pages.is_loose(3));
  EXPECT_FALSE(pages.is_loose(5));
  EXPECT_EQ(pages.tag_of(3), 9u);
  EXPECT_EQ(pages.tag_of(4), 9u);
  EXPECT_EQ(pages.tag_of(5), 0u);
}

}  // namespace
}  // namespace far::heap
