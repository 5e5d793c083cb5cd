#include "answers_of_a_core.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/number_types.h"
#include "base/page_reduction.h"
#include "base/prefetch.h"
#include "base/units.h"
#include "clocks.h"

namespace far::bench {

namespace {

// Several times the caches.
constexpr std::size_t numbers_bytes = 256 * mib;
constexpr const char* workload = "summaries by a core";
constexpr const char* bandwidth_row = "bandwidth: all bytes are read";
constexpr const char* metric = "bytes_per_s";
constexpr const char* with_proof = ", and the hash that proves it";

std::vector<std::byte> make_numbers() {
  std::vector<std::byte> numbers(numbers_bytes);
  std::uint64_t state = 1;
  for (std::size_t at = 0; at < numbers.size(); at += sizeof(double)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double number = static_cast<double>(state >> 40) / 16;
    std::memcpy(&numbers[at], &number, sizeof number);
  }
  return numbers;
}

// A summary of nothing but loads: as fast as memory is.
std::uint64_t read_all(std::span<const std::byte> bytes) {
  using some_words [[gnu::vector_size(32)]] = std::uint64_t;
  constexpr std::size_t width = 4;
  std::array<some_words, width> mixed{};
  for (std::size_t at = 0; at + sizeof mixed <= bytes.size(); at += sizeof mixed) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < width; ++i) {
      some_words some;
      std::memcpy(&some, bytes.data() + at + i * sizeof some, sizeof some);
      mixed[i] ^= some;
    }
  }
  const some_words all = mixed[0] ^ mixed[1] ^ mixed[2] ^ mixed[3];
  return all[0] ^ all[1] ^ all[2] ^ all[3];
}

void measure(const std::string& name, const std::function<std::uint64_t()>& pass, report& figures) {
  volatile std::uint64_t result = 0;  // or the compiler would leave the pass out
  const std::uint64_t start = thread_cpu_ns();
  result = pass();
  static_cast<void>(result);
  const auto elapsed_ns = static_cast<double>(thread_cpu_ns() - start);
  figures.add({workload, name, 1}, metric, static_cast<double>(numbers_bytes) * 1e9 / elapsed_ns);
}

template <typename T>
void measure_type(const std::string& name, std::span<const std::byte> numbers, report& figures) {
  const reduction all_of{detail::number_type_of<T>(), detail::bits_of(std::numeric_limits<T>::lowest()),
                         detail::bits_of(std::numeric_limits<T>::max())};
  const auto summarize = [&] {
    std::uint64_t counted = 0;
    for (std::size_t at = 0; at < numbers.size(); at += page_bytes) {
      counted += reduce(all_of, numbers.subspan(at, page_bytes)).count;
    }
    return counted;
  };
  measure(name, summarize, figures);
  // As a server does it.
  const page_hasher hash(std::uint64_t{7});
  const auto answer_all = [&] {
    std::uint64_t mixed = 0;
    for (std::size_t at = 0; at < numbers.size(); at += page_bytes) {
      if (at + page_bytes < numbers.size()) prefetch_page(&numbers[at + page_bytes]);
      mixed ^= reduce_page({all_of, &hash}, &numbers[at], numbers.subspan(at, page_bytes)).check;
    }
    return mixed;
  };
  measure(name + with_proof, answer_all, figures);
}

// Of which there are none, so that all bytes are looked at.
void measure_search(std::span<const std::byte> bytes, report& figures) {
  reduction how{detail::number_type::int8, 0, 0, reduction_kind::matches, 8};
  std::memcpy(&how.lowest, "timeout=", sizeof how.lowest);
  const page_hasher hash(std::uint64_t{7});
  std::vector<std::byte> found(answer_bytes(how));
  const auto search = [&] {
    std::uint64_t mixed = 0;
    for (std::size_t at = 0; at < bytes.size(); at += page_bytes) {
      if (at + page_bytes < bytes.size()) prefetch_page(&bytes[at + page_bytes]);
      answer({how, &hash}, &bytes[at], bytes.subspan(at, page_bytes), found.data());
      mixed ^= static_cast<std::uint64_t>(found.back());
    }
    return mixed;
  };
  measure(std::string("a text of 8 letters") + with_proof, search, figures);
}

}  // namespace

void measure_answers_of_a_core(report& figures) {
  static const std::vector<std::byte> numbers = make_numbers();
  measure(bandwidth_row, [&] { return read_all(numbers); }, figures);
  measure_type<double>("float64", numbers, figures);
  measure_type<float>("float32", numbers, figures);
  measure_type<std::int64_t>("int64", numbers, figures);
  measure_type<std::int32_t>("int32", numbers, figures);
  measure_type<std::int16_t>("int16", numbers, figures);
  measure_type<std::uint8_t>("uint8", numbers, figures);
  measure_search(numbers, figures);
}

void aim_answers_of_a_core(report& figures) {
  const double bandwidth = figures.median({workload, bandwidth_row, 1}, metric);
  if (bandwidth == 0) return;
  for (const char* const type : {"float64", "float32", "int64", "int32", "int16", "uint8"}) {
    figures.aim(std::string("summary of ") + type + " by a core: speed over the bandwidth of its memory",
                figures.median({workload, type, 1}, metric) / bandwidth, "x", 0.8, true);
  }
}

}  // namespace far::bench
