// Keeping owners' words and objects' headers in agreement: moving and destroying far pointers while the evacuator may
// be at work on their objects.
//
// A header can be written only while its page is resident. Otherwise the word becomes stale, and the page counts it.
// Against the evacuator this is safe without a lock: the count (or the live bit) changes first, then the page is looked
// at again, and is still away; the evacuator holds the page first, sees that it is resident, passes a process-wide
// fence, and then looks at the count (or the bit). tests/model/ownership_model_test.cc is the model of this file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "far/detail/type.h"
#include "heap/counters.h"
#include "heap/far_memory.h"
#include "heap/hazard_log.h"
#include "heap/header.h"
#include "heap/huge_space.h"
#include "heap/object_waits.h"
#include "heap/page_table.h"
#include "heap/segments.h"

namespace far::heap {

// Every call may be made from any fiber or OS thread, but only one may move or destroy a pointer, while nobody else
// uses it.
class ownership {
 public:
  // Requires: all of them outlive the object.
  ownership(far_memory& from, page_table& pages, segments& of_objects, huge_space& huge, object_waits& waits,
            counters& count)
      : memory_(from), pages_(pages), segments_(of_objects), huge_(huge), waits_(waits), count_(count) {}

  // See object_heap for these four.
  void move_owner(owner_word& from, owner_word& to);
  // As those of any far pointer, the word may lie in an object of another runtime.
  void follow(owner_word& word, bool calls_off);
  void follow_children(std::byte* object, std::uint64_t header_value);
  void follow_children_of_moved(std::byte* old_place, std::byte* object, std::uint64_t header_value);
  void release(owner_word& owner, bool owns_others);

  // The object is being moved or fetched. A move is called off, and the evacuator has lost; a fetch is for the caller
  // to wait for: then returns false.
  [[nodiscard]] bool settle(owner_word& owner, std::uint64_t value);

 private:
  struct standing {
    std::uint64_t value;  // of the owner's word
    bool is_here;         // its page is resident, and held; otherwise it is away
  };
  [[nodiscard]] standing stand_still(hazard_log& log, owner_word& owner, bool calls_off);
  void keep_at_hand(hazard_log& log, const owner_word& word_here);
  template <typename Found>
  static void for_each_child(std::byte* object, std::uint64_t header_value, Found found);
  void follow_child(owner_word& child, bool calls_off);

  far_memory& memory_;
  page_table& pages_;
  segments& segments_;
  huge_space& huge_;
  object_waits& waits_;
  counters& count_;
};

}  // namespace far::heap
