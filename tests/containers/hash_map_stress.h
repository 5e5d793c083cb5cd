// far::hash_map under many fibers and threads at a time, while pages leave and objects move: over the real pager
// (hash_map_threads_test.cc) and over the simulated one, where sanitizers see it (simulated_stress_test.cc).
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "far/detail/left_entries.h"
#include "far/detail/shared_lock.h"
#include "far/fiber.h"
#include "far/hash_map.h"
#include "far/runtime.h"
#include "far/string.h"
#include "far/task.h"

namespace far::stress {

struct sizes {
  unsigned steps = 12'000;       // of each worker; a multiple of 48
  std::uint64_t many = 150'000;  // entries of a map that grows, or changes
};

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

inline void readers_and_writers_see_whole_values(runtime& farheap, [[maybe_unused]] const sizes& chosen) {
  hash_map<std::uint64_t, record> mine(farheap);
  constexpr std::uint64_t keys = 3000;
  constexpr unsigned workers = 8;
  constexpr std::uint64_t versions = 30;
  std::atomic<std::uint64_t> wrong{0};
  std::vector<std::int64_t> inserted(workers);
  {
    const disturber disturbing(farheap);
    work_together(farheap, workers, [&](unsigned worker) {
      std::mt19937_64 random(worker);
      for (unsigned step = 0; step < chosen.steps; ++step) {
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

inline void what_was_found_stays_until_the_scope_ends(runtime& farheap, [[maybe_unused]] const sizes& chosen) {
  // Values are replaced, never changed in place, so references must see whole values throughout their scopes.
  hash_map<string, string> mine(farheap);
  constexpr std::uint64_t keys = 400;
  const auto key_of = [](std::uint64_t number) { return "a key that is not inline " + std::to_string(number); };
  const auto is_value = [](std::string_view text) {
    return text.size() > 30 && text.substr(1) == std::string(text.size() - 1, text[0]);
  };
  for (std::uint64_t i = 0; i < keys; ++i) mine.put(key_of(i), std::string(40, 'x'));
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> found_some{0};
  {
    const disturber disturbing(farheap);
    work_together(farheap, 6, [&](unsigned worker) {
      std::mt19937_64 random(worker);
      for (unsigned step = 0; step < chosen.steps / 3; ++step) {
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
        const scope here(farheap);
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
  EXPECT_GT(found_some.load(), chosen.steps / 12);
}

inline void grows_under_readers(runtime& farheap, [[maybe_unused]] const sizes& chosen) {
  hash_map<std::uint64_t, std::uint64_t> mine(farheap);
  const std::uint64_t count = chosen.many;
  std::atomic<std::uint64_t> there{0};
  std::atomic<std::uint64_t> wrong{0};
  work_together(farheap, 4, [&](unsigned worker) {
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

inline void what_is_replaced_is_always_there(runtime& farheap, [[maybe_unused]] const sizes& chosen) {
  hash_map<std::uint64_t, std::uint64_t> mine(farheap);
  for (std::uint64_t key = 0; key < 4; ++key) mine.put(key, 0);
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> missed{0};
  work_together(farheap, 4, [&](unsigned worker) {
    if (worker == 1) {
      for (std::uint64_t i = 0; i < chosen.many; ++i) mine.put(i % 4, i);
      is_over.store(true);
    }
    while (!is_over.load()) {
      for (std::uint64_t i = 0; i < 400; ++i) missed += mine.contains(i % 4) ? 0u : 1u;
      this_fiber::yield();
    }
  });
  EXPECT_EQ(missed.load(), 0u);
}

inline void copies_are_of_before_or_after_an_update(runtime& farheap, [[maybe_unused]] const sizes& chosen) {
  // Few keys, and updates that take a while: get() of a string waits, that of a record looks again.
  hash_map<std::uint64_t, string> texts(farheap);
  hash_map<std::uint64_t, record> records(farheap);
  constexpr std::uint64_t keys = 3;
  for (std::uint64_t key = 0; key < keys; ++key) {
    texts.put(key, std::string(100, 'a'));
    records.try_emplace(key, key, 0u);
  }
  std::atomic<std::uint64_t> wrong{0};
  work_together(farheap, 4, [&](unsigned worker) {
    for (std::uint64_t step = 0; step < chosen.steps / 3; ++step) {
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
          value.append(farheap, std::string(50, static_cast<char>('a' + version)));
          std::this_thread::yield();
          value.append(farheap, std::string(50, static_cast<char>('a' + version)));
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

inline void a_cache_keeps_its_limit_under_many(runtime& farheap, [[maybe_unused]] const sizes& chosen) {
  std::atomic<std::uint64_t> evicted{0};
  hash_map<std::uint64_t, record> mine(farheap, {.entries = 1000}, [&](const std::uint64_t key, const record& value) {
    evicted += value.is_of(key, 10) ? 1u : 1'000'000u;
  });
  std::atomic<std::uint64_t> inserted{0};
  work_together(farheap, 6, [&](unsigned worker) {
    std::mt19937_64 random(worker);
    for (unsigned step = 0; step < chosen.steps * 5 / 12; ++step) {
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

// Some note while others take: each note is taken once. In rounds of fewer notes than there is room for.
inline void no_note_is_lost(const sizes& chosen) {
  constexpr std::uint64_t round = 8'000, noters = 2;
  detail::left_entries notes;
  std::uint64_t wrong = 0;
  for (std::uint64_t done = 0; done < chosen.many * 8; done += round) {
    std::vector<std::atomic<std::uint32_t>> taken(round);
    const auto take = [&] { notes.take_all([&](detail::hashed note) { ++taken[note.bits() >> 1]; }); };
    std::atomic<unsigned> begun{0};
    std::atomic<unsigned> ended{0};
    std::vector<std::thread> threads;
    for (std::uint64_t noter = 0; noter < noters; ++noter) {
      threads.emplace_back([&, noter] {
        ++begun;
        while (begun.load() <= noters) std::this_thread::yield();
        for (std::uint64_t i = noter; i < round; i += noters) notes.note(detail::hashed::of_bits(i << 1));
        ++ended;
      });
    }
    threads.emplace_back([&] {
      ++begun;
      while (ended.load() < noters) take();
    });
    for (std::thread& one : threads) one.join();
    take();
    for (const std::atomic<std::uint32_t>& one : taken) wrong += one.load() == 1 ? 0u : 1u;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_FALSE(notes.has_any());
}

// A map of what is in local memory drops entries that leave, but never one that it has not told of.
inline void entries_leave_under_many(runtime& farheap, const sizes& chosen) {
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<std::uint64_t> wrong{0};
  hash_map<std::uint64_t, record> mine(farheap, while_local{}, {}, [&](const std::uint64_t key, const record& value) {
    ++dropped;
    if (!value.is_of(key, 10)) ++wrong;
  });
  std::atomic<std::uint64_t> inserted{0};
  {
    const disturber disturbing(farheap);
    work_together(farheap, 6, [&](unsigned worker) {
      std::mt19937_64 random(worker);
      for (unsigned step = 0; step < chosen.steps; ++step) {
        const std::uint64_t key = random() % 5000;
        if (const std::optional<record> found = mine.get(key)) {
          if (!found->is_of(key, 10)) ++wrong;
        } else if (mine.try_emplace(key, key, random() % 10)) {
          ++inserted;
        }
      }
    });
  }
  farheap.evict_all();
  if (mine.put(0, record(0, 1))) ++inserted;
  EXPECT_GT(dropped.load(), 0u);
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_EQ(inserted.load() - dropped.load(), mine.size());
}

inline void a_shared_lock_keeps_writers_apart(runtime& farheap, [[maybe_unused]] const sizes& chosen) {
  detail::shared_lock lock;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::atomic<std::uint64_t> wrong{0};
  work_together(farheap, 8, [&](unsigned worker) {
    for (unsigned step = 0; step < chosen.steps / 4; ++step) {
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
  EXPECT_EQ(first, 8u * (chosen.steps / 4) / 4);
}

}  // namespace far::stress
