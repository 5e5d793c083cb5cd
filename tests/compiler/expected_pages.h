// What tests of gathers expect: the pages that a loop is going to use, beside those that the runtime was told of.
#pragma once

#include <far/local.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counting_runtime.h"

FAR_LOCAL_BEGIN
static inline void fail(const char* what, int line) {
  printf("line %d: %s: %lu gathered, %lu of them to write\n", line, what, (unsigned long)counted.gathered,
         (unsigned long)counted.gathered_to_write);
  exit(1);
}
#define EXPECT(condition) ((condition) ? (void)0 : fail(#condition, __LINE__))

static unsigned char expected[1 << 16];
static inline void use(const void* address) {
  expected[(uintptr_t)address >> 12 & 0xffff] = 1;
}
static inline void begin(void) {
  memset(expected, 0, sizeof expected);
  reset_counts();
}
static inline int is_told(void) {
  return counted.gathered > 0 && memcmp(expected, counted.gathered_pages, sizeof expected) == 0;
}
FAR_LOCAL_END
