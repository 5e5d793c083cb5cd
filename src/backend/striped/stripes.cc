#include "backend/striped/stripes.h"

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "base/units.h"

namespace far::backend {

void stripes::name_absent_holders(std::uint64_t group, std::span<char> into) {
  std::size_t length = 0;
  into[0] = '\0';
  const lock_guard guard(table.lock);
  for (const holder& held : table.group_at(group).holders) {
    if (!held.present || members.at(held.member).serves() || length >= into.size()) continue;
    const member& keeper = members.at(held.member);
    const int added = std::snprintf(into.data() + length, into.size() - length, "%s%s (%s)", length > 0 ? ", " : "",
                                    keeper.name().c_str(), name_of(keeper.state()));
    if (added > 0) length += static_cast<std::size_t>(added);
  }
}

void stripes::report_unreadable(std::uint64_t group) {
  if (!members.may_report_unreadable()) return;
  std::array<char, 512> names{};
  name_absent_holders(group, names);
  log_line(log_level::error,
           "pages in the far tier cannot be read or computed: more servers are gone at once than there are parity "
           "pages; away: %s",
           names[0] != '\0' ? names.data() : "servers that have lost their contents");
}

void stripes::report_waiting(std::uint64_t group) {
  if (!members.may_report_waiting()) return;
  std::array<char, 512> names{};
  name_absent_holders(group, names);
  log_line(log_level::warning,
           "the program waits for pages on %s, more servers than there are parity pages; reads are tried again for up "
           "to %s (option patience=), and go on as soon as enough servers answer",
           names.data(), format_duration(members.read_patience_ns()).c_str());
}

}  // namespace far::backend
