#include "deref_loops.h"

#include <algorithm>

namespace far::bench {

extern "C" {

[[gnu::noinline]] std::uint64_t deref_loop_near(const near_pointers& pointers) {
  std::uint64_t sum = 0;
  for (const auto& pointer : pointers) sum += pointer->words[0];
  return sum;
}

[[gnu::noinline]] std::uint64_t deref_loop_in_scope(const far::scope& in, const far_pointers& pointers) {
  std::uint64_t sum = 0;
  for (const auto& pointer : pointers) sum += pointer.deref(in).words[0];
  return sum;
}

[[gnu::noinline]] std::uint64_t deref_loop_scope_for_several(far::runtime& runtime, const far_pointers& pointers) {
  std::uint64_t sum = 0;
  for (std::size_t first = 0; first < pointers.size(); first += derefs_a_scope) {
    const far::scope here(runtime);
    const std::size_t end = std::min(first + derefs_a_scope, pointers.size());
    for (std::size_t i = first; i < end; ++i) sum += pointers[i].deref(here).words[0];
  }
  return sum;
}

[[gnu::noinline]] std::uint64_t deref_loop_scope_for_each(far::runtime& runtime, const far_pointers& pointers) {
  std::uint64_t sum = 0;
  for (const auto& pointer : pointers) {
    const far::scope here(runtime);
    sum += pointer.deref(here).words[0];
  }
  return sum;
}

[[gnu::noinline]] std::uint64_t deref_chase_near(const near_pointers& pointers) {
  std::uint64_t sum = 0;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < pointers.size(); ++i) sum += at = pointers[at]->words[0];
  return sum;
}

[[gnu::noinline]] std::uint64_t deref_chase_in_scope(const far::scope& in, const far_pointers& pointers) {
  std::uint64_t sum = 0;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < pointers.size(); ++i) sum += at = pointers[at].deref(in).words[0];
  return sum;
}

[[gnu::noinline]] std::uint64_t deref_chase_scope_for_each(far::runtime& runtime, const far_pointers& pointers) {
  std::uint64_t sum = 0;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    const far::scope here(runtime);
    sum += at = pointers[at].deref(here).words[0];
  }
  return sum;
}

[[gnu::noinline]] std::uint64_t deref_loop_scope_only(far::runtime& runtime, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const far::scope here(runtime);
    asm volatile("" : : "r"(&here) : "memory");
  }
  return count;
}

}  // extern "C"

}  // namespace far::bench
