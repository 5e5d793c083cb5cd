#include "load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace web {
namespace {

using clock = std::chrono::steady_clock;

struct request {
  std::uint64_t number;
  clock::time_point due;
};

// Between the thread that makes requests and those that answer. Its length is what the load is ahead of them.
class request_queue {
 public:
  request_queue(std::unique_ptr<gate> passes, std::size_t workers) : passes_(std::move(passes)), workers_(workers) {}

  void push(request arrived) {
    {
      const std::lock_guard guard(lock_);
      waiting_.push_back(arrived);
    }
    passes_->let_pass(1);
  }

  // A pass for each worker, to find that there is nothing.
  void close() { passes_->let_pass(static_cast<unsigned>(workers_)); }

  // Nothing when it is closed and empty.
  std::optional<request> pop() {
    passes_->wait();
    const std::lock_guard guard(lock_);
    if (waiting_.empty()) return std::nullopt;
    const request first = waiting_.front();
    waiting_.pop_front();
    return first;
  }

 private:
  std::unique_ptr<gate> passes_;
  std::size_t workers_;
  std::mutex lock_;  // nobody waits for anything else while holding it
  std::deque<request> waiting_;
};

// Requests in their order, each due when it is taken.
class closed_loop {
 public:
  explicit closed_loop(std::uint64_t requests) : requests_(requests) {}

  std::optional<request> pop() {
    const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    if (number >= requests_) return std::nullopt;
    return request{number, clock::now()};
  }

 private:
  std::uint64_t requests_;
  std::atomic<std::uint64_t> next_{0};
};

struct worker {
  std::uint64_t checksum = 0;
  std::vector<std::uint64_t> latencies_ns;
  std::exception_ptr failure;
};

template <typename Source>
void work(const site& served, std::uint64_t seed, Source& source, worker& mine) try {
  encoder with;
  while (const std::optional<request> next = source.pop()) {
    // A sum does not depend on the order.
    mine.checksum += served.answer(next->number, seed, with);
    const auto latency = clock::now() - next->due;
    mine.latencies_ns.push_back(
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(latency).count()));
  }
} catch (...) {
  mine.failure = std::current_exception();
}

// Sleeps until each is due. Being late itself does not shift those that follow.
void make_requests(request_queue& queue, const load_options& options) {
  apps::random_words random(options.seed ^ 0x706f6973736f6eu);
  const clock::time_point start = clock::now();
  double at = 0;
  for (std::uint64_t number = 0;; ++number) {
    at -= std::log(1 - random.next_unit()) / options.rate;
    if (at >= options.seconds) break;
    const clock::time_point due =
        start + std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(at));
    std::this_thread::sleep_until(due);
    queue.push({number, due});
  }
  queue.close();
}

template <typename Source, typename Load>
measurement measure(const site& served, const load_options& options, Source& source, Load load) {
  const clock::time_point start = clock::now();
  std::vector<worker> workers(served.workers_on(options.threads));
  served.run_workers(
      workers.size(), [&](std::size_t number) { work(served, options.seed, source, workers[number]); }, load);
  measurement result;
  result.seconds = std::chrono::duration<double>(clock::now() - start).count();
  for (worker& worker : workers) {
    if (worker.failure) std::rethrow_exception(worker.failure);
    result.checksum += worker.checksum;
    result.latencies_ns.insert(result.latencies_ns.end(), worker.latencies_ns.begin(), worker.latencies_ns.end());
  }
  std::sort(result.latencies_ns.begin(), result.latencies_ns.end());
  result.requests = result.latencies_ns.size();
  return result;
}

}  // namespace

measurement run(const site& served, const load_options& options) {
  if (options.closed_loop > 0) {
    closed_loop source(options.closed_loop);
    return measure(served, options, source, [] {});
  }
  request_queue source(served.make_gate(), served.workers_on(options.threads));
  return measure(served, options, source, [&] { make_requests(source, options); });
}

}  // namespace web
