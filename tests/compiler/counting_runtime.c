#include "counting_runtime.h"

#include <far/detail/compiled.h>
#include <far/hint.h>
#include <stdlib.h>
#include <string.h>

struct stream_counts counted;

void reset_counts(void) {
  memset(&counted, 0, sizeof counted);
  counted.low = UINTPTR_MAX;
}

static const uint8_t now = 1;
static uint8_t states[4096];
volatile uint64_t has_evicted = 1;
static int wavers;

// Changes whether a page has left, and the states of some pages: loops change over between their bodies.
static void waver(void) {
  static uint64_t chance = 88172645463325252u;
  chance ^= chance << 13;
  chance ^= chance >> 7;
  chance ^= chance << 17;
  has_evicted = (chance >> 20 & 3) == 0 ? 0 : 1 + (chance >> 22 & 15);
  states[chance >> 30 & 4095] = (uint8_t)(chance >> 45 & 3);
}

static void clobber(void) {
  if (wavers) waver();
#if defined(__x86_64__)
  __asm__ volatile(
      "pcmpeqd %%xmm0, %%xmm0\n pcmpeqd %%xmm1, %%xmm1\n pcmpeqd %%xmm2, %%xmm2\n pcmpeqd %%xmm3, %%xmm3\n"
      "pcmpeqd %%xmm4, %%xmm4\n pcmpeqd %%xmm5, %%xmm5\n pcmpeqd %%xmm6, %%xmm6\n pcmpeqd %%xmm7, %%xmm7\n"
      "pcmpeqd %%xmm8, %%xmm8\n pcmpeqd %%xmm9, %%xmm9\n pcmpeqd %%xmm10, %%xmm10\n pcmpeqd %%xmm11, %%xmm11\n"
      "mov $0x5a5a, %%eax\n mov %%rax, %%rcx\n mov %%rax, %%rdx\n mov %%rax, %%rsi\n mov %%rax, %%rdi\n"
      "mov %%rax, %%r8\n mov %%rax, %%r9\n mov %%rax, %%r10\n mov %%rax, %%r11\n" ::
          : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
            "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "cc", "memory");
#endif
}

static void spoil(uintptr_t begin, uintptr_t end) {
  begin = (begin + 4095) & ~(uintptr_t)4095;
  end &= ~(uintptr_t)4095;
  if (begin >= end) return;
  memset((void*)begin, 0x5a, end - begin);
  counted.spoiled_bytes += end - begin;
}

// Of a gather: the pages of a run.
static void gather(uintptr_t page, size_t pages, uint64_t packed) {
  for (; pages > 0; ++page, --pages) {
    ++counted.gathered;
    counted.gathered_to_write += packed & 1;
    counted.gathered_pages[page & 0xffff] = 1;
  }
}

static void miss(const void* address, size_t size, uint64_t packed, struct far_hint_site* site) {
  if (site == NULL || site->file == NULL) abort();
  if (packed == far_hint_overwrite) {
    spoil((uintptr_t)address, (uintptr_t)address + size);
  } else if (size == 1 && (packed & 6) == 6) {
    ++counted.batched;
  } else if (size % 4096 == 1 && (packed & 4) != 0) {
    gather((uintptr_t)address >> 12, size / 4096 + 1, packed);
  } else if (size % 4096 == 1) {
    counted.guards += size / 4096 + 1;
    if ((packed & 2) == 0) ++counted.marking;
  } else {
    ++counted.calls;
    if (packed & 1) ++counted.written_calls;
    *((packed & 4) != 0 ? &counted.later_bytes : &counted.now_bytes) += size;
    if ((uintptr_t)address < counted.low) counted.low = (uintptr_t)address;
    if ((uintptr_t)address + size > counted.high) counted.high = (uintptr_t)address + size;
  }
  clobber();
}

static const struct far_hint_view view = {0, UINTPTR_MAX, states, &now, miss};

const struct far_hint_view* far_hint_find_view(void) {
  return &view;
}

void set_states(uint8_t state) {
  memset(states, state, sizeof states);
}

void far_compiled_join(struct far_compiled* joining) {
  set_states(2);
  wavers = getenv("COUNTING_RUNTIME_WAVERS") != NULL;
  joining->states = states;
  joining->mask = sizeof states - 1;
  joining->has_evicted = (const uint64_t*)(uintptr_t)&has_evicted;
}

void far_compiled_leave(struct far_compiled* leaving) {
  leaving->has_evicted = &leaving->mask;
  leaving->mask = 0;
}

// Objects: every other one is left to its page.
static int read_object(uint64_t* value, const void* address, size_t bytes) {
  static unsigned number;
  clobber();
  *value = 0;
  ++counted.objects;
  if (++number % 2 != 0) return 0;
  memcpy(value, address, bytes);
  return 1;
}

// Each third look ahead is told that there are none.
static size_t make_copies(const void* const* addresses, size_t count) {
  static unsigned asked;
  clobber();
  if (count == 0) return ++asked % 3 == 0 ? far_compiled_no_copies : 0;
  if (count > far_compiled_most_copies || addresses[0] == NULL) abort();
  counted.copied += count;
  return count;
}

void* far_compiled_thread_memory(void) {
  static _Thread_local uint64_t memory[far_compiled_thread_bytes / 8];
  clobber();
  return memory;
}

const struct far_compiled_objects* far_compiled_find_objects(void) {
  static const struct far_compiled_objects calls = {read_object, make_copies};
  return &calls;
}
