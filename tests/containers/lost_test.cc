// Containers of which a part is lost: they throw, stay valid, and can be destroyed. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/units.h"
#include "far/list.h"
#include "far/page_lost.h"
#include "far/queue.h"
#include "far/vector.h"
#include "tests/containers/elements.h"
#include "tests/support/failing_tier.h"

namespace far {
namespace {

using test::fragile;

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

}  // namespace
}  // namespace far
