// Loops through columns, beside counting_runtime.c: rows that begin a page and more apart, by a distance that is known
// only when the loop runs. The runtime is told of the pages of these rows, before the loop is there.
#include <far/local.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expected_pages.h"

#define ALONE __attribute__((noinline))

// Rows of 256 bytes: clang makes a call of memcpy() of them.
ALONE void take_rows(double* restrict to, const double* restrict from, size_t rows, size_t apart) {
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < 32; ++k) to[i * 32 + k] = from[i * apart + k];
  }
}

ALONE void put_rows(double* restrict to, const double* restrict from, size_t rows, size_t apart) {
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < 32; ++k) to[i * apart + k] = from[i * 32 + k];
  }
}

// By an inner loop, which LLVM may unroll, ...
ALONE long sum_rows(const long* a, size_t rows, size_t apart) {
  long total = 0;
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < 24; ++k) total = total * 3 + a[i * apart + k];
  }
  return total;
}

// ... and the last element first.
ALONE void add_to_rows(int* a, size_t rows, size_t apart) {
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 100; k > 0; --k) a[i * apart + k - 1] += (int)(i ^ k);
  }
}

ALONE void clear_rows(char* a, size_t rows, size_t apart) {
  for (size_t i = 0; i < rows; ++i) memset(a + i * apart, 7, 100);
}

// Single elements: the iterations are short, so the loop is split.
ALONE long sum_column(const long* a, size_t rows, size_t apart) {
  long total = 0;
  for (size_t i = 0; i < rows; ++i) total += a[i * apart];
  return total;
}

ALONE long sum_backwards(const long* a, long rows, long apart) {
  long total = 0;
  for (long i = rows - 1; i >= 0; --i) total = total * 3 + a[i * apart];
  return total;
}

// So few are reported once, in front of the loop.
ALONE long sum_few(const long* a, size_t apart) {
  long total = 0;
  for (size_t i = 0; i < 64; ++i) total = total * 5 + a[i * apart];
  return total;
}

// The loop may end before its last iteration, so nobody knows how many there are: guards.
ALONE long until(const long* a, size_t rows, size_t apart, long last) {
  long total = 0;
  for (size_t i = 0; i < rows && total != last; ++i) total = total * 3 + a[i * apart];
  return total;
}

// What a pointer leads to that lies there is looked ahead for, too (followed.c), and not only the column.
ALONE long follow_column(long* const* a, size_t rows, size_t apart) {
  long total = 0;
  for (size_t i = 0; i < rows; ++i) total += *a[i * apart];
  return total;
}

// Rows that an index leads to are a gather.
struct record {
  char bytes[300];
};
ALONE void take_records(struct record* restrict to, const struct record* restrict from, const unsigned* restrict places,
                        size_t n) {
  for (size_t i = 0; i < n; ++i) memcpy(to, &from[places[i]], sizeof *to);
}

// It writes to the indices.
ALONE void mend_places(unsigned* places, const struct record* from, size_t n) {
  for (size_t i = 0; i < n; ++i) memcpy(&places[i], &from[places[i]], sizeof *places * 8);
}

FAR_LOCAL_BEGIN
enum { elements = 1 << 20 };

static void use_bytes(const void* from, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) use((const char*)from + i);
}

static void expect_rows(const void* from, size_t rows, long apart_bytes, size_t bytes) {
  begin();
  for (size_t i = 0; i < rows; ++i) use_bytes((const char*)from + (long)i * apart_bytes, bytes);
}

// Of each loop's first walk: exactly the pages of its rows, which cross pages here and there.
static void check_rows(double* a) {
  enum { rows = 700, apart = 1027 };
  double* const block = calloc(rows * 32, sizeof *block);
  for (size_t i = 0; i < elements; ++i) a[i] = (double)(i % 8191);
  expect_rows(a + 500, rows, apart * 8, 256);
  take_rows(block, a + 500, rows, apart);
  EXPECT(is_told() && counted.gathered_to_write == 0);
  for (size_t i = 0; i < rows * 32; ++i) EXPECT(block[i] == a[500 + i / 32 * apart + i % 32]);
  expect_rows(a + 490, rows, apart * 8, 256);
  put_rows(a + 490, block, rows, apart);
  EXPECT(is_told() && counted.gathered_to_write == counted.gathered);
  for (size_t i = 0; i < rows * 32; ++i) EXPECT(block[i] == a[490 + i / 32 * apart + i % 32]);
  free(block);

  long* const numbers = (long*)(void*)a;
  for (size_t i = 0; i < elements; ++i) numbers[i] = (long)i;
  expect_rows(numbers + 509, 100, 8 * 9000, 24 * 8);
  EXPECT(sum_rows(numbers + 509, 100, 9000) != 1 && is_told());
  int* const halves = (int*)(void*)a;
  expect_rows(halves + 1000, 100, 4 * 9001, 400);
  add_to_rows(halves + 1000, 100, 9001);
  EXPECT(is_told() && counted.gathered_to_write == counted.gathered);
  expect_rows(halves, 300, 9999, 100);
  clear_rows((char*)halves, 300, 9999);
  EXPECT(is_told() && counted.gathered_to_write == counted.gathered);
}

static void check_columns(long* a) {
  for (size_t i = 0; i < elements; ++i) a[i] = (long)i;
  expect_rows(a + 3, 1600, 8 * 600, 8);
  EXPECT(sum_column(a + 3, 1600, 600) == 1600 * 3 + 600L * 1599 * 800 && is_told() &&
         counted.guards >= counted.gathered);
  EXPECT(counted.gathered_to_write == 0);
  // Neighbours are passed on together, and rows on one page are not looked at one by one.
  expect_rows(a + 7, 100000, 80, 8);
  EXPECT(sum_column(a + 7, 100000, 10) != 1 && is_told());
  reset_counts();
  EXPECT(sum_column(a + 7, 1000, 0) == 7000 && counted.gathered == 1);
  expect_rows(a + 9, 900, 8 * 1100, 8);
  EXPECT(sum_backwards(a + 9, 900, 1100) != 1 && is_told());
  expect_rows(a + elements - 3, 800, -8 * 1200, 8);
  EXPECT(sum_column(a + elements - 3, 800, (size_t)-1200L) != 1 && is_told());
  expect_rows(a + 5, 64, 8 * 800, 8);
  EXPECT(sum_few(a + 5, 800) != 1 && is_told());
  reset_counts();
  EXPECT(until(a, 300, 700, 1) != 1 && counted.gathered == 0 && counted.guards > 0);
}

// Walks that follow one another closely look ahead for those to come, and then rest until they are there.
static void check_neighbours(long* a) {
  enum { rows = 100, apart = 5120 };
  size_t quiet = 0;
  for (size_t i = 0; i < 2 * 512; i += 8) {
    expect_rows(a + i, rows, apart * 8, 24 * 8);
    EXPECT(sum_rows(a + i, rows, apart) != 1);
    if (counted.gathered == 0) ++quiet;
  }
  EXPECT(quiet > 100);
  // When pages have left, it looks again.
  reset_counts();
  has_evicted += 100;
  EXPECT(sum_rows(a + 1016, rows, apart) != 1 && counted.gathered >= rows);
  // All is there.
  set_states(1);
  reset_counts();
  EXPECT(sum_rows(a + 9000, rows, apart) != 1 && counted.gathered == 0 && counted.guards == 0);
  set_states(2);
  has_evicted = 0;
  reset_counts();
  EXPECT(sum_rows(a, rows, apart) != 1 && counted.gathered == 0 && counted.guards == 0);
  has_evicted = 1;
}

static void check_others(long* a) {
  enum { n = 5000 };
  long** const table = calloc(300 * 700, sizeof *table);
  begin();
  for (size_t i = 0; i < 300; ++i) {
    table[i * 700] = a + i * 3000;
    use(&table[i * 700]);
    use(a + i * 3000);
  }
  EXPECT(follow_column(table, 300, 700) != 1 && is_told());
  free(table);
  const struct record* const records = (const struct record*)(const void*)a;
  unsigned* const places = calloc(n + 8, sizeof *places);
  struct record* const to = calloc(1, sizeof *to);
  begin();
  for (size_t i = 0; i < n; ++i) {
    places[i] = (unsigned)(i * 7919 % 20000);
    use(&records[places[i]]);
  }
  take_records(to, records, places, n);
  EXPECT(is_told() && counted.gathered_to_write == 0);
  reset_counts();
  memset(a, 0, elements * sizeof *a);
  mend_places(places, records, n);
  EXPECT(counted.gathered == 0);
  free(to);
  free(places);
}

int main(void) {
  long* const a = calloc(elements, sizeof *a);
  check_rows((double*)(void*)a);
  check_columns(a);
  check_neighbours(a);
  check_others(a);
  puts("counted");
  free(a);
  return 0;
}
FAR_LOCAL_END
