// Reads 64 MiB that it has written, in order ("walk"), here and there ("pick"), at four places at once
// ("fours"), or by an array of indices ("gather").
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { count = 8 << 20, picked = 50000 };

int main(int arguments, char** argument) {
  unsigned long* const numbers = malloc(count * sizeof *numbers);
  if (arguments < 2 || numbers == NULL) return 2;
  unsigned long right = 0;
  unsigned long found = 0;
  for (size_t i = 0; i < count; ++i) numbers[i] = i * 3;
  if (strcmp(argument[1], "walk") == 0) {
    for (int round = 0; round < 2; ++round) {
      for (size_t i = 0; i < count; ++i) found += numbers[i] ^ (unsigned)round;
      for (size_t i = 0; i < count; ++i) right += (i * 3) ^ (unsigned)round;
    }
  } else if (strcmp(argument[1], "gather") == 0) {
    unsigned* const indices = malloc(picked * sizeof *indices);
    if (indices == NULL) return 2;
    for (size_t i = 0; i < picked; ++i) {
      indices[i] = (unsigned)(i * 0x9e3779b97f4a7c15ul >> 41);
      right += indices[i] * 3ul;
    }
    for (size_t i = 0; i < picked; ++i) found += numbers[indices[i]];
    free(indices);
  } else if (strcmp(argument[1], "fours") == 0) {
    for (size_t i = 0; i < 5000 && found != 1; ++i) {
      const size_t at = i * 0x9e3779b97f4a7c15ul >> 43;
      found += numbers[at] + numbers[at + count / 4] + numbers[at + count / 2] + numbers[at + count / 4 * 3];
      right += 12 * at + 9 * (count / 2);
    }
  } else {
    for (size_t i = 0; i < 20000; ++i) {
      const size_t at = i * 0x9e3779b97f4a7c15ul >> 41;
      found += numbers[at];
      right += at * 3;
    }
  }
  puts(found == right ? "right" : "wrong");
  free(numbers);
  return 0;
}
