#include "process.h"

#include <pthread.h>

#include <memory>

#include "control/control.h"
#include "pager/hints.h"
#include "platform/kernel_features.h"
#include "platform/runtime_thread.h"
#include "platform/signal_shield.h"
#include "platform/system_memory.h"
#include "preload/budget.h"
#include "preload/fault_mode_choice.h"

namespace far::python {
namespace {

constexpr int pressure_check_ms = 200;

struct process {
  std::string far_tier;
  std::unique_ptr<pager::pager> far;
  std::unique_ptr<array_memory> arrays;
  std::unique_ptr<control::control_server> control;
};

// Never destroyed: arrays may be used by the last destructors of the interpreter.
process* the_process = nullptr;
// Held while the control server of a child of fork starts, and by a thread that forks.
constinit thread_mutex settling;
std::uint64_t signals_before_fork = 0;

result<void> resize_to(void* context, std::uint64_t budget_bytes) {
  return static_cast<process*>(context)->far->resize(budget_bytes);
}

engine::statistics read_statistics(void* context) {
  return static_cast<process*>(context)->far->snapshot();
}

result<void> add_server(void* context, std::string_view server) {
  return static_cast<process*>(context)->far->add_server(server);
}

result<std::uint64_t> remove_server(void* context, std::string_view server, removal step) {
  return static_cast<process*>(context)->far->remove_server(server, step);
}

void listen() {
  {
    const lock_guard no_fork(settling);
    the_process->control =
        control::control_server::open({the_process, resize_to, read_statistics, add_server, remove_server});
  }
  std::uint64_t evicted_before = the_process->far->snapshot().evicted_pages;
  while (the_process->control->step(pressure_check_ms)) {
    const std::uint64_t evicted = the_process->far->snapshot().evicted_pages;
    if (evicted != evicted_before) the_process->arrays->drop_spares();
    evicted_before = evicted;
  }
}

// Detached: a child of fork has the object, and not the thread.
void start_control() {
  platform::start_runtime_thread("farheap-control", listen).detach();
}

// The locks are held from the first of these to the other two. No signal handler runs from before the first step until
// after the last: it would meet locks that its own thread holds.
void before_fork() FAR_UNCHECKED_LOCKING {
  const std::uint64_t signals = platform::block_signals();
  settling.lock();
  the_process->arrays->lock_for_fork();
  the_process->far->prepare_fork();
  signals_before_fork = signals;
}

void after_fork_in_parent() FAR_UNCHECKED_LOCKING {
  const std::uint64_t signals = signals_before_fork;
  the_process->far->after_fork_in_parent();
  the_process->arrays->unlock_after_fork();
  settling.unlock();
  platform::restore_signals(signals);
}

void after_fork_in_child() FAR_UNCHECKED_LOCKING {
  const std::uint64_t signals = signals_before_fork;
  the_process->far->after_fork_in_child();
  the_process->arrays->unlock_after_fork();
  if (the_process->control != nullptr) the_process->control->settle_in_child();
  settling.unlock();
  platform::restore_signals(signals);
}

// Python makes the kernel read and write arrays all the time, which inline mode does not support here.
result<void> check_mode() {
  const result<preload::fault_mode_choice> choice =
      preload::choose_fault_mode(platform::probe_kernel(), pager::fault_mode::thread);
  if (!choice) return choice.error();
  if (choice.value().why_not_asked == nullptr) return {};
  return error{std::string(choice.value().why_not_asked) +
               ", or run the program by `farheap run`, which needs no such right"};
}

result<std::uint64_t> budget_of(const std::string& local) {
  const result<platform::system_memory> memory = platform::read_system_memory();
  if (!memory) return memory.error();
  return local.empty() ? preload::default_budget_bytes(memory.value()) : preload::parse_budget(local, memory.value());
}

// Arrays are used by what ends after this, and until then the far tier serves them. In a child of fork, too, which may
// have a far tier of its own by now.
__attribute__((destructor)) void announce_end() {
  if (the_process == nullptr) return;
  const platform::signal_shield shield;
  the_process->far->prepare_exit();
}

}  // namespace

const char* far_tier() noexcept {
  return the_process == nullptr ? nullptr : the_process->far_tier.c_str();
}

result<void> start(const std::string& local, const std::string& far) {
  const result<std::uint64_t> budget = budget_of(local);
  if (!budget) return budget.error();
  const result<void> possible = check_mode();
  if (!possible) return possible.error();
  result<std::unique_ptr<pager::pager>> pager =
      pager::pager::create({.budget_bytes = budget.value(), .far_uri = far, .child_settled = start_control});
  if (!pager) return pager.error();
  the_process = new process;
  the_process->far_tier = far;
  the_process->far = std::move(pager).value();
  the_process->arrays = std::make_unique<array_memory>(*the_process->far);
  pager::serve_hints(*the_process->far);
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  start_control();
  return {};
}

result<void> resize(const std::string& local) {
  const result<std::uint64_t> budget = budget_of(local);
  return budget ? the_process->far->resize(budget.value()) : budget.error();
}

pager::pager& far_heap() noexcept {
  return *the_process->far;
}

array_memory& arrays() noexcept {
  return *the_process->arrays;
}

}  // namespace far::python
