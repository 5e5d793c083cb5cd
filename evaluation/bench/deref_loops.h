// The loops of `farheap-bench deref`: one walk over an array of pointers each. They are functions of their own, with
// plain names, so that callgrind can tell them apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "far/runtime.h"
#include "far/scope.h"
#include "far/unique_ptr.h"

namespace far::bench {

// 64 bytes. In either heap it takes 80, with its header.
struct deref_object {
  std::uint64_t words[8] = {};
};

using near_pointers = std::vector<std::unique_ptr<deref_object>>;
using far_pointers = std::vector<far::unique_ptr<deref_object>>;

// How many dereferences share a scope in deref_loop_scope_for_several.
inline constexpr std::size_t derefs_a_scope = 64;

extern "C" {

// Each adds up one word of every object that `pointers` lead to.
std::uint64_t deref_loop_near(const near_pointers& pointers);
std::uint64_t deref_loop_in_scope(const far::scope& in, const far_pointers& pointers);
std::uint64_t deref_loop_scope_for_several(far::runtime& runtime, const far_pointers& pointers);
std::uint64_t deref_loop_scope_for_each(far::runtime& runtime, const far_pointers& pointers);

// The same one after the other: that word is the position of the next pointer, from 0 on.
std::uint64_t deref_chase_near(const near_pointers& pointers);
std::uint64_t deref_chase_in_scope(const far::scope& in, const far_pointers& pointers);
std::uint64_t deref_chase_scope_for_each(far::runtime& runtime, const far_pointers& pointers);

// Opens and closes `count` scopes, in which nothing happens. Returns `count`.
std::uint64_t deref_loop_scope_only(far::runtime& runtime, std::size_t count);

}  // extern "C"

}  // namespace far::bench
