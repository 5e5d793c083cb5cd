// The object heap of one runtime: start reading here, after docs/heap.md. It allocates objects, fetches them when they
// are dereferenced, and keeps the owner's word and the object's header in agreement.
//
// Every call may be made from any fiber or OS thread. Many may dereference a pointer at a time; only one may move or
// destroy it, while nobody else uses it. The evacuator (evacuator.h) may be at work on any object at any time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "control/guest.h"
#include "far/detail/pointer.h"
#include "far/detail/type.h"
#include "far/scope.h"
#include "fiber/scheduler.h"
#include "fiber/this_fiber.h"
#include "heap/allocator.h"
#include "heap/counters.h"
#include "heap/far_memory.h"
#include "heap/hazard_log.h"
#include "heap/header.h"
#include "heap/huge_space.h"
#include "heap/leaving.h"
#include "heap/object_waits.h"
#include "heap/ownership.h"
#include "heap/page_table.h"
#include "heap/path_selector.h"
#include "heap/plain_space.h"
#include "heap/priorities_seen.h"
#include "heap/segments.h"
#include "heap/tags.h"

namespace far::detail {

class object_heap {
 public:
  using owner_word = heap::owner_word;

  // Requires: the pager outlives the heap, and so do the workers, whose fibers use it.
  object_heap(pager::page_guard& from, fiber::scheduler& workers);
  ~object_heap();
  object_heap(const object_heap&) = delete;
  object_heap& operator=(const object_heap&) = delete;

  // Evicts pages that nobody can have a pointer into. `patience`: how long it waits for the end of scopes that are
  // open; after that, pages that may be in reach stay.
  void evict(std::uintptr_t address, std::size_t bytes,
             std::chrono::milliseconds patience = std::chrono::milliseconds(10));
  // Evicts a page now, even if somebody has a pointer into it: it comes back whole. Pages of tags with a handler stay:
  // their objects do not leave without a call, which needs a grace period.
  void force_out(std::uintptr_t address);
  [[nodiscard]] bool forces_out() const { return forcing_.load(std::memory_order_relaxed) > 0; }

  // Called before allocations: under memory pressure the calling fiber lets others run (AIFM, section 5.4). Not an OS
  // thread: the kernel shares the processors out, and one that yields where other programs run waits for all of them.
  void give_way() const {
    if (workers_.should_yield() && fiber::on_fiber()) [[unlikely]]
      fiber::yield();
  }

  // Makes an object of `bytes` undefined bytes that `owner` owns; it is resident. `type`: of objects with far pointers,
  // otherwise null. `alignment`: a power of two, at most a page. Throws std::bad_alloc when the far heap's addresses
  // run out. This and the next two: requires that the caller is in a scope.
  [[nodiscard]] std::byte* allocate(owner_word& owner, std::size_t bytes, std::size_t alignment,
                                    const type_of_object* type, heap::segment_kind where, heap::tag_key tag);

  // The same above a page, of zeros, none of which is resident. Requires: bytes > heap::largest_small_bytes. May be
  // called outside scopes.
  void allocate_pages(owner_word& owner, std::size_t bytes, heap::tag_key tag,
                      backend::affinity beside = backend::no_affinity);

  // See detail::touch.
  [[nodiscard]] std::byte* touch(owner_word& owner, bool write, bool lasting);

  // See detail::touch_part.
  [[nodiscard]] std::byte* touch_part(std::uint64_t value, std::size_t offset, std::size_t bytes, bool write,
                                      bool lasting);

  // Starts to bring in what `owner` points to; does not wait. Returns false when it cannot start now. Over the object
  // path a fiber does it, and holds the page that `owner` lies in until it has. Requires: so does the caller, if that
  // is far memory.
  [[nodiscard]] bool prefetch(owner_word& owner);
  // See detail::is_local.
  [[nodiscard]] bool is_local(const owner_word& owner) const;
  // The same for a part of an object larger than a page; `value` is its owner's word.
  void prefetch_part(std::uint64_t value, std::size_t offset, std::size_t bytes);
  // Waits until all that was started has ended.
  void finish_prefetches() const;
  // Threads that have segments open let go of them by themselves, as they end: not from here on, so that the pager may
  // go. Requires: nobody uses the heap any more.
  void stop_allocating() noexcept { allocator_.stop(); }

  // `from`, which is null afterwards, gives its object to `to`, whose word is not read. Requires: nobody else uses
  // either.
  void move_owner(owner_word& from, owner_word& to) { owners_.move_owner(from, to); }
  // `word` has been copied to where it is now: the header of its object shall name it. `calls_off`: moves of the object
  // that the evacuator has begun.
  void follow(owner_word& word, bool calls_off = true) { owners_.follow(word, calls_off); }
  // An object has been copied to `object`: the far pointers in it own their objects from there.
  void follow_children(std::byte* object, std::uint64_t header_value) { owners_.follow_children(object, header_value); }
  // The same beside the program, which may be writing to the object. Calls no moves off. Requires: the old place has
  // the bytes that it had when it was copied.
  void follow_children_of_moved(std::byte* old_place, std::byte* object, std::uint64_t header_value) {
    owners_.follow_children_of_moved(old_place, object, header_value);
  }

  // The object is gone; its destructor has run, unless it is lost. `owner` is null afterwards. Requires: nobody else
  // uses it. `owns_others`: there are far pointers in it. If it is lost, so are they, and its place is kept for good,
  // because the headers of their objects name it.
  void release(owner_word& owner, bool owns_others) { owners_.release(owner, owns_others); }

  // Memory for plain pointers (plain_space.h).
  [[nodiscard]] std::byte* allocate_plain(std::size_t bytes, std::size_t alignment, heap::tag_key tag);

  // The size that the object was allocated with. Requires: it is held, or huge.
  [[nodiscard]] std::size_t bytes_of(std::uint64_t word) const;

  // See detail::answer_part, detail::copy_part and detail::forget_part; `value` is the owner's word.
  void answer_part(std::uint64_t value, std::size_t offset, std::size_t bytes, const reduction& how,
                   const detail::answer_sink& to, const std::uint8_t* groups);
  // See detail::ask_about_rows and detail::note_places.
  void ask_about_rows(const reduction& how, std::span<detail::question_about_rows> asked);
  void note_places(std::span<const std::byte* const> asked, std::span<std::uint64_t> places) const;
  void copy_part(std::uint64_t value, std::size_t offset, std::size_t bytes, std::byte* to);
  void forget_part(std::uint64_t value, std::size_t offset, std::size_t bytes, bool here_too);

  // Whether a page of an object larger than a page is lost; `value` is its owner's word.
  [[nodiscard]] bool is_any_lost(std::uint64_t value) const { return huge.is_any_lost(word::address(value)); }

  // The part that dereferences read.
  [[nodiscard]] heap_view view() const { return {.ready = pages.ready_by_page()}; }
  // The same for scopes that log: every dereference calls touch() or touch_part().
  [[nodiscard]] heap_view slow_view() const { return {.ready = pages.never_ready_by_page()}; }

  // The heap that the address lies in, often this one; nullptr: it is local memory.
  [[nodiscard]] object_heap* heap_with(std::uintptr_t address);
  [[nodiscard]] const object_heap* heap_with(std::uintptr_t address) const;

  // Recomputes every count and checks every header that can be read. Requires: no other call meanwhile.
  void validate() const;

  // A tag whose pages leave as `how` says. `handler`: called before its objects leave, or empty. Returns nothing when
  // most_tags are in use, or when the number of one that was given back cannot be used again because a scope has been
  // open for ten seconds, or the caller is in one. Throws std::bad_alloc.
  [[nodiscard]] std::optional<heap::tag_key> add_tag(heap::tag_replacement how, leaving_handler handler);
  // See far::tag::give_back.
  void give_back(heap::tag_key tag);
  // The tag of a copy of the object. Requires: as tag_table::for_objects_of().
  [[nodiscard]] heap::tag_key tag_for_copy(std::uintptr_t object) const;
  // The evictor looked at a page. Returns whether it stays, because it has been in use.
  [[nodiscard]] bool change_heat(std::size_t page, bool was_used);
  [[nodiscard]] unsigned priority_of(std::size_t page) const {
    return tags_.replacement_of(pages.tag_of(page)).priority;
  }

  heap::far_memory memory;
  heap::page_table pages;
  heap::segments segments;
  heap::huge_space huge;
  heap::plain_space plain;
  heap::path_selector paths;
  heap::priorities_seen priorities;
  heap::leaving_objects leaving;
  heap::counters count;

 private:
  // Takes the pages of a range that are here out of reach. Returns the number of the grace period after which they are;
  // 0: none is here.
  [[nodiscard]] heap::grace_number condemn(std::uintptr_t address, std::size_t bytes);
  void push_out(std::span<std::uintptr_t> addresses);
  // Whether pages may be pushed out for so many questions about rows, which are asked now.
  [[nodiscard]] bool may_push_out(std::size_t questions);
  void ask_why(const reduction& how, std::span<const pager::slot_reduction> asked);
  void note_row_answer(pager::slot_read outcome);
  [[nodiscard]] std::byte* touch_huge(std::uint64_t value, bool write, bool lasting);
  void bring_in_huge(std::uintptr_t first, std::uintptr_t end, bool write, bool lasting);
  void note_miss(std::uintptr_t address, bool write) const {
    if (recorder_ != nullptr) [[unlikely]]
      record_miss(address, write);
  }
  void record_miss(std::uintptr_t address, bool write) const;
  void require_own(std::uintptr_t address) const;
  [[nodiscard]] bool has_handler(std::uintptr_t object) const;
  [[nodiscard]] bool make_writable(std::uintptr_t address, bool wanted);
  void make_ready(std::uintptr_t address, bool writable);
  void log_use(heap::owner_record& caller, std::uintptr_t address);
  [[nodiscard]] bool is_claimed(std::uintptr_t address);
  [[nodiscard]] bool try_bring_in(std::uintptr_t address, std::size_t bytes);
  [[nodiscard]] bool take_number_off(unsigned number);
  [[nodiscard]] std::uintptr_t take_place(std::size_t bytes, std::size_t alignment, heap::segment_kind where,
                                          heap::tag_key tag);
  void come_in(owner_word& owner, std::uint64_t value, bool write, bool lasting);
  [[nodiscard]] bool begin_fetch(owner_word& owner, std::uint64_t value);
  void give_up_fetch(owner_word& owner);
  void finish_fetch(owner_word& owner, std::uint64_t value, heap::segment_kind where);
  [[nodiscard]] bool prefetch_object(owner_word& owner, std::uint64_t value);
  void end_prefetch();
  [[nodiscard]] std::uintptr_t place_copy(owner_word& owner, const std::byte* bytes, heap::segment_kind where,
                                          heap::tag_key tag);

  fiber::scheduler& workers_;
  far::control::miss_recorder* const recorder_;  // of `farheap trace`; null: nothing is traced
  heap::allocator allocator_;
  heap::object_waits waits_;
  heap::ownership owners_;
  heap::tag_table tags_;
  // How much more often questions about rows were answered than not, lately; any thread, roughly. Only those with
  // numbers count: the keys alone lie together more often.
  static constexpr int most_row_answers = 256;
  std::atomic<int> row_answers_{0};
  // How many questions about rows nothing is pushed out for after a page that stayed, and of those the ones left; any
  // thread, roughly.
  static constexpr std::size_t rest_of_push_outs = 256;
  std::atomic<std::size_t> questions_without_push_out_{0};
  std::atomic<unsigned> prefetches_{0};  // fibers that bring objects in for later
  std::atomic<unsigned> forcing_{0};     // callers of force_out()
};

}  // namespace far::detail
