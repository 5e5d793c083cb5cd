// 64 MiB that are written and read again: memory that stays local ("local"), or of malloc().
#include <far/local.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { count = 8 << 20 };

int main(int arguments, char** argument) {
  if (arguments < 2) return 2;
  const int is_local = strcmp(argument[1], "local") == 0;
  unsigned long* const numbers =
      is_local ? far_local_allocate(count * sizeof *numbers) : calloc(count, sizeof *numbers);
  if (numbers == NULL) return 2;
  int is_right = numbers[0] == 0 && numbers[count - 1] == 0;
  for (size_t i = 0; i < count; ++i) numbers[i] = i * 3;
  for (size_t i = 0; i < count; ++i) is_right &= numbers[i] == i * 3;
  puts(is_right ? "right" : "wrong");
  if (is_local) {
    far_local_free(numbers, count * sizeof *numbers);
  } else {
    free(numbers);
  }
  return 0;
}
