// Reads 64 MiB that it has written, in order ("walk"), here and there ("pick"), at four places at once
// ("fours"), by an array of indices ("gather"), by pointers in a table, here and there ("chains"), or as a matrix by
// columns of 256 bytes ("columns").
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
  } else if (strcmp(argument[1], "chains") == 0) {
    enum { pointers = 1 << 15 };
    unsigned long** const table = malloc(pointers * sizeof *table);
    if (table == NULL) return 2;
    for (size_t i = 0; i < pointers; ++i) table[i] = &numbers[i * 0x9e3779b97f4a7c15ul >> 41];
    for (size_t i = 0; i < 20000; ++i) {
      found += *table[i * 0x2545f4914f6cdd1dul >> 49];
      right += ((i * 0x2545f4914f6cdd1dul >> 49) * 0x9e3779b97f4a7c15ul >> 41) * 3;
    }
    free(table);
  } else if (strcmp(argument[1], "columns") == 0) {
    enum { wide = 32 };
    unsigned long block[256 * wide];
    const size_t rows = 128 * (size_t)arguments;
    const size_t apart = count / rows;
    for (size_t from = 0; from < apart; from += wide) {
      for (size_t row = 0; row < rows; ++row)
        memcpy(&block[row * wide], &numbers[row * apart + from], wide * sizeof *block);
      for (size_t i = 0; i < rows * wide; ++i) {
        found += block[i] ^ i;
        right += (i / wide * apart + from + i % wide) * 3 ^ i;
      }
    }
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
