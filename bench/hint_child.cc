// Fetching pages with hints and without, for `farheap-bench eden`: fibers of one worker visit pages, each of them once
// or again and again, and say so before or not.
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "clocks.h"
#include "far/hint.h"
#include "fiber/scheduler.h"
#include "heap/fiber_misses.h"
#include "heap_bench.h"
#include "pager/hints.h"
#include "pager/pager.h"

namespace far::bench {
namespace {

// What a run is told.
struct visit_plan {
  std::uint64_t bytes = 0;
  std::uint64_t local_bytes = 0;
  unsigned fibers = 1;
  bool hinted = false;
  bool writes = false;
  bool scattered = false;
  int read_ahead = 0;
  std::size_t visits = 0;
};

visit_plan read_plan(const nlohmann::json& told) {
  visit_plan read;
  read.bytes = told.at("bytes").get<std::uint64_t>();
  read.local_bytes = told.at("local_bytes").get<std::uint64_t>();
  read.fibers = told.at("fibers").get<unsigned>();
  read.hinted = told.at("hinted").get<bool>();
  read.writes = told.at("writes").get<bool>();
  read.scattered = told.at("scattered").get<bool>();
  read.read_ahead = told.at("read_ahead").get<int>();
  read.visits = told.at("visits").get<std::size_t>();
  return read;
}

class visitors {
 public:
  visitors(fiber::scheduler& workers, std::byte* start, const visit_plan& plan)
      : workers_(workers), start_(start), plan_(plan), order_(plan.bytes / page_bytes) {
    std::iota(order_.begin(), order_.end(), 0u);
    random_numbers random(11);
    for (std::size_t i = order_.size() - 1; plan.scattered && i > 0; --i) {
      std::swap(order_[i], order_[random.below(i + 1)]);
    }
  }

  void fill() {
    on_fibers(1, [this](unsigned) {
      for (std::size_t page = 0; page < order_.size(); ++page) number(page) = page;
    });
  }

  // Each fiber visits a stretch of the order of its own. Returns how many pages had other content than they should.
  std::size_t visit(std::size_t visits) {
    std::atomic<std::size_t> wrong{0};
    const std::size_t stretch = order_.size() / plan_.fibers;
    on_fibers(plan_.fibers, [&](unsigned fiber) {
      std::size_t seen = 0;
      for (std::size_t i = 0; i < visits / plan_.fibers; ++i) {
        const std::size_t page = order_[fiber * stretch + (walked_ + i) % stretch];
        if (plan_.hinted) far_hint(&number(page), .mutate = plan_.writes, .read_ahead = plan_.read_ahead);
        seen += number(page) != page ? 1 : 0;
        if (plan_.writes) number(page) = page;
      }
      wrong += seen;
    });
    walked_ += visits / plan_.fibers;
    return wrong;
  }

 private:
  std::uint64_t& number(std::size_t page) { return *reinterpret_cast<std::uint64_t*>(start_ + page * page_bytes); }

  template <typename Body>
  void on_fibers(unsigned count, const Body& body) {
    std::vector<fiber::handle> all;
    for (unsigned i = 0; i < count; ++i) all.push_back(workers_.spawn([&body, i] { body(i); }));
  }

  fiber::scheduler& workers_;
  std::byte* start_;
  visit_plan plan_;
  std::vector<std::uint32_t> order_;
  std::size_t walked_ = 0;
};

}  // namespace

result<nlohmann::json> hints_child(const nlohmann::json& told) {
  const visit_plan plan = read_plan(told);
  fiber::scheduler_options one_worker;
  one_worker.workers = 1;
  fiber::scheduler workers(one_worker);
  heap::fiber_misses misses(workers);
  pager::options chosen;
  chosen.budget_bytes = plan.local_bytes;
  chosen.mode = pager::fault_mode::in_line;
  chosen.far_uri = told.at("far_uri").get<std::string>();
  chosen.fibers = &misses;
  result<std::unique_ptr<pager::pager>> created = pager::pager::create(chosen);
  if (!created) return created.error();
  const std::unique_ptr<pager::pager> far = std::move(created).value();
  misses.serve(*far);
  pager::serve_hints(*far);
  const result<std::byte*> mapped = far->map(plan.bytes, PROT_READ | PROT_WRITE, page_bytes);
  if (!mapped) return mapped.error();
  visitors all(workers, mapped.value(), plan);
  all.fill();
  far->evict(mapped.value(), plan.bytes);
  // With eviction, the first visits find out which pages are only read from now on.
  if (plan.local_bytes < plan.bytes) static_cast<void>(all.visit(plan.visits / 2));
  const engine::statistics before = far->snapshot();
  const std::uint64_t cpu_before = process_cpu_ns();
  const std::uint64_t start_ns = monotonic_ns();
  const std::size_t wrong = all.visit(plan.visits);
  const auto elapsed_ns = static_cast<double>(monotonic_ns() - start_ns);
  const auto cpu_ns = static_cast<double>(process_cpu_ns() - cpu_before);
  const engine::statistics after = far->snapshot();
  pager::stop_serving_hints(*far);
  misses.stop();
  if (wrong != 0) return error{"a page came back with other bytes", EIO};
  const auto pages = static_cast<double>(after.fetched_pages - before.fetched_pages);
  return nlohmann::json{
      {"fetched_pages_per_s", pages / elapsed_ns * 1e9},
      {"cpu_ns_per_page", cpu_ns / pages},
      {"evicted_pages_per_page", static_cast<double>(after.evicted_pages - before.evicted_pages) / pages},
      {"hinted_share", static_cast<double>(after.hinted_misses - before.hinted_misses) / pages},
      {"elapsed_ns", elapsed_ns}};
}

}  // namespace far::bench
