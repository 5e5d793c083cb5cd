#include "platform/program_limits.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/units.h"

namespace far::platform {
namespace {

// One kind of limit. Any thread may map memory at any time, with locks of the runtime held, so all are atomic.
struct kind_of_limit {
  explicit constexpr kind_of_limit(int number) : kind(number) {}
  int kind;
  std::atomic<std::int64_t> own_bytes{0};
  std::atomic<std::int64_t> other_own_bytes{64 * mib};  // as long as it is not known
  std::atomic<bool> is_set{false};
  std::atomic<rlim_t> soft{RLIM_INFINITY};  // the program's
  std::atomic<rlim_t> hard{RLIM_INFINITY};
  std::atomic<rlim_t> soft_in_kernel{RLIM_INFINITY};  // as this process has left it
  std::atomic<rlim_t> hard_in_kernel{RLIM_INFINITY};
};
constinit kind_of_limit addresses{RLIMIT_AS};
constinit kind_of_limit data{RLIMIT_DATA};

// What of the kernel's limits is known is of this process; the child of a vfork has limits of its own.
constinit std::atomic<pid_t> process{0};
constinit std::atomic<int> changing{0};  // how many threads change the kernel's
constinit std::atomic<std::uint64_t> changed{0};
constinit std::atomic<void (*)() noexcept> when_set{nullptr};

void tell_that_one_is_set() {
  if (const auto tell = when_set.load()) tell();
}

bool is_process() {
  return process.load() == static_cast<pid_t>(syscall(SYS_getpid));
}

kind_of_limit* find(int kind) {
  if (kind == RLIMIT_AS) return &addresses;
  return kind == RLIMIT_DATA ? &data : nullptr;
}

// Straight to the kernel: the program's names are the preload library's.
bool ask_kernel(int kind, const rlimit* wanted, rlimit* now) {
  return syscall(SYS_prlimit64, 0, kind, wanted, now) == 0;
}

std::uint64_t all_own_bytes(const kind_of_limit& limit) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, limit.own_bytes.load() + limit.other_own_bytes.load()));
}

rlim_t with_own(const kind_of_limit& limit, rlim_t soft) {
  const rlim_t own = all_own_bytes(limit);
  return soft < RLIM_INFINITY - own ? soft + own : RLIM_INFINITY;
}

void note_kernel_limit(kind_of_limit& limit) {
  rlimit now{};
  if (!ask_kernel(limit.kind, nullptr, &now)) return;
  limit.soft_in_kernel.store(now.rlim_cur);
  limit.hard_in_kernel.store(now.rlim_max);
}

// Gives the kernel a soft limit. Its hard limit stays, so that the runtime may grow, or becomes higher where it must
// and may.
void change_in_kernel(const kind_of_limit& limit, rlim_t soft) {
  rlimit now{};
  if (!ask_kernel(limit.kind, nullptr, &now)) return;
  const rlimit wanted{soft, std::max(now.rlim_max, soft)};
  if (ask_kernel(limit.kind, &wanted, nullptr)) return;
  const rlimit allowed{std::min(soft, now.rlim_max), now.rlim_max};
  ask_kernel(limit.kind, &allowed, nullptr);
}

void set_in_kernel(kind_of_limit& limit, rlim_t soft) {
  if (!is_process()) return change_in_kernel(limit, soft);
  changing.fetch_add(1);
  change_in_kernel(limit, soft);
  note_kernel_limit(limit);
  changed.fetch_add(1);
  changing.fetch_sub(1);
}

// Another thread may note memory meanwhile, and be overtaken.
void update(kind_of_limit& limit) {
  rlim_t given = 0;
  do {
    given = with_own(limit, limit.soft.load());
    set_in_kernel(limit, given);
  } while (given != with_own(limit, limit.soft.load()));
}

void note(kind_of_limit& limit, std::int64_t bytes) {
  if (bytes == 0) return;
  limit.own_bytes.fetch_add(bytes);
  if (limit.is_set.load()) update(limit);
}

}  // namespace

// CAP_SYS_RESOURCE.
bool may_raise_limits() noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, rights) != 0) return false;
  return (rights[CAP_TO_INDEX(CAP_SYS_RESOURCE)].effective & CAP_TO_MASK(CAP_SYS_RESOURCE)) != 0;
}

void note_own_memory(std::int64_t address_bytes, std::int64_t data_bytes) noexcept {
  const int saved_errno = errno;
  note(addresses, address_bytes);
  note(data, data_bytes);
  errno = saved_errno;
}

own_memory noted_own_memory() noexcept {
  return {addresses.own_bytes.load(), data.own_bytes.load()};
}

void note_other_own_memory(const own_memory& other) noexcept {
  addresses.other_own_bytes.store(other.address_bytes);
  data.other_own_bytes.store(other.data_bytes);
}

std::uint64_t own_address_bytes() noexcept {
  return all_own_bytes(addresses);
}

std::optional<rlimit> program_limit(int kind) noexcept {
  const kind_of_limit* const limit = find(kind);
  if (limit == nullptr || !limit->is_set.load()) return std::nullopt;
  return rlimit{limit->soft.load(), limit->hard.load()};
}

void set_program_limit(int kind, const rlimit& wanted) noexcept {
  kind_of_limit& limit = *find(kind);
  limit.soft.store(wanted.rlim_cur);
  limit.hard.store(wanted.rlim_max);
  limit.is_set.store(true);
  tell_that_one_is_set();
  update(limit);
}

void call_when_limited(void (*tell)() noexcept) noexcept {
  when_set.store(tell);
  if (addresses.is_set.load() || data.is_set.load()) tell();
}

void give_limit_to_kernel(int kind, rlimit meant) noexcept {
  if (!may_raise_limits() || !ask_kernel(kind, &meant, nullptr)) set_in_kernel(*find(kind), meant.rlim_cur);
}

void take_limit_from_kernel(int kind, rlimit meant) noexcept {
  kind_of_limit& limit = *find(kind);
  set_in_kernel(limit, with_own(limit, meant.rlim_cur));
}

void begin_exec() noexcept {
  if (is_process()) changing.fetch_add(1);
}

void end_exec() noexcept {
  if (is_process()) changing.fetch_sub(1);
}

void give_limits_to_kernel() noexcept {
  for (const int kind : {RLIMIT_AS, RLIMIT_DATA}) {
    if (const std::optional<rlimit> meant = program_limit(kind)) give_limit_to_kernel(kind, *meant);
  }
}

void take_limits_from_kernel() noexcept {
  for (kind_of_limit* const limit : {&addresses, &data}) {
    if (limit->is_set.load()) update(*limit);
  }
}

void know_kernel_limits() noexcept {
  process.store(static_cast<pid_t>(syscall(SYS_getpid)));
  changing.store(0);
  for (kind_of_limit* const limit : {&addresses, &data}) note_kernel_limit(*limit);
}

bool adopt_limits_from_outside() noexcept {
  if (!is_process()) return false;
  const int saved_errno = errno;
  bool any = false;
  for (kind_of_limit* const limit : {&addresses, &data}) {
    const std::uint64_t changed_before = changed.load();
    rlimit now{};
    if (changing.load() != 0 || !ask_kernel(limit->kind, nullptr, &now)) continue;
    if (now.rlim_cur == limit->soft_in_kernel.load() && now.rlim_max == limit->hard_in_kernel.load()) continue;
    if (changing.load() != 0 || changed.load() != changed_before) continue;  // it was this process
    limit->soft.store(now.rlim_cur);
    limit->hard.store(now.rlim_max);
    limit->is_set.store(true);
    tell_that_one_is_set();
    update(*limit);
    any = true;
  }
  errno = saved_errno;
  return any;
}

void take_over_address_limit() noexcept {
  rlimit now{};
  if (!ask_kernel(RLIMIT_AS, nullptr, &now) || now.rlim_cur == RLIM_INFINITY) return;
  addresses.soft.store(now.rlim_cur);
  addresses.hard.store(now.rlim_max);
  addresses.is_set.store(true);
  set_in_kernel(addresses, RLIM_INFINITY);
}

}  // namespace far::platform
