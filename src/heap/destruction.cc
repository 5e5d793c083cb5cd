// The destruction of far objects that own each other.
#include <new>
#include <utility>

#include "far/detail/pointer.h"
#include "heap/scope_records.h"

namespace far::detail {
namespace {

// Each takes some hundred bytes of a stack that may have 64 KiB.
constexpr unsigned most_within_each_other = 16;

}  // namespace

// The one at the deepest level puts off what it meets, and does it one after the other. What is put off waits for its
// turn under an owner in local memory, so the object that contained its owner can be freed.
void destroy_in_turn(owner_word& owner, void (*destroy_now)(owner_word& owner)) noexcept {
  heap::owner_record& mine = heap::current_record();
  if (mine.destructions == most_within_each_other) {
    std::unique_ptr<heap::destruction> later(new (std::nothrow) heap::destruction);
    if (later == nullptr) return destroy_now(owner);
    move_owner(owner, later->word);
    later->destroy = destroy_now;
    later->next = std::move(mine.put_off);
    mine.put_off = std::move(later);
    return;
  }
  ++mine.destructions;
  destroy_now(owner);
  while (mine.destructions == most_within_each_other && mine.put_off != nullptr) {
    const std::unique_ptr<heap::destruction> next = std::move(mine.put_off);
    mine.put_off = std::move(next->next);
    next->destroy(next->word);
  }
  --mine.destructions;
}

}  // namespace far::detail
