/* C and C++. Walks over more memory than the budget, at random and in order, with hints, and checks every value. Built
 * in several ways by hints_test.py; knows nothing of Farheap but the header. */
#include <far/hint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_NUMBERS 512

static uint64_t value_of(size_t at) {
  return at * 0x9e3779b97f4a7c15u;
}

int main(int count, char** arguments) {
  const size_t numbers = (size_t)(count > 1 ? atoi(arguments[1]) : 64) << 17; /* MiB */
  uint64_t* const all = (uint64_t*)malloc(numbers * sizeof(uint64_t));
  uint64_t random = 88172645463325252u;
  size_t wrong = 0;
  if (all == NULL) return 2;
  for (size_t i = 0; i < numbers; ++i) all[i] = value_of(i);
  for (size_t i = 0; i < numbers; i += 8) {
    far_hint(&all[i], .read_ahead = 16, .sequential = true);
    wrong += all[i] != value_of(i);
  }
  for (size_t i = 0; i < 20000; ++i) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    const size_t at = random % numbers;
    far_hint(&all[at], .mutate = i % 4 == 0, .eviction_priority = (unsigned char)(i % 4));
    wrong += all[at] != value_of(at);
    if (i % 4 == 0) all[at] = value_of(at);
  }
  printf("%zu wrong, hints %s\n", wrong, far_hint_view_here != NULL ? "bound" : "unbound");
  free(all);
  return wrong == 0 ? 0 : 1;
}
