#include "backend/stacked/stacked_backend.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "backend/lineage/lineage_backend.h"
#include "backend/zmem/zmem_backend.h"
#include "tests/support/controlled_members.h"
#include "tests/support/faulty_backend.h"

namespace far::backend {
namespace {

using bytes = std::vector<std::byte>;

const platform::monotonic_clock real_time;

bytes content(std::uint64_t seed) {
  bytes content(page_bytes);
  for (std::size_t i = 0; i < content.size(); ++i) {
    content[i] = i % 64 < 24 ? static_cast<std::byte>((i * 2654435761u + seed * 40503u) >> 13) : std::byte{7};
  }
  std::memcpy(content.data(), &seed, sizeof seed);
  return content;
}

int transfer(channel& queue, operation op, slot_id slot, std::byte* buffer, std::size_t length = page_bytes,
             std::size_t offset = 0) {
  const request one{.op = op,
                    .slot = slot,
                    .offset_bytes = static_cast<std::uint32_t>(offset),
                    .length_bytes = static_cast<std::uint32_t>(length),
                    .buffer = buffer};
  completion done;
  EXPECT_EQ(queue.submit({&one, 1}), 1u);
  while (queue.poll({&done, 1}) == 0) queue.wait(1'000'000);
  return done.error_code;
}

bool holds(channel& queue, slot_id slot, std::uint64_t seed) {
  bytes into(page_bytes);
  return transfer(queue, operation::read, slot, into.data()) == 0 && into == content(seed);
}

bool put(channel& queue, slot_id slot, std::uint64_t seed) {
  bytes page = content(seed);
  return transfer(queue, operation::write, slot, page.data()) == 0;
}

int ask(channel& queue, slot_id slot, const page_reduction& asked, std::span<std::byte> into) {
  const request one{.op = operation::read, .slot = slot, .buffer = into.data(), .reduce = &asked};
  completion done;
  EXPECT_EQ(queue.submit({&one, 1}), 1u);
  while (queue.poll({&done, 1}) == 0) queue.wait(1'000'000);
  return done.error_code;
}

struct stack {
  backend* first = nullptr;
  backend* next = nullptr;
  std::unique_ptr<stacked_backend> whole;
  std::unique_ptr<channel> queue;

  stack(std::unique_ptr<backend> above, std::unique_ptr<backend> below) : first(above.get()), next(below.get()) {
    whole = std::make_unique<stacked_backend>(std::move(above), std::move(below), real_time);
    queue = whole->open_channel(16).value();
  }

  void tend() {
    for (int i = 0; i < 50; ++i) {
      static_cast<void>(whole->tend());
      usleep(1100);
    }
  }
};

std::unique_ptr<backend> memory_of(std::uint64_t slots) {
  return open("memory:?capacity=" + std::to_string(slots * page_bytes)).value();
}

TEST(stacked_backend, what_does_not_fit_above_goes_below) {
  stack tested(memory_of(64), memory_of(256));
  std::vector<slot_id> slots;
  for (std::uint64_t i = 0; i < 320; ++i) {
    const result<slot_id> slot = tested.whole->allocate(1);
    ASSERT_TRUE(slot.ok()) << i;
    slots.push_back(slot.value());
    ASSERT_TRUE(put(*tested.queue, slots.back(), i));
  }
  EXPECT_EQ(tested.whole->allocate(1).error().code, ENOSPC);
  EXPECT_EQ(tested.first->report().used_slots, 64u);
  for (std::uint64_t i = 0; i < 320; ++i) EXPECT_TRUE(holds(*tested.queue, slots[i], i));
  for (const slot_id slot : slots) tested.whole->free(slot, 1);
  EXPECT_EQ(tested.whole->report().used_slots + tested.first->report().used_slots + tested.next->report().used_slots,
            0u);
}

// A tier of memory refuses runs while many of its slots are free here and there. It has room nevertheless.
TEST(stacked_backend, free_slots_of_the_first_tier_are_used_up_where_they_lie_scattered) {
  constexpr std::uint64_t run = 64;
  stack tested(memory_of(160 << 10), memory_of(160 << 10));
  std::vector<slot_id> firsts;
  for (std::uint64_t i = 0; i < (96 << 10) / run; ++i) firsts.push_back(tested.whole->allocate(run).value());
  for (const slot_id first : firsts) {
    for (std::uint64_t i = 0; i < run; i += 2) tested.whole->free(first + i, 1);
  }
  for (std::uint64_t i = 0; i < (32 << 10) / run; ++i) ASSERT_TRUE(tested.whole->allocate(run).ok());
  EXPECT_EQ(tested.next->report().used_slots, 0u);
}

TEST(stacked_backend, reads_wait_for_servers_in_whichever_tier_they_are) {
  for (const std::size_t remote : {0u, 1u}) {
    auto servers = std::make_unique<faulty_backend>(memory_of(64), faulty_options{});
    servers->set_read_patience_ns(3'600'000'000'000);
    std::unique_ptr<backend> local = memory_of(64);
    stack tested(remote == 0 ? std::move(servers) : std::move(local),
                 remote == 0 ? std::move(local) : std::move(servers));
    EXPECT_EQ(tested.whole->read_patience_ns(), 3'600'000'000'000u) << remote;
  }
}

TEST(stacked_backend, the_coldest_move_and_keep_their_numbers) {
  stack tested(memory_of(1024), memory_of(4096));
  const slot_id first = tested.whole->allocate(1000).value();
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_TRUE(put(*tested.queue, first + i, i));
  EXPECT_TRUE(tested.whole->wants_tending());
  // The hand comes by once, for what was written is warm; then every tenth is read, again and again.
  static_cast<void>(tested.whole->tend());
  for (int round = 0; round < 40; ++round) {
    for (std::uint64_t i = 0; i < 1000; i += 10) ASSERT_TRUE(holds(*tested.queue, first + i, i));
    usleep(1100);
    static_cast<void>(tested.whole->tend());
  }
  EXPECT_LE(tested.first->report().used_slots, 768u);
  EXPECT_GE(tested.first->report().used_slots, 768u - 256);
  EXPECT_EQ(tested.first->report().used_slots + tested.next->report().used_slots, 1000u);
  EXPECT_FALSE(tested.whole->wants_tending());
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_TRUE(holds(*tested.queue, first + i, i)) << i;
  const std::uint64_t used_above = tested.first->report().used_slots;
  for (std::uint64_t i = 0; i < 1000; i += 10) tested.whole->free(first + i, 1);
  EXPECT_EQ(tested.first->report().used_slots, used_above - 100) << "what was read has stayed above";
}

// A range that was written as one comes back as one, wherever its parts are now.
TEST(stacked_backend, compressed_pages_move_on_when_the_machine_is_short_of_memory) {
  std::atomic<std::uint64_t> available = 2 * gib;
  stack tested(zmem_backend::create({.capacity_bytes = 64 * mib,
                                     .leave_bytes = gib,
                                     .available_bytes = [&available] { return std::optional(available.load()); }})
                   .value(),
               memory_of(4096));
  const slot_id first = tested.whole->allocate(256).value();
  for (slot_id slot = first; slot < first + 256; ++slot) ASSERT_TRUE(put(*tested.queue, slot, slot));
  tested.tend();
  EXPECT_EQ(tested.next->report().used_slots, 0u);

  available = gib - 1;
  const slot_id more = tested.whole->allocate(1024).value();
  tested.whole->free(more, 1024);
  tested.tend();
  EXPECT_EQ(tested.first->report().used_slots, 0u);
  EXPECT_EQ(tested.next->report().used_slots, 256u);
  for (slot_id slot = first; slot < first + 256; ++slot) EXPECT_TRUE(holds(*tested.queue, slot, slot));
  EXPECT_TRUE(tested.whole->allocate(1).ok()) << "there is room below";
}

TEST(stacked_backend, most_new_pages_go_by_a_first_tier_that_is_nearly_full) {
  stack tested(memory_of(1024), memory_of(4096));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(tested.whole->allocate(1).ok());
  EXPECT_GT(tested.first->report().used_slots, 780u);
  EXPECT_LT(tested.first->report().used_slots, 820u);
  EXPECT_EQ(tested.first->report().used_slots + tested.next->report().used_slots, 1000u);
}

TEST(stacked_backend, one_request_reaches_both_tiers) {
  stack tested(memory_of(256), memory_of(1024));
  const slot_id first = tested.whole->allocate(250).value();
  for (std::uint64_t i = 0; i < 250; ++i) ASSERT_TRUE(put(*tested.queue, first + i, i));
  tested.tend();
  EXPECT_GT(tested.next->report().used_slots, 0u);
  bytes all(250 * page_bytes);
  ASSERT_EQ(transfer(*tested.queue, operation::read, first, all.data(), all.size() - 200, 100), 0);
  for (std::uint64_t i = 1; i < 249; ++i) {
    const bytes expected = content(i);
    ASSERT_EQ(std::memcmp(all.data() + i * page_bytes - 100, expected.data(), page_bytes), 0) << i;
  }
}

TEST(stacked_backend, waits_for_time_as_one_of_its_tiers_does) {
  stack tiers(std::make_unique<controlled>("first"), std::make_unique<controlled>("next"));
  EXPECT_FALSE(tiers.queue->waits_for_time());
  for (backend* const tier : {tiers.first, tiers.next}) {
    bool& waits = dynamic_cast<controlled&>(*tier).waits_for_time;
    waits = true;
    EXPECT_TRUE(tiers.queue->waits_for_time()) << tier->describe();
    waits = false;
  }
}

TEST(stacked_backend, when_the_next_fails_the_bytes_stay) {
  faulty_options failing;
  failing.failing_writes_per_million = 1'000'000;
  stack tested(memory_of(256), std::make_unique<faulty_backend>(memory_of(1024), failing));
  const slot_id first = tested.whole->allocate(256).value();
  for (std::uint64_t i = 0; i < 256; ++i) ASSERT_TRUE(put(*tested.queue, first + i, i));
  testing::internal::CaptureStderr();
  tested.tend();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("nothing more moves"), std::string::npos) << said;
  EXPECT_EQ(tested.first->report().used_slots, 256u);
  EXPECT_EQ(tested.next->report().used_slots, 0u);
  for (std::uint64_t i = 0; i < 256; ++i) EXPECT_TRUE(holds(*tested.queue, first + i, i)) << i;
  tested.whole->free(first, 256);
  EXPECT_EQ(tested.whole->report().used_slots, 0u);
}

TEST(stacked_backend, when_the_next_is_full_the_bytes_stay) {
  stack tested(memory_of(256), memory_of(32));
  const slot_id first = tested.whole->allocate(256).value();
  for (std::uint64_t i = 0; i < 256; ++i) ASSERT_TRUE(put(*tested.queue, first + i, i));
  testing::internal::CaptureStderr();
  tested.tend();
  static_cast<void>(testing::internal::GetCapturedStderr());
  EXPECT_EQ(tested.first->report().used_slots, 224u);
  for (std::uint64_t i = 0; i < 256; ++i) EXPECT_TRUE(holds(*tested.queue, first + i, i)) << i;
}

// A server that was added, or that answers only now.
TEST(stacked_backend, what_the_next_gains_later_is_used) {
  faulty_options small;
  small.slot_limit = 16;
  stack tested(memory_of(64), std::make_unique<faulty_backend>(memory_of(256), small));
  EXPECT_EQ(tested.whole->report().total_slots, 80u);
  ASSERT_TRUE(tested.whole->allocate(80).ok());
  EXPECT_EQ(tested.whole->allocate(1).error().code, ENOSPC);
  static_cast<faulty_backend*>(tested.next)->set_slot_limit(256);
  EXPECT_EQ(tested.whole->report().total_slots, 320u);
  EXPECT_TRUE(tested.whole->allocate(240).ok());
}

// Random writes, reads and frees of one thread's slots, against a model.
class traffic {
 public:
  traffic(backend& tested, std::uint64_t seed)
      : tested_(tested), random_(seed), queue_(tested.open_channel(8).value()) {}

  void step() {
    const std::uint64_t kind = random_() % 8;
    if (kind < 2 && pages_.size() < 600) return add();
    if (pages_.empty()) return;
    auto chosen = pages_.begin();
    std::advance(chosen, static_cast<std::ptrdiff_t>(random_() % std::min<std::size_t>(pages_.size(), 50)));
    if (random_() % 4 == 0) chosen = std::prev(pages_.end());
    if (kind == 2) {
      tested_.free(chosen->first, 1);
      pages_.erase(chosen);
    } else if (kind == 3) {
      const std::size_t offset = random_() % page_bytes;
      const std::size_t length = 1 + random_() % (page_bytes - offset);
      bytes part = content(random_());
      const int failure = transfer(*queue_, operation::write, chosen->first, part.data() + offset, length, offset);
      if (failure == ENOSPC) return check(*chosen);  // of compressed memory: it would have grown
      ASSERT_EQ(failure, 0);
      std::memcpy(chosen->second.data() + offset, part.data() + offset, length);
    } else {
      check(*chosen);
    }
  }

  void end() {
    for (const auto& page : pages_) check(page);
    for (const auto& [slot, page] : pages_) tested_.free(slot, 1);
    pages_.clear();
  }

 private:
  void add() {
    const result<slot_id> slot = tested_.allocate(1);
    if (!slot) return;
    const std::uint64_t seed = random_();
    ASSERT_TRUE(put(*queue_, slot.value(), seed));
    pages_.emplace(slot.value(), content(seed));
  }

  void check(const std::pair<const slot_id, bytes>& one) {
    bytes into(page_bytes);
    ASSERT_EQ(transfer(*queue_, operation::read, one.first, into.data()), 0);
    ASSERT_TRUE(into == one.second) << "slot " << one.first;
  }

  backend& tested_;
  std::mt19937_64 random_;
  std::unique_ptr<channel> queue_;
  std::map<slot_id, bytes> pages_;
};

void run_traffic(stack& tested, std::uint64_t seed) {
  std::atomic<bool> stop{false};
  std::thread tends([&] {
    while (!stop) static_cast<void>(tested.whole->tend());
  });
  std::vector<std::thread> running;
  for (std::uint64_t id = 0; id < 3; ++id) {
    running.emplace_back([&, id] {
      traffic one(*tested.whole, seed * 10 + id);
      for (int i = 0; i < 6000 && !testing::Test::HasFatalFailure(); ++i) one.step();
      one.end();
    });
  }
  for (std::thread& thread : running) thread.join();
  stop = true;
  tends.join();
  tested.tend();
  EXPECT_EQ(tested.whole->report().used_slots, 0u);
  EXPECT_EQ(tested.first->report().used_slots, 0u);
  EXPECT_EQ(tested.next->report().used_slots, 0u);
}

TEST(stacked_backend, moves_beside_traffic_lose_nothing) {
  stack tested(memory_of(512), memory_of(4096));
  run_traffic(tested, 1);
}

TEST(stacked_backend, moves_out_of_compressed_memory_lose_nothing) {
  stack tested(open("zmem:1M").value(), memory_of(4096));
  run_traffic(tested, 2);
}

TEST(stacked_backend, moves_to_a_tier_that_delays_and_reorders_lose_nothing) {
  faulty_options unruly;
  unruly.seed = 3;
  unruly.maximum_delay_ticks = 20;
  unruly.reorders = true;
  unruly.takes_partial_batches = true;
  stack tested(memory_of(512), std::make_unique<faulty_backend>(memory_of(4096), unruly));
  run_traffic(tested, 3);
}

TEST(stacked_backend, the_child_of_a_fork_goes_on) {
  const auto whole = open_for_forks("zmem:1M,file:/var/tmp", real_time).value();
  std::unique_ptr<channel> queue = whole->open_channel(16).value();
  constexpr std::uint64_t count = 1000;
  const slot_id first = whole->allocate(count).value();
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(put(*queue, first + i, i));
  for (int i = 0; i < 20; ++i) static_cast<void>(whole->tend());  // some are moving
  whole->prepare_fork();
  const pid_t child = fork();
  if (child == 0) {
    queue->close_in_child();
    whole->after_fork_in_child();
    for (std::uint64_t i = 0; i < count; i += 2) whole->claim_in_child(first + i);
    whole->close_claims_in_child();
    bool right = whole->report().used_slots == count / 2;
    const std::unique_ptr<channel> mine = whole->open_channel(16).value();
    for (std::uint64_t i = 0; i < count; i += 2) right = right && holds(*mine, first + i, i);
    std::vector<slot_id> more;
    for (int tries = 0; more.size() < count && tries < 100'000; ++tries) {
      const result<slot_id> slot = whole->allocate(1);
      static_cast<void>(whole->tend());
      if (!slot && slot.error().code != EAGAIN) right = false;
      if (slot) more.push_back(slot.value());
      if (slot) right = right && put(*mine, slot.value(), 5000 + more.size());
    }
    for (std::uint64_t i = 0; i < count; i += 2) right = right && holds(*mine, first + i, i);
    for (std::size_t i = 0; i < more.size(); ++i) right = right && holds(*mine, more[i], 5001 + i);
    _exit(right && more.size() == count ? 0 : 1);
  }
  whole->after_fork_in_parent();
  for (int i = 0; i < 20; ++i) static_cast<void>(whole->tend());
  for (std::uint64_t i = 0; i < count; ++i) EXPECT_TRUE(holds(*queue, first + i, i)) << i;
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// What lies in a tier that computes nothing is for the caller to fetch.
TEST(stacked_backend, questions_are_answered_where_the_slots_are) {
  const page_hasher hash(9);
  const page_reduction asked{{detail::number_type::uint64, 0, ~std::uint64_t{0} / 3}, &hash};
  for (const bool is_above : {true, false}) {
    std::unique_ptr<backend> computes = memory_of(64);
    std::unique_ptr<backend> does_not = zmem_backend::create({.capacity_bytes = mib, .codec = {}, .slots = 64}).value();
    stack tested(std::move(is_above ? computes : does_not), std::move(is_above ? does_not : computes));
    ASSERT_TRUE(tested.whole->reduces());
    std::vector<slot_id> slots;
    for (std::uint64_t i = 0; i < 96; ++i) {
      slots.push_back(tested.whole->allocate(1).value());
      ASSERT_TRUE(put(*tested.queue, slots.back(), i));
    }
    std::uint64_t unanswered = 0;
    for (std::uint64_t i = 0; i < slots.size(); ++i) {
      std::vector<std::byte> found(answer_bytes(asked.how));
      const int failure = ask(*tested.queue, slots[i], asked, found);
      if (failure == 0) {
        std::vector<std::byte> expected(found.size());
        const bytes page = content(i);
        answer(asked, page.data(), page, expected.data());
        EXPECT_EQ(found, expected) << i;
      } else {
        EXPECT_EQ(failure, EXDEV);
        ++unanswered;
      }
    }
    EXPECT_EQ(unanswered, (is_above ? tested.next : tested.first)->report().used_slots);
    EXPECT_GT(unanswered, 0u);
    EXPECT_LT(unanswered, slots.size());
    for (std::uint64_t i = 0; i < slots.size(); ++i) EXPECT_TRUE(holds(*tested.queue, slots[i], i));
  }
}

// The program calls it itself where it can read the bytes, and asks a tier with servers for all others.
TEST(stacked_backend, functions_are_not_refused_for_a_tier_in_this_process) {
  stack tested(memory_of(16), memory_of(16));
  const slot_id slot = tested.whole->allocate(1).value();
  ASSERT_TRUE(put(*tested.queue, slot, 1));
  const page_hasher hash(9);
  const detail::page_function function{.result_bytes = 8};
  const page_reduction asked{{.kind = reduction_kind::computed, .function = &function}, &hash};
  std::vector<std::byte> found(answer_bytes(asked.how));
  EXPECT_EQ(ask(*tested.queue, slot, asked, found), EXDEV);
}

TEST(stacked_backend, of_tiers_that_compute_nothing_no_question_is_asked) {
  const auto compressed = [] {
    return zmem_backend::create({.capacity_bytes = mib, .codec = {}, .slots = 64}).value();
  };
  EXPECT_FALSE(stack(compressed(), compressed()).whole->reduces());
}

TEST(split_tiers, a_scheme_after_a_comma_begins_a_tier) {
  using names = std::vector<std::string>;
  EXPECT_EQ(split_tiers("file:"), (names{"file:"}));
  EXPECT_EQ(split_tiers("zmem:512M,file:"), (names{"zmem:512M", "file:"}));
  EXPECT_EQ(split_tiers("tcp://a:1,b:2,[::1]:3?copies=2"), (names{"tcp://a:1,b:2,[::1]:3?copies=2"}));
  EXPECT_EQ(split_tiers("zmem:?capacity=1G&codec=zstd,shm:main,tcp://a:1,b:2,file:/a,b"),
            (names{"zmem:?capacity=1G&codec=zstd", "shm:main", "tcp://a:1,b:2", "file:/a,b"}));
  EXPECT_EQ(split_tiers("zmem:,"), (names{"zmem:,"}));
  EXPECT_EQ(split_tiers("zmem:,redis://a,b:1?copies=2,rediss://c"),
            (names{"zmem:", "redis://a,b:1?copies=2", "rediss://c"}));
  EXPECT_EQ(split_tiers("zmem:1G,redis+cluster://a,b:1?copies=2,rediss+cluster://c"),
            (names{"zmem:1G", "redis+cluster://a,b:1?copies=2", "rediss+cluster://c"}));
}

}  // namespace
}  // namespace far::backend
