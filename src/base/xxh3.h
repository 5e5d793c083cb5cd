// XXH3 in the fastest form that this processor runs: AVX2 if it has that, else the baseline of the architecture. The
// values are the same on every path. No allocation, no system call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace far {

struct hash_part {
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// One form of the functions. Plain types only: the AVX2 form is compiled with instructions that no code shared with the
// rest of the program may hold.
struct xxh3_form {
  std::uint64_t (*hash_64)(const void* data, std::size_t bytes);
  // Hashes the parts, one after the other, as if they were adjacent.
  std::uint64_t (*hash_64_of_parts)(const hash_part* parts, std::size_t count);
  // With a secret in place of the published one, of at least 136 bytes that look random. Requires: bytes > 240.
  std::uint64_t (*hash_64_with_secret)(const void* data, std::size_t bytes, const void* secret,
                                       std::size_t secret_bytes);
};

// For tests; everybody else takes fastest_xxh3().
extern const xxh3_form xxh3_baseline;
#if defined(__x86_64__)
extern const xxh3_form xxh3_avx2;
[[nodiscard]] bool has_avx2() noexcept;
#endif

[[nodiscard]] const xxh3_form& fastest_xxh3() noexcept;

}  // namespace far
