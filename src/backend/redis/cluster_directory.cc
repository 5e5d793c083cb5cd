#include "backend/redis/cluster_directory.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "base/check.h"
#include "wire/handshake.h"

namespace far::backend {
namespace {

std::uint64_t draw() {
  std::uint64_t drawn = 0;
  wire::fill_random(std::as_writable_bytes(std::span(&drawn, 1)));
  return drawn;
}

}  // namespace

cluster_directory::ownership cluster_directory::take(std::string_view reply, const node_address& from,
                                                     std::uint32_t slot) {
  const lock_guard guard(lock_);
  ownership found;
  std::size_t count = 0;
  vacant_list& next = vacant_[1 - turn_];
  next.count = 0;
  while (const std::optional<cluster_node> node = next_node(&reply)) {
    node_address address = node->address;
    // A node does not know its own address before others have met it.
    if (node->is_self && !address.is_known()) address = from;
    if (!address.is_known()) continue;
    if (count < most_nodes) nodes_[count++] = address;
    if (!node->is_master) continue;
    if (node->owns(slot)) found = {.owner = address, .is_self = node->is_self, .has_failed = node->has_failed};
    if (!node->has_failed && node->slot_count() > 0) note_master(*node, address, &next);
  }
  if (count > 0) node_count_ = count;
  turn_ = 1 - turn_;
  return found;
}

void cluster_directory::note_master(const cluster_node& master, const node_address& address, vacant_list* next) {
  for (const std::uint32_t home : std::span(homes_).first(home_count_)) {
    if (master.owns(home)) return;
  }
  if (next->count == next->masters.size()) return;
  vacant_master& noted = next->masters[next->count++];
  noted = {};
  for (const vacant_master& before : std::span(vacant().masters).first(vacant().count)) {
    if (before.place.master == address) noted = before;
  }
  noted.place = {.master = address, .slot = draw_slot(master)};
  ++noted.replies;
}

node_address cluster_directory::any_node() {
  const lock_guard guard(lock_);
  return node_count_ == 0 ? node_address{} : nodes_[next_node_++ % node_count_];
}

void cluster_directory::add_home(std::uint32_t slot) {
  const lock_guard guard(lock_);
  const auto known = std::span(homes_).first(home_count_);
  if (std::ranges::find(known, slot) != known.end()) return;
  FAR_CHECK(home_count_ < homes_.size(), "a far tier has no more members than that");
  homes_[home_count_++] = slot;
}

// Every one that is shunned had a home, which is kept: there are no more of them than homes.
void cluster_directory::shun(const node_address& node) {
  const lock_guard guard(lock_);
  if (is_shunned(node)) return;
  FAR_CHECK(shunned_count_ < shunned_.size(), "a far tier has no more members than that");
  shunned_[shunned_count_++] = node;
}

// The name of its host may have been announced since.
bool cluster_directory::is_shunned(const node_address& node) const {
  const auto known = std::span(shunned_).first(shunned_count_);
  return std::ranges::any_of(known,
                             [&](const node_address& one) { return one.host == node.host && one.port == node.port; });
}

std::optional<cluster_directory::vacancy> cluster_directory::next_vacancy(std::uint64_t now_ns,
                                                                          std::uint64_t pause_ns) {
  constexpr unsigned enough_replies = 2;
  const lock_guard guard(lock_);
  if (home_count_ == homes_.size()) return std::nullopt;
  for (vacant_master& seen : std::span(vacant().masters).first(vacant().count)) {
    if (seen.replies < enough_replies || is_shunned(seen.place.master)) continue;
    if (seen.offered_ns != 0 && now_ns - seen.offered_ns < pause_ns) continue;
    seen.offered_ns = now_ns;
    return seen.place;
  }
  return std::nullopt;
}

std::string tag_in_slot(std::uint32_t slot) {
  std::array<char, 20> digits{};
  do {
    static_cast<void>(std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(draw())));
  } while (hash_slot_of(digits.data()) != slot);
  return digits.data();
}

std::uint32_t draw_slot(const cluster_node& owner) {
  return owner.slot_at(static_cast<std::uint32_t>(draw() % owner.slot_count()));
}

}  // namespace far::backend
