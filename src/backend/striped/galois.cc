#include "backend/striped/galois.h"

#include <array>
#include <cstring>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace far::backend::galois {
namespace {

constexpr unsigned polynomial = 0x11d;

struct tables {
  std::array<std::uint8_t, 510> power{};  // of 2; twice, so that sums of two logarithms need no remainder
  std::array<std::uint8_t, 256> logarithm{};
};

constexpr tables make_tables() {
  tables made;
  unsigned value = 1;
  for (unsigned i = 0; i < 255; ++i) {
    made.power[i] = made.power[i + 255] = static_cast<std::uint8_t>(value);
    made.logarithm[value] = static_cast<std::uint8_t>(i);
    value <<= 1;
    if (value > 255) value ^= polynomial;
  }
  return made;
}

constexpr tables known = make_tables();

constexpr std::uint8_t product(std::uint8_t a, std::uint8_t b) {
  return a == 0 || b == 0 ? 0 : known.power[known.logarithm[a] + known.logarithm[b]];
}

// The products of a factor with all low and all high halves of a byte.
struct half_products {
  alignas(16) std::array<std::uint8_t, 16> low{};
  alignas(16) std::array<std::uint8_t, 16> high{};
};

constexpr std::array<half_products, 256> make_half_products() {
  std::array<half_products, 256> made{};
  for (unsigned factor = 0; factor < 256; ++factor) {
    for (unsigned half = 0; half < 16; ++half) {
      made[factor].low[half] = product(static_cast<std::uint8_t>(factor), static_cast<std::uint8_t>(half));
      made[factor].high[half] = product(static_cast<std::uint8_t>(factor), static_cast<std::uint8_t>(half << 4));
    }
  }
  return made;
}

constexpr std::array<half_products, 256> products = make_half_products();

void add(std::byte* into, const std::byte* from, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    std::memcpy(&a, into + i, 8);
    std::memcpy(&b, from + i, 8);
    a ^= b;
    std::memcpy(into + i, &a, 8);
  }
  for (; i < count; ++i) into[i] ^= from[i];
}

// The bytes from `begin` on, one by one.
void add_multiple_bytes(std::byte* into, const std::byte* from, const half_products& of, std::size_t begin,
                        std::size_t count) {
  for (std::size_t i = begin; i < count; ++i) {
    const auto byte = static_cast<unsigned>(from[i]);
    into[i] ^= static_cast<std::byte>(of.low[byte & 15] ^ of.high[byte >> 4]);
  }
}

#if defined(__x86_64__)

[[gnu::target("avx2")]] std::size_t add_multiple_avx2(std::byte* into, const std::byte* from, const half_products& of,
                                                      std::size_t count) {
  const __m256i low = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(of.low.data())));
  const __m256i high = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(of.high.data())));
  const __m256i half = _mm256_set1_epi8(15);
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i sum = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(into + i));
    const __m256i of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, half));
    const __m256i of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64(bytes, 4), half));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(into + i), _mm256_xor_si256(sum, _mm256_xor_si256(of_low, of_high)));
  }
  return i;
}

std::size_t add_multiple_wide(std::byte* into, const std::byte* from, const half_products& of, std::size_t count) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  return has_avx2 ? add_multiple_avx2(into, from, of, count) : 0;
}

#elif defined(__aarch64__)

std::size_t add_multiple_wide(std::byte* into, const std::byte* from, const half_products& of, std::size_t count) {
  const uint8x16_t low = vld1q_u8(of.low.data());
  const uint8x16_t high = vld1q_u8(of.high.data());
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t*>(from + i));
    const uint8x16_t sum = vld1q_u8(reinterpret_cast<const std::uint8_t*>(into + i));
    const uint8x16_t product =
        veorq_u8(vqtbl1q_u8(low, vandq_u8(bytes, vdupq_n_u8(15))), vqtbl1q_u8(high, vshrq_n_u8(bytes, 4)));
    vst1q_u8(reinterpret_cast<std::uint8_t*>(into + i), veorq_u8(sum, product));
  }
  return i;
}

#else

std::size_t add_multiple_wide(std::byte* /*into*/, const std::byte* /*from*/, const half_products& /*of*/,
                              std::size_t /*count*/) {
  return 0;
}

#endif

}  // namespace

std::uint8_t multiply(std::uint8_t a, std::uint8_t b) {
  return product(a, b);
}

std::uint8_t inverse(std::uint8_t a) {
  FAR_CHECK(a != 0, "zero has no inverse");
  return known.power[255 - known.logarithm[a]];
}

std::uint8_t power_of_two(unsigned exponent) {
  return known.power[exponent % 255];
}

void add_multiple(std::byte* into, const std::byte* from, std::uint8_t factor, std::size_t count) {
  if (factor == 0) return;
  if (factor == 1) return add(into, from, count);
  const half_products& of = products[factor];
  add_multiple_bytes(into, from, of, add_multiple_wide(into, from, of, count), count);
}

}  // namespace far::backend::galois
