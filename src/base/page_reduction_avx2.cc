// The inner loop of a summary for AVX2. Its functions alone are compiled for that, not the whole file: an inline
// function of the standard library, compiled for AVX2, could become the copy that the linker keeps for the whole
// program.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/page_reduction_lanes.h"

namespace far {
namespace {

#define FAR_FOR_AVX2 [[gnu::target("avx2"), gnu::always_inline]] inline

constexpr std::size_t register_bytes = 32;

template <typename T>
struct vector_of {
  using type [[gnu::vector_size(register_bytes)]] = T;
};
template <typename T>
using vec = typename vector_of<T>::type;
template <typename T>
constexpr std::size_t lanes_of = register_bytes / sizeof(T);

// What a comparison says of numbers so large, as both compilers understand it.
template <typename T>
using mask_of = vec<std::conditional_t<
    sizeof(T) == 8, std::int64_t,
    std::conditional_t<sizeof(T) == 4, std::int32_t, std::conditional_t<sizeof(T) == 2, std::int16_t, std::int8_t>>>>;

using int64_4 = vec<std::int64_t>;
using uint64_4 = vec<std::uint64_t>;

template <typename T>
FAR_FOR_AVX2 void load(const T* from, vec<T>& to) {
  std::memcpy(&to, from, sizeof to);
}

// The least and the greatest number of each lane of a register.
template <typename T>
struct extremes {
  using numbers = vec<T>;

  numbers lowest;
  numbers highest;
  numbers least;
  numbers greatest;

  FAR_FOR_AVX2 explicit extremes(const lanes_of_summary<T>& of)
      : lowest(of.lowest - numbers{}), highest(of.highest - numbers{}), least(highest), greatest(lowest) {}

  // Says which numbers count: all bits of these are set. Where one does not, a bound is taken in its place, which
  // changes neither the least nor the greatest.
  FAR_FOR_AVX2 void take(const numbers& taken, mask_of<T>& counts) {
    const auto is_within = (taken >= lowest) & (taken <= highest);
    counts = reinterpret_cast<mask_of<T>>(is_within);
    if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
      // There is no instruction for these that finds the lesser one.
      least = ((taken < least) & is_within) ? taken : least;
      greatest = ((taken > greatest) & is_within) ? taken : greatest;
      return;
    }
    const numbers low = is_within ? taken : highest;
    least = low < least ? low : least;
    const numbers high = is_within ? taken : lowest;
    greatest = high > greatest ? high : greatest;
  }
  // Of integers, whose lanes may be mixed.
  FAR_FOR_AVX2 void store(lanes_of_summary<T>& to) const {
    for (std::size_t i = 0; i < lanes_of<T>; ++i) {
      T& low = to.least[i % summary_lanes];
      T& high = to.greatest[i % summary_lanes];
      low = least[i] < low ? least[i] : low;
      high = greatest[i] > high ? greatest[i] : high;
    }
  }
};

template <typename V>
FAR_FOR_AVX2 auto total_of(const V& sums) {
  auto total = sums[0];
  for (std::size_t i = 1; i < sizeof(V) / sizeof(total); ++i) total += sums[i];
  return total;
}

// Numbers with a fraction stay in their lanes, because the order of additions matters.

[[gnu::target("avx2")]] void take_all(const double* from, std::size_t blocks, lanes_of_summary<double>& to) {
  extremes<double> found[2] = {extremes<double>(to), extremes<double>(to)};
  int64_4 count[2] = {};
  vec<double> sums[2] = {};
  for (std::size_t block = 0; block < blocks; ++block, from += summary_lanes) {
#pragma GCC unroll 2
    for (std::size_t half = 0; half < 2; ++half) {
      vec<double> taken;
      load(from + 4 * half, taken);
      int64_4 counts;
      found[half].take(taken, counts);
      count[half] -= counts;
      sums[half] += reinterpret_cast<vec<double>>(reinterpret_cast<int64_4>(taken) & counts);
    }
  }
  for (std::size_t i = 0; i < summary_lanes; ++i) {
    to.count[i] = static_cast<std::uint32_t>(count[i / 4][i % 4]);
    to.sum[i] = sums[i / 4][i % 4];
    to.least[i] = found[i / 4].least[i % 4];
    to.greatest[i] = found[i / 4].greatest[i % 4];
  }
}

[[gnu::target("avx2")]] void take_all(const float* from, std::size_t blocks, lanes_of_summary<float>& to) {
  extremes<float> found(to);
  vec<std::int32_t> count{};
  vec<double> sums[2] = {};
  for (std::size_t block = 0; block < blocks; ++block, from += summary_lanes) {
    vec<float> taken;
    load(from, taken);
    vec<std::int32_t> counts;
    found.take(taken, counts);
    count -= counts;
    const __m256 counted = _mm256_and_ps(taken, reinterpret_cast<__m256>(counts));
    sums[0] += _mm256_cvtps_pd(_mm256_castps256_ps128(counted));
    sums[1] += _mm256_cvtps_pd(_mm256_extractf128_ps(counted, 1));
  }
  for (std::size_t i = 0; i < summary_lanes; ++i) {
    to.count[i] = static_cast<std::uint32_t>(count[i]);
    to.sum[i] = sums[i / 4][i % 4];
    to.least[i] = found.least[i];
    to.greatest[i] = found.greatest[i];
  }
}

// Integers are added exactly, in any order. Signed ones are taken as unsigned ones from the lowest on, where an
// instruction is missing.
template <typename T>
constexpr std::uint64_t excess_of = std::is_signed_v<T> ? std::uint64_t{1} << (8 * sizeof(T) - 1) : 0;

// 64 bits, in halves. Two registers, because each least number waits for the one before.
template <typename T>
  requires(sizeof(T) == 8)
[[gnu::target("avx2")]] void take_all(const T* from, std::size_t blocks, lanes_of_summary<T>& to) {
  extremes<T> found[2] = {extremes<T>(to), extremes<T>(to)};
  int64_4 count{};
  uint64_4 upper{};
  uint64_4 lower{};
  for (std::size_t block = 0; block < blocks; ++block, from += summary_lanes) {
#pragma GCC unroll 2
    for (std::size_t half = 0; half < 2; ++half) {
      vec<T> taken;
      load(from + half * lanes_of<T>, taken);
      int64_4 counts;
      found[half].take(taken, counts);
      count -= counts;
      const uint64_4 bits = (reinterpret_cast<uint64_4>(taken) ^ excess_of<T>)&reinterpret_cast<uint64_4>(counts);
      upper += bits >> 32;
      lower += bits & 0xffffffff;
    }
  }
  for (const extremes<T>& half : found) half.store(to);
  const auto counted = static_cast<std::uint64_t>(total_of(count));
  to.count[0] = static_cast<std::uint32_t>(counted);
  to.sum[0] = {static_cast<std::int64_t>(total_of(upper) - counted * (excess_of<T> >> 32)), total_of(lower)};
}

// 32 bits: each half of 64 is added to a sum of 64.
template <typename T>
  requires(sizeof(T) == 4 && std::is_integral_v<T>)
[[gnu::target("avx2")]] void take_all(const T* from, std::size_t blocks, lanes_of_summary<T>& to) {
  extremes<T> found(to);
  vec<std::int32_t> count{};
  uint64_4 sums{};
  for (std::size_t block = 0; block < blocks; ++block, from += lanes_of<T>) {
    vec<T> taken;
    load(from, taken);
    vec<std::int32_t> counts;
    found.take(taken, counts);
    count -= counts;
    const auto flipped = reinterpret_cast<vec<std::uint32_t>>(taken) ^ static_cast<std::uint32_t>(excess_of<T>);
    const auto bits = reinterpret_cast<uint64_4>(flipped & reinterpret_cast<vec<std::uint32_t>>(counts));
    sums += (bits & 0xffffffff) + (bits >> 32);
  }
  found.store(to);
  const auto counted = static_cast<std::uint32_t>(total_of(count));
  to.count[0] = counted;
  to.sum[0] = static_cast<std::int64_t>(total_of(sums) - counted * excess_of<T>);
}

// 16 bits: an instruction adds products of neighbours, as signed numbers of 32 bits. Sums of these are moved to ones of
// 64 bits before they could overflow.
template <typename T>
  requires(sizeof(T) == 2)
[[gnu::target("avx2")]] void take_all(const T* from, std::size_t blocks, lanes_of_summary<T>& to) {
  constexpr std::size_t most_parts = 1 << 14;
  constexpr std::uint16_t flip = std::is_signed_v<T> ? 0 : 0x8000;
  extremes<T> found(to);
  std::int64_t sum = 0;
  std::uint32_t counted = 0;
  for (std::size_t left = blocks / 2; left > 0;) {
    const std::size_t parts = std::min(left, most_parts);
    vec<std::int32_t> sums{};
    vec<std::int32_t> count{};
    for (std::size_t part = 0; part < parts; ++part, from += lanes_of<T>) {
      vec<T> taken;
      load(from, taken);
      vec<std::int16_t> counts;
      found.take(taken, counts);
      const auto bits =
          (reinterpret_cast<vec<std::uint16_t>>(taken) ^ flip) & reinterpret_cast<vec<std::uint16_t>>(counts);
      const auto mask = reinterpret_cast<__m256i>(counts);  // -1 where a number counts
      sums -= reinterpret_cast<vec<std::int32_t>>(_mm256_madd_epi16(reinterpret_cast<__m256i>(bits), mask));
      count += reinterpret_cast<vec<std::int32_t>>(_mm256_madd_epi16(mask, mask));
    }
    for (std::size_t i = 0; i < lanes_of<std::int32_t>; ++i) {
      sum += sums[i];
      counted += static_cast<std::uint32_t>(count[i]);
    }
    left -= parts;
  }
  found.store(to);
  to.count[0] = counted;
  to.sum[0] = sum + std::int64_t{flip} * counted;
  if (blocks % 2 != 0) to.take_blocks(from, 1);
}

// 8 bits: an instruction adds eight unsigned ones. What counts is counted in bytes, until they could overflow.
template <typename T>
  requires(sizeof(T) == 1)
[[gnu::target("avx2")]] void take_all(const T* from, std::size_t blocks, lanes_of_summary<T>& to) {
  constexpr std::size_t most_parts = 255;
  const __m256i zero = _mm256_setzero_si256();
  extremes<T> found(to);
  int64_4 sums{};
  int64_4 count{};
  for (std::size_t left = blocks / 4; left > 0;) {
    const std::size_t parts = std::min(left, most_parts);
    vec<std::uint8_t> few{};
    for (std::size_t part = 0; part < parts; ++part, from += lanes_of<T>) {
      vec<T> taken;
      load(from, taken);
      vec<std::int8_t> counts;
      found.take(taken, counts);
      few -= reinterpret_cast<vec<std::uint8_t>>(counts);
      const auto flipped = reinterpret_cast<vec<std::uint8_t>>(taken) ^ static_cast<std::uint8_t>(excess_of<T>);
      const auto bits = flipped & reinterpret_cast<vec<std::uint8_t>>(counts);
      sums += reinterpret_cast<int64_4>(_mm256_sad_epu8(reinterpret_cast<__m256i>(bits), zero));
    }
    count += reinterpret_cast<int64_4>(_mm256_sad_epu8(reinterpret_cast<__m256i>(few), zero));
    left -= parts;
  }
  found.store(to);
  const std::int64_t counted = total_of(count);
  to.count[0] = static_cast<std::uint32_t>(counted);
  to.sum[0] = total_of(sums) - counted * static_cast<std::int64_t>(excess_of<T>);
  to.take_blocks(from, blocks % 4);
}

}  // namespace

template <typename T>
void lanes_of_summary<T>::take_blocks_by_avx2(const T* numbers, std::size_t blocks) {
  take_all(numbers, blocks, *this);
}

template struct lanes_of_summary<std::int8_t>;
template struct lanes_of_summary<std::int16_t>;
template struct lanes_of_summary<std::int32_t>;
template struct lanes_of_summary<std::int64_t>;
template struct lanes_of_summary<std::uint8_t>;
template struct lanes_of_summary<std::uint16_t>;
template struct lanes_of_summary<std::uint32_t>;
template struct lanes_of_summary<std::uint64_t>;
template struct lanes_of_summary<float>;
template struct lanes_of_summary<double>;

}  // namespace far
