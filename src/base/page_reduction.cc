#include "base/page_reduction.h"

#include <algorithm>
#include <type_traits>

#include "base/number_types.h"
#include "base/page_reduction_lanes.h"

namespace far {
namespace {

using detail::bits_of;
using detail::number_of;
using detail::number_type;

__int128 whole(const wide_sum& sum) {
  return static_cast<__int128>(sum.upper) * (__int128{1} << 32) + static_cast<__int128>(sum.lower);
}
__int128 whole(std::int64_t sum) {
  return sum;
}

void store_sum(__int128 sum, reduced_numbers& to) {
  to.sum = static_cast<std::uint64_t>(sum);
  to.upper_sum = static_cast<std::uint64_t>(static_cast<unsigned __int128>(sum) >> 64);
}
__int128 sum_of(const reduced_numbers& from) {
  return static_cast<__int128>(static_cast<unsigned __int128>(from.upper_sum) << 64 | from.sum);
}

template <typename T>
reduced_numbers reduce_all(const reduction& how, std::span<const std::byte> bytes, bool by_avx2) {
  const T* const numbers = reinterpret_cast<const T*>(bytes.data());
  const std::size_t size = bytes.size() / sizeof(T);
  lanes_of_summary<T> lanes(number_of<T>(how.lowest), number_of<T>(how.highest));
  const std::size_t blocks = size / summary_lanes;
#if defined(__x86_64__)
  if (by_avx2) {
    lanes.take_blocks_by_avx2(numbers, blocks);
  } else {
    lanes.take_blocks(numbers, blocks);
  }
#else
  static_cast<void>(by_avx2);
  lanes.take_blocks(numbers, blocks);
#endif
  for (std::size_t lane = 0, done = blocks * summary_lanes; done < size; ++done, ++lane)
    lanes.take(lane, numbers[done]);

  reduced_numbers found;
  for (const std::uint32_t one : lanes.count) found.count += one;
  if constexpr (std::is_floating_point_v<T>) {
    double total = 0;
    for (const double one : lanes.sum) total += one;
    found.sum = bits_of(total);
  } else {
    __int128 total = 0;
    for (const auto& one : lanes.sum) total += whole(one);
    store_sum(total, found);
  }
  found.least = bits_of(*std::min_element(lanes.least.begin(), lanes.least.end()));
  found.greatest = bits_of(*std::max_element(lanes.greatest.begin(), lanes.greatest.end()));
  return found;
}

}  // namespace

std::size_t number_bytes(number_type type) {
  return with_number_type(type, [](auto number) { return sizeof number; });
}

reduced_numbers reduce(const reduction& how, std::span<const std::byte> numbers) {
  static const bool by_avx2 = has_avx2();
  return with_number_type(how.type, [&](auto number) { return reduce_all<decltype(number)>(how, numbers, by_avx2); });
}

reduced_numbers reduce_without_vectors(const reduction& how, std::span<const std::byte> numbers) {
  return with_number_type(how.type, [&](auto number) { return reduce_all<decltype(number)>(how, numbers, false); });
}

void add(const reduction& how, const reduced_numbers& found, reduced_numbers& to) {
  if (found.count == 0) return;
  if (to.count == 0) {
    to = found;
    return;
  }
  to.count += found.count;
  with_number_type(how.type, [&](auto number) {
    using T = decltype(number);
    if constexpr (std::is_floating_point_v<T>) {
      to.sum = bits_of(number_of<double>(to.sum) + number_of<double>(found.sum));
    } else {
      store_sum(sum_of(to) + sum_of(found), to);
    }
    if (number_of<T>(found.least) < number_of<T>(to.least)) to.least = found.least;
    if (number_of<T>(found.greatest) > number_of<T>(to.greatest)) to.greatest = found.greatest;
  });
}

}  // namespace far
