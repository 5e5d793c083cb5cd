// Loops over indices, to count their instructions (docs/decisions/0082-gathers-without-guards.md): a sum by indices
// ("gather"), a histogram ("scatter"), the product of a sparse matrix and a vector ("product"), or nothing ("none").
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { count = 1000000, rows = 1000 };

__attribute__((noinline)) static double gather(const double* a, const int* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += a[b[i]];
  return sum;
}

__attribute__((noinline)) static void scatter(int* a, const int* b, size_t n) {
  for (size_t i = 0; i < n; ++i) a[b[i]]++;
}

__attribute__((noinline)) static void product(const int* ends, const int* columns, const double* values,
                                              const double* x, double* y, int n) {
  for (int i = 0; i < n; ++i) {
    double sum = 0;
    for (int k = ends[i]; k < ends[i + 1]; ++k) sum += values[k] * x[columns[k]];
    y[i] = sum;
  }
}

int main(int arguments, char** argument) {
  double* const a = malloc(count * sizeof *a);
  int* const b = malloc(count * sizeof *b);
  int* const counters = calloc(count, sizeof *counters);
  static int ends[rows + 1];
  static double y[rows];
  if (arguments < 2 || a == NULL || b == NULL || counters == NULL) return 2;
  for (size_t i = 0; i < count; ++i) {
    a[i] = (double)i;
    b[i] = (int)(i * 2654435761u % count);
  }
  for (int i = 0; i <= rows; ++i) ends[i] = i * (count / rows);
  double result = 0;
  for (int i = 0; i < 3; ++i) {
    if (strcmp(argument[1], "gather") == 0) result += gather(a, b, count - (size_t)i);
    if (strcmp(argument[1], "scatter") == 0) scatter(counters, b, count);
    if (strcmp(argument[1], "product") == 0) product(ends, b, a, a, y, rows);
  }
  printf("%g\n", result + counters[5] + y[5]);
  free(a);
  free(b);
  free(counters);
  return 0;
}
