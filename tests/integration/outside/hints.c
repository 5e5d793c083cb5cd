/* A program with hints: the same binary alone and under `farheap run`. */
#include <far/hint.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  const size_t count = (size_t)8 << 20; /* 64 MiB */
  unsigned long* numbers = malloc(count * sizeof *numbers);
  if (numbers == NULL) return 1;
  for (size_t i = 0; i < count; i++) {
    far_hint(&numbers[i], .mutate = true, .sequential = true);
    numbers[i] = i;
  }
  unsigned long sum = 0;
  for (size_t i = 0; i < count; i++) {
    far_hint(&numbers[i], .read_ahead = 64, .sequential = true);
    sum += numbers[i];
  }
  printf("%s\n", sum == count * (count - 1) / 2 ? "right" : "wrong");
  free(numbers);
  return 0;
}
