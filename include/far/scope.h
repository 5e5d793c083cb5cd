// Scopes: while one is open, the objects that were dereferenced in it stay where they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "far/detail/api.h"
#include "far/detail/scope_record.h"
#include "far/detail/word.h"
#include "far/runtime.h"

namespace far {

namespace detail {

// Makes the object that `owner` points to resident, and returns its address. `write`: it will be written. `lasting`: it
// is worth keeping in local memory afterwards. Requires: the caller is in a scope.
[[nodiscard]] FAR_API std::byte* touch(runtime& in, std::atomic<std::uint64_t>& owner, bool write, bool lasting);

// The same for `bytes` bytes of an object larger than a page, from `offset` on: only the pages with these bytes.
// `value` is its owner's word. Of more than 64 KiB only the beginning is fetched. Stops the program when the object is
// too short.
[[nodiscard]] FAR_API std::byte* touch_part(runtime& in, std::uint64_t value, std::size_t offset, std::size_t bytes,
                                            bool write, bool lasting);

// ---- checked builds ----

// Notes that code of this kind is in the process, and stops it with a message if code of the other kind is, too: scopes
// of both kinds have different layouts, and do not know of each other's objects. Returns `checked`.
FAR_API bool note_kind_of_code(bool checked) noexcept;
#if defined(FARHEAP_CHECKED)
inline const bool is_checked_code = note_kind_of_code(true);
#elif !defined(FARHEAP_LIBRARY)  // which serves both
inline const bool is_unchecked_code = !note_kind_of_code(false);
#endif
// Returns how deep the scope lies: 1 is the outermost.
[[nodiscard]] FAR_API std::size_t enter_checked(scope_record& record);
// The scope of that depth dereferences `bytes` bytes of the object from `offset` on, or all of it (0).
FAR_API void note_checked(scope_record& record, std::size_t depth, const std::atomic<std::uint64_t>& owner,
                          std::size_t offset, std::size_t bytes);
// The scope ends: objects that no other scope has dereferenced leave local memory at once, so that later uses are
// detected. Also what came in beneath it for a scope of another runtime.
FAR_API void leave_checked(scope_record& record, std::size_t depth);
// Stops the program with a message unless the scope is open and belongs to the fiber or thread that runs now.
FAR_API void check_scope(const scope_record& record, bool is_open);
// Likewise unless the bytes are part of the object. Requires: it was dereferenced in an open scope, or is larger than a
// page.
FAR_API void check_part(const std::atomic<std::uint64_t>& owner, std::size_t offset, std::size_t bytes);

}  // namespace detail

// A local variable: opened and closed on the same fiber or OS thread, in nested order. It costs two stores; an inner
// one costs nothing. References obtained in it, or in an inner one, are valid until the outermost ends.
//
// Keep it short: while a scope is open, pages that were in use when it opened are evicted only where nothing else is
// left, and whole, and no objects are moved together. Nobody waits for it, though. After a scope that was open for more
// than a millisecond, the next scopes of the same fiber or thread log what they dereference, so that only those pages
// are affected. Their dereferences take some ten times as many instructions.
//
// In checked builds (every file compiled with -DFARHEAP_CHECKED) a reference that is used later, and a scope that is
// used after its end or by another fiber, stop the program with a message; that is slow. References to objects whose
// tag has a handler are not checked (far/tag.h).
class [[nodiscard]] scope {
 public:
  // For objects of the process-wide runtime; see runtime::process(). The first scope of a fiber or thread needs some
  // local memory, and throws std::bad_alloc without.
  scope() : scope(runtime::process()) {}
  // For objects of this runtime, and of no other.
  explicit scope(runtime& chosen)
      : runtime_(chosen),
        view_{open_.logs() ? chosen.slow_view_.ready : chosen.view_.ready}
#if defined(FARHEAP_CHECKED)
        ,
        depth_(detail::enter_checked(open_.record()))
#endif
  {
  }
#if defined(FARHEAP_CHECKED)
  ~scope() {
    detail::leave_checked(open_.record(), depth_);
    is_open_ = false;
  }
#else
  // As that of open_scope.
  [[gnu::always_inline]] ~scope() = default;
#endif
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;
  // A scope is a stretch of code, not an object to pass on.
  static void* operator new(std::size_t) = delete;
  static void* operator new[](std::size_t) = delete;

  // For far pointers: the address of the object that `owner` points to.
  [[nodiscard]] std::byte* reach(std::atomic<std::uint64_t>& owner, bool write, bool lasting) const {
#if defined(FARHEAP_CHECKED)
    detail::check_scope(open_.record(), is_open_);
    // Noted before, because the ends of other scopes take pages away, and after, because the object may have moved.
    detail::note_checked(open_.record(), depth_, owner, 0, 0);
    std::byte* const at = detail::touch(runtime_, owner, write, lasting);
    detail::note_checked(open_.record(), depth_, owner, 0, 0);
    return at;
#else
    const std::uint64_t value = detail::read_word(owner);
    // The word is read again: the object may have left between the two looks, and its place may have become ready for
    // another.
    if (detail::word::is_plain(value) && view_.is_ready_still(owner, value, write)) [[likely]] {
      return reinterpret_cast<std::byte*>(detail::word::plain_address(value));
    }
    return reach_further(runtime_, owner, write, lasting);
#endif
  }
  // The same for a pointer that may be null: nullptr if it is. The null test costs nothing where there is an object.
  [[nodiscard]] std::byte* reach_or_null(std::atomic<std::uint64_t>& owner, bool write, bool lasting) const {
#if defined(FARHEAP_CHECKED)
    detail::check_scope(open_.record(), is_open_);
    return owner.load(std::memory_order_relaxed) == 0 ? nullptr : reach(owner, write, lasting);
#else
    const std::uint64_t value = detail::read_word(owner);
    if (detail::word::is_plain(value) && view_.is_ready_still(owner, value, write)) [[likely]] {
      const std::uintptr_t address = detail::word::plain_address(value);
      if (address == 0) __builtin_unreachable();  // its page is never ready; so that callers do not test it
      return reinterpret_cast<std::byte*>(address);
    }
    return value == 0 ? nullptr : reach_further(runtime_, owner, write, lasting);
#endif
  }
  // As reach(), but of an object larger than a page only the first bytes are needed.
  [[nodiscard]] std::byte* reach_beginning(std::atomic<std::uint64_t>& owner, [[maybe_unused]] std::size_t bytes,
                                           bool write, bool lasting) const {
#if defined(FARHEAP_CHECKED)
    return reach(owner, write, lasting);
#else
    const std::uint64_t value = detail::read_word(owner);
    if (detail::word::is_plain(value) && view_.is_ready_still(owner, value, write)) [[likely]] {
      return reinterpret_cast<std::byte*>(detail::word::plain_address(value));
    }
    return reach_beginning_further(runtime_, owner, bytes, write, lasting);
#endif
  }
  // As reach() for a small object that is local; otherwise nullptr, and nothing has changed. Unlike in reach(), the
  // word may change to another meanwhile; the result then belongs to either object.
  [[nodiscard]] std::byte* reach_if_ready([[maybe_unused]] const std::atomic<std::uint64_t>& owner,
                                          [[maybe_unused]] bool write) const {
#if !defined(FARHEAP_CHECKED)
    const std::uint64_t value = owner.load(std::memory_order_acquire);
    if (detail::word::is_plain(value) && view_.is_ready(value, write) && owner.load(std::memory_order_relaxed) == value)
        [[likely]] {
      return reinterpret_cast<std::byte*>(detail::word::plain_address(value));
    }
#endif
    return nullptr;
  }
  // The address of a part of it. If the object is larger than a page, only the part is fetched.
  [[nodiscard]] std::byte* reach_part(std::atomic<std::uint64_t>& owner, std::size_t offset, std::size_t bytes,
                                      bool write, bool lasting) const {
    const std::uint64_t value = owner.load(std::memory_order_acquire);
    if (detail::word::is_huge(value)) {
#if defined(FARHEAP_CHECKED)
      detail::check_scope(open_.record(), is_open_);
      detail::note_checked(open_.record(), depth_, owner, offset, bytes);
#endif
      return detail::touch_part(runtime_, value, offset, bytes, write, lasting);
    }
    std::byte* const whole = reach(owner, write, lasting);
#if defined(FARHEAP_CHECKED)
    detail::check_part(owner, offset, bytes);
#endif
    return whole + offset;
  }
  // The same for a part, at most a page, of an object larger than a page. Requires: the part lies in the object.
  [[nodiscard]] std::byte* reach_within(std::atomic<std::uint64_t>& owner, std::size_t offset, std::size_t bytes,
                                        bool write, bool lasting) const {
#if !defined(FARHEAP_CHECKED)
    // Such objects never move, so the word need not be looked at again.
    const std::uint64_t value = detail::read_word(owner);
    const std::uintptr_t first = detail::word::address(value) + offset;
    const std::uintptr_t last = first + bytes - 1;
    if (view_.is_page_ready(first >> detail::word::page_shift, write) &&
        (bytes == 1 || view_.is_page_ready(last >> detail::word::page_shift, write))) [[likely]] {
      return reinterpret_cast<std::byte*>(first);
    }
    return reach_part_further(runtime_, value, offset, bytes, write, lasting);
#else
    return reach_part(owner, offset, bytes, write, lasting);
#endif
  }
  // The address of a byte of it, if the bytes `first` and `last` are local. Otherwise nullptr, and nothing has changed.
  [[nodiscard]] std::byte* find_within([[maybe_unused]] const std::atomic<std::uint64_t>& owner,
                                       [[maybe_unused]] std::size_t offset, [[maybe_unused]] std::size_t first,
                                       [[maybe_unused]] std::size_t last, [[maybe_unused]] bool write) const {
#if !defined(FARHEAP_CHECKED)
    const std::uintptr_t whole = detail::word::address(detail::read_word(owner));
    if (view_.is_page_ready((whole + first) >> detail::word::page_shift, write) &&
        (first == last || view_.is_page_ready((whole + last) >> detail::word::page_shift, write))) [[likely]] {
      return reinterpret_cast<std::byte*>(whole + offset);
    }
#endif
    return nullptr;
  }
  // Whether a look at that place of an object larger than a page would find it at once.
  [[nodiscard]] bool is_within_reach(const std::atomic<std::uint64_t>& owner, std::size_t offset) const {
    const std::uint64_t value = detail::read_word(owner);
    return view_.is_page_ready((detail::word::address(value) + offset) >> detail::word::page_shift, false);
  }

 private:
  // Calls nothing but touch(), and does not take the scope's address, so that the scope can live in registers.
  [[nodiscard, gnu::noinline, gnu::cold]] static std::byte* reach_further(runtime& in,
                                                                          std::atomic<std::uint64_t>& owner, bool write,
                                                                          bool lasting) {
    return detail::touch(in, owner, write, lasting);
  }

  [[nodiscard, gnu::noinline, gnu::cold]] static std::byte* reach_beginning_further(runtime& in,
                                                                                    std::atomic<std::uint64_t>& owner,
                                                                                    std::size_t bytes, bool write,
                                                                                    bool lasting) {
    const std::uint64_t value = owner.load(std::memory_order_acquire);
    if (detail::word::is_huge(value)) return detail::touch_part(in, value, 0, bytes, write, lasting);
    return detail::touch(in, owner, write, lasting);
  }

  [[nodiscard, gnu::noinline, gnu::cold]] static std::byte* reach_part_further(runtime& in, std::uint64_t value,
                                                                               std::size_t offset, std::size_t bytes,
                                                                               bool write, bool lasting) {
    return detail::touch_part(in, value, offset, bytes, write, lasting);
  }

  detail::open_scope open_;
  runtime& runtime_;
  detail::heap_view view_;
#if defined(FARHEAP_CHECKED)
  std::size_t depth_;
  volatile bool is_open_ = true;
#endif
};

}  // namespace far
