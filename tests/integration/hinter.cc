/* C and C++. Walks over more memory than the budget, at random and in order, with hints, and checks every value. Built
 * in several ways by hints_test.py; knows nothing of Farheap but the header. */
#include <far/hint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

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

/* A hint brings pages on their way, and the very next thing is a system call into one of them: the thread that asked
 * for them waits inside the kernel. */
static void read_into_what_was_hinted(void) {
  char* const all = (char*)malloc(numbers * sizeof(uint64_t));
  const size_t pages = numbers / PAGE_NUMBERS;
  int ends[2];
  if (all == NULL || pipe(ends) != 0) abort();
  for (size_t page = 0; page < pages; ++page) memset(all + page * 4096, (int)(page % 251), 4096);
  for (size_t page = 0; page + 64 < pages / 2; page += 151) {
    char* const wanted = all + (page + 20) * 4096 + 100;
    if (write(ends[1], "x", 1) != 1) abort();
    far_hint(all + page * 4096, .read_ahead = 40, .prefetch = true);
    if (read(ends[0], wanted, 1) != 1) abort();
    wrong += wanted[0] != 'x' || (unsigned char)wanted[1] != (page + 20) % 251;
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
  } else if (count > 2 && strcmp(arguments[2], "into") == 0) {
    read_into_what_was_hinted();
  } else {
    walk();
  }
  printf("%zu wrong, hints %s\n", wrong, far_hint_view_here != NULL ? "bound" : "unbound");
  return wrong == 0 ? 0 : 1;
}
