#include "engine/eviction_pace.h"

#include <cerrno>
#include <charconv>
#include <string>

#include "base/units.h"

namespace far::engine {
namespace {

error wrong_batch(std::string_view text) {
  return {"'" + std::string(text) + "' is not a number of pages from 1 to " + std::to_string(batch_pages) +
              "; write for example 16",
          EINVAL};
}

}  // namespace

result<double> parse_free_share(std::string_view text) {
  return parse_share(text, eviction_pace::largest_free_share);
}

result<std::size_t> parse_batch(std::string_view text) {
  std::size_t pages = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), pages);
  if (failure != std::errc{} || rest != text.data() + text.size() || pages == 0 || pages > batch_pages) {
    return wrong_batch(text);
  }
  return pages;
}

result<void> check_pace(const eviction_pace& pace) {
  // Written so that "not a number" fails, too.
  if (!(pace.free_share >= 0 && pace.free_share <= eviction_pace::largest_free_share)) {
    return error{"the share of the budget that is kept free is " + std::to_string(pace.free_share) +
                     "; give one from 0 (the usual share) to 0.25",
                 EINVAL};
  }
  if (pace.pages_a_batch == 0 || pace.pages_a_batch > batch_pages) {
    return wrong_batch(std::to_string(pace.pages_a_batch));
  }
  return {};
}

}  // namespace far::engine
