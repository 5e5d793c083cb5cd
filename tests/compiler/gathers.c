// Loops over a[b[i]], beside counting_runtime.c: the runtime is told of exactly the pages that the loop uses, and reads
// no index that the loop does not read. What lies around the indices cannot be read.
#include <far/local.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "expected_pages.h"

#define ALONE __attribute__((noinline))

#define GATHER(name, type)                                  \
  ALONE long name(const long* a, const type* b, size_t n) { \
    long total = 0;                                         \
    for (size_t i = 0; i < n; ++i) total += a[b[i]];        \
    return total;                                           \
  }
GATHER(by_u8, unsigned char)
GATHER(by_i8, signed char)
GATHER(by_u16, unsigned short)
GATHER(by_i16, short)
GATHER(by_u32, unsigned)
GATHER(by_i32, int)
GATHER(by_u64, unsigned long)
GATHER(by_i64, long)

ALONE long downwards(const long* a, const int* b, long n) {
  long total = 0;
  for (long i = n - 1; i >= 0; --i) total += a[b[i]];
  return total;
}

ALONE long every_third(const long* a, const int* b, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n / 3; ++i) total += a[b[3 * i]];
  return total;
}

ALONE void scatter(long* restrict a, const int* restrict b, size_t n) {
  for (size_t i = 0; i < n; ++i) a[b[i]] += 1;
}

struct item {
  long key;
  int from, to;
};
ALONE long of_items(const struct item* items, const int* b, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += items[b[i] + 1].from + items[b[i] + 1].to;
  return total;
}

ALONE long by_pointers(long* const* pointers, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += pointers[i][1];
  return total;
}

// Computed addresses: the loop goes through those to come.
ALONE long hashed(const long* a, const unsigned* b, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += a[(b[i] * 2654435761u) >> 15];
  return total;
}

ALONE long of_column(const long* a, size_t n, size_t width) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += a[i * width + 3];
  return total;
}

// The position is carried from one iteration to the next, with no index in memory.
ALONE void by_chance(struct item* items, size_t n, unsigned seed) {
  for (size_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    items[seed % 10000u].from += 1;
    items[seed % 10000u].to += 2;
  }
}

ALONE long two_ways(const long* a, const int* b, const unsigned char* ways, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += a[ways[i] != 0 ? b[i] * 3 : b[i] ^ 5];
  return total;
}

// What this computes would trap.
ALONE long divided(const long* a, const unsigned* b, const unsigned* c, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += a[b[i] % c[i]];
  return total;
}

// The positions of the other are not read in order: when they have come, it is looked ahead for, too.
ALONE long twice_indexed(const long* a, const int* b, const int* c, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += a[b[c[i]] ^ 1];
  return total;
}

// Rows: where they begin is read in order. Here an iteration hands the index on to the next one, ...
ALONE void of_rows(const long* restrict a, const unsigned* restrict first, long* restrict sums, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    long sum = 0;
    for (unsigned at = first[i]; at < first[i + 1]; ++at) sum += a[at];
    sums[i] = sum;
  }
}

// ... and here it does not.
ALONE void of_stretches(long* restrict a, const int* restrict from, const int* restrict to, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    for (int at = from[i]; at < to[i]; ++at) a[at] += at;
  }
}

// Where these begin cannot be computed ahead, because the loop may have no iteration, and `m` may be zero. The outer
// loop still has its streams.
ALONE void of_divided_rows(const long* restrict a, const unsigned* restrict first, long* restrict sums, size_t n,
                           size_t k, size_t m) {
  for (size_t i = 0; i < n; ++i) {
    long sum = 0;
    for (size_t at = first[i]; at < first[i + 1]; ++at) sum += a[at + k / m];
    sums[i] = sum;
  }
}

// What is accessed in some iterations only is not looked for: here only its index is.
ALONE long sometimes_indexed(const long* a, const int* b, const int* c, const char* wanted, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    const int place = b[c[i] * 3 & 0x3fff];
    total += place;
    if (wanted[i] == 1) total += a[place];
  }
  return total;
}

// The places may change before they are read: the copy reads none.
ALONE long that_mends_places(const long* a, const int* b, const int* c, int* others, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    others[i] &= 0x3fff;
    total += a[b[c[i]]];
  }
  return total;
}

// No gathers: their indices are read only until something happens, or change, or are not always needed.
ALONE long until_negative(const long* a, const int* b, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n && b[i] >= 0; ++i) total += a[b[i]];
  return total;
}

static jmp_buf way_out;
ALONE void leave_at(long value) {
  if (value == 77) longjmp(way_out, 1);
}
ALONE long until_left(const long* a, const int* b, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    leave_at(b[i]);
    total += a[b[i]];
  }
  return total;
}

ALONE long until_ready(const long* a, const int* b, size_t n, volatile int* ready) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += a[b[i]] + *ready;
  return total;
}

ALONE long that_writes(const long* a, int* b, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    total += a[b[i]];
    b[n - i] = (int)i & 0xffff;
  }
  return total;
}

ALONE long if_wanted(const long* a, const int* b, const char* wanted, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    if (wanted[i] == 1) total += a[b[i]];
  }
  return total;
}

ALONE long that_frees(const long* a, const int* b, void** blocks, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    total += a[b[i]];
    free(blocks[i]);
  }
  return total;
}

ALONE long of_few(const long* a, const int* b) {
  long total = 0;
  for (size_t i = 0; i < 100; ++i) total += a[b[i]];
  return total;
}

// Each place says which is the next, so nothing can be looked ahead for.
ALONE long hop(long* a, size_t n, size_t at, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    at = (size_t)a[at] * 127 % n;
    a[at * 77 % n] += 3;
  }
  return (long)at;
}

// The loops from here on are the test's own.
FAR_LOCAL_BEGIN
enum { elements = 1 << 18, used = 20000, page = 4096 };

// `bytes` up to the end of a page, or from the beginning of one, beyond which nothing can be read.
static void* at_end(size_t bytes, int at_beginning) {
  const size_t whole = (bytes + page - 1) / page * page;
  char* const all = mmap(NULL, whole + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED || mprotect(all + page, whole, PROT_READ | PROT_WRITE) != 0) exit(3);
  return at_beginning ? all + page : all + page + whole - bytes;
}

#define CHECK(name, type, least, most)                                               \
  do {                                                                               \
    for (int placed = 0; placed < 2; ++placed) {                                     \
      type* const b = at_end(used * sizeof(type), placed);                           \
      long right = 0;                                                                \
      begin();                                                                       \
      for (size_t i = 0; i < used; ++i) {                                            \
        b[i] = (type)((long)(i * 2654435761u % ((most) - (least) + 1ul)) + (least)); \
        right += a[b[i]];                                                            \
        use(&a[b[i]]);                                                               \
      }                                                                              \
      EXPECT(name(a, b, used) == right);                                             \
      EXPECT(is_told());                                                             \
      EXPECT(counted.gathered_to_write == 0);                                        \
    }                                                                                \
  } while (0)

static void check_widths(const long* a) {
  CHECK(by_u8, unsigned char, 0, 255);
  CHECK(by_i8, signed char, -128, 127);
  CHECK(by_u16, unsigned short, 0, 65535);
  CHECK(by_i16, short, -32768, 32767);
  CHECK(by_u32, unsigned, 0, 100000);
  CHECK(by_i32, int, -100000, 100000);
  CHECK(by_u64, unsigned long, 0, 100000);
  CHECK(by_i64, long, -100000, 100000);
  CHECK(downwards, int, -100000, 100000);
}

static void check_shapes(long* a, int* b) {
  long right = 0;
  begin();
  for (size_t i = 0; i < used / 3 * 3; i += 3) {
    right += a[b[i]];
    use(&a[b[i]]);
  }
  EXPECT(every_third(a, b, used) == right && is_told());

  begin();
  for (size_t i = 0; i < used; ++i) use(&a[b[i]]);
  scatter(a, b, used);
  EXPECT(is_told() && counted.gathered_to_write == counted.gathered);

  const struct item* const items = (const struct item*)(const void*)a;
  begin();
  right = 0;
  for (size_t i = 0; i < used; ++i) {
    b[i] &= 0xfff;
    right += items[b[i] + 1].from + items[b[i] + 1].to;
    use(&items[b[i] + 1].from);
  }
  EXPECT(of_items(items, b, used) == right && is_told());

  long** const pointers = at_end(used * sizeof *pointers, 0);
  begin();
  right = 0;
  for (size_t i = 0; i < used; ++i) {
    pointers[i] = a + (i * 7919 % 100000);
    right += pointers[i][1];
    use(&pointers[i][1]);
  }
  EXPECT(by_pointers(pointers, used) == right && is_told());
}

static void check_computed(long* a, int* b) {
  unsigned* const indices = at_end(used * sizeof *indices, 0);
  long right = 0;
  begin();
  for (size_t i = 0; i < used; ++i) {
    indices[i] = (unsigned)i * 7;
    const long* const at = &a[(indices[i] * 2654435761u) >> 15];
    right += *at;
    use(at);
  }
  EXPECT(hashed(a, indices, used) == right && is_told() && counted.guards >= counted.gathered);

  begin();
  right = 0;
  for (size_t i = 0; i < 300; ++i) {
    right += a[i * 700 + 3];
    use(&a[i * 700 + 3]);
  }
  EXPECT(of_column(a, 300, 700) == right && is_told() && counted.gathered_to_write == 0);

  struct item* const items = calloc(10000, sizeof *items);
  unsigned seed = 5;
  begin();
  for (size_t i = 0; i < used; ++i) {
    seed = seed * 1664525u + 1013904223u;
    use(&items[seed % 10000u].from);
  }
  by_chance(items, used, 5);
  EXPECT(is_told() && counted.gathered_to_write == counted.gathered && items[seed % 10000u].to > 1);
  free(items);

  unsigned char* const ways = at_end(used, 0);
  begin();
  right = 0;
  for (size_t i = 0; i < used; ++i) {
    ways[i] = i % 3 == 0;
    b[i] = (int)(i * 48271 % 80000);
    const long* const at = &a[ways[i] != 0 ? b[i] * 3 : b[i] ^ 5];
    right += *at;
    use(at);
  }
  EXPECT(two_ways(a, b, ways, used) == right && is_told());

  unsigned* const divisors = calloc(used, sizeof *divisors);
  for (size_t i = 0; i < used; ++i) divisors[i] = 1 + (unsigned)i;
  reset_counts();
  EXPECT(divided(a, indices, divisors, used) != 1);
  EXPECT(counted.gathered == 0);
  free(divisors);
}

static void check_chains(const long* a, const int* b) {
  long right = 0;
  int* const places = at_end(used * sizeof *places, 0);
  begin();
  for (size_t i = 0; i < used; ++i) {
    places[i] = (int)(i * 7919 % used);
    const long* const at = &a[b[places[i]] ^ 1];
    right += *at;
    use(&b[places[i]]);
    use(at);
  }
  EXPECT(twice_indexed(a, b, places, used) == right && is_told());

  char* const wanted = calloc(used, 1);
  begin();
  right = 0;
  for (size_t i = 0; i < used; ++i) {
    right += b[places[i] * 3 & 0x3fff];
    use(&b[places[i] * 3 & 0x3fff]);
  }
  EXPECT(sometimes_indexed(a, b, places, wanted, used) == right && is_told());
  free(wanted);

  begin();
  right = 0;
  for (size_t i = 0; i < used; ++i) {
    places[i] |= i % 3 == 0 ? 1 << 30 : 0;
    right += a[b[places[i] & 0x3fff]];
  }
  for (size_t i = 0; i < used; ++i) {
    if (i % 512 < 500) places[i] &= 0x3fff;
  }
  EXPECT(that_mends_places(a, b, places, places, used) == right);
}

// Short rows, and none at both ends, since the runtime may be told of the begin of each row, or of its end.
static void check_rows(long* a) {
  enum { row = 13 };
  unsigned* const first = at_end((used + 1) * sizeof *first, 0);
  long* const sums = calloc(used, sizeof *sums);
  begin();
  for (size_t i = 0; i <= used; ++i) first[i] = 5 + row * (unsigned)(i == 0 ? 0 : i == used ? used - 2 : i - 1);
  for (size_t i = 0; i < used; ++i) use(&a[first[i]]);
  of_rows(a, first, sums, used);
  EXPECT(is_told() && counted.gathered_to_write == 0);
  for (size_t i = 0; i < used; ++i) {
    for (unsigned at = first[i]; at < first[i + 1]; ++at) sums[i] -= a[at];
    EXPECT(sums[i] == 0);
  }
  // Neighbours are passed on together.
  EXPECT(counted.gathered < 5000);
  of_rows(a, first, sums, used);
  const long last = sums[used - 2];
  of_divided_rows(a, first, sums, used, 1, 2);
  EXPECT(sums[used - 2] == last);
  of_divided_rows(a, first, sums, 0, 1, 0);

  int* const from = at_end(used * sizeof *from, 0);
  int* const to = at_end(used * sizeof *to, 0);
  begin();
  for (size_t i = 0; i < used; ++i) {
    from[i] = (int)(i * 48271 % 100000);
    to[i] = from[i] + (int)(i % 3);
    use(&a[from[i]]);
  }
  of_stretches(a, from, to, used);
  EXPECT(is_told() && counted.gathered_to_write == counted.gathered);
  free(sums);
}

// Indices end in the middle of what the loops were promised, and the next ones lead nowhere.
static void check_ends(const long* a, int* b) {
  long right = 0;
  for (size_t i = 0; i < used; ++i) {
    b[i] = (int)(i % 70);
    right += a[b[i]];
  }
  b[used - 1] = -1;
  right -= a[(used - 1) % 70];
  begin();
  EXPECT(until_negative(a, b, 100 * used) == right && counted.gathered == 0);
  b[used - 1] = 77;
  if (setjmp(way_out) == 0) {
    until_left(a, b, 100 * used);
    EXPECT(0);
  }
  EXPECT(counted.gathered == 0);
  volatile int ready = 0;
  b[used - 1] = 0;
  EXPECT(until_ready(a, b, used, &ready) == right + a[0] && counted.gathered == 0);
  char* const wanted = calloc(used, 1);
  EXPECT(if_wanted(a, b, wanted, used) == 0 && counted.gathered == 0);
  void** const blocks = calloc(used, sizeof *blocks);
  EXPECT(that_frees(a, b, blocks, used) == right + a[0] && counted.gathered == 0);
  free(blocks);
  EXPECT(of_few(a, b) != 1 && counted.gathered == 0);
  free(wanted);
  that_writes(a, b, used - 1);
  EXPECT(counted.gathered == 0);
}

// When nothing was missing for a while, a loop does not look until more pages have left.
static void check_rest(const long* a, int* b) {
  for (size_t i = 0; i < used; ++i) b[i] = (int)(i * 48271 % 100000);
  set_states(1);
  for (int i = 0; i < 3; ++i) {
    reset_counts();
    by_i32(a, b, used);
    EXPECT(counted.gathered == 0 && counted.guards == 0);
  }
  set_states(2);
  for (int i = 0; i < 9; ++i) {
    reset_counts();
    by_i32(a, b, used);
    EXPECT(counted.gathered == 0 && counted.guards == 0);
    ++has_evicted;
  }
  begin();
  for (size_t i = 0; i < used; ++i) use(&a[b[i]]);
  by_i32(a, b, used);
  EXPECT(is_told() && counted.guards >= used);

  // The same of computed addresses.
  unsigned* const indices = (unsigned*)b;
  set_states(1);
  for (int i = 0; i < 3; ++i) EXPECT(hashed(a, indices, used) != 1);
  set_states(2);
  for (int i = 0; i < 9; ++i) {
    reset_counts();
    EXPECT(hashed(a, indices, used) != 1);
    EXPECT(counted.gathered == 0 && counted.guards == 0);
    ++has_evicted;
  }
  begin();
  for (size_t i = 0; i < used; ++i) use(&a[(indices[i] * 2654435761u) >> 15]);
  EXPECT(hashed(a, indices, used) != 1);
  EXPECT(is_told() && counted.guards >= used);
  has_evicted = 1;
}

// What a guard brings counts no more than what a trap does.
static void check_marks(long* a) {
  reset_counts();
  EXPECT(hop(a, elements, 1, 1000) >= 0);
  EXPECT(counted.gathered == 0 && counted.guards >= 2000 && counted.marking == 0);
}

int main(void) {
  long* const all = calloc(2 * elements, sizeof *all);
  for (size_t i = 0; i < 2 * elements; ++i) all[i] = (long)(i * 31 % 1009);
  long* const a = all + elements;
  check_widths(a);
  int* const b = at_end(used * sizeof *b, 0);
  for (size_t i = 0; i < used; ++i) b[i] = (int)(i * 48271 % 100000);
  // Pages that only the first and the last index lead to.
  b[0] = 200000;
  b[used - 1] = 210000;
  check_shapes(a, b);
  check_computed(a, b);
  check_chains(a, b);
  check_rows(a);
  for (size_t i = 0; i < used; ++i) b[i] = (int)(i * 48271 % 100000);
  check_ends(a, b);
  check_rest(a, b);
  check_marks(a);
  puts("counted");
  free(all);
  return 0;
}
FAR_LOCAL_END
