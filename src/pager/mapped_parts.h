// The far heap's addresses as parts with traits, and the steps of a memory call on them: it looks its range up, or
// takes it out of the map, works on it part by part, and puts it back, in use or free.
//
// All functions that can fail return 0 or an errno value. They are called inside the gate unless they say otherwise.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "engine/block_guards.h"
#include "engine/eviction_control.h"
#include "engine/host.h"
#include "engine/page_ranges.h"
#include "pager/address_map.h"
#include "pager/call_gate.h"
#include "platform/heap_layout.h"

namespace far::pager {

class mapped_parts {
 public:
  using part = address_map::part;
  using parts = address_map::parts;

  // Requires: all references outlive this object. `around`: the host whose background is woken when memory is
  // allocated.
  mapped_parts(const platform::heap_layout& heap, engine::page_ranges& ranges, const engine::eviction_control& eviction,
               engine::host& around);

  [[nodiscard]] address_map& addresses() { return addresses_; }
  [[nodiscard]] const address_map& addresses() const { return addresses_; }

  // Outside the gate: calls `body()` inside of it.
  template <typename Body>
  auto inside(const Body& body) const {
    const memory_call call(gate_);
    return body();
  }

  [[nodiscard]] bool holds_whole(const std::byte* address, std::size_t bytes) const {
    bool inside = false;
    return bytes > 0 && heap_.uniform_bytes(address, bytes, &inside) == bytes && inside;
  }
  [[nodiscard]] page_range pages_in(const std::byte* address, std::size_t bytes) const {
    return {heap_.page_at(address), static_cast<std::size_t>(pages_for(bytes))};
  }
  [[nodiscard]] page_range everything() const { return {0, static_cast<std::size_t>(heap_.pages())}; }
  // Calls `body(range)` for the heap itself and for each range that was adopted behind it. All in there is free, in
  // use, or in the hands of another call; the numbers in between are nobody's.
  template <typename Body>
  void for_each_range(const Body& body) const {
    body(page_range{0, static_cast<std::size_t>(heap_.bytes() >> page_shift)});
    for (std::size_t i = 0; i < heap_.static_ranges(); ++i) body(heap_.static_pages(i));
  }
  [[nodiscard]] std::byte* address_of(page_id page) const { return heap_.address_of(page); }
  [[nodiscard]] std::byte* address_of(page_range range) const { return heap_.address_of(range.first); }
  [[nodiscard]] static std::size_t bytes_of(page_range range) { return range.count << page_shift; }

  // The parts of a range that are in use, as soon as no thread is working on one of them. Also outside the gate.
  [[nodiscard]] parts look(page_range range) const;
  // Calls `body(part)` for the parts in use of the range, in order. The first error of `body` ends it. A hole means
  // ENOMEM, at once or after the rest.
  enum class at_hole : std::uint8_t { stop, go_on };
  template <typename Body>
  [[nodiscard]] int for_each(page_range range, at_hole mode, const Body& body) const {
    bool holes = false;
    page_id next = range.first;
    for (const part& mapped : look(range)) {
      holes |= mapped.range.first != next;
      if (holes && mode == at_hole::stop) return ENOMEM;
      if (const int failure = body(mapped)) return failure;
      next = mapped.range.end();
    }
    return holes || next != range.end() ? ENOMEM : 0;
  }

  // Outside the gate: the same up to the first hole, for calls that wait for pages. They enter the gate for a block at
  // a time, so that a fork waits for no more.
  template <typename Body>
  [[nodiscard]] int for_each_block(page_range range, const Body& body) const {
    int failure = 0;
    engine::for_each_block(range, [&](engine::block_id, page_range piece) {
      if (failure == 0) failure = inside([&] { return for_each(piece, at_hole::stop, body); });
    });
    return failure;
  }

  // Gives addresses that were just taken to the engine and to the program.
  [[nodiscard]] int open(page_range range, const mapping_traits& traits, bool guarded);
  // The same, unless they are only reserved; where it fails, they are free again.
  [[nodiscard]] int open_or_put_back(page_range range, const mapping_traits& traits, bool guarded);
  // Removes from use all parts of the range, once nobody else has one of them out.
  [[nodiscard]] parts take_out(page_range range);
  // Calls `body(part&)` for the parts in use of the range, once nobody else has one of them out. It may change their
  // traits, and tells the kernel of it: no other call comes between the two. The first error of `body` ends it.
  template <typename Body>
  [[nodiscard]] int alter(page_range range, const Body& body) {
    int failure = 0;
    for (part& one : take_out(range)) {
      if (failure == 0) failure = body(one);
      addresses_.use(one.range, one.traits);
    }
    return failure;
  }
  // Empties and frees all that is in use of the range.
  [[nodiscard]] int unmap(page_range range);
  // The same of a part that is out. Where the kernel refuses, it is in use as before.
  [[nodiscard]] int close(const part& one);
  [[nodiscard]] int protect(const part& seen, int protection, int key = no_key);
  // The same of a part that is out: the body of alter().
  [[nodiscard]] int protect_taken(part& one, int protection, int key);
  // Whether mseal forbids to change any part of the range.
  [[nodiscard]] bool any_sealed(page_range range) const;
  // Makes inaccessible and empty memory a reservation again.
  void give_up_if_empty(page_range range);

  // Takes addresses that may be in use; no other thread gets them meanwhile. Waits for a thread that is about to
  // release a part.
  [[nodiscard]] parts take(page_range range);
  // Empties a range that was taken. `keep_foreign`: foreign parts stay mapped. `protection`: of the far memory that
  // comes there, if any. Checks everything that can be refused before it drops any bytes.
  [[nodiscard]] int empty(page_range range, const parts& taken, bool keep_foreign, int protection);
  // Takes a part that is not in use, or not yet, back from the program and the engine. Only what is foreign can fail.
  [[nodiscard]] int empty(const part& one);
  // Gives accessible far memory the kernel's protection of the mapping that replaces it: all of it, or none.
  [[nodiscard]] int protect_all(const parts& taken, int protection);
  // The parts of a range that was taken stay as they are from this one on; the rest is free.
  void give_back(page_range range, const parts& taken, std::size_t first_kept);

  // Around fork, outside the gate: no call is at work on a part, and none begins.
  void lock_for_fork();
  void unlock_after_fork();
  void unlock_in_child();

 private:
  [[nodiscard]] int prepare_to_replace(const parts& taken, int protection);

  const platform::heap_layout& heap_;
  engine::page_ranges& ranges_;
  const engine::eviction_control& eviction_;
  engine::host& host_;
  address_map addresses_;
  mutable call_gate gate_;
};

}  // namespace far::pager
