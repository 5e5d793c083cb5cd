/* A C program that uses Farheap without knowing it, through a library. */
#include <stdio.h>

long count_far(long numbers);

int main(void) {
  const long numbers = 4L << 20; /* 32 MiB, twice the library's budget */
  const long counted = count_far(numbers);
  printf("%ld of %ld\n", counted, numbers);
  return counted == numbers ? 0 : 1;
}
