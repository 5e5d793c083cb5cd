#include "heap/heap.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "base/use_check.h"
#include "far/page_lost.h"
#include "fiber/identity.h"
#include "heap/checked.h"
#include "heap/grace_periods.h"
#include "heap/living_runtimes.h"
#include "heap/scope_log.h"
#include "heap/scope_records.h"

namespace far::detail {

using heap::header;
using heap::owner_word;
using heap::segment_kind;

namespace {

// How much of an open segment is made ready at a time, when an object is the first in its page.
constexpr std::size_t bytes_ready_ahead = 16 * page_bytes;

// Enough to hide the latency of a far tier; each takes a fiber's stack.
constexpr unsigned most_prefetches = 64;

// Of a huge object.
constexpr std::size_t most_held_bytes = heap::huge_space::most_held_pages * page_bytes;

// Of a huge object whose beginning is here, for what is not, when it is prefetched.
constexpr std::size_t most_looked_at_bytes = 4 * mib;

constexpr std::size_t pages_condemned_at_once = 256;

// The longest wait for scopes to end, when a tag gets the number of one that was given back. Long enough for a thread
// that is preempted in its scope on a loaded machine.
constexpr std::chrono::seconds longest_wait_for_tag{10};

control::miss_recorder* find_recorder() {
  auto* const find = reinterpret_cast<control::host_miss_recorder*>(dlsym(RTLD_DEFAULT, "far_host_miss_recorder"));
  return find != nullptr ? find() : nullptr;
}

}  // namespace

object_heap::object_heap(pager::page_guard& from, fiber::scheduler& workers)
    : memory(from),
      pages(memory.base(), memory.pages()),
      segments(memory, pages),
      huge(memory, segments, pages),
      plain(segments, huge),
      workers_(workers),
      recorder_(find_recorder()),
      allocator_(segments),
      owners_(memory, pages, segments, huge, waits_, count) {}

object_heap::~object_heap() = default;

void object_heap::record_miss(std::uintptr_t address, bool write) const {
  const control::guest_miss kind = memory.is_untouched(address) ? control::guest_miss::first_touch
                                   : write                      ? control::guest_miss::write
                                                                : control::guest_miss::read;
  recorder_(reinterpret_cast<const void*>(address), kind);
  asm volatile("");  // no tail call: the stack goes through this function
}

// The caller is about to use the page. Loose pages are in use at any time.
void object_heap::log_use(heap::owner_record& caller, std::uintptr_t address) {
  if (caller.is_logging() && !pages.is_loose(pages.page_of(address))) heap::log_page(caller, address >> page_shift);
}

// Afterwards the page stays until the caller's scope ends, or comes back to its place when memory was short; if it is
// resident: otherwise it is to be fetched, and claimed again.
bool object_heap::is_claimed(std::uintptr_t address) {
  pages.claim(pages.page_of(address));
  return memory.is_resident(address);
}

// Makes pages resident that have room, for as long as the caller's scope lasts. Returns false when the first one is
// lost, or out of reach.
bool object_heap::try_bring_in(std::uintptr_t address, std::size_t bytes) {
  while (!is_claimed(address)) {
    heap::counters::add(count.page_fetches);
    if (!memory.try_fetch_place(address, bytes)) return false;
  }
  return true;
}

// A place for a small object, resident. An open segment may have left, and be out of reach: it is closed, because the
// other pages of it with room most likely are, too.
std::uintptr_t object_heap::take_place(std::size_t bytes, std::size_t alignment, segment_kind where,
                                       heap::tag_key tag) {
  while (true) {
    const std::uintptr_t place = allocator_.take(bytes, alignment, where, tag);
    log_use(heap::current_record(), place);
    // The ends of other scopes take pages away at any time.
    if (heap::is_checked()) [[unlikely]]
      heap::note_new(place);
    if (try_bring_in(place, std::min(heap::allocator::bytes_ahead(place), bytes_ready_ahead))) return place;
    allocator_.abandon(place, where, tag);
    segments.remove_object(place, heap::units_for(bytes));
  }
}

// Lets dereferences use the page at once. As long as its cards can still decide how it will come back, its objects are
// watched.
void object_heap::make_ready(std::uintptr_t address, bool writable) {
  const std::size_t page = pages.page_of(address);
  readiness how = writable ? readiness::writable : readiness::readable;
  // As for most allocations: the cards need not be looked at.
  if (pages.is_ready(page, how)) return;
  if (!pages.are_all_used(page) && paths.learns_from(pages.use_of(page))) how = readiness::watched;
  pages.make_ready(page, how);
}

std::byte* object_heap::allocate(owner_word& owner, std::size_t bytes, std::size_t wanted_alignment,
                                 const type_of_object* type, segment_kind where, heap::tag_key named_tag) {
  const heap::tag_key tag = tags_.for_objects_of(named_tag);
  const std::size_t alignment = std::max(wanted_alignment, unit_bytes);
  const heap::object_kind kind = heap::kind_of(type, std::min(alignment, heap::most_small_alignment));
  const std::size_t whole = heap::bytes_with_type(bytes, kind);
  if (!heap::fits_a_page(whole, alignment)) {
    const std::uintptr_t object = huge.take(bytes, heap::number_of(tag), false);
    owner.store(word::of_huge(object), std::memory_order_relaxed);
    return touch_huge(word::of_huge(object), true, where == segment_kind::lasting);
  }
  const std::uintptr_t object = take_place(whole, alignment, where, tag);
  if (heap::bytes_of_type(kind) > 0) {
    std::memcpy(reinterpret_cast<std::byte*>(object) + whole - sizeof type, &type, sizeof type);
  }
  header::at(object).store(header::make(owner, whole, kind));
  pages.set_live(object);
  pages.mark_used(object, heap::units_for(whole));
  if (where == segment_kind::lasting) make_ready(object, true);
  owner.store(word::of_small(object), std::memory_order_release);
  return reinterpret_cast<std::byte*>(object);
}

void object_heap::allocate_pages(owner_word& owner, std::size_t bytes, heap::tag_key tag, backend::affinity beside) {
  FAR_CHECK(bytes > heap::largest_small_bytes, "an object of whole pages is larger than those that share one");
  const unsigned number = heap::number_of(tags_.for_objects_of(tag));
  owner.store(word::of_huge(huge.take(bytes, number, false, beside)), std::memory_order_relaxed);
}

// If objects have a handler before they leave, all their pages in use are writable, so that the handler does not fault.
bool object_heap::has_handler(std::uintptr_t object) const {
  return leaving.has_handler(pages.tag_of(pages.page_of(object)));
}

// Only addresses of this heap have a place in its tables.
void object_heap::require_own(std::uintptr_t address) const {
  FAR_CHECK_USE(memory.contains(address),
                "a scope serves the objects of one runtime, and an object of another is dereferenced in this one");
}

std::byte* object_heap::touch(owner_word& owner, bool for_writing, bool lasting) {
  heap::owner_record& mine = heap::current_record();
  while (true) {
    const std::uint64_t value = owner.load(std::memory_order_acquire);
    if ((value & word::busy) != 0 || value == 0) [[unlikely]] {
      FAR_CHECK_USE(word::address(value) != 0,
                    "a far pointer that is dereferenced points to an object, and this one is null");
      if (word::is_huge(value)) return touch_huge(value, for_writing, lasting);
      if (!owners_.settle(owner, value)) waits_.wait_while_fetching(owner);
      continue;
    }
    const std::uintptr_t object = word::address(value);
    require_own(object);
    const bool write = for_writing || has_handler(object);
    log_use(mine, object);
    if (!is_claimed(object)) [[unlikely]] {
      note_miss(object, write);
      come_in(owner, value, write, lasting);
      continue;
    }
    // The page stays, but the object may have left it before.
    if (owner.load(std::memory_order_acquire) != value) continue;
    if ((value & word::flags) != 0) [[unlikely]] {
      if ((value & word::stale) != 0) follow(owner);
      owner.fetch_and(~word::idle, std::memory_order_relaxed);
      continue;
    }
    const bool writable = make_writable(object, write);
    if (!pages.is_used(object)) pages.mark_used(object, heap::units_for(header::bytes(header::at(object).load())));
    if (lasting) make_ready(object, writable);
    return reinterpret_cast<std::byte*>(object);
  }
}

// Fetches by the path that the selector of the object's page names.
void object_heap::come_in(owner_word& owner, std::uint64_t value, bool write, bool lasting) {
  give_way();
  const std::uintptr_t object = word::address(value);
  if (memory.takes_object_path(object)) {
    if (begin_fetch(owner, value)) finish_fetch(owner, value, lasting ? segment_kind::lasting : segment_kind::passing);
  } else {
    heap::counters::add(count.page_fetches);
    memory.fetch(object, 1, write);
  }
}

// If `wanted`, lets a resident page be written, without the hardware guard. Returns whether it can be.
bool object_heap::make_writable(std::uintptr_t address, bool wanted) {
  if (memory.is_writable(address)) return true;
  if (wanted) memory.fetch(address, 1, true);
  return wanted;
}

// Huge objects stay where they are, so nothing goes wrong when their pages leave during a scope: they come back to the
// same place. Those of a few pages stay all the same, because fetching them again would be a waste.
std::byte* object_heap::touch_huge(std::uint64_t value, bool write, bool lasting) {
  const std::uintptr_t object = word::address(value);
  require_own(object);
  bring_in_huge(object, object + std::min(huge.bytes_of(object), most_held_bytes), write, lasting);
  return reinterpret_cast<std::byte*>(object);
}

std::byte* object_heap::touch_part(std::uint64_t value, std::size_t offset, std::size_t bytes, bool write,
                                   bool lasting) {
  const std::uintptr_t object = word::address(value);
  require_own(object);
  const std::size_t whole = huge.bytes_of(object);
  FAR_CHECK_USE(offset <= whole && bytes <= whole - offset,
                "the part of a far object that is accessed lies in it, and this index or range goes beyond its end");
  const std::uintptr_t first = object + offset;
  bring_in_huge(first - first % page_bytes, first + std::min(bytes, most_held_bytes), write, lasting);
  return reinterpret_cast<std::byte*>(first);
}

// From the page at `first` on.
void object_heap::bring_in_huge(std::uintptr_t first, std::uintptr_t end, bool write, bool lasting) {
  const heap_view ready = view();
  heap::owner_record& mine = heap::current_record();
  for (std::uintptr_t page = first; page < end; page += page_bytes) {
    log_use(mine, page);
    if (!mine.is_logging() && ready.is_ready(word::of_huge(page), write)) continue;
    for (bool again = false; !is_claimed(page); again = true) {
      if (!again) note_miss(page, write);
      heap::counters::add(count.page_fetches);
      memory.fetch(page, end - page, write);
    }
    const bool writable = make_writable(page, write);
    if (lasting) pages.make_ready(pages.page_of(page), writable ? readiness::writable : readiness::readable);
  }
}

// A page that comes or leaves meanwhile is brought in.
void object_heap::copy_part(std::uint64_t value, std::size_t offset, std::size_t bytes, std::byte* to) {
  const std::uintptr_t at = word::address(value) + offset;
  FAR_DCHECK(at % page_bytes + bytes <= page_bytes, "a part is copied out of one page");
  if (!memory.is_resident(at)) {
    if (memory.read_remote(at, bytes, to)) return note_miss(at, false);
  }
  bring_in_huge(at - at % page_bytes, at + 1, false, false);
  std::memcpy(to, reinterpret_cast<const std::byte*>(at), bytes);
}

// A page that is not here is not ready for anybody, and stays so: nobody uses the part. It may come in meanwhile,
// because a neighbour is read ahead, and is forgotten all the same.
void object_heap::forget_part(std::uint64_t value, std::size_t offset, std::size_t bytes, bool here_too) {
  const auto end = word::address(value) + offset + bytes;
  for (std::uintptr_t at = end - bytes; at < end;) {
    std::uintptr_t next = at;
    while (next % page_bytes == 0 && end - next >= page_bytes && !memory.is_resident(next)) next += page_bytes;
    if (next > at) {
      memory.discard(at, next - at);
    } else {
      next = std::min(end, at - at % page_bytes + page_bytes);
      if (here_too) {
        bring_in_huge(at - at % page_bytes, at + 1, true, true);
        std::memset(reinterpret_cast<std::byte*>(at), 0, next - at);
      }
    }
    at = next;
  }
}

// The object path (AIFM, section 4.3; Atlas, section 4.2). The flag `fetching` keeps everyone from the object, so its
// bytes in the far tier are its newest for as long as the page is remote. Returns whether the caller is to fetch it.
bool object_heap::begin_fetch(owner_word& owner, std::uint64_t value) {
  if (!owner.compare_exchange_strong(value, value | word::fetching, std::memory_order_seq_cst)) return false;
  // Somebody may have dereferenced it since the page's path was looked at, and the page have left all the same: then it
  // comes back as a page (engine::eviction_verdict::forced), and the object must stay where it is.
  if (memory.takes_object_path(word::address(value))) return true;
  give_up_fetch(owner);
  return false;
}

void object_heap::give_up_fetch(owner_word& owner) {
  owner.fetch_and(~word::fetching, std::memory_order_seq_cst);
  waits_.wake_all(owner);
}

// The old copy's live bit goes first: from then on the evacuator does not take pointers inside the old copy for owners,
// should the page become resident for another object. Where the object cannot come alone, its page comes as a
// dereference would bring it: what was said to be coming (is_local) is handed over before it leaves.
void object_heap::finish_fetch(owner_word& owner, std::uint64_t value, segment_kind where) {
  const std::uintptr_t object = word::address(value);
  if (where == segment_kind::lasting && memory.left_just_now(object)) where = segment_kind::hot;
  pages.clear_live(object);
  alignas(heap::unit_bytes) std::array<std::byte, page_bytes> local;
  // From the header on. How long the object is, the header says; until it is here, what is known of the page.
  const std::uintptr_t first = object - heap::header_bytes;
  const std::size_t bytes = std::min(pages.most_units(object) * unit_bytes, page_bytes - first % page_bytes);
  if (!memory.read_remote(first, bytes, local.data())) {
    pages.set_live(object);
    give_up_fetch(owner);
    memory.fetch(object, 1, has_handler(object));
    return;
  }
  std::uintptr_t copy = 0;
  try {
    copy = place_copy(owner, local.data(), where, tag_for_copy(object));
  } catch (const std::bad_alloc&) {
    // No addresses are left for the object alone; the page has its own.
    pages.set_live(object);
    give_up_fetch(owner);
    memory.fetch(object, 1, has_handler(object));
    return;
  }
  std::uint64_t header_value = 0;
  std::memcpy(&header_value, local.data(), sizeof header_value);
  const std::uint64_t was = owner.exchange(word::of_small(copy), std::memory_order_seq_cst);
  waits_.wake_all(owner);
  if ((was & word::stale) != 0) pages.uncount_stale(object);
  segments.remove_object(object, heap::units_for(header::bytes(header_value)));
  heap::counters::add(count.object_fetches);
  heap::counters::add(count.object_fetch_bytes, bytes);
}

// Puts an object, `bytes` from its header on, into a fresh place. It is not live before its owner's word can be found
// by its header.
std::uintptr_t object_heap::place_copy(owner_word& owner, const std::byte* bytes, segment_kind where,
                                       heap::tag_key tag) {
  std::uint64_t header_value = 0;
  std::memcpy(&header_value, bytes, sizeof header_value);
  const std::size_t size = header::bytes(header_value);
  const heap::object_kind kind = header::kind(header_value);
  const std::uintptr_t copy = take_place(size, heap::alignment_of(kind), where, tag);
  std::memcpy(reinterpret_cast<std::byte*>(copy), bytes + heap::header_bytes, size);
  const std::uint64_t fresh = header::make(owner, size, kind);
  header::at(copy).store(fresh);
  pages.mark_used(copy, heap::units_for(size));
  follow_children(reinterpret_cast<std::byte*>(copy), fresh);
  pages.set_live(copy);
  if (where != segment_kind::passing) make_ready(copy, true);
  return copy;
}

std::byte* object_heap::allocate_plain(std::size_t bytes, std::size_t alignment, heap::tag_key tag) {
  give_way();
  const unsigned number = heap::number_of(tags_.for_objects_of(tag));
  while (true) {
    const std::uintptr_t taken = plain.take(bytes, alignment, number);
    // It is about to be written: cheaper now than by a page fault.
    if (memory.is_writable(taken) || memory.try_fetch_place(taken, 1)) return reinterpret_cast<std::byte*>(taken);
    plain.pass_by(taken, bytes, alignment);
  }
}

heap::grace_number object_heap::condemn(std::uintptr_t address, std::size_t bytes) {
  const std::size_t end = pages.page_of(address + bytes + page_bytes - 1);
  heap::grace_number number = 0;
  // In short pieces, because evictors and evacuators of all runtimes wait for the lock of the numbers.
  for (std::size_t first = pages.page_of(address); first < end; first += pages_condemned_at_once) {
    const std::size_t end_of_piece = std::min(end, first + pages_condemned_at_once);
    bool is_any = false;
    const heap::grace_number of_piece = heap::scopes_without_log.stamp([&](heap::grace_number all) {
      for (std::size_t page = first; page < end_of_piece; ++page) {
        if (!memory.is_resident(pages.address_of(page))) continue;
        pages.condemn(page, all);
        is_any = true;
      }
      return is_any;
    });
    if (is_any) number = of_piece;
    for (std::size_t page = first; page < end_of_piece; ++page) pages.cool(page);
  }
  return number;
}

void object_heap::evict(std::uintptr_t address, std::size_t bytes, std::chrono::milliseconds patience) {
  const heap::grace_number number = condemn(address, bytes);
  // If it is not over by then, pages in reach stay.
  if (number != 0) static_cast<void>(heap::scopes_without_log.wait_until_over(number, patience));
  memory.evict(address, bytes);
}

void object_heap::force_out(std::uintptr_t address) {
  if (has_handler(address)) return;
  forcing_.fetch_add(1, std::memory_order_relaxed);
  memory.evict(address, page_bytes);
  forcing_.fetch_sub(1, std::memory_order_relaxed);
}

std::optional<heap::tag_key> object_heap::add_tag(heap::tag_replacement how, leaving_handler handler) {
  std::optional<unsigned> number = tags_.take_unused();
  const bool is_used_again = !number;
  if (is_used_again) number = tags_.take_given_back();
  if (!number) return std::nullopt;
  try {
    if (is_used_again && !take_number_off(*number)) {
      tags_.cancel(*number);
      return std::nullopt;
    }
    if (handler != nullptr) leaving.set_handler(*number, std::move(handler));
  } catch (const std::bad_alloc&) {
    tags_.cancel(*number);
    throw;
  }
  return tags_.begin(*number, how);
}

// Takes the number of a tag that was given back off all that carries it. Returns false when scopes stay open.
bool object_heap::take_number_off(unsigned number) {
  // Allocations that found the tag in use are in scopes, and have their places when these end.
  const heap::grace_number given_back = heap::all_scopes.stamp([](heap::grace_number) { return true; });
  if (!heap::all_scopes.wait_until_over(given_back, longest_wait_for_tag)) return false;
  plain.drop_tag(number);
  pages.drop_tag(number, pages.page_of(memory.end_of_mapped()));
  paths.forget(number);
  return true;
}

void object_heap::give_back(heap::tag_key tag) {
  if (!tags_.end(tag)) return;
  leaving.drop_handler(heap::number_of(tag));
  tags_.ended(heap::number_of(tag));
}

heap::tag_key object_heap::tag_for_copy(std::uintptr_t object) const {
  const std::size_t page = pages.page_of(object);
  while (true) {
    const unsigned number = pages.tag_of(page);
    const heap::tag_key tag = tags_.for_copies(number);
    // If the number has been taken off the page, the tag may be another one.
    if (pages.tag_of(page) == number) return tag;
  }
}

bool object_heap::change_heat(std::size_t page, bool was_used) {
  const heap::tag_replacement how = tags_.replacement_of(pages.tag_of(page));
  return pages.change_heat(page, was_used, how.most_heat, how.by_recency) > 0;
}

bool object_heap::prefetch(owner_word& owner) {
  const std::uint64_t value = owner.load(std::memory_order_acquire);
  const std::uintptr_t object = word::address(value);
  if (word::is_huge(value)) {
    // Its first page may be here, and others not. They are looked at one by one, so there is an end to it.
    const std::size_t whole = huge.bytes_of(object);
    memory.prefetch(object, memory.is_resident(object) ? std::min(whole, most_looked_at_bytes) : whole);
    return true;
  }
  if (object == 0 || memory.is_resident(object)) return true;
  if (memory.takes_object_path(object)) return prefetch_object(owner, value);
  memory.prefetch(object, 1);
  return true;
}

void object_heap::prefetch_part(std::uint64_t value, std::size_t offset, std::size_t bytes) {
  const std::uintptr_t object = word::address(value);
  const std::size_t whole = huge.bytes_of(object);
  if (offset < whole) memory.prefetch(object + offset, std::min(bytes, whole - offset));
}

bool object_heap::prefetch_object(owner_word& owner, std::uint64_t value) {
  if ((value & word::busy) != 0) return true;
  // A copy that is in no scope would be taken away while it is made.
  if (heap::is_checked()) [[unlikely]]
    return true;
  std::unique_ptr<heap::borrowed_record> mine;
  try {
    mine = std::make_unique<heap::borrowed_record>();
  } catch (const std::bad_alloc&) {
    return false;
  }
  if (prefetches_.fetch_add(1, std::memory_order_relaxed) >= most_prefetches) {
    end_prefetch();
    return false;
  }
  const auto at = reinterpret_cast<std::uintptr_t>(&owner);
  if (heap_with(at) != nullptr) (*mine)->hold(at >> page_shift);
  if (!begin_fetch(owner, value)) {
    end_prefetch();
    return true;
  }
  try {
    workers_
        .spawn([this, &owner, value, holding = mine.get()] {
          try {
            // An object that is being fetched keeps everybody waiting: nothing must fail before finish_fetch().
            const heap::adopted_record of_fiber(*holding);
            const open_scope for_the_copy;
            finish_fetch(owner, value, segment_kind::lasting);
          } catch (const std::bad_alloc&) {
            // No addresses left: the dereference will say so.
          } catch (const page_lost&) {
            // So it will here.
          }
          delete holding;
          end_prefetch();
        })
        .detach();
  } catch (const std::exception&) {  // no memory for its stack
    give_up_fetch(owner);
    end_prefetch();
    return false;
  }
  static_cast<void>(mine.release());
  return true;
}

void object_heap::end_prefetch() {
  prefetches_.fetch_sub(1, std::memory_order_release);
  prefetches_.notify_all();
}

void object_heap::finish_prefetches() const {
  const bool on_fiber = fiber::current_identity().of_fiber;
  for (unsigned left = prefetches_.load(std::memory_order_acquire); left > 0;
       left = prefetches_.load(std::memory_order_acquire)) {
    if (on_fiber) {
      fiber::yield();
    } else {
      prefetches_.wait(left);
    }
  }
}

object_heap* object_heap::heap_with(std::uintptr_t address) {
  return memory.contains(address) ? this : heap::heap_at(address);
}

const object_heap* object_heap::heap_with(std::uintptr_t address) const {
  return memory.contains(address) ? this : heap::heap_at(address);
}

std::size_t object_heap::bytes_of(std::uint64_t value) const {
  const std::uintptr_t object = word::address(value);
  if (word::is_huge(value)) return huge.bytes_of(object);
  return header::payload_bytes(header::at(object).load());
}

void object_heap::validate() const {
  plain.validate();
  for (std::size_t index = 0; index < segments.count(); ++index) {
    const heap::segment_state state = segments.at(index).state.load();
    const std::size_t first = pages.page_of(segments.address_of(index));
    std::size_t objects = 0;
    std::size_t live_units = 0;
    for (std::size_t page = first; page < first + heap::segment_pages; ++page) {
      std::size_t in_page = 0;
      std::uintptr_t end_of_last = 0;
      pages.for_each_live(page, [&](std::size_t unit) {
        const std::uintptr_t object = pages.address_of(page) + unit * unit_bytes;
        ++in_page;
        FAR_CHECK(object >= end_of_last, "objects do not overlap");
        if (!memory.is_resident(object)) return;
        const std::uint64_t value = heap::header::at(object).load();
        end_of_last = object + heap::header::bytes(value);
        FAR_CHECK((value & heap::header::locked) == 0, "no header is locked between calls");
        live_units += heap::units_for(heap::header::bytes(value));
        if (pages.stale_in(page) > 0) return;
        // The owner may be remote itself; otherwise it names the object.
        const owner_word* const owner = heap::header::owner(value);
        FAR_CHECK(owner != nullptr, "a live object has an owner");
        const auto at = reinterpret_cast<std::uintptr_t>(owner);
        const object_heap* const around = heap_with(at);
        if (around != nullptr ? !around->memory.is_resident(at) : heap::living.was_left(at)) return;
        // One that was lost may be zeros now.
        if (owner->load() == 0 && around != nullptr && !around->segments.holds_small_objects(at)) return;
        FAR_CHECK(word::address(owner->load()) == object, "the owner that the header names owns the object");
      });
      FAR_CHECK(in_page == pages.objects_in(page), "the page's count is the number of its live bits");
      FAR_CHECK(pages.stale_in(page) <= in_page, "only live objects have stale headers");
      objects += in_page;
    }
    const bool open = state == heap::segment_state::open;
    const bool of_objects = open || state == heap::segment_state::closed;
    FAR_CHECK(of_objects || objects == 0, "only open and closed segments hold objects");
    FAR_CHECK(!of_objects || segments.at(index).objects.load() == objects + (open ? 1 : 0),
              "the segment's count is the sum of its pages'");
    FAR_CHECK(!of_objects || live_units <= segments.at(index).live_units.load(), "live units are counted");
  }
}

}  // namespace far::detail
