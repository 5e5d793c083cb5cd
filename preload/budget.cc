#include "preload/budget.h"

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/units.h"
#include "pager/pager.h"

namespace far::preload {
namespace {

result<std::uint64_t> parse_percentage(std::string_view text, std::uint64_t whole_bytes) {
  const result<double> share = parse_share(text);
  if (!share) return share.error();
  return static_cast<std::uint64_t>(static_cast<double>(whole_bytes) * share.value());
}

}  // namespace

result<std::uint64_t> parse_budget(std::string_view text, const platform::system_memory& memory) {
  const bool percentage = text.ends_with('%');
  const result<std::uint64_t> bytes = percentage ? parse_percentage(text, memory.usable_bytes()) : parse_size(text);
  if (!bytes) return error{bytes.error().message + (percentage ? "" : ", or 25%"), EINVAL};
  const std::uint64_t budget_bytes = round_down(bytes.value(), page_bytes);
  if (budget_bytes < pager::minimum_budget_bytes) {
    return error{"a budget of " + format_size(bytes.value()) + " is below the working minimum of " +
                     format_size(pager::minimum_budget_bytes) + "; write for example 512M",
                 EINVAL};
  }
  return budget_bytes;
}

std::uint64_t default_budget_bytes(const platform::system_memory& memory) {
  return std::max(round_down(memory.available_bytes / 2, page_bytes), pager::minimum_budget_bytes);
}

}  // namespace far::preload
