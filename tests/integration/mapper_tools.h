// The common parts of the scenarios of mapper: mapping, filling, looking, saying.
#pragma once

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif

namespace mapper {

constexpr std::size_t page = 4096;
constexpr std::size_t mib = std::size_t{1} << 20;
constexpr int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr int both = PROT_READ | PROT_WRITE;

inline char* map(std::size_t bytes, int protection = both, int flags = anonymous) {
  void* const mapped = mmap(nullptr, bytes, protection, flags, -1, 0);
  if (mapped == MAP_FAILED) {
    std::printf("mmap of %zu bytes fails: %s\n", bytes, std::strerror(errno));
    std::exit(1);
  }
  return static_cast<char*>(mapped);
}

// A range that starts at a multiple of 2 MiB.
inline char* map_aligned(std::size_t bytes, int protection = both) {
  char* const mapped = map(bytes + 2 * mib, protection);
  auto* const aligned =
      reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(mapped) + 2 * mib - 1) / (2 * mib) * (2 * mib));
  if (aligned > mapped) munmap(mapped, static_cast<std::size_t>(aligned - mapped));
  munmap(aligned + bytes, static_cast<std::size_t>(mapped + 2 * mib - aligned));
  return aligned;
}

inline void fill(char* at, std::size_t bytes, int salt) {
  for (std::size_t i = 0; i < bytes; i += 64)
    at[i] = static_cast<char>(i / page * 7 + i / 64 + static_cast<std::size_t>(salt));
}

// "kept", "zeros", or where it is neither.
inline std::string content(const char* at, std::size_t bytes, int salt) {
  std::size_t kept = 0;
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < bytes; i += 64) {
    kept += at[i] == static_cast<char>(i / page * 7 + i / 64 + static_cast<std::size_t>(salt));
    zeros += at[i] == 0;
  }
  if (kept == bytes / 64) return "kept";
  if (zeros == bytes / 64) return "zeros";
  return "kept " + std::to_string(kept) + ", zero " + std::to_string(zeros) + " of " + std::to_string(bytes / 64);
}

inline void say(const char* name, long result) {
  std::printf("%s: %ld%s%s\n", name, result, result < 0 ? " " : "", result < 0 ? std::strerror(errno) : "");
}

inline void say(const char* name, const void* result) {
  say(name, result == MAP_FAILED || result == nullptr ? -1L : 0L);
}

inline void say(const char* name, const std::string& text) {
  std::printf("%s: %s\n", name, text.c_str());
}

// More memory than fits in the budget, so that everything else leaves, as far as it can. The part of it that has left
// for longest comes back.
inline void press() {
  constexpr std::size_t bytes = 96 * mib;
  char* const block = map(bytes);
  fill(block, bytes, 99);
  if (content(block, bytes / 4, 99) != "kept") std::printf("the pressure itself lost bytes\n");
  munmap(block, bytes);
}

inline sigjmp_buf jump;
inline void on_fault(int) {
  siglongjmp(jump, 1);
}

inline const char* access(const char* at) {
  if (sigsetjmp(jump, 1) != 0) return "fault";
  static_cast<void>(*const_cast<const volatile char*>(at));
  return "readable";
}

inline int file_of(std::size_t bytes, int salt) {
  char name[] = "/tmp/mapper-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  std::vector<char> text(bytes);
  fill(text.data(), bytes, salt);
  if (write(file, text.data(), bytes) != static_cast<ssize_t>(bytes)) std::exit(1);
  return file;
}

inline char* map_over(char* at, std::size_t bytes, int protection, int flags, int file = -1) {
  void* const mapped = mmap(at, bytes, protection, flags | MAP_FIXED, file, 0);
  say("mmap over a part", mapped);
  return at;
}

// ---- scenarios of other files ----

// mapper_moves.cc
void guards_moved();
void guards_populated();
void guards_in_child();
void moved_out_in_child();
void several_moved_out();
void zeros_in_child();
void replaced_at_the_limit();
void replaced_in_many_parts();
void replaced_beyond_the_limit();
void endless_ranges();
void opened_at_once();
void several_moved();
void marked_and_unmarked();
void cut_behind_a_file();
void reservation_moved_out();
void moved_out_at_the_limit();
void huge_pages();

// mapper_children.cc
void reset_handlers();
void numbers_of_children();
void memory_of_others();
void reservation_looked_at();

// mapper_places.cc
void near_code();
void terabyte();
void reserved_in_place();
void used_and_given_back();
void absurd_lengths();

// mapper_locks.cc
void locked_beyond_the_limit();
void locked_reservation();
void locked_in_future();
void locked_in_parts();
void locked_unfilled();
void locked_read_only();
void resized_in_parts();
void locked_while_protected();
void locked_on_fault_grows();

// mapper_arrays.cc
void residency_of_much();
void many_arguments();
void much_peeked_at();
void much_sent();
void most_written();
void messages_of_devices();
void refused_buffers();
void own_memory_with_holes();

// mapper_kernel.cc
void protection_keys();
void sealed();
void sealed_neighbours();
void moved_sealed();
void segment_of_attachments();
void shared_segments();
void memory_policies();
void pointers_in_structures();
void signals_on_stacks();
void signals_together();
void refused_actions();
void wrong_structures();

// mapper_structures.cc
void structures_that_lead_far();
void structures_under_a_filter();
void chosen_number();
void words_of_futexes();
void messages_beyond_the_end();
void handlers_without_stack();
void named_memory();
void bad_pointers();
void masks_from_afar();
void bad_environments();

}  // namespace mapper
