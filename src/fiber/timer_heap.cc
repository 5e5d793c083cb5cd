#include "fiber/timer_heap.h"

#include <utility>

#include "base/check.h"

namespace far::fiber {
namespace {

bool earlier(const timer& a, const timer& b) {
  return a.at_ns != b.at_ns ? a.at_ns < b.at_ns : a.sequence < b.sequence;
}

}  // namespace

timer* timer_heap::meld(timer* a, timer* b) noexcept {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  if (earlier(*b, *a)) std::swap(a, b);
  b->sibling = a->child;
  if (a->child != nullptr) a->child->before = b;
  b->before = a;
  a->child = b;
  return a;
}

// Melds them in pairs from left to right, then the pairs from right to left.
timer* timer_heap::meld_siblings(timer* first) noexcept {
  timer* pairs = nullptr;  // linked by `sibling`, the last pair first
  while (first != nullptr) {
    timer* const a = first;
    timer* const b = a->sibling;
    first = b == nullptr ? nullptr : b->sibling;
    a->sibling = a->before = nullptr;
    if (b != nullptr) b->sibling = b->before = nullptr;
    timer* const pair = meld(a, b);
    pair->sibling = pairs;
    pairs = pair;
  }
  timer* root = nullptr;
  while (pairs != nullptr) {
    timer* const next = pairs->sibling;
    pairs->sibling = nullptr;
    root = meld(root, pairs);
    pairs = next;
  }
  return root;
}

void timer_heap::set(timer& one) noexcept {
  const lock_guard guard(lock_);
  FAR_CHECK(one.in == nullptr, "a timer is set once at a time");
  one.in = this;
  one.sequence = next_sequence_++;
  one.child = one.sibling = one.before = nullptr;
  root_ = meld(root_, &one);
  note_earliest();
}

// Under the lock.
void timer_heap::remove(timer& one) noexcept {
  if (&one != root_) {
    (one.before->child == &one ? one.before->child : one.before->sibling) = one.sibling;
    if (one.sibling != nullptr) one.sibling->before = one.before;
    root_ = meld(root_, meld_siblings(one.child));
  } else {
    root_ = meld_siblings(one.child);
  }
  one.in = nullptr;
  note_earliest();
}

void timer_heap::cancel(timer& one) noexcept {
  const lock_guard guard(lock_);
  if (one.in == this) remove(one);
}

std::uint64_t timer_heap::earliest_for_sleep() noexcept {
  const lock_guard guard(lock_);
  return earliest_ns();
}

unsigned timer_heap::expire(std::uint64_t now_ns) noexcept {
  if (earliest_ns() > now_ns) return 0;
  unsigned count = 0;
  const lock_guard guard(lock_);
  while (root_ != nullptr && root_->at_ns <= now_ns) {
    timer& due = *root_;
    remove(due);
    due.expired(due);
    ++count;
  }
  return count;
}

}  // namespace far::fiber
