// Loops that follow the pointer at a computed place, beside counting_runtime.c: the runtime is told of exactly the
// pages that they come to, and no pointer is followed that the loop does not follow. `nowhere` cannot be read.
#include <far/local.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "expected_pages.h"

#define ALONE __attribute__((noinline))

struct entry {
  struct entry* next;
  long key;
  long value;
};

// Buckets lead to their first entry.
ALONE long look_up(struct entry* const* buckets, const unsigned* keys, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    for (const struct entry* one = buckets[keys[i] * 2654435761u >> 20]; one != NULL; one = one->next) {
      if (one->key != keys[i]) continue;
      total += one->value;
      break;
    }
  }
  return total;
}

// The table is static, and so local: only where its pointers lead is told.
static struct entry* fixed[1 << 12];

ALONE long look_up_fixed(const unsigned* keys, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    for (const struct entry* one = fixed[keys[i] * 2654435761u >> 20]; one != NULL; one = one->next) {
      if (one->key != keys[i]) continue;
      total += one->value;
      break;
    }
  }
  return total;
}

// Buckets lead to the entry in front of their first one, as those of std::unordered_map do. It counts what is found.
ALONE long look_behind(struct entry* const* buckets, const unsigned* keys, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    const struct entry* const before = buckets[keys[i] * 2654435761u >> 20];
    if (before == NULL) continue;
    struct entry* const one = before->next;
    if (one->key != keys[i]) continue;
    total += one->value++;
  }
  return total;
}

ALONE void update(struct entry** __restrict buckets, const unsigned* __restrict keys, size_t n) {
  for (size_t i = 0; i < n; ++i) buckets[keys[i] * 2654435761u >> 20]->value = (long)i;
}

// Only places are told, and no pointer is read there: the loop may write to the keys, which its next iterations find
// places by.
ALONE long that_mends_keys(struct entry* const* buckets, const unsigned* keys, unsigned* others, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    others[i] &= 0xfff;
    total += buckets[keys[i] * 3]->value;
  }
  return total;
}

// The first pointer is told of, and not followed to the second one: the loop may write it, ...
ALONE long that_mends_pointers(struct entry** buckets, const unsigned* keys, struct entry** mended, struct entry* good,
                               size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    mended[i] = good;
    total += buckets[keys[i] * 3 & 0x7fff]->next->value;
  }
  return total;
}

// ... or it is not always followed, ...
ALONE long that_asks_first(struct entry* const* buckets, const unsigned* keys, const char* wanted, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    const struct entry* const one = buckets[keys[i] * 3 & 0x7fff];
    total += one == NULL;
    if (wanted[i] == 1) total += one->next->value;
  }
  return total;
}

// ... or from elsewhere.
ALONE long that_has_another(struct entry* const* buckets, const unsigned* keys, const struct entry* other, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    const struct entry* one = buckets[keys[i] * 3 & 0x7fff];
    if (keys[i] % 7 == 0) one = other->next;
    total += one->next->value;
  }
  return total;
}

// What an inner loop begins with is not always what it reads, and what it reads first is not always followed: there are
// marks among the pointers. Compiled as C++, where all loops end, they are looked ahead
// for.
ALONE long that_skips_places(struct entry* const* buckets, const unsigned* keys, const char* wanted, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    struct entry* const* at = &buckets[keys[i] * 3 & 0x7fff];
    const char* is_wanted = wanted;
    for (;;) {
      if (*is_wanted++ != 0) {
        const struct entry* const one = *at;
        total += one->next->value;
        if (one->key == 1) break;
      }
      ++at;
    }
  }
  return total;
}

ALONE long that_skips_marks(struct entry* const* buckets, const unsigned* keys, const struct entry* mark, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    struct entry* const* at = &buckets[keys[i] * 3 & 0x7fff];
    for (;;) {
      const struct entry* const one = *at;
      if (one != mark) {
        total += one->next->value;
        if (one->key == 1) break;
      }
      ++at;
    }
  }
  return total;
}

// An inner loop may go on for ever, where C lets it, and leave the rest of the keys unread.
ALONE long that_may_stay(struct entry* const* buckets, const unsigned* keys, const long* numbers, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    long at = buckets[keys[i] * 3 & 0x7fff]->value;
    for (;;) {
      at += numbers[at & 0xfff];
      if (numbers[at & 0xfff] != 0) break;
    }
    total += at;
  }
  return total;
}

// ... and so may two gotos, in C++, too.
ALONE long that_may_stay_between(struct entry* const* buckets, const unsigned* keys, const long* numbers, size_t n) {
  long total = 0;
  for (size_t i = 0; i < n; ++i) {
    long at = buckets[keys[i] * 3 & 0x7fff]->value;
    if ((at & 1) != 0) goto second;
  first:
    at += numbers[at & 0xfff];
    if (numbers[(at + 7) & 0xfff] == 1) goto done;
  second:
    at -= numbers[(at >> 3) & 0xfff];
    if (numbers[(at + 9) & 0xfff] == 1) goto first;
  done:
    total += at;
  }
  return total;
}

// The loops from here on are the test's own.
FAR_LOCAL_BEGIN
enum { places = 1 << 15, used = 20000, page = 4096 };

static void* pages(size_t bytes, int protection) {
  void* const made = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) exit(3);
  return made;
}

static struct entry* buckets[places];
static struct entry* entries;  // each of `places` on a page of its own
static struct entry* nowhere;
static unsigned* keys;  // beyond the last of `used` nothing can be read

static struct entry* entry(size_t i) {
  return (struct entry*)((char*)entries + i * page + i % 100 * 24);
}

// Then the loop runs as clang compiles it. `right`: what it finds.
static void check_before_the_first_page_leaves(long right) {
  has_evicted = 0;
  reset_counts();
  EXPECT(look_up(buckets, keys, used) == right);
  EXPECT(counted.gathered == 0 && counted.guards == 0);
  has_evicted = 1;
  __asm__ volatile("" ::: "memory");  // the compiler sees that it only reads, and would not call it again
  EXPECT(look_up(buckets, keys, used) == right);
  EXPECT(counted.gathered > 0 && counted.guards > 0);
}

static void check_chains(void) {
  memset(buckets, 0, sizeof buckets);
  for (size_t i = 0; i < used; ++i) keys[i] = (unsigned)(i * 40503u % 2048);
  for (unsigned key = 0; key < 1500; ++key) {
    struct entry* const one = entry(key);
    struct entry** const bucket = &buckets[key * 2654435761u >> 20];
    *one = (struct entry){*bucket, key, key + 5};
    *bucket = one;
  }
  long right = 0;
  begin();
  for (size_t i = 0; i < used; ++i) {
    if (keys[i] < 1500) right += keys[i] + 5;
    struct entry** const bucket = &buckets[keys[i] * 2654435761u >> 20];
    use(bucket);
    if (*bucket != NULL) use(&(*bucket)->key);
  }
  EXPECT(look_up(buckets, keys, used) == right && is_told());
  EXPECT(counted.gathered_to_write == 0);
  check_before_the_first_page_leaves(right);

  memcpy(fixed, buckets, sizeof fixed);
  begin();
  for (size_t i = 0; i < used; ++i) {
    const struct entry* const one = fixed[keys[i] * 2654435761u >> 20];
    if (one != NULL) use(&one->key);
  }
  EXPECT(look_up_fixed(keys, used) == right && is_told());

  // Now with an entry in front, of which some lead to one that is not asked for.
  memset(buckets, 0, sizeof buckets);
  for (unsigned key = 0; key < 1500; ++key) {
    *entry(key) = (struct entry){NULL, key, 0};
    *entry(4096 + key) = (struct entry){entry(key), -1, 0};
    buckets[key * 2654435761u >> 20] = entry(4096 + key);
  }
  begin();
  for (size_t i = 0; i < used; ++i) {
    struct entry** const bucket = &buckets[keys[i] * 2654435761u >> 20];
    use(bucket);
    if (*bucket == NULL) continue;
    use(*bucket);
    use((*bucket)->next);
  }
  EXPECT(look_behind(buckets, keys, used) >= 0 && is_told());

  begin();
  for (size_t i = 0; i < places; ++i) buckets[i] = entry(i % 4096);
  for (size_t i = 0; i < used; ++i) {
    struct entry** const bucket = &buckets[keys[i] * 2654435761u >> 20];
    use(bucket);
    use(*bucket);
  }
  update(buckets, keys, used);
  EXPECT(is_told() && counted.gathered_to_write > 0 && counted.gathered_to_write < counted.gathered);
}

static void check_what_is_not_followed(void) {
  // Keys lead far outside, until the loop has come near them.
  for (size_t i = 0; i < places; ++i) buckets[i] = entry(i % 4096);
  for (size_t i = 0; i < used; ++i) keys[i] = 0xfffff000u;
  begin();
  EXPECT(that_mends_keys(buckets, keys, keys, used) >= 0);

  struct entry* const good = entry(0);
  *good = (struct entry){good, 1, 1};
  for (size_t i = 0; i < used; ++i) keys[i] = (unsigned)i / 4;
  for (size_t i = 0; i < places; ++i) buckets[i] = nowhere;
  begin();
  EXPECT(that_mends_pointers(buckets, keys, buckets, good, used) == used);
  EXPECT(counted.gathered > 0);

  char* const wanted = (char*)pages(used, PROT_READ | PROT_WRITE);
  for (size_t i = 0; i < places; ++i) buckets[i] = nowhere;
  begin();
  EXPECT(that_asks_first(buckets, keys, wanted, used) == 0);
  EXPECT(counted.gathered > 0);

  for (size_t i = 0; i < used; ++i) keys[i] = (unsigned)i * 7;
  begin();
  EXPECT(that_has_another(buckets, keys, good, used) == used);
  EXPECT(counted.gathered > 0);

  for (size_t i = 0; i < places; ++i) buckets[i] = i % 4 == 3 ? good : nowhere;
  for (size_t i = 0; i < used; ++i) keys[i] = (unsigned)i * 4;
  static const char from_fourth[16] = {0, 0, 0, 1};
  begin();
  EXPECT(that_skips_places(buckets, keys, from_fourth, used) == used);
  EXPECT(that_skips_marks(buckets, keys, nowhere, used) == used);

  static long numbers[1 << 12];
  for (size_t i = 0; i < 1 << 12; ++i) numbers[i] = 1;
  for (size_t i = 0; i < places; ++i) buckets[i] = good;
  EXPECT(that_may_stay(buckets, keys, numbers, used) == 2 * used);
  EXPECT(that_may_stay_between(buckets, keys, numbers, used) != 0);
}

int main(void) {
  entries = (struct entry*)pages((size_t)8192 * page, PROT_READ | PROT_WRITE);
  nowhere = (struct entry*)pages(page, PROT_NONE);
  char* const room = (char*)pages(32 * page, PROT_NONE);
  const size_t bytes = used * sizeof *keys;
  const size_t whole = (bytes + page - 1) / page * page;
  if (mprotect(room, whole, PROT_READ | PROT_WRITE) != 0) return 3;
  keys = (unsigned*)(void*)(room + whole - bytes);
  check_chains();
  check_what_is_not_followed();
  puts("counted");
  return 0;
}
FAR_LOCAL_END
