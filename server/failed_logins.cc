#include "server/failed_logins.h"

#include <algorithm>

namespace far::server {

bool failed_logins::may_try(const std::string& from, std::uint64_t now_ns) const {
  const lock_guard guard(lock_);
  const auto found = forgotten_at_ns_.find(from);
  return found == forgotten_at_ns_.end() || found->second <= now_ns + (burst - 1) * period_ns;
}

void failed_logins::note(const std::string& from, std::uint64_t now_ns) {
  const lock_guard guard(lock_);
  const auto found = forgotten_at_ns_.find(from);
  if (found != forgotten_at_ns_.end()) {
    // Attempts that were under way together may fail beyond the limit; they cost no more than the last one within it.
    found->second = std::min(std::max(found->second, now_ns) + period_ns, now_ns + burst * period_ns);
    return;
  }
  if (forgotten_at_ns_.size() == most_addresses) make_room(now_ns);
  forgotten_at_ns_.emplace(from, now_ns + period_ns);
}

void failed_logins::make_room(std::uint64_t now_ns) {
  std::erase_if(forgotten_at_ns_, [&](const auto& entry) { return entry.second <= now_ns; });
  if (forgotten_at_ns_.size() < most_addresses) return;
  forgotten_at_ns_.erase(std::min_element(forgotten_at_ns_.begin(), forgotten_at_ns_.end(),
                                          [](const auto& a, const auto& b) { return a.second < b.second; }));
}

std::size_t failed_logins::addresses() const {
  const lock_guard guard(lock_);
  return forgotten_at_ns_.size();
}

}  // namespace far::server
