#include "array_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"

namespace far::python {
namespace {

// Where NumPy asks for huge pages, too.
constexpr std::size_t huge_from_bytes = 4 * mib;

// Filling larger arrays takes so long that their faults hardly matter. As in the C library, whose blocks above 32 MiB
// are always fresh, and which keeps twice that.
constexpr std::size_t largest_spare_bytes = 32 * mib;
constexpr std::size_t most_spares_bytes = 64 * mib;
constexpr std::size_t most_spares = 64;

}  // namespace

array_memory::array_memory(pager::pager& far)
    : far_(far),
      first_(reinterpret_cast<std::uintptr_t>(far.start())),
      far_bytes_(far.pages() << page_shift),
      most_spare_bytes_(std::min<std::uint64_t>(most_spares_bytes, far.snapshot().budget_bytes / 8)) {
  const lock_guard guard(lock_);
  spares_.reserve(most_spares);  // release() must not fail
}

void* array_memory::take(std::size_t bytes, content wanted) noexcept {
  if (bytes > PTRDIFF_MAX) return nullptr;
  const std::size_t needed = round_up(bytes, page_bytes);
  mapping taken = take_spare(needed);
  if (!taken.empty()) {
    if (wanted == content::zeros) std::memset(taken.data(), 0, bytes);
  } else {
    taken = map(needed);
    if (taken.empty()) return nullptr;
  }
  if (remember(taken)) return taken.data();
  unmap(taken);
  return nullptr;
}

void* array_memory::resize(void* memory, std::size_t bytes) noexcept {
  if (bytes > PTRDIFF_MAX) return nullptr;
  const mapping before = forget(memory);
  const std::size_t needed = std::max(round_up(bytes, page_bytes), page_bytes);
  mapping after = before;
  if (needed != before.size()) {
    const result<std::byte*> moved = far_.remap(before.data(), before.size(), needed, {.may_move = true});
    if (moved) after = {moved.value(), needed};
  }
  // There was an entry a moment ago. Without room for it the array could not be given back.
  FAR_CHECK(remember(after), "there is local memory for the size of an array");
  return after.size() == needed ? after.data() : nullptr;
}

void array_memory::release(void* memory) noexcept {
  const mapping freed = forget(memory);
  if (freed.size() > std::min(largest_spare_bytes, most_spare_bytes_)) return unmap(freed);
  while (true) {
    mapping oldest;
    {
      const lock_guard guard(lock_);
      if (spares_.size() < most_spares && spare_bytes_ + freed.size() <= most_spare_bytes_) {
        spares_.push_back(freed);
        spare_bytes_ += freed.size();
        return;
      }
      oldest = spares_.front();
      spares_.erase(spares_.begin());
      spare_bytes_ -= oldest.size();
    }
    unmap(oldest);
  }
}

void array_memory::drop_spares() noexcept {
  while (true) {
    mapping last;
    {
      const lock_guard guard(lock_);
      if (spares_.empty()) return;
      last = spares_.back();
      spares_.pop_back();
      spare_bytes_ -= last.size();
    }
    unmap(last);
  }
}

// Takes the newest spare that is large enough, but not by much: its pages are most likely to be in the processor's
// cache.
array_memory::mapping array_memory::take_spare(std::size_t bytes) noexcept {
  const lock_guard guard(lock_);
  const auto found = std::find_if(spares_.rbegin(), spares_.rend(), [bytes](mapping one) {
    return one.size() >= bytes && one.size() - bytes <= bytes / 8;
  });
  if (found == spares_.rend()) return {};
  const mapping taken = *found;
  spares_.erase(std::next(found).base());
  spare_bytes_ -= taken.size();
  return taken;
}

array_memory::mapping array_memory::map(std::size_t bytes) noexcept {
  const result<std::byte*> fresh = far_.map(bytes, PROT_READ | PROT_WRITE, page_bytes);
  if (!fresh) return {};
  // Only advice: the kernel decides.
  if (bytes >= huge_from_bytes) static_cast<void>(far_.advise(fresh.value(), bytes, MADV_HUGEPAGE));
  return {fresh.value(), bytes};
}

bool array_memory::remember(mapping used) noexcept {
  const lock_guard guard(lock_);
  try {
    used_.emplace(used.data(), used.size());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

array_memory::mapping array_memory::forget(void* memory) noexcept {
  const lock_guard guard(lock_);
  const auto found = used_.find(memory);
  FAR_CHECK(found != used_.end(), "an array's memory is given back once, as it was taken");
  const mapping freed(static_cast<std::byte*>(memory), found->second);
  used_.erase(found);
  return freed;
}

void array_memory::unmap(mapping unused) noexcept {
  const result<void> done = far_.unmap(unused.data(), unused.size());
  FAR_CHECK(done.ok(), "what was mapped can be unmapped");
}

}  // namespace far::python
