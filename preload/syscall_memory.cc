#include "preload/syscall_memory.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <optional>
#include <span>

#include "base/units.h"
#include "platform/local_memory.h"
#include "preload/process_transfers.h"
#include "preload/runtime.h"
#include "preload/syscall_structures.h"
#include "preload/syscall_stubs.h"
#include "preload/syscall_table.h"
#include "preload/threads.h"

namespace far::preload {
namespace {

constexpr std::uint64_t largest_part_bytes = 8 * mib;
constexpr std::uint64_t smallest_part_bytes = 64 * kib;  // granted even when too much is pinned already
constexpr std::uint64_t largest_buffer_bytes = gib;
constexpr long most_transferred_bytes = 0x7ffff000;  // of which the kernel lets one call transfer no more
constexpr std::uint64_t unlimited_bytes = ~std::uint64_t{0};
constexpr unsigned most_attempts = 4;
constexpr std::size_t first_guess_bytes = 512;
constexpr long futex_requeue = 456;
constexpr std::size_t most_vectors = 1024;                  // IOV_MAX
constexpr std::size_t most_strings = std::size_t{1} << 20;  // the kernel takes 6 MiB of them, pointers included

// The pager counts up to 255 pins of a page. We stop before that, by counting in buckets that several pages share. A
// page that cannot be pinned is only made resident, and the call is repeated if the page has left before the kernel
// used it.
constexpr std::size_t bucket_count = 4096;
constexpr int most_pins = 200;
std::array<std::atomic<int>, bucket_count> pins{};
std::atomic<std::int64_t> pinned_pages{0};

std::atomic<int>& bucket_of(const std::byte* page) {
  return pins[(reinterpret_cast<std::uintptr_t>(page) >> page_shift) % bucket_count];
}

std::byte* page_of(const std::byte* address) {
  return reinterpret_cast<std::byte*>(round_down(reinterpret_cast<std::uintptr_t>(address), page_bytes));
}

void remember(guarded_call& call, pinned_run run) {
  if (call.run_count == call.run_capacity) {
    auto* const more = static_cast<pinned_run*>(platform::allocate_local(2 * call.run_capacity * sizeof(pinned_run)));
    std::copy_n(call.runs, call.run_count, more);
    if (call.runs != call.few_runs.data()) platform::free_local(call.runs, call.run_capacity * sizeof(pinned_run));
    call.runs = more;
    call.run_capacity *= 2;
  }
  call.runs[call.run_count++] = run;
}

void unpin_runs(pager::pager& pager, guarded_call& call) {
  for (std::size_t i = 0; i < call.run_count; ++i) {
    const pinned_run& run = call.runs[i];
    pager.unpin(run.first, run.pages << page_shift);
    for (std::uint64_t page = 0; page < run.pages; ++page) bucket_of(run.first + (page << page_shift)).fetch_sub(1);
    pinned_pages.fetch_sub(static_cast<std::int64_t>(run.pages));
  }
  call.run_count = 0;
}

// Finds and pins what one attempt of a call touches.
class collector {
 public:
  collector(pager::pager& pager, guarded_call& call) : pager_(pager), call_(call) {}

  // Whether anything was far.
  bool collect() {
    call_.arguments = call_.given;
    call_.left = 0;
    unsigned covered = 0;
    for (const table_row& row : rows_of(call_.number)) {
      if (row.kind == shape::addresses) return false;
      covered |= row.alone ? ~0U : 1U << row.pointer;
      collect_row(row);
    }
    for (unsigned i = 0; i < call_.given.size(); ++i) {
      if ((covered & (1U << i)) == 0) guess_again(argument(i));
    }
    return found_;
  }

  // Pins a part of memory, as far as it is far, and may be pinned.
  void hold(std::byte* address, std::size_t bytes) {
    if (bytes == 0 || !pager_.overlaps(address, bytes)) return;
    std::byte* const first = page_of(address);
    std::byte* const last = page_of(address + bytes - 1);
    if (writable(first) && (first == last || writable(last))) return hold_pages(first, last + page_bytes);
    for (std::byte* page = first; page <= last; page += page_bytes) {
      if (writable(page)) hold_pages(page, page + page_bytes);
    }
  }

 private:
  // Holds a structure that is to be read here. False where it is at a bad address, which is the kernel's to refuse.
  // What is near the end of the stack can be read.
  [[nodiscard]] bool hold_readable(std::byte* memory, std::size_t bytes) {
    constexpr std::size_t near_bytes = 16 * kib;
    hold(memory, bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    return address - call_.stack < near_bytes || may_be_read(pager_, memory, bytes);
  }

  [[nodiscard]] std::byte* argument(unsigned index) const { return reinterpret_cast<std::byte*>(call_.given[index]); }
  [[nodiscard]] std::size_t size_argument(unsigned index) const { return static_cast<std::size_t>(call_.given[index]); }

  void collect_row(const table_row& row) {
    std::byte* const memory = argument(row.pointer);
    switch (row.kind) {
      case shape::addresses: return;
      case shape::fixed: return hold(memory, row.bytes);
      case shape::buffer:
        return hold(memory, std::min<std::size_t>(size_argument(row.count), largest_buffer_bytes) * row.bytes);
      case shape::per_page:
        return hold(memory, std::min<std::size_t>(size_argument(row.count) / page_bytes + 1, largest_buffer_bytes));
      case shape::transfer: return collect_transfer(row.pointer, row.count);
      case shape::vectors: return collect_vectors(row.pointer, row.count);
      case shape::message: return collect_message(memory);
      case shape::messages: return collect_messages(memory, size_argument(row.count));
      case shape::strings: return collect_strings(memory);
      case shape::waiters: return collect_waiters(memory, row.number == futex_requeue ? 2 : size_argument(row.count));
      case shape::child: return collect_child(memory, size_argument(row.count));
      case shape::request: return collect_request(memory);
      case shape::structure: guess_again(memory); return collect_parts();
      case shape::option:
        hold(memory, std::min<std::size_t>(size_argument(row.count), largest_buffer_bytes));
        return collect_filter();
      case shape::filter:
        if (filter_of(call_.number, call_.given) != nullptr) return collect_filter();
        guess_again(memory);
        return collect_parts();
    }
  }

  // Whether the call leaves what it reads, so that it cannot go on behind it.
  [[nodiscard]] bool peeks() const { return call_.number == SYS_recvfrom && (call_.given[3] & MSG_PEEK) != 0; }

  // How much one call may pin now. Short transfers are legal; a budget full of pinned pages is not.
  [[nodiscard]] std::uint64_t part_bytes() const {
    const std::uint64_t budget = pager_.snapshot().budget_bytes;
    const auto pinned = static_cast<std::uint64_t>(std::max(std::int64_t{0}, pinned_pages.load())) << page_shift;
    const std::uint64_t unpinned = budget / 4 > pinned ? budget / 4 - pinned : 0;
    const std::uint64_t most = std::min({largest_part_bytes, budget / 8, unpinned});
    // Whole blocks of every device: O_DIRECT refuses others.
    return std::max(smallest_part_bytes, round_down(most, smallest_part_bytes));
  }

  void collect_transfer(unsigned pointer, unsigned count) {
    std::byte* const memory = argument(pointer);
    if (static_cast<long>(size_argument(count)) < 0) return;  // which the kernel refuses
    const auto bytes = std::min<std::size_t>(size_argument(count), most_transferred_bytes - call_.transferred);
    const bool is_far = pager_.overlaps(memory, bytes);
    const bool goes_whole = bytes <= (peeks() ? largest_part_bytes : smallest_part_bytes);
    const bool is_cut = is_far && !goes_whole && !keeps_messages(call_.given[0]);
    const std::size_t now = is_cut ? std::min<std::size_t>(bytes, part_bytes()) : bytes;
    call_.arguments[count] = static_cast<long>(now);
    call_.left = bytes - now;
    if (is_far) hold(memory, now);
  }

  // Pins the elements that fit into what `allow()` returns, and returns how many these are. 0: the first is too long,
  // and goes in part. Elements before one that is too long, which are local, go alone.
  template <typename Allow>
  std::size_t hold_vectors(const iovec* vectors, std::size_t count, const Allow& allow) {
    std::uint64_t allowed = 0;
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const iovec vector = vectors[i];
      if (!pager_.overlaps(vector.iov_base, vector.iov_len)) continue;
      if (allowed == 0) allowed = allow();
      if (bytes + vector.iov_len > allowed && (bytes > 0 || i > 0)) return i;
      const bool is_too_long = vector.iov_len > allowed;
      if (is_too_long) call_.part = {vector.iov_base, allowed};
      hold(static_cast<std::byte*>(vector.iov_base), is_too_long ? allowed : vector.iov_len);
      if (is_too_long) return 0;
      bytes += vector.iov_len;
    }
    return count;
  }

  // A call may name more memory than the budget holds. It is then shortened to the elements that fit, which is legal:
  // the caller must expect a short transfer.
  void collect_vectors(unsigned pointer, unsigned count) {
    const auto* const vectors = reinterpret_cast<const iovec*>(argument(pointer));
    const std::size_t asked = size_argument(count);
    if (vectors == nullptr || asked > most_vectors) return;  // the kernel refuses it
    if (!hold_readable(argument(pointer), asked * sizeof(iovec))) return;
    const std::size_t fitting =
        hold_vectors(vectors, asked, [&] { return keeps_messages(call_.given[0]) ? unlimited_bytes : part_bytes(); });
    if (fitting == asked) return;
    call_.arguments[count] = static_cast<long>(std::max<std::size_t>(fitting, 1));
    if (fitting == 0) call_.arguments[pointer] = reinterpret_cast<long>(&call_.part);
  }

  // Who sends without waiting expects that not all of it is taken. What is not taken would be fetched each time.
  [[nodiscard]] bool sends_without_waiting() const {
    if (call_.number != SYS_sendmsg || keeps_messages(call_.given[0])) return false;
    return (call_.given[2] & MSG_DONTWAIT) != 0 ||
           (far_raw_syscall(SYS_fcntl, call_.given[0], F_GETFL) & O_NONBLOCK) != 0;
  }

  void collect_message(std::byte* memory) {
    if (memory == nullptr || !hold_readable(memory, sizeof(msghdr))) return;
    const msghdr message = *reinterpret_cast<const msghdr*>(memory);
    hold(static_cast<std::byte*>(message.msg_name), message.msg_namelen);
    hold(static_cast<std::byte*>(message.msg_control), message.msg_controllen);
    if (message.msg_iov == nullptr || message.msg_iovlen > most_vectors) return;
    if (!hold_readable(reinterpret_cast<std::byte*>(message.msg_iov), message.msg_iovlen * sizeof(iovec))) return;
    const std::size_t fitting = hold_vectors(message.msg_iov, message.msg_iovlen,
                                             [&] { return sends_without_waiting() ? part_bytes() : unlimited_bytes; });
    if (fitting == message.msg_iovlen) return;
    call_.message = message;
    call_.message.msg_iovlen = std::max<std::size_t>(fitting, 1);
    if (fitting == 0) call_.message.msg_iov = &call_.part;
    call_.arguments[1] = reinterpret_cast<long>(&call_.message);
  }

  void collect_messages(std::byte* memory, std::size_t count) {
    count = std::min(count, most_vectors);
    hold(memory, count * sizeof(mmsghdr));
    for (std::size_t i = 0; memory != nullptr && i < count; ++i) collect_message(memory + i * sizeof(mmsghdr));
  }

  // argv and its like.
  void collect_strings(std::byte* memory) {
    auto* const strings = reinterpret_cast<std::byte**>(memory);
    if (strings == nullptr) return;
    const std::byte* readable_end = memory;
    for (std::size_t i = 0; i < most_strings; ++i) {
      auto* const place = reinterpret_cast<std::byte*>(strings + i);
      if (i == 0 || place + sizeof(char*) > readable_end) {
        if (!hold_readable(place, sizeof(char*))) return;
        readable_end = page_of(place + sizeof(char*) - 1) + page_bytes;
      }
      if (strings[i] == nullptr) return;
      hold_string(strings[i]);
    }
  }

  void hold_string(std::byte* text) {
    while (pager_.contains(text) && hold_readable(text, 1)) {
      std::byte* const end = page_of(text) + page_bytes;
      if (std::find(text, end, std::byte{0}) != end) return;
      text = end;
    }
  }

  // As in linux/futex.h, which older systems have without it.
  void collect_waiters(std::byte* memory, std::size_t count) {
    struct waiter {
      std::uint64_t value;
      std::uint64_t address;
      std::uint32_t flags;
      std::uint32_t reserved;
    };
    constexpr std::size_t most_waiters = 128;
    if (memory == nullptr || count > most_waiters) return;  // the kernel refuses it
    if (!hold_readable(memory, count * sizeof(waiter))) return;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t at = reinterpret_cast<const waiter*>(memory)[i].address;
      hold(reinterpret_cast<std::byte*>(at), sizeof(std::uint64_t));
    }
  }

  // The numbers that the kernel stores for the program.
  void collect_child(std::byte* memory, std::size_t bytes) {
    if (memory == nullptr || bytes < CLONE_ARGS_SIZE_VER0 || bytes > page_bytes) return;  // the kernel refuses it
    if (!hold_readable(memory, bytes)) return;
    const auto* const asked = reinterpret_cast<const clone_args*>(memory);
    for (const std::uint64_t number : {asked->pidfd, asked->child_tid, asked->parent_tid}) {
      hold(reinterpret_cast<std::byte*>(number), sizeof(pid_t));
    }
    constexpr std::uint64_t most_nested = 32;  // namespaces of processes
    if (bytes < CLONE_ARGS_SIZE_VER1 || asked->set_tid_size > most_nested) return;
    hold(reinterpret_cast<std::byte*>(asked->set_tid), asked->set_tid_size * sizeof(pid_t));
  }

  // Other memory that a structure leads to: as far as memory is mapped, because other words may look like pointers.
  void collect_parts() {
    for (const memory_part& part : parts_of(call_.number, call_.given)) {
      if (pager_.overlaps(part.address, part.bytes)) guess(part.address, std::min(part.bytes, part_bytes()));
    }
  }

  // An ioctl is not repeated, so what it touches must be known at once. Other drivers may use the same numbers, so what
  // looks like a length is believed only as far as memory is mapped.
  void collect_request(std::byte* memory) {
    const auto request = static_cast<unsigned>(call_.given[1]);
    guess(memory, std::max<std::size_t>(first_guess_bytes, _IOC_SIZE(request)));
    if (pager_.contains(memory)) guess(memory, structure_bytes(request, memory));
    collect_parts();
    if (!lists_interfaces(call_.number, call_.given)) return;
    const std::optional<ifconf> list = copy_of(reinterpret_cast<const ifconf*>(memory));
    if (!list || list->ifc_len <= 0 || list->ifc_buf == nullptr) return;
    guess(reinterpret_cast<std::byte*>(list->ifc_buf),
          std::min(static_cast<std::size_t>(list->ifc_len), interface_bytes(call_.given[0])));
  }

  // If the table gives no size: first enough for a structure or a short name, then more if that was not enough.
  void guess_again(std::byte* address) {
    static constexpr std::array<std::size_t, most_attempts> guesses{first_guess_bytes, page_bytes, 64 * kib, 64 * kib};
    guess(address, guesses[call_.attempts]);
  }

  void collect_filter() {
    const sock_fprog* const given = filter_of(call_.number, call_.given);
    if (given == nullptr) return;
    hold(reinterpret_cast<std::byte*>(const_cast<sock_fprog*>(given)), sizeof *given);
    const std::optional<sock_fprog> filter = copy_of(given);
    if (filter) hold(reinterpret_cast<std::byte*>(filter->filter), filter->len * sizeof(sock_filter));
  }

  void guess(std::byte* address, std::size_t bytes) {
    if (!pager_.overlaps(address, bytes)) return;
    // Only as far as memory is mapped: behind it, another thread's memory may come and go.
    std::byte* const end = address + bytes;
    std::byte* first = page_of(address);
    while (!pager_.contains(first)) first += page_bytes;
    std::byte* page = first;
    while (page < end && writable(page)) page += page_bytes;
    hold_pages(first, page);
  }

  // Read-only pages are touched, so that they are resident at least now.
  bool writable(std::byte* page) {
    if (!pager_.contains(page)) return false;
    const result<pager::pager::mapping> found = pager_.mapping_at(page, page_bytes);
    if (!found) return false;
    const int protection = found.value().guarded ? PROT_NONE : found.value().protection;
    found_ = true;
    if ((protection & PROT_WRITE) != 0) return true;
    if ((protection & PROT_READ) != 0) static_cast<void>(*reinterpret_cast<volatile std::byte*>(page));
    return false;
  }

  void hold_pages(std::byte* first, std::byte* end) {
    if (call_.run_count > 0) {
      const pinned_run& newest = call_.runs[call_.run_count - 1];
      std::byte* const held_end = newest.first + (newest.pages << page_shift);
      if (first >= newest.first && first < held_end) first = std::min(end, held_end);
    }
    std::byte* page = first;
    for (; page < end; page += page_bytes) {
      std::atomic<int>& bucket = bucket_of(page);
      if (bucket.fetch_add(1) < most_pins) continue;
      bucket.fetch_sub(1);
      pin(first, page);
      reinterpret_cast<std::atomic<unsigned char>*>(page)->fetch_or(0);
      first = page + page_bytes;
    }
    pin(first, page);
  }

  void pin(std::byte* first, std::byte* end) {
    if (first >= end) return;
    const auto bytes = static_cast<std::size_t>(end - first);
    pinned_pages.fetch_add(static_cast<std::int64_t>(bytes >> page_shift));
    pager_.pin(first, bytes);
    remember(call_, {first, bytes >> page_shift});
  }

  pager::pager& pager_;
  guarded_call& call_;
  bool found_ = false;
};

// A handler may leave the call that it interrupted by a jump. The stack then ends where it ended in that call, or
// above; in the handler itself it ends below, or is the signal stack.
void release_abandoned_calls(std::uintptr_t stack) {
  constexpr std::uintptr_t same_stack_bytes = mib;
  const auto signal_stack = reinterpret_cast<std::uintptr_t>(this_thread().signal_stack);
  if (stack - signal_stack < signal_stack_bytes) return;
  while (guarded_call* const newest = this_thread().calls) {
    if (stack < newest->stack || stack - newest->stack > same_stack_bytes) return;
    release_call(*newest);
  }
}

// ---- process_vm_readv and process_vm_writev ----

bool any_far(const pager::pager& pager, std::span<const iovec> vectors) {
  return std::any_of(vectors.begin(), vectors.end(), [&pager](const iovec& vector) {
    return vector.iov_len > 0 && (pager.contains(vector.iov_base) ||
                                  pager.contains(static_cast<std::byte*>(vector.iov_base) + vector.iov_len - 1));
  });
}

// Fetches and pins the far sides of one part, and lets the kernel copy it, which knows what may be touched.
long transfer_part(pager::pager& pager, const process_transfer& asked, bool is_own, const iovec& local,
                   const iovec& remote) {
  guarded_call call{};
  call.runs = call.few_runs.data();
  call.run_capacity = call.few_runs.size();
  const long number = asked.writes ? SYS_process_vm_writev : SYS_process_vm_readv;
  long result = -EFAULT;
  for (; call.attempts < most_attempts && result == -EFAULT; ++call.attempts) {
    collector held(pager, call);
    held.hold(static_cast<std::byte*>(local.iov_base), local.iov_len);
    if (is_own) held.hold(static_cast<std::byte*>(remote.iov_base), remote.iov_len);
    result = far_raw_syscall(number, asked.process, reinterpret_cast<long>(&local), 1, reinterpret_cast<long>(&remote),
                             1, 0);
    unpin_runs(pager, call);
  }
  if (call.runs != call.few_runs.data()) platform::free_local(call.runs, call.run_capacity * sizeof(pinned_run));
  return result;
}

// What a call asks for, with copies of its vectors.
class transfer_arguments {
 public:
  transfer_arguments(pager::pager& pager, long number, const std::array<long, 6>& arguments)
      : can_be_read_(may_be_read(number, arguments)),
        local_(reinterpret_cast<const iovec*>(arguments[1]), can_be_read_ ? arguments[2] : 0, copier{pager}),
        remote_(reinterpret_cast<const iovec*>(arguments[3]), can_be_read_ ? arguments[4] : 0, copier{pager}),
        asked_{number == SYS_process_vm_writev, static_cast<pid_t>(arguments[0]), local_.all(), remote_.all()} {}

  // Null for arguments that the kernel refuses, or that move nothing.
  [[nodiscard]] const process_transfer* get() const {
    const bool is_good =
        local_.is_good() && remote_.is_good() && is_sensible(asked_.local) && is_sensible(asked_.remote);
    return is_good ? &asked_ : nullptr;
  }

 private:
  struct copier {
    pager::pager& pager;
    long operator()(const iovec& to, const iovec& from) const {
      return transfer_part(pager, {false, getpid(), {}, {}}, true, to, from);
    }
  };

  static bool may_be_read(long number, const std::array<long, 6>& arguments) {
    return is_process_transfer(number) && arguments[1] != 0 && arguments[3] != 0 && arguments[5] == 0 &&
           static_cast<std::size_t>(arguments[2]) <= most_vectors &&
           static_cast<std::size_t>(arguments[4]) <= most_vectors;
  }

  bool can_be_read_;
  vector_copy local_;
  vector_copy remote_;
  process_transfer asked_;
};

// The kernel has made the call with another process, and may have met a remote page of it.
long finish_transfer(pager::pager& pager, const guarded_call& call, long result) {
  if (result < 0 && result != -EFAULT) return result;
  const transfer_arguments arguments(pager, call.number, call.original);
  const process_transfer* const asked = arguments.get();
  if (asked == nullptr) return result;
  return transfer_with_other(
      *asked, static_cast<std::size_t>(std::max(result, 0L)), smallest_part_bytes,
      [&](const iovec& local, const iovec& remote) { return transfer_part(pager, *asked, false, local, remote); });
}

}  // namespace

bool is_process_transfer(long number) noexcept {
  return number == SYS_process_vm_readv || number == SYS_process_vm_writev;
}

bool serve_own_transfer(pager::pager& pager, long number, const std::array<long, 6>& arguments, long* result) {
  // Everything else is left to the kernel, also calls with wrong arguments.
  if (!is_process_transfer(number)) return false;
  const transfer_arguments given(pager, number, arguments);
  const process_transfer* const asked = given.get();
  if (asked == nullptr || !any_far(pager, asked->remote) || !is_of_this_process(asked->process)) return false;
  *result = transfer_in_parts(*asked, 0, smallest_part_bytes, [&](const iovec& local, const iovec& remote) {
    return transfer_part(pager, *asked, true, local, remote);
  });
  return true;
}

bool any_may_be_far(const pager::pager& pager, const std::array<long, 6>& arguments) noexcept {
  return std::any_of(arguments.begin(), arguments.end(), [&pager](long argument) {
    return pager.overlaps(reinterpret_cast<const void*>(argument), largest_buffer_bytes);
  });
}

namespace {

bool leads_far(const pager::pager& pager, long number, const std::array<long, 6>& arguments) {
  if (!has_parts(number, arguments)) return false;
  const memory_parts parts = parts_of(number, arguments);
  return std::any_of(parts.begin(), parts.end(),
                     [&pager](const memory_part& part) { return pager.overlaps(part.address, 1); });
}

}  // namespace

bool may_touch_far(const pager::pager& pager, long number, const std::array<long, 6>& arguments) noexcept {
  for (const table_row& row : rows_of(number)) {
    if (row.kind == shape::addresses) return false;
    if (depends_on_arguments(row.kind)) break;
    if (is_nested(row.kind)) return true;
  }
  return filter_of(number, arguments) != nullptr || lists_interfaces(number, arguments) ||
         any_may_be_far(pager, arguments) || leads_far(pager, number, arguments);
}

bool is_under_way(const guarded_call* call) noexcept {
  const guarded_call* frame = this_thread().calls;
  while (frame != nullptr && frame != call) frame = frame->next;
  return frame != nullptr;
}

guarded_call* guard_call(pager::pager& pager, long number, const std::array<long, 6>& arguments, bool anyway,
                         std::uintptr_t stack) {
  if (!anyway && !may_touch_far(pager, number, arguments)) return nullptr;
  release_abandoned_calls(stack);
  auto* const call = new (platform::allocate_local(sizeof(guarded_call))) guarded_call{};
  call->number = number;
  call->stack = stack;
  call->original = arguments;
  call->given = arguments;
  call->runs = call->few_runs.data();
  call->run_capacity = call->few_runs.size();
  call->next = this_thread().calls;
  this_thread().calls = call;
  if (collector(pager, *call).collect() || anyway) return call;
  release_call(*call);
  return nullptr;
}

// EFAULT may mean that a page has left since it was brought in, so the calls that can be repeated are repeated. A
// transfer that was shortened here continues, so that the program gets all that it asked for.
bool wants_another_part(pager::pager& pager, guarded_call& call, long* result) {
  if (is_process_transfer(call.number)) {
    *result = finish_transfer(pager, call, *result);
    return false;
  }
  const std::span<const table_row> rows = rows_of(call.number);
  if (*result == -EFAULT && call.attempts + 1 < most_attempts && is_repeatable(call.number, call.given)) {
    ++call.attempts;
    unpin_runs(pager, call);
    collector(pager, call).collect();
    return true;
  }
  if (call.left > 0 && rows.size() > 0 && rows[0].kind == shape::transfer && *result == call.arguments[rows[0].count] &&
      goes_on(call.number, call.given)) {
    call.transferred += *result;
    call.given[rows[0].pointer] += *result;
    call.given[rows[0].count] -= *result;
    if (call.number == SYS_pread64 || call.number == SYS_pwrite64) call.given[3] += *result;
    call.attempts = 0;
    unpin_runs(pager, call);
    collector(pager, call).collect();
    return true;
  }
  if (call.transferred > 0) *result = call.transferred + std::max(*result, 0L);
  return false;
}

void release_call(guarded_call& call) {
  unpin_runs(*active_pager(), call);
  for (guarded_call** link = &this_thread().calls; *link != nullptr; link = &(*link)->next) {
    if (*link != &call) continue;
    *link = call.next;
    break;
  }
  if (call.runs != call.few_runs.data()) platform::free_local(call.runs, call.run_capacity * sizeof(pinned_run));
  platform::free_local(&call, sizeof call);
}

void release_calls_until(const guarded_call* last) {
  while (this_thread().calls != nullptr && this_thread().calls != last) release_call(*this_thread().calls);
}

void forget_calls_of_other_threads() noexcept {
  for (std::atomic<int>& bucket : pins) bucket.store(0);
  pinned_pages.store(0);
  for (const guarded_call* call = this_thread().calls; call != nullptr; call = call->next) {
    for (std::size_t i = 0; i < call->run_count; ++i) {
      const pinned_run& run = call->runs[i];
      for (std::uint64_t page = 0; page < run.pages; ++page) bucket_of(run.first + (page << page_shift)).fetch_add(1);
      pinned_pages.fetch_add(static_cast<std::int64_t>(run.pages));
    }
  }
}

}  // namespace far::preload
