// How the memory calls of the program are served: by the pager for addresses in the far heap, otherwise by the kernel,
// as before. A range may lie in both.
#include "preload/memory_calls.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/units.h"
#include "pager/memory_results.h"
#include "platform/advice.h"
#include "platform/left_alone.h"
#include "preload/far_ranges.h"
#include "preload/hinted_places.h"
#include "preload/in_runtime.h"
#include "preload/kernel_calls.h"
#include "preload/memory_file.h"
#include "preload/memory_locks.h"
#include "preload/process_transfers.h"
#include "preload/program_memory.h"
#include "preload/resource_limits.h"
#include "preload/runtime.h"

namespace far::preload {
namespace {

using overlap = pager::pager::overlap;

// Whether the flags request a special kind of memory, which far memory cannot be.
constexpr bool is_special(int flags) {
  return (flags & (MAP_GROWSDOWN | MAP_STACK | MAP_HUGETLB | MAP_LOCKED | MAP_32BIT)) != 0 ||
         platform::is_left_alone(flags);
}
constexpr int access_bits = PROT_READ | PROT_WRITE | PROT_EXEC;
constexpr int known_protection = access_bits | PROT_GROWSDOWN | PROT_GROWSUP | 0x8 /* PROT_SEM */;
// Whether a part of the range in the far heap was sealed.
bool has_far_seal(const pager::pager& far, void* address, std::size_t bytes) {
  const auto native = [](std::byte* /*first*/, std::size_t /*count*/) { return 0; };
  const auto sealed = [&](std::byte* first, std::size_t count) {
    return far.is_sealed(first, count) ? result<void>(error{"it is sealed", EPERM}) : result<void>();
  };
  const int saved_errno = errno;
  const bool any = serve(far, address, bytes, false, native, sealed) != 0;
  errno = saved_errno;
  return any;
}

// ---- mmap ----

// Locks new mappings after mlockall(MCL_FUTURE). A mapping that may not be locked is not made.
void* lock_if_asked(void* mapped, std::size_t bytes) {
  if (mapped == MAP_FAILED || lock_future_mapping(mapped, bytes)) return mapped;
  kernel_munmap(mapped, bytes);
  return fail_to_map(EAGAIN);
}

// The kernel's mapping is made elsewhere first, so that a call that fails leaves everything as it was, and is then
// moved into its place in one step.
void* map_over_far_heap(pager::pager& far, void* address, std::size_t bytes, int protection, int flags, int descriptor,
                        off_t offset) {
  const overlap how = (flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE ? overlap::refuse : overlap::replace;
  if (how == overlap::replace && !locks_future_mappings()) {
    // Mappings that the kernel owns are the kernel's to decide about.
    const auto place = [&]() -> int {
      return kernel_mmap(address, bytes, protection, flags, descriptor, offset) != MAP_FAILED ? 0 : errno;
    };
    const auto* const placing = &place;
    const result<bool> replaced = in_runtime([&] {
      return far.replace_foreign(bytes_at(address), round_up(bytes, page_bytes), [placing] { return (*placing)(); });
    });
    if (!replaced) return fail_to_map(replaced.error().code);
    if (replaced.value()) return address;
  }
  const int elsewhere = flags & ~(MAP_FIXED | MAP_FIXED_NOREPLACE);
  // Would the call be valid at this address? If so, a mapping that must not replace anything fails there with EEXIST.
  void* const probe = kernel_mmap(address, bytes, protection, elsewhere | MAP_FIXED_NOREPLACE, descriptor, offset);
  if (probe != MAP_FAILED) kernel_munmap(probe, bytes);
  if (probe == MAP_FAILED && errno != EEXIST) return MAP_FAILED;
  void* const temporary =
      lock_if_asked(kernel_mmap(nullptr, bytes, protection, elsewhere & ~MAP_32BIT, descriptor, offset), bytes);
  if (temporary == MAP_FAILED) return MAP_FAILED;
  const std::size_t whole = round_up(bytes, page_bytes);
  bool moved = false;
  const auto place = [&]() -> int {
    moved = kernel_mremap(temporary, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, address) != MAP_FAILED;
    if (moved) return 0;
    // Some kinds of memory cannot be moved, so the kernel makes a new mapping.
    const bool mapped =
        kernel_mmap(address, bytes, protection, elsewhere | MAP_FIXED, descriptor, offset) != MAP_FAILED;
    if (mapped) static_cast<void>(lock_future_mapping(address, bytes));  // as much could be locked elsewhere
    return mapped ? 0 : errno;
  };
  const auto* const placing = &place;
  const result<void> handed_over =
      in_runtime([&] { return far.hand_over(bytes_at(address), whole, how, [placing] { return (*placing)(); }); });
  if (!moved) kernel_munmap(temporary, whole);
  return done(handed_over) == 0 ? address : MAP_FAILED;
}

void* map_fixed(pager::pager& far, void* address, std::size_t bytes, int protection, int flags, int descriptor,
                off_t offset, bool ordinary) {
  const overlap how = (flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE ? overlap::refuse : overlap::replace;
  if (!ordinary) return map_over_far_heap(far, address, bytes, protection, flags, descriptor, offset);
  const result<void> mapped =
      in_runtime([&] { return far.map_at(bytes_at(address), bytes, protection & access_bits, how); });
  return done(mapped) == 0 ? address : MAP_FAILED;
}

// A place partly in the far heap, partly not: one mapping cannot be both, so the whole of it becomes the kernel's.
void* map_across(pager::pager& far, void* address, std::size_t bytes, int protection, int flags, int descriptor,
                 off_t offset) {
  if ((flags & MAP_FIXED_NOREPLACE) == MAP_FIXED_NOREPLACE) return fail_to_map(EEXIST);
  if (!ends_in_user_space(address, bytes)) return fail_to_map(ENOMEM);
  if (has_far_seal(far, address, bytes)) return fail_to_map(EPERM);
  // Would it succeed at all?
  void* const probe = lock_if_asked(
      kernel_mmap(nullptr, bytes, protection, flags & ~(MAP_FIXED | MAP_32BIT), descriptor, offset), bytes);
  if (probe == MAP_FAILED) return MAP_FAILED;
  kernel_munmap(probe, bytes);
  std::byte* at = bytes_at(address);
  std::byte* const end = at + round_up(bytes, page_bytes);
  while (at < end) {
    bool is_far = false;
    const std::size_t part = far.uniform_bytes(at, static_cast<std::size_t>(end - at), &is_far);
    // Its part is mapped with the whole, below.
    const auto wait_for_whole = [] { return 0; };
    const result<void> taken =
        is_far ? in_runtime([&] { return far.hand_over(at, part, overlap::replace, wait_for_whole); }) : result<void>();
    if (done(taken) != 0) return MAP_FAILED;
    at += part;
  }
  void* const mapped = kernel_mmap(address, bytes, protection, flags, descriptor, offset);
  if (mapped != MAP_FAILED) return static_cast<void>(lock_future_mapping(mapped, bytes)), mapped;
  const int failure = errno;
  for (at = bytes_at(address); at < end;) {  // nothing of the kernel's came there
    bool is_far = false;
    const std::size_t part = far.uniform_bytes(at, static_cast<std::size_t>(end - at), &is_far);
    if (is_far) static_cast<void>(in_runtime([&] { return far.unmap(at, part); }));
    at += part;
  }
  return fail_to_map(failure);
}

// Whether the program has allocated this protection key. Only the kernel knows, so this tries it.
bool is_allocated_key(int key) {
  void* const page = kernel_mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const bool accepted = kernel_pkey_mprotect(page, page_bytes, PROT_NONE, key) == 0;
  kernel_munmap(page, page_bytes);
  return accepted;
}

constinit hinted_places proposed;

// Memory at the place that the program proposes, outside the far heap; MAP_FAILED if the place is not free.
void* map_at_proposed_place(void* address, std::size_t bytes, int protection, int flags) {
  void* const mapped = kernel_mmap(address, bytes, protection, flags | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped == MAP_FAILED || mapped == address) return lock_if_asked(mapped, bytes);
  kernel_munmap(mapped, bytes);  // Linux before 4.17 does not know the flag
  return MAP_FAILED;
}

}  // namespace

// Only ordinary private anonymous memory becomes far. Everything else, and a fixed mapping outside the far heap, is
// left to the kernel, whose errors are then the native ones.
void* map(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) {
  if (static_cast<std::uint64_t>(offset) % page_bytes != 0) return fail_to_map(EINVAL);
  pager::pager* const far = pager_for_caller();
  const bool anonymous = (flags & MAP_ANONYMOUS) != 0 && (flags & MAP_TYPE) == MAP_PRIVATE;
  const bool ordinary = far != nullptr && anonymous && !is_special(flags) && (protection & PROT_EXEC) == 0 &&
                        (protection & ~known_protection) == 0 && bytes > 0;
  const bool fixed = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
  const bool touches = pager_of(address, bytes) != nullptr;
  const bool within = touches && lies(*far, address, round_up(bytes, page_bytes)) == whereabouts::within;
  if (far != nullptr && !fixed && !has_addresses_for(bytes)) return MAP_FAILED;
  if (fixed && touches) {
    proposed.used(address, bytes);
    return within ? map_fixed(*far, address, bytes, protection, flags, descriptor, offset, ordinary)
                  : map_across(*far, address, bytes, protection, flags, descriptor, offset);
  }
  if (fixed || !ordinary) {
    void* const mapped = kernel_mmap(address, bytes, protection, flags, descriptor, offset);
    return far == nullptr ? mapped : lock_if_asked(mapped, bytes);
  }
  // A hint is followed if the place is free.
  if (within) {
    const int saved_errno = errno;
    void* const hinted = map_fixed(*far, address, bytes, protection, MAP_FIXED_NOREPLACE, -1, 0, true);
    if (hinted != MAP_FAILED) return proposed.mapped(), hinted;
    errno = saved_errno;
  }
  const bool reservation = protection == PROT_NONE;
  const bool unreserved = !reservation && (flags & MAP_NORESERVE) != 0;
  const bool proposes = address != nullptr && !touches && !unreserved;
  if (proposes && (reservation ? proposed.follows_reservations() : proposed.follows(bytes))) {
    const int saved_errno = errno;
    void* const hinted = map_at_proposed_place(address, bytes, protection, flags);
    if (hinted != MAP_FAILED) return hinted;
    errno = saved_errno;
  }
  const result<std::byte*> mapped = in_runtime([&] { return far->map(bytes, protection & access_bits, page_bytes); });
  if (mapped && !(proposes && reservation)) proposed.mapped();
  if (mapped && proposes && reservation) proposed.reservation_came_elsewhere(mapped.value(), bytes);
  if (mapped && proposes && !reservation) proposed.came_elsewhere(mapped.value(), bytes);
  if (mapped) return mapped.value();
  // A reservation for which there is no room is the kernel's; docs/run.md says what follows.
  if (reservation || unreserved)
    return lock_if_asked(kernel_mmap(address, bytes, protection, flags, descriptor, offset), bytes);
  return fail_to_map(mapped.error().code != 0 ? mapped.error().code : ENOMEM);
}

// ---- munmap, mprotect, mseal, madvise ----

int unmap(void* address, std::size_t bytes) {
  pager::pager* const far = pager_of(address, bytes);
  // If the kernel refuses, it does so before it unmaps anything.
  if (far == nullptr || !ends_in_user_space(address, bytes)) return kernel_munmap(address, bytes);
  // As in the kernel, nothing is unmapped of a range with a sealed part. Only the kernel knows its own seals, so it
  // comes first.
  if (lies(*far, address, round_up(bytes, page_bytes)) == whereabouts::across) {
    if (has_far_seal(*far, address, bytes)) return fail(EPERM);
    const auto later = [](std::byte* /*first*/, std::size_t /*count*/) { return result<void>(); };
    if (serve(*far, address, bytes, false, kernel_munmap, later) != 0) return -1;
  }
  proposed.given_back(address, bytes);
  const auto done_before = [](std::byte* /*first*/, std::size_t /*count*/) { return 0; };
  return serve(*far, address, bytes, false, done_before,
               [far](std::byte* first, std::size_t count) { return far->unmap(first, count); });
}

int protect(void* address, std::size_t bytes, int protection, int key) {
  bytes = within_addresses(address, bytes);
  pager::pager* const far = pager_of(address, bytes);
  if (far == nullptr) return kernel_pkey_mprotect(address, bytes, protection, key);
  if (protection != PROT_NONE) proposed.used(address, bytes);
  if ((protection & ~known_protection) != 0 || (key != -1 && !is_allocated_key(key))) return fail(EINVAL);
  return serve(
      *far, address, bytes, false,
      [protection, key](void* first, std::size_t count) { return kernel_pkey_mprotect(first, count, protection, key); },
      [far, protection, key](std::byte* first, std::size_t count) {
        return far->protect_with_key(first, count, protection, key);
      });
}

int seal(void* address, std::size_t bytes, unsigned long flags) {
  pager::pager* const far = pager_of(address, bytes);
  if (far == nullptr) return kernel_mseal(address, bytes, flags);
  if (kernel_mseal(address, 0, flags) != 0) return -1;  // whether the kernel has this call, and knows the flags
  // As in the kernel, nothing is sealed of a range with a hole.
  if (has_far_hole(address, bytes)) return fail(ENOMEM);
  return serve(
      *far, address, bytes, false, [](void* first, std::size_t count) { return kernel_mseal(first, count, 0); },
      [far](std::byte* first, std::size_t count) { return far->seal(first, count); });
}

int advise(void* address, std::size_t bytes, int advice) {
  bytes = within_addresses(address, bytes);
  pager::pager* const far = pager_of(address, bytes);
  if (far == nullptr) return kernel_madvise(address, bytes, advice);
  // Whether this kernel knows the advice at all.
  if (kernel_madvise(address, 0, advice) != 0) return -1;
  const bool past_holes = advice != MADV_POPULATE_READ && advice != MADV_POPULATE_WRITE;
  return serve(
      *far, address, bytes, past_holes,
      [advice](void* first, std::size_t count) { return kernel_madvise(first, count, advice); },
      [far, advice](std::byte* first, std::size_t count) { return far->advise(first, count, advice); });
}

namespace {

constexpr std::size_t longest_name = 80;  // with its end; the kernel refuses what is longer

// A name of the program as the kernel can read it: in inline mode it reads nothing that is remote. What the program
// could not read either is left for the kernel to refuse.
const char* readable_name(const char* text, char (&copy)[longest_name + 1]) {
  const pager::pager* const far = active_pager();
  if (far == nullptr || !far->contains(text)) return text;
  for (std::size_t i = 0; i < longest_name; ++i) {
    const bool is_on_new_page = i == 0 || reinterpret_cast<std::uintptr_t>(text + i) % page_bytes == 0;
    if (is_on_new_page && !load(text + i)) return text;
    copy[i] = text[i];
    if (copy[i] == 0) break;
  }
  return copy;
}

}  // namespace

// The kernel is to say whether it has names at all, and whether this is one. A name makes a mapping of its own, and
// would stay in the far heap for what the program maps there next; so far memory gets none.
int give_name(void* address, std::size_t bytes, const char* text) {
  const auto again = [&] { return give_name(address, bytes, text); };
  if (stack_is_far()) return call_on_local_stack(again);
  char copy[longest_name + 1]{};
  const char* const name = readable_name(text, copy);
  const auto give = [name](void* first, std::size_t count) { return kernel_give_name(first, count, name); };
  const auto give_part = [give](std::byte* first, std::size_t count) { return give(first, count) == 0 ? 0 : errno; };
  pager::pager* const far = pager_of(address, bytes);
  if (far == nullptr) return give(address, bytes);
  if (give(address, 0) != 0) return -1;
  return serve(*far, address, bytes, true, give,
               [&](std::byte* first, std::size_t count) { return far->for_each_foreign(first, count, give_part); });
}

// ---- mincore, msync ----

bool has_far_hole(const void* address, std::size_t bytes) {
  bytes = within_addresses(address, bytes);
  const pager::pager* const far = pager_of(address, bytes);
  if (far == nullptr) return false;
  const auto* at = static_cast<const std::byte*>(address);
  const std::byte* const end = at + round_up(bytes, page_bytes);
  while (at < end) {
    bool is_far = false;
    const std::size_t part = far->uniform_bytes(at, static_cast<std::size_t>(end - at), &is_far);
    if (is_far && !in_runtime([&] { return far->is_mapped(at, part); })) return true;
    at += part;
  }
  return false;
}

namespace {

// How much of a range comes before its first hole in the far heap.
std::size_t bytes_before_far_hole(const pager::pager& far, const std::byte* first, std::size_t bytes) {
  std::size_t done = 0;
  while (done < bytes) {
    bool is_far = false;
    std::size_t part = far.uniform_bytes(first + done, bytes - done, &is_far);
    if (is_far) {
      const pager::pager::piece piece = in_runtime([&] { return far.piece_at(first + done, part); });
      if (!piece.owner) break;
      part = piece.bytes;
    }
    done += part;
  }
  return done;
}

}  // namespace

int find_resident_before_hole(void* address, std::size_t bytes, unsigned char* resident) {
  constexpr std::uintptr_t kernel_begin = std::uintptr_t{1} << 63;
  if (number_of(address) % page_bytes != 0) return fail(EINVAL);
  if (number_of(address) >= kernel_begin || bytes > kernel_begin - number_of(address)) return fail(ENOMEM);
  bytes = within_addresses(address, bytes);
  const pager::pager* const far = pager_of(address, bytes);
  const std::size_t there = far == nullptr ? 0 : bytes_before_far_hole(*far, bytes_at(address), bytes);
  const std::size_t count = pages_for(there);
  for (std::size_t done = 0; done < count;) {
    // The results may be far, too, and in fault_mode::in_line the kernel waits for nobody there.
    const std::size_t part = pinned_part::bytes_from(number_of(resident + done), count - done);
    const pinned_part held(number_of(resident + done), part);
    if (kernel_mincore(bytes_at(address) + (done << page_shift), part << page_shift, resident + done) != 0) return -1;
    done += part;
  }
  return fail(ENOMEM);
}

int sync_around_holes(void* address, std::size_t bytes, int flags) {
  return kernel_msync(address, bytes, flags) != 0 ? -1 : fail(ENOMEM);
}

// ---- mlock ----

namespace {

// mlock and munlock take the whole pages that hold any byte of a range.
struct whole_pages {
  whole_pages(const void* address, std::size_t given_bytes)
      : first(reinterpret_cast<void*>(round_down(number_of(address), page_bytes))),
        bytes(within_addresses(first, given_bytes + (number_of(address) - number_of(first)))) {}
  void* first;
  std::size_t bytes;
};

}  // namespace

int lock(const void* address, std::size_t bytes, unsigned flags) {
  constexpr unsigned on_fault = 1;  // MLOCK_ONFAULT
  const whole_pages pages(address, bytes);
  pager::pager* const far = pager_of(pages.first, pages.bytes);
  if (far == nullptr || (flags & ~on_fault) != 0) return kernel_mlock2(address, bytes, flags);
  // As in the kernel: the limit applies to the whole range; then all of it is locked, up to a hole; then it is filled,
  // until filling fails.
  if (kernel_mlock2(pages.first, 0, flags) != 0) return -1;
  if (!in_runtime([&] { return may_lock(pages.first, pages.bytes); })) return fail(ENOMEM);
  const int failed = serve(
      *far, pages.first, pages.bytes, false,
      [](void* at, std::size_t count) { return kernel_mlock2(at, count, on_fault); },
      [far](std::byte* at, std::size_t count) { return far->lock(at, count, on_fault); });
  if (failed != 0 || flags == on_fault) return failed;
  return serve(
      *far, pages.first, pages.bytes, false, [](void* at, std::size_t count) { return kernel_mlock2(at, count, 0); },
      [far](std::byte* at, std::size_t count) { return far->fill_locked(at, count); });
}

int unlock(const void* address, std::size_t bytes) {
  const whole_pages pages(address, bytes);
  pager::pager* const far = pager_of(pages.first, pages.bytes);
  if (far == nullptr) return kernel_munlock(address, bytes);
  return serve(*far, pages.first, pages.bytes, false, kernel_munlock,
               [far](std::byte* at, std::size_t count) { return far->unlock(at, count); });
}

// ---- process_madvise ----

namespace {

// Whether a pidfd refers to this process.
bool is_this_process(int process) {
  constexpr int self_thread = -10000;  // PIDFD_SELF
  constexpr int self_group = -20000;
  if (process == self_thread || process == self_group) return true;
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/self/fdinfo/%d", process);
  const int about = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.data(), O_RDONLY | O_CLOEXEC, 0));
  if (about < 0) return false;
  std::array<char, 512> text{};
  const long got = syscall(SYS_read, about, text.data(), text.size() - 1);
  syscall(SYS_close, about);
  const char* const line = got > 0 ? std::strstr(text.data(), "\nPid:") : nullptr;
  return line != nullptr && std::strtol(line + 5, nullptr, 10) == syscall(SYS_getpid);
}

}  // namespace

ssize_t advise_process(int process, const iovec* given, std::size_t count, int advice, unsigned flags) {
  constexpr std::size_t most_ranges = 1024;
  const auto refused = [&] { return kernel_process_madvise(process, given, count, advice, flags); };
  if (pager_for_caller() == nullptr || count > most_ranges) return refused();
  // With a copy, since the program's array may be remote, and the kernel does not wait for it in inline mode.
  const vector_copy copy(given, count, load_vectors);
  if (!copy.is_good()) return refused();
  const std::span<const iovec> ranges = copy.all();
  const bool any_far = std::any_of(ranges.begin(), ranges.end(), [](const iovec& range) {
    return pager_of(range.iov_base, range.iov_len) != nullptr;
  });
  if (!any_far || !is_this_process(process)) {
    return kernel_process_madvise(process, ranges.data(), count, advice, flags);
  }
  // The kernel says whether the call is allowed at all.
  const iovec nothing{ranges[0].iov_base, 0};
  if (kernel_process_madvise(process, &nothing, 1, advice, flags) < 0) return -1;
  ssize_t advised = 0;
  for (const iovec& range : ranges) {
    if (advise(range.iov_base, range.iov_len, advice) != 0) return advised > 0 ? advised : -1;
    advised += static_cast<ssize_t>(range.iov_len);
  }
  return advised;
}

}  // namespace far::preload
