#include "heap/leaving.h"

#include <thread>
#include <utility>

#include "base/use_check.h"
#include "fiber/this_fiber.h"
#include "heap/header.h"
#include "heap/heap.h"

namespace far::heap {
namespace {

// Handlers do not wait, so no fiber changes threads in one.
constinit thread_local bool in_handler = false;

std::size_t call_for_all(const leaving_handler& handler, const page_table& pages, std::size_t page) {
  std::size_t count = 0;
  in_handler = true;
  pages.for_each_live(page, [&](std::size_t unit) {
    const std::uintptr_t object = pages.address_of(page) + unit * unit_bytes;
    handler({reinterpret_cast<std::byte*>(object), header::payload_bytes(header::at(object).load())});
    ++count;
  });
  in_handler = false;
  return count;
}

}  // namespace

void check_outside_handlers() noexcept {
  FAR_CHECK_USE(
      !in_handler,
      "a handler for leaving objects uses no far memory but the object that it is given, and does not call exit()");
}

void leaving_objects::set_handler(unsigned tag, leaving_handler handler) {
  wait_for_calls(tag);
  kept_[tag] = std::make_unique<const leaving_handler>(std::move(handler));
  handlers_[tag].store(kept_[tag].get(), std::memory_order_release);
  any_.store(true, std::memory_order_release);
}

void leaving_objects::drop_handler(unsigned tag) {
  handlers_[tag].store(nullptr, std::memory_order_seq_cst);
  wait_for_calls(tag);
  kept_[tag].reset();
}

// A call that is counted after this finds no handler, or the page's number changed.
void leaving_objects::wait_for_calls(unsigned tag) const {
  while (running_[tag].load(std::memory_order_seq_cst) > 0) {
    if (fiber::on_fiber()) {
      fiber::yield();
    } else {
      std::this_thread::yield();
    }
  }
}

std::size_t leaving_objects::call(const page_table& pages, std::size_t page) noexcept {
  const unsigned tag = pages.tag_of(page);
  running_[tag].fetch_add(1, std::memory_order_seq_cst);
  // The number may be another tag's by now.
  const leaving_handler* const handler =
      pages.tag_of(page) == tag ? handlers_[tag].load(std::memory_order_seq_cst) : nullptr;
  const std::size_t count = handler != nullptr ? call_for_all(*handler, pages, page) : 0;
  running_[tag].fetch_sub(1, std::memory_order_release);
  return count;
}

}  // namespace far::heap

namespace far::detail {

// A page that nobody has used since it came can leave clean, and then no handler is called. If one that is on its way
// out has marks of uses, the evictor has not decided yet whether it leaves: it takes the marks before it calls the
// handlers (scope_filter.cc; tests/model/leaving_entries_model_test.cc). A page that was forced out has lost its marks,
// and may be ready when it comes again. Objects that move are looked at again.
bool object_heap::is_local(const owner_word& owner) const {
  while (true) {
    const std::uint64_t value = owner.load(std::memory_order_acquire);
    const std::uintptr_t object = word::address(value);
    const std::size_t page = pages.page_of(object);
    const bool is_here = word::is_fetching(value) || memory.is_writable(object) ||
                         (!memory.is_away(object) && (pages.is_ready(page) || pages.use_of(page).objects > 0));
    if (word::address(owner.load(std::memory_order_acquire)) == object) return is_here;
  }
}

}  // namespace far::detail
