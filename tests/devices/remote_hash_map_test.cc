// far::remote_hash_map beside std::unordered_map, on real servers and in process. Needs permission for userfaultfd.
#include "far/remote_hash_map.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/units.h"
#include "tests/devices/built.h"
#include "tests/devices/device_server.h"
#include "tests/support/real_pager.h"
#include "tests/support/scratch_folder.h"

namespace far {
namespace {

using testing_support::device_server;

struct wide {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 60> same{};
};
wide wide_of(std::uint64_t number) {
  wide made{number, {}};
  made.same.fill(number);
  return made;
}
bool is_whole(const wide& one) {
  for (const std::uint64_t part : one.same) {
    if (part != one.number) return false;
  }
  return true;
}

std::string text_of(std::uint64_t number) {
  return std::string(number % 400, static_cast<char>('a' + number % 26)) + std::to_string(number);
}

std::unique_ptr<device_server> start(std::vector<std::string> more = {}) {
  std::vector<std::string> options{"--memory", "256M", "--grace", "120s", "--plugin", HASH_TABLE};
  options.insert(options.end(), more.begin(), more.end());
  return std::make_unique<device_server>(options);
}

struct kind {
  const char* name;
  table_caching caching;
};
class RemoteHashMap : public heap::real_pager_test<::testing::TestWithParam<kind>> {
 protected:
  [[nodiscard]] remote_hash_map_options options() const {
    remote_hash_map_options chosen;
    chosen.caching = GetParam().caching;
    chosen.device.deadline = std::chrono::seconds(30);
    chosen.device.room_bytes = 64 * mib;
    return chosen;
  }
  // Makes the far heap crowded, so that entries leave all the time.
  void crowd(runtime& farheap, std::uint64_t step) {
    if (step % 200 == 0) farheap.evict_all();
  }

  // Random operations on `mine` and on std::unordered_map; calls `half_way` once.
  template <typename Act>
  void compare(runtime& farheap, remote_hash_map<std::uint64_t, wide>& mine, std::uint64_t keys, Act half_way);
};

template <typename Act>
void RemoteHashMap::compare(runtime& farheap, remote_hash_map<std::uint64_t, wide>& mine, std::uint64_t keys,
                            Act half_way) {
  constexpr std::uint64_t steps = 3'000;
  std::unordered_map<std::uint64_t, std::uint64_t> model;
  std::mt19937_64 random(23);
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (step == steps / 2) half_way();
    crowd(farheap, step);
    const std::uint64_t key = random() % keys;
    const std::uint64_t fresh = random();
    const auto expected = model.find(key);
    const bool is_there = expected != model.end();
    switch (random() % 8) {
      case 0: {
        ASSERT_EQ(mine.put(key, wide_of(fresh)), !is_there) << step;
        model[key] = fresh;
        break;
      }
      case 1:
        ASSERT_EQ(mine.insert(key, wide_of(fresh)), !is_there) << step;
        model.emplace(key, fresh);
        break;
      case 2:
        ASSERT_EQ(mine.update(key, [&](wide& value) { value = wide_of(value.number + 1); }), is_there) << step;
        if (is_there) ++expected->second;
        break;
      case 3: ASSERT_EQ(mine.erase(key), model.erase(key) > 0) << step; break;
      case 4: {
        const scope here(farheap);
        std::array<std::uint64_t, 40> some;
        for (std::uint64_t& one : some) one = random() % keys;
        std::array<const wide*, 40> found;
        mine.find_many(here, std::span<const std::uint64_t>(some), std::span(found));
        for (std::size_t i = 0; i < some.size(); ++i) {
          const auto one = model.find(some[i]);
          ASSERT_EQ(found[i] != nullptr, one != model.end()) << step << ": " << some[i];
          if (found[i] != nullptr) {
            ASSERT_TRUE(found[i]->number == one->second && is_whole(*found[i])) << step << ": " << some[i];
          }
        }
        break;
      }
      case 5: {
        const scope here(farheap);
        const wide* const found = mine.find(here, key);
        ASSERT_EQ(found != nullptr, is_there) << step;
        if (found != nullptr) {
          ASSERT_TRUE(found->number == expected->second && is_whole(*found)) << step;
        }
        break;
      }
      default: {
        const std::optional<wide> found = mine.get(key);
        ASSERT_EQ(found.has_value(), is_there) << step;
        if (found) {
          ASSERT_TRUE(found->number == expected->second && is_whole(*found)) << step;
        }
      }
    }
    if (step % 1'000 == 0) {
      ASSERT_EQ(mine.size(), model.size()) << step;
    }
  }
  ASSERT_EQ(mine.size(), model.size());
  for (const auto& [key, number] : model) ASSERT_EQ(mine.get(key).value_or(wide{}).number, number) << key;
  mine.clear();
  ASSERT_TRUE(mine.empty());
  ASSERT_FALSE(mine.contains(model.begin()->first));
}

TEST_P(RemoteHashMap, IsAMapInProcess) {
  runtime farheap(heap::small_runtime());
  remote_hash_map<std::uint64_t, wide> mine(farheap, "memory:?plugin=" HASH_TABLE, options());
  compare(farheap, mine, 1'500, [] {});
}

TEST_P(RemoteHashMap, IsAMapThroughSharedMemory) {
  const std::string name = "far_remote_hash_map_" + std::to_string(getpid());
  const auto server = start({"--shm", name});
  runtime farheap(heap::small_runtime());
  remote_hash_map<std::uint64_t, wide> mine(farheap, "shm:" + name, options());
  compare(farheap, mine, 1'500, [] {});
}

TEST_P(RemoteHashMap, IsAMapThatOutlivesAServer) {
  std::vector<std::unique_ptr<device_server>> servers;
  for (int i = 0; i < 2; ++i) servers.push_back(start());
  runtime farheap(heap::small_runtime());
  remote_hash_map<std::uint64_t, wide> mine(
      farheap, "tcp://" + servers[0]->host() + "," + servers[1]->host() + "?copies=2&timeout=10s", options());
  EXPECT_EQ(mine.copies(), 2u);
  compare(farheap, mine, 1'500, [&] { servers[1]->signal(SIGKILL); });
}

// Connections end all the time, so that calls are repeated whose answers were lost.
TEST_P(RemoteHashMap, IsAMapBehindABadConnection) {
  const auto server = start();
  testing_support::cutting_proxy proxy(server->port());
  runtime farheap(heap::small_runtime());
  // On a fast machine a round ends before that many cuts.
  for (int round = 0; round < 50 && proxy.cuts() <= 10; ++round) {
    remote_hash_map<std::uint64_t, wide> mine(farheap, "tcp://" + proxy.host() + "?timeout=60s", options());
    proxy.cut_after(std::chrono::milliseconds(20));
    compare(farheap, mine, 1'500, [] {});
    proxy.cut_after(std::chrono::milliseconds(0));
  }
  EXPECT_GT(proxy.cuts(), 10u);
}

TEST_P(RemoteHashMap, OneRoundTripForManyKeys) {
  runtime farheap(heap::small_runtime());
  remote_hash_map<std::uint64_t, std::uint64_t> mine(farheap, "memory:?plugin=" HASH_TABLE, options());
  constexpr std::uint64_t count = 1'000;
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(mine.put(i, ~i));
  farheap.evict_all();
  EXPECT_TRUE(mine.put(count, std::uint64_t{0}));                // drops what is not here any more
  EXPECT_EQ(mine.get(std::uint64_t{count * 10}), std::nullopt);  // sends it to the table
  std::vector<std::uint64_t> keys;
  for (std::uint64_t i = 0; i < 2 * count; i += 2) keys.push_back(i);
  const std::uint64_t before = mine.statistics().calls;
  const std::size_t here = mine.statistics().here;
  std::vector<std::optional<std::uint64_t>> found(keys.size());
  mine.get_many(std::span<const std::uint64_t>(keys), std::span(found));
  EXPECT_LT(here, count / 2);
  EXPECT_EQ(mine.statistics().calls, before + 1);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::uint64_t key = keys[i];
    ASSERT_EQ(found[i], key < count    ? std::optional(~key)
                        : key == count ? std::optional(std::uint64_t{0})
                                       : std::nullopt)
        << key;
  }
  for (std::uint64_t i = 0; i < count; i += 2) ASSERT_EQ(mine.get(i), ~i);
  EXPECT_EQ(mine.statistics().calls, before + 1) << "what has come is here";
  const std::span<const std::uint64_t> some(keys);
  EXPECT_THROW(mine.get_many(some, std::span(found).first(some.size() - 1)), std::invalid_argument);
  std::vector<const std::uint64_t*> places(some.size() - 1);
  const scope now(farheap);
  EXPECT_THROW(mine.find_many(now, some, std::span(places)), std::invalid_argument);
}

// What is here costs no call, so the server may be gone. Changes of it are calls of an inclusive map only.
TEST_P(RemoteHashMap, WhatIsHereNeedsNoServer) {
  const auto server = start();
  runtime farheap(heap::small_runtime());
  remote_hash_map<std::uint64_t, std::uint64_t> mine(farheap, "tcp://" + server->host() + "?timeout=5s", options());
  for (std::uint64_t i = 0; i < 50; ++i) mine.put(i, i);
  server->signal(SIGKILL);
  for (std::uint64_t i = 0; i < 50; ++i) ASSERT_EQ(mine.get(i), i);
  EXPECT_THROW(static_cast<void>(mine.get(std::uint64_t{50})), device_error);
  if (GetParam().caching == table_caching::inclusive) {
    EXPECT_THROW(mine.put(std::uint64_t{1}, std::uint64_t{7}), device_error);
  }
}

TEST_P(RemoteHashMap, HoldsTexts) {
  using word = std::array<char, 16>;
  struct word_hash {
    std::size_t operator()(const word& key) const { return std::hash<std::string_view>()({key.data(), key.size()}); }
  };
  const auto word_of = [](std::uint64_t number) {
    word made{};
    const std::string text = "key " + std::to_string(number);
    std::ranges::copy(text, made.begin());
    return made;
  };
  runtime farheap(heap::small_runtime());
  remote_hash_map<word, string, word_hash> mine(farheap, "memory:?plugin=" HASH_TABLE, options());
  constexpr std::uint64_t count = 600;
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_TRUE(mine.put(word_of(i), text_of(i)));
  farheap.evict_all();
  for (std::uint64_t i = 0; i < count; i += 3) {
    ASSERT_TRUE(mine.update(word_of(i), [](std::string& text) { text += "!"; })) << i;
  }
  farheap.evict_all();
  for (std::uint64_t i = 0; i < count; ++i) {
    const scope here(farheap);
    const string* const found = mine.find(here, word_of(i));
    ASSERT_NE(found, nullptr) << i;
    ASSERT_EQ(found->view(here), text_of(i) + (i % 3 == 0 ? "!" : "")) << i;
  }
  EXPECT_EQ(mine.get(word_of(count)), std::nullopt);
  EXPECT_THROW(mine.put(word_of(count), std::string(1'000'000, 'v')), std::length_error);
  ASSERT_TRUE(mine.put(word_of(count), std::string(999'984, 'v')));
  farheap.evict_all();
  EXPECT_EQ(mine.get(word_of(count)), std::string(999'984, 'v'));
  EXPECT_EQ(mine.size(), count + 1);
}

// Calls without an answer happen once, before the next, and what they have taken from the table is not lost.
TEST_P(RemoteHashMap, CallsWithoutAnAnswerLoseNothing) {
  const auto server = start();
  runtime farheap(heap::small_runtime());
  remote_hash_map_options chosen = options();
  chosen.device.deadline = std::chrono::seconds(2);
  remote_hash_map<std::uint64_t, std::uint64_t> mine(farheap, "tcp://" + server->host() + "?timeout=1s", chosen);
  constexpr std::uint64_t count = 400;
  const auto patiently = [](auto call) {
    for (;;) {
      try {
        return call();
      } catch (const device_error& why) {
        EXPECT_EQ(why.why(), device_error::reason::unreachable) << why.what();
      }
    }
  };
  for (std::uint64_t i = 0; i < count; ++i) {
    static_cast<void>(patiently([&] { return mine.put(i, ~i); }));
  }
  farheap.evict_all();
  static_cast<void>(patiently([&] { return mine.put(count, std::uint64_t{0}); }));
  static_cast<void>(patiently([&] { return mine.get(10 * count); }));
  server->stop_with_devices();
  if (GetParam().caching == table_caching::exclusive) {
    EXPECT_THROW(static_cast<void>(mine.get(std::uint64_t{7})), device_error);
  } else {
    EXPECT_THROW(static_cast<void>(mine.put(std::uint64_t{7}, ~std::uint64_t{7})), device_error);
  }
  server->continue_with_devices();
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::optional<std::uint64_t> found = patiently([&] { return mine.get(i); });
    ASSERT_EQ(found, ~i) << i;
  }
  EXPECT_EQ(patiently([&] { return mine.size(); }), count + 1);
}

// The table refuses what it has no room for; whatever the map has said is there stays there.
TEST_P(RemoteHashMap, ATableThatIsFullLosesNothing) {
  if (SANITIZED) GTEST_SKIP() << "a sanitizer takes more addresses than any limit would permit";
  const auto server = start();
  runtime farheap(heap::small_runtime());
  remote_hash_map_options chosen = options();
  chosen.device.room_bytes = 16 * mib;
  using block = std::array<std::uint64_t, 500>;
  remote_hash_map<std::uint64_t, block> mine(farheap, "tcp://" + server->host() + "?timeout=30s", chosen);
  std::uint64_t count = 0;
  try {
    for (; count < 10'000; ++count) {
      crowd(farheap, count);
      mine.put(count, block{count});
    }
    FAIL() << "40 MB fit into 16";
  } catch (const device_error& why) {
    ASSERT_EQ(why.why(), device_error::reason::refused) << why.what();
  }
  EXPECT_GT(count, 1'000u);
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(mine.get(i).value_or(block{~i})[0], i);
  for (std::uint64_t i = 0; i < count; i += 2) ASSERT_TRUE(mine.erase(i)) << i;
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(mine.get(i).has_value(), i % 2 == 1) << i;
}

TEST_P(RemoteHashMap, ManyThreadsCount) {
  runtime farheap(heap::small_runtime());
  remote_hash_map<std::uint64_t, wide> mine(farheap, "memory:?plugin=" HASH_TABLE, options());
  constexpr std::uint64_t keys = 200;
  constexpr std::uint64_t rounds = 600;
  constexpr std::uint64_t threads = 4;
  for (std::uint64_t i = 0; i < keys; ++i) mine.put(i, wide{});
  std::atomic<bool> has_ended{false};
  std::thread evictor([&] {
    while (!has_ended) farheap.evict_all();
  });
  std::vector<std::thread> all;
  for (std::uint64_t thread = 0; thread < threads; ++thread) {
    all.emplace_back([&, thread] {
      for (std::uint64_t i = 0; i < rounds; ++i) {
        const std::uint64_t key = (i * 7 + thread) % keys;
        EXPECT_TRUE(mine.update(key, [](wide& one) { one = wide_of(one.number + 1); }));
        const std::optional<wide> seen = mine.get((key * 11) % keys);
        EXPECT_TRUE(seen && is_whole(*seen));
      }
    });
  }
  for (std::thread& one : all) one.join();
  has_ended = true;
  evictor.join();
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < keys; ++i) sum += mine.get(i).value_or(wide{}).number;
  EXPECT_EQ(sum, rounds * threads);
}

TEST_P(RemoteHashMap, WorksOnFibers) {
  runtime farheap(heap::small_runtime());
  remote_hash_map<std::uint64_t, std::uint64_t> mine(farheap, "memory:?plugin=" HASH_TABLE, options());
  std::vector<task<void>> tasks;
  for (std::uint64_t fiber = 0; fiber < 16; ++fiber) {
    tasks.push_back(farheap.spawn([&, fiber] {
      for (std::uint64_t i = 0; i < 40; ++i) {
        if (!mine.insert(i, std::uint64_t{1})) mine.update(i, [](std::uint64_t& value) { ++value; });
        const scope here(farheap);
        EXPECT_NE(mine.find(here, (i * fiber) % (i + 1)), nullptr);
      }
    }));
  }
  for (task<void>& one : tasks) one.join();
  for (std::uint64_t i = 0; i < 40; ++i) EXPECT_EQ(mine.get(i), 16u);
}

using RemoteHashMapPage = heap::real_pager_test<>;

TEST_F(RemoteHashMapPage, IsAsTheDocumentSays) {
  const scratch_folder folder;
  const std::string source = folder.path() + "/client.cc";
  const std::string client = folder.path() + "/client.so";
  std::ofstream(source) << testing_support::code_of(SOURCE "/docs/devices.md", "#include <far/remote_hash_map.h>")
                        << "extern \"C\" std::uint64_t run(far::runtime& farheap) {\n"
                           "  return count_words(farheap, \"memory:?plugin=" HASH_TABLE "\");\n}\n";
  testing_support::build(source, client);
  // The client's symbols of Farheap are those of this program.
  void* const loaded = dlopen(client.c_str(), RTLD_NOW);
  ASSERT_NE(loaded, nullptr) << dlerror();
  const auto run = reinterpret_cast<std::uint64_t (*)(runtime&)>(dlsym(loaded, "run"));
  ASSERT_NE(run, nullptr);
  runtime farheap(heap::small_runtime());
  EXPECT_EQ(run(farheap), 3u);
}

INSTANTIATE_TEST_SUITE_P(Both, RemoteHashMap,
                         ::testing::Values(kind{"Inclusive", table_caching::inclusive},
                                           kind{"Exclusive", table_caching::exclusive}),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace far
