// One configuration of `farheap-bench pager`, in a process of its own: one process can hold one inline pager, and a
// cgroup's limit must not count what other configurations leave behind.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "benchmark.h"
#include "common/json.h"
#include "pager/pager.h"
#include "system_file.h"
#include "workload.h"

namespace far::bench {

namespace {

// The memory of a configuration.
struct working_set {
  std::unique_ptr<far::pager::pager> pager;  // only in Farheap's configurations
  std::byte* base = nullptr;
  bool device = false;  // a mapped block device
};

result<working_set> open_far_heap(const evaluation::json& assignment, std::uint64_t bytes) {
  far::pager::options chosen;
  chosen.budget_bytes = assignment.at("local_bytes").get<std::uint64_t>();
  chosen.far_uri = assignment.at("far_uri").get<std::string>();
  const auto mode = far::pager::parse_fault_mode(assignment.at("fault_mode").get<std::string>());
  if (!mode) return mode.error();
  chosen.mode = mode.value().value();
  const std::string where = assignment.at("evicts").get<std::string>();
  if (where == "background") chosen.where = far::pager::options::eviction::background;
  if (where == "misses") chosen.where = far::pager::options::eviction::at_miss;
  auto created = far::pager::pager::create(chosen);
  if (!created) return created.error();
  working_set opened;
  opened.pager = std::move(created).value();
  auto mapped = opened.pager->map(bytes, PROT_READ | PROT_WRITE, page_bytes);
  if (!mapped) return mapped.error();
  opened.base = mapped.value();
  return opened;
}

result<working_set> open_mapping(const evaluation::json& assignment, std::uint64_t bytes) {
  const std::string device = assignment.at("device").get<std::string>();
  int descriptor = -1;
  if (!device.empty()) {
    descriptor = open(device.c_str(), O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return error{fmt::format("cannot open {}: {}", device, strerror(errno)), errno};
  }
  const int flags = device.empty() ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  const int failure = errno;
  if (descriptor >= 0) close(descriptor);
  if (mapped == MAP_FAILED) return error{fmt::format("cannot map the working set: {}", strerror(failure)), failure};
  working_set opened;
  opened.base = static_cast<std::byte*>(mapped);
  opened.device = !device.empty();
  return opened;
}

// The best advice that a mapped file can get for the workload.
void advise(const working_set& memory, std::uint64_t bytes, pattern walked) {
  if (!memory.device) return;
  madvise(memory.base, bytes, is_sequential(walked) ? MADV_SEQUENTIAL : MADV_RANDOM);
}

evaluation::json to_json(pattern walked, unsigned threads, const pass_result& pass) {
  const auto accesses = static_cast<double>(pass.accesses);
  const auto elapsed_ns = static_cast<double>(pass.elapsed_ns);
  evaluation::json assignment = {
      {"workload", std::string(name_of(walked))},
      {"threads", threads},
      {"metrics",
       {{"p50_ns", pass.every.p50_ns},
        {"p99_ns", pass.every.p99_ns},
        {"mean_ns", pass.every.mean_ns},
        {"max_ns", pass.every.max_ns},
        {"miss_p50_ns", pass.missed.p50_ns},
        {"miss_p99_ns", pass.missed.p99_ns},
        {"cpu_ns_per_access", static_cast<double>(pass.cpu_ns) / accesses},
        {"kernel_thread_cpu_ns_per_access", static_cast<double>(pass.kernel_cpu_ns) / accesses},
        {"major_faults_per_access", static_cast<double>(pass.major_faults) / accesses},
        {"accesses_per_s", accesses / elapsed_ns * 1e9}}}};
  // The other patterns read one cache line of a page: bytes would promise too much.
  if (is_sequential(walked)) assignment["metrics"]["bytes_per_s"] = accesses * page_bytes / elapsed_ns * 1e9;
  return assignment;
}

evaluation::json measure(working_set& memory, const evaluation::json& assignment, std::uint64_t bytes) {
  const pass_size size{assignment.at("sequential_accesses").get<std::size_t>(),
                       assignment.at("stride_accesses").get<std::size_t>(),
                       assignment.at("random_accesses").get<std::size_t>()};
  patterned_memory patterned(memory.base, bytes / page_bytes, size);
  patterned.fill();
  evaluation::json passes = evaluation::json::array();
  for (const unsigned threads : {1u, 2u}) {
    for (const pattern walked : all_patterns) {
      advise(memory, bytes, walked);
      const engine::statistics before = memory.pager ? memory.pager->snapshot() : engine::statistics{};
      evaluation::json pass = to_json(walked, threads, patterned.walk(walked, threads));
      if (memory.pager) {
        const engine::statistics after = memory.pager->snapshot();
        const auto accesses = static_cast<double>(size.accesses(walked) / threads * threads);
        const auto a_page = [&](std::uint64_t now, std::uint64_t then) {
          return static_cast<double>(now - then) / accesses;
        };
        pass["metrics"]["misses_per_access"] = a_page(after.misses, before.misses);
        pass["metrics"]["fetched_pages_per_access"] = a_page(after.fetched_pages, before.fetched_pages);
        pass["metrics"]["written_pages_per_access"] = a_page(after.written_pages, before.written_pages);
        pass["metrics"]["direct_reclaims_per_access"] = a_page(after.direct_reclaims, before.direct_reclaims);
        pass["metrics"]["peak_local_bytes"] = static_cast<double>(after.peak_local_bytes);
      }
      passes.push_back(std::move(pass));
    }
  }
  return passes;
}

int fail(const std::string& message) {
  fmt::print(stderr, "{}\n", message);
  return 1;
}

}  // namespace

int pager_child(const std::string& specification) {
  const evaluation::json assignment = evaluation::json::parse(specification);
  if (assignment.is_null()) return fail("pager-child is started by farheap-bench itself");
  const std::string members_file = assignment.at("cgroup_members_file").get<std::string>();
  if (!members_file.empty()) {
    const result<void> joined = write_system_file(members_file, std::to_string(getpid()));
    if (!joined) return fail(joined.error().message);
  }
  const auto bytes = assignment.at("working_set_bytes").get<std::uint64_t>();
  auto memory = assignment.at("far_uri").get<std::string>().empty() ? open_mapping(assignment, bytes)
                                                                    : open_far_heap(assignment, bytes);
  if (!memory) return fail(memory.error().message);
  fmt::print("{}\n", measure(memory.value(), assignment, bytes).dump());
  return 0;
}

}  // namespace far::bench
