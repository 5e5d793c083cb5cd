#include "heap/leaving.h"

#include <thread>
#include <utility>

#include "base/use_check.h"
#include "fiber/this_fiber.h"
#include "heap/header.h"

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
