// The body of one form of XXH3, for xxh3_baseline.cc and xxh3_avx2.cc, which name it FAR_XXH3_FORM.
//
// Include nothing of the standard library here: an inline function of it, compiled with AVX2, could become the copy
// that the linker keeps for the whole program.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/xxh3.h"

#ifndef FAR_XXH3_FORM
#define FAR_XXH3_FORM xxh3_baseline
#endif

namespace far {

// GCC 12 omits this in the copies of functions that it makes for constant arguments. Registers left wide make every SSE
// instruction that follows wait for them: programs whose hints hash a page became ten times slower.
static void leave_narrow_registers() {
#ifdef __AVX2__
  __builtin_ia32_vzeroupper();
#endif
}

static std::uint64_t form_hash_64(const void* data, std::size_t bytes) {
  const std::uint64_t hash = XXH3_64bits(data, bytes);
  leave_narrow_registers();
  return hash;
}

static std::uint64_t form_hash_64_of_parts(const hash_part* parts, std::size_t count) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (std::size_t i = 0; i < count; ++i) XXH3_64bits_update(&state, parts[i].data, parts[i].bytes);
  const std::uint64_t hash = XXH3_64bits_digest(&state);
  leave_narrow_registers();
  return hash;
}

static std::uint64_t form_hash_64_with_secret(const void* data, std::size_t bytes, const void* secret,
                                              std::size_t secret_bytes) {
  const std::uint64_t hash = XXH3_64bits_withSecret(data, bytes, secret, secret_bytes);
  leave_narrow_registers();
  return hash;
}

const xxh3_form FAR_XXH3_FORM = {form_hash_64, form_hash_64_of_parts, form_hash_64_with_secret};

}  // namespace far
