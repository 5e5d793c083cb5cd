#include "preload/runtime.h"

#include <fcntl.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "backend/tcp/server_addresses.h"
#include "base/backoff.h"
#include "base/log.h"
#include "base/spin_lock.h"
#include "base/units.h"
#include "control/control.h"
#include "control/guest.h"
#include "engine/line_cache.h"
#include "far/detail/api.h"
#include "pager/compiled_code.h"
#include "pager/hints.h"
#include "platform/advice.h"
#include "platform/clock.h"
#include "platform/kernel_features.h"
#include "platform/program_limits.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"
#include "preload/allocator.h"
#include "preload/c_library.h"
#include "preload/c_library_memory.h"
#include "preload/default_tier.h"
#include "preload/direct_calls.h"
#include "preload/fault_mode_choice.h"
#include "preload/fork.h"
#include "preload/guests.h"
#include "preload/in_runtime.h"
#include "preload/membership.h"
#include "preload/report.h"
#include "preload/resource_limits.h"
#include "preload/restricted_program.h"
#include "preload/settings.h"
#include "preload/static_arrays.h"
#include "preload/syscall_guard.h"
#include "preload/thread_ends.h"
#include "preload/tracer.h"
#include "preload/watchers.h"

namespace far::preload {
namespace {

void take_hint(const void* address, std::size_t size, std::uint64_t packed_options, far_hint_site* site) {
  // Most hints find everything local, without a system call. Where they do not, the pager enters the runtime.
  if (!stack_is_far()) [[likely]]
    return pager::take_hint(address, size, packed_options, site);
  in_runtime([=] { pager::take_hint(address, size, packed_options, site); });
}

constexpr int pressure_check_ms = 200;

// Held while a child of fork joins its job and opens its control socket, and by a thread that forks.
spin_lock settling;

struct runtime {
  settings chosen;
  pager::fault_mode mode = pager::fault_mode::thread;  // as chosen, or by default
  std::unique_ptr<pager::pager> pager;
  std::unique_ptr<job> of_job;                 // null: the process is on its own
  std::atomic<std::uint64_t> budget_bytes{0};  // of the process, guests included
  guests far_runtimes;                         // those of the program
  engine::statistics counted_at_fork;          // in a child of fork: its parent's counts
  std::unique_ptr<control::control_server> control FAR_GUARDED_BY(settling);
  std::uint64_t started_ns = 0;
  std::atomic<bool> reported{false};
  std::atomic<pid_t> restricted_thread{0};    // the first that has restricted its own system calls
  std::atomic<bool> report_is_wanted{false};  // of the control thread, which is not restricted
  std::atomic<bool> is_main{false};
  std::atomic<pid_t> process{0};  // the owner of this memory: a child of vfork runs on its parent's
};

// Never destroyed: the program's last destructors may still touch far memory.
runtime* the_runtime = nullptr;
std::atomic<pager::pager*> serving{nullptr};

std::uint64_t now_ns() {
  return platform::monotonic_clock().now_ns();
}

[[noreturn]] void refuse_to_start(const error& why) {
  log_line(log_level::error, "%s", why.message.c_str());
  _exit(EXIT_FAILURE);
}

// This process may have fewer rights than `farheap run` had, after a change of user or root, or in a container.
void run_natively(const error& why) {
  platform::give_limits_to_kernel();
  give_back_local_addresses_if_limited();
  log_line(log_level::warning,
           "%s. Process %d (%s) runs natively: without far memory, and in as much memory as it wants",
           why.message.c_str(), static_cast<int>(getpid()), program_invocation_short_name);
}

engine::statistics count_since_start(const runtime& self) {
  return self.far_runtimes.add_to(self.pager->snapshot());
}

// The counts of this process, without those of its parent before the fork.
engine::statistics count(const runtime& self) {
  return difference(self.counted_at_fork, count_since_start(self));
}

// Guests learn of their parts when they next ask.
void share_with_guests(runtime& self) {
  const engine::statistics own = self.pager->snapshot();
  const std::uint64_t budget_bytes = self.far_runtimes.divide(self.budget_bytes.load(), own, now_ns());
  if (budget_bytes == own.budget_bytes) return;
  const result<void> resized = self.pager->resize(budget_bytes);
  if (!resized) log_line(log_level::error, "%s", resized.error().message.c_str());
}

// Publishes the counts of this process to the job, and applies the decision about its share. A newcomer may wait to
// learn that this process knows of its smaller one.
void take_share(runtime& self) {
  std::optional<std::uint64_t> share;
  if (self.of_job != nullptr) share = self.of_job->exchange(count(self), read_process_usage());
  const bool changes = share && self.budget_bytes.exchange(*share) != *share;
  share_with_guests(self);
  if (changes) self.of_job->tell(count(self), read_process_usage());
}

result<void> resize_budget(void* context, std::uint64_t budget_bytes) {
  runtime& self = *static_cast<runtime*>(context);
  const std::uint64_t least = self.far_runtimes.least_bytes();
  if (budget_bytes < least) {
    return error{"a budget of " + format_size(budget_bytes) + " is below the working minimum; give at least " +
                     format_size(least),
                 EINVAL};
  }
  if (self.of_job != nullptr && self.of_job->shares()) {
    self.of_job->resize(budget_bytes);
  } else {
    self.budget_bytes.store(budget_bytes);
  }
  take_share(self);
  return {};
}

// A newcomer first gets what the others can spare at once: their parts shrink before it learns of its own.
std::uint64_t exchange_with_guest(runtime& self, std::uint32_t& number, const control::guest_report& said) {
  const bool is_new = number == 0;
  const std::uint64_t granted_bytes = self.far_runtimes.exchange(number, said);
  if (!is_new || granted_bytes == 0) return granted_bytes;
  for (int round = 0; round < 2; ++round) share_with_guests(self);
  return self.far_runtimes.exchange(number, said);
}

result<void> add_server(void* context, std::string_view server) {
  return static_cast<runtime*>(context)->pager->add_server(server);
}

result<std::uint64_t> remove_server(void* context, std::string_view server, removal step) {
  return static_cast<runtime*>(context)->pager->remove_server(server, step);
}

engine::statistics read_statistics(void* context) {
  return count_since_start(*static_cast<runtime*>(context));
}

// The control socket is also the way by which another process asks for pages that it is about to read or write.
result<void> bring_in(void* context, std::uintptr_t address, std::size_t bytes, bool to_write) {
  pager::pager& pager = *static_cast<runtime*>(context)->pager;
  auto* const first = reinterpret_cast<std::byte*>(round_down(address, page_bytes));
  bool is_far = false;
  const std::size_t alike =
      pager.uniform_bytes(first, round_up(address + bytes, page_bytes) - round_down(address, page_bytes), &is_far);
  if (!is_far) return error{"no far memory is there", EFAULT};
  // As far as it is of one kind: what follows may be inaccessible, and the request would fail for all of it.
  const result<pager::pager::mapping> found = pager.mapping_at(first, alike);
  if (!found) return found.error();
  return pager.advise(first, found.value().bytes, to_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

void write_reports();

// A thread ends the process that must not report itself. In the child of a vfork it is its parent that waits.
void report_for_restricted_thread(runtime& self) {
  if (!self.report_is_wanted.load()) return;
  if (!waits_for_vfork(self.restricted_thread.load()) && !self.reported.exchange(true)) write_reports();
  self.report_is_wanted.store(false);
}

// Serves requests of control.h. Under pressure it takes freed memory back from jemalloc, for which no miss must wait.
void run_control(runtime& self, control::control_server& server) {
  std::uint64_t evicted_before = 0;
  for (bool serving_peers = true; serving_peers;) {
    serving_peers = server.step(pressure_check_ms);
    report_for_restricted_thread(self);
    if (self.reported.load()) return;
    take_share(self);
    give_back_under_limit();
    release_pages_of_ended_threads();
    end_with_last_thread();
    write_buffered_trace();
    const std::uint64_t evicted = self.pager->snapshot().evicted_pages;
    if (evicted != evicted_before) purge_freed_memory();
    evicted_before = evicted;
  }
}

// Without this thread nobody divides the budget.
template <typename Body>
result<void> start_control(Body body) {
  try {
    // Never joined: a child of fork has the object, and not the thread. Nor detached: the program may have a
    // sanitizer's pthread_detach(), which ends it for a thread that it has not seen start. Nor allocated: operator new
    // may be the program's, too.
    alignas(std::thread) static std::byte never_destroyed[sizeof(std::thread)];
    new (never_destroyed) std::thread(platform::start_runtime_thread("farheap-control", body));
    return {};
  } catch (const std::system_error& failure) {
    return error{std::string("no thread can be started (") + failure.what() + "); raise the limit with: ulimit -u"};
  }
}

std::unique_ptr<control::control_server> listen(runtime& self) {
  control::control_callbacks callbacks{&self, resize_budget, read_statistics, add_server, remove_server};
  if (self.of_job != nullptr) {
    callbacks.job_file = [](void* context) { return static_cast<runtime*>(context)->of_job->descriptor(); };
    callbacks.job_secret = [](void* context) { return static_cast<runtime*>(context)->of_job->name().secret_text(); };
  }
  callbacks.bring = bring_in;
  return control::control_server::open(callbacks);
}

// A child of fork joins its job, as if it had been started.
void run_control_of_child(runtime& self) {
  control::control_server* server = nullptr;
  {
    const lock_guard no_fork(settling);
    if (self.of_job != nullptr) join_as_child(*self.of_job, count(self), read_process_usage());
    self.control = listen(self);
    server = self.control.get();
  }
  run_control(self, *server);
}

// It has run for a second by now, and can go on as it is.
void start_control_of_child() {
  const result<void> started = start_control([self = the_runtime] { run_control_of_child(*self); });
  if (!started) warn_of_own_budget(started.error(), the_runtime->budget_bytes.load());
}

result<fault_mode_choice> choose_mode(const settings& chosen) {
  const char* const sanitizer = noting_sanitizer();
  if (sanitizer == nullptr) return choose_fault_mode(platform::probe_kernel(), chosen.mode);
  return error{
      std::string("a program with ") + sanitizer + " has no far memory; build it without, or with AddressSanitizer",
      ENOTSUP};
}

// If no mode was chosen and each system call would cost a signal, programs that call the kernel often are better off
// with the other mode. So are programs that will forbid themselves system calls (seccomp), because their threads need
// some to resolve misses, and those under a debugger, which is told of each signal.
pager::fault_mode prepare_mode(const settings& chosen, pager::fault_mode mode) {
  if (mode == pager::fault_mode::thread) return mode;
  const bool minds_signals = !chosen.mode && (suits_thread_mode() || is_traced());
  if (!minds_signals && (prepare_system_calls() || chosen.mode)) return mode;
  const result<fault_mode_choice> other = choose_fault_mode(platform::probe_kernel(), pager::fault_mode::thread);
  return other.ok() && other.value().risk == nullptr ? other.value().mode : mode;
}

// A process whose limit is newer than the choice of the tier.
void fit_far_tier_to_limit(settings& chosen) {
  if (chosen.far_uri_under_limit.empty() || chosen.far_uri_under_limit == chosen.far_uri || !data_is_limited()) return;
  log_line(log_level::verbose, "process %d (%s) has a limit on data, and %s as its far tier",
           static_cast<int>(getpid()), program_invocation_short_name, chosen.far_uri_under_limit.c_str());
  chosen.far_uri = chosen.far_uri_under_limit;
}

// How many bytes around an object code of -ffar-objects gets; 0 if there is none, or none of this release.
std::size_t object_bytes_for_program(const settings& chosen) {
  const std::uint32_t* const wanted = &far_compiled_object_bytes;
  if (wanted == nullptr) return 0;
  if (chosen.object_bytes) return *chosen.object_bytes;
  return engine::line_cache::is_line_size(*wanted) ? *wanted : 0;
}

// For what the settings and the program ask for.
result<std::unique_ptr<pager::pager>> create_pager(const runtime& starting,
                                                   const std::vector<std::span<std::byte>>& static_arrays) {
  const settings& chosen = starting.chosen;
  const std::size_t copied_bytes = object_bytes_for_program(chosen);
  return pager::pager::create({.budget_bytes = starting.budget_bytes.load(),
                               .far_uri = chosen.far_uri,
                               .mode = starting.mode,
                               .policy = chosen.policy,
                               .pace = chosen.pace,
                               .heap_bytes = pager::heap_bytes_for_programs(),
                               .static_memory = static_arrays,
                               .observer = trace_observer(),
                               .child_settled = start_control_of_child,
                               .states_by_address = true,
                               .object_readers = copied_bytes > 0 ? 1u : 0u,
                               .copied_bytes = copied_bytes});
}

// The order matters. The pager starts before the allocator uses far memory, and the runtime is complete before the
// first system call is dispatched. Wrong settings end the program; missing features of the machine make it run
// natively.
void start() {
  const platform::runtime_mark allocate_locally;
  const bool others_run = __libc_single_threaded == 0;  // constructors of libraries have run, and perhaps started some
  result<settings> read = read_settings();
  if (!read) refuse_to_start(read.error());
  if (!read.value().active) return;
  if (fcntl(STDERR_FILENO, F_GETFD) < 0) set_log_open(false);
  measure_start();
  platform::take_over_address_limit();  // before memory is taken, for which a small limit has no room
  auto* const starting = new (std::nothrow) runtime;
  if (starting == nullptr) refuse_to_start({"out of memory at start", ENOMEM});
  starting->started_ns = now_ns();
  starting->process.store(getpid());
  starting->chosen = std::move(read).value();
  starting->is_main.store(starting->chosen.in_main_process());
  settings& chosen = starting->chosen;
  if (chosen.verbose) set_log_level(log_level::verbose);
  fit_far_tier_to_limit(chosen);
  const result<fault_mode_choice> choice = choose_mode(chosen);
  if (!choice) return run_natively(choice.error());
  if (choice.value().why_not_asked != nullptr) {
    log_line(log_level::warning, "%s. Until then process %d (%s) runs with the other mode",
             choice.value().why_not_asked, static_cast<int>(getpid()), program_invocation_short_name);
  }
  const result<void> traced = start_trace(chosen);
  if (!traced) refuse_to_start(traced.error());
  find_c_library();
  keep_runtime_out_of_programs_malloc();
  starting->mode = prepare_mode(chosen, choice.value().mode);
  if (starting->mode == pager::fault_mode::thread) prepare_watched_calls();
  starting->of_job = join_job(chosen);
  job* const of_job = starting->of_job.get();
  const std::vector<std::span<std::byte>> static_arrays = find_static_arrays();
  starting->budget_bytes.store(first_budget(of_job, chosen.budget_bytes));
  if (of_job != nullptr) backend::zmem_backend::count_together(of_job->region().compressed);
  result<std::unique_ptr<pager::pager>> pager = create_pager(*starting, static_arrays);
  if (!pager && pager.error().code == EINVAL) refuse_to_start(pager.error());  // wrong settings
  if (!pager) {
    if (of_job != nullptr) of_job->leave();
    return run_natively(pager.error());
  }
  starting->pager = std::move(pager).value();
  backend::note_far_program();
  result<void> used = use_far_memory(*starting->pager);
  if (!used) refuse_to_start(used.error());
  settling.assert_held();  // no other thread knows of this runtime yet
  starting->control = listen(*starting);
  the_runtime = starting;
  serving.store(starting->pager.get(), std::memory_order_release);
  pager::serve_hints(*starting->pager, take_hint);
  pager::serve_compiled_code(*starting->pager, others_run);
  serve_forks(*starting->pager);
  watch_thread_ends();
  static_cast<void>(read_process_usage());  // opens its file before the program begins
  used = start_control([starting, server = starting->control.get()] { run_control(*starting, *server); });
  if (!used) refuse_to_start(used.error());  // by now the program's memory is far
  serve_limits(*starting->pager);
  if (starting->mode == pager::fault_mode::in_line) {
    const result<void> guarded = guard_system_calls(!static_arrays.empty());
    if (!guarded) {
      the_runtime = nullptr;  // there is no run to report
      refuse_to_start(guarded.error());
    }
  } else if (const result<void> noticed = notice_raw_calls(); !noticed) {
    log_line(log_level::verbose, "memory calls of the program that pass by the C library are not seen (%s)",
             noticed.error().message.c_str());
  }
}

// The counts of all processes of the job.
void report_of(job& whole, run_report& report) {
  whole.ask();  // buries processes that have just ended
  report.totals = totals_of(whole.region());
  report.counted = report.totals.counted;
  report.used = report.totals.used;
  report.elapsed_ns = report.totals.elapsed_ns;
  report.processes = &whole.region();
}

void write_report(run_report& report) {
  const settings& chosen = the_runtime->chosen;
  report.pid = getpid();
  report.program = program_invocation_name;
  report.far_uri = chosen.far_uri.c_str();
  report.fault_mode = the_runtime->mode == pager::fault_mode::thread ? "thread" : "inline";
  report.policy = chosen.policy.c_str();
  const std::uint64_t others = report.totals.running > 0 ? report.totals.running - 1 : 0;
  log_exit_line(report.counted, report.totals.processes, others);
  if (chosen.stats_json.empty()) return;
  const result<void> written = write_stats_json(chosen.stats_json.c_str(), report);
  if (!written) log_line(log_level::error, "%s", written.error().message.c_str());
}

void write_reports() {
  const platform::signal_shield shield;
  if (trace_is_on) end_trace(the_runtime->pager->snapshot());
  const settings& chosen = the_runtime->chosen;
  job* const of_job = the_runtime->of_job.get();
  run_report report;
  report.counted = count(*the_runtime);
  report.used = read_process_usage();
  report.elapsed_ns = now_ns() - the_runtime->started_ns;
  if (of_job != nullptr && !of_job->is_mine()) {
    of_job->record_child(report.counted, report.used);
  } else if (of_job != nullptr) {
    of_job->tell_last(report.counted, report.used);
    if (chosen.in_main_process()) report_of(*of_job, report);
  }
  if (chosen.in_main_process()) write_report(report);
  if (of_job != nullptr) of_job->leave();
  the_runtime->pager->prepare_exit();
}

// Any system call may end a process that has restricted itself. The job counts children by what they published last.
void report_without_system_calls(runtime& self) noexcept {
  constexpr int most_pauses = 100'000'000;  // some seconds
  if (!self.is_main.load() || self.reported.load()) return;
  self.report_is_wanted.store(true);
  for (int i = 0; i < most_pauses && self.report_is_wanted.load(); ++i) cpu_relax();
}

__attribute__((constructor)) void start_runtime() {
  start();
}
__attribute__((destructor)) void end_runtime() {
  report_at_exit();
}

}  // namespace

pager::pager* active_pager() noexcept {
  return serving.load(std::memory_order_acquire);
}

bool resolves_in_line() noexcept {
  return the_runtime->mode == pager::fault_mode::in_line;
}

bool in_borrowed_memory() noexcept {
  return the_runtime != nullptr && the_runtime->process.load() != getpid();
}

void settle_in_child() noexcept {
  if (the_runtime == nullptr) return;
  the_runtime->process.store(getpid());
  the_runtime->is_main.store(false);
  platform::know_kernel_limits();
  settling.assert_held();  // by this thread, which forked
  the_runtime->control->settle_in_child();
  the_runtime->far_runtimes.settle_in_child();
  the_runtime->counted_at_fork = count_since_start(*the_runtime);
  if (the_runtime->of_job != nullptr) the_runtime->of_job->forget_parent();
}

// From one step of a fork to another, which the analysis cannot follow.
void lock_control_for_fork() noexcept FAR_UNCHECKED_LOCKING {
  settling.lock();
}

void unlock_control_after_fork() noexcept FAR_UNCHECKED_LOCKING {
  settling.unlock();
}

void tell_before_exec() noexcept {
  if (the_runtime == nullptr || in_borrowed_memory() || the_runtime->of_job == nullptr) return;
  const int saved_errno = errno;
  in_runtime([] {
    const platform::signal_shield shield;
    the_runtime->of_job->tell(count(*the_runtime), read_process_usage());
  });
  errno = saved_errno;
}

bool is_first_to_name(std::uint64_t hash) noexcept {
  if (the_runtime == nullptr) return false;
  if (the_runtime->of_job != nullptr) return the_runtime->of_job->first_to_name(hash);
  static std::atomic<std::uint64_t> last_named{0};
  return last_named.exchange(hash) != hash;
}

void note_restriction() noexcept {
  if (the_runtime == nullptr || in_borrowed_memory()) return;
  pid_t none = 0;
  the_runtime->restricted_thread.compare_exchange_strong(none, static_cast<pid_t>(syscall(SYS_gettid)));
}

bool has_restricted_itself() noexcept {
  return the_runtime != nullptr && the_runtime->restricted_thread.load() != 0;
}

void report_at_exit() noexcept {
  if (has_restricted_itself()) return report_without_system_calls(*the_runtime);
  if (the_runtime == nullptr || in_borrowed_memory() || the_runtime->reported.exchange(true)) return;
  on_runtime_stack(write_reports);  // the program's may be too small
}

}  // namespace far::preload

// The symbol that far/hint.h looks for.
extern "C" FAR_API const far_hint_view* far_hint_find_view() {
  return &far::pager::hint_view();
}

// The symbols that far/detail/compiled.h names.
extern "C" FAR_API void far_compiled_join(far_compiled* joining) {
  far::pager::join_compiled_code(*joining);
}
extern "C" FAR_API void far_compiled_leave(far_compiled* leaving) {
  far::pager::leave_compiled_code(*leaving);
}

namespace {

// What comes out may go to a stack in far memory, so it is copied outside the runtime.
int read_object(std::uint64_t* value, const void* address, std::size_t bytes) {
  using far::pager::copy_lookup;
  std::uint64_t found = 0;
  const copy_lookup lookup = far::pager::find_object(found, address, bytes);
  *value = found;
  if (lookup != copy_lookup::none) return lookup == copy_lookup::found ? 1 : 0;
  const int error_before = errno;
  const auto [done, brought] = far::preload::on_runtime_stack([=] {
    std::uint64_t read = 0;
    const bool is_read = far::pager::bring_object(read, address, bytes);
    return std::pair(is_read, read);
  });
  errno = error_before;
  *value = brought;
  return done ? 1 : 0;
}

// The list, too.
struct wanted_copies {
  std::array<const void*, far_compiled_most_copies> addresses;
  std::size_t count;
  std::size_t operator()() const { return far::pager::copy_objects(std::span(addresses).first(count)); }
};

std::size_t copy_objects(const void* const* addresses, std::size_t count) {
  if (!far::pager::keeps_objects()) return far_compiled_no_copies;
  if (count == 0) return 0;
  const int error_before = errno;
  wanted_copies wanted;
  wanted.count = std::min<std::size_t>(count, wanted.addresses.size());
  std::copy_n(addresses, wanted.count, wanted.addresses.begin());
  const std::size_t missing = far::preload::on_runtime_stack(wanted);
  errno = error_before;
  return missing;
}

constexpr far_compiled_objects objects{read_object, copy_objects};

}  // namespace

extern "C" FAR_API const far_compiled_objects* far_compiled_find_objects() {
  return &objects;
}

extern "C" FAR_API void* far_compiled_thread_memory() {
  alignas(void*) static constinit thread_local std::array<std::byte, far_compiled_thread_bytes> memory{};
  return memory.data();
}

// See src/control/guest.h.
extern "C" FAR_API far::control::miss_recorder* far_host_miss_recorder() {
  return far::preload::trace_is_on ? far::preload::trace_guest_miss : nullptr;
}

// See src/control/guest.h. The report is copied before anything is locked, because it may lie in far memory.
extern "C" FAR_API std::uint64_t far_host_exchange(std::uint32_t* number, const far::control::guest_report* said) {
  using namespace far::preload;
  if (the_runtime == nullptr || said->interface != far::control::guest_interface) return 0;
  const auto [granted_bytes, place] = in_runtime([far_number = *number, far_said = *said] {
    std::uint32_t mine = far_number;
    const far::control::guest_report copied = far_said;
    const std::uint64_t granted = exchange_with_guest(*the_runtime, mine, copied);
    return std::pair(granted, mine);
  });
  *number = place;
  return granted_bytes;
}
