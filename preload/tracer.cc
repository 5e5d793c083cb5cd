#include "preload/tracer.h"

#if defined(__x86_64__)

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <span>

#include "base/log.h"
#include "pager/hints.h"
#include "platform/clock.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"
#include "preload/in_runtime.h"
#include "preload/python_stack.h"
#include "preload/runtime.h"
#include "preload/threads.h"
#include "trace/record/frame_table.h"
#include "trace/record/trace_file.h"
#include "trace/record/unwinder.h"

namespace far::preload {
namespace {

using stack_addresses = std::array<std::uint64_t, trace::deepest_stack>;

// The recorder's own misses, and its calls, are not the program's.
constinit thread_local bool recording = false;

std::uint64_t now_ns() {
  return platform::monotonic_clock().now_ns();
}

std::uint32_t this_thread_id() {
  return static_cast<std::uint32_t>(syscall(SYS_gettid));
}

// While one of these lives, the calling thread records. Use it in a signal handler, or with the program's handlers
// blocked.
class recording_section {
 public:
  explicit recording_section(std::atomic<std::uint64_t>& spent_ns) noexcept : spent_ns_(spent_ns), since_ns_(now_ns()) {
    recording = true;
  }
  ~recording_section() {
    recording = false;
    spent_ns_.fetch_add(now_ns() - since_ns_, std::memory_order_relaxed);
    errno = saved_errno_;
  }
  recording_section(const recording_section&) = delete;
  recording_section& operator=(const recording_section&) = delete;

 private:
  const int saved_errno_ = errno;
  const platform::runtime_mark allocate_locally_;
  const undispatched_section undispatched_;
  std::atomic<std::uint64_t>& spent_ns_;
  const std::uint64_t since_ns_;
};

// miss_record::kind is the pager's, as it is.
static_assert(static_cast<int>(pager::observed_miss::kind::read) == static_cast<int>(trace::miss_kind::read));
static_assert(static_cast<int>(pager::observed_miss::kind::write) == static_cast<int>(trace::miss_kind::write));
static_assert(static_cast<int>(pager::observed_miss::kind::protection) ==
              static_cast<int>(trace::miss_kind::protection));
static_assert(static_cast<int>(pager::observed_miss::kind::first_touch) ==
              static_cast<int>(trace::miss_kind::first_touch));

class tracer final : public pager::miss_observer {
 public:
  explicit tracer(const settings& chosen)
      : file({.directory = chosen.trace_directory,
              .budget_bytes = chosen.budget_bytes,
              .sampled_one_in = chosen.trace_sample}),
        sample_(chosen.trace_sample),
        inline_(chosen.mode == pager::fault_mode::in_line),
        own_code_(trace::object_at(trace::current_state().registers.back())) {}

  // Runs during a miss, so it allocates nothing, and its own misses are not recorded. For a miss inside a system call,
  // the stack of the call is recorded.
  void missed(const pager::observed_miss& one) noexcept override {
    if (recording) return;
    const std::uint64_t number = misses.fetch_add(1, std::memory_order_relaxed);
    if (number % sample_ != 0) return;
    const recording_section section(recording_ns);
    const auto* const context = static_cast<const ucontext_t*>(one.pinned ? this_thread().system_call : one.context);
    trace::miss_record record{.time_ns = one.time_ns,
                              .address = reinterpret_cast<std::uint64_t>(one.address),
                              .thread = one.thread,
                              .stack = 0,
                              .python_stack = 0,
                              .kind = static_cast<trace::miss_kind>(one.cause),
                              .in_kernel = one.pinned ? std::uint8_t{1} : std::uint8_t{0},
                              .reserved = 0};
    if (context != nullptr) {
      stack_addresses addresses;
      const std::size_t depth = trace::unwind(trace::interrupted_state(*context), addresses);
      record.stack = file.stack({addresses.data(), depth});
    }
    if (inline_) {
      python_text text;
      record.python_stack = file.python_stack(python.read(text));
    }
    file.add(record);
  }

  void allocated(trace::machine_state caller, const void* address, std::size_t bytes) noexcept {
    const platform::signal_shield shield;
    const recording_section section(recording_ns);
    add_with_stack(caller, [=](std::uint32_t stack) {
      return trace::allocation_record{now_ns(), reinterpret_cast<std::uint64_t>(address), bytes, this_thread_id(),
                                      stack};
    });
  }

  // It waits for nothing, so a fiber stays on its thread.
  void guest_missed(trace::machine_state caller, const void* address, trace::miss_kind kind) noexcept {
    if (recording || misses.fetch_add(1, std::memory_order_relaxed) % sample_ != 0) return;
    const platform::signal_shield shield;
    const recording_section section(recording_ns);
    add_with_stack(caller, [=](std::uint32_t stack) {
      return trace::miss_record{.time_ns = now_ns(),
                                .address = reinterpret_cast<std::uint64_t>(address),
                                .thread = this_thread_id(),
                                .stack = stack,
                                .python_stack = 0,
                                .kind = kind,
                                .in_kernel = 0,
                                .reserved = 0};
    });
  }

  void released(const void* address) noexcept {
    const platform::signal_shield shield;
    const recording_section section(recording_ns);
    in_runtime(
        [this, address] { file.add(trace::release_record{now_ns(), reinterpret_cast<std::uint64_t>(address)}); });
  }

  void end(const engine::statistics& counted) noexcept {
    const recording_section section(recording_ns);
    for (const pager::hint_site& site : pager::hint_sites()) {
      const unsigned line = site.line.load(std::memory_order_acquire);
      if (line != 0) file.add_hint_site(site.calls(), site.misses(), line, site.file);
    }
    file.add_maps();
    file.add_end({now_ns(), misses.load(), counted.hinted_misses, counted.fetched_pages, recording_ns.load(), 0});
  }

  trace::trace_file file;
  python_reader python;
  std::atomic<std::uint64_t> misses{0};
  std::atomic<std::uint64_t> recording_ns{0};
  std::atomic<bool> ended{false};

 private:
  // Adds what `make` says of the number of the caller's stack. The lock of the file is only taken on a local stack: on
  // a far one, a miss under it would wait for a fork, which waits for this lock with those of misses held.
  template <typename Make>
  void add_with_stack(const trace::machine_state& caller, Make make) noexcept {
    in_runtime([&] { file.add(make(stack_of_caller(caller))); });
  }

  // The number of the stack from the first frame on that is not of this library. While recording.
  [[nodiscard]] std::uint32_t stack_of_caller(trace::machine_state caller) noexcept {
    stack_addresses addresses;
    const std::size_t depth = trace::unwind(caller, addresses);
    std::size_t own = 0;
    while (own < depth && is_own_code(addresses[own])) ++own;
    return file.stack(std::span<const std::uint64_t>(addresses).subspan(own, depth - own));
  }

  [[nodiscard]] bool is_own_code(std::uint64_t address) const noexcept {
    return address >= own_code_.start && address < own_code_.end;
  }

  const std::uint32_t sample_;
  const bool inline_;
  const trace::code_range own_code_;  // frames of this library are not the program's
};

// Never destroyed: misses come until the very end.
tracer* the_tracer = nullptr;

bool traces_this(const void* address) {
  const pager::pager* const far = active_pager();
  return the_tracer != nullptr && !recording && !platform::on_runtime_thread() && far != nullptr &&
         far->contains(address);
}

}  // namespace

constinit bool trace_is_on = false;

result<void> start_trace(const settings& chosen) {
  if (chosen.trace_directory.empty()) return {};
  auto recorder = std::make_unique<tracer>(chosen);
  const result<void> opened = recorder->file.open();
  if (!opened) return opened;
  recorder->python.find();
  the_tracer = recorder.release();
  trace_is_on = true;
  return {};
}

pager::miss_observer* trace_observer() noexcept {
  return the_tracer;
}

void trace_allocation(const void* address, std::size_t bytes) noexcept {
  if (bytes < trace::least_allocation_bytes || !traces_this(address)) return;
  the_tracer->allocated(trace::current_state(), address, bytes);
  asm volatile("");  // no tail call: the stack begins with this function's frame
}

void trace_release(const void* address) noexcept {
  if (traces_this(address)) the_tracer->released(address);
}

void trace_guest_miss(const void* address, control::guest_miss kind) noexcept {
  if (the_tracer == nullptr || platform::on_runtime_thread()) return;
  const trace::miss_kind how = kind == control::guest_miss::read    ? trace::miss_kind::read
                               : kind == control::guest_miss::write ? trace::miss_kind::write
                                                                    : trace::miss_kind::first_touch;
  the_tracer->guest_missed(trace::current_state(), address, how);
  asm volatile("");  // as above
}

void write_trace() noexcept {
  if (the_tracer == nullptr || recording || the_tracer->ended.load()) return;
  const platform::signal_shield shield;
  const recording_section section(the_tracer->recording_ns);
  the_tracer->file.add_maps();
  the_tracer->file.flush();
}

void write_buffered_trace() noexcept {
  if (the_tracer != nullptr) the_tracer->file.flush();
}

void end_trace(const engine::statistics& counted) noexcept {
  if (the_tracer != nullptr && !the_tracer->ended.exchange(true)) the_tracer->end(counted);
}

// From one step of a fork to another, which the analysis cannot follow.
void lock_trace_for_fork() noexcept FAR_UNCHECKED_LOCKING {
  if (the_tracer != nullptr) the_tracer->file.lock_for_fork();
}

void unlock_trace_in_parent() noexcept FAR_UNCHECKED_LOCKING {
  if (the_tracer != nullptr) the_tracer->file.unlock_after_fork();
}

void resume_trace_in_child() noexcept {
  if (the_tracer == nullptr) return;
  the_tracer->misses.store(0);
  the_tracer->recording_ns.store(0);
  the_tracer->ended.store(false);
  the_tracer->python.resume_in_child();
  const result<void> resumed = the_tracer->file.resume_in_child();
  if (!resumed) log_line(log_level::warning, "a child is not traced: %s", resumed.error().message.c_str());
}

}  // namespace far::preload

#else

#include <cerrno>

namespace far::preload {

constinit bool trace_is_on = false;

result<void> start_trace(const settings& chosen) {
  if (chosen.trace_directory.empty()) return {};
  return error{"misses are recorded on x86-64 only; use `farheap run`", ENOSYS};
}

pager::miss_observer* trace_observer() noexcept {
  return nullptr;
}
void trace_allocation(const void*, std::size_t) noexcept {}
void trace_release(const void*) noexcept {}
void trace_guest_miss(const void*, control::guest_miss) noexcept {}
void write_trace() noexcept {}
void write_buffered_trace() noexcept {}
void end_trace(const engine::statistics&) noexcept {}
void lock_trace_for_fork() noexcept {}
void unlock_trace_in_parent() noexcept {}
void resume_trace_in_child() noexcept {}

}  // namespace far::preload

#endif
