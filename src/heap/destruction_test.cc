// The destruction of far objects that own each other in long chains. Needs permission for userfaultfd.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/detail/grace.h"
#include "far/runtime.h"
#include "far/shared_ptr.h"
#include "far/unique_ptr.h"
#include "tests/support/real_pager.h"

namespace far {
namespace chained {

std::size_t living = 0;

struct counted {
  counted() { ++living; }
  counted(const counted&) = delete;
  ~counted() { --living; }
};

struct link : counted {
  std::uint64_t number = 0;
  unique_ptr<link> next;
  std::byte content[200] = {};
};

struct shared_link : counted {
  shared_ptr<shared_link> next;
  std::byte content[200] = {};
};

// Whether a scope that was open at the first call has ended by the last.
class grace_period {
 public:
  void look() {
    if (since_ == 0) since_ = detail::note_out_of_reach();
    is_over_ = is_over_ || detail::have_scopes_ended(since_);
  }
  [[nodiscard]] bool is_over() const { return is_over_; }

 private:
  std::uint32_t since_ = 0;
  bool is_over_ = false;
};

struct watched {
  static inline grace_period made, destroyed;
  std::byte content[256] = {};
  watched() { made.look(); }
  watched(const watched&) = delete;
  ~watched() { destroyed.look(); }
};

struct last_link {
  std::uint64_t below = 0;
  unique_ptr<last_link> next;
  unique_ptr<last_link> beside;
  ~last_link() {
    if (below == 1) std::exit(0);
  }
};

struct speaking {
  unique_ptr<int> below;
  ~speaking() { std::fputs("destroyed\n", stderr); }
};

struct branch : counted {
  std::vector<int> order;
  unique_ptr<branch[]> below;
};

}  // namespace chained

template <>
inline constexpr bool is_relocatable<chained::watched> = true;
template <>
struct pointers_of<chained::speaking> {
  static void visit(chained::speaking& in, auto&& pointer) { pointer(in.below); }
};
template <>
struct pointers_of<chained::last_link> {
  static void visit(chained::last_link& in, auto&& pointer) {
    pointer(in.next);
    pointer(in.beside);
  }
};
template <>
struct pointers_of<chained::link> {
  static void visit(chained::link& in, auto&& pointer) { pointer(in.next); }
};
template <>
struct pointers_of<chained::shared_link> {
  static void visit(chained::shared_link& in, auto&& pointer) { pointer(in.next); }
};
template <>
struct pointers_of<chained::branch> {
  static void visit(chained::branch& in, auto&& pointer) { pointer(in.below); }
};

namespace {

using namespace chained;
using destruction_test = heap::real_pager_test<>;

// More than the stack has bytes.
constexpr std::size_t links = 100'000;

unique_ptr<link> chain_of(runtime& farheap, std::size_t count) {
  unique_ptr<link> first;
  for (std::size_t i = 0; i < count; ++i) {
    unique_ptr<link> before = make_unique<link>(farheap);
    const scope here(farheap);
    before.deref_mut(here).next = std::move(first);
    first = std::move(before);
  }
  return first;
}

// Most of the chain is remote. A fiber's stack has 64 KiB.
TEST_F(destruction_test, a_chain_of_any_length_takes_little_of_the_stack) {
  for (const double share : {0.0, 2.0}) {
    runtime_options chosen = heap::small_runtime();
    chosen.page_path_share = share;
    runtime farheap(chosen);
    farheap.run([&] {
      const unique_ptr<link> first = chain_of(farheap, links);
      EXPECT_EQ(living, links);
    });
    EXPECT_EQ(living, 0u);
    farheap.validate();
  }
}

TEST_F(destruction_test, so_does_a_chain_of_shared_objects) {
  runtime farheap(heap::small_runtime());
  farheap.run([&] {
    shared_ptr<shared_link> first;
    for (std::size_t i = 0; i < links; ++i) {
      shared_ptr<shared_link> before = make_shared<shared_link>(farheap);
      const scope here(farheap);
      before.deref_mut(here).next = std::move(first);
      first = std::move(before);
    }
    EXPECT_EQ(living, links);
    first.reset();
    EXPECT_EQ(living, 0u);
  });
  farheap.validate();
}

std::size_t grow(runtime& farheap, unique_ptr<branch[]>& at, unsigned depth) {
  const std::size_t count = depth == 0 ? 0 : depth % 9 == 0 ? 4 : 1;
  if (count == 0) return 0;
  at = make_unique<branch[]>(farheap, count);
  std::size_t all = count;
  for (std::size_t i = 0; i < count; ++i) {
    unique_ptr<branch[]> below;
    all += grow(farheap, below, depth - 1);
    const scope here(farheap);
    at.deref_mut(here, i).below = std::move(below);
    at.deref_mut(here, i).order.assign(10, static_cast<int>(i));
  }
  return all;
}

// Each branch once, however many levels are above it.
TEST_F(destruction_test, a_deep_tree_is_destroyed_as_a_whole) {
  runtime farheap(heap::small_runtime());
  unique_ptr<branch[]> root;
  const std::size_t all = grow(farheap, root, 45);
  EXPECT_EQ(living, all);
  farheap.evict_all();
  root.reset();
  EXPECT_EQ(living, 0u);
  EXPECT_EQ(farheap.statistics().abandoned_objects, 0u);
  farheap.validate();
}

void exit_in_a_destruction() {
  static const auto farheap = std::make_unique<runtime>(heap::small_runtime());
  static const unique_ptr<speaking> at_exit = make_unique<speaking>(*farheap);
  unique_ptr<last_link> first;
  for (std::uint64_t below = 1; below < 40; ++below) {
    unique_ptr<last_link> before = make_unique<last_link>(*farheap);
    const scope here(*farheap);
    last_link& made = before.deref_mut(here);
    made.below = below;
    made.beside = make_unique<last_link>(*farheap);
    made.next = std::move(first);
    first = std::move(before);
  }
  first.reset();
}

// Its thread has destroyed its thread-local variables by then, and takes the record again that it had.
TEST_F(destruction_test, static_variables_are_destroyed_after_an_exit_in_a_destructor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_in_a_destruction(), ::testing::ExitedWithCode(0), "destroyed");
}

// What elements own may leave, and be moved together, while others of the array are made or destroyed.
TEST_F(destruction_test, no_scope_lasts_for_all_of_a_large_array) {
  runtime farheap(heap::small_runtime());
  auto all = make_unique<watched[]>(farheap, 2'000);
  EXPECT_TRUE(watched::made.is_over());
  all.reset();
  EXPECT_TRUE(watched::destroyed.is_over());
}

}  // namespace
}  // namespace far
