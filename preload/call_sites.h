// Finds the places in the C library's code that call the kernel, and patches them to call the runtime instead. Dispatch
// costs a signal for each call. From a patched place, a call that touches no far memory costs a few instructions. See
// docs/decisions/0030-call-sites.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace far::preload {

// The kinds of site: the system call instruction alone is too short for a jump. Nearly all calls of the C library are
// followed by a comparison of their result with the error numbers; others are preceded by the load of their number.
enum class site_kind : std::uint8_t {
  rax_with_4096,  // syscall; cmp $-4096, %rax
  rax_with_4095,  // ... cmp $-4095, %rax
  eax_with_4096,
  eax_with_4095,
  numbered,  // mov $number, %eax; syscall
};

struct call_site {
  std::size_t at;  // where it begins in the code
  site_kind kind;

  [[nodiscard]] std::size_t bytes() const {
    return kind == site_kind::rax_with_4096 || kind == site_kind::rax_with_4095 ? 8 : 7;
  }
  // Where its second instruction begins.
  [[nodiscard]] std::size_t second() const { return at + (kind == site_kind::numbered ? 5 : 2); }
};

// Finds the sites that can be patched: no jump leads to their second instruction, and the number of the call, where it
// is visible, is not in `stays`. In rising order.
[[nodiscard]] std::vector<call_site> find_call_sites(std::span<const std::uint8_t> code, bool (*stays)(long number));

// Puts a jump to `target` in place of a site, whose code lies at `address`. It is followed by traps or, in the last two
// bytes of a numbered site, the number. Requires: is_near.
void write_jump(std::span<std::uint8_t> code, site_kind kind, std::uintptr_t address, std::uintptr_t target);
[[nodiscard]] bool is_near(std::uintptr_t address, std::uintptr_t target);

}  // namespace far::preload
