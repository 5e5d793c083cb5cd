// `farheap-bench device`: a miss over `file:` beside a read of a page from the same device. The two take turns, a few
// of each at a time, so that the load of the machine, and of the device, is the same for both.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "backend/file/store_file.h"
#include "base/check.h"
#include "base/units.h"
#include "benchmark.h"
#include "clocks.h"
#include "pager/pager.h"
#include "samples.h"

namespace far::bench {

namespace {

constexpr const char* device_name = "the device: pread, O_DIRECT";
constexpr const char* miss_name = "file: a miss";
constexpr std::size_t operations_a_turn = 16;

// Different in each page, and not compressible by a device that tries.
std::uint64_t word_of(std::uint64_t page, std::uint64_t position) {
  const std::uint64_t mixed = (page * page_bytes + position + 1) * 0x9e3779b97f4a7c15;
  return (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9;
}

void fill_page(std::byte* bytes, std::uint64_t page) {
  for (std::size_t offset = 0; offset < page_bytes; offset += sizeof(std::uint64_t)) {
    const std::uint64_t word = word_of(page, offset);
    memcpy(bytes + offset, &word, sizeof(word));
  }
}

// A file without a name, where `file:` keeps its bytes, too.
class device_file {
 public:
  [[nodiscard]] static result<device_file> create(std::uint64_t pages) {
    const std::string directory = backend::default_place_of_files().directory;
    const int descriptor = open(directory.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (descriptor < 0) {
      return error{fmt::format("no file with O_DIRECT in '{}': {}; name a directory on a disk by FARHEAP_DIR",
                               directory, strerror(errno)),
                   errno};
    }
    device_file created(descriptor);
    for (std::uint64_t page = 0; page < pages; ++page) {
      fill_page(created.buffer_, page);
      const auto position = static_cast<off_t>(page * page_bytes);
      if (pwrite(descriptor, created.buffer_, page_bytes, position) != static_cast<ssize_t>(page_bytes)) {
        return error{fmt::format("cannot write to a file in '{}': {}", directory, strerror(errno)), errno};
      }
    }
    return created;
  }
  device_file(device_file&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), buffer_(std::exchange(other.buffer_, nullptr)) {}
  ~device_file() {
    if (descriptor_ >= 0) close(descriptor_);
    free(buffer_);
  }

  void read(std::uint64_t page) {
    const ssize_t got = pread(descriptor_, buffer_, page_bytes, static_cast<off_t>(page * page_bytes));
    FAR_CHECK(got == static_cast<ssize_t>(page_bytes), "a page of the device can be read");
    std::uint64_t found = 0;
    memcpy(&found, buffer_, sizeof(found));
    FAR_CHECK(found == word_of(page, 0), "the device has the bytes that were written to it");
  }

 private:
  explicit device_file(int descriptor)
      : descriptor_(descriptor), buffer_(static_cast<std::byte*>(aligned_alloc(page_bytes, page_bytes))) {
    FAR_CHECK(buffer_ != nullptr, "there is memory for a page");
  }

  int descriptor_;
  std::byte* buffer_;
};

struct far_memory {
  std::unique_ptr<pager::pager> pager;
  std::byte* base = nullptr;
};

// A quarter of it is local, and all of it is clean: misses write nothing.
result<far_memory> open_far_memory(pager::fault_mode mode, std::uint64_t pages) {
  pager::options chosen;
  chosen.budget_bytes = pages * page_bytes / 4;
  chosen.far_uri = "file:";
  chosen.mode = mode;
  result<std::unique_ptr<pager::pager>> created = pager::pager::create(chosen);
  if (!created) return created.error();
  far_memory opened{std::move(created).value()};
  const result<std::byte*> mapped = opened.pager->map(pages * page_bytes, PROT_READ | PROT_WRITE, page_bytes);
  if (!mapped) return mapped.error();
  opened.base = mapped.value();
  for (std::uint64_t page = 0; page < pages; ++page) fill_page(opened.base + page * page_bytes, page);
  return opened;
}

// What the operations of one kind took.
struct measured {
  std::vector<std::uint32_t> ticks;
  std::uint64_t cpu_ns = 0;  // of this process, all threads
  std::uint64_t elapsed_ns = 0;

  template <typename Operation>
  void take_turn(Operation operation) {
    const std::uint64_t cpu_before = process_cpu_ns();
    const std::uint64_t before = monotonic_ns();
    for (std::size_t done = 0; done < operations_a_turn; done += operation(ticks) ? 1 : 0) {
    }
    elapsed_ns += monotonic_ns() - before;
    cpu_ns += process_cpu_ns() - cpu_before;
  }

  void record(const row_key& key, const tick_scale& scale, report& figures) {
    const auto count = static_cast<double>(ticks.size());
    const latency_summary latencies = summarise_latencies(ticks, scale.nanoseconds_per_tick, scale.overhead_ticks);
    figures.add(key, "p50_ns", latencies.p50_ns);
    figures.add(key, "p99_ns", latencies.p99_ns);
    figures.add(key, "mean_ns", latencies.mean_ns);
    figures.add(key, "cpu_ns", static_cast<double>(cpu_ns) / count);
    figures.add(key, "busy_share", static_cast<double>(cpu_ns) / static_cast<double>(elapsed_ns));
  }
};

// A hit takes 0.3 us at most, and is not counted.
constexpr double shortest_miss_ns = 1000;

result<void> measure(pager::fault_mode mode, std::uint64_t pages, std::size_t operations, report& figures) {
  const char* const mode_name = mode == pager::fault_mode::thread ? "thread" : "inline";
  result<device_file> device = device_file::create(pages);
  if (!device) return device.error();
  const result<far_memory> memory = open_far_memory(mode, pages);
  if (!memory) return memory.error();
  const tick_scale scale = calibrate_ticks();
  const auto shortest_miss_ticks = static_cast<std::uint32_t>(shortest_miss_ns / scale.nanoseconds_per_tick);
  std::mt19937_64 random(pages);
  measured reads;
  measured misses;
  const engine::statistics before = memory.value().pager->snapshot();
  while (misses.ticks.size() < operations && !stop_requested()) {
    reads.take_turn([&](std::vector<std::uint32_t>& ticks) {
      const std::uint64_t page = random() % pages;
      const std::uint64_t start = ticks_now();
      device.value().read(page);
      ticks.push_back(static_cast<std::uint32_t>(ticks_now() - start));
      return true;
    });
    misses.take_turn([&](std::vector<std::uint32_t>& ticks) {
      const std::uint64_t page = random() % pages;
      const auto* const word = reinterpret_cast<const volatile std::uint64_t*>(memory.value().base + page * page_bytes);
      const std::uint64_t start = ticks_now();
      const std::uint64_t found = *word;
      const auto taken = static_cast<std::uint32_t>(ticks_now() - start);
      FAR_CHECK(found == word_of(page, 0), "a page has the bytes that were written to it");
      if (taken >= shortest_miss_ticks) ticks.push_back(taken);
      return taken >= shortest_miss_ticks;
    });
  }
  const engine::statistics after = memory.value().pager->snapshot();
  reads.record({mode_name, device_name, 1}, scale, figures);
  misses.record({mode_name, miss_name, 1}, scale, figures);
  figures.add({mode_name, miss_name, 1}, "fetched_pages_per_miss",
              static_cast<double>(after.fetched_pages - before.fetched_pages) /
                  static_cast<double>(after.misses - before.misses));
  return {};
}

void record_aims(report& figures) {
  for (const char* const mode : {"inline", "thread"}) {
    const double device_ns = figures.median({mode, device_name, 1}, "p50_ns");
    const double miss_ns = figures.median({mode, miss_name, 1}, "p50_ns");
    if (device_ns == 0 || miss_ns == 0) continue;
    figures.aim(fmt::format("file:, {}: a miss over a read of the device, p50", mode), miss_ns / device_ns, "x", 1.3,
                false);
  }
}

}  // namespace

result<outcome> run_device(const settings& chosen) {
  const std::uint64_t bytes = chosen.working_set_bytes != 0 ? chosen.working_set_bytes : 256 * mib;
  const std::uint64_t pages = round_up(bytes, 2 * mib) / page_bytes;
  const std::size_t operations = chosen.quick ? 1000 : 10'000;
  const unsigned runs = chosen.runs != 0 ? chosen.runs : (chosen.quick ? 1 : 3);
  report figures("device");
  figures.set("runs", runs);
  figures.set("working_set_bytes", static_cast<double>(pages * page_bytes));
  figures.set("operations", static_cast<double>(operations));
  for (unsigned run = 1; run <= runs; ++run) {
    for (const pager::fault_mode mode : {pager::fault_mode::in_line, pager::fault_mode::thread}) {
      fmt::print(stderr, "device: run {} of {}: {}\n", run, runs,
                 mode == pager::fault_mode::thread ? "thread" : "inline");
      const result<void> done = measure(mode, pages, operations, figures);
      if (stop_requested()) return error{"stopped by a signal", EINTR};
      if (!done) return done.error();
    }
  }
  record_aims(figures);
  figures.note(
      fmt::format("reads of random pages, {} of the device and {} misses in turn, with a quarter of the pages local",
                  operations_a_turn, operations_a_turn));
  figures.note("CPU time is that of all threads of the process; busy: as a share of the time that passed meanwhile");
  return outcome{std::move(figures),
                 {{{"p50_ns", "p50 us", 1000, 1},
                   {"mean_ns", "mean us", 1000, 1},
                   {"p99_ns", "p99 us", 1000, 1},
                   {"cpu_ns", "CPU us", 1000, 1},
                   {"busy_share", "busy", 1, 2},
                   {"fetched_pages_per_miss", "pages", 1, 2}},
                  "p50_ns",
                  device_name}};
}

}  // namespace far::bench
