// Runs the loops of loops.c beside counting_runtime.c, and checks what is counted.
#include <stdio.h>
#include <stdlib.h>

#include "counting_runtime.h"

long sum(const long* a, size_t n);
void triad(double* restrict a, const double* b, const double* c, double factor, size_t n);
void backwards(int* restrict a, const int* b, int n);
long rows(const long* a, size_t n);
long sum_few(const long* a);
long pick(const long* a, const unsigned* indices, size_t n);
long sum_rows(const long* const* rows, size_t count, size_t n);
void copy_bytes(char* restrict to, const char* restrict from, size_t n);
void move_bytes(char* to, const char* from, size_t n);
void set_bytes(char* to, int value, size_t n);
long pick_rows(const long* a, const unsigned* const* rows, size_t count, size_t n);
long triple_and_mix(long* a, size_t n, int mixes);

static void expect(int condition, const char* condition_text, int line) {
  if (condition) return;
  printf("line %d: %s: %lu calls, %lu bytes now, %lu later, %lu writing, %lu guards\n", line, condition_text,
         (unsigned long)counted.calls, (unsigned long)counted.now_bytes, (unsigned long)counted.later_bytes,
         (unsigned long)counted.written_calls, (unsigned long)counted.guards);
  exit(1);
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)

static int spans(const void* from, size_t bytes) {
  return counted.low == (uintptr_t)from && counted.high == (uintptr_t)from + bytes;
}

// Pages begin to leave in the middle of the loop.
__attribute__((noinline)) static long sum_while_leaving(const long* a, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    total += a[i];
    has_evicted = i >= n / 2;
  }
  return total;
}

// Until the first page has left, there is nothing to report. A loop that runs then notices.
static void check_evictions(const long* numbers, const unsigned* indices, size_t n) {
  has_evicted = 0;
  reset_counts();
  EXPECT(sum(numbers, n) > 0 && pick(numbers, indices, n) > 0);
  EXPECT(counted.calls == 0 && counted.gathered == 0 && counted.guards == 0);
  EXPECT(sum_while_leaving(numbers, n) > 0);
  EXPECT(counted.now_bytes > n * 8 / 2 - (64 << 10) && counted.now_bytes <= n * 8 / 2);
  reset_counts();
  EXPECT(sum(numbers, n) > 0 && counted.now_bytes == n * 8);
}

static int are_bytes(const char* at, size_t n, size_t first) {
  for (size_t i = 0; i < n; ++i) {
    if (at[i] != (char)((first + i) * 7)) return 0;
  }
  return 1;
}

// Calls of the C library that move much memory are told of as loops are.
static void check_copies(void) {
  enum { bytes = 300000, edges = 2 * 4096 };
  char* const from = malloc(2 * bytes);
  char* const to = malloc(bytes);
  for (size_t i = 0; i < 2 * bytes; ++i) from[i] = (char)(i * 7);
  has_evicted = 1;
  reset_counts();
  copy_bytes(to, from, bytes);
  EXPECT(counted.now_bytes == 2 * bytes && counted.spoiled_bytes > bytes - edges && are_bytes(to, bytes, 0));
  reset_counts();
  set_bytes(to, 5, bytes);
  EXPECT(counted.now_bytes == bytes && counted.spoiled_bytes > bytes - edges && to[0] == 5 && to[bytes - 1] == 5);
  reset_counts();
  move_bytes(to, from + bytes, bytes);
  EXPECT(counted.now_bytes == 2 * bytes && counted.spoiled_bytes > bytes - edges && are_bytes(to, bytes, bytes));
  // Those that overlap, and short ones, are not.
  reset_counts();
  move_bytes(from, from + 5000, bytes);
  move_bytes(from + 100, from, bytes);
  copy_bytes(to, from, (16 << 10) - 1);
  EXPECT(counted.calls == 0 && counted.spoiled_bytes == 0 && are_bytes(from + 100, bytes, 5000));
  has_evicted = 0;
  copy_bytes(to, from + 100, bytes);
  has_evicted = 1;
  EXPECT(counted.calls == 0 && are_bytes(to, bytes, 5000));
  free(from);
  free(to);
}

// Numbers that the loop is going to read are not spoiled because an iteration alone has them apart.
static void check_overlap(size_t n) {
  enum { further = 1000 };
  long* const numbers = malloc((n + further) * sizeof *numbers);
  for (int mixes = 0; mixes < 2; ++mixes) {
    for (size_t i = 0; i < n + further; ++i) numbers[i] = (long)i;
    has_evicted = 1;
    reset_counts();
    EXPECT((triple_and_mix(numbers, n, mixes) != 0) == mixes);
    EXPECT(counted.spoiled_bytes == 0);
    for (size_t i = 0; i < n; ++i) EXPECT(numbers[i] == (long)(i + further) * 3);
  }
  free(numbers);
}

// Short rows tell of no stream, those up to 256 KiB once of all, and longer ones bit by bit; gathers are told of in
// all.
static void check_rows(const long* numbers, const unsigned* indices, size_t n) {
  const long* rows[] = {numbers, numbers + n / 2};
  const unsigned* indexed[] = {indices, indices + n / 2};
  has_evicted = 1;
  reset_counts();
  EXPECT(sum_rows(rows, 2, 1000) > 0 && counted.calls == 0);
  EXPECT(sum_rows(rows, 2, n / 8) > 0 && counted.calls == 4 && counted.now_bytes == n / 8 * 16);
  reset_counts();
  EXPECT(sum_rows(rows, 2, n / 2) > 0 && counted.now_bytes == n * 8 && counted.later_bytes == n * 8);
  EXPECT(spans(numbers, n * 8));
  reset_counts();
  EXPECT(pick_rows(numbers, indexed, 2, 100) > 0);
  EXPECT(counted.calls == 0 && counted.gathered > 100 && counted.gathered <= 200);
  EXPECT(pick_rows(numbers, indexed, 2, n / 2) > 0);
  EXPECT(counted.gathered > n / 2 && counted.now_bytes == n * 4 && spans(indices, n * 4));
  has_evicted = 0;
  reset_counts();
  EXPECT(sum_rows(rows, 2, n / 2) > 0 && pick_rows(numbers, indexed, 2, n / 2) > 0);
  EXPECT(counted.calls == 0 && counted.gathered == 0 && counted.guards == 0);
}

int main(void) {
  enum { n = 100000 };
  long* const numbers = calloc(n, sizeof *numbers);
  long right = 0;
  for (size_t i = 0; i < n; ++i) right += numbers[i] = (long)(i * i % 1000);

  // All of it, exactly once. No announcement goes beyond the end.
  reset_counts();
  EXPECT(sum(numbers, n) == right);
  EXPECT(counted.calls > n * 8 / (64 << 10));
  EXPECT(counted.now_bytes == n * 8 && counted.later_bytes == n * 8);
  EXPECT(spans(numbers, n * 8) && counted.written_calls == 0);

  reset_counts();
  EXPECT(sum(numbers, 1000) >= 0);
  EXPECT(counted.calls == 0);  // too short

  reset_counts();
  EXPECT(sum_few(numbers) >= 0);
  EXPECT(counted.calls == 0);

  reset_counts();
  EXPECT(rows(numbers, n / 16) > 0);
  EXPECT(spans(numbers, n / 16 * 128) && counted.now_bytes == n / 16 * 128);

  double* const a = calloc(3 * n, sizeof *a);
  reset_counts();
  triad(a, a + n, a + 2 * n, 2, n);
  // What is overwritten is not fetched ahead.
  EXPECT(counted.now_bytes == 3ul * n * 8 && counted.later_bytes == 2ul * n * 8);
  EXPECT(counted.spoiled_bytes <= n * 8 && counted.spoiled_bytes > n * 8 - 2 * 4096);
  EXPECT(spans(a, 3ul * n * 8));
  EXPECT(counted.written_calls == (n * 8 + 65535) / 65536);

  // Downwards: the range begins with the first element and ends before the one behind the last.
  int* const whole = calloc(2 * n, sizeof *whole);
  reset_counts();
  backwards(whole, whole + n, n);
  EXPECT(counted.now_bytes == 2ul * n * 4 && counted.later_bytes == 2ul * n * 4);
  EXPECT(spans(whole, 2ul * n * 4));
  EXPECT(whole[0] == 1 && whole[n - 1] == 1);

  unsigned* const indices = calloc(n, sizeof *indices);
  for (size_t i = 0; i < n; ++i) indices[i] = (unsigned)(i * 7919 % n);
  reset_counts();
  EXPECT(pick(numbers, indices, n) > 0);
  // The loop has no guards: the runtime waits for each page, and for those of the indices that are read ahead.
  EXPECT(counted.gathered > n / 2);
  EXPECT(counted.guards > n / 2 && counted.guards <= n + 4 * (n / 512 + 1));
  EXPECT(spans(indices, n * 4));
  check_evictions(numbers, indices, n);
  check_rows(numbers, indices, n);
  check_copies();
  check_overlap(n);
  puts("counted");
  free(numbers);
  free(a);
  free(whole);
  free(indices);
  return 0;
}
