// The arguments of system calls that point to memory, and the size of that memory (x86-64).
#pragma once

#include <cstdint>
#include <span>

namespace far::preload {

enum class shape : std::uint8_t {
  addresses,  // the call touches no memory: its arguments are addresses to work on, or it is ours
  fixed,      // `bytes` at `pointer`
  buffer,     // `count` times `bytes` at `pointer`
  per_page,   // a byte for each page of `count` bytes, at `pointer`
  transfer,   // `count` bytes at `pointer`, and doing less than all is legal
  vectors,    // `count` iovecs at `pointer`, and doing less than all is legal
  message,    // a msghdr
  messages,   // `count` mmsghdrs
  strings,    // an array of strings that ends with a null pointer
  waiters,    // `count` entries of futex_waitv(2), or the two of futex_requeue(2)
  child,      // clone_args of `count` bytes
  request,    // ioctl(2): the request says what is at `pointer`
  structure,  // at `pointer`, which leads to further memory with some arguments
  option,     // as `buffer`, but some options are a program of the packet filter (sock_fprog)
  filter,     // such a program, depending on another argument
};

[[nodiscard]] constexpr bool depends_on_arguments(shape kind) {
  return kind == shape::request || kind == shape::structure || kind == shape::option || kind == shape::filter;
}

// Whether the call follows pointers in memory, which may be far although no argument is: always, or with some
// arguments.
[[nodiscard]] constexpr bool is_nested(shape kind) {
  return kind == shape::vectors || kind == shape::message || kind == shape::messages || kind == shape::strings ||
         kind == shape::waiters || kind == shape::child || depends_on_arguments(kind);
}

struct table_row {
  std::uint16_t number;
  shape kind;
  std::uint8_t pointer = 0;  // which argument
  std::uint8_t count = 0;    // which argument
  std::uint16_t bytes = 1;
  bool alone = false;  // no other argument is a pointer, whatever is in its register
};

// Other arguments are pointers to at most a structure, or are not pointers.
[[nodiscard]] std::span<const table_row> rows_of(long number) noexcept;

}  // namespace far::preload
