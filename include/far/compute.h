// Functions of the program's own on the elements of a far::vector or a far::array (far/plugin.h says what they look
// like). Remote pages are not fetched for it: a memory server that has the functions in a plugin calls them where the
// pages are, and sends a result of some bytes for each (AIFM, section 4.3; Atlas, section 4.3).
//
//     #include "statistics.h"  // examples/plugins: square_sum
//
//     far::vector<double> distances(farheap);
//     const square_sum::result found = far::compute<square_sum>(distances, {.lowest = 100});
//
// Results are the same wherever the pages are: what is here, changed since it left, or on a far tier that calls no
// functions, is computed by the same code here. docs/devices.md has the plugin, and what servers do about errors.
#pragma once

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "far/detail/api.h"
#include "far/detail/reduction.h"
#include "far/plugin.h"
#include "far/summary.h"

namespace far {
namespace detail {

template <plugin::function F>
void call_here(const page_function& asked, const std::byte* part, std::size_t bytes, std::byte* result) {
  typename F::arguments with;
  std::memcpy(static_cast<void*>(&with), asked.arguments.data(), sizeof with);
  plugin::detail::map_part<F>(part, bytes, with, result);
}

// What the server says why it has not called the function, or what is known without it.
[[nodiscard]] FAR_API std::string text_of_refusal(const page_function& refused);
// Logs it; the same text once a minute.
FAR_API void report_refusal(const page_function& refused);

// A name or a version, with zeros behind it.
[[nodiscard]] constexpr std::array<char, 32> name_field(std::string_view name) {
  std::array<char, 32> field{};
  for (std::size_t i = 0; i < name.size(); ++i) field.at(i) = name[i];
  return field;
}

}  // namespace detail

// What F::combine() makes of the results of all parts of the elements from `first` on, in their order. Throws what
// F::map() throws, and std::out_of_range. Nobody may write to these elements meanwhile. Several fibers do it; call it
// from a fiber or an OS thread. `where`: as for far::vector::summarize(). `refusal`, unless it is null, gets the reason
// why a part was computed here because a far tier did not call the function; "" if there was none. What a server says
// about it is logged, too.
template <plugin::function F, typename Container>
  requires std::same_as<typename Container::value_type, typename F::element>
[[nodiscard]] typename F::result compute(const Container& all, std::size_t first, std::size_t count,
                                         const typename F::arguments& with = {}, work where = work::there,
                                         std::string* refusal = nullptr) {
  static_assert(static_cast<std::uint32_t>(F::number) != plugin::detail::why_number,
                "no function has the number 0xffff'ffff");
  static constexpr std::array<char, 32> plugin_name = detail::name_field(F::plugin);
  static constexpr std::array<char, 32> version = detail::name_field(F::version);
  static_assert(plugin_name.back() == 0 && version.back() == 0,
                "names and versions of plugins have up to 31 characters");
  std::atomic<bool> refused{false};
  detail::function_refusal why;
  detail::page_function function{.plugin = plugin_name,
                                 .version = version,
                                 .number = F::number,
                                 .element_bytes = sizeof(typename F::element),
                                 .result_bytes = plugin::detail::result_bytes_of<F>,
                                 .argument_bytes = sizeof with,
                                 .arguments = {},
                                 .call_here = &detail::call_here<F>,
                                 .refused = &refused,
                                 .why = &why};
  std::memcpy(function.arguments.data(), &with, sizeof with);
  typename F::result found{};
  all.visit_function_results(first, count, function, where, [&](std::size_t, std::size_t, const std::byte* part) {
    typename F::result next;
    std::memcpy(static_cast<void*>(&next), part, sizeof next);
    F::combine(found, next);
  });
  if (why.is_asked_for.load()) detail::report_refusal(function);
  if (refusal != nullptr) *refusal = refused.load() ? detail::text_of_refusal(function) : "";
  return found;
}

// Of all elements.
template <plugin::function F, typename Container>
  requires std::same_as<typename Container::value_type, typename F::element>
[[nodiscard]] typename F::result compute(const Container& all, const typename F::arguments& with = {},
                                         work where = work::there, std::string* refusal = nullptr) {
  return compute<F>(all, 0, all.size(), with, where, refusal);
}

}  // namespace far
