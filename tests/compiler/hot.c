// Look-ups in an index of 4 MiB, beside a walk through 64 MiB of records, again and again. The index is FAR_HOT, or not
// (-DCOLD). Prints the sum.
#include <far/local.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef COLD
#undef FAR_HOT
#define FAR_HOT
#endif

enum { records = 64 << 10, record_numbers = 128, entries = 64 << 10, walks = 4, look_ups = 4 };

struct entry {
  FAR_HOT unsigned long key;
  FAR_HOT unsigned long value;
  char name[48];
};

int main(void) {
  struct entry* const index = malloc(entries * sizeof *index);
  unsigned long* const numbers = malloc(sizeof(unsigned long) * records * record_numbers);
  if (index == NULL || numbers == NULL) return 2;
  for (unsigned long i = 0; i < entries; ++i) index[i] = (struct entry){i * 5, i * 7, "an entry"};
  for (unsigned long i = 0; i < (unsigned long)records * record_numbers; ++i) numbers[i] = i;
  unsigned long found = 0;
  unsigned long state = 1;
  for (int walk = 0; walk < walks; ++walk) {
    for (unsigned long i = 0; i < records; ++i) {
      for (unsigned long k = 0; k < record_numbers; ++k) found += numbers[i * record_numbers + k];
      for (int k = 0; k < look_ups; ++k) {
        state = state * 0x5851f42d4c957f2d + 0x14057b7ef767814f;
        const struct entry* const at = &index[state >> 48];
        if (at->key != (state >> 48) * 5) return 3;
        found += at->value;
      }
    }
  }
  printf("%lu\n", found);
  free(index);
  free(numbers);
  return 0;
}
