// Accesses with the marks of far/local.h, whose code compile_marks_test.py looks at. One a function.
#include <far/local.h>
#include <stddef.h>
#include <stdlib.h>

struct item {
  long value;
  char text[100];
  struct item* next;
};

FAR_LOCAL long left_alone(const long* a, const unsigned* indices, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += a[indices[i]] + a[i];
  return total;
}

// The same accesses, by way of pointers with and without FAR_LOCAL_DATA: static ones, members, arguments, and others.
FAR_LOCAL_DATA long* local_numbers;
long* numbers;
long of_local_data(const unsigned* indices, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += local_numbers[i] + local_numbers[local_numbers[i] & 7];
  return total + local_numbers[indices[0]];
}
long of_data(const unsigned* indices, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) total += numbers[i] + numbers[numbers[i] & 7];
  return total + numbers[indices[0]];
}
struct table {
  FAR_LOCAL_DATA long* counts;
  long* others;
  FAR_LOCAL_DATA long used;
};
long of_local_member(struct table* const* tables, const unsigned* indices) {
  const struct table* const at = tables[0];  // the only guard
  return at->counts[indices[0]] + at->used;
}
long of_member(struct table* const* tables, const unsigned* indices) {
  return tables[0]->others[indices[0]];
}
long of_local_argument(FAR_LOCAL_DATA const long* a, const unsigned* indices, size_t n) {
  long total = a[indices[0]];
  for (size_t i = 0; i < n; ++i) total += a[i];
  return total;
}
long of_local_variable(const struct item* const* items, const unsigned* indices) {
  FAR_LOCAL_DATA const struct item* const at = items[indices[0]];  // the pointer itself is guarded
  return at->value + at->text[90];
}
FAR_LOCAL_BEGIN
static long* region_numbers;
void set_region_numbers(long* to) {
  region_numbers = to;
}
FAR_LOCAL_END
long of_local_region(const unsigned* indices) {
  return region_numbers[indices[0]];
}

// Memory of its own that stays local: by a call, and by where it goes.
long of_local_memory(const unsigned* indices, unsigned size) {
  long* const own = far_local_allocate(size * sizeof *own);
  for (unsigned i = 0; i < size; ++i) own[i] = i * 3l;
  const long found = own[indices[0]] + own[indices[1]];
  far_local_free(own, size * sizeof *own);
  return found;
}
void allocate_local(struct table* at, size_t n) {
  local_numbers = malloc(n * sizeof(long));
  FAR_LOCAL_DATA long* some = n > 3 ? calloc(n, sizeof(long)) : NULL;
  at->counts = realloc(some, 2 * n * sizeof(long));
  region_numbers = aligned_alloc(64, n * sizeof(long));
  at->others = malloc(n * sizeof(long));
}

FAR_FAR long of_argument(const struct item* at) {
  return at->value;
}
long of_usual_argument(const struct item* at) {
  return at->value;
}

// Hot: by members, by what a pointer leads to, by static arrays, by the pragma, and by type. `text` is not.
struct name {
  FAR_HOT long key;
  FAR_HOT struct name* next;
  char text[200];
};
long find_name(const struct name* at, long key) {
  for (; at != NULL; at = at->next) {
    if (at->key == key) return at->text[3];
  }
  return -1;
}
FAR_HOT static long tallies[4096];
void tally(const unsigned* text, size_t n) {
  for (size_t i = 0; i < n; ++i) tallies[text[i] & 4095]++;
}
long sum_tallies(void) {
  long total = 0;
  for (size_t i = 0; i < 4096; ++i) total += tallies[i];
  return total;
}
FAR_HOT static long* hot_numbers;
void set_hot_numbers(long* to) {
  hot_numbers = to;
}
long of_hot_data(const unsigned* indices) {
  return hot_numbers[indices[0]];
}
long of_hot_argument(FAR_HOT const struct item* at) {
  return at->value;
}
long of_hot_variable(const struct item* const* items) {
  FAR_HOT const struct item* const at = items[0];
  return at->value;
}
FAR_HOT_BEGIN
struct span {
  long from, to;
};
static long limits[8192];
FAR_HOT_END
void set_limit(size_t i, long to) {
  limits[i] = to;
}
long of_hot_members(const struct span* at) {
  return at->from > 3 ? at->to : 3;
}
struct node {
  long key;
  struct node* sides[2];
  struct span span;
};
FAR_HOT_TYPE(struct node);
long of_hot_type(const struct node* at) {
  return at->key;
}
long of_hot_types(struct node* const* nodes, size_t i) {
  return nodes[0]->sides[i & 1] != NULL;
}
// A copy in registers has no mark left, and two reads of a member are one.
long on_stack_though_hot(long from) {
  const struct span one = {from, 2};
  return one.from + one.to;
}
long twice(const struct span* at) {
  return at->from + at->from;
}
