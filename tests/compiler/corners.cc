// What a pass over machine-near code is easily wrong about, each case with its own line of output: the same, however
// the program was compiled. Where a loop is involved, it is one that the passes split or guard. See also mixed.cc.
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <coroutine>
#include <memory>
#include <vector>

namespace {

constexpr size_t size = 20000;  // elements; several chunks
constexpr uint64_t prime = 1099511628211ul;

uint64_t mix(uint64_t hash, uint64_t value) {
  return (hash ^ value) * prime;
}

template <typename T>
T* filled(size_t count, uint64_t seed) {
  T* const all = static_cast<T*>(malloc(count * sizeof(T)));
  for (size_t i = 0; i < count * sizeof(T); ++i) {
    reinterpret_cast<unsigned char*>(all)[i] = static_cast<unsigned char>((i * 131 + seed) >> 3 ^ i >> 9);
  }
  return all;
}

uint32_t* indices() {
  uint32_t* const all = filled<uint32_t>(size, 3);
  for (size_t i = 0; i < size; ++i) all[i] %= size;
  return all;
}

// setjmp() in the function that has the loops, and in the loop itself.
jmp_buf place;
[[gnu::noinline]] void leave(uint64_t value) {
  if (value % 7919 == 11) longjmp(place, 1);
}
[[gnu::noinline]] uint64_t jumps(const uint64_t* a, const uint32_t* b) {
  volatile uint64_t hash = 1;
  volatile size_t landed = 0;
  volatile size_t from = 0;
  if (setjmp(place) != 0) landed = landed + 1;
  for (size_t i = from; i < size; ++i) {
    from = i + 1;
    hash = mix(hash, a[b[i]]);
    leave(a[i]);
  }
  for (size_t i = 0; i < size; ++i) {
    if (i % 500 == 0 && setjmp(place) != 0) {
      landed = landed + 3;
      continue;
    }
    hash = mix(hash, a[i] + a[b[i]]);
    if (i % 500 == 0) leave(11);
  }
  return mix(hash, landed);
}

// A structure by value, as an argument and as a variable one.
struct block {
  uint64_t items[64];
};
[[gnu::noinline]] uint64_t by_value(block one, const uint32_t* b, size_t count) {
  uint64_t hash = 0;
  for (size_t i = 0; i < count; ++i) hash = mix(hash, one.items[b[i] % 64]++);
  return hash;
}
[[gnu::noinline]] uint64_t variable(int count, ...) {
  va_list list;
  va_start(list, count);
  uint64_t hash = 0;
  for (int i = 0; i < count; ++i) {
    const block one = va_arg(list, block);
    hash = mix(hash, one.items[i] + va_arg(list, unsigned) + static_cast<uint64_t>(va_arg(list, double)));
  }
  va_end(list);
  return hash;
}
[[gnu::noinline]] uint64_t values(const uint64_t* a, const uint32_t* b) {
  block one{};
  memcpy(&one, a, sizeof one);
  return mix(by_value(one, b, size), variable(2, one, 1u, 2.5, one, 3u, 4.5));
}

// Moves that overlap, and blocks that are copied to themselves.
[[gnu::noinline]] uint64_t moves(unsigned char* bytes, block* blocks, const uint32_t* b) {
  for (size_t i = 0; i < 200; ++i) memmove(bytes + i * 3, bytes + (b[i] % 5000), 4000 + i);
  for (size_t i = 0; i < size * 4; ++i) bytes[i + 1] = bytes[i];  // fills
  for (size_t i = 0; i < size * 4; ++i) bytes[i] = bytes[i + 1] + bytes[i + 16];
  for (size_t i = 1; i < 300; ++i) blocks[b[i] % 300] = blocks[b[i - 1] % 300];
  uint64_t hash = 0;
  for (size_t i = 0; i < size * 4; ++i) hash = mix(hash, bytes[i]);
  for (size_t i = 0; i < 300; ++i) hash = mix(hash, blocks[i].items[i % 64]);
  return hash;
}

// Vectors, aligned and not; halves of a register; wide integers; long double.
typedef uint32_t vector __attribute__((vector_size(32)));
typedef uint32_t loose_vector __attribute__((vector_size(32), aligned(1)));
struct __attribute__((packed)) odd {
  char first;
  uint64_t value : 47;
  uint64_t rest : 17;
  long double number;
  unsigned __int128 wide;
  _BitInt(77) wider;
};
[[gnu::noinline]] uint64_t vectors(const uint32_t* words, odd* odds, const uint32_t* b) {
  vector total{};
  for (size_t i = 0; i + 8 <= size; i += 8) total += *reinterpret_cast<const loose_vector*>(words + i);
  for (size_t i = 0; i + 9 <= size; ++i) total ^= *reinterpret_cast<const loose_vector*>(words + b[i] % (size - 8));
  uint64_t hash = 0;
  for (int i = 0; i < 8; ++i) hash = mix(hash, total[i]);
  for (size_t i = 0; i < 2000; ++i) {
    odd& one = odds[b[i] % 2000];
    one.value = i * prime;
    one.number = static_cast<long double>(i) / 3;
    one.wide = one.wide * prime + i;
    one.wider = static_cast<_BitInt(77)>(i) * 12345;
  }
  for (size_t i = 0; i < 2000; ++i) {
    const long double number = odds[b[i] % 2000].number;
    hash = mix(hash,
               odds[i].value + static_cast<uint64_t>(number * 8) + static_cast<uint64_t>(odds[b[i] % 2000].wide >> 61));
    hash = mix(hash, odds[i].rest);
  }
  return hash;
}

// Addresses made of integers: a list whose links are the exclusive or of both neighbours, and marked pointers.
struct neighbour {
  uintptr_t both;
  uint64_t value;
};
[[gnu::noinline]] uint64_t integers(neighbour* links, const uint32_t* b) {
  std::vector<uintptr_t> marked;
  for (size_t i = 0; i < size; ++i) {
    const uintptr_t before = i == 0 ? 0 : reinterpret_cast<uintptr_t>(&links[i - 1]);
    const uintptr_t after = i + 1 == size ? 0 : reinterpret_cast<uintptr_t>(&links[i + 1]);
    links[i] = {before ^ after, b[i]};
    marked.push_back(reinterpret_cast<uintptr_t>(&links[b[i]]) | (i & 7));
  }
  uint64_t hash = 0;
  uintptr_t before = 0;
  for (neighbour* at = links; at != nullptr;) {
    hash = mix(hash, at->value);
    neighbour* const next = reinterpret_cast<neighbour*>(at->both ^ before);
    before = reinterpret_cast<uintptr_t>(at);
    at = next;
  }
  for (size_t i = 0; i < size; ++i)
    hash = mix(hash, reinterpret_cast<neighbour*>(marked[i] & ~uintptr_t{7})->value + (marked[i] & 7));
  return hash;
}

// Another address space: relative to %fs, whose base the first word there holds.
#if defined(__x86_64__)
typedef uint64_t __attribute__((address_space(257))) thread_word;
[[gnu::noinline]] uint64_t segments(const uint64_t* a, const uint32_t* b) {
  const uintptr_t base = *reinterpret_cast<uintptr_t volatile __attribute__((address_space(257)))*>(0);
  const thread_word* const same = (const thread_word*)(reinterpret_cast<uintptr_t>(a) - base);
  uint64_t hash = 0;
  for (size_t i = 0; i < size; ++i) hash = mix(hash, same[i]);
  for (size_t i = 0; i < size; ++i) hash += same[b[i]] * i;
  return hash;
}
#endif

// Pointers that come from two sides; memory of the thread; a stack array whose length is not known.
thread_local uint64_t of_thread[size];
[[gnu::noinline]] uint64_t sides(uint64_t* a, const uint32_t* b, size_t length) {
  uint64_t here[64] = {};
  uint64_t hash = 0;
  for (size_t i = 0; i < size; ++i) of_thread[i] = a[b[i]];
  for (size_t i = 0; i < size; ++i) {
    uint64_t* const chosen = (b[i] & 3) == 0 ? &here[b[i] % 64] : (b[i] & 3) == 1 ? &of_thread[b[i]] : &a[b[i]];
    *chosen += i;
    hash = mix(hash, *chosen);
  }
  for (size_t round = 0; round < 20; ++round) {
    uint64_t local[length];
    for (size_t i = 0; i < length; ++i) local[i] = a[b[i + round]];
    for (size_t i = 0; i < length; ++i) hash = mix(hash, local[b[i] % length]);
    uint64_t* const more = static_cast<uint64_t*>(__builtin_alloca(length * 8));
    memcpy(more, a + round, length * 8);
    hash = mix(hash, more[b[round] % length]);
  }
  return hash;
}

// Assembly: operands in memory, flags that it returns, and jumps.
[[gnu::noinline]] uint64_t assembly(uint64_t* a, const uint32_t* b) {
  uint64_t hash = 0;
#if defined(__x86_64__)
  for (size_t i = 0; i < size; ++i) {
    bool carry = false;
    asm volatile("addq %2, %0" : "+m"(a[b[i]]), "=@ccc"(carry) : "r"(i * prime << 20) : "memory");
    asm goto("testq $1, %0\n\tjnz %l[is_odd]" : : "m"(a[b[i]]) : "cc" : is_odd);
    hash += a[i];
    continue;
  is_odd:
    hash = mix(hash, carry + a[b[i]]);
  }
#endif
  return hash;
}

// An interpreter: jumps to computed places, in a loop that LLVM cannot name.
[[gnu::noinline]] uint64_t interpret(const unsigned char* code, uint64_t* memory, const uint32_t* b) {
  static const void* const to[] = {&&add, &&load, &&store, &&turn};
  size_t at = 0;
  uint64_t x = 1;
  uint64_t y = 0;
#define NEXT                      \
  do {                            \
    if (at == size) return x ^ y; \
    goto* to[code[at++] % 4];     \
  } while (0)
  NEXT;
add:
  x += y;
  NEXT;
load:
  y = memory[b[x % size]];
  NEXT;
store:
  memory[b[y % size]] = x;
  NEXT;
turn:
  x = mix(x, y);
  NEXT;
#undef NEXT
}

// A coroutine whose frame is on the heap.
struct numbers {
  struct promise_type {
    uint64_t value = 0;
    numbers get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(uint64_t given) noexcept {
      value = given;
      return {};
    }
    void return_void() noexcept {}
    void unhandled_exception() { abort(); }
  };
  std::coroutine_handle<promise_type> handle;
};
numbers walk(const uint64_t* a, const uint32_t* b) {
  uint64_t sum = 0;
  for (size_t i = 0; i < size; ++i) {
    sum += a[b[i]] ^ a[i];
    if (i % 100 == 0) co_yield sum;
  }
  for (size_t i = 0; i < size; ++i) sum += a[i];
  co_yield sum;
}
[[gnu::noinline]] uint64_t coroutines(const uint64_t* a, const uint32_t* b) {
  uint64_t hash = 0;
  const numbers all = walk(a, b);
  for (all.handle.resume(); !all.handle.done(); all.handle.resume()) hash = mix(hash, all.handle.promise().value);
  all.handle.destroy();
  return hash;
}

// A handler of signals that reads the same memory; errno on the way; a thread with the smallest stack.
const uint64_t* read_by_handler;
volatile uint64_t of_handler;
void handle(int) {
  for (size_t i = 0; i < size; i += 700) of_handler = mix(of_handler, read_by_handler[i * 7919 % size]);
}
[[gnu::noinline]] uint64_t signals(uint64_t* a, const uint32_t* b) {
  read_by_handler = a;
  signal(SIGUSR1, handle);
  uint64_t hash = 0;
  for (size_t i = 0; i < size; ++i) {
    errno = static_cast<int>(i & 63);
    hash = mix(hash, a[b[i]]);
    if (errno != static_cast<int>(i & 63)) hash = 0;
    if (i % 1000 == 0) raise(SIGUSR1);
  }
  return mix(hash, of_handler);
}
struct job {
  uint64_t* a;
  const uint32_t* b;
  uint64_t hash;
};
void* work(void* given) {
  job& one = *static_cast<job*>(given);
  for (size_t i = 0; i < size; ++i) one.hash = mix(one.hash, one.a[one.b[i]]++);
  return nullptr;
}
[[gnu::noinline]] uint64_t small_stack(uint64_t* a, const uint32_t* b) {
  job one{a, b, 5};
  pthread_attr_t small;
  pthread_t thread;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, sizeof of_thread + (24 << 10));
  if (pthread_create(&thread, &small, work, &one) != 0) abort();
  pthread_join(thread, nullptr);
  return one.hash;
}

// Exceptions through frames with things to destroy, out of loops that are split.
struct noted {
  uint64_t& hash;
  uint64_t value;
  ~noted() { hash = mix(hash, value); }
};
[[gnu::noinline]] uint64_t checked(uint64_t value) {
  if (value % 5003 == 1) throw value;
  return value;
}
[[gnu::noinline]] uint64_t exceptions(const uint64_t* a, const uint32_t* b) {
  uint64_t hash = 0;
  for (size_t from = 0; from < size;) {
    size_t i = from;
    try {
      const noted kept{hash, i};
      for (; i < size; ++i) {
        const noted inner{hash, a[b[i]]};
        hash += checked(a[b[i]] + a[i]);
      }
      for (size_t k = 0; k < size; ++k) hash += a[k];
    } catch (const uint64_t found) {
      hash = mix(hash, found);
    }
    from = i + 1;
  }
  return hash;
}

// Atomic and volatile accesses beside usual ones.
[[gnu::noinline]] uint64_t atomics(uint64_t* a, const uint32_t* b) {
  uint64_t hash = 0;
  for (size_t i = 0; i < size; ++i) {
    uint64_t seen = __atomic_load_n(&a[b[i]], __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(&a[b[i]], &seen, seen * 3 + i, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
      continue;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    volatile uint64_t* const device = &a[i];
    *device = *device + seen;
    hash = mix(hash, __atomic_exchange_n(&a[size - 1 - b[i]], hash, __ATOMIC_RELEASE));
    hash += __builtin_nontemporal_load(&a[b[i]]);
    __builtin_nontemporal_store(hash, &a[i]);
  }
  return hash;
}

// Rounding that changes in between.
[[gnu::noinline]] uint64_t rounding(const uint32_t* words, const uint32_t* b) {
#pragma STDC FENV_ACCESS ON
  float sums[4] = {};
  const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  for (int mode = 0; mode < 4; ++mode) {
    fesetround(modes[mode]);
    for (size_t i = 0; i < size; ++i) sums[mode] += static_cast<float>(words[b[i]] % 1000) / 7;
  }
  fesetround(FE_TONEAREST);
  uint64_t hash = 0;
  for (const float sum : sums) {
    uint32_t bits = 0;
    memcpy(&bits, &sum, 4);
    hash = mix(hash, bits);
  }
  return hash;
}

// Numbers are exact, so the processor notes nothing and nothing traps, although pages come and others leave for them.
[[gnu::noinline]] uint64_t flags(const uint64_t* a, const uint32_t* b, volatile char* water, size_t pages) {
#pragma STDC FENV_ACCESS ON
  feclearexcept(FE_ALL_EXCEPT);
  feenableexcept(FE_ALL_EXCEPT);
  double sum = 0;
  for (size_t i = 0; i < size; ++i) sum += static_cast<double>(static_cast<int>(a[b[i]] & 0xffff));
  for (size_t i = 0; i < 3 * pages; ++i) water[i * 7919 % pages * 4096] = 1;
  const int noted = fetestexcept(FE_ALL_EXCEPT);
  fedisableexcept(FE_ALL_EXCEPT);
  return mix(static_cast<uint64_t>(sum), static_cast<uint64_t>(noted));
}

// Calls that end a function, and calling conventions that keep registers.
[[gnu::noinline]] uint64_t tail(const uint64_t* a, const uint32_t* b, size_t left, uint64_t hash) {
  if (left == 0) return hash;
  hash = mix(hash, a[b[left - 1]]);
  [[clang::musttail]] return tail(a, b, left - 1, hash);
}
[[gnu::noinline, clang::preserve_all]] void keeps(const uint64_t* a, const uint32_t* b, uint64_t* hash) {
  for (size_t i = 0; i < 300; ++i) *hash = mix(*hash, a[b[i]]);
}
[[gnu::noinline]] uint64_t calls(const uint64_t* a, const uint32_t* b) {
  uint64_t hash = tail(a, b, size, 9);
  double sum = 0;
  for (size_t i = 0; i < 100; ++i) {
    sum += static_cast<double>(a[b[i]] % 1000);
    keeps(a, b + i, &hash);
  }
  return mix(hash, static_cast<uint64_t>(sum));
}

}  // namespace

// With an argument: as many MiB are written before each case, so that its memory is far.
int main(int count, char** arguments) {
  const size_t flood = count > 1 ? strtoul(arguments[1], nullptr, 10) << 20 : 0;
  char* const water = static_cast<char*>(malloc(flood + 1));
  const uint32_t* const b = indices();
  uint64_t* const a = filled<uint64_t>(size, 1);
  uint32_t* const words = filled<uint32_t>(size, 2);
  unsigned char* const bytes = filled<unsigned char>(size * 4 + 64, 4);
  block* const blocks = filled<block>(300, 5);
  odd* const odds = filled<odd>(2000, 6);
  neighbour* const links = filled<neighbour>(size, 7);
  const auto print = [&](const char* name, uint64_t hash) {
    printf("%s %016lx\n", name, hash);
    for (size_t i = 0; i < flood; i += 4096) *static_cast<volatile char*>(water + i) = static_cast<char>(i >> 12);
  };
  print("begin", 0);
  print("jumps", jumps(a, b));
  print("values", values(a, b));
  print("moves", moves(bytes, blocks, b));
  print("vectors", vectors(words, odds, b));
  print("integers", integers(links, b));
#if defined(__x86_64__)
  print("segments", segments(a, b));
#endif
  print("sides", sides(a, b, 100));
  print("assembly", assembly(a, b));
  print("interpret", interpret(filled<unsigned char>(size, 8), a, b));
  print("coroutines", coroutines(a, b));
  print("signals", signals(a, b));
  print("small stack", small_stack(a, b));
  print("exceptions", exceptions(a, b));
  print("atomics", atomics(a, b));
  print("rounding", rounding(words, b));
  print("flags", flags(a, b, water, flood / 4096));
  print("calls", calls(a, b));
  return 0;
}
