#include "preload/call_sites.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

namespace far::preload {
namespace {

constexpr std::size_t jump_bytes = 5;         // e9, and 32 bits
constexpr std::size_t load_bytes = 5;         // b8, and 32 bits
constexpr std::size_t system_call_bytes = 2;  // 0f 05
constexpr std::uint8_t trap = 0xcc;

template <typename Value>
Value read(std::span<const std::uint8_t> code, std::size_t at) {
  Value value{};
  std::memcpy(&value, code.data() + at, sizeof value);
  return value;
}

// The comparison after a system call instruction, if there is one.
std::optional<site_kind> comparison_at(std::span<const std::uint8_t> code, std::size_t at) {
  constexpr std::uint32_t minus_4096 = 0xfffff000;
  constexpr std::uint32_t minus_4095 = 0xfffff001;
  constexpr std::uint8_t wide = 0x48;
  constexpr std::uint8_t compare = 0x3d;
  constexpr std::size_t longest = 6;
  if (at + longest > code.size()) return std::nullopt;
  const bool is_wide = code[at] == wide;
  if (is_wide) ++at;
  if (code[at] != compare) return std::nullopt;
  const auto with = read<std::uint32_t>(code, at + 1);
  if (with == minus_4096) return is_wide ? site_kind::rax_with_4096 : site_kind::eax_with_4096;
  if (with == minus_4095) return is_wide ? site_kind::rax_with_4095 : site_kind::eax_with_4095;
  return std::nullopt;
}

// The number of the call, if the instruction before it loads the number.
std::optional<long> number_before(std::span<const std::uint8_t> code, std::size_t at) {
  constexpr std::uint8_t load_eax = 0xb8;
  if (at <= load_bytes || code[at - load_bytes] != load_eax) return std::nullopt;
  // With a prefix it loads another register, or more bytes.
  constexpr std::uint8_t prefix = 0x40;
  if ((code[at - load_bytes - 1] & 0xf0) == prefix) return std::nullopt;
  return read<std::int32_t>(code, at - 4);
}

// The site with the system call instruction at `at`.
std::optional<call_site> site_at(std::span<const std::uint8_t> code, std::size_t at, bool (*stays)(long number)) {
  constexpr long numbers = std::numeric_limits<std::uint16_t>::max();
  const std::optional<long> number = number_before(code, at);
  if (number && stays(*number)) return std::nullopt;
  if (const auto kind = comparison_at(code, at + system_call_bytes)) return call_site{at, *kind};
  if (number && *number >= 0 && *number <= numbers) return call_site{at - load_bytes, site_kind::numbered};
  return std::nullopt;
}

// Whether the bytes before a displacement may be those of a jump or call, of 32 bits or of 8.
bool may_jump_far(std::span<const std::uint8_t> code, std::size_t displacement) {
  const std::uint8_t last = code[displacement - 1];
  const bool conditional = displacement >= 2 && code[displacement - 2] == 0x0f && (last & 0xf0) == 0x80;
  return conditional || last == 0xe8 || last == 0xe9;
}
bool may_jump_near(std::uint8_t operation) {
  return operation == 0xeb || (operation & 0xf0) == 0x70 || (operation & 0xfc) == 0xe0;
}

// Whether an 8-bit jump leads to the second instruction; the first and the second are the only possible targets. Bytes
// that look like a jump count as one.
bool near_jump_leads_into(std::span<const std::uint8_t> code, const call_site& site) {
  constexpr std::size_t reach = 130;
  const std::size_t end = std::min(code.size() - 1, site.at + site.bytes() + reach);
  for (std::size_t at = site.at > reach ? site.at - reach : 0; at < end; ++at) {
    if (!may_jump_near(code[at])) continue;
    if (at + 2 + static_cast<std::size_t>(static_cast<std::int8_t>(code[at + 1])) == site.second()) return true;
  }
  return false;
}

// Removes the sites to whose second instruction a jump of 32 bits leads, from anywhere.
void remove_targets_of_far_jumps(std::span<const std::uint8_t> code, std::vector<call_site>& sites) {
  // A bit for each stretch of 64 bytes with a part of a site in it. It rules out nearly everything that looks like a
  // jump.
  constexpr unsigned stretch_shift = 6;
  std::vector<bool> has_site((code.size() >> stretch_shift) + 1);
  for (const call_site& site : sites) {
    has_site[site.at >> stretch_shift] = true;
    has_site[(site.at + site.bytes()) >> stretch_shift] = true;
  }
  for (std::size_t at = 1; at + 4 <= code.size(); ++at) {
    const std::size_t target = at + 4 + static_cast<std::size_t>(read<std::int32_t>(code, at));
    if (target >= code.size() || !has_site[target >> stretch_shift] || !may_jump_far(code, at)) continue;
    std::erase_if(sites, [target](const call_site& site) { return site.second() == target; });
  }
}

}  // namespace

std::vector<call_site> find_call_sites(std::span<const std::uint8_t> code, bool (*stays)(long number)) {
  constexpr std::array<std::uint8_t, 2> instruction{0x0f, 0x05};
  std::vector<call_site> sites;
  for (auto next = code.begin();; ++next) {
    next = std::search(next, code.end(), instruction.begin(), instruction.end());
    if (next == code.end()) break;
    const auto at = static_cast<std::size_t>(next - code.begin());
    const std::optional<call_site> site = site_at(code, at, stays);
    if (site && !near_jump_leads_into(code, *site)) sites.push_back(*site);
  }
  remove_targets_of_far_jumps(code, sites);
  return sites;
}

bool is_near(std::uintptr_t address, std::uintptr_t target) {
  const auto distance = static_cast<std::int64_t>(target - (address + jump_bytes));
  return distance >= std::numeric_limits<std::int32_t>::min() && distance <= std::numeric_limits<std::int32_t>::max();
}

void write_jump(std::span<std::uint8_t> code, site_kind kind, std::uintptr_t address, std::uintptr_t target) {
  constexpr std::uint8_t jump = 0xe9;
  const auto number = read<std::uint16_t>(code, 1);
  const auto distance = static_cast<std::int32_t>(target - (address + jump_bytes));
  code[0] = jump;
  std::memcpy(&code[1], &distance, sizeof distance);
  std::fill(code.begin() + jump_bytes, code.end(), trap);
  if (kind == site_kind::numbered) std::memcpy(&code[jump_bytes], &number, sizeof number);
}

}  // namespace far::preload
