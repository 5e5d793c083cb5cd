#include "control/crew.h"

#include <exception>
#include <new>
#include <utility>

#include "base/check.h"
#include "platform/futex.h"
#include "platform/own_descriptors.h"
#include "platform/runtime_thread.h"

namespace far::control {

crew::crew(const char* name, std::function<void(task&)> work) : name_(name), work_(std::move(work)) {}

crew::~crew() {
  for (task& one : all_) {
    if (!one.thread_.joinable()) continue;
    const bool is_left = one.state_.exchange(task::state_over) == task::state_asked;
    if (is_left) platform::close_own_descriptor(one.peer_);
    platform::futex_wake_one(&one.state_);
    one.thread_.join();
  }
}

// They can be neither joined nor detached here, so the objects that stand for them are left without an end.
void crew::forget_threads() noexcept {
  for (task& one : all_) {
    new (&one.thread_) std::thread;
    one.state_.store(task::state_idle);
  }
}

crew::taken crew::give(int peer, std::string_view request) {
  FAR_CHECK(request.size() <= most_request_bytes, "a request fits into its task");
  for (task& one : all_) {
    if (one.state_.load() != task::state_idle) continue;
    if (!one.thread_.joinable() && !start(one)) return taken::no_thread;
    one.peer_ = peer;
    one.request_bytes_ = request.copy(one.request_.data(), one.request_.size());
    one.state_.store(task::state_asked);
    platform::futex_wake_one(&one.state_);
    return taken::yes;
  }
  return taken::all_busy;
}

bool crew::start(task& mine) {
  try {
    mine.thread_ = platform::start_runtime_thread(name_, [this, &mine] { run(mine); });
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void crew::run(task& mine) const {
  while (true) {
    while (mine.state_.load() == task::state_idle) {
      static_cast<void>(platform::futex_sleep(mine.state_, task::state_idle, platform::no_deadline_ns));
    }
    std::uint32_t asked = task::state_asked;
    if (!mine.state_.compare_exchange_strong(asked, task::state_busy)) return;  // it is over
    work_(mine);
  }
}

}  // namespace far::control
