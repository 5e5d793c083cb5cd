#include "preload/direct_calls.h"

#include <cpuid.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>  // for program_invocation_short_name
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/log.h"
#include "base/units.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"
#include "preload/c_library.h"
#include "preload/call_sites.h"
#include "preload/device_writes.h"
#include "preload/in_runtime.h"
#include "preload/kernel_calls.h"
#include "preload/memory_file.h"
#include "preload/raw_calls.h"
#include "preload/resource_limits.h"
#include "preload/runtime.h"
#include "preload/syscall_memory.h"
#include "preload/syscall_stubs.h"
#include "preload/syscall_table.h"
#include "preload/threads.h"

namespace far::preload {
namespace {

// The treatment of a call before it is made, by number. Bits 0 to 5: the arguments that may be pointers; a call with
// none of them in the far heap goes straight to the kernel.
using rule = std::uint8_t;
constexpr rule looks_closer = 0x40;   // pointers may lie in memory: begin_site_call() decides
constexpr rule is_dispatched = 0x80;  // always
constexpr rule any_argument = 0x3f;
constexpr std::size_t known_numbers = 512;

// How a call goes on after begin_site_call().
enum class next_step : std::uint64_t { call = 0, none = 1, dispatch = 2 };

// A call from a site, on the caller's stack. direct_call_stubs.cc knows the offsets.
struct site_call {
  long number;
  std::array<long, 6> given;
  std::array<long, 6> arguments;  // as the kernel gets them
  long result;
  std::uint64_t has_end;  // whether end_site_call() is due
  std::uintptr_t stack;
  next_step next;
  std::uint64_t of_stubs;
  guarded_call* guarded;  // null where nothing is held
};
static_assert(offsetof(site_call, given) == 8 && offsetof(site_call, arguments) == 56);
static_assert(offsetof(site_call, result) == 104 && offsetof(site_call, has_end) == 112);
static_assert(offsetof(site_call, stack) == 120 && offsetof(site_call, next) == 128);
static_assert(offsetof(site_call, of_stubs) == 136 && sizeof(site_call) == 152);
static_assert(SYS_rt_sigprocmask == 14 && SIG_SETMASK == 2 && SIGBUS == 7 && SIGSYS == 31);
static_assert(selector_undispatched == 0 && selector_dispatched == 1);

constexpr std::size_t most_sites = 640;

// Calls that the guard serves itself, or that change what it relies on: signals, stacks, threads, memory, the end; and
// the one by which the child of posix_spawn closes all descriptors, the runtime's among them, by no name that others
// see: it needs them until it is the new program, for misses at its arguments.
constexpr std::array served_by_guard{SYS_rt_sigreturn,
                                     SYS_sigaltstack,
                                     SYS_clone,
                                     435 /* clone3 */,
                                     SYS_fork,
                                     SYS_vfork,
                                     SYS_rt_sigaction,
                                     SYS_rt_sigprocmask,
                                     SYS_rt_sigsuspend,
                                     SYS_pselect6,
                                     SYS_process_vm_readv,
                                     SYS_process_vm_writev,
                                     SYS_execve,
                                     SYS_execveat,
                                     SYS_exit,
                                     SYS_exit_group,
                                     SYS_munlockall,
                                     SYS_mlockall,
                                     SYS_prctl,
                                     SYS_ptrace,
                                     SYS_seccomp,
                                     SYS_io_uring_setup,
                                     SYS_io_setup,
                                     436 /* close_range */};

// Calls given a mask of signals to wait with: most are given none.
constexpr std::array waits_with_mask{SYS_ppoll, SYS_epoll_pwait, 441 /* epoll_pwait2 */};

// Frequent calls some of whose arguments are no pointers: a register that the call does not use may hold any address.
struct pointers {
  long number;
  rule mask;
};
constexpr std::array frequent{pointers{SYS_close, 0},
                              pointers{SYS_fstat, 0x2},
                              pointers{SYS_lseek, 0},
                              pointers{SYS_sched_yield, 0},
                              pointers{SYS_dup, 0},
                              pointers{SYS_nanosleep, 0x3},
                              pointers{SYS_getpid, 0},
                              pointers{SYS_socket, 0},
                              pointers{SYS_connect, 0x2},
                              pointers{SYS_accept, 0x6},
                              pointers{SYS_sendto, 0x12},
                              pointers{SYS_recvfrom, 0x32},
                              pointers{SYS_shutdown, 0},
                              pointers{SYS_bind, 0x2},
                              pointers{SYS_listen, 0},
                              pointers{SYS_getsockname, 0x6},
                              pointers{SYS_getpeername, 0x6},
                              pointers{SYS_fcntl, 0x4},
                              pointers{SYS_flock, 0},
                              pointers{SYS_fsync, 0},
                              pointers{SYS_fdatasync, 0},
                              pointers{SYS_ftruncate, 0},
                              pointers{SYS_gettimeofday, 0x3},
                              pointers{SYS_gettid, 0},
                              pointers{SYS_clock_gettime, 0x2},
                              pointers{SYS_clock_nanosleep, 0xc},
                              pointers{SYS_epoll_ctl, 0x8},
                              pointers{SYS_openat, 0x2},
                              pointers{SYS_newfstatat, 0x6},
                              pointers{SYS_fallocate, 0},
                              pointers{SYS_accept4, 0x6},
                              pointers{SYS_eventfd2, 0},
                              pointers{SYS_timerfd_settime, 0xc},
                              pointers{SYS_unlinkat, 0x2},
                              pointers{SYS_sync_file_range, 0},
                              pointers{SYS_fadvise64, 0}};

bool is_among(std::span<const long> numbers, long number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

// The checks of the stub before a call may go to the kernel, from the lists above and the guard's table of calls. For a
// call that none of them knows, every argument is checked.
rule rule_of(long number) {
  constexpr auto served = [] {
    std::array<long, served_by_guard.size()> numbers{};
    std::copy(served_by_guard.begin(), served_by_guard.end(), numbers.begin());
    return numbers;
  }();
  if (is_among(served, number)) return is_dispatched;
  for (const auto waiting : waits_with_mask) {
    if (waiting == number) return looks_closer;
  }
  rule arguments = 0;
  bool all_known = false;
  for (const table_row& row : rows_of(number)) {
    if (row.kind == shape::addresses) return is_dispatched;
    if (is_nested(row.kind)) return looks_closer;
    arguments = static_cast<rule>(arguments | 1U << row.pointer);
    all_known = all_known || row.alone;
  }
  for (const pointers& known : frequent) {
    if (known.number == number) return known.mask;
  }
  return all_known ? arguments : any_argument;
}

// The C library's syscall(), which also makes children that share their parent's stack: they would return to what the
// other one has left there.
code_range generic_wrapper() {
  constexpr std::uintptr_t most_bytes = 64;
  return {reinterpret_cast<std::uintptr_t>(dlsym(RTLD_NEXT, "syscall")), most_bytes};
}

bool stays(long number) {
  return (rule_of(number) & is_dispatched) != 0;
}

bool stays_undispatched(long number) {
  return stays(number) && !is_exec(number);
}

bool only_watches = false;  // prepare_watched_calls()

// The executable segment that holds an address.
struct segment_search {
  std::uintptr_t address;
  std::span<std::uint8_t> found;
};

int find_segment(dl_phdr_info* object, std::size_t, void* context) {
  auto& search = *static_cast<segment_search*>(context);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    const std::uintptr_t start = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0 || search.address - start >= segment.p_memsz)
      continue;
    search.found = {reinterpret_cast<std::uint8_t*>(start), segment.p_filesz};
    return 1;
  }
  return 0;
}

// Calls `body`, which takes locks of the runtime, on a large local stack: the caller's may be far, or small. The
// program's signals are blocked by now, misses are not.
template <typename Body>
void as_guard(Body body) noexcept {
  const platform::runtime_mark allocate_locally;
  ++platform::shields_up;  // shields inside need not block anything
  call_on_local_stack([](void* context) { (*static_cast<Body*>(context))(); }, &body);
  --platform::shields_up;
}

bool has_mask(const site_call& call) {
  switch (call.number) {
    case SYS_ppoll: return call.given[3] != 0;
    case SYS_epoll_pwait:
    case 441 /* epoll_pwait2 */: return call.given[4] != 0;
    default: return false;
  }
}

// The vector registers are saved while C++ runs. The parts that the kernel has enabled go into room that the assembler
// leaves, in the processor's standard format.
constexpr std::size_t state_bytes = 2752;
constexpr std::uint32_t kept_parts = 0xe6;  // SSE, AVX and AVX-512

bool has_xsave() {
  constexpr std::uint32_t turned_on = 1U << 27;  // OSXSAVE
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
  std::uint32_t d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & turned_on) != 0;
}

bool state_fits() {
  constexpr std::uint32_t leaf = 0xd;
  for (std::uint32_t part = 2; part < 8; ++part) {
    std::uint32_t bytes = 0;
    std::uint32_t offset = 0;
    std::uint32_t c = 0;
    std::uint32_t d = 0;
    if ((kept_parts >> part & 1) == 0 || __get_cpuid_count(leaf, part, &bytes, &offset, &c, &d) == 0) continue;
    if (offset + bytes > state_bytes) return false;
  }
  return true;
}

// Libraries that were initialised before us may have started threads, which could be inside the code that is changed.
// Each thread is a directory there, which counts as a link. The C library's lists of directories would allocate memory,
// for which an allocator of the program's own may not be ready before main.
bool other_threads_run() {
  constexpr nlink_t links_with_one_thread = 3;
  struct stat threads{};
  return ::stat("/proc/self/task", &threads) != 0 || threads.st_nlink != links_with_one_thread;
}

}  // namespace
}  // namespace far::preload

extern "C" {

#pragma GCC visibility push(hidden)

extern std::uint8_t far_site_rules[];
extern std::uintptr_t far_site_heap[2];  // the first address of the far heap, and its bytes
extern std::uintptr_t far_site_returns[];
extern const void* far_site_targets[];
extern std::uint8_t far_site_saves_all;
extern std::uint8_t far_site_watched;
extern std::uint8_t far_site_looks;
extern const char far_sites_begin[];
extern const char far_sites_end[];
extern const char far_site_rax_4096[];
extern const char far_site_rax_4095[];
extern const char far_site_eax_4096[];
extern const char far_site_eax_4095[];
extern const char far_site_numbered[];

void far_begin_site_call(far::preload::site_call* call) noexcept;
bool far_end_site_call(far::preload::site_call* call) noexcept;

#pragma GCC visibility pop

}  // extern "C"

extern "C" {

// Decides how the call is made, and holds what it touches. This and the next run with all signals blocked but those of
// misses: a thread that is cancelled inside a call must not be unwound through C++, which would end the program.
void far_begin_site_call(far::preload::site_call* call) noexcept {
  using namespace far::preload;
  call->arguments = call->given;
  call->has_end = 0;
  call->guarded = nullptr;
  call->next = next_step::call;
  far::pager::pager* const pager = active_pager();
  if (pager == nullptr || far::platform::on_runtime_thread()) return;
  if (serve_memory_file(call->number, call->given, &call->result)) {
    call->next = next_step::none;
    return;
  }
  if (!resolves_in_line()) {
    if (is_exec(call->number) && limits_before_exec()) call->has_end = 1;
    return;
  }
  if (has_mask(*call) || gives_far_memory_to_machine(*pager, call->number, call->given)) {
    call->next = next_step::dispatch;
    return;
  }
  if (!may_touch_far(*pager, call->number, call->given)) return;
  const int saved_errno = errno;
  as_guard([&] {
    // Copies: the caller's stack may be far, and nothing of it is touched while locks are held.
    const long number = call->number;
    const std::uintptr_t stack = call->stack;
    const std::array<long, 6> given = call->given;
    guarded_call* const guarded = guard_call(*pager, number, given, false, stack);
    call->guarded = guarded;
    call->has_end = guarded != nullptr ? 1 : 0;
    if (guarded != nullptr) call->arguments = guarded->arguments;
  });
  errno = saved_errno;
}

// Ends a call that holds something. Returns whether it is to be made again, with other arguments.
bool far_end_site_call(far::preload::site_call* call) noexcept {
  using namespace far::preload;
  if (!resolves_in_line()) {
    limits_after_exec();
    return false;
  }
  const int saved_errno = errno;
  bool goes_on = false;
  as_guard([&] {
    guarded_call* const guarded = call->guarded;
    long result = call->result;
    if (!is_under_way(guarded)) return;
    if (wants_another_part(*active_pager(), *guarded, &result)) {
      call->arguments = guarded->arguments;
      goes_on = true;
      return;
    }
    release_call(*guarded);
    call->result = result;
  });
  errno = saved_errno;
  return goes_on;
}

}  // extern "C"

namespace far::preload {
namespace {

const char* target_of(site_kind kind) {
  switch (kind) {
    case site_kind::rax_with_4096: return far_site_rax_4096;
    case site_kind::rax_with_4095: return far_site_rax_4095;
    case site_kind::eax_with_4096: return far_site_eax_4096;
    case site_kind::eax_with_4095: return far_site_eax_4095;
    case site_kind::numbered: return far_site_numbered;
  }
  __builtin_unreachable();
}

}  // namespace

// Conditions are checked before the first byte changes, so that a refusal leaves the C library as it was. The check at
// the end finds a library whose main calls have another form: its calls then cost a signal, and the caller is told.
result<std::size_t> take_over_call_sites(bool dispatches) {
  const code_range library = c_library_code();
  segment_search search{library.start, {}};
  dl_iterate_phdr(find_segment, &search);
  if (search.found.empty()) return error{"the C library's code is not found", ENOENT};
  if (far_site_returns[0] != 0) return error{"the C library's code is changed already", EALREADY};
  if (!state_fits()) return error{"this processor's registers take more room than we have", ENOTSUP};
  if (other_threads_run()) return error{"threads run already", EBUSY};
  const auto start = reinterpret_cast<std::uintptr_t>(search.found.data());
  const auto stub_bytes = static_cast<std::size_t>(far_sites_end - far_sites_begin) / most_sites;
  const auto first_stub = reinterpret_cast<std::uintptr_t>(far_sites_begin);
  const auto last_stub = reinterpret_cast<std::uintptr_t>(far_sites_end);
  if (!is_near(start, first_stub) || !is_near(start, last_stub) || !is_near(start + search.found.size(), first_stub))
    return error{"the C library lies too far away", ERANGE};
  far_site_saves_all = has_xsave() ? 1 : 0;
  const code_range generic = generic_wrapper();
  std::vector<call_site> sites = find_call_sites(search.found, dispatches ? stays : stays_undispatched);
  std::erase_if(sites, [&](const call_site& site) { return generic.holds(start + site.at); });
  if (sites.size() > most_sites) sites.resize(most_sites);
  constexpr int as_it_was = PROT_READ | PROT_EXEC;
  std::byte* const first_page = reinterpret_cast<std::byte*>(round_down(start, page_bytes));
  const std::size_t bytes = round_up(start + search.found.size(), page_bytes) - round_down(start, page_bytes);
  if (kernel_mprotect(first_page, bytes, as_it_was | PROT_WRITE) != 0)
    return error{std::string("the C library's code cannot be changed: ") + std::strerror(errno), errno};
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const call_site& site = sites[i];
    far_site_returns[i] = start + site.at + site.bytes();
    far_site_targets[i] = target_of(site.kind);
    write_jump(search.found.subspan(site.at, site.bytes()), site.kind, start + site.at, first_stub + i * stub_bytes);
  }
  if (kernel_mprotect(first_page, bytes, as_it_was) != 0)
    return error{std::string("the C library's code stays writable: ") + std::strerror(errno), errno};
  // Looks at the functions that programs call most: other C libraries may make these calls elsewhere, in a form of
  // their own.
  for (const char* const name : {"read", "write", "execve"}) {
    if (dispatches && std::strcmp(name, "execve") == 0) continue;
    constexpr std::uintptr_t most_bytes = 64;
    const code_range function{reinterpret_cast<std::uintptr_t>(dlsym(RTLD_NEXT, name)), most_bytes};
    const bool is_taken =
        std::any_of(sites.begin(), sites.end(), [&](const call_site& site) { return function.holds(start + site.at); });
    if (!is_taken)
      return error{std::string("this C library's ") + name + "() is not made in a form that is known", ENOTSUP};
  }
  only_watches = !dispatches;
  return sites.size();
}

void watch_devices() noexcept {
  far_site_rules[SYS_ioctl] = far_site_rules[SYS_setsockopt] = is_dispatched;
}

void look_at_direct_calls(const pager::pager& pager, bool far_elsewhere, bool watches_devices) noexcept {
  for (std::size_t number = 0; number < known_numbers; ++number) {
    far_site_rules[number] = rule_of(static_cast<long>(number));
  }
  if (watches_devices) watch_devices();
  // If there are far static arrays, which do not lie in the heap's range, every argument that is not null is examined
  // more closely.
  far_site_heap[0] = far_elsewhere ? 1 : reinterpret_cast<std::uintptr_t>(pager.start());
  far_site_heap[1] = far_elsewhere ? ~std::uintptr_t{0} : pager.pages() << page_shift;
  far_site_looks = 1;
}

void prepare_watched_calls() {
  const result<std::size_t> taken = take_over_call_sites(false);
  if (taken) return;
  log_line(log_level::verbose, "call sites of the C library are not watched (%s)", taken.error().message.c_str());
}

void watch_exec() noexcept {
  static std::atomic<bool> is_said{false};
  if (resolves_in_line()) return;
  far_site_rules[SYS_execve] = far_site_rules[SYS_execveat] = looks_closer;
  far_site_watched = far_site_looks = 1;
  if (!only_watches && !is_said.exchange(true)) {
    log_line(
        log_level::warning,
        "process %d (%s) limits its memory; the limit of programs that it starts by posix_spawn or system is larger",
        static_cast<int>(getpid()), program_invocation_short_name);
  }
}

bool exec_is_watched() noexcept {
  return far_site_watched != 0;
}

void watch_transfers() noexcept {
  for (const auto number : {SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_preadv,
                            SYS_pwritev, SYS_preadv2, SYS_pwritev2}) {
    far_site_rules[number] = looks_closer;
  }
  if (!resolves_in_line()) far_site_watched = far_site_looks = 1;
}

}  // namespace far::preload
