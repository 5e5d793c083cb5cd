// The file that a traced program leaves: every miss, with the stacks that led to it. Written by the runtime inside the
// program (preload/), read by `farheap trace` and `farheap report`.
//
// A file_header, then records until the end of the file; each is a record_header and its payload, padded to 8 bytes.
// Numbers are those of the machine that wrote them. A program that dies leaves a file without an end record, perhaps
// with a record cut short at the end; everything before that is valid. One file for each process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace far::trace {

inline constexpr std::array<char, 8> magic = {'F', 'A', 'R', 'T', 'R', 'A', 'C', 'E'};
inline constexpr std::uint32_t version = 2;
inline constexpr unsigned deepest_stack = 64;  // frames

struct file_header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t page_bytes;
  std::uint64_t started_ns;  // monotonic clock, as all times here
  std::uint64_t budget_bytes;
  std::uint32_t pid;
  std::uint32_t sampled_one_in;  // 1: every miss was recorded
};

enum class record_type : std::uint32_t {
  stack = 1,         // stack_record
  python_stack = 2,  // python_stack_record
  miss = 3,          // miss_record
  allocation = 4,    // allocation_record
  release = 5,       // release_record
  maps = 6,          // the text of /proc/PID/maps; the last one counts, earlier ones for what it does not name
  hint_site = 7,     // hint_site_record
  end = 8,           // end_record
};

struct record_header {
  record_type type;
  std::uint32_t payload_bytes;  // without the padding
};

// Each distinct stack once, before the first record that names it. Numbers begin at 1; 0 is "none".
struct stack_record {
  std::uint32_t number;
  std::uint32_t depth;
  // std::uint64_t addresses[depth] follow, innermost first: the first is the instruction that missed, or that called
  // the allocator; the others are return addresses.
};

// Followed by text: a line "FILE:LINE FUNCTION" for each frame, innermost first. File names may hold spaces; FUNCTION
// holds none.
struct python_stack_record {
  std::uint32_t number;
  std::uint32_t reserved;
};

enum class miss_kind : std::uint8_t {
  read = 0,
  write = 1,
  protection = 2,   // a write to a clean page
  first_touch = 3,  // by a read or a write, of a page without content, which was filled with zeros
};
inline constexpr std::size_t miss_kinds = 4;

struct miss_record {
  std::uint64_t time_ns;
  std::uint64_t address;  // as exactly as the machine told: the byte, or its page
  std::uint32_t thread;
  std::uint32_t stack;
  std::uint32_t python_stack;
  miss_kind kind;
  std::uint8_t in_kernel;  // a system call missed, not an instruction of the program
  std::uint16_t reserved;
};

// The kernel or the allocator gave the program memory, at least least_allocation_bytes.
inline constexpr std::uint64_t least_allocation_bytes = 64 * 1024;
struct allocation_record {
  std::uint64_t time_ns;
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint32_t thread;
  std::uint32_t stack;
};
struct release_record {
  std::uint64_t time_ns;
  std::uint64_t address;
};

// A line with a far_hint (include/far/hint.h). Followed by the name of its file.
struct hint_site_record {
  std::uint64_t calls;   // that reached the runtime
  std::uint64_t misses;  // of them, those that found something to fetch or to make writable
  std::uint32_t line;
  std::uint32_t reserved;
};

struct end_record {
  std::uint64_t time_ns;
  std::uint64_t misses;         // of all kinds, recorded or not
  std::uint64_t hinted_misses;  // that hints came before
  std::uint64_t fetched_pages;
  std::uint64_t recording_ns;  // spent on recording, all threads together
  std::uint64_t lost_records;  // not written: no space, or no memory
};

}  // namespace far::trace
