/* Its own memcpy() is a call of memmove(), or, with -DMEMMOVE, the other way round. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef MEMMOVE
void* memmove(void* to, const void* from, size_t bytes) {
  char* const target = to;
  const char* const source = from;
  if (target - source >= (long)bytes || source - target >= (long)bytes) return memcpy(to, from, bytes);
  for (size_t i = 0; i < bytes; ++i) {
    /* From the end that leaves what is still to be read. */
    const size_t at = target > source ? bytes - 1 - i : i;
    __asm__ volatile("" : : : "memory"); /* clang would call memmove() */
    target[at] = source[at];
  }
  return to;
}
#else
void* memcpy(void* to, const void* from, size_t bytes) {
  return memmove(to, from, bytes);
}
#endif

static const size_t bytes = 16 << 20;

static int is_right(const unsigned* numbers, unsigned from) {
  for (unsigned i = 0; i < bytes / sizeof *numbers; ++i) {
    if (numbers[i] != i + from) return 0;
  }
  return 1;
}

int main(void) {
  unsigned* const first = malloc(bytes + 4096);
  unsigned* const second = malloc(bytes + 4096);
  if (first == NULL || second == NULL) return 2;
  for (unsigned i = 0; i < bytes / sizeof *first; ++i) first[i] = i;
  memcpy(second, first, bytes);
  int right = is_right(second, 0);
  for (unsigned i = 0; i < bytes / sizeof *first; ++i) first[i] += 7;
  memmove(second, first, bytes);
  right &= is_right(second, 7);
  memmove(second + 1024, second, bytes); /* upwards, onto itself, and back */
  right &= is_right(second + 1024, 7);
  memmove(second, second + 1024, bytes);
  right &= is_right(second, 7);
  puts(right ? "right" : "wrong");
  free(first);
  free(second);
  return 0;
}
