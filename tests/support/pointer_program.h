// A random program of far pointers beside the same program of std pointers: fibers and threads make, read, write, move,
// share and free objects that own each other, in scopes of random depth and length, and hand them on to one another,
// while pages leave and objects move. A seed chooses the runtime's options, and what each fiber and thread does; the
// order in which they come to it is the system's.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "far/fiber.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/shared_ptr.h"
#include "far/tag.h"
#include "far/unique_ptr.h"
#include "fiber/this_fiber.h"
#include "heap/heap.h"
#include "heap/scope_log.h"
#include "heap/scope_records.h"

namespace far {
namespace pointer_program {

// Content that depends on a number.
template <std::size_t Words>
struct filled {
  std::uint64_t number = 0;
  std::array<std::uint64_t, Words> content{};

  filled() = default;
  explicit filled(std::uint64_t value) { set(value); }
  void set(std::uint64_t value) {
    number = value;
    for (std::size_t i = 0; i < Words; ++i) content[i] = (number + i) * 0x9e3779b97f4a7c15u;
  }
  [[nodiscard]] bool is(std::uint64_t value) const { return filled(value).content == content && number == value; }
};

// Shared by many, and never changed.
using leaf = filled<20>;

struct cell {
  filled<5> own;
  unique_ptr<cell> left;
  unique_ptr<cell> right;
  unique_ptr<unique_ptr<cell>[]> others;
  unique_ptr<std::uint64_t[]> numbers;  // up to several pages
  shared_ptr<leaf> shared;
  weak_ptr<leaf> watched;

  explicit cell(std::uint64_t number) : own(number) {}
};

}  // namespace pointer_program

template <>
struct pointers_of<pointer_program::cell> {
  static void visit(pointer_program::cell& in, auto&& pointer) {
    pointer(in.left);
    pointer(in.right);
    pointer(in.others);
    pointer(in.numbers);
    pointer(in.shared);
    pointer(in.watched);
  }
};

namespace pointer_program {

struct model {
  std::uint64_t number = 0;
  std::unique_ptr<model> left;
  std::unique_ptr<model> right;
  std::optional<std::vector<std::unique_ptr<model>>> others;
  std::vector<std::uint64_t> numbers;
  std::shared_ptr<const std::uint64_t> shared;
  std::optional<std::uint64_t> watched;

  explicit model(std::uint64_t value) : number(value) {}
};

// What owns a cell, on both sides.
struct owner {
  unique_ptr<cell> mine;
  std::unique_ptr<model> expected;
};

// Where fibers and threads leave owners for others.
struct mailbox {
  mutex lock;
  std::vector<owner> waiting;
};

class actor {
 public:
  actor(runtime& farheap, const tag& other, mailbox& mail, std::uint64_t seed)
      : farheap_(farheap), other_(other), mail_(mail), random_(seed), roots_(6) {}

  void run(std::size_t steps) {
    for (std::size_t i = 0; i < steps; ++i) step();
    const scope here(farheap_);
    for (owner& root : roots_) compare(here, root.mine, root.expected);
  }
  [[nodiscard]] std::uint64_t wrong() const { return wrong_; }

 private:
  // An owner anywhere, good until the scope ends.
  struct place {
    unique_ptr<cell>* mine;
    std::unique_ptr<model>* expected;
  };

  [[nodiscard]] std::uint64_t below(std::uint64_t end) { return random_() % end; }
  void check(bool is_right) { wrong_ += is_right ? 0 : 1; }

  void step() {
    if (below(200) == 0) heap::note_long_scope(heap::current_record());
    switch (below(16)) {
      case 0:
      case 1:
      case 2: return make();
      case 3: return free_one();
      case 4:
      case 5: return move_one();
      case 6: return hold_many();
      case 7: return change_numbers();
      case 8: return change_others();
      case 9: return share();
      case 10: return hand_on();
      case 11: return prefetch_some();
      case 12: return disturb();
      default: return use();
    }
  }

  [[nodiscard]] place pick(const scope& here) {
    owner& root = roots_[below(roots_.size())];
    place at{&root.mine, &root.expected};
    while (*at.expected != nullptr && below(4) != 0) {
      check(static_cast<bool>(*at.mine));
      model& expected = **at.expected;
      // A page that a dereference for writing finds away comes back in any case.
      if (below(2) == 0) check(at.mine->deref(here).own.is(expected.number));
      cell& inside = at.mine->deref_mut(here);
      check(inside.own.is(expected.number));
      if (below(3) == 0 && expected.others && !expected.others->empty()) {
        const std::size_t i = below(expected.others->size());
        at = {&inside.others.deref_mut(here, i), &(*expected.others)[i]};
      } else if (below(2) == 0) {
        at = {&inside.left, &expected.left};
      } else {
        at = {&inside.right, &expected.right};
      }
    }
    check(static_cast<bool>(*at.mine) == (*at.expected != nullptr));
    return at;
  }

  void make() {
    const scope here(farheap_);
    const place at = pick(here);
    make_tree(here, at, below(4) == 0 ? 6 : 0);
  }
  // Complete, above a level that is not.
  void make_tree(const scope& here, place at, unsigned levels) {
    const std::uint64_t number = random_();
    *at.mine = below(4) == 0 ? make_unique<cell>(other_, number) : make_unique<cell>(farheap_, number);
    *at.expected = std::make_unique<model>(number);
    if (levels == 0) return;
    cell& inside = at.mine->deref_mut(here);
    make_tree(here, {&inside.left, &(*at.expected)->left}, levels - 1);
    if (below(8) != 0) make_tree(here, {&inside.right, &(*at.expected)->right}, levels - 1);
  }

  void free_one() {
    const scope here(farheap_);
    const place at = pick(here);
    at.mine->reset();
    at.expected->reset();
  }

  // Takes it out first, so that it cannot become its own descendant.
  void move_one() {
    owner taken;
    if (below(2) == 0) {
      const scope here(farheap_);
      const place from = pick(here);
      taken = {std::move(*from.mine), std::move(*from.expected)};
    }
    const scope here(farheap_);
    if (!taken.mine) {
      const place from = pick(here);
      taken = {std::move(*from.mine), std::move(*from.expected)};
    }
    const place to = pick(here);
    if (below(2) == 0) {
      *to.mine = std::move(taken.mine);
      *to.expected = std::move(taken.expected);
    } else {
      swap(*to.mine, taken.mine);
      swap(*to.expected, taken.expected);
    }
  }

  void use() {
    const scope here(farheap_);
    const place at = pick(here);
    if (*at.expected == nullptr) return;
    model& expected = **at.expected;
    if (below(2) == 0) {
      const cell& inside = below(4) == 0 ? at.mine->deref(here, non_temporal) : at.mine->deref(here);
      check(inside.own.is(expected.number));
      check((inside.shared == nullptr) == (expected.shared == nullptr));
      if (expected.shared != nullptr) {
        const leaf& found = inside.shared.deref(here);
        check(found.is(*expected.shared));
        // Others use the same word. What it pointed to before has the same bytes.
        check(&found == &inside.shared.deref(here));
      }
    } else {
      cell& inside = below(4) == 0 ? at.mine->deref_mut(here, non_temporal) : at.mine->deref_mut(here);
      check(inside.own.is(expected.number));
      inside.own.set(expected.number = random_());
    }
  }

  // References from scopes of several depths are good until the outermost ends.
  void hold_many() {
    struct held {
      const cell* inside;
      std::uint64_t number;
    };
    std::vector<held> all;
    const scope outer(farheap_);
    const auto take = [&](const scope& in) {
      const place at = pick(in);
      if (*at.expected != nullptr) all.push_back({&at.mine->deref(in), (*at.expected)->number});
    };
    for (std::size_t i = below(30); i > 0; --i) {
      if (below(2) == 0) {
        const scope inner(farheap_);
        take(inner);
      } else {
        take(outer);
      }
      if (below(8) == 0) fiber::yield();
    }
    for (const held& one : all) check(one.inside->own.is(one.number));
  }

  void change_numbers() {
    constexpr std::array<std::size_t, 5> sizes{0, 3, 100, 600, 2500};
    const scope here(farheap_);
    const place at = pick(here);
    if (*at.expected == nullptr) return;
    std::vector<std::uint64_t>& expected = (*at.expected)->numbers;
    unique_ptr<std::uint64_t[]>& mine = at.mine->deref_mut(here).numbers;
    check(mine.size() == expected.size());
    if (expected.empty() || below(4) == 0) {
      const std::size_t size = sizes[below(sizes.size())];
      mine = make_unique<std::uint64_t[]>(farheap_, size);
      expected.assign(size, 0);
      return;
    }
    for (std::size_t i = below(8); i > 0; --i) {
      const std::size_t which = below(expected.size());
      check(mine.deref(here, which) == expected[which]);
      mine.deref_mut(here, which) = expected[which] = random_();
    }
  }

  void change_others() {
    const scope here(farheap_);
    const place at = pick(here);
    if (*at.expected == nullptr) return;
    model& expected = **at.expected;
    unique_ptr<unique_ptr<cell>[]>& mine = at.mine->deref_mut(here).others;
    check(static_cast<bool>(mine) == expected.others.has_value());
    if (below(2) == 0) {
      const std::size_t size = 1 + below(below(4) == 0 ? 600 : 12);
      mine = make_unique<unique_ptr<cell>[]>(farheap_, size);
      expected.others.emplace(size);
    } else {
      mine.reset();
      expected.others.reset();
    }
  }

  void share() {
    const scope here(farheap_);
    const place from = pick(here);
    const place to = pick(here);
    if (*from.expected == nullptr || *to.expected == nullptr) return;
    cell& source = from.mine->deref_mut(here);
    if (below(3) == 0) {
      const std::uint64_t number = random_();
      source.shared = make_shared<leaf>(farheap_, number);
      (*from.expected)->shared = std::make_shared<const std::uint64_t>(number);
    }
    cell& target = to.mine->deref_mut(here);
    if (below(2) == 0) {
      target.shared = source.shared;
      (*to.expected)->shared = (*from.expected)->shared;
    } else {
      target.watched = source.shared;
      (*to.expected)->watched.reset();
      if (const auto& shared = (*from.expected)->shared) (*to.expected)->watched = *shared;
    }
    // Whether others still own it is theirs to say, but it is what it was.
    if (const shared_ptr<leaf> locked = target.watched.lock()) {
      check((*to.expected)->watched && locked.deref(here).is(*(*to.expected)->watched));
    }
  }

  void hand_on() {
    const std::size_t which = below(roots_.size());
    const std::lock_guard guard(mail_.lock);
    if (below(2) == 0) {
      mail_.waiting.push_back(std::move(roots_[which]));
      roots_[which] = {};
    } else if (!mail_.waiting.empty()) {
      std::swap(roots_[which], mail_.waiting[below(mail_.waiting.size())]);
    }
  }

  void prefetch_some() {
    const scope here(farheap_);
    for (int i = 0; i < 4; ++i) {
      const place at = pick(here);
      static_cast<void>(at.mine->prefetch());
    }
    if (below(2) == 0) fiber::yield();
  }

  void disturb() {
    switch (below(8)) {
      case 0: return static_cast<void>(farheap_.evacuate(static_cast<double>(below(4)) / 4));
      case 1: return farheap_.evict_all();
      default: return fiber::yield();
    }
  }

  void compare(const scope& here, const unique_ptr<cell>& mine, const std::unique_ptr<model>& expected) {
    check(static_cast<bool>(mine) == (expected != nullptr));
    if (!mine || expected == nullptr) return;
    const cell& inside = mine.deref(here);
    check(inside.own.is(expected->number));
    check(inside.numbers.size() == expected->numbers.size());
    for (std::size_t i = 0; i < expected->numbers.size(); i += 1 + expected->numbers.size() / 16) {
      check(inside.numbers.deref(here, i) == expected->numbers[i]);
    }
    check((inside.shared == nullptr) == (expected->shared == nullptr));
    if (expected->shared != nullptr) check(inside.shared.deref(here).is(*expected->shared));
    compare(here, inside.left, expected->left);
    compare(here, inside.right, expected->right);
    check(static_cast<bool>(inside.others) == expected->others.has_value());
    if (!expected->others) return;
    check(inside.others.size() == expected->others->size());
    for (std::size_t i = 0; i < expected->others->size(); ++i) {
      compare(here, inside.others.deref(here, i), (*expected->others)[i]);
    }
  }

  runtime& farheap_;
  const tag& other_;
  mailbox& mail_;
  std::mt19937_64 random_;
  std::vector<owner> roots_;
  std::uint64_t wrong_ = 0;
};

inline runtime_options options_for(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr std::array<double, 5> shares{0, 0.2, 0.5, 0.8, 2};
  runtime_options chosen;
  chosen.local_bytes = (64 + random() % 192) * 4096;
  chosen.workers = 1 + static_cast<unsigned>(random() % 2);
  chosen.page_path_share = shares[random() % shares.size()];
  chosen.evacuate_garbage_share = random() % 2 == 0 ? 0.25 : 2;
  return chosen;
}

// Live objects of at most a page.
inline std::size_t count_objects(runtime& farheap) {
  const detail::object_heap& in = detail::heap_of(farheap);
  std::size_t count = 0;
  for (std::size_t index = 0; index < in.segments.count(); ++index) {
    const std::size_t first = in.pages.page_of(in.segments.address_of(index));
    for (std::size_t page = first; page < first + heap::segment_pages; ++page) count += in.pages.objects_in(page);
  }
  return count;
}

struct outcome {
  std::uint64_t wrong = 0;
  std::size_t left = 0;  // objects that nobody freed
  runtime_statistics statistics;
};

// Runs the program of a seed. `steps`: of each fiber and thread.
inline outcome run(std::uint64_t seed, std::size_t steps) {
  std::mt19937_64 random(~seed);
  runtime farheap(options_for(seed));
  const tag other(farheap, {.hotness_bits = static_cast<unsigned>(random() % 4)});
  mailbox mail;
  std::atomic<std::uint64_t> wrong{0};
  const auto act = [&](std::uint64_t number) {
    actor one(farheap, other, mail, seed * 64 + number);
    one.run(steps);
    wrong += one.wrong();
  };
  {
    const std::uint64_t fibers = random() % 6;
    const std::uint64_t threads = random() % 3 + (fibers == 0 ? 1 : 0);
    std::vector<task<void>> running;
    std::vector<std::thread> outside;
    for (std::uint64_t i = 0; i < fibers; ++i)
      running.push_back(farheap.spawn([&act, i] { act(i); }, {.stack_bytes = 256 * kib}));
    for (std::uint64_t i = 0; i < threads; ++i) outside.emplace_back(act, 32 + i);
    for (task<void>& one : running) one.join();
    for (std::thread& one : outside) one.join();
  }
  farheap.validate();
  mail.waiting.clear();
  farheap.validate();
  return {wrong, count_objects(farheap), farheap.statistics()};
}

}  // namespace pointer_program
}  // namespace far
