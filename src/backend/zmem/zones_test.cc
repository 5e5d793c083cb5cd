#include "backend/zmem/zones.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace far::backend {
namespace {

// Objects with their contents; every one is looked at when it is freed.
class model {
 public:
  explicit model(zones& tested) : tested_(tested) {}

  [[nodiscard]] bool add(std::size_t length, bool promised = false) {
    const std::uint32_t owner = next_owner_++;
    object_place place;
    if (!tested_.allocate(length, owner, promised, &place)) return false;
    EXPECT_EQ(tested_.owner_of(place), owner);
    std::memset(tested_.bytes_of(place), static_cast<int>(owner & 0xff), length);
    objects_.push_back({place, length, owner});
    return true;
  }

  void remove(std::size_t index) {
    const object gone = objects_[index];
    check(gone);
    tested_.free(gone.place);
    objects_[index] = objects_.back();
    objects_.pop_back();
  }

  // As page_store does it.
  void compact(bool when_full) {
    const std::uint32_t zone = tested_.begin_compaction(when_full);
    if (zone == zones::none) return;
    for (object& held : objects_) {
      if (held.place.zone != zone) continue;
      object_place to;
      if (!tested_.allocate_like(held.place, held.owner, &to)) break;
      std::memcpy(tested_.bytes_of(to), tested_.bytes_of(held.place), held.length);
      tested_.free(held.place);
      held.place = to;
    }
    tested_.end_compaction(zone);
  }

  void check_all() const {
    for (const object& held : objects_) check(held);
    tested_.validate();
  }

  [[nodiscard]] std::size_t size() const { return objects_.size(); }
  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const object& held : objects_) sum += held.length;
    return sum;
  }

 private:
  struct object {
    object_place place;
    std::size_t length;
    std::uint32_t owner;
  };

  void check(const object& held) const {
    EXPECT_EQ(tested_.owner_of(held.place), held.owner);
    const std::byte* const bytes = tested_.bytes_of(held.place);
    for (std::size_t i = 0; i < held.length; i += held.length - 1) {
      ASSERT_EQ(bytes[i], static_cast<std::byte>(held.owner & 0xff)) << held.length << " at " << i;
    }
  }

  zones& tested_;
  std::vector<object> objects_;
  std::uint32_t next_owner_ = 1;
};

std::size_t any_length(std::mt19937_64& random) {
  return random() % 8 == 0 ? page_bytes : 2 + random() % (zones::most_packed_bytes - 1);
}

TEST(zones, objects_of_all_sizes_keep_their_bytes) {
  zones tested(64 * mib);
  model objects(tested);
  std::mt19937_64 random(1);
  for (int round = 0; round < 40'000; ++round) {
    const bool grow = random() % 5 < (round / 10'000 % 2 == 0 ? 3 : 2);
    if (grow || objects.size() == 0) {
      ASSERT_TRUE(objects.add(any_length(random)));
    } else {
      objects.remove(random() % objects.size());
    }
    if (random() % 50 == 0) objects.compact(random() % 2 == 0);
    if (round % 4000 == 0) objects.check_all();
  }
  while (objects.size() > 0) objects.remove(random() % objects.size());
  tested.validate();
  EXPECT_EQ(tested.occupied_bytes(), 0u);
}

TEST(zones, little_is_wasted_inside_of_objects) {
  zones tested(64 * mib);
  model objects(tested);
  std::mt19937_64 random(2);
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(objects.add(1000 + random() % 2000));
  EXPECT_LT(static_cast<double>(tested.occupied_bytes()), 1.06 * static_cast<double>(objects.bytes()));
}

TEST(zones, holes_are_bounded_when_compaction_is_done) {
  zones tested(64 * mib);
  model objects(tested);
  std::mt19937_64 random(3);
  for (int i = 0; i < 20'000; ++i) ASSERT_TRUE(objects.add(1000 + random() % 2000));
  while (objects.size() > 4000) objects.remove(random() % objects.size());
  EXPECT_GT(static_cast<double>(tested.occupied_bytes()), 3.0 * static_cast<double>(objects.bytes()));
  EXPECT_TRUE(tested.wants_compaction());
  for (int i = 0; i < 10'000 && tested.wants_compaction(); ++i) objects.compact(false);
  EXPECT_FALSE(tested.wants_compaction());
  objects.check_all();
  // An eighth, what is wasted inside, and three zones for each of the classes between 1000 and 3000 bytes.
  EXPECT_LT(static_cast<double>(tested.occupied_bytes()),
            1.125 * 1.06 * static_cast<double>(objects.bytes()) + 33 * 3 * static_cast<double>(zones::zone_bytes));
}

TEST(zones, a_page_that_was_promised_room_finds_it) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    zones tested(mib);
    model objects(tested);
    std::mt19937_64 random(seed);
    std::uint64_t promised = 0;
    for (int i = 0; i < 5000; ++i) {
      const std::uint64_t wanted = 1 + random() % 20;
      if (random() % 3 == 0) {
        if (tested.promise(wanted)) promised += wanted;
      } else if (random() % 3 == 0 && objects.size() > 0) {
        objects.remove(random() % objects.size());
      } else if (random() % 8 == 0) {
        objects.compact(true);
      } else if (random() % 8 == 0) {
        static_cast<void>(objects.add(any_length(random)));  // not promised: may fail
      } else if (promised > 0) {
        ASSERT_TRUE(objects.add(any_length(random), true));
        --promised;
      }
      ASSERT_EQ(tested.promised_pages(), promised);
      tested.validate();
    }
    objects.check_all();
    EXPECT_LE(tested.occupied_bytes(), tested.capacity_bytes());
  }
}

// Free room, and the room that a zone under compaction withholds, may together be less than a zone.
TEST(zones, a_zone_that_is_compacted_is_no_room_for_others) {
  zones tested(3 * zones::zone_bytes);
  model objects(tested);
  for (std::size_t i = 0; i < 2 * zones::pages_a_zone; ++i) ASSERT_TRUE(objects.add(page_bytes));
  for (std::size_t i = 2 * zones::pages_a_zone; i-- > 0;) {
    if (i % 2 == 0) objects.remove(i);
  }
  const std::uint32_t compacting = tested.begin_compaction(true);
  ASSERT_NE(compacting, zones::none);
  ASSERT_TRUE(objects.add(page_bytes));
  ASSERT_TRUE(objects.add(100));
  EXPECT_FALSE(tested.promise(2 * zones::pages_a_zone));
  tested.end_compaction(compacting);
  objects.check_all();
}

TEST(zones, the_whole_capacity_holds_pages) {
  zones tested(mib);
  EXPECT_TRUE(tested.promise(256));
  EXPECT_FALSE(tested.promise(1));
  model objects(tested);
  for (int i = 0; i < 256; ++i) ASSERT_TRUE(objects.add(page_bytes, true));
  EXPECT_FALSE(objects.add(2));
  EXPECT_FALSE(tested.promise(1));
  objects.remove(17);
  EXPECT_TRUE(tested.promise(1));
  objects.check_all();
}

TEST(zones, free_zones_are_given_back) {
  zones tested(64 * mib);
  model objects(tested);
  for (int i = 0; i < 8192; ++i) ASSERT_TRUE(objects.add(page_bytes));
  EXPECT_FALSE(tested.wants_release());
  while (objects.size() > 0) objects.remove(objects.size() - 1);
  EXPECT_TRUE(tested.wants_release());
  int released = 0;
  for (; tested.wants_release(); ++released) {
    const std::uint32_t zone = tested.begin_release();
    ASSERT_NE(zone, zones::none);
    tested.end_release(zone);
  }
  EXPECT_EQ(released, 512 - 128);
  for (int i = 0; i < 8192; ++i) ASSERT_TRUE(objects.add(page_bytes)) << "they can be used again";
  objects.check_all();
}

}  // namespace
}  // namespace far::backend
