#include "trace/flame.h"

namespace far::trace {
namespace {

std::string folded_name(const std::string& name) {
  std::string safe = name.empty() ? "?" : name;
  for (char& c : safe) {
    if (c == ';') c = ':';
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return safe;
}

// Stacks are at most some hundred frames deep: 64 of the machine with what is inlined there, and Python's.
void append_folded(const flame_node& node, const std::string& path, std::string& text) {
  if (node.own > 0 && !path.empty()) text += path + " " + std::to_string(node.own) + "\n";
  for (const auto& [name, callee] : node.callees) {
    append_folded(*callee, path.empty() ? folded_name(name) : path + ";" + folded_name(name), text);
  }
}

}  // namespace

void add_stack(flame_node& root, const std::vector<flame_frame>& stack, std::uint64_t misses) {
  flame_node* node = &root;
  node->misses += misses;
  for (const flame_frame& one : stack) {
    std::unique_ptr<flame_node>& callee = node->callees[one.name];
    if (!callee) callee = std::make_unique<flame_node>();
    node = callee.get();
    node->misses += misses;
    if (!one.place.empty()) node->places[one.place] += misses;
  }
  node->own += misses;
}

std::string folded_stacks(const flame_node& root) {
  std::string text;
  append_folded(root, "", text);
  return text;
}

}  // namespace far::trace
