#include "heap/leaving.h"

#include <utility>

#include "base/check.h"
#include "heap/header.h"

namespace far::heap {
namespace {

// Handlers do not wait, so no fiber changes threads in one.
constinit thread_local bool in_handler = false;

}  // namespace

void check_outside_handlers() noexcept {
  FAR_CHECK(!in_handler, "a handler for leaving objects uses no far memory but the object that it is given");
}

void leaving_objects::set_handler(unsigned tag, leaving_handler handler) {
  kept_[tag] = std::make_unique<const leaving_handler>(std::move(handler));
  handlers_[tag].store(kept_[tag].get(), std::memory_order_release);
  any_.store(true, std::memory_order_release);
}

std::size_t leaving_objects::call(const page_table& pages, std::size_t page) const noexcept {
  const leaving_handler& handler = *handlers_[pages.tag_of(page)].load(std::memory_order_acquire);
  std::size_t count = 0;
  in_handler = true;
  pages.for_each_live(page, [&](std::size_t unit) {
    const std::uintptr_t object = pages.address_of(page) + unit * unit_bytes;
    const std::uint64_t value = header::at(object).load();
    const std::size_t bytes = header::bytes(value) - ((value & header::has_pointers) != 0 ? sizeof(void*) : 0);
    handler({reinterpret_cast<std::byte*>(object), bytes});
    ++count;
  });
  in_handler = false;
  return count;
}

}  // namespace far::heap
