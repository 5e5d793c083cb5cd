#include "trace/reader.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/units.h"

namespace far::trace {
namespace {

constexpr std::size_t padding = 8;
// The flame graph is a tree that functions go down by calling themselves.
constexpr const char* too_deep = "a stack is deeper than any that is recorded";

// One line "FILE:LINE FUNCTION"; false when it is not one.
bool parse_python_frame(std::string_view line, python_frame& frame) {
  const std::size_t blank = line.rfind(' ');
  if (blank == std::string_view::npos) return false;
  const std::size_t colon = line.rfind(':', blank);
  if (colon == std::string_view::npos) return false;
  const std::string_view digits = line.substr(colon + 1, blank - colon - 1);
  const auto [rest, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), frame.line);
  if (failure != std::errc{} || rest != digits.data() + digits.size()) return false;
  frame.file = line.substr(0, colon);
  frame.function = line.substr(blank + 1);
  return true;
}

class parser {
 public:
  parser(std::string_view bytes, const std::string& name) : bytes_(bytes) { result_.file = name; }

  result<trace> parse() {
    const result<void> header = parse_header();
    if (!header) return header.error();
    at_ = sizeof(file_header);
    while (at_ < bytes_.size()) {
      record_header record{};
      if (!copy(bytes_.substr(at_), record) || record.type == record_type{}) break;
      const std::string_view payload = bytes_.substr(at_ + sizeof(record), record.payload_bytes);
      if (payload.size() < record.payload_bytes) break;
      const char* const wrong = take(record.type, payload);
      if (wrong != nullptr) return damaged(wrong);
      at_ += sizeof(record) + round_up(record.payload_bytes, padding);
    }
    result_.cut_short = at_ < bytes_.size();
    return std::move(result_);
  }

 private:
  template <typename T>
  static bool copy(std::string_view from, T& to) {
    if (from.size() < sizeof(T)) return false;
    std::memcpy(&to, from.data(), sizeof(T));
    return true;
  }

  [[nodiscard]] error damaged(const std::string& problem) const {
    return error{"'" + result_.file + "' is damaged at offset " + std::to_string(at_) + ": " + problem +
                     "; trace the program again",
                 EINVAL};
  }

  result<void> parse_header() {
    file_header& header = result_.header;
    if (!copy(bytes_, header)) return damaged("it ends within its header");
    if (header.magic != magic) {
      return error{"'" + result_.file + "' is not a trace of misses; name a directory that `farheap trace` wrote",
                   EINVAL};
    }
    if (header.version != version) {
      return error{"'" + result_.file + "' is a trace of version " + std::to_string(header.version) +
                       ", and this farheap reads version " + std::to_string(version) +
                       "; read it with the farheap that wrote it",
                   EINVAL};
    }
    // With smaller pages, the distance between two page numbers could overflow.
    if (header.page_bytes < page_bytes || !std::has_single_bit(header.page_bytes)) {
      return damaged("its pages have an impossible size");
    }
    return {};
  }

  // The fault in the record, or null.
  const char* take(record_type type, std::string_view payload) {
    switch (type) {
      case record_type::stack: return take_stack(payload);
      case record_type::python_stack: return take_python_stack(payload);
      case record_type::miss: return take_miss(payload);
      case record_type::allocation:
        return take_plain(payload, result_.allocations, "an allocation record is too short");
      case record_type::release: return take_plain(payload, result_.releases, "a release record is too short");
      case record_type::maps: return result_.maps.emplace_back(payload), nullptr;
      case record_type::hint_site: return take_hint_site(payload);
      case record_type::end: return copy(payload, result_.end.emplace()) ? nullptr : "the end record is too short";
    }
    return nullptr;  // of a later version that stays compatible
  }

  template <typename T>
  const char* take_plain(std::string_view payload, std::vector<T>& list, const char* too_short) {
    return copy(payload, list.emplace_back()) ? nullptr : too_short;
  }

  const char* take_stack(std::string_view payload) {
    stack_record record{};
    if (!copy(payload, record)) return "a stack record is too short";
    const std::string_view rest = payload.substr(sizeof(record));
    if (record.number == 0) return "a stack has number 0, which means no stack";
    if (record.depth > deepest_stack) return too_deep;
    if (record.depth > rest.size() / sizeof(std::uint64_t)) return "a stack is deeper than its record is long";
    std::vector<std::uint64_t>& addresses = result_.stacks[record.number];
    addresses.resize(record.depth);
    if (record.depth > 0) std::memcpy(addresses.data(), rest.data(), record.depth * sizeof(std::uint64_t));
    return nullptr;
  }

  const char* take_python_stack(std::string_view payload) {
    python_stack_record record{};
    if (!copy(payload, record)) return "a Python stack record is too short";
    if (record.number == 0) return "a Python stack has number 0, which means no stack";
    std::string_view text = payload.substr(sizeof(record));
    std::vector<python_frame>& frames = result_.python_stacks[record.number];
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      python_frame frame;
      if (line.empty()) continue;
      if (!parse_python_frame(line, frame)) return "a line of a Python stack is not FILE:LINE FUNCTION";
      if (frames.size() == deepest_stack) return too_deep;
      frames.push_back(std::move(frame));
    }
    return nullptr;
  }

  const char* take_miss(std::string_view payload) {
    miss_record record{};
    if (!copy(payload, record)) return "a miss record is too short";
    if (record.kind > miss_kind::first_touch) return "a miss is of an unknown kind";
    result_.misses.push_back(record);
    return nullptr;
  }

  const char* take_hint_site(std::string_view payload) {
    hint_site_record record{};
    if (!copy(payload, record)) return "a hint site's record is too short";
    std::string file(payload.substr(sizeof(record)));
    while (!file.empty() && file.back() == '\0') file.pop_back();
    result_.hint_sites.push_back({std::move(file), record.line, record.calls, record.misses});
    return nullptr;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;  // of the record being read
  trace result_;
};

}  // namespace

result<trace> parse_trace(std::string_view bytes, const std::string& name) {
  return parser(bytes, name).parse();
}

result<trace> read_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  // Of a folder nothing can be read.
  const bool is_folder = file.is_open() && std::filesystem::is_directory(path);
  if (!file.is_open() || file.bad() || bytes.bad() || is_folder) {
    const int failure = is_folder ? EISDIR : errno;
    return error{"cannot read '" + path + "': " + std::strerror(failure) + "; check the path and its permissions",
                 failure};
  }
  return parse_trace(bytes.view(), path);
}

}  // namespace far::trace
