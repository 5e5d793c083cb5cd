// Reads two arrays here and there, a large and a small one, until a certain sum. With little local memory only the
// large one misses.
#include <stdio.h>
#include <stdlib.h>

enum { count = 8 << 20, small = 1024, picked = 10000 };

__attribute__((noinline)) static unsigned long of_large(const unsigned long* a, const unsigned* x, unsigned long end) {
  unsigned long sum = 0;
  for (size_t i = 0; i < picked && sum != end; ++i) sum += a[x[i] * 4];
  return sum;
}

__attribute__((noinline)) static unsigned long of_small(const unsigned long* a, const unsigned* x, unsigned long end) {
  unsigned long sum = 0;
  for (size_t i = 0; i < picked && sum != end; ++i) sum += a[x[i] % small];
  return sum;
}

int main(void) {
  unsigned long* const large = malloc(count * sizeof *large);
  unsigned long* const few = malloc(small * sizeof *few);
  unsigned* const x = malloc(picked * sizeof *x);
  if (large == NULL || few == NULL || x == NULL) return 2;
  for (size_t i = 0; i < count; ++i) large[i] = i;
  for (size_t i = 0; i < small; ++i) few[i] = i;
  for (size_t i = 0; i < picked; ++i) x[i] = (unsigned)(i * 2654435761u) % (count / 4);
  printf("%lu %lu\n", of_large(large, x, 1), of_small(few, x, 1));
  free(large);
  free(few);
  free(x);
  return 0;
}
