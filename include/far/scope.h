// Scopes: while one is open, the objects that were dereferenced in it stay where they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "far/detail/api.h"
#include "far/detail/hazard_log.h"
#include "far/detail/word.h"
#include "far/runtime.h"

namespace far {

namespace detail {

// The calling fiber's hazard log, or the calling thread's. Stays the same on one fiber.
[[nodiscard]] FAR_API hazard_log& current_hazard_log() noexcept;

#if defined(__x86_64__)
// Thread-local variables are read through a segment register, so no address of the wrong thread's can be left over from
// before the fiber changed workers.
[[nodiscard]] inline hazard_log& hazard_log_now() noexcept {
  hazard_log* const known = hazard_log_here;
  return known != nullptr ? *known : current_hazard_log();
}
#else
[[nodiscard]] inline hazard_log& hazard_log_now() noexcept {
  return current_hazard_log();
}
#endif

// Makes the object that `owner` points to resident, holds it in `by`, and returns its address. `write`: it will be
// written. `lasting`: it is worth keeping in local memory afterwards.
[[nodiscard]] FAR_API std::byte* touch(runtime& in, hazard_log& log, std::atomic<std::uint64_t>& owner, bool write,
                                       bool lasting);

// The same for `bytes` bytes of an object larger than a page, from `offset` on: of its pages, for these only. `value`
// is its owner's word. Of more than 64 KiB only the beginning is fetched and held. Stops the program when the object
// ends before.
[[nodiscard]] FAR_API std::byte* touch_part(runtime& in, hazard_log& log, std::uint64_t value, std::size_t offset,
                                            std::size_t bytes, bool write, bool lasting);

// In checked builds, in place of hazard_log::cut_back: what no other scope holds leaves local memory at once, so that
// whoever uses it again is found out.
FAR_API void leave_checked(runtime& in, hazard_log& log, std::size_t held_before);
// Stops the program with a message unless the scope is open and belongs to the fiber or thread that runs now.
FAR_API void check_scope(const hazard_log& log, bool is_open);
// Likewise unless the bytes are part of the object. Requires: it is held, or larger than a page.
FAR_API void check_part(const std::atomic<std::uint64_t>& owner, std::size_t offset, std::size_t bytes);

}  // namespace detail

// Opened and closed on the same fiber or OS thread, in nested order: a local variable. Cheap. May last as long as it
// likes: nothing waits for it, but what it has dereferenced stays in local memory. References obtained in it are good
// until it ends. In checked builds (every file compiled with -DFARHEAP_CHECKED) a reference that is used later, and a
// scope that is used after its end or by another fiber, stop the program with a message; that is slow.
class [[nodiscard]] scope {
 public:
  // For objects of the process-wide runtime; see runtime::process().
  scope() : scope(runtime::process()) {}
  // For objects of `of`, and of no other runtime.
  explicit scope(runtime& chosen) : log_(detail::hazard_log_now()), runtime_(chosen), held_before_(log_.held()) {}
  ~scope() {
#if defined(FARHEAP_CHECKED)
    detail::leave_checked(runtime_, log_, held_before_);
    is_open_ = false;
#else
    log_.cut_back(held_before_);
#endif
  }
  scope(const scope&) = delete;
  scope& operator=(const scope&) = delete;
  // A scope is a stretch of code, not an object to pass on.
  static void* operator new(std::size_t) = delete;
  static void* operator new[](std::size_t) = delete;

  // For far pointers: the address of the object that `owner` points to.
  [[nodiscard]] std::byte* reach(std::atomic<std::uint64_t>& owner, bool write, bool lasting) const {
#if defined(FARHEAP_CHECKED)
    detail::check_scope(log_, is_open_);
#endif
    const std::uint64_t value = owner.load(std::memory_order_acquire);
    if (log_.knows(value)) [[likely]]
      return reinterpret_cast<std::byte*>(detail::word::address(value));
    return reach_further(runtime_, log_, owner, value, write, lasting);
  }
  // The address of a part of it. Of an object larger than a page, only the part is fetched and held.
  [[nodiscard]] std::byte* reach_part(std::atomic<std::uint64_t>& owner, std::size_t offset, std::size_t bytes,
                                      bool write, bool lasting) const {
    const std::uint64_t value = owner.load(std::memory_order_acquire);
    if ((value & detail::word::huge) != 0) {
#if defined(FARHEAP_CHECKED)
      detail::check_scope(log_, is_open_);
#endif
      return detail::touch_part(runtime_, log_, value, offset, bytes, write, lasting);
    }
    std::byte* const whole = reach(owner, write, lasting);
#if defined(FARHEAP_CHECKED)
    detail::check_part(owner, offset, bytes);
#endif
    return whole + offset;
  }

 private:
  // For words that are not known yet. Calls nothing but, at its end, touch(): so it needs no stack, and a scope whose
  // address nobody takes lives in registers.
  [[nodiscard, gnu::noinline]] static std::byte* reach_further(runtime& in, detail::hazard_log& log,
                                                               std::atomic<std::uint64_t>& owner, std::uint64_t value,
                                                               bool write, bool lasting) {
    if (detail::word::is_plain(value) && log.hold_at_once(detail::word::page(value))) [[likely]] {
      // Now page and object stay, unless they were leaving already: then the word or the page's byte says so.
      if (in.view_.is_ready(value, write) && owner.load(std::memory_order_acquire) == value) [[likely]] {
        log.know(value);
        return reinterpret_cast<std::byte*>(detail::word::address(value));
      }
    }
    return detail::touch(in, log, owner, write, lasting);
  }

  detail::hazard_log& log_;
  runtime& runtime_;
  std::size_t held_before_;
#if defined(FARHEAP_CHECKED)
  volatile bool is_open_ = true;
#endif
};

}  // namespace far
