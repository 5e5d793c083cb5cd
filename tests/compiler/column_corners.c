// Columns whose reports share what they compute, with counters of every kind, beside other loops. Compiled with all
// passes verified. Prints what the loops compute, which no compiler changes.
#include <stdio.h>
#include <stdlib.h>

#define ALONE __attribute__((noinline))

enum { rows = 1000, apart = 640, few = 64 };

// Two columns of one distance.
ALONE long dot(const long* a, const long* b, size_t n) {
  long total = 0;
  for (size_t i = 0; i < few; ++i) total += a[i * n] * b[i * n];
  return total;
}

// Rows of the outer loop beside a column of an inner one.
ALONE long nest(const long* a, const long* b, size_t n, size_t m, size_t q) {
  long total = 0;
  for (size_t i = 0; i < m; ++i) {
    for (size_t k = 0; k < 24; ++k) total = total * 3 + a[i * n + k];
    for (size_t k = 0; k < q; ++k) total += b[k * n];
  }
  return total;
}

ALONE long half_counter(const long* p, size_t n, unsigned m) {
  long total = 0;
  for (unsigned i = 0; i < m; ++i, p += n) {
    for (size_t k = 0; k < 24; ++k) total = total * 3 + p[k];
  }
  return total;
}

volatile unsigned char seen;
ALONE long counter_that_wraps(const long* p, size_t n, size_t m) {
  long total = 0;
  unsigned char count = 0;
  for (size_t i = 5; i < m; ++i, ++count) {
    for (size_t k = 0; k < 24; ++k) total = total * 3 + p[i * n + k];
    seen = count;
  }
  return total;
}

#define AT(k) +a[i * n + 400 - (k)]
#define AT8(k) AT(k) AT(k + 1) AT(k + 2) AT(k + 3) AT(k + 4) AT(k + 5) AT(k + 6) AT(k + 7)
#define AT64(k) AT8(k) AT8(k + 8) AT8(k + 16) AT8(k + 24) AT8(k + 32) AT8(k + 40) AT8(k + 48) AT8(k + 56)
// A row of many accesses, the last of them first.
ALONE long wide(const long* a, const long* b, size_t n, size_t m) {
  long total = 0;
  for (size_t i = 0; i < m; ++i) total += b[i] AT64(0) AT64(64) AT64(128);
  return total;
}

ALONE long atomic_column(const long* a, size_t n, size_t m) {
  long total = 0;
  for (size_t i = 0; i < m; ++i) total += __atomic_load_n(a + i * n, __ATOMIC_ACQUIRE);
  return total;
}

ALONE long recursive(const long* a, size_t n, size_t m, const long* b) {
  long total = 0;
  for (size_t i = 0; i < m; ++i) {
    for (size_t k = 0; k < 24; ++k) total = total * 3 + a[i * n + k];
    if (i == 300 && b != NULL) total ^= recursive(b, n, 20, NULL);
  }
  return total;
}

ALONE long four(const long* a, const long* b, long* c, const long* d, size_t n, size_t m) {
  long total = 0;
  for (size_t i = 0; i < m; ++i) {
    total += a[i * n] ^ b[i * n + 1];
    c[i * n] += d[i * n + 2];
  }
  return total;
}

int main(void) {
  const size_t count = (size_t)rows * apart + apart;
  long* const a = malloc(count * sizeof *a);
  long* const b = malloc(count * sizeof *b);
  if (a == NULL || b == NULL) return 2;
  for (size_t i = 0; i < count; ++i) {
    a[i] = (long)(i * 31 % 1009);
    b[i] = (long)(i * 17 % 2003);
  }
  for (int round = 0; round < 3; ++round) {
    printf("%ld %ld %ld ", dot(a, b, apart), nest(a, b, apart, 40, 200), half_counter(a, apart, rows));
    printf("%ld %ld ", counter_that_wraps(a, apart, rows), wide(a, b, apart, rows));
    printf("%ld %ld ", atomic_column(a, apart, rows), recursive(a, apart, rows, b));
    printf("%ld\n", four(a, b, a + 3, b, apart, rows));
  }
  free(a);
  free(b);
  return 0;
}
