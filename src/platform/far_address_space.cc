#include "platform/far_address_space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "platform/advice.h"
#include "platform/left_alone.h"
#include "platform/local_memory.h"
#include "platform/own_descriptors.h"
#include "platform/program_limits.h"

namespace far::platform {
namespace {

constexpr std::size_t heap_alignment = heap_layout::alignment_bytes;
constexpr std::size_t ranges_a_call = 64;

// Straight to the kernel: madvise and mmap of the program may be the preload library's own.
int advise(std::byte* address, std::size_t bytes, int advice) {
  return syscall(SYS_madvise, address, bytes, advice) == 0 ? 0 : errno;
}

// userfaultfd refuses a range that spans several of the kernel's mappings. They mostly end where blocks of the far heap
// do; where they do not (the program changed the protection of a part), halving finds the end. `call(part, failure)`
// returns how many pages it did; `spans` is the error that may mean "several mappings".
template <typename Call>
std::size_t in_kernel_mappings(page_range range, int spans, int* error_code, Call call) {
  constexpr std::size_t block_pages = heap_alignment >> page_shift;
  std::size_t done = 0;
  std::size_t most = range.count;
  while (done < range.count) {
    const page_id first = range.first + done;
    const std::size_t to_block_end = block_pages - first % block_pages;
    const std::size_t count = std::min({most, range.count - done, to_block_end});
    int failure = 0;
    const std::size_t completed = call(page_range{first, count}, &failure);
    done += completed;
    if (completed == count) continue;
    if (completed == 0 && failure == spans && count > 1) {
      most = count / 2;
      continue;
    }
    if (completed == 0 || failure != spans) {
      *error_code = failure;
      break;
    }
  }
  return done;
}

}  // namespace

result<std::byte*> far_address_space::reserve(std::uint64_t heap_bytes) {
  const std::size_t mapped = heap_bytes + heap_alignment;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | left_alone;
  note_own_memory(static_cast<std::int64_t>(heap_bytes), 0);
  long raw = syscall(SYS_mmap, nullptr, mapped, PROT_NONE, flags, -1, 0L);
  if (raw == -1 && adopt_limits_from_outside()) raw = syscall(SYS_mmap, nullptr, mapped, PROT_NONE, flags, -1, 0L);
  if (raw == -1) {
    note_own_memory(-static_cast<std::int64_t>(heap_bytes), 0);
    return error{"cannot reserve " + format_size(heap_bytes) + " of address space for the far heap (" +
                     std::strerror(errno) + "); raise the limit with: ulimit -v unlimited",
                 errno};
  }
  const auto start = static_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = round_up(start, heap_alignment);
  const std::uintptr_t tail = aligned + heap_bytes;
  if (aligned > start) syscall(SYS_munmap, start, aligned - start);
  if (start + mapped > tail) syscall(SYS_munmap, tail, start + mapped - tail);
  return reinterpret_cast<std::byte*>(aligned);
}

void far_address_space::release(std::byte* base, std::uint64_t heap_bytes) {
  syscall(SYS_munmap, base, heap_bytes);
  note_own_memory(-static_cast<std::int64_t>(heap_bytes), 0);
}

far_address_space::far_address_space(const heap_layout& heap, userfaultfd& faults, const kernel_features& features)
    : heap_(heap),
      faults_(faults),
      features_(features),
      proc_descriptor_(own_descriptor(::open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC))) {
  open_self();
}

// The child of a process that has changed its root finds /proc all the same. The child of one that has changed its user
// may not read its own pagemap, which then belongs to root.
void far_address_space::open_self() {
  self_descriptor_ = own_descriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  if (features_.pagemap && proc_descriptor_ >= 0) {
    pagemap_descriptor_ = own_descriptor(::openat(proc_descriptor_, "self/pagemap", O_RDONLY | O_CLOEXEC));
  }
  // A failed move must be checked in the page table; see move_out().
  if (pagemap_descriptor_ < 0) features_.move = false;
  if (proc_descriptor_ >= 0) {
    memory_descriptor_ = own_descriptor(::openat(proc_descriptor_, "self/mem", O_RDONLY | O_CLOEXEC));
  }
}

far_address_space::~far_address_space() {
  close_self();
  if (proc_descriptor_ >= 0) close(proc_descriptor_);
}

void far_address_space::close_self() {
  if (self_descriptor_ >= 0) close(self_descriptor_);
  if (memory_descriptor_ >= 0) close(memory_descriptor_);
  if (pagemap_descriptor_ >= 0) close(pagemap_descriptor_);
  self_descriptor_ = memory_descriptor_ = pagemap_descriptor_ = -1;
}

void far_address_space::reopen_after_fork() {
  close_self();
  open_self();
}

std::size_t far_address_space::install(page_range range, const std::byte* source, mapping how, int* error_code) {
  const bool protect = how == mapping::write_protected;
  return in_kernel_mappings(range, ENOENT, error_code, [&](page_range part, int* failure) {
    const std::byte* const from = source + ((part.first - range.first) << page_shift);
    return faults_.copy(start_of(part), from, part.count << page_shift, protect, failure) >> page_shift;
  });
}

std::size_t far_address_space::lift(page_range range, std::byte* staging) {
  return features_.move ? lift_by_move(range, staging) : lift_by_copy(range, staging);
}

// A move that fails may have moved more than it says: from Linux 6.18 on, when the kernel tries again (because another
// thread splits the same huge page), it forgets to count what the second try moved, finds it there, and reports EEXIST.
// Nobody else puts pages where a move goes, or where it comes from, so those that have changed places have been moved.
std::size_t far_address_space::move_out(page_range range, std::uintptr_t to, int* error_code) {
  return in_kernel_mappings(range, EINVAL, error_code, [&](page_range part, int* failure) {
    const std::uintptr_t target = to + ((part.first - range.first) << page_shift);
    std::size_t done = 0;
    while (done < part.count) {
      const std::size_t rest = part.count - done;
      done += faults_.move(target + (done << page_shift), start_of({part.first + done, rest}), rest << page_shift,
                           failure) >>
              page_shift;
      const std::uintptr_t next = target + (done << page_shift);
      const std::size_t uncounted = count_moved({part.first + done, part.count - done}, next);
      if (uncounted == 0) break;
      FAR_CHECK(faults_.wake(next, uncounted << page_shift) == 0, "waiting accesses can always be woken");
      done += uncounted;
    }
    return done;
  });
}

std::size_t far_address_space::lift_by_move(page_range range, std::byte* staging) {
  std::size_t done = 0;
  bool retried = false;
  while (done < range.count) {
    int failure = 0;
    const page_range rest{range.first + done, range.count - done};
    const std::size_t moved =
        move_out(rest, reinterpret_cast<std::uintptr_t>(staging) + (done << page_shift), &failure);
    done += moved;
    if (done == range.count) break;
    if (moved > 0) retried = false;
    // Pages shared since a fork, and the kernel's zero page, are refused until we own them; a page that a device may
    // write to is refused whatever we do, and stays.
    if (failure == EBUSY && !retried && own_exclusively(range.first + done)) {
      retried = true;
      continue;
    }
    // The kernel's move wants both ends writable. Nobody can write to the others, so they may be copied.
    if (failure != EINVAL) break;
    const std::size_t copied = lift_by_copy({range.first + done, range.count - done}, staging + (done << page_shift));
    if (copied == 0) break;
    done += copied;
  }
  return done;
}

// Makes the kernel give this process its own copy of a shared page. The kernel refuses if the program has just made the
// page inaccessible or read-only, where a write of our own would crash. Every kernel that can move pages has this.
bool far_address_space::own_exclusively(page_id page) {
  return populate({page, 1}, true) == 0;
}

// How many pages from the first one on have bytes. A page that the program has dropped behind our back has none:
// copying it would wait for the thread that resolves misses, which would wait for us.
std::size_t far_address_space::count_filled(page_range range) {
  constexpr std::size_t pages_a_query = 64;
  std::array<bool, pages_a_query> filled{};
  for (std::size_t done = 0; done < range.count;) {
    const std::size_t asked = std::min(range.count - done, pages_a_query);
    query_filled(page_range{range.first + done, asked}, {filled.data(), asked});
    for (std::size_t i = 0; i < asked; ++i) {
      if (!filled[i]) return done + i;
    }
    done += asked;
  }
  return range.count;
}

// Through the kernel, which reports a range that may not be read where a plain copy would crash.
std::size_t far_address_space::copy_out(page_range range, std::byte* staging) {
  const std::size_t bytes = range.count << page_shift;
  if (features_.move) {
    // Staging is registered, so its empty pages can be filled only by userfaultfd.
    int failure = 0;
    const auto to = reinterpret_cast<std::uintptr_t>(staging);
    std::size_t done = faults_.copy(to, address_of(range.first), bytes, false, &failure) >> page_shift;
    std::array<std::byte, page_bytes> page;
    while (done < range.count && read_by_force({range.first + done, 1}, page.data()) == 1 &&
           faults_.copy(to + (done << page_shift), page.data(), page_bytes, false, &failure) == page_bytes) {
      ++done;
    }
    return done;
  }
  const iovec to{staging, bytes};
  const iovec from{address_of(range.first), bytes};
  const ssize_t copied = syscall(SYS_process_vm_readv, getpid(), &to, 1L, &from, 1L, 0L);
  const std::size_t done = copied > 0 ? static_cast<std::size_t>(copied) >> page_shift : 0;
  if (done == range.count) return done;
  return done + read_by_force({range.first + done, range.count - done}, staging + (done << page_shift));
}

// Reads memory that the program has made inaccessible. It leaves the protection alone: lifting it for a moment would
// let an access pass that the program means to catch.
std::size_t far_address_space::read_by_force(page_range range, std::byte* into) const {
  if (memory_descriptor_ < 0) return 0;
  const ssize_t got = pread(memory_descriptor_, into, range.count << page_shift, static_cast<off_t>(start_of(range)));
  return got > 0 ? static_cast<std::size_t>(got) >> page_shift : 0;
}

std::size_t far_address_space::lift_by_copy(page_range range, std::byte* staging) {
  if (faults_.write_protect(start_of(range), range.count << page_shift, true) != 0) {
    // On old kernels it may have come as far as the end of a mapping.
    allow_write(range);
    return range.count == 1 ? 0 : lift_by_copy({range.first, range.count / 2}, staging);
  }
  const std::size_t filled = count_filled(range);
  const std::size_t complete = filled == 0 ? 0 : copy_out({range.first, filled}, staging);
  const page_range lifted{range.first, complete};
  std::size_t done = complete > 0 && drop({&lifted, 1}) == 1 ? complete : 0;
  if (done < complete) {
    // A page is locked, and those before it are gone already: they count as lifted.
    for (page_range page{range.first, 1}; done < complete && drop({&page, 1}) == 1; ++page.first) ++done;
    if (features_.move) empty_staging(staging + (done << page_shift), complete - done);
  }
  if (done < range.count) allow_write({range.first + done, range.count - done});
  return done;
}

// A move of scattered pages interrupts the other processors once a page, a drop of all of them together once.
std::size_t far_address_space::lift_unused(std::span<const page_range> ranges, std::byte* copies) {
  std::byte* end = copies;
  for (const page_range& range : ranges) {
    std::memcpy(end, address_of(range.first), range.count << page_shift);
    end += range.count << page_shift;
  }
  const std::size_t dropped = drop(ranges);
  std::size_t lifted = 0;
  for (const page_range& dropped_range : ranges.first(dropped)) lifted += dropped_range.count;
  if (dropped < ranges.size()) {
    // A page is locked, and those before it are gone already: they count as lifted.
    page_range page{ranges[dropped].first, 1};
    for (; page.first < ranges[dropped].end() && drop({&page, 1}) == 1; ++page.first) ++lifted;
  }
  return lifted;
}

std::size_t far_address_space::relocate(page_range range, page_id to) {
  int failure = 0;
  std::size_t done = 0;
  if (features_.move) {
    done = move_out(range, reinterpret_cast<std::uintptr_t>(address_of(to)), &failure);
  }
  while (done < range.count) {
    const page_range page{range.first + done, 1};
    // A copy from an empty page would wait for the guard, which waits for us.
    bool filled = false;
    query_filled(page, {&filled, 1});
    if (!filled) break;
    std::array<std::byte, page_bytes> bytes;
    const bool copied = install({to + done, 1}, address_of(page.first), mapping::writable, &failure) == 1 ||
                        (failure == EFAULT && read_by_force(page, bytes.data()) == 1 &&
                         install({to + done, 1}, bytes.data(), mapping::writable, &failure) == 1);
    if (!copied) break;
    ++done;
    // The program has locked it by a call that nobody saw. What stayed would be found there by the next mapping.
    if (drop({&page, 1}) != 1) unlock_and_drop(page);
  }
  return done;
}

void far_address_space::unlock_and_drop(page_range page) {
  // Since Linux 5.18.
  if (advise(address_of(page.first), page.count << page_shift, MADV_DONTNEED_LOCKED) == 0) return;
  const bool unlocked = syscall(SYS_munlock, address_of(page.first), page.count << page_shift) == 0;
  FAR_CHECK(unlocked && drop({&page, 1}) == 1, "a page that has moved can be dropped");
}

std::size_t far_address_space::drop(std::span<const page_range> ranges) {
  std::size_t done = 0;
  while (done < ranges.size()) {
    std::array<iovec, ranges_a_call> vectors;
    const std::size_t count = std::min(ranges.size() - done, vectors.size());
    if (!features_.vectored_discard || count == 1) {
      const page_range& range = ranges[done];
      if (advise(address_of(range.first), range.count << page_shift, MADV_DONTNEED) != 0) return done;
      ++done;
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      vectors[i] = {address_of(ranges[done + i].first), ranges[done + i].count << page_shift};
    }
    ssize_t dropped = syscall(SYS_process_madvise, self_descriptor_, vectors.data(), count, MADV_DONTNEED, 0);
    if (dropped <= 0) return done;
    for (std::size_t i = 0; i < count && dropped >= static_cast<ssize_t>(vectors[i].iov_len); ++i, ++done) {
      dropped -= static_cast<ssize_t>(vectors[i].iov_len);
    }
  }
  return done;
}

void far_address_space::allow_write(page_range range) {
  const int failure = faults_.write_protect(start_of(range), range.count << page_shift, false);
  if (failure == 0) return;
  // The kernel refuses a range that spans several of its mappings, or (old ones) wakes nobody.
  FAR_CHECK(failure == ENOENT, "write protection of a guarded range can always be ended");
  for (page_range page{range.first, 1}; range.count > 1 && page.first < range.end(); ++page.first) {
    const int refused = faults_.write_protect(start_of(page), page_bytes, false);
    FAR_CHECK(refused == 0 || refused == ENOENT, "write protection of a guarded page can always be ended");
  }
  wake(range);
}

void far_address_space::wake(page_range range) {
  const int failure = faults_.wake(start_of(range), range.count << page_shift);
  FAR_CHECK(failure == 0, "waiting accesses can always be woken");
}

result<void> far_address_space::guard(page_range range) {
  int failure = register_pages(range);
  if (failure == 0) return {};
  // Something else is mapped over a part that the pager was not told of, by a raw system call. The rest is still ours;
  // the part is left alone.
  if (failure == EINVAL && range.count > 1) {
    page_range page{range.first, 1};
    while (page.first < range.end() && ((failure = register_pages(page)) == 0 || failure == EINVAL)) ++page.first;
    if (page.first == range.end()) return {};
    const page_range done{range.first, static_cast<std::size_t>(page.first - range.first)};
    if (done.count > 0) static_cast<void>(unguard(done));
  }
  return error{std::string("cannot guard a range of the far heap (") + std::strerror(failure) +
                   (failure == ENOMEM ? "); raise vm.max_map_count" : ")"),
               failure};
}

bool far_address_space::unguard(page_range range) {
  const int failure = faults_.unregister_range(start_of(range), range.count << page_shift);
  if (failure == 0 || failure == ENOMEM) return failure == 0;
  FAR_CHECK(failure == EINVAL, "a guarded range can always be unguarded");
  // As in guard(). Each run between such parts goes as a whole: the kernel has to split none of its mappings.
  bool done = true;
  page_range run{range.first, 0};
  for (page_range page{range.first, 1}; page.first <= range.end(); ++page.first) {
    if (page.first < range.end() && register_pages(page) == 0) {
      ++run.count;
      continue;
    }
    if (run.count > 0) done &= faults_.unregister_range(start_of(run), run.count << page_shift) == 0;
    run = {page.first + 1, 0};
  }
  return done;
}

// 0 also where they are registered already.
int far_address_space::register_pages(page_range range) {
  return faults_.register_range(start_of(range), range.count << page_shift, features_.write_protect);
}

void far_address_space::query_filled(page_range range, std::span<bool> filled) {
  query_filled(start_of(range), filled.first(range.count));
}

void far_address_space::query_filled(std::uintptr_t start, std::span<bool> filled) {
  if (pagemap_descriptor_ < 0) return query_without_pagemap(start, filled);
  constexpr std::uint64_t present_or_swapped = (std::uint64_t{1} << 63) | (std::uint64_t{1} << 62);
  constexpr std::size_t entries_a_read = 512;
  std::array<std::uint64_t, entries_a_read> entries;
  for (std::size_t done = 0; done < filled.size();) {
    const std::size_t wanted = std::min(filled.size() - done, entries_a_read);
    const std::uint64_t position = (start >> page_shift) + done;
    const ssize_t got = pread(pagemap_descriptor_, entries.data(), wanted * sizeof(std::uint64_t),
                              static_cast<off_t>(position * sizeof(std::uint64_t)));
    FAR_CHECK(got == static_cast<ssize_t>(wanted * sizeof(std::uint64_t)), "/proc/self/pagemap must be readable");
    for (std::size_t i = 0; i < wanted; ++i) filled[done + i] = (entries[i] & present_or_swapped) != 0;
    done += wanted;
  }
}

// mincore(2) says no to pages that are swapped out, too. Where the system swaps, userfaultfd is asked to fill what is
// not in core: it refuses where there are bytes, and a hole holds zeros now, which is what it would have read as. Where
// nothing is guarded it cannot say, and the page counts as filled.
void far_address_space::query_without_pagemap(std::uintptr_t start, std::span<bool> filled) {
  constexpr std::size_t pages_a_call = 512;
  std::array<unsigned char, pages_a_call> in_core;
  struct sysinfo memory{};
  const bool swaps = sysinfo(&memory) != 0 || memory.totalswap > 0;
  for (std::size_t done = 0; done < filled.size(); done += pages_a_call) {
    const std::size_t wanted = std::min(filled.size() - done, pages_a_call);
    const std::uintptr_t from = start + (done << page_shift);
    FAR_CHECK(syscall(SYS_mincore, from, wanted << page_shift, in_core.data()) == 0, "mincore knows the far heap");
    for (std::size_t i = 0; i < wanted; ++i) {
      filled[done + i] = (in_core[i] & 1) != 0 || swaps;
      if (filled[done + i] && (in_core[i] & 1) == 0) faults_.fill_hole(from + (i << page_shift));
    }
  }
}

// How many pages at the front of `from` have their bytes at `to` now, and no longer at their own place.
std::size_t far_address_space::count_moved(page_range from, std::uintptr_t to) {
  constexpr std::size_t pages_a_look = 64;
  std::array<bool, pages_a_look> source;
  std::array<bool, pages_a_look> target;
  for (std::size_t done = 0; done < from.count; done += pages_a_look) {
    const std::size_t looked = std::min(from.count - done, pages_a_look);
    query_filled({from.first + done, looked}, source);
    query_filled(to + (done << page_shift), std::span(target).first(looked));
    for (std::size_t i = 0; i < looked; ++i) {
      if (source[i] || !target[i]) return done + i;
    }
  }
  return from.count;
}

int far_address_space::populate(page_range range, bool write) {
  const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;  // since Linux 5.14
  return advise(address_of(range.first), range.count << page_shift, advice);
}

std::byte* far_address_space::map_staging(std::size_t pages) {
  std::byte* const staging = map_local(pages << page_shift);
  if (!features_.move) return staging;
  static_cast<void>(advise(staging, pages << page_shift, MADV_NOHUGEPAGE));
  const int failure = faults_.register_range(reinterpret_cast<std::uintptr_t>(staging), pages << page_shift, false);
  FAR_CHECK(failure == 0, "staging memory can always be registered");
  return staging;
}

void far_address_space::unmap_staging(std::byte* staging, std::size_t pages) {
  unmap_local(staging, pages << page_shift);
}

void far_address_space::empty_staging(std::byte* staging, std::size_t pages) {
  release_local_frames(staging, pages << page_shift);
}

result<void> far_address_space::renew_staging(std::byte* staging, std::size_t pages) {
  empty_staging(staging, pages);
  if (!features_.move) return {};
  const int failure = faults_.register_range(reinterpret_cast<std::uintptr_t>(staging), pages << page_shift, false);
  if (failure == 0) return {};
  return error{std::string("cannot register memory for pages on their way out (") + std::strerror(failure) + ")",
               failure};
}

}  // namespace far::platform
