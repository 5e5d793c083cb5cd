#include "trace/stack_frames.h"

#include <algorithm>

namespace far::trace {
namespace {

bool begins_with_any(const std::string& text, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&text](const std::string& beginning) { return text.starts_with(beginning); });
}

bool has_any(const std::string& text, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&text](const std::string& part) { return text.find(part) != std::string::npos; });
}

bool is_library(const frame& one, const analysis_options& options) {
  return begins_with_any(file_name(one.module), options.library_modules) ||
         begins_with_any(one.function, options.library_functions) || has_any(one.file, options.library_sources);
}

}  // namespace

std::string file_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

std::string place_of(const frame& one) {
  return one.file.empty() ? std::string() : one.file + ":" + std::to_string(one.line);
}

std::vector<frame> frames_of(const trace& from, std::uint32_t stack, symbolizer& symbols) {
  std::vector<frame> frames;
  const auto found = from.stacks.find(stack);
  if (found != from.stacks.end()) {
    for (std::size_t i = 0; i < found->second.size(); ++i) {
      const std::vector<frame>& here = symbols.at(found->second[i], i > 0);
      frames.insert(frames.end(), here.begin(), here.end());
    }
  }
  if (frames.empty()) frames.push_back({.function = "[no stack]", .file = "", .module = ""});
  return frames;
}

bool is_interpreter(const frame& one, const analysis_options& options) {
  return begins_with_any(file_name(one.module), options.interpreter_modules);
}

const frame& program_frame(const std::vector<frame>& frames, const analysis_options& options) {
  const auto found = std::find_if(frames.begin(), frames.end(), [&options](const frame& one) {
    return !one.module.empty() && !is_library(one, options);
  });
  return found != frames.end() ? *found : frames.front();
}

const frame* container_frame(const std::vector<frame>& frames, const analysis_options& options) {
  for (const frame* one = &program_frame(frames, options); one != frames.data();) {
    --one;
    if (has_any(one->file, options.container_sources)) return one;
  }
  return nullptr;
}

std::string container_name(const frame& one) {
  // A template's name may begin with the type that it returns.
  const bool is_whole = one.function.find("far::") < one.function.find('(');
  return is_whole ? one.function : "far/" + file_name(one.file) + ": " + one.function;
}

std::vector<flame_frame> flame_stack(const std::vector<frame>& frames, const std::vector<python_frame>& python,
                                     const analysis_options& options) {
  auto end = frames.end();
  if (!python.empty()) {
    end = std::find_if(frames.begin(), frames.end(), [&](const frame& one) { return is_interpreter(one, options); });
  }
  std::vector<flame_frame> stack;
  for (auto one = python.rbegin(); one != python.rend(); ++one) {
    stack.push_back({one->function + " (Python)", one->file + ":" + std::to_string(one->line)});
  }
  for (auto one = end; one != frames.begin();) {
    --one;
    std::string name = one->function;
    if (name.empty()) name = one->module.empty() ? "[unknown]" : "[" + file_name(one->module) + "]";
    stack.push_back({std::move(name), place_of(*one)});
  }
  return stack;
}

}  // namespace far::trace
