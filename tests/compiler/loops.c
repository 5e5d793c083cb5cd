// Loops and accesses whose code compile_test.py looks at. One a function.
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

long sum(const long* a, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += a[i];
  return total;
}

void triad(double* restrict a, const double* b, const double* c, double factor, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = b[i] + factor * c[i];
}

void backwards(int* restrict a, const int* b, int n) {
  for (int i = n - 1; i >= 0; --i) a[i] = b[i] + 1;
}

// The inner loop is too short: the outer one tells of its walk.
long rows(const long* a, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i)
    for (int k = 0; k < 16; ++k) total += a[i * 16 + (size_t)k] * (k + 1);
  return total;
}

// One stream: they are on the same page.
void smooth(double* restrict a, const double* b, size_t n) {
  for (size_t i = 1; i < n; ++i) a[i] = b[i - 1] + b[i] + b[i + 1];
}

// Rows may be short: they take a copy of the loop.
long sum_rows(const long* const* rows, size_t count, size_t n) {
  long total = 0;
  for (size_t r = 0; r < count; ++r) {
    const long* const row = rows[r];
    long sum = 0;
    for (size_t i = 0; i < n; ++i) sum += row[i];
    total = total * 3 + sum;
  }
  return total;
}
long pick_rows(const long* a, const unsigned* const* rows, size_t count, size_t n) {
  long total = 0;
  for (size_t r = 0; r < count; ++r) {
    const unsigned* const row = rows[r];
    for (size_t i = 0; i < n; ++i) total += a[row[i]];
    total *= 3;
  }
  return total;
}

static long table[1 << 16];
long sum_static(size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += table[i & 0xff] + table[i];
  return total;
}

long sum_few(const long* a) {
  long total = 0;
  for (size_t i = 0; i < 100; ++i) total += a[i];
  return total;
}

struct item {
  struct item* next;
  long key;
  long value;
};

// A guard for each item: its fields share it.
long find(const struct item* from, long key) {
  for (const struct item* at = from->next; at != NULL; at = at->next) {
    if (at->key == key) return at->value;
  }
  return 0;
}

size_t until(const long* a, size_t n, long bad) {
  size_t i = 0;
  while (i < n && a[i] != bad) ++i;
  return i;
}

long pick(const long* a, const unsigned* indices, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += a[indices[i]];
  return total;
}

// The loop looks ahead itself.
long pick_computed(const long* a, const unsigned* indices, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += a[indices[i] * 7919ul & 0xffff];
  return total;
}

// Nobody knows how far the loop goes.
long pick_until(const long* a, const unsigned* indices, size_t n, long last) {
  long total = 0;
  for (size_t i = 0; i < n && total != last; ++i) total += a[indices[i] * 7919ul & 0xffff];
  return total;
}

// Guards that depend on none of the accesses are checked together; that of `b` comes behind a store.
long distance(const long* a, const long* b, const unsigned* x, const unsigned* y, size_t n, long most) {
  long total = 0;
  for (size_t i = 0; i < n && total < most; ++i) {
    const long one = a[x[i]], other = b[y[i]];
    total += one < other ? other - one : one - other;
  }
  return total;
}
void exchange(long* a, long* b, const unsigned* x, const unsigned* y, size_t n, long most) {
  for (size_t i = 0; i < n && a[0] < most; ++i) {
    a[x[i]] = (long)i;
    b[y[i]] = (long)i;
  }
}
// Fields that are far from one another, on one page for sure.
struct node {
  struct node* next;
  char text[900];
  long value;
  char other_page[5000];
  long last;
};
long ends(struct node* const* nodes, const unsigned* x, size_t n, long most) {
  long total = 0;
  for (size_t i = 0; i < n && total < most; ++i) {
    const struct node* const at = __builtin_assume_aligned(nodes[i & x[0]], 4096);
    total += at->next != NULL ? at->value : 0;
  }
  return total;
}
long unaligned_ends(struct node* const* nodes, const unsigned* x, size_t n, long most) {
  long total = 0;
  for (size_t i = 0; i < n && total < most; ++i) {
    const struct node* const at = nodes[i & x[0]];
    total += at->next != NULL ? at->value : 0;
  }
  return total;
}
long both_pages(struct node* const* nodes, const unsigned* x, size_t n, long most) {
  long total = 0;
  for (size_t i = 0; i < n && total < most; ++i) {
    const struct node* const at = __builtin_assume_aligned(nodes[i & x[0]], 4096);
    total += at->next != NULL ? at->last : 0;
  }
  return total;
}
long chain(const long* a, const unsigned* x, size_t n, long most) {
  long total = 0;
  for (size_t i = 0; i < n && total < most; ++i) total += a[a[x[i]]];
  return total;
}

// The guard of what does not change is before the loop.
void count(long** counters, const char* text, size_t n) {
  long* const counter = counters[3];
  for (size_t i = 0; i < n; ++i) {
    if (text[i] == 'a') __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
    if (text[i] == 'b') counter[1] = (long)i;
  }
}

// Addresses that advance need no guard, though they are not in order: by one byte or by many, back and forth.
size_t unescape(char* const* texts, const unsigned char* lengths) {
  const char* from = texts[0];
  char* to = texts[1];
  while (*from != 0) {
    if (*from == '%') {
      from += lengths[1];
      continue;
    }
    for (int shift = *from == '+' ? 7 : 0; shift >= 0; shift -= 7) *to++ = (char)(*from >> shift);
    ++from;
  }
  return (size_t)(to - texts[1]);
}
// But these do: by many only, to another place at times, and from a place that advances.
size_t hop(char* const* texts, const unsigned char* lengths) {
  const char* from = texts[0];
  while (*from != 0) from += lengths[(unsigned char)*from];
  return (size_t)(from - texts[0]);
}
size_t turn(char* const* texts) {
  const char* from = texts[0];
  size_t steps = 0;
  for (; *from != 0; ++steps) from = *from == '%' ? texts[from[1]] : from + 1;
  return steps;
}
size_t look_back(long* const* arrays, const unsigned* distances, long last) {
  const long* at = arrays[0];
  size_t i = 0;
  for (long total = 0; total != last; ++i) {
    total += at[-(long)distances[i]];
    if ((i & 1) != 0) {
      ++at;
      srand((unsigned)i);
    } else {
      at += distances[i];
    }
  }
  return i;
}

long on_stack(const unsigned* indices) {
  long local[64];
  for (size_t i = 0; i < 64; ++i) local[i] = rand();
  return local[indices[0] & 63] + local[indices[1] & 63];
}

// Not all that these pass is overwritten before anybody can read it.
void shift(long* a, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = a[i + 1000] * 3;
}

void of_another(long* a, const long* b, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = b[i] * 3;
}

// Allocated memory may hold the one and then the other.
void of_another_type(double* a, const long* b, size_t n) {
  for (size_t i = 0; i < n; ++i) a[i] = (double)b[1000 * i];
}

void every_second(long* restrict a, const long* b, size_t n) {
  for (size_t i = 0; i < n; ++i) a[2 * i] = b[i];
}

void in_sight(long* restrict a, const long* b, volatile size_t* position, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    a[i] = b[i];
    *position = i;
  }
}

// `restrict` means each element alone.
static inline __attribute__((always_inline)) void triple(long* restrict to, const long* restrict from) {
  *to = *from * 3;
}
void triple_all(long* a, size_t n) {
  for (size_t i = 0; i < n; ++i) triple(&a[i], &a[i + 1000]);
}
// With -O3 the loop is there twice, for either value of `mixes`, and so are the declarations of what `restrict` means.
long triple_and_mix(long* a, size_t n, int mixes) {
  long mixed = 0;
  for (size_t i = 0; i < n; ++i) {
    triple(&a[i], &a[i + 1000]);
    if (mixes) mixed = (mixed ^ (long)i) * 31;
  }
  return mixed;
}

void copy_bytes(char* restrict to, const char* restrict from, size_t n) {
  memcpy(to, from, n);
}
void move_bytes(char* to, const char* from, size_t n) {
  memmove(to, from, n);
}
void set_bytes(char* to, int value, size_t n) {
  memset(to, value, n);
}

// A guard outside of loops.
long value_of_next(const struct item* from) {
  return from->next->value;
}
