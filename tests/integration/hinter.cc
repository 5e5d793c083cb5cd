/* C and C++. Walks over more memory than the budget, at random and in order, with hints, and checks every value. Built
 * in several ways by hints_test.py; knows nothing of Farheap but the header. */
#include <far/hint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define PAGE_NUMBERS 512

static uint64_t value_of(size_t at) {
  return at * 0x9e3779b97f4a7c15u;
}

static size_t numbers;
static size_t wrong;

static void walk(void) {
  uint64_t* const all = (uint64_t*)malloc(numbers * sizeof(uint64_t));
  uint64_t random = 88172645463325252u;
  if (all == NULL) abort();
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
    if (i % 2 == 0) far_hint(&all[at], .mutate = i % 4 == 0, .prefetch = true);
    far_hint(&all[at], .mutate = i % 4 == 0, .eviction_priority = (unsigned char)(i % 4));
    wrong += all[at] != value_of(at);
    if (i % 4 == 0) all[at] = value_of(at);
    if (i % 64 == 0) {
      char* const passing = (char*)malloc(1 << 20);
      if (passing == NULL) abort();
      memset(passing, 1, 5000);
      free(passing);
    }
  }
  free(all);
}

/* The stack of a coroutine, say: far memory like any other. */
static void walk_on_far_stack(void) {
  const size_t stack_bytes = 256 << 10;
  ucontext_t caller;
  ucontext_t on_far_stack;
  char* const stack = (char*)malloc(stack_bytes);
  if (stack == NULL || getcontext(&on_far_stack) != 0) abort();
  on_far_stack.uc_stack.ss_sp = stack;
  on_far_stack.uc_stack.ss_size = stack_bytes;
  on_far_stack.uc_link = &caller;
  makecontext(&on_far_stack, walk, 0);
  if (swapcontext(&caller, &on_far_stack) != 0) abort();
  free(stack);
}

int main(int count, char** arguments) {
  numbers = (size_t)(count > 1 ? atoi(arguments[1]) : 64) << 17; /* MiB */
  if (count > 2 && strcmp(arguments[2], "far-stack") == 0) {
    walk_on_far_stack();
  } else {
    walk();
  }
  printf("%zu wrong, hints %s\n", wrong, far_hint_view_here != NULL ? "bound" : "unbound");
  return wrong == 0 ? 0 : 1;
}
