// Two copies, or two pages and their parity, on three servers, and later four, that are killed and started again empty,
// one at a time, while threads write, read and free as the engine does. Every read returns the newest bytes, nobody
// touches a buffer after its transfer has ended, and nothing fails for good.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "backend/replicated/replicated_backend.h"
#include "backend/striped/striped_backend.h"
#include "base/units.h"
#include "memory_server.h"

namespace far::backend {
namespace {

using testing_support::memory_server;
using steady = std::chrono::steady_clock;

constexpr std::size_t server_count = 4;
constexpr std::size_t first_servers = 3;                  // that are there at the start
constexpr std::size_t slot_count = std::size_t{1} << 18;  // more than the layer numbers
constexpr std::size_t batch_slots = 64;
constexpr std::size_t words_a_page = page_bytes / sizeof(std::uint64_t);
constexpr std::uint64_t scribble = 0xeeeeeeeeeeeeeeee;
constexpr std::chrono::seconds patience{120};
// Groups move in steps, beside threads that never rest; on a busy machine, under a sanitizer, that takes its time.
constexpr std::chrono::seconds patience_with_repair{240};

// FAR_SERVERS_SEED repeats a run as far as the system's own scheduling allows; FAR_SERVERS_SECONDS makes it longer.
std::uint64_t chosen_number(const char* variable, std::uint64_t otherwise) {
  const char* const given = std::getenv(variable);
  return given != nullptr ? std::strtoull(given, nullptr, 10) : otherwise;
}

std::uint64_t word_of(slot_id slot, std::uint64_t generation, std::size_t at) {
  const std::uint64_t mixed = (slot << 40 ^ generation) * 0x9e3779b97f4a7c15u;
  return (mixed ^ mixed >> 29) + at * 0xbf58476d1ce4e5b9u;
}

// The test's knowledge of the slots, like that of the engine's pages: one thread at a time owns a slot.
class slot_book {
 public:
  enum class state : std::uint32_t { unused, claimed, written };

  // The longest run from `first` on, of up to `most` slots, that is written and that nobody has claimed.
  [[nodiscard]] std::size_t claim(slot_id first, std::size_t most) {
    std::size_t count = 0;
    for (; count < most && first + count < slots_.size(); ++count) {
      state expected = state::written;
      if (!slots_[first + count].now.compare_exchange_strong(expected, state::claimed)) break;
    }
    return count;
  }
  // Just allocated: nobody may hold them.
  [[nodiscard]] bool take(slot_id first, std::size_t count) {
    bool all = first + count <= slots_.size();
    for (std::size_t i = 0; i < count && all; ++i) {
      state expected = state::unused;
      all = slots_[first + i].now.compare_exchange_strong(expected, state::claimed);
    }
    std::uint64_t seen = end_.load();
    while (all && seen < first + count && !end_.compare_exchange_weak(seen, first + count)) continue;
    return all;
  }
  void release(slot_id first, std::size_t count, state into) {
    for (std::size_t i = 0; i < count; ++i) slots_[first + i].now.store(into);
  }
  // None at or above has been allocated.
  [[nodiscard]] slot_id end() const { return end_.load(); }
  // Requires: claimed.
  [[nodiscard]] std::uint64_t& generation(slot_id slot) { return slots_[slot].generation; }

 private:
  struct entry {
    std::atomic<state> now{state::unused};
    std::uint64_t generation = 0;
  };
  std::vector<entry> slots_ = std::vector<entry>(slot_count);
  std::atomic<slot_id> end_{0};
};

struct counts {
  std::atomic<std::uint64_t> written_slots{0};
  std::atomic<std::uint64_t> read_slots{0};
  std::atomic<std::uint64_t> freed_slots{0};
  std::atomic<std::uint64_t> failed_writes{0};
  std::atomic<std::uint64_t> failed_reads{0};
  std::atomic<std::uint64_t> asked_again{0};  // allocations
  std::atomic<std::uint64_t> refused{0};
};

// The state that the threads share. The first thing that is wrong ends them all.
struct scene {
  scene(backend& used, std::uint64_t most) : far(used), most_used_slots(most) {}

  backend& far;
  const std::uint64_t most_used_slots;
  std::atomic<bool> shrinking{false};
  slot_book book;
  counts count;
  std::atomic<bool> stopping{false};
  std::atomic<bool> failed{false};
  std::atomic<std::uint64_t> used_slots{0};
  std::atomic<std::uint64_t> next_generation{1};
  std::mutex lock;
  std::string first_failure;

  void fail(const std::string& message) {
    const std::lock_guard guard(lock);
    if (first_failure.empty()) first_failure = message;
    failed.store(true);
    stopping.store(true);
  }
};

class worker {
 public:
  worker(scene& shared, std::uint64_t seed, std::unique_ptr<channel> queue)
      : shared_(shared), chance_(seed), queue_(std::move(queue)) {}

 protected:
  using page = std::array<std::uint64_t, words_a_page>;
  using page_buffer = std::vector<page>;

  struct run {
    slot_id first = 0;
    std::size_t count = 0;
    std::size_t place = 0;  // of its first page in the buffer
    bool done = false;
  };

  [[nodiscard]] std::size_t draw(std::size_t below) { return chance_() % below; }

  // Moves all runs, and those that fail again, as the engine does, until they succeed.
  void move(operation op, page_buffer& buffer, std::vector<run>& runs) {
    const steady::time_point until = steady::now() + patience;
    while (true) {
      const std::size_t failures = move_once(op, buffer, runs, until);
      if (failures == 0 || shared_.failed.load()) return;
      (op == operation::read ? shared_.count.failed_reads : shared_.count.failed_writes) += failures;
      if (steady::now() > until)
        return shared_.fail(op == operation::read ? "a read failed for good" : "a write failed for good");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  [[nodiscard]] static const char* name_of(operation op) { return op == operation::read ? "a read" : "a write"; }
  static void fill(page& into, std::uint64_t with) { into.fill(with); }

  // A run of written slots at a random place, claimed.
  [[nodiscard]] run claim_somewhere(std::size_t most) {
    const slot_id first = draw(shared_.book.end() + 1);
    return {.first = first, .count = shared_.book.claim(first, most)};
  }

  void free(const run& given) {
    shared_.book.release(given.first, given.count, slot_book::state::unused);
    shared_.far.free(given.first, given.count);
    shared_.used_slots -= given.count;
    shared_.count.freed_slots += given.count;
  }

  scene& shared_;

 private:
  // Returns how many runs failed.
  std::size_t move_once(operation op, page_buffer& buffer, std::vector<run>& runs, steady::time_point until) {
    std::vector<request> wanted;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (runs[i].done) continue;
      wanted.push_back({.op = op,
                        .slot = runs[i].first,
                        .length_bytes = static_cast<std::uint32_t>(runs[i].count * page_bytes),
                        .buffer = reinterpret_cast<std::byte*>(buffer[runs[i].place].data()),
                        .cookie = i});
    }
    std::size_t failures = 0;
    std::size_t sent = 0;
    std::size_t ended = 0;
    while (ended < wanted.size()) {
      sent += queue_->submit(std::span(wanted).subspan(sent));
      std::array<completion, 16> done;
      const std::size_t count = queue_->poll(done);
      for (const completion& outcome : std::span(done).first(count)) {
        runs[outcome.cookie].done = outcome.error_code == 0;
        failures += outcome.error_code != 0;
      }
      ended += count;
      if (count == 0 && draw(2) == 0) queue_->wait(1'000'000);
      if (steady::now() <= until + patience) continue;
      std::fprintf(stderr, "%s did not end\n", name_of(op));
      std::abort();  // its buffer belongs to the channel
    }
    return failures;
  }

  std::mt19937_64 chance_;
  std::unique_ptr<channel> queue_;
};

class evictor : public worker {
 public:
  using worker::worker;

  void operator()() {
    while (!shared_.stopping.load()) {
      if (shared_.shrinking.load() && draw(16) != 0) {
        free_groups();
        std::this_thread::sleep_for(std::chrono::microseconds(draw(500)));
      } else if (shared_.used_slots.load() > shared_.most_used_slots) {
        free_some();
      } else if (draw(8) == 0) {
        write_again();
      } else {
        write_new();
      }
    }
  }

 private:
  void free_some() {
    for (int i = 0; i < 16; ++i) {
      const run freed = claim_somewhere(1 + draw(batch_slots));
      if (freed.count > 0) free(freed);
    }
  }

  // All of one or a few, which are then given up.
  void free_groups() {
    const slot_id first = draw(shared_.book.end() / group_slots + 1) * group_slots;
    const slot_id end = std::min(first + (1 + draw(2)) * group_slots, shared_.book.end());
    for (slot_id slot = first; slot < end;) {
      const run freed{.first = slot, .count = shared_.book.claim(slot, end - slot)};
      if (freed.count > 0) free(freed);
      slot += freed.count + 1;
    }
  }

  void write_new() {
    const run taken = allocate();
    if (taken.count == 0) return free_some();
    if (!shared_.book.take(taken.first, taken.count)) {
      return shared_.fail("slot " + std::to_string(taken.first) + " was allocated, and it is in use");
    }
    write(taken);
  }

  // Fewer when there is no such run; none when there is no room.
  [[nodiscard]] run allocate() {
    const steady::time_point until = steady::now() + patience;
    std::size_t count = batch_slots;
    while (count > 0 && !shared_.stopping.load()) {
      const result<slot_id> first = shared_.far.allocate(count);
      if (first) {
        shared_.used_slots += count;
        return {.first = first.value(), .count = count};
      }
      if (first.error().code == ENOSPC) {
        ++shared_.count.refused;
        count /= 2;
        continue;
      }
      if (first.error().code != EAGAIN || steady::now() > until) shared_.fail("no slots: " + first.error().message);
      ++shared_.count.asked_again;
      shared_.far.tend();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return {};
  }

  void write_again() {
    const run claimed = claim_somewhere(1 + draw(8));
    if (claimed.count > 0) write(claimed);
  }

  // In runs, from the staging buffer, which is used for something else at once when they have ended.
  void write(const run& claimed) {
    for (std::size_t i = 0; i < claimed.count; ++i) {
      const slot_id slot = claimed.first + i;
      const std::uint64_t generation = shared_.next_generation++;
      shared_.book.generation(slot) = generation;
      for (std::size_t at = 0; at < words_a_page; ++at) staging_[i][at] = word_of(slot, generation, at);
    }
    std::vector<run> runs;
    for (std::size_t place = 0; place < claimed.count;) {
      const std::size_t count = std::min(1 + draw(2) * draw(batch_slots), claimed.count - place);
      runs.push_back({.first = claimed.first + place, .count = count, .place = place});
      place += count;
    }
    move(operation::write, staging_, runs);
    for (std::size_t i = 0; i < claimed.count; ++i) fill(staging_[i], scribble);
    shared_.count.written_slots += claimed.count;
    shared_.book.release(claimed.first, claimed.count, slot_book::state::written);
  }

  page_buffer staging_ = page_buffer(batch_slots);
};

class fetcher : public worker {
 public:
  using worker::worker;

  void operator()() {
    for (page_buffer& buffer : buffers_) {
      for (page& clean : buffer) fill(clean, scribble);
    }
    while (!shared_.stopping.load()) fetch();
  }

  // All that is written.
  void fetch_everything() {
    for (slot_id slot = 0; slot < shared_.book.end() && !shared_.failed.load(); ++slot) {
      run claimed{.first = slot, .count = shared_.book.claim(slot, batch_slots)};
      if (claimed.count == 0) continue;
      std::vector<run> runs{claimed};
      read(runs, buffers_[0]);
      shared_.book.release(claimed.first, claimed.count, slot_book::state::written);
      slot += claimed.count - 1;
    }
  }

 private:
  // Single slots and runs, into one buffer and the other in turn.
  void fetch() {
    page_buffer& buffer = buffers_[turn_++ % buffers_.size()];
    expect_untouched(buffer);
    std::vector<run> runs;
    std::size_t place = 0;
    for (std::size_t tries = 1 + draw(16); tries > 0 && place < batch_slots; --tries) {
      run claimed = claim_somewhere(std::min(1 + draw(2) * draw(batch_slots), batch_slots - place));
      if (claimed.count == 0) continue;
      claimed.place = place;
      place += claimed.count;
      runs.push_back(claimed);
    }
    read(runs, buffer);
    for (const run& part : runs) {
      if (draw(4) == 0) {
        free(part);
      } else {
        shared_.book.release(part.first, part.count, slot_book::state::written);
      }
    }
  }

  void read(std::vector<run>& runs, page_buffer& buffer) {
    if (runs.empty()) return;
    move(operation::read, buffer, runs);
    for (const run& part : runs) {
      for (std::size_t i = 0; i < part.count && !shared_.failed.load(); ++i) {
        verify(part.first + i, buffer[part.place + i]);
      }
      for (std::size_t i = 0; i < part.count; ++i) fill(buffer[part.place + i], scribble);
      shared_.count.read_slots += part.count;
    }
  }

  void verify(slot_id slot, const page& bytes) {
    const std::uint64_t generation = shared_.book.generation(slot);
    for (std::size_t at = 0; at < words_a_page; ++at) {
      if (bytes[at] == word_of(slot, generation, at)) continue;
      char message[160];
      std::snprintf(message, sizeof message, "slot %llu of generation %llu: word %zu is %016llx, not %016llx",
                    static_cast<unsigned long long>(slot), static_cast<unsigned long long>(generation), at,
                    static_cast<unsigned long long>(bytes[at]),
                    static_cast<unsigned long long>(word_of(slot, generation, at)));
      return shared_.fail(message);
    }
  }

  void expect_untouched(const page_buffer& buffer) {
    for (const page& content : buffer) {
      const bool clean =
          std::all_of(content.begin(), content.end(), [](std::uint64_t word) { return word == scribble; });
      if (!clean) shared_.fail("bytes arrived in a buffer whose transfer had ended");
    }
  }

  std::array<page_buffer, 3> buffers_{page_buffer(batch_slots), page_buffer(batch_slots), page_buffer(batch_slots)};
  std::size_t turn_ = 0;
};

// As src/pager/reclaimer.cc does.
void tend(scene& shared) {
  steady::time_point next = steady::now();
  while (!shared.stopping.load()) {
    if (steady::now() >= next) {
      const std::uint64_t pause_ns = std::min<std::uint64_t>(shared.far.tend(), 1'000'000'000);
      next = steady::now() + std::chrono::nanoseconds(pause_ns);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// The layer under test, of one kind or the other.
class tier_books {
 public:
  explicit tier_books(const backend* far)
      : copies_(dynamic_cast<const replicated_backend*>(far)), parity_(dynamic_cast<const striped_backend*>(far)) {}

  [[nodiscard]] bool is_known() const { return copies_ != nullptr || parity_ != nullptr; }
  [[nodiscard]] const layer& members() const {
    return copies_ != nullptr ? copies_->books() : parity_->books().members;
  }
  [[nodiscard]] bool is_whole() const { return copies_ != nullptr ? copies_->is_whole() : parity_->is_whole(); }
  void validate() const { copies_ != nullptr ? copies_->validate() : parity_->validate(); }
  [[nodiscard]] std::string progress() const {
    if (copies_ != nullptr) {
      const repair_counts done = copies_->repaired();
      return std::to_string(done.moved_groups) + " groups moved, " + std::to_string(done.repaired_slots) +
             " slots repaired";
    }
    const striped_backend::counts done = parity_->counted();
    return std::to_string(done.mended.mended_rows) + " rows mended, " + std::to_string(done.mended.spares) +
           " spares, " + std::to_string(done.moved_pages) + " pages moved";
  }

 private:
  const replicated_backend* copies_;
  const striped_backend* parity_;
};

// The parameter: what keeps the bytes.
class replicated_servers : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (auto& server : servers_) server = std::make_unique<memory_server>(testing_support::memory_server_options{});
  }

  void open_tier(const std::string& options) {
    std::string name = "tcp://";
    for (const auto& server : std::span(servers_).first(first_servers)) {
      name += (name.back() == '/' ? "" : ",") + server->address();
    }
    result<std::unique_ptr<backend>> opened = open(name + "?" + GetParam() + "&timeout=2s" + options);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    far_ = std::move(opened).value();
    books_ = tier_books(far_.get());
    ASSERT_TRUE(books_.is_known());
  }

  // While `meanwhile` runs, threads use the far tier; then everything is read once more.
  void play(std::uint64_t seed, std::uint64_t most_used_slots, const std::function<void(scene&)>& meanwhile) {
    scene shared(*far_, most_used_slots);
    {
      std::vector<std::unique_ptr<evictor>> evictors;
      std::vector<std::unique_ptr<fetcher>> fetchers;
      std::vector<std::thread> threads;
      for (std::uint64_t i = 0; i < 2; ++i) {
        evictors.push_back(std::make_unique<evictor>(shared, seed + 2 * i, queue()));
        fetchers.push_back(std::make_unique<fetcher>(shared, seed + 2 * i + 1, queue()));
        threads.emplace_back(std::ref(*evictors.back()));
        threads.emplace_back(std::ref(*fetchers.back()));
      }
      threads.emplace_back([&shared] { tend(shared); });
      meanwhile(shared);
      shared.stopping.store(true);
      for (std::thread& thread : threads) thread.join();
      fetchers[0]->fetch_everything();
    }
    EXPECT_EQ(shared.first_failure, "");
    books_.validate();
    EXPECT_EQ(far_->report().used_slots, shared.used_slots.load());
    EXPECT_EQ(shared.count.failed_reads.load(), 0u);
    EXPECT_EQ(shared.count.failed_writes.load(), 0u);
    add(shared.count);
  }

  [[nodiscard]] std::unique_ptr<channel> queue() {
    result<std::unique_ptr<channel>> opened = far_->open_channel(batch_slots);
    EXPECT_TRUE(opened.ok());
    return opened.ok() ? std::move(opened).value() : nullptr;
  }

  void pause(std::uint64_t most_ms) {
    std::this_thread::sleep_for(std::chrono::microseconds(chance_() % (most_ms * 1000)));
  }

  // The rest of the servers, while the far tier is used.
  void add_servers(scene& shared) {
    for (const auto& server : std::span(servers_).subspan(first_servers)) {
      const result<void> added = far_->add_server(server->address());
      if (!added) shared.fail(added.error().message);
    }
  }

  // Kills one of the servers and starts it again. Now and then only when it is taken for lost.
  void kill_one(scene& shared) {
    const std::size_t victim = chance_() % books_.members().member_count();
    const std::uint64_t errors = books_.members().at(victim).now().errors;
    servers_[victim]->kill();
    pause(chance_() % 16 == 0 ? 4000 : chance_() % 4 == 0 ? 500 : 10);
    servers_[victim]->restart();
    ++kills_;
    const member& killed = books_.members().at(victim);
    if (!reached(shared, patience, [&] { return killed.now().errors != errors; })) {
      shared.fail("nobody has noticed that a server was restarted: " + far_->describe());
    }
    // Groups are given up while copies of them are let go of and made again.
    shared.shrinking.store(chance_() % 2 == 0);
    pause(50);
    shared.shrinking.store(false);
    if (!reached(shared, patience_with_repair, [this] { return books_.is_whole(); })) {
      shared.fail("not whole again: " + far_->describe() + "; " + books_.progress());
    }
  }

  [[nodiscard]] static bool reached(const scene& shared, std::chrono::seconds within,
                                    const std::function<bool()>& condition) {
    const steady::time_point until = steady::now() + within;
    while (!shared.stopping.load() && !condition()) {
      if (steady::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    return true;
  }

  void add(const counts& other) {
    written_ += other.written_slots.load();
    read_ += other.read_slots.load();
    waited_ += other.asked_again.load();
    refused_ += other.refused.load();
  }

  void TearDown() override {
    std::printf(
        "FAR_SERVERS_SEED=%llu: %llu kills, %llu slots written, %llu read, allocations: %llu waited, %llu refused\n",
        static_cast<unsigned long long>(seed_), static_cast<unsigned long long>(kills_),
        static_cast<unsigned long long>(written_), static_cast<unsigned long long>(read_),
        static_cast<unsigned long long>(waited_), static_cast<unsigned long long>(refused_));
  }

  const std::uint64_t seed_ = chosen_number("FAR_SERVERS_SEED", std::random_device{}());
  const std::chrono::seconds duration_{chosen_number("FAR_SERVERS_SECONDS", 2)};
  const testing::ScopedTrace trace_{__FILE__, __LINE__, "FAR_SERVERS_SEED=" + std::to_string(seed_)};
  std::mt19937_64 chance_{seed_};
  std::array<std::unique_ptr<memory_server>, server_count> servers_;
  std::unique_ptr<backend> far_;
  tier_books books_{nullptr};
  std::uint64_t kills_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t read_ = 0;
  std::uint64_t waited_ = 0;
  std::uint64_t refused_ = 0;
};

// A far tier that is nearly full: slots are free one here and one there, and servers have no blocks to spare.
TEST_P(replicated_servers, killed_again_and_again_lose_nothing) {
  constexpr std::uint64_t server_mib = 64;
  open_tier("&capacity=" + std::to_string(server_mib) + "M");
  play(seed_, server_mib * mib / page_bytes * 5 / 8, [this](scene& shared) {
    const steady::time_point until = steady::now() + duration_;
    kill_one(shared);
    add_servers(shared);
    while (steady::now() < until && !shared.stopping.load()) {
      pause(200);
      kill_one(shared);  // at first while groups move
    }
  });
}

// A program that has just begun: blocks are asked for all the time, and nothing is freed at first.
TEST_P(replicated_servers, killed_while_far_memory_grows_lose_nothing) {
  constexpr std::uint64_t most_used_mib = 64;
  const steady::time_point until = steady::now() + duration_;
  for (std::uint64_t round = 0; steady::now() < until && !HasFailure(); ++round) {
    open_tier("");
    play(seed_ + round * 16, most_used_mib * mib / page_bytes, [this](scene& shared) {
      const std::uint64_t wanted = chance_() % shared.most_used_slots;
      const steady::time_point latest = steady::now() + std::chrono::seconds(1);
      while (shared.used_slots.load() < wanted && steady::now() < latest)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      add_servers(shared);
      kill_one(shared);
    });
    far_.reset();
  }
}
INSTANTIATE_TEST_SUITE_P(all, replicated_servers, testing::Values("copies=2", "parity=2+1"));

}  // namespace
}  // namespace far::backend
