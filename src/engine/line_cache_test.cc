#include "engine/line_cache.h"

#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "base/units.h"
#include "platform/signal_shield.h"

namespace far::engine {
namespace {

// Each line has its own bytes, which tell its number and its version.
struct content {
  explicit content(const line_cache::name& of) {
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = of.line * 31 + of.version * 7 + i;
  }
  [[nodiscard]] const std::byte* bytes() const { return reinterpret_cast<const std::byte*>(words.data()); }
  std::array<std::uint64_t, line_cache::most_line_bytes / sizeof(std::uint64_t)> words{};
};

bool reads(line_cache& from, const line_cache::name& wanted, std::size_t word = 1) {
  std::uint64_t found = 0;
  if (!from.read(wanted, word * sizeof found, sizeof found, reinterpret_cast<std::byte*>(&found))) return false;
  EXPECT_EQ(found, content(wanted).words[word]) << wanted.line;
  return true;
}

TEST(line_cache, copies_are_found_by_line_and_version) {
  for (const std::size_t line_bytes : {64u, 128u, 256u, 512u}) {
    line_cache cache(line_bytes, mib);
    cache.put({7, 1}, content({7, 1}).bytes());
    EXPECT_FALSE(cache.contains({7, 1})) << "it has no room yet";
    const std::size_t used = cache.fit(mib);
    EXPECT_GT(used, mib - 2 * page_bytes);
    EXPECT_LE(used, mib);
    cache.put({7, 1}, content({7, 1}).bytes());
    EXPECT_TRUE(reads(cache, {7, 1}));
    EXPECT_TRUE(reads(cache, {7, 1}, line_bytes / sizeof(std::uint64_t) - 1));
    EXPECT_FALSE(reads(cache, {7, 2})) << "the page has changed";
    EXPECT_FALSE(reads(cache, {8, 1}));
    cache.put({7, 2}, content({7, 2}).bytes());
    EXPECT_TRUE(reads(cache, {7, 2}));
    EXPECT_FALSE(cache.contains({7, 1})) << "one copy of a line is enough";
  }
}

TEST(line_cache, what_is_read_stays_when_others_come) {
  line_cache cache(64, 64 * kib);
  static_cast<void>(cache.fit(64 * kib));
  constexpr std::uint64_t wanted = 100;
  constexpr std::uint64_t passing = 20'000;
  for (std::uint64_t line = 1; line <= wanted; ++line) cache.put({line, 1}, content({line, 1}).bytes());
  for (std::uint64_t line = wanted + 1; line <= passing; ++line) {
    cache.put({line, 1}, content({line, 1}).bytes());
    if (line % 100 != 0) continue;
    for (std::uint64_t i = 1; i <= wanted; ++i) static_cast<void>(cache.contains({i, 1}) && reads(cache, {i, 1}));
  }
  std::size_t kept = 0;
  for (std::uint64_t i = 1; i <= wanted; ++i) kept += reads(cache, {i, 1}) ? 1 : 0;
  EXPECT_GT(kept, wanted * 8 / 10);
  std::size_t others = 0;
  for (std::uint64_t line = wanted + 1; line <= passing; ++line) others += cache.contains({line, 1}) ? 1 : 0;
  EXPECT_GT(others, 500u) << "room is used";
  EXPECT_LT(others, 64 * kib / 64);
}

TEST(line_cache, it_shrinks_and_grows) {
  line_cache cache(64, mib);
  static_cast<void>(cache.fit(mib));
  constexpr std::uint64_t lines = 4000;
  const auto fill = [&] {
    for (std::uint64_t line = 1; line <= lines; ++line) cache.put({line, 1}, content({line, 1}).bytes());
  };
  const auto count = [&] {
    std::size_t found = 0;
    for (std::uint64_t line = 1; line <= lines; ++line) found += reads(cache, {line, 1}) ? 1 : 0;
    return found;
  };
  fill();
  EXPECT_GT(count(), lines * 9 / 10);
  EXPECT_LE(cache.fit(64 * kib), 64 * kib);
  EXPECT_LE(count(), 64 * kib / 64);
  fill();
  EXPECT_GT(count(), 500u);
  static_cast<void>(cache.fit(mib));
  fill();
  EXPECT_GT(count(), lines * 9 / 10);
  cache.restart_in_child();
  EXPECT_EQ(count(), 0u);
}

// Of one set, which changes all the time.
TEST(line_cache, nothing_is_found_half_way) {
  line_cache cache(64, 4 * kib);
  static_cast<void>(cache.fit(kib));
  constexpr std::uint64_t lines = 10;
  std::atomic<bool> stops{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; !stops.load(); ++i) {
      const line_cache::name one{i % lines + 1, i % 3};
      cache.put(one, content(one).bytes());
    }
  });
  std::size_t found = 0;
  for (std::uint64_t i = 0; i < 2'000'000; ++i) found += reads(cache, {i % lines + 1, i % 3}, i % 8) ? 1 : 0;
  stops.store(true);
  writer.join();
  EXPECT_GT(found, 0u);
}

// A timer whose handler does something while a thread reads.
class interrupted_line_cache : public ::testing::Test {
 public:
  interrupted_line_cache() {
    mine = this;
    static_cast<void>(cache_.fit(4 * kib));
    for (std::uint64_t line = 1; line <= lines; ++line) put(line);
  }
  ~interrupted_line_cache() override {
    const itimerval never{};
    setitimer(ITIMER_REAL, &never, nullptr);
    signal(SIGALRM, SIG_DFL);
  }
  static void interrupt_by(void (*handler)(int)) {
    struct sigaction action{};
    action.sa_handler = handler;
    sigaction(SIGALRM, &action, nullptr);
    const itimerval often{.it_interval = {0, 100}, .it_value = {0, 100}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  void put(std::uint64_t line) {
    const platform::signal_shield shield;
    cache_.put({line, 1}, content({line, 1}).bytes());
  }

  static std::byte* ignored() {
    static std::array<std::byte, sizeof(std::uint64_t)> bytes;
    return bytes.data();
  }

  static constexpr std::uint64_t lines = 4;
  static inline interrupted_line_cache* mine = nullptr;
  static inline std::sig_atomic_t volatile interruptions = 0;
  static inline sigjmp_buf before_reading;
  line_cache cache_{64, 4 * kib};
};

TEST_F(interrupted_line_cache, a_fork_in_a_handler_leaves_the_child_no_wrong_bytes) {
  interrupt_by([](int) {
    mine->cache_.restart_in_child();
    static_cast<void>(mine->cache_.fit(4 * kib));
    interruptions = interruptions + 1;
  });
  for (interruptions = 0; interruptions < 2000;) {
    for (std::uint64_t line = 1; line <= lines; ++line) {
      if (!reads(cache_, {line, 1}, line)) put(line);
    }
  }
}

TEST_F(interrupted_line_cache, a_jump_out_of_a_handler_leaves_no_lock_behind) {
  interruptions = 0;
  if (sigsetjmp(before_reading, 1) == 0) {
    interrupt_by([](int) {
      interruptions = interruptions + 1;
      siglongjmp(before_reading, 1);
    });
  }
  while (interruptions < 2000) {
    for (std::uint64_t line = 1; line <= lines; ++line) static_cast<void>(cache_.read({line, 1}, 8, 8, ignored()));
  }
  interrupt_by(SIG_IGN);
  for (std::uint64_t line = 1; line <= lines; ++line) EXPECT_TRUE(reads(cache_, {line, 1}));
  EXPECT_LT(cache_.fit(0), 4 * kib);
}

// Whatever is found is what was put there, while its size changes.
TEST(line_cache, threads_find_what_was_put) {
  line_cache cache(64, 256 * kib);
  static_cast<void>(cache.fit(256 * kib));
  std::atomic<bool> stops{false};
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    threads.emplace_back([&, seed] {
      for (std::uint64_t i = seed; i < 60'000; ++i) {
        const line_cache::name one{i * 0x9e3779b97f4a7c15 >> 52 | 1, i % 3};
        if (!reads(cache, one)) cache.put(one, content(one).bytes());
      }
      stops.store(true);
    });
  }
  for (std::size_t i = 0; !stops.load(); ++i) static_cast<void>(cache.fit(i % 2 == 0 ? 32 * kib : 256 * kib));
  for (std::thread& one : threads) one.join();
}

}  // namespace
}  // namespace far::engine
