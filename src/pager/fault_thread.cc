#include "pager/fault_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "base/lock_guard.h"
#include "pager/miss_kind.h"
#include "platform/own_descriptors.h"
#include "platform/processors.h"
#include "platform/runtime_thread.h"
#include "platform/wait_for_events.h"

namespace far::pager {
namespace {

// A look for work that takes so long and finds none was interrupted: somebody else wants the processor.
constexpr std::uint64_t interrupted_ns = 100'000;

}  // namespace

fault_thread::fault_thread(engine::engine& engine, engine::host& around, engine::fetcher& fetcher,
                           const platform::userfaultfd& faults, const platform::heap_layout& heap,
                           const std::function<void(platform::page_id)>& lost, miss_observer* observer)
    : engine_(engine),
      host_(around),
      fetcher_(fetcher),
      faults_(faults),
      heap_(heap),
      observer_(observer),
      pending_(engine, around, fetcher, [lost](platform::page_id page) {
        lost(page);
        return false;
      }) {}

void fault_thread::start() {
  // If the program has left no descriptor, the thread checks now and then whether to stop.
  stop_descriptor_ = platform::own_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  thread_ = platform::start_runtime_thread("farheap-fault", [this] { run(); });
  backoff waiting;
  for (outcome reached = outcome::progress; reached != outcome::handed_over;) {
    reached = serve_until_at_work();
    if (reached == outcome::nothing) waiting.pause();
  }
}

fault_thread::outcome fault_thread::serve_until_at_work() {
  const lock_guard guard(fetcher_.lock);
  if (at_work_) return outcome::handed_over;
  return serve_locked() ? outcome::progress : outcome::nothing;
}

void fault_thread::stop() {
  if (thread_.joinable()) {
    stopping_.store(true);
    const std::uint64_t one = 1;
    FAR_CHECK(stop_descriptor_ < 0 || write(stop_descriptor_, &one, sizeof one) == sizeof one,
              "an eventfd can be signalled");
    thread_.join();
  }
  platform::close_own_descriptor(std::exchange(stop_descriptor_, -1));
}

// Spins for a while after the last work, since the next miss often follows at once; then sleeps until the kernel
// reports a miss or a transfer completes.
void fault_thread::run() {
  {
    // From now on, the thread that starts this one serves no misses.
    const lock_guard guard(fetcher_.lock);
    at_work_ = true;
  }
  std::uint64_t now_ns = clock_.now_ns();
  std::uint64_t last_work_ns = now_ns;
  // On one processor a spin delays the program, whose next miss would then come later and make the spin longer.
  const bool adapts = platform::has_several_processors();
  bool has_slept = false;  // since the last work
  while (!stopping_.load(std::memory_order_relaxed)) {
    const bool progress = serve();
    if (engine_.eviction().wants_background()) host_.wake_background();
    const std::uint64_t before_ns = std::exchange(now_ns, clock_.now_ns());
    if (progress) {
      if (adapts) spin_.note_gap(now_ns - last_work_ns);
      last_work_ns = now_ns;
      has_slept = false;
      continue;
    }
    if (!has_slept && now_ns - before_ns > interrupted_ns) spin_.note_crowd();
    if (has_slept || now_ns - last_work_ns > spin_.limit_ns() || waits_for_device()) {
      sleep();
      has_slept = true;
    } else {
      cpu_relax();
    }
  }
}

// Reads new misses and does all that can be done now. Returns whether anything was done.
bool fault_thread::serve() {
  const lock_guard guard(fetcher_.lock);
  return serve_locked();
}

bool fault_thread::serve_locked() {
  const bool is_new = read_new();
  return pending_.serve() || is_new;
}

bool fault_thread::read_new() {
  std::array<platform::fault, faults_a_read> faults;
  const std::size_t count = faults_.read(faults);
  if (count == 0) return false;
  const std::uint64_t now_ns = clock_.now_ns();
  for (std::size_t i = 0; i < count; ++i) {
    pending_.add(page_of(faults[i]), faults[i].write, faults[i].thread_id);
    engine_.misses().note_unguarded(page_of(faults[i]));
    tell_observer(faults[i], now_ns);
  }
  return true;
}

void fault_thread::tell_observer(const platform::fault& reported, std::uint64_t now_ns) const {
  if (observer_ == nullptr) return;
  observer_->missed({.time_ns = now_ns,
                     .address = reinterpret_cast<const std::byte*>(reported.address),
                     .cause = kind_of_miss(engine_.view(), page_of(reported), reported.write),
                     .thread = reported.thread_id,
                     .context = nullptr,
                     .pinned = false});
}

platform::page_id fault_thread::page_of(const platform::fault& reported) const {
  const platform::page_id page = heap_.page_at(reinterpret_cast<const std::byte*>(reported.address));
  FAR_CHECK(page < engine_.view().pages(), "misses are reported in the far heap only");
  return page;
}

// An arrival wakes us by itself, and takes longer than it is worth spinning.
bool fault_thread::waits_for_device() {
  return !fetcher_.idle() && arrivals_descriptor() >= 0;
}

// The first call opens it, while others may poll the fetcher.
int fault_thread::arrivals_descriptor() {
  const lock_guard guard(fetcher_.lock);
  return fetcher_.event_descriptor();
}

bool fault_thread::arrivals_wait_for_time() {
  const lock_guard guard(fetcher_.lock);
  return fetcher_.waits_for_time();
}

// Sleeps until there is a miss or an arrival, or until pending misses must be looked at again.
void fault_thread::sleep() {
  const bool waiting = !pending_.empty() || !fetcher_.idle();
  const int arrivals = arrivals_descriptor();
  std::array<pollfd, 3> sources{
      {{faults_.descriptor(), POLLIN, 0}, {stop_descriptor_, POLLIN, 0}, {arrivals, POLLIN, 0}}};
  // Misses that wait for the evictor, for a retry, or for a far tier without a descriptor, are looked at again soon.
  // Arrivals wake us, and a short timer would cost a third of a read (thread_misses.cc).
  const bool soon = pending_.wants_another_look() || (waiting && (arrivals < 0 || arrivals_wait_for_time()));
  const std::int64_t idle_ns = stop_descriptor_ >= 0 ? 1'000'000'000 : 100'000'000;
  constexpr std::int64_t for_arrivals_ns = 10'000'000;
  platform::wait_for_events(sources, soon ? 50'000 : waiting ? for_arrivals_ns : idle_ns);
}

}  // namespace far::pager
