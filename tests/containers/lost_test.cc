// Containers of which a part is lost: they throw, stay valid, and can be destroyed. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/units.h"
#include "far/hash_map.h"
#include "far/list.h"
#include "far/page_lost.h"
#include "far/queue.h"
#include "far/string.h"
#include "far/unique_ptr.h"
#include "far/vector.h"
#include "tests/containers/elements.h"
#include "tests/support/failing_tier.h"

namespace far {
namespace {

using test::fragile;

struct large_element {
  fragile first;
  std::array<std::byte, 150'000> between{};
  fragile last;
};

}  // namespace

template <>
inline constexpr bool is_relocatable<large_element> = true;

namespace {

class lost_containers : public heap::real_pager_test<> {
 protected:
  void SetUp() override {
    heap::real_pager_test<>::SetUp();
    fragile::living = 0;
  }

  // Everything is remote. The pages that `access` needs are lost; the far tier works again afterwards.
  template <typename Access>
  void lose(Access access) {
    farheap().evict_all();
    heap::failing_tier().set_failing_reads_per_million(1'000'000);
    EXPECT_THROW(access(), page_lost);
    heap::failing_tier().set_failing_reads_per_million(0);
  }
  runtime& farheap() {
    if (home_ == nullptr) home_ = std::make_unique<runtime>(heap::small_runtime());
    return *home_;
  }

 private:
  std::unique_ptr<runtime> home_;
};

template <typename Container>
std::size_t lost_elements(const Container& all) {
  std::size_t lost = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool is_there = detail::unless_lost([&] {
      const scope here(all.home().home());
      EXPECT_EQ(all.deref(here, i).number, i);
    });
    lost += is_there ? 0 : 1;
  }
  return lost;
}

template <typename Container>
void lose_a_part_of_a_vector(Container all, std::size_t most_lost, auto lose) {
  for (std::uint64_t i = 0; i < 20'000; ++i) all.emplace_back(i);
  lose([&] {
    const scope here(all.home().home());
    static_cast<void>(all.deref(here, 10'000));
  });
  const std::size_t lost = lost_elements(all);
  EXPECT_GE(lost, 1u);
  EXPECT_LE(lost, most_lost);
  all.emplace_back(20'000);
  EXPECT_EQ(all.size(), 20'001u);
  EXPECT_THROW(static_cast<void>(all.clone()), page_lost);
  EXPECT_THROW(all.erase(9'000), page_lost);
  EXPECT_EQ(all.size(), 20'001u);
  while (all.size() > 9'000) all.pop_back();  // lost elements go, too
  EXPECT_EQ(fragile::living, static_cast<int>(9'000 + lost - lost_elements(all))) << "whose destructors cannot run";
  all.clear();
  EXPECT_EQ(fragile::living, static_cast<int>(lost));
  for (std::uint64_t i = 0; i < 20'000; ++i) all.emplace_back(i);
  EXPECT_EQ(lost_elements(all), 0u);
  all.home().home().validate();
}

TEST_F(lost_containers, vector_of_pages) {
  lose_a_part_of_a_vector(vector<fragile>(farheap()), page_bytes / sizeof(fragile),
                          [this](auto access) { lose(access); });
}
TEST_F(lost_containers, vector_of_small_groups) {
  // A page of pointers to groups.
  lose_a_part_of_a_vector(vector<fragile, 8>(farheap()), 8 * page_bytes / sizeof(void*),
                          [this](auto access) { lose(access); });
}

// Larger than what a scope holds.
TEST_F(lost_containers, a_vector_whose_first_object_grows) {
  vector<fragile, 1 << 14> all(farheap());
  for (std::uint64_t i = 0; i < 8'192; ++i) all.emplace_back(i);
  EXPECT_EQ(all.capacity(), 8'192u);
  lose([&] { static_cast<void>(all.read(8'000)); });
  EXPECT_THROW(all.emplace_back(8'192), page_lost);
  EXPECT_EQ(all.size(), 8'192u);
  EXPECT_EQ(lost_elements(all), page_bytes / sizeof(fragile));
  while (all.size() > 7'000) all.pop_back();
  all.shrink_to_fit();
  EXPECT_EQ(lost_elements(all), 0u);
  farheap().validate();
}

// A walk asks for what is ahead of it. That this is lost is no reason to refuse what is there.
TEST_F(lost_containers, chunks_before_a_lost_one) {
  vector<fragile, 8> all(farheap());
  for (std::uint64_t i = 0; i < 20'000; ++i) all.emplace_back(i);
  lose([&] {
    const scope here(farheap());
    static_cast<void>(all.deref(here, 10'000));
  });
  const std::size_t lost = lost_elements(all);
  std::size_t refused = 0;
  for (std::size_t first = 0; first < all.size(); first += 8) {
    const bool is_there = detail::unless_lost([&] {
      const scope here(farheap());
      EXPECT_EQ(all.chunk(here, first, 8).front().number, first);
    });
    refused += is_there ? 0 : 8;
  }
  EXPECT_EQ(refused, lost);
  std::size_t seen = 0;
  static_cast<void>(detail::unless_lost([&] {
    const scope here(farheap());
    for (const fragile& one : all.range(here)) {
      EXPECT_EQ(one.number, seen);
      ++seen;
    }
  }));
  EXPECT_GT(seen, 9'000u - lost);
  EXPECT_EQ(seen % 8, 0u);
  const scope here(farheap());
  EXPECT_EQ(detail::unless_lost([&] { static_cast<void>(all.deref(here, seen - 1)); }), true);
  EXPECT_EQ(detail::unless_lost([&] { static_cast<void>(all.deref(here, seen)); }), false) << "it ends there";
}

TEST_F(lost_containers, list) {
  list<fragile> all(farheap());
  for (std::uint64_t i = 0; i < 10'000; ++i) all.emplace_back(i);
  auto middle = all.begin_position();
  {
    const scope here(farheap());
    auto at = all.from(here, middle);
    for (int i = 0; i < 5'000; ++i) ++at;
    middle = at.where();
  }
  lose([&] {
    const scope here(farheap());
    static_cast<void>(all.deref(here, middle));
  });
  EXPECT_THROW(all.erase(middle), page_lost);
  EXPECT_THROW(all.move_before(all.begin_position(), middle), page_lost);
  EXPECT_THROW(all.emplace(middle, 7u), page_lost);
  EXPECT_EQ(all.size(), 10'000u);
  // Both ends are whole.
  all.pop_front();
  all.pop_back();
  all.emplace_front(1u);
  all.emplace_back(2u);
  std::uint64_t seen = 0;
  EXPECT_THROW(
      {
        const scope here(farheap());
        for (const fragile& one : all.range(here)) {
          EXPECT_EQ(one.number, seen == 0 ? 1 : seen);
          ++seen;
        }
      },
      page_lost);
  EXPECT_GT(seen, 4'000u);
  all.clear();
  EXPECT_GE(fragile::living, 1);
  EXPECT_LE(fragile::living, 256) << "those of one page";
  for (std::uint64_t i = 0; i < 10'000; ++i) all.emplace_back(i);
  farheap().validate();
}

// A node that was erased, and is to be used again, may be lost, and so may those that were never used.
TEST_F(lost_containers, list_passes_over_lost_room) {
  list<fragile> all(farheap());
  for (std::uint64_t i = 0; i < 10; ++i) all.emplace_back(i);
  while (!all.empty()) all.pop_front();
  lose([&] {
    all.emplace_back(1u);  // in another page, so that does not throw
    throw page_lost(nullptr);
  });
  EXPECT_EQ(farheap().statistics().lost_pages, 1u);
  EXPECT_EQ(all.size(), 1u);
  all.emplace_back(2u);
  const scope here(farheap());
  EXPECT_EQ(all.front(here).number, 1u);
  EXPECT_EQ(all.back(here).number, 2u);
}

// The end of an element is lost, beyond what a scope holds.
TEST_F(lost_containers, large_elements) {
  vector<large_element> in_vector(farheap());
  list<large_element> in_list(farheap());
  for (std::uint64_t i = 0; i < 3; ++i) in_vector.emplace_back();
  for (std::uint64_t i = 0; i < 3; ++i) in_list.emplace_back();
  const auto second = [&] {
    const scope here(farheap());
    auto at = in_list.from(here, in_list.begin_position());
    return (++at).where();
  }();
  farheap().evict_all();
  {
    const scope here(farheap());
    EXPECT_EQ(in_vector.deref(here, 1).first.number, 0u);
    EXPECT_EQ(in_list.deref(here, second).first.number, 0u);
    heap::failing_tier().set_failing_reads_per_million(1'000'000);
    EXPECT_THROW(static_cast<void>(in_vector.chunk(here, 1)), page_lost);
    EXPECT_THROW(in_list.erase(second), page_lost);
    heap::failing_tier().set_failing_reads_per_million(0);
  }
  EXPECT_EQ(farheap().statistics().lost_pages, 2u);
  EXPECT_EQ(fragile::living, 12);
  in_vector.clear();
  EXPECT_EQ(fragile::living, 8);
  in_list.clear();
  EXPECT_EQ(fragile::living, 4) << "the destructors of what is lost cannot run";
  farheap().validate();
}

TEST_F(lost_containers, queue) {
  queue<fragile> all(farheap());
  for (std::uint64_t i = 0; i < 20'000; ++i) all.emplace(i);
  lose([&] { static_cast<void>(all.take()); });
  EXPECT_EQ(all.size(), 20'000u);
  std::uint64_t lost = 0;
  while (all.size() > 10) {
    const std::uint64_t next = 20'000 - all.size();
    if (!detail::unless_lost([&] { EXPECT_EQ(all.take().number, next); })) {
      all.pop();
      ++lost;
    }
  }
  EXPECT_GE(lost, 1u);
  EXPECT_LE(lost, 256u);
  // Lost room is not used again.
  for (std::uint64_t i = 0; i < 50'000; ++i) {
    all.emplace(i);
    all.pop();
  }
  all.clear();
  EXPECT_EQ(fragile::living, static_cast<int>(lost));
  farheap().validate();
}

// The keys whose entries are lost.
template <typename Map, typename KeyOf>
std::vector<std::uint64_t> lost_keys(const Map& all, std::uint64_t count, const KeyOf& key_of) {
  std::vector<std::uint64_t> lost;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!detail::unless_lost([&] { EXPECT_TRUE(all.contains(key_of(i))) << i; })) lost.push_back(i);
  }
  return lost;
}

// A map goes on without the entries that are lost: each can be erased or replaced, and the others are all there.
TEST_F(lost_containers, entries_of_a_map) {
  const auto same = [](std::uint64_t i) { return i; };
  constexpr std::uint64_t count = 5'000;
  hash_map<std::uint64_t, fragile> all(farheap());
  for (std::uint64_t i = 0; i < count; ++i) all.put(i, i);
  lose([&] { static_cast<void>(all.get(2'500u)); });
  const std::vector<std::uint64_t> lost = lost_keys(all, count, same);
  ASSERT_GE(lost.size(), 3u);
  EXPECT_LE(lost.size(), page_bytes / 32);
  EXPECT_THROW(static_cast<void>(all.update(lost[0], [](fragile&) {})), page_lost);
  EXPECT_THROW(static_cast<void>(all.insert(lost[0], 1u)), page_lost);
  std::size_t visited = 0;
  EXPECT_THROW(all.for_each([&](std::uint64_t key, const fragile& value) {
    EXPECT_EQ(value.number, key);
    ++visited;
  }),
               page_lost);
  EXPECT_EQ(visited, count - lost.size());
  EXPECT_EQ(all.size(), count);
  EXPECT_TRUE(all.erase(lost[0]));
  EXPECT_FALSE(all.erase(lost[0]));
  EXPECT_FALSE(all.contains(lost[0]));
  EXPECT_TRUE(all.insert(lost[0], lost[0]));
  for (std::size_t i = 1; i < lost.size(); ++i) all.put(lost[i], lost[i]);
  EXPECT_EQ(all.size(), count);
  EXPECT_TRUE(lost_keys(all, count, same).empty());
  visited = 0;
  all.for_each([&](std::uint64_t, const fragile&) { ++visited; });
  EXPECT_EQ(visited, count);
  all.clear();
  EXPECT_EQ(all.entry_bytes(), 0u);
  {
    const hash_map<std::uint64_t, fragile> taken(std::move(all));
  }
  EXPECT_EQ(fragile::living, static_cast<int>(lost.size())) << "whose destructors cannot run";
  fragile::living = 0;
  farheap().validate();
}

// What the elements owned is never destroyed, and its headers go on naming words in the list's pages. So these are
// nobody else's, and nobody looks at them when their runtime is gone.
TEST_F(lost_containers, a_list_of_owners_in_another_runtime) {
  runtime& owned = farheap();
  {
    runtime other(heap::small_runtime());  // whose tier fails: the one made last
    list<unique_ptr<fragile>> owners(other);
    for (std::uint64_t i = 0; i < 5'000; ++i) owners.push_back(make_unique<fragile>(owned, i));
    other.evict_all();
    heap::failing_tier().set_failing_reads_per_million(1'000'000);
    {
      const scope there(other);
      EXPECT_THROW(static_cast<void>(owners.front(there)), page_lost);
    }
    owners.clear();
    heap::failing_tier().set_failing_reads_per_million(0);
    EXPECT_GT(other.statistics().abandoned_objects, 0u);
    EXPECT_GT(fragile::living, 0);
    list<unique_ptr<fragile>> later(other);
    for (std::uint64_t i = 0; i < 5'000; ++i) later.push_back(make_unique<fragile>(owned, i));
    static_cast<void>(owned.evacuate(0));
    owned.validate();
    EXPECT_EQ(later.size(), 5'000u);
  }
  static_cast<void>(owned.evacuate(0));
  owned.validate();
}

// A cache evicts what is lost as it does everything else, and calls nobody for it. Texts of keys may be lost, too.
TEST_F(lost_containers, entries_of_a_cache) {
  const auto key_of = [](std::uint64_t i) {
    return "a key that does not lie in the string itself: " + std::to_string(i);
  };
  constexpr std::uint64_t count = 1'000;
  std::size_t evicted = 0;
  hash_map<string, string> all(farheap(), {.bytes = 800'000}, [&](const string& key, const string& value) {
    EXPECT_GT(key.size(), 40u);
    // What the callback reads may be lost, though the entry is not.
    static_cast<void>(detail::unless_lost([&] { EXPECT_EQ(value.str(), std::string(200, 'v')); }));
    ++evicted;
  });
  for (std::uint64_t i = 0; i < count; ++i) all.put(key_of(i), std::string(200, 'v'));
  EXPECT_EQ(evicted, 0u);
  lose([&] { static_cast<void>(all.contains(key_of(500))); });
  {
    // The text of a key whose entry is there.
    const scope here(farheap());
    EXPECT_NE(all.find(here, key_of(100)), nullptr);
  }
  const std::vector<std::uint64_t> lost = lost_keys(all, count, key_of);
  ASSERT_GE(lost.size(), 3u);
  EXPECT_TRUE(all.erase(key_of(lost[0])));
  EXPECT_TRUE(all.put(key_of(lost[1]), std::string(200, 'v')));
  EXPECT_TRUE(all.contains(key_of(lost[1])));
  for (std::uint64_t i = count; i < 20 * count; ++i) {
    EXPECT_TRUE(all.put(key_of(i), std::string(200, 'v'))) << "which throws nothing";
  }
  EXPECT_LE(all.entry_bytes(), 800'000u);
  EXPECT_LT(all.size() + evicted, 20 * count);
  EXPECT_GE(all.size() + evicted, 20 * count - lost.size());
  for (std::uint64_t i = 0; i < count; ++i) EXPECT_NO_THROW(static_cast<void>(all.contains(key_of(i)))) << i;
  all.clear();
  EXPECT_EQ(all.entry_bytes(), 0u);
}

// As when a server lends its memory block by block, and each has to be asked for.
TEST_F(lost_containers, wait_for_slots_when_they_are_to_leave) {
  vector<std::uint64_t> all(farheap());
  for (std::uint64_t i = 0; i < 1'000'000; ++i) all.push_back(i);
  heap::failing_tier().lend_later(500);
  farheap().evict_all();
  EXPECT_LT(farheap().statistics().local_bytes, std::uint64_t{1} << 20);
  heap::failing_tier().lend_later(1'000'000'000);
  const std::uint64_t changed = 77;
  for (std::size_t i = 0; i < all.size(); i += 512) all.write(i, changed);
  const auto began = std::chrono::steady_clock::now();
  farheap().evict_all();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::minutes(4)) << "not for ever";
  heap::failing_tier().lend_later(0);
  EXPECT_EQ(all.read(512), changed);
  EXPECT_EQ(all.read(513), 513u);
  farheap().validate();
}

}  // namespace
}  // namespace far
