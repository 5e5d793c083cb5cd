#include "wire/function.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/units.h"
#include "wire/bytes.h"
#include "wire/device.h"

namespace far::wire {
namespace {

constexpr std::size_t name_bytes = sizeof(detail::page_function::plugin);
static_assert(name_bytes == 32);

std::size_t padded(std::size_t bytes) {
  return (bytes + 7) / 8 * 8;
}

bool are_zeros(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte one) { return one == std::byte{0}; });
}

// Empty: it is no name of a plugin.
std::string_view name_in(std::span<const std::byte> field) {
  const char* const first = reinterpret_cast<const char*>(field.data());
  const std::string_view name(first, strnlen(first, field.size()));
  return is_plugin_name(name) && are_zeros(field.subspan(name.size())) ? name : std::string_view();
}

}  // namespace

std::size_t encode_function(const page_reduction& asked, std::span<const range> ranges, std::uint32_t deadline_ms,
                            std::span<std::byte> to) {
  const detail::page_function& function = *asked.how.function;
  const std::size_t padding = padded(function.argument_bytes) - function.argument_bytes;
  const std::size_t head = call_header_bytes + function_bytes + function.argument_bytes + padding;
  FAR_CHECK(
      to.size() >= head + ranges.size() * range_bytes && encode_call(function_call_name, to.first<call_header_bytes>()),
      "no room for a call");
  std::byte* const at = to.data() + call_header_bytes;
  std::memcpy(at, function.plugin.data(), name_bytes);
  std::memcpy(at + 32, function.version.data(), name_bytes);
  store(function.number, at + 64);
  store(function.element_bytes, at + 68);
  store(function.result_bytes, at + 72);
  store(function.argument_bytes, at + 76);
  store(deadline_ms, at + 80);
  store(std::uint32_t{0}, at + 84);
  std::ranges::copy(asked.hash->secret(), at + 88);
  std::memcpy(at + function_bytes, function.arguments.data(), function.argument_bytes);
  std::memset(at + function_bytes + function.argument_bytes, 0, padding);
  static_cast<void>(encode_read(ranges, to.subspan(head)));
  return head + ranges.size() * range_bytes;
}

std::optional<function_request> decode_function(std::span<const std::byte> arguments) {
  if (arguments.size() < function_bytes) return std::nullopt;
  const std::byte* const at = arguments.data();
  function_request asked{.plugin = name_in(arguments.first<name_bytes>()),
                         .version = name_in(arguments.subspan<name_bytes, name_bytes>()),
                         .number = load<std::uint32_t>(at + 64),
                         .element_bytes = load<std::uint32_t>(at + 68),
                         .result_bytes = load<std::uint32_t>(at + 72),
                         .deadline_ms = load<std::uint32_t>(at + 80),
                         .arguments = {},
                         .hash = page_hasher(arguments.subspan<88, page_hasher::secret_bytes>()),
                         .ranges = {}};
  const auto argument_bytes = load<std::uint32_t>(at + 76);
  if (asked.plugin.empty() || asked.version.empty() || load<std::uint32_t>(at + 84) != 0 || asked.result_bytes == 0 ||
      asked.result_bytes % 8 != 0 || asked.result_bytes > detail::most_function_result ||
      argument_bytes > detail::most_function_arguments) {
    return std::nullopt;
  }
  const std::span<const std::byte> rest = arguments.subspan(function_bytes);
  if (rest.size() < padded(argument_bytes)) return std::nullopt;
  asked.arguments = rest.first(argument_bytes);
  if (!are_zeros(rest.first(padded(argument_bytes)).subspan(argument_bytes))) return std::nullopt;
  if (!decode_read(rest.subspan(padded(argument_bytes)), &asked.ranges)) return std::nullopt;
  for (const range& one : asked.ranges.all()) {
    if (one.length_bytes > page_bytes - one.offset_bytes) return std::nullopt;
  }
  return asked;
}

}  // namespace far::wire
