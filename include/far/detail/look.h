// The reads that a dereference makes at once. On x86-64 they are instructions of their own, not atomic operations: GCC
// takes each of those for one that may change all memory, relaxed ones too, so that a loop over far pointers would read
// its own variables again after each, and a null test and a dereference would read the word twice.
//
// That is enough because the reads are made in program order (the compiler orders them by their operands, the processor
// makes no other order of reads), and because a compiler that finds one of them twice without anything in between that
// may change memory finds both in one scope, in which a result holds until its end
// (docs/decisions/0062-reads-of-a-dereference.md).
#pragma once

#include <atomic>
#include <cstdint>

#include "far/detail/thread_sanitizer.h"

// ThreadSanitizer does not see instructions.
#if defined(__x86_64__) && !defined(FAR_THREAD_SANITIZER)
#define FAR_READS_BY_INSTRUCTIONS 1
#endif

namespace far::detail {

// The word of a far pointer, as it is at some time since the scope was opened.
[[nodiscard, gnu::always_inline]] inline std::uint64_t read_word(const std::atomic<std::uint64_t>& word) {
#if defined(FAR_READS_BY_INSTRUCTIONS)
  std::uint64_t value;
  asm("mov{q %[word], %[value]| %[value], %[word]}" : [value] "=r"(value) : [word] "m"(word));
  return value;
#else
  return word.load(std::memory_order_acquire);
#endif
}

// Whether a ready byte (view.h) is at least `least`.
[[nodiscard, gnu::always_inline]] inline bool is_at_least(const std::uint8_t& ready, std::uint8_t least) {
#if defined(FAR_READS_BY_INSTRUCTIONS)
  bool is;
  asm("cmp{b %[least], %[ready]| %[ready], %[least]}" : "=@ccae"(is) : [ready] "m"(ready), [least] "qi"(least));
  return is;
#else
  return __atomic_load_n(&ready, __ATOMIC_ACQUIRE) >= least;
#endif
}

// The same, and whether a word is `value` after that.
[[nodiscard, gnu::always_inline]] inline bool is_at_least_and_same(const std::uint8_t& ready, std::uint8_t least,
                                                                   const std::atomic<std::uint64_t>& word,
                                                                   std::uint64_t value) {
#if defined(FAR_READS_BY_INSTRUCTIONS)
  bool is;
  // Where the byte is less, the operands of the first comparison are not equal. The word's address is in a register of
  // its own: where both reads of it were at the same distance from the same register, an AMD EPYC took up to twice as
  // long for a walk over a list.
  asm("cmp{b %[least], %[ready]| %[ready], %[least]}\n\t"
      "jb 1f\n\t"
      "cmp{q %[value], (%[at])| QWORD PTR [%[at]], %[value]}\n"
      "1:"
      : "=@cce"(is)
      : [ready] "m"(ready), [least] "qi"(least), [at] "r"(&word), [value] "r"(value), "m"(word));
  return is;
#else
  return is_at_least(ready, least) && word.load(std::memory_order_relaxed) == value;
#endif
}

}  // namespace far::detail
