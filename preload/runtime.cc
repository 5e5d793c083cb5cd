#include "preload/runtime.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>

#include "base/log.h"
#include "pager/hints.h"
#include "pager/runtime_thread.h"
#include "platform/clock.h"
#include "platform/signal_shield.h"
#include "preload/allocator.h"
#include "preload/c_library.h"
#include "preload/control.h"
#include "preload/fork.h"
#include "preload/in_runtime.h"
#include "preload/report.h"
#include "preload/settings.h"
#include "preload/syscall_guard.h"
#include "preload/tracer.h"

namespace far::preload {
namespace {

void take_hint(const void* address, std::size_t size, std::uint64_t packed_options, far_hint_site* site) {
  in_runtime([=] { pager::take_hint(address, size, packed_options, site); });
}

constexpr int pressure_check_ms = 200;
constexpr int exit_status_of_failure = 1;

struct runtime {
  settings chosen;
  std::unique_ptr<pager::pager> pager;
  std::unique_ptr<control_server> control;
  std::thread control_thread;
  std::uint64_t started_ns = 0;
  std::atomic<bool> reported{false};
};

// Never destroyed: the program's last destructors may still touch far memory.
runtime* the_runtime = nullptr;
std::atomic<pager::pager*> serving{nullptr};

std::uint64_t now_ns() {
  return platform::monotonic_clock().now_ns();
}

[[noreturn]] void refuse_to_start(const error& why) {
  log_line(log_level::error, "%s", why.message.c_str());
  _exit(exit_status_of_failure);
}

result<void> resize_budget(void* context, std::uint64_t budget_bytes) {
  return static_cast<pager::pager*>(context)->resize(budget_bytes);
}

result<void> add_server(void* context, std::string_view server) {
  return static_cast<pager::pager*>(context)->add_server(server);
}

engine::statistics read_statistics(void* context) {
  return static_cast<pager::pager*>(context)->snapshot();
}

// Serves `farheap resize`, `stats` and `add-server`, and does what must not be done by a thread that resolves misses:
// under pressure, it takes freed memory back from jemalloc before the evictor writes it out.
void run_control(runtime& of) {
  std::uint64_t evicted_before = 0;
  bool serving_peers = true;
  while (serving_peers) {
    serving_peers = of.control->step(pressure_check_ms);
    release_slots_of_ended_children();
    write_buffered_trace();
    const std::uint64_t evicted = of.pager->snapshot().evicted_pages;
    if (evicted != evicted_before) purge_freed_memory();
    evicted_before = evicted;
  }
}

void start() {
  const pager::runtime_section allocate_locally;
  result<settings> read = read_settings();
  if (!read) refuse_to_start(read.error());
  if (!read.value().active) return;
  auto* const starting = new (std::nothrow) runtime;
  if (starting == nullptr) refuse_to_start({"out of memory at start", ENOMEM});
  starting->started_ns = now_ns();
  starting->chosen = std::move(read).value();
  const settings& chosen = starting->chosen;
  if (chosen.verbose) set_log_level(log_level::verbose);
  const result<void> traced = start_trace(chosen);
  if (!traced) refuse_to_start(traced.error());
  result<std::unique_ptr<pager::pager>> made = pager::pager::create({.budget_bytes = chosen.budget_bytes,
                                                                     .far_uri = chosen.far_uri,
                                                                     .mode = chosen.mode,
                                                                     .policy = chosen.policy,
                                                                     .observer = trace_observer()});
  if (!made) refuse_to_start(made.error());
  starting->pager = std::move(made).value();
  find_c_library();
  const result<void> used = use_far_memory(*starting->pager);
  if (!used) refuse_to_start(used.error());
  result<std::unique_ptr<control_server>> control =
      control_server::open({starting->pager.get(), resize_budget, read_statistics, add_server});
  if (!control) refuse_to_start(control.error());
  starting->control = std::move(control).value();
  the_runtime = starting;
  serving.store(starting->pager.get(), std::memory_order_release);
  pager::serve_hints(*starting->pager, take_hint);
  serve_forks(*starting->pager);
  starting->control_thread = pager::start_runtime_thread("farheap-control", [starting] { run_control(*starting); });
  if (chosen.mode == pager::fault_mode::in_line) {
    const result<void> guarded = guard_system_calls();
    if (!guarded) {
      the_runtime = nullptr;  // there is no run to report
      refuse_to_start(guarded.error());
    }
  }
}

void write_reports() {
  const platform::signal_shield shield;
  if (trace_is_on) end_trace(the_runtime->pager->snapshot());
  const settings& chosen = the_runtime->chosen;
  if (!chosen.in_main_process()) return;
  run_report report;
  report.counted = the_runtime->pager->snapshot();
  report.used = read_process_usage();
  report.pid = getpid();
  report.elapsed_ns = now_ns() - the_runtime->started_ns;
  report.program = program_invocation_name;
  report.far_uri = chosen.far_uri.c_str();
  report.fault_mode = chosen.mode == pager::fault_mode::thread ? "thread" : "inline";
  report.policy = chosen.policy.c_str();
  log_exit_line(report.counted);
  if (chosen.stats_json.empty()) return;
  const result<void> written = write_stats_json(chosen.stats_json.c_str(), report);
  if (!written) log_line(log_level::error, "%s", written.error().message.c_str());
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

void report_at_exit() noexcept {
  if (the_runtime == nullptr || the_runtime->reported.exchange(true)) return;
  in_runtime(write_reports);
}

}  // namespace far::preload

// What far/hint.h looks for.
extern "C" __attribute__((visibility("default"))) const far_hint_view* far_hint_find_view() {
  return &far::pager::hint_view();
}
