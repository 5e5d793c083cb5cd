#include "engine/policy.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/units.h"
#include "engine/fifo.h"
#include "engine/lru.h"
#include "engine/priority.h"
#include "engine/second_chance.h"
#include "engine/two_queues.h"

namespace far::engine {
namespace {

// The text behind the name and a colon in an option.
using parameter = std::string_view;

struct entry {
  const char* name;
  bool has_parameter;
  result<std::unique_ptr<policy>> (*make)(residency& pages, parameter text);
};

template <typename Policy>
result<std::unique_ptr<policy>> make(residency& pages, parameter /*text*/) {
  return std::unique_ptr<policy>(std::make_unique<Policy>(pages));
}

result<std::unique_ptr<policy>> make_lru(residency& pages, parameter text) {
  std::size_t lists = lru::usual_lists;
  if (!text.empty()) {
    const auto read = std::from_chars(text.data(), text.data() + text.size(), lists);
    const bool is_number = read.ec == std::errc() && read.ptr == text.data() + text.size();
    if (!is_number || lists < lru::least_lists || lists > lru::most_lists) {
      return error{"policy lru has no '" + std::string(text) + "' lists; give a number from " +
                   std::to_string(lru::least_lists) + " to " + std::to_string(lru::most_lists) + ", as in lru:8"};
    }
  }
  return std::unique_ptr<policy>(std::make_unique<lru>(pages, lists));
}

result<std::unique_ptr<policy>> make_two_queues(residency& pages, parameter text) {
  if (text.empty()) return std::unique_ptr<policy>(std::make_unique<two_queues>(pages));
  const result<double> newcomers = parse_share(text);
  if (!newcomers) return error{"policy 2q: " + newcomers.error().message};
  return std::unique_ptr<policy>(std::make_unique<two_queues>(pages, newcomers.value()));
}

constexpr std::array<entry, 5> policies{{{"2q", true, make_two_queues},
                                         {"second-chance", false, make<second_chance>},
                                         {"fifo", false, make<fifo>},
                                         {"lru", true, make_lru},
                                         {"priority", false, make<priority>}}};

}  // namespace

bool spare_if_used(residency& pages, page_id page) {
  const bool was_hinted = pages.uses.take(page);
  bool is_spared = false;
  pages.update(page, [&is_spared, was_hinted](page_word word) {
    is_spared = word.where() == state::resident && (was_hinted || word.accessed());
    return is_spared ? word.with_accessed(false) : word.with_queued(false);
  });
  return is_spared;
}

std::string policy_names() {
  std::string names;
  for (const entry& known : policies) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

result<std::unique_ptr<policy>> make_policy(std::string_view name, residency& pages) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  for (const entry& known : policies) {
    if (name.substr(0, colon) != known.name || (colon < name.size() && !known.has_parameter)) continue;
    return known.make(pages, name.substr(std::min(colon + 1, name.size())));
  }
  return error{"unknown policy '" + std::string(name) + "'; known are: " + policy_names() +
               ", 2q:PERCENT with another share of newcomers, and lru:N with N lists"};
}

result<void> check_policy(std::string_view name) {
  residency unused(1);
  const result<std::unique_ptr<policy>> created = make_policy(name, unused);
  if (!created) return created.error();
  return {};
}

}  // namespace far::engine
