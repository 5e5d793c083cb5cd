// far::hash_map under many fibers and threads at a time, while pages leave and objects move. Needs permission for
// userfaultfd.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/detail/shared_lock.h"
#include "far/fiber.h"
#include "far/hash_map.h"
#include "far/string.h"
#include "tests/containers/elements.h"

namespace far {
namespace {

using numbers_test = test::containers_test;

// Says in each word whose it is, so that a value that was half copied, or another's, is noticed.
struct record {
  std::uint64_t words[12] = {};
  record(std::uint64_t key, std::uint64_t version) {
    for (std::uint64_t i = 0; i < 12; ++i) words[i] = key * 1000 + version * 31 + i;
  }
  [[nodiscard]] bool is_of(std::uint64_t key, std::uint64_t versions) const {
    const std::uint64_t version = (words[0] - key * 1000) / 31;
    return version < versions && *this == record(key, version);
  }
  friend bool operator==(const record&, const record&) = default;
};

// Half of the workers are fibers, half threads.
template <typename Work>
void work_together(runtime& in, unsigned workers, const Work& work) {
  std::vector<task<void>> fibers;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < workers; ++i) {
    if (i % 2 == 0) {
      fibers.push_back(in.spawn([&work, i] { work(i); }));
    } else {
      threads.emplace_back([&work, i] { work(i); });
    }
  }
  for (std::thread& one : threads) one.join();
  for (task<void>& one : fibers) one.join();
}

// Evicts and evacuates until the work is done.
class disturber {
 public:
  explicit disturber(runtime& in)
      : thread_([this, &in] {
          while (!is_over_.load()) {
            in.evict_all();
            in.evacuate(0.3);
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
          }
        }) {}
  ~disturber() {
    is_over_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

TEST_F(numbers_test, readers_and_writers_see_whole_values) {
  hash_map<std::uint64_t, record> mine(*farheap_);
  constexpr std::uint64_t keys = 3000;
  constexpr unsigned workers = 8;
  constexpr std::uint64_t versions = 30;
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::int64_t> inserted(workers);
  {
    const disturber disturbing(*farheap_);
    work_together(*farheap_, workers, [&](unsigned worker) {
      std::mt19937_64 random(worker);
      for (unsigned step = 0; step < 12'000; ++step) {
        const std::uint64_t key = random() % keys;
        const std::uint64_t version = random() % versions;
        switch (random() % 10) {
          case 0:
          case 1: inserted[worker] += mine.put(key, record(key, version)) ? 1 : 0; break;
          case 2: inserted[worker] -= mine.erase(key) ? 1 : 0; break;
          case 3:
            mine.update(key, [&](record& value) {
              if (!value.is_of(key, versions)) ++wrong;
              for (std::uint64_t i = 0; i < 12; ++i) {
                value.words[i] = record(key, version).words[i];
                if (i == 5 && step % 8 == 0) std::this_thread::yield();
              }
            });
            break;
          case 4: inserted[worker] += mine.try_emplace(key, key, version) ? 1 : 0; break;
          default: {
            const std::optional<record> found = mine.get(key);
            if (found && !found->is_of(key, versions)) ++wrong;
          }
        }
      }
    });
  }
  EXPECT_EQ(wrong.load(), 0u);
  std::int64_t count = 0;
  for (const std::int64_t one : inserted) count += one;
  EXPECT_EQ(static_cast<std::int64_t>(mine.size()), count);
  std::size_t visited = 0;
  mine.for_each([&](const std::uint64_t key, const record& value) {
    ++visited;
    if (!value.is_of(key, versions)) ++wrong;
  });
  EXPECT_EQ(visited, mine.size());
  EXPECT_EQ(wrong.load(), 0u);
}

TEST_F(numbers_test, what_was_found_stays_until_the_scope_ends) {
  // Values are replaced, never changed in place, so references must see whole values throughout their scopes.
  hash_map<string, string> mine(*farheap_);
  constexpr std::uint64_t keys = 400;
  const auto key_of = [](std::uint64_t number) { return "a key that is not inline " + std::to_string(number); };
  const auto is_value = [](std::string_view text) {
    return text.size() > 30 && text.substr(1) == std::string(text.size() - 1, text[0]);
  };
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> found_some{0};
  // Readers find something even if they are through before the writers begin.
  for (std::uint64_t number = 0; number < keys; ++number) mine.put(key_of(number), std::string(40, 'a'));
  {
    const disturber disturbing(*farheap_);
    work_together(*farheap_, 6, [&](unsigned worker) {
      std::mt19937_64 random(worker);
      for (unsigned step = 0; step < 4000; ++step) {
        const std::string key = key_of(random() % keys);
        if (worker < 2) {
          const std::string value(31 + random() % 300, static_cast<char>('a' + random() % 26));
          if (random() % 4 == 0) {
            mine.erase(key);
          } else {
            mine.put(key, value);
          }
          continue;
        }
        const scope here(*farheap_);
        const string* const found = mine.find(here, key);
        if (found == nullptr) continue;
        ++found_some;
        const std::string_view text = found->view(here);
        const std::string before(text);
        if (step % 16 == 0) this_fiber::yield();
        if (!is_value(text) || text != before) ++wrong;
      }
    });
  }
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(found_some.load(), 1000u);
}

TEST_F(numbers_test, grows_under_readers) {
  hash_map<std::uint64_t, std::uint64_t> mine(*farheap_);
  constexpr std::uint64_t count = 150'000;
  std::atomic<std::uint64_t> there{0};
  std::atomic<std::uint64_t> wrong{0};
  work_together(*farheap_, 4, [&](unsigned worker) {
    if (worker == 0) {
      for (std::uint64_t i = 0; i < count; ++i) {
        mine.put(i, ~i);
        there.store(i + 1);
        if (i % 256 == 0) this_fiber::yield();
      }
      return;
    }
    std::mt19937_64 random(worker);
    while (there.load() < count) {
      for (unsigned i = 0; i < 200; ++i) {
        const std::uint64_t known = there.load();
        const std::uint64_t key = random() % (known + 1);
        if (mine.get(key).value_or(~key) != ~key || (key < known && !mine.contains(key))) ++wrong;
      }
      this_fiber::yield();
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(mine.size(), count);
}

TEST_F(numbers_test, what_is_replaced_is_always_there) {
  hash_map<std::uint64_t, std::uint64_t> mine(*farheap_);
  for (std::uint64_t key = 0; key < 4; ++key) mine.put(key, 0);
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> missed{0};
  work_together(*farheap_, 4, [&](unsigned worker) {
    if (worker == 1) {
      for (std::uint64_t i = 0; i < 150'000; ++i) mine.put(i % 4, i);
      is_over.store(true);
    }
    while (!is_over.load()) {
      for (std::uint64_t i = 0; i < 400; ++i) missed += mine.contains(i % 4) ? 0u : 1u;
      this_fiber::yield();
    }
  });
  EXPECT_EQ(missed.load(), 0u);
}

TEST_F(numbers_test, copies_are_of_before_or_after_an_update) {
  // Few keys, and updates that take a while: get() of a string waits, that of a record looks again.
  hash_map<std::uint64_t, string> texts(*farheap_);
  hash_map<std::uint64_t, record> records(*farheap_);
  constexpr std::uint64_t keys = 3;
  for (std::uint64_t key = 0; key < keys; ++key) {
    texts.put(key, std::string(100, 'a'));
    records.try_emplace(key, key, 0u);
  }
  std::atomic<std::uint64_t> wrong{0};
  work_together(*farheap_, 4, [&](unsigned worker) {
    for (std::uint64_t step = 0; step < 4000; ++step) {
      const std::uint64_t key = step % keys;
      if (worker < 2) {
        const std::uint64_t version = step % 26;
        records.update(key, [&](record& value) {
          for (std::uint64_t i = 0; i < 12; ++i) {
            value.words[i] = record(key, version).words[i];
            if (i == 5) std::this_thread::yield();
          }
        });
        texts.update(key, [&](string& value) {
          value.clear();
          value.append(*farheap_, std::string(50, static_cast<char>('a' + version)));
          std::this_thread::yield();
          value.append(*farheap_, std::string(50, static_cast<char>('a' + version)));
        });
      } else {
        if (!records.get(key)->is_of(key, 26)) ++wrong;
        const std::string text = texts.get(key).value_or("");
        if (text.size() != 100 || text != std::string(100, text[0])) ++wrong;
      }
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
}

TEST_F(numbers_test, a_cache_keeps_its_limit_under_many) {
  std::atomic<std::uint64_t> evicted{0};
  hash_map<std::uint64_t, record> mine(*farheap_, {.entries = 1000}, [&](const std::uint64_t key, const record& value) {
    evicted += value.is_of(key, 10) ? 1u : 1'000'000u;
  });
  std::atomic<std::uint64_t> inserted{0};
  work_together(*farheap_, 6, [&](unsigned worker) {
    std::mt19937_64 random(worker);
    for (unsigned step = 0; step < 5000; ++step) {
      const std::uint64_t key = random() % 5000;
      if (const std::optional<record> found = mine.get(key)) {
        EXPECT_TRUE(found->is_of(key, 10));
      } else if (mine.try_emplace(key, key, random() % 10)) {
        ++inserted;
      }
      EXPECT_LE(mine.size(), 1000u + 6);
    }
  });
  EXPECT_LE(mine.size(), 1000u);
  EXPECT_EQ(inserted.load() - evicted.load(), mine.size());
}

TEST_F(numbers_test, a_shared_lock_keeps_writers_apart) {
  detail::shared_lock lock;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::atomic<std::uint64_t> wrong{0};
  work_together(*farheap_, 8, [&](unsigned worker) {
    for (unsigned step = 0; step < 3000; ++step) {
      if ((worker + step) % 4 == 0) {
        const std::lock_guard guard(lock);
        ++first;
        if (step % 64 == 0) this_fiber::yield();
        second = first;
      } else {
        const std::shared_lock guard(lock);
        const std::uint64_t before = first;
        if (step % 8 == 0) this_fiber::yield();
        if (first != before || first != second) ++wrong;
      }
    }
  });
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(first, 8u * 3000 / 4);
}

}  // namespace
}  // namespace far
