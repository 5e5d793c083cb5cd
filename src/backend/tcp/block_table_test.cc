#include "backend/tcp/block_table.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace far::backend {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;

// A table, and a server that answers at once.
struct bench {
  explicit bench(std::uint64_t capacity_slots) : table(capacity_slots) {}

  block_table table;
  std::uint32_t epoch = 1;
  std::uint64_t now_ns = second_ns;
  std::uint64_t server_blocks = 1000;
  std::set<std::uint64_t> held;  // by the server's books

  // One request and its answer. Returns whether there was one.
  bool exchange() {
    control_request asked;
    if (!table.next(epoch, now_ns, &asked)) return false;
    wire::status outcome = wire::status::ok;
    if (asked.op == wire::opcode::allocate && held.size() + asked.blocks.count > server_blocks) {
      outcome = wire::status::no_space;
    } else {
      for (std::uint64_t i = 0; i < asked.blocks.count; ++i) {
        if (asked.op == wire::opcode::allocate) {
          EXPECT_TRUE(held.insert(asked.blocks.first + i).second) << "a block is asked for once";
        } else {
          EXPECT_EQ(held.erase(asked.blocks.first + i), 1u);
        }
      }
    }
    table.done(asked, epoch, outcome, now_ns);
    table.validate();
    return true;
  }
  void settle() {
    for (int i = 0; i < 100 && exchange(); ++i) {
    }
  }
  // With as many answers as it takes.
  result<slot_id> allocate(std::size_t count) {
    for (int i = 0; i < 10'000; ++i) {
      result<slot_id> first = table.allocate(count, epoch);
      table.validate();
      if (first.ok() || first.error().code != EAGAIN) return first;
      exchange();
    }
    return error{"it never ends", EDEADLK};
  }
  // The server has lost the session.
  void lose() {
    ++epoch;
    held.clear();
  }
};

TEST(block_table, asks_ahead_of_need) {
  bench all(100 * 512);
  EXPECT_EQ(all.table.allocate(1, all.epoch).error().code, EAGAIN);
  all.settle();
  EXPECT_GE(all.held.size(), 2u);
  EXPECT_FALSE(all.exchange());
  for (int i = 0; i < 50 * 512; ++i) {
    ASSERT_TRUE(all.table.allocate(1, all.epoch).ok()) << i << ": there must always be some ready";
    if (all.table.below_reserve()) all.settle();
  }
  EXPECT_EQ(all.table.report().used_slots, 50u * 512);
}

TEST(block_table, keeps_to_the_capacity) {
  bench all(700);
  all.settle();
  EXPECT_EQ(all.held.size(), 2u);
  std::set<slot_id> taken;
  while (true) {
    const result<slot_id> one = all.allocate(1);
    if (!one) {
      EXPECT_EQ(one.error().code, ENOSPC);
      break;
    }
    EXPECT_LT(one.value(), 700u);
    EXPECT_TRUE(taken.insert(one.value()).second);
  }
  EXPECT_EQ(taken.size(), 700u);
}

TEST(block_table, long_runs_lie_in_adjacent_blocks) {
  bench all(100 * 512);
  all.settle();
  ASSERT_TRUE(all.allocate(3).ok());
  const result<slot_id> run = all.allocate(20 * 512);
  ASSERT_TRUE(run.ok());
  for (std::uint64_t slot = run.value(); slot < run.value() + 20 * 512; slot += 512) {
    EXPECT_TRUE(all.held.contains(slot / 512));
  }
  EXPECT_EQ(all.allocate(100 * 512).error().code, ENOSPC);
}

TEST(block_table, a_full_server_is_asked_again_later_and_for_less) {
  bench all(1000 * 512);
  all.server_blocks = 5;
  std::uint64_t taken = 0;
  while (all.allocate(1).ok()) ++taken;
  EXPECT_EQ(taken, 5u * 512);
  EXPECT_EQ(all.table.allocate(1, all.epoch).error().code, ENOSPC);
  all.server_blocks = 6;
  EXPECT_FALSE(all.exchange());
  all.now_ns += second_ns;
  all.settle();
  EXPECT_TRUE(all.allocate(1).ok());
}

TEST(block_table, empty_blocks_go_back_but_not_the_last_ones) {
  bench all(500 * 512);
  std::vector<slot_id> taken;
  for (int i = 0; i < 200; ++i) taken.push_back(all.allocate(512).value());
  all.settle();
  const std::size_t most = all.held.size();
  EXPECT_GE(most, 200u);
  for (const slot_id first : taken) all.table.free(first, 512);
  all.settle();
  EXPECT_LT(all.held.size(), most / 2);
  EXPECT_GT(all.held.size(), 2u);
  EXPECT_EQ(all.table.report().used_slots, 0u);
  // Blocks that went back can be had again.
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(all.allocate(512).ok());
}

TEST(block_table, a_drained_server_is_asked_for_nothing) {
  bench all(100 * 512);
  all.settle();
  all.table.draining(1);
  while (all.allocate(1).ok()) {
  }
  EXPECT_FALSE(all.exchange());
  EXPECT_EQ(all.table.allocate(1, all.epoch).error().code, ENOSPC);
  all.lose();
  EXPECT_TRUE(all.allocate(1).ok()) << "the next server is another one";
}

TEST(block_table, a_server_that_drains_gets_back_whatever_is_free) {
  bench all(100 * 512);
  const slot_id first = all.allocate(3 * 512).value();
  all.settle();
  ASSERT_GT(all.held.size(), 3u) << "there is a reserve";
  all.table.draining(1);
  all.settle();
  EXPECT_EQ(all.held.size(), 3u);
  all.table.free(first, 512);
  all.settle();
  EXPECT_EQ(all.held.size(), 2u) << "and it gets back what is freed later";
  all.table.free(first + 512, 2 * 512);
  all.settle();
  EXPECT_TRUE(all.held.empty());
  all.table.validate();
}

TEST(block_table, slots_of_a_lost_session_are_not_handed_out_before_they_are_freed) {
  bench all(60 * 512);
  std::set<slot_id> old;
  for (int i = 0; i < 30 * 512; ++i) old.insert(all.allocate(1).value());
  for (auto next = old.begin(); next != old.end();) {  // holes everywhere
    if (*next % 3 != 0) {
      ++next;
      continue;
    }
    all.table.free(*next, 1);
    next = old.erase(next);
  }
  all.lose();
  std::set<slot_id> fresh;
  for (int i = 0; i < 40 * 512; ++i) {
    const result<slot_id> one = all.allocate(1);
    ASSERT_TRUE(one.ok()) << one.error().message;
    ASSERT_FALSE(old.contains(one.value())) << "somebody still holds the lost slot";
    ASSERT_TRUE(fresh.insert(one.value()).second);
    ASSERT_EQ(all.table.epoch_of(one.value()), 2u);
    ASSERT_TRUE(all.held.contains(one.value() / 512));
  }
  for (const slot_id id : old) {
    EXPECT_EQ(all.table.epoch_of(id), 1u);
    all.table.free(id, 1);
  }
  all.table.validate();
  EXPECT_EQ(all.table.report().used_slots, fresh.size());
  for (const slot_id id : fresh) all.table.free(id, 1);
  EXPECT_EQ(all.table.report().used_slots, 0u);
}

// Any order of everything, against a plain set of who holds what.
TEST(block_table, random_use_agrees_with_a_model) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    bench all(20 * 512 + random() % 512);
    all.server_blocks = 10 + random() % 20;
    std::map<slot_id, std::pair<std::size_t, std::uint32_t>> runs;  // first -> count, epoch
    for (int i = 0; i < 1500; ++i) {
      const std::uint64_t choice = random() % 100;
      if (choice < 45) {
        const std::size_t count = choice == 0 ? 1000 : 1 + random() % 130;
        const result<slot_id> first = all.table.allocate(count, all.epoch);
        if (first) {
          const auto after = runs.lower_bound(first.value());
          ASSERT_TRUE(after == runs.end() || after->first >= first.value() + count);
          ASSERT_TRUE(after == runs.begin() ||
                      std::prev(after)->first + std::prev(after)->second.first <= first.value());
          ASSERT_EQ(all.table.epoch_of(first.value()), all.epoch);
          runs[first.value()] = {count, all.epoch};
        }
      } else if (choice < 80 && !runs.empty()) {
        auto chosen = std::next(runs.begin(), static_cast<std::ptrdiff_t>(random() % runs.size()));
        ASSERT_EQ(all.table.epoch_of(chosen->first), chosen->second.second);
        all.table.free(chosen->first, chosen->second.first);
        runs.erase(chosen);
      } else if (choice == 99 && random() % 10 == 0) {
        all.lose();
        static_cast<void>(all.exchange());
      } else {
        static_cast<void>(all.exchange());
        all.now_ns += second_ns / 20;
      }
      all.table.validate();
    }
  }
}

}  // namespace
}  // namespace far::backend
