#include "trace/record/python_text.h"

#include <cstring>

#include "trace/format.h"

namespace far::trace {
namespace {

constexpr std::string_view before_name = "  File ";
constexpr std::string_view before_line = ", line ";
constexpr std::string_view before_function = " in ";

struct frame {
  std::string_view name;
  std::string_view line;
  std::string_view function;
};

// Names may hold anything, so the line is taken apart from its end.
bool take_apart(std::string_view text, frame* parts) noexcept {
  if (!text.starts_with(before_name)) return false;
  text.remove_prefix(before_name.size());
  const std::size_t function = text.rfind(before_function);
  if (function == std::string_view::npos) return false;
  const std::size_t line = text.rfind(before_line, function);
  if (line == std::string_view::npos) return false;
  parts->function = text.substr(function + before_function.size());
  parts->line = text.substr(line + before_line.size(), function - line - before_line.size());
  parts->name = text.substr(0, line);
  if (parts->name.size() >= 2 && parts->name.front() == '"' && parts->name.back() == '"') {
    parts->name = parts->name.substr(1, parts->name.size() - 2);
  }
  if (parts->line == "???") parts->line = "0";
  return !parts->function.empty() && parts->function.find(' ') == std::string_view::npos &&
         parts->line.find_first_not_of("0123456789") == std::string_view::npos;
}

class writer {
 public:
  explicit writer(std::span<char> into) noexcept : into_(into) {}
  [[nodiscard]] std::size_t length() const noexcept { return length_; }

  [[nodiscard]] bool add(const frame& one) noexcept {
    if (into_.size() - length_ < one.name.size() + one.line.size() + one.function.size() + 3) return false;
    put(one.name);
    put(":");
    put(one.line);
    put(" ");
    put(one.function);
    put("\n");
    return true;
  }

 private:
  void put(std::string_view text) noexcept {
    std::memcpy(into_.data() + length_, text.data(), text.size());
    length_ += text.size();
  }

  std::span<char> into_;
  std::size_t length_ = 0;
};

}  // namespace

std::size_t parse_python_text(std::string_view text, std::span<char> into) noexcept {
  writer out(into);
  unsigned depth = 0;
  while (!text.empty() && depth < deepest_stack) {
    const std::size_t end = text.find('\n');
    frame parts;
    // A last line without its end may be cut short.
    if (end == std::string_view::npos) break;
    if (take_apart(text.substr(0, end), &parts)) {
      if (!out.add(parts)) break;
      ++depth;
    }
    text.remove_prefix(end + 1);
  }
  return out.length();
}

}  // namespace far::trace
