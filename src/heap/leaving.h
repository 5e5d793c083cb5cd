// Handlers that are called before objects leave local memory (AIFM, section 4.2.3; far/tag.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "far/tag.h"
#include "heap/page_table.h"

namespace far::heap {

// Stops the program when the calling thread is in a handler: it holds locks that a use of far memory would wait for.
void check_outside_handlers() noexcept;

class leaving_objects {
 public:
  // Requires: the tag has no handler, and no page has its number. Waits for calls that took such a page's number before
  // it was dropped.
  void set_handler(unsigned tag, leaving_handler handler);
  // Calls no handler of the tag from now on, and waits until none is running.
  void drop_handler(unsigned tag);

  [[nodiscard]] bool has_handler(unsigned tag) const {
    return any_.load(std::memory_order_acquire) && handlers_[tag].load(std::memory_order_acquire) != nullptr;
  }

  // Calls the handler for each live object of a page. Returns how many there are. Requires: nobody has a pointer into
  // the page, or gets one; it can be written.
  std::size_t call(const page_table& pages, std::size_t page) noexcept;

 private:
  void wait_for_calls(unsigned tag) const;

  std::atomic<bool> any_{false};
  std::array<std::atomic<const leaving_handler*>, most_tags> handlers_{};
  std::array<std::unique_ptr<const leaving_handler>, most_tags> kept_{};
  std::array<std::atomic<unsigned>, most_tags> running_{};  // calls
};

}  // namespace far::heap
