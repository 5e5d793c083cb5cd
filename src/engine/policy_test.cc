// The promises of every policy (policy.h), over each of them by name, and those of single policies about order.
#include "engine/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

#include "engine/two_queues.h"

namespace far::engine {
namespace {

constexpr std::uint64_t heap_pages = 5000;

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  const std::string list = policy_names();
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(", ", at), list.size());
    names.push_back(list.substr(at, end - at));
    at = end + 2;
  }
  return names;
}

// A policy over pages of its own, used as the engine does it.
class tested_policy {
 public:
  explicit tested_policy(const std::string& name) : pages_(heap_pages), order_(make_policy(name, pages_).value()) {}

  void make_resident(page_id page) {
    if (pages_.load(page).where() == state::resident) return;
    change(page, [](page_word word) { return word.with_state(state::resident); });
  }
  void admit(page_id page, temperature how) {
    if (pages_.load(page).queued()) return;
    change(page, [](page_word word) { return word.with_queued(true); });
    order_->admit(page, how);
  }
  // As a hint does it.
  void use(page_id page) { pages_.uses.note(page, false); }
  void access(page_id page) {
    change(page, [](page_word word) { return word.with_accessed(true); });
  }
  std::vector<page_id> select(std::size_t most) {
    std::vector<page_id> victims(most);
    victims.resize(order_->select(victims));
    return victims;
  }
  // All it has to offer.
  std::vector<page_id> drain() {
    std::vector<page_id> all;
    for (int rounds = 0; rounds < 100 && order_->size() > 0; ++rounds) {
      const std::vector<page_id> some = select(64);
      all.insert(all.end(), some.begin(), some.end());
      if (some.size() == 64) rounds = 0;
    }
    return all;
  }
  template <typename Change>
  void change(page_id page, Change apply) {
    pages_.update(page, apply);
  }
  [[nodiscard]] page_word word(page_id page) const { return pages_.load(page); }
  [[nodiscard]] std::size_t size() const { return order_->size(); }

 private:
  residency pages_;
  std::unique_ptr<policy> order_;
};

class any_policy : public testing::TestWithParam<std::string> {
 protected:
  tested_policy order{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(all, any_policy, testing::ValuesIn(all_policies()), [](const auto& one) {
  std::string name = one.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST_P(any_policy, an_empty_one_names_no_victims) {
  EXPECT_EQ(order.size(), 0u);
  EXPECT_TRUE(order.select(10).empty());
  EXPECT_TRUE(order.select(0).empty());
}

TEST_P(any_policy, every_page_comes_out_once_and_is_not_queued_any_more) {
  for (page_id page = 0; page < 3000; ++page) {
    order.make_resident(page);
    order.admit(page, page % 5 == 0 ? temperature::cold : temperature::warm);
  }
  EXPECT_EQ(order.size(), 3000u);
  const std::vector<page_id> victims = order.drain();
  EXPECT_EQ(victims.size(), 3000u);
  EXPECT_EQ(std::set<page_id>(victims.begin(), victims.end()).size(), 3000u);
  EXPECT_EQ(order.size(), 0u);
  for (const page_id page : victims) EXPECT_FALSE(order.word(page).queued());
}

TEST_P(any_policy, names_no_more_than_asked_and_keeps_the_rest) {
  for (page_id page = 0; page < 100; ++page) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
  }
  EXPECT_EQ(order.select(30).size(), 30u);
  EXPECT_EQ(order.size(), 70u);
  EXPECT_EQ(order.select(100).size(), 70u);
}

// The flag is the page's. Under every policy, asking often enough gets every page.
TEST_P(any_policy, accesses_delay_a_victim_and_do_not_save_it_for_ever) {
  for (page_id page = 0; page < 500; ++page) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
    order.access(page);
  }
  EXPECT_EQ(order.drain().size(), 500u);
}

TEST_P(any_policy, cold_pages_leave_before_warm_ones) {
  for (page_id page = 0; page < 200; ++page) {
    order.make_resident(page);
    order.admit(page, page < 150 ? temperature::warm : temperature::cold);
  }
  for (const page_id page : order.select(50)) EXPECT_GE(page, 150u);
}

// Pinned pages come back each time that they are offered.
TEST_P(any_policy, pages_that_cannot_leave_do_not_hide_the_others) {
  for (page_id page = 0; page < 1000; ++page) {
    order.make_resident(page);
    if (page < 600) order.access(page);
    order.admit(page, temperature::warm);
  }
  std::set<page_id> left;
  for (int rounds = 0; rounds < 100; ++rounds) {
    for (const page_id page : order.select(64)) {
      if (page % 2 == 0 || page >= 600) {
        order.admit(page, temperature::hot);
      } else {
        left.insert(page);
      }
    }
  }
  EXPECT_EQ(left.size(), 300u);
}

TEST_P(any_policy, changes_nothing_of_a_word_but_accessed_and_queued) {
  order.make_resident(7);
  order.change(7, [](page_word word) { return word.with_pins(3).with_epoch(9).with_place(77); });
  order.access(7);
  const page_word before = order.word(7);
  order.admit(7, temperature::warm);
  ASSERT_EQ(order.drain(), std::vector<page_id>{7});
  EXPECT_EQ(order.word(7).with_accessed(true), before);
}

// Pages may have left by other ways; they are named or forgotten, and nothing is stuck.
TEST_P(any_policy, copes_with_pages_that_are_gone) {
  for (page_id page = 0; page < 100; ++page) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
    order.access(page);
    order.change(page, [](page_word word) { return word.with_state(state::evicting); });
    if (page % 2 == 0) order.change(page, [](page_word word) { return word.with_state(state::untouched); });
  }
  static_cast<void>(order.drain());
  EXPECT_EQ(order.size(), 0u);
  for (page_id page = 0; page < 100; ++page) EXPECT_FALSE(order.word(page).queued()) << page;
}

TEST_P(any_policy, random_use_loses_no_page) {
  std::mt19937_64 random(3);
  std::set<page_id> held;
  for (int i = 0; i < 50'000; ++i) {
    const page_id page = random() % heap_pages;
    if (random() % 3 != 0) {
      order.make_resident(page);
      order.admit(page, random() % 4 == 0 ? temperature::cold : temperature::warm);
      held.insert(page);
      if (random() % 2 == 0) order.access(page);
    } else {
      for (const page_id victim : order.select(random() % 8)) ASSERT_EQ(held.erase(victim), 1u) << victim;
    }
    ASSERT_EQ(order.size(), held.size());
  }
  const std::vector<page_id> rest = order.drain();
  EXPECT_EQ(std::set<page_id>(rest.begin(), rest.end()), held);
}

TEST(policy, an_unknown_name_gets_the_list) {
  residency pages(1);
  for (const char* const name : {"lru-17", "", "fifo:3", "second-chance:"}) {
    const auto created = make_policy(name, pages);
    ASSERT_FALSE(created.ok()) << name;
    EXPECT_NE(created.error().message.find(name), std::string::npos);
    EXPECT_NE(created.error().message.find(policy_names()), std::string::npos);
  }
  for (const char* const name : {"lru:1", "lru:33", "lru:x", "lru:8x", "lru:-3"}) {
    const auto created = make_policy(name, pages);
    ASSERT_FALSE(created.ok()) << name;
    EXPECT_NE(created.error().message.find("2 to 32"), std::string::npos) << created.error().message;
  }
  for (const char* const name : {"2q:0%", "2q:101%", "2q:10"}) {
    const auto created = make_policy(name, pages);
    ASSERT_FALSE(created.ok()) << name;
    EXPECT_NE(created.error().message.find("up to 100%"), std::string::npos) << created.error().message;
  }
  for (const char* const name : {"2q", "2q:", "2q:25%"}) EXPECT_TRUE(make_policy(name, pages).ok()) << name;
  for (const char* const name : {"lru", "lru:", "lru:2", "lru:32"}) EXPECT_TRUE(make_policy(name, pages).ok()) << name;
}

TEST(fifo, warm_pages_leave_in_the_order_in_which_they_came_whatever_is_accessed) {
  tested_policy order("fifo");
  for (const page_id page : {5, 9, 2}) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
  }
  order.access(5);
  EXPECT_EQ(order.select(3), (std::vector<page_id>{5, 9, 2}));
}

// Pages that come in with the mark that they left a short while ago.
void bring_back(tested_policy& order, page_id first, page_id count) {
  for (page_id page = first; page < first + count; ++page) {
    order.make_resident(page);
    order.access(page);
    order.admit(page, temperature::warm);
  }
}

TEST(two_queues, newcomers_leave_before_pages_that_have_come_back) {
  tested_policy order("2q");
  bring_back(order, 0, 900);
  for (page_id page = 1000; page < 1200; ++page) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
  }
  // Until newcomers are a tenth of all.
  for (const page_id page : order.select(100)) EXPECT_GE(page, 1000u);
  EXPECT_EQ(order.select(1), std::vector<page_id>{0});
}

TEST(two_queues, the_share_of_newcomers_can_be_chosen) {
  tested_policy order("2q:50%");
  bring_back(order, 0, 100);
  for (page_id page = 1000; page < 1120; ++page) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
  }
  // Until newcomers are half of all.
  for (const page_id page : order.select(20)) EXPECT_GE(page, 1000u);
  EXPECT_EQ(order.select(1), std::vector<page_id>{0});
}

TEST(two_queues, a_newcomer_that_is_used_joins_those_that_have_come_back) {
  tested_policy order("2q");
  bring_back(order, 0, 10);
  for (page_id page = 20; page < 30; ++page) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
  }
  order.access(20);
  order.use(21);
  EXPECT_EQ(order.select(2), (std::vector<page_id>{22, 23}));
  const std::vector<page_id> rest = order.drain();
  EXPECT_EQ(std::vector<page_id>(rest.end() - 2, rest.end()), (std::vector<page_id>{20, 21}));
}

TEST(two_queues, a_page_that_comes_back_again_and_again_goes_round_before_it_leaves) {
  tested_policy order("2q");
  for (int times = 0; times < 2; ++times) {
    bring_back(order, 0, 1);
    EXPECT_EQ(order.drain(), std::vector<page_id>{0});
  }
  bring_back(order, 0, 1);
  bring_back(order, 10, 3);
  EXPECT_EQ(order.select(3), (std::vector<page_id>{10, 11, 12}));
  EXPECT_TRUE(order.select(1).empty()) << "it goes round once more";
  EXPECT_EQ(order.select(1), std::vector<page_id>{0});
  order.admit(0, temperature::warm);  // not soon
  EXPECT_EQ(order.drain(), std::vector<page_id>{0});
  bring_back(order, 0, 1);
  EXPECT_EQ(order.select(1), std::vector<page_id>{0}) << "it begins again";
}

// How often one page goes round before it leaves, beside another one that does not.
unsigned rounds_of(tested_policy& order, page_id page) {
  for (unsigned rounds = 0;; ++rounds) {
    bring_back(order, 1000 + rounds, 1);
    const std::vector<page_id> left = order.select(1);
    if (left == std::vector<page_id>{page}) {
      order.drain();
      return rounds;
    }
  }
}

TEST(two_queues, the_more_often_a_page_has_come_back_the_longer_it_goes_round) {
  tested_policy order("2q");
  for (const unsigned rounds : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 6u}) {
    bring_back(order, 0, 1);
    EXPECT_EQ(rounds_of(order, 0), rounds);
  }
}

TEST(two_queues, a_page_that_is_a_little_late_is_a_newcomer_that_counts_on_when_it_is_soon_again) {
  tested_policy order("2q");
  for (int times = 0; times < 3; ++times) {
    bring_back(order, 0, 1);
    EXPECT_EQ(order.drain(), std::vector<page_id>{0});
  }
  bring_back(order, 10, 30);
  order.make_resident(0);
  order.admit(0, temperature::returned);
  for (page_id page = 50; page < 60; ++page) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
  }
  EXPECT_EQ(order.select(1), std::vector<page_id>{0}) << "the first of the newcomers";
  order.drain();
  bring_back(order, 0, 1);
  EXPECT_EQ(rounds_of(order, 0), 3) << "it has been soon four times";
}

TEST(two_queues, a_victim_is_found_soon_where_all_pages_go_round) {
  tested_policy order("2q");
  for (int times = 0; times < 7; ++times) {
    bring_back(order, 0, 500);
    EXPECT_EQ(order.drain().size(), 500u);
  }
  bring_back(order, 0, 500);
  EXPECT_EQ(order.select(2), (std::vector<page_id>{32, 33}));
}

// Pages come and go. Of those that leave the newcomers, and of those that leave the proven, one in so many is missed
// again soon. Beside them a walk passes, by so many pages a round. Returns the share of newcomers in the end.
double share_after(two_queues&& order, residency& pages, page_id newcomers_one_in, page_id proven_one_in,
                   std::size_t walk = 0) {
  std::vector<bool> is_proven(400, false);
  const auto admit = [&](page_id page, bool is_soon) {
    is_proven[page] = is_soon;
    pages.update(page, [is_soon](page_word word) { return word.with_accessed(is_soon).with_queued(true); });
    order.admit(page, temperature::warm);
  };
  for (page_id page = 0; page < is_proven.size(); ++page) {
    pages.update(page, [](page_word word) { return word.with_state(state::resident); });
    admit(page, false);
  }
  page_id gone = 0;
  for (int rounds = 0; rounds < 2000; ++rounds) {
    for (std::size_t i = 0; i < walk; ++i) {
      const page_id page = is_proven.size() + (rounds * walk + i) % 4096;
      pages.update(page, [](page_word word) { return word.with_queued(true); });
      order.admit(page, temperature::passing);
    }
    std::vector<page_id> victims(20 + walk);
    victims.resize(order.select(victims));
    for (const page_id page : victims) {
      if (page >= is_proven.size()) continue;
      const page_id one_in = is_proven[page] ? proven_one_in : newcomers_one_in;
      admit(page, one_in != 0 && ++gone % one_in == 0);
    }
  }
  return order.newcomers_share();
}

TEST(two_queues, the_queue_whose_pages_are_missed_again_becomes_longer) {
  residency pages(400);
  EXPECT_EQ(share_after(two_queues(pages), pages, 1, 0), two_queues::most_newcomers);
  EXPECT_EQ(share_after(two_queues(pages), pages, 4, 1), two_queues::least_newcomers);
  EXPECT_EQ(share_after(two_queues(pages, 0.2), pages, 4, 1), 0.2) << "it was chosen";
  residency more(heap_pages);
  EXPECT_GT(share_after(two_queues(more), more, 1, 2, 32), two_queues::usual_newcomers) << "a walk does not count";
}

TEST(second_chance, a_hint_is_an_access) {
  tested_policy order("second-chance");
  for (const page_id page : {5, 9, 2}) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
  }
  order.use(5);
  EXPECT_EQ(order.select(2), (std::vector<page_id>{9, 2}));
  EXPECT_EQ(order.select(1), std::vector<page_id>{5});
}

void fill(tested_policy& order, page_id first, page_id count) {
  for (page_id page = first; page < first + count; ++page) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
  }
}

// Pages used at different times leave in the order of their last use, not of their arrival.
TEST(lru, pages_leave_in_the_order_of_their_last_use) {
  tested_policy order("lru:8");
  fill(order, 0, 200);
  std::vector<page_id> used_later;
  for (page_id passed = 0; passed < 6; ++passed) {
    for (page_id page = passed * 10; page < passed * 10 + 10; ++page) {
      order.use(page);
      used_later.push_back(page);
    }
    fill(order, 1000 + passed * 100, 100);  // time passes
  }
  const std::vector<page_id> victims = order.select(200);
  EXPECT_EQ(std::count_if(victims.begin(), victims.end(), [](page_id page) { return page >= 60 && page < 200; }), 140);
  const std::vector<page_id> rest = order.drain();
  std::vector<std::size_t> places;
  for (page_id group = 0; group < 6; ++group) {
    std::size_t sum = 0;
    for (page_id page = group * 10; page < group * 10 + 10; ++page) {
      sum += static_cast<std::size_t>(std::find(rest.begin(), rest.end(), page) - rest.begin());
    }
    places.push_back(sum);
  }
  EXPECT_TRUE(std::is_sorted(places.begin() + 2, places.end())) << testing::PrintToString(places);
}

TEST(lru, a_page_used_all_the_time_stays_for_good_and_leaves_when_it_is_not_used_any_more) {
  tested_policy order("lru");
  fill(order, 0, 1000);
  const auto stream = [&](page_id from, page_id count, bool using_it) {
    bool left = false;
    for (page_id page = from; page < from + count; ++page) {
      if (using_it) order.use(7);
      fill(order, 1000 + page % 4000, 1);
      for (const page_id victim : order.select(1)) {
        left |= victim == 7;
        order.change(victim, [](page_word word) { return word.with_state(state::evicting); });
        order.change(victim, [](page_word word) { return word.with_state(state::remote); });
        order.change(victim, [](page_word word) { return word.with_state(state::fetching); });
        order.change(victim, [](page_word word) { return word.with_state(state::untouched); });
      }
    }
    return left;
  };
  EXPECT_FALSE(stream(0, 50'000, true));
  EXPECT_TRUE(stream(50'000, 2500, false));
}

// How many of 3000 pages a walk finds when it passes through them again, with room for `local`.
std::size_t walk_again(tested_policy& order, std::size_t local, temperature how) {
  std::size_t found = 0;
  for (page_id page = 0; page < 3000; ++page) {
    if (order.word(page).where() == state::resident) {
      ++found;
      continue;
    }
    if (order.size() == local) {
      for (const page_id victim : order.select(1)) {
        order.change(victim, [](page_word word) { return word.with_state(state::evicting); });
        order.change(victim, [](page_word word) { return word.with_state(state::remote); });
      }
    }
    order.change(page, [](page_word word) { return word.with_state(state::fetching); });
    order.make_resident(page);
    order.admit(page, how);
  }
  return found;
}

TEST(two_queues, a_walk_that_passes_again_and_again_finds_most_of_what_there_is_room_for) {
  tested_policy passing("2q");
  tested_policy warm("2q");
  for (int rounds = 0; rounds < 12; ++rounds) {
    const std::size_t found = walk_again(passing, 1000, temperature::passing);
    EXPECT_GE(found, rounds == 0 ? 0u : 650u) << rounds;
    EXPECT_LT(walk_again(warm, 1000, temperature::warm), 10u) << rounds;
  }
}

TEST(two_queues, what_a_walk_finds_no_more_gives_way_to_it) {
  tested_policy order("2q");
  fill(order, 4000, 1000);
  std::size_t found = 0;
  for (int rounds = 0; rounds < 12; ++rounds) found = walk_again(order, 1000, temperature::passing);
  EXPECT_GT(found, 600u);
}

TEST(two_queues, what_has_passed_gives_way_to_what_is_missed) {
  tested_policy order("2q");
  for (page_id page = 0; page < 1000; ++page) {
    order.make_resident(page);
    order.admit(page, temperature::passing);
  }
  for (page_id page = 1000; page < 4000; ++page) {
    fill(order, page, 1);
    EXPECT_EQ(order.select(1).size(), 1u);
  }
  std::size_t left = 0;
  for (page_id page = 0; page < 1000; ++page) left += order.word(page).queued() ? 1 : 0;
  EXPECT_LT(left, 10u);
}

TEST(priority, higher_ones_leave_first_and_the_highest_has_no_second_chance) {
  tested_policy order("priority");
  fill(order, 0, 40);
  std::vector<page_id> all = order.drain();
  for (page_id page = 0; page < 40; ++page) {
    order.change(page,
                 [page](page_word word) { return word.with_eviction_priority(static_cast<unsigned>(page / 10)); });
    order.admit(page, temperature::warm);
    if (page % 10 == 0) order.use(page);
  }
  for (const unsigned level : {3, 2, 1, 0}) {
    std::vector<page_id> expected;
    for (page_id page = level * 10; page < level * 10 + 10; ++page) expected.push_back(page);
    if (level < 3) std::rotate(expected.begin(), expected.begin() + 1, expected.end());
    EXPECT_EQ(order.select(10), expected) << level;
  }
}

TEST(priority, a_page_that_became_more_valuable_waits_with_its_like) {
  tested_policy order("priority");
  for (const page_id page : {1, 2, 3}) {
    order.make_resident(page);
    order.change(page, [](page_word word) { return word.with_eviction_priority(2); });
    order.admit(page, temperature::warm);
  }
  order.change(1, [](page_word word) { return word.with_eviction_priority(0); });
  EXPECT_EQ(order.select(3), (std::vector<page_id>{2, 3, 1}));
}

TEST(second_chance, an_accessed_page_goes_round_once_more) {
  tested_policy order("second-chance");
  for (const page_id page : {5, 9, 2}) {
    order.make_resident(page);
    order.admit(page, temperature::warm);
  }
  order.access(5);
  EXPECT_EQ(order.select(2), (std::vector<page_id>{9, 2}));
  EXPECT_FALSE(order.word(5).accessed());
  EXPECT_EQ(order.select(1), std::vector<page_id>{5});
}

}  // namespace
}  // namespace far::engine
