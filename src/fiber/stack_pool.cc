#include "fiber/stack_pool.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/units.h"
#include "fiber/sanitizers.h"

namespace far::fiber {
namespace {

constexpr int guard_install = 102;           // MADV_GUARD_INSTALL, Linux 6.13
constexpr std::size_t slab_bytes = 4 * mib;  // small stacks are mapped together

[[noreturn]] void refuse(int code, const char* purpose) {
  throw std::system_error(code, std::generic_category(),
                          std::string("cannot ") + purpose +
                              " for the stack of a fiber; run fewer fibers at a time, give them smaller stacks "
                              "(spawn_options::stack_bytes), "
                              "or raise vm.max_map_count and the limit on address space (ulimit -v)");
}

// Without a mapping of its own for each guard where the kernel can: mappings are limited to 65530 by default.
void install_guard(std::byte* address, std::size_t bytes) {
  if (syscall(SYS_madvise, address, bytes, guard_install) == 0) return;
  if (syscall(SYS_mprotect, address, bytes, PROT_NONE) != 0) refuse(errno, "install the guard area");
}

}  // namespace

std::size_t signal_frame_bytes() noexcept {
#ifdef AT_MINSIGSTKSZ
  constexpr unsigned long entry = AT_MINSIGSTKSZ;
#else
  constexpr unsigned long entry = 51;
#endif
  return std::max<std::size_t>(getauxval(entry), 4 * kib);  // 0 before Linux 5.14
}

std::size_t smallest_stack_bytes() noexcept {
  return round_up(16 * kib + 2 * signal_frame_bytes(), page_bytes) * (sanitizers::present ? 4 : 1);
}

std::size_t default_stack_bytes() noexcept {
  return std::max<std::size_t>(64 * kib * (sanitizers::present ? 4 : 1), smallest_stack_bytes());
}

stack_pool::~stack_pool() {
  for (const mapping& one : mappings_) platform::unmap_local(one.address, one.bytes);
}

std::size_t stack_pool::class_of(std::size_t bytes) {
  constexpr std::size_t most_bytes = std::size_t{1} << 46;
  if (bytes > most_bytes) refuse(ENOMEM, "find so much memory");
  const std::size_t rounded = std::bit_ceil(std::max(bytes, smallest_stack_bytes()));
  const auto shift = static_cast<std::size_t>(std::countr_zero(rounded));
  if (shift >= smallest_class_shift + classes) refuse(ENOMEM, "find so much memory");
  return shift - smallest_class_shift;
}

stack_pool::free_stack* stack_pool::top_of(stack area) noexcept {
  return reinterpret_cast<free_stack*>(area.low + area.bytes - sizeof(free_stack));
}

stack stack_pool::take(std::size_t bytes) {
  const std::size_t index = class_of(bytes);
  size_class& from = classes_[index];
  {
    const lock_guard guard(from.lock);
    if (free_stack* const found = from.free; found != nullptr) {
      from.free = found->next;
      return {found->low, std::size_t{1} << (index + smallest_class_shift)};
    }
  }
  return map_more(index);
}

void stack_pool::give_back(stack done) noexcept {
  sanitizers::forget_frames(done.low, done.bytes);
  size_class& to = classes_[static_cast<std::size_t>(std::countr_zero(done.bytes)) - smallest_class_shift];
  const lock_guard guard(to.lock);
  to.free = new (top_of(done)) free_stack{to.free, done.low};
}

stack stack_pool::map_more(std::size_t index) {
  const std::size_t usable = std::size_t{1} << (index + smallest_class_shift);
  const std::size_t stack_bytes = guard_bytes + usable;
  const std::size_t count = std::max<std::size_t>(1, slab_bytes / stack_bytes);
  std::byte* const address = platform::try_map_local(count * stack_bytes);
  if (address == nullptr) refuse(errno, "map memory");
  // Huge pages would give every stack 2 MiB of frames. Fails only in kernels that have none.
  static_cast<void>(syscall(SYS_madvise, address, count * stack_bytes, MADV_NOHUGEPAGE));
  try {
    for (std::size_t i = 0; i < count; ++i) install_guard(address + i * stack_bytes, guard_bytes);
  } catch (...) {
    platform::unmap_local(address, count * stack_bytes);
    throw;
  }
  {
    const lock_guard guard(mappings_lock_);
    mappings_.push_back({address, count * stack_bytes});
  }
  for (std::size_t i = count; i-- > 1;) give_back({address + i * stack_bytes + guard_bytes, usable});
  return {address + guard_bytes, usable};
}

std::uint64_t stack_pool::mapped_bytes() const noexcept {
  const lock_guard guard(mappings_lock_);
  std::uint64_t total = 0;
  for (const mapping& one : mappings_) total += one.bytes;
  return total;
}

}  // namespace far::fiber
