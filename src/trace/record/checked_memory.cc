#include "trace/record/checked_memory.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "base/units.h"

namespace far::trace {

bool checked_memory::read(std::uint64_t address, std::uint64_t* value) noexcept {
  const auto inside = [this](std::uint64_t place) {
    return place >= start_ && bytes_ >= sizeof *value && place - start_ <= bytes_ - sizeof *value;
  };
  if (!inside(address) && (!move_window(address) || !inside(address))) return false;
  std::memcpy(value, window_.data() + (address - start_), sizeof *value);
  return true;
}

// The kernel copies, and reports how far it got. Page by page, because it may give up a whole part.
bool checked_memory::move_window(std::uint64_t address) noexcept {
  constexpr std::size_t most_parts = window_bytes / page_bytes + 1;
  std::array<iovec, most_parts> parts;
  std::size_t count = 0;
  if (address + window_bytes < address) return false;
  for (std::uint64_t place = address; place < address + window_bytes; ++count) {
    const std::uint64_t border = (place | (page_bytes - 1)) + 1;
    const std::uint64_t end = border < address + window_bytes ? border : address + window_bytes;
    parts[count] = {reinterpret_cast<void*>(place), end - place};
    place = end;
  }
  const iovec here{window_.data(), window_bytes};
  const long copied = syscall(SYS_process_vm_readv, getpid(), &here, 1, parts.data(), count, 0);
  start_ = address;
  bytes_ = copied < 0 ? 0 : static_cast<std::uint64_t>(copied);
  return copied > 0;
}

}  // namespace far::trace
