// Fetching pages with hints and without, for `farheap-bench eden`: fibers of one worker visit pages, each of them once
// or again and again, and say so before or not.
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "clocks.h"
#include "common/json.h"
#include "far/hint.h"
#include "fiber/scheduler.h"
#include "heap/fiber_misses.h"
#include "heap_bench.h"
#include "pager/hints.h"
#include "pager/pager.h"

namespace far::bench {
namespace {

// They find out which pages are only read, and a virtual machine's host puts memory behind those frames that it had
// taken back.
constexpr unsigned warm_up_passes = 2;

// The assignment of a run.
struct visit_plan {
  std::uint64_t bytes = 0;
  std::uint64_t local_bytes = 0;
  unsigned fibers = 1;
  bool hinted = false;
  bool writes = false;
  bool scattered = false;
  int read_ahead = 0;
  std::size_t visits = 0;  // in a pass
  unsigned passes = 1;
};

visit_plan read_plan(const evaluation::json& assignment) {
  visit_plan read;
  read.bytes = assignment.at("bytes").get<std::uint64_t>();
  read.local_bytes = assignment.at("local_bytes").get<std::uint64_t>();
  read.fibers = assignment.at("fibers").get<unsigned>();
  read.hinted = assignment.at("hinted").get<bool>();
  read.writes = assignment.at("writes").get<bool>();
  read.scattered = assignment.at("scattered").get<bool>();
  read.read_ahead = assignment.at("read_ahead").get<int>();
  read.visits = assignment.at("visits").get<std::size_t>();
  read.passes = assignment.at("passes").get<unsigned>();
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

struct pass_cost {
  double elapsed_ns = 0;
  double cpu_ns = 0;
  double fetched = 0;
  double evicted = 0;
  double hinted = 0;
  std::size_t wrong = 0;

  void add(const pass_cost& more) {
    elapsed_ns += more.elapsed_ns;
    cpu_ns += more.cpu_ns;
    fetched += more.fetched;
    evicted += more.evicted;
    hinted += more.hinted;
    wrong += more.wrong;
  }
};

pass_cost measure_pass(visitors& all, const pager::pager& far, const visit_plan& plan) {
  const engine::statistics before = far.snapshot();
  const std::uint64_t cpu_before = process_cpu_ns();
  const std::uint64_t start_ns = monotonic_ns();
  pass_cost cost;
  cost.wrong = all.visit(plan.visits);
  cost.elapsed_ns = static_cast<double>(monotonic_ns() - start_ns);
  cost.cpu_ns = static_cast<double>(process_cpu_ns() - cpu_before);
  const engine::statistics after = far.snapshot();
  cost.fetched = static_cast<double>(after.fetched_pages - before.fetched_pages);
  cost.evicted = static_cast<double>(after.evicted_pages - before.evicted_pages);
  cost.hinted = static_cast<double>(after.hinted_misses - before.hinted_misses);
  return cost;
}

}  // namespace

result<evaluation::json> hints_child(const evaluation::json& assignment) {
  const visit_plan plan = read_plan(assignment);
  fiber::scheduler_options one_worker;
  one_worker.workers = 1;
  fiber::scheduler workers(one_worker);
  heap::fiber_misses misses(workers);
  pager::options chosen;
  chosen.budget_bytes = plan.local_bytes;
  chosen.mode = pager::fault_mode::in_line;
  chosen.far_uri = assignment.at("far_uri").get<std::string>();
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
  pass_cost sum;
  for (unsigned pass = 0; pass < warm_up_passes + plan.passes; ++pass) {
    if (plan.local_bytes > plan.bytes) far->evict(mapped.value(), plan.bytes);
    const pass_cost one = measure_pass(all, *far, plan);
    if (pass >= warm_up_passes) sum.add(one);
  }
  pager::stop_serving_hints(*far);
  misses.stop();
  if (sum.wrong != 0) return error{"a page came back with other bytes", EIO};
  return evaluation::json{{"fetched_pages_per_s", sum.fetched / sum.elapsed_ns * 1e9},
                          {"cpu_ns_per_page", sum.cpu_ns / sum.fetched},
                          {"evicted_pages_per_page", sum.evicted / sum.fetched},
                          {"hinted_share", sum.hinted / sum.fetched},
                          {"elapsed_ns", sum.elapsed_ns}};
}

}  // namespace far::bench
