#include "pager/page_holds.h"

#include "platform/signal_shield.h"

namespace far::pager {

void page_holds::pin(const std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  const page_id first = heap_.page_at(address);
  const page_id last = heap_.page_at(address + (bytes == 0 ? 0 : bytes - 1));
  for (page_id page = first; page <= last; ++page) {
    while (!pins_.try_pin(page)) misses_.resolve_fault(page == first ? address : heap_.address_of(page), true, nullptr);
  }
}

void page_holds::unpin(const std::byte* address, std::size_t bytes) {
  const platform::signal_shield shield;
  const page_id last = heap_.page_at(address + (bytes == 0 ? 0 : bytes - 1));
  for (page_id page = heap_.page_at(address); page <= last; ++page) pins_.unpin(page);
}

}  // namespace far::pager
