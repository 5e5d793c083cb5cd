#include "workload.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "base/check.h"

namespace far::bench {

namespace {

// A page: a header of one cache line, then words that do not compress, then zeros.
constexpr std::size_t tag_word = 0;         // depends on the page's place
constexpr std::size_t generation_word = 1;  // how often it was written
constexpr std::size_t seal_word = 2;        // of the two above
constexpr std::size_t sum_word = 3;         // of the body
constexpr std::size_t body_start = 8;
constexpr std::size_t zeros_start = 260;
constexpr std::size_t page_words = page_bytes / sizeof(std::uint64_t);

constexpr double miss_threshold_ns = 1000;

// The finaliser of splitmix64: spreads a number over all bits.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

std::uint64_t sum_body(const std::uint64_t* words) {
  std::uint64_t sums[4] = {};
  for (std::size_t i = body_start; i < page_words; i += 4) {
    for (std::size_t lane = 0; lane < 4; ++lane) sums[lane] += words[i + lane];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

std::uint64_t major_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_majflt);
}

std::uint64_t kernel_cpu_ns_or_zero() {
  const result<std::uint64_t> measured = kernel_threads_cpu_ns();
  return measured ? measured.value() : 0;
}

}  // namespace

std::string_view name_of(pattern walked) {
  switch (walked) {
    case pattern::sequential_read: return "sequential_read";
    case pattern::sequential_write: return "sequential_write";
    case pattern::stride_read: return "stride_read";
    case pattern::backward_read: return "backward_read";
    case pattern::random_read: return "random_read";
    case pattern::random_write: return "random_write";
  }
  FAR_CHECK(false, "unknown pattern");
  return {};
}

std::size_t pass_size::accesses(pattern walked) const {
  if (is_random(walked)) return random_accesses;
  return is_sequential(walked) ? sequential_accesses : stride_accesses;
}

patterned_memory::patterned_memory(std::byte* base, std::size_t pages, const pass_size& size)
    : base_(base), pages_(pages), size_(size), scale_(calibrate_ticks()), generations_(pages) {
  std::size_t longest = 0;
  for (const pattern walked : all_patterns) longest = std::max(longest, size.accesses(walked));
  ticks_.resize(longest);
}

void patterned_memory::fill() {
  for (std::size_t page = 0; page < pages_; ++page) {
    std::uint64_t* data = words(page);
    std::uint64_t state = mix(reinterpret_cast<std::uintptr_t>(data));
    for (std::size_t i = body_start; i < page_words; ++i) {
      data[i] = i < zeros_start ? (state = state * 6364136223846793005u + 1442695040888963407u) : 0;
    }
    data[tag_word] = mix(reinterpret_cast<std::uintptr_t>(data));
    data[generation_word] = generations_[page];
    data[seal_word] = mix(data[tag_word] ^ data[generation_word]);
    data[sum_word] = sum_body(data);
  }
}

void patterned_memory::read_page(std::size_t page, bool whole) {
  const std::uint64_t* data = words(page);
  const std::uint64_t tag = mix(reinterpret_cast<std::uintptr_t>(data));
  FAR_CHECK(data[tag_word] == tag, "a page holds the bytes of another place");
  FAR_CHECK(data[generation_word] == generations_[page], "a page has lost its last write");
  FAR_CHECK(data[seal_word] == mix(tag ^ generations_[page]), "a page is torn");
  if (whole) FAR_CHECK(data[sum_word] == sum_body(data), "a page's bytes have changed");
}

void patterned_memory::write_page(std::size_t page, bool whole) {
  // The write comes first, as in a program that overwrites. The old contents are checked afterwards.
  std::uint64_t* data = words(page);
  const std::uint64_t tag = mix(reinterpret_cast<std::uintptr_t>(data));
  const std::uint32_t before = generations_[page]++;
  const std::uint64_t was = __atomic_exchange_n(&data[generation_word], before + 1, __ATOMIC_RELAXED);
  FAR_CHECK(was == before, "a page has lost its last write");
  FAR_CHECK(data[seal_word] == mix(tag ^ before), "a page is torn");
  data[seal_word] = mix(tag ^ (before + 1));
  if (whole) FAR_CHECK(data[sum_word] == sum_body(data), "a page's bytes have changed");
}

void patterned_memory::walk_part(pattern walked, part own, std::uint64_t seed, std::uint32_t* ticks,
                                 std::size_t accesses) {
  const bool writes = walked == pattern::sequential_write || walked == pattern::random_write;
  const bool whole = is_sequential(walked);
  std::uint64_t state = mix(seed);
  // Each pattern begins where no recent pass has been, so that it meets pages that are not resident.
  for (std::size_t i = 0; i < accesses; ++i) {
    std::size_t offset = 0;
    if (is_random(walked)) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      offset = static_cast<std::size_t>((static_cast<unsigned __int128>(mix(state)) * own.pages) >> 64);
    } else if (whole) {
      offset = (sequential_cursor_ + i) % own.pages;
    } else if (walked == pattern::stride_read) {
      offset = (sequential_cursor_ + 3 * i) % own.pages;
    } else {
      offset = (sequential_cursor_ + own.pages / 2 + own.pages - i % own.pages) % own.pages;
    }
    const std::uint64_t start = ticks_now();
    if (writes) {
      write_page(own.first + offset, whole);
    } else {
      read_page(own.first + offset, whole);
    }
    ticks[i] = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(ticks_now() - start, std::numeric_limits<std::uint32_t>::max()));
  }
}

pass_result patterned_memory::walk(pattern walked, unsigned threads) {
  const std::size_t share = size_.accesses(walked) / threads;
  const std::size_t part_pages = pages_ / threads;
  ticks_.assign(share * threads, 0);
  ++passes_;
  pass_result result;
  const std::uint64_t kernel_before = kernel_cpu_ns_or_zero();
  const std::uint64_t faults_before = major_faults();
  const std::uint64_t cpu_before = process_cpu_ns();
  const std::uint64_t start = monotonic_ns();
  const auto walk_one = [&](unsigned number) {
    walk_part(walked, {number * part_pages, part_pages}, passes_ * 1000 + number, ticks_.data() + number * share,
              share);
  };
  std::vector<std::thread> others;
  for (unsigned number = 1; number < threads; ++number) others.emplace_back(walk_one, number);
  walk_one(0);
  for (std::thread& other : others) other.join();
  result.elapsed_ns = monotonic_ns() - start;
  result.cpu_ns = process_cpu_ns() - cpu_before;
  result.major_faults = major_faults() - faults_before;
  const std::uint64_t kernel_after = kernel_cpu_ns_or_zero();
  result.kernel_cpu_ns = kernel_after > kernel_before ? kernel_after - kernel_before : 0;  // threads may have ended
  result.accesses = share * threads;
  if (is_sequential(walked)) sequential_cursor_ = (sequential_cursor_ + share) % part_pages;

  result.every = summarise_latencies(ticks_, scale_.nanoseconds_per_tick, scale_.overhead_ticks);
  const double threshold_ticks = miss_threshold_ns / scale_.nanoseconds_per_tick + scale_.overhead_ticks;
  std::erase_if(ticks_, [&](std::uint32_t raw) { return raw < threshold_ticks; });
  result.missed = summarise_latencies(ticks_, scale_.nanoseconds_per_tick, scale_.overhead_ticks);
  return result;
}

}  // namespace far::bench
