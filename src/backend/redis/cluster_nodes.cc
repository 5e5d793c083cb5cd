#include "backend/redis/cluster_nodes.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "base/check.h"

namespace far::backend {
namespace {

std::string_view next_word(std::string_view* text, char separator) {
  const std::size_t end = std::min(text->find(separator), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

template <typename Number>
bool parse_number(std::string_view text, Number* into) {
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, *into);
  return failure == std::errc{} && rest == end;
}

// Leaves it empty when it does not fit.
void copy_text(std::string_view from, std::span<char> into) {
  if (from.size() >= into.size()) from = {};
  std::copy(from.begin(), from.end(), into.begin());
  std::fill(into.begin() + static_cast<std::ptrdiff_t>(from.size()), into.end(), '\0');
}

struct slot_range {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

// "5461", "0-5460". Slots in brackets are on their way, and belong to the node that has them without.
std::optional<slot_range> parse_range(std::string_view text) {
  if (text.empty() || text.front() == '[') return std::nullopt;
  slot_range found;
  const std::size_t dash = text.find('-');
  if (!parse_number(text.substr(0, dash), &found.first)) return std::nullopt;
  found.last = found.first;
  if (dash != std::string_view::npos && !parse_number(text.substr(dash + 1), &found.last)) return std::nullopt;
  if (found.first > found.last || found.last >= cluster_slots) return std::nullopt;
  return found;
}

}  // namespace

std::uint32_t hash_slot_of(std::string_view key) {
  const std::size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  std::uint32_t crc = 0;
  for (const char c : key) {
    crc ^= static_cast<std::uint32_t>(static_cast<unsigned char>(c)) << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1;
  }
  return crc % cluster_slots;
}

std::string node_address::text() const {
  const std::string_view shown(host.data());
  const bool brackets = shown.find(':') != std::string_view::npos;
  return (brackets ? "[" + std::string(shown) + "]" : std::string(shown)) + ":" + std::to_string(port);
}

node_address node_address::parse(std::string_view text) {
  node_address found;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || !parse_number(text.substr(colon + 1), &found.port)) return {};
  copy_text(text.substr(0, colon), found.host);
  return found;
}

bool cluster_node::owns(std::uint32_t slot) const {
  std::string_view left = ranges;
  while (!left.empty()) {
    const std::optional<slot_range> range = parse_range(next_word(&left, ' '));
    if (range && slot >= range->first && slot <= range->last) return true;
  }
  return false;
}

std::uint32_t cluster_node::slot_count() const {
  std::uint32_t count = 0;
  std::string_view left = ranges;
  while (!left.empty()) {
    const std::optional<slot_range> range = parse_range(next_word(&left, ' '));
    if (range) count += range->last - range->first + 1;
  }
  return count;
}

std::uint32_t cluster_node::slot_at(std::uint32_t index) const {
  std::string_view left = ranges;
  while (!left.empty()) {
    const std::optional<slot_range> range = parse_range(next_word(&left, ' '));
    if (!range) continue;
    const std::uint32_t count = range->last - range->first + 1;
    if (index < count) return range->first + index;
    index -= count;
  }
  FAR_CHECK(false, "a node is asked for a slot that it owns");
  return 0;
}

std::optional<cluster_node> next_node(std::string_view* text) {
  if (text->empty()) return std::nullopt;
  std::string_view line = next_word(text, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  cluster_node node;
  node.id = next_word(&line, ' ');
  std::string_view where = next_word(&line, ' ');
  std::string_view flags = next_word(&line, ' ');
  // master, ping, pong, epoch, link
  for (int skipped = 0; skipped < 5; ++skipped) static_cast<void>(next_word(&line, ' '));
  const std::string_view socket = next_word(&where, ',');
  node.address = node_address::parse(socket.substr(0, socket.find('@')));
  const std::string_view name = next_word(&where, ',');
  if (name.find('=') == std::string_view::npos) copy_text(name, node.address.name);
  bool is_usable = true;
  while (!flags.empty()) {
    const std::string_view flag = next_word(&flags, ',');
    node.is_self |= flag == "myself";
    node.is_master |= flag == "master";
    node.has_failed |= flag == "fail" || flag == "fail?";
    is_usable &= flag != "noaddr" && flag != "handshake";
  }
  if (is_usable) node.ranges = line;
  return node;
}

}  // namespace far::backend
