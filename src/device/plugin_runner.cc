#include "device/plugin_runner.h"

#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "wire/bytes.h"

namespace far::device_parts {
namespace {

using wire::device_op;
using wire::device_outcome;
using wire::device_reply;
using wire::device_request;

struct sink {
  std::vector<std::byte>& bytes;
  std::size_t most;
};

// Called by a plugin, which may be C: no exception leaves it.
int append_to(void* context, const void* added, std::size_t size) {
  sink& into = *static_cast<sink*>(context);
  if (size > into.most - into.bytes.size()) return 1;
  try {
    const auto* const first = static_cast<const std::byte*>(added);
    into.bytes.insert(into.bytes.end(), first, first + size);
  } catch (const std::bad_alloc&) {
    return 1;
  }
  return 0;
}

// Assigning {} to a vector keeps its memory.
void let_go(std::vector<std::byte>& bytes) {
  std::vector<std::byte>().swap(bytes);
}

}  // namespace

result<plugin_code> load_plugin(const std::string& file) {
  // dlopen() looks for names without a slash in the system's folders.
  const std::string path = file.find('/') == std::string::npos ? "./" + file : file;
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) return error{std::string("cannot load the plugin: ") + dlerror(), ENOEXEC};
  void* const entry = dlsym(loaded, "far_device_plugin");
  if (entry == nullptr) return error{file + " is no plugin: it has no far_device_plugin (far/plugin.h)", ENOEXEC};
  const far_device_functions* const plugin = reinterpret_cast<decltype(&far_device_plugin)>(entry)();
  if (plugin == nullptr || plugin->interface_version != FAR_DEVICE_INTERFACE) {
    return error{file + " has version " + std::to_string(plugin == nullptr ? 0 : plugin->interface_version) +
                     " of the interface, and this is version " + std::to_string(FAR_DEVICE_INTERFACE) +
                     "; build it with the far/plugin.h of this version",
                 ENOEXEC};
  }
  const bool is_whole = plugin->name != nullptr && plugin->version != nullptr && plugin->construct != nullptr &&
                        plugin->destruct != nullptr && plugin->read != nullptr && plugin->write != nullptr &&
                        plugin->erase != nullptr && plugin->compute != nullptr;
  if (!is_whole || !wire::is_plugin_name(plugin->name) || !wire::is_plugin_name(plugin->version)) {
    return error{file +
                     ": a plugin has all functions but save and load, and a name and a version of 1 to 31 letters, "
                     "digits, '-', '_' and '.'",
                 ENOEXEC};
  }
  return plugin_code{*plugin, reinterpret_cast<const char* (*)()>(dlsym(loaded, "far_device_failure"))};
}

plugin_runner::plugin_runner(const plugin_code& plugin, std::string options)
    : plugin_(plugin.functions), failure_(plugin.failure), options_(std::move(options)) {
  result_.reserve(wire::most_device_bytes);
}

plugin_runner::~plugin_runner() {
  if (device_ != nullptr) plugin_.destruct(device_);
}

device_reply plugin_runner::refuse(const char* why) {
  return {device_outcome::refused, std::as_bytes(std::span(why, strnlen(why, FAR_DEVICE_FAILURE_BYTES)))};
}

// An exception that leaves a plugin although it must not ends no more than its call.
device_reply plugin_runner::run(const device_request& asked) noexcept {
  try {
    return dispatch(asked);
  } catch (const std::exception& failure) {
    result_.clear();
    sink into{result_, wire::most_device_bytes};
    static_cast<void>(append_to(&into, failure.what(), strnlen(failure.what(), FAR_DEVICE_FAILURE_BYTES)));
    return {device_outcome::refused, result_};
  } catch (...) {
    return refuse("the plugin threw something that is no std::exception");
  }
}

device_reply plugin_runner::dispatch(const device_request& asked) {
  result_.clear();
  if (asked.op == device_op::construct) return construct(asked);
  if (asked.op == device_op::list) return list();
  if (device_ == nullptr) return {device_outcome::no_device, {}};
  sink collected{result_, wire::most_device_bytes};
  const far_device_output into{&collected, append_to};
  switch (asked.op) {
    case device_op::destruct: plugin_.destruct(std::exchange(device_, nullptr)); return {device_outcome::ok, {}};
    case device_op::read: return ended(plugin_.read(device_, asked.object, &into));
    case device_op::write: return ended(plugin_.write(device_, asked.object, asked.bytes.data(), asked.bytes.size()));
    case device_op::erase: return ended(plugin_.erase(device_, asked.object));
    case device_op::compute:
    case device_op::ask:
      return ended(plugin_.compute(device_, asked.code, asked.bytes.data(), asked.bytes.size(), &into));
    case device_op::save: return save(asked);
    case device_op::load: return load(asked);
    case device_op::list:
    case device_op::construct:
    case device_op::direct: break;
  }
  return refuse("no such operation");
}

device_reply plugin_runner::list() {
  const std::string line =
      std::string(plugin_.name) + " " + plugin_.version + " " + std::to_string(plugin_.interface_version) + "\n";
  const auto bytes = std::as_bytes(std::span(line));
  result_.assign(bytes.begin(), bytes.end());
  return {device_outcome::ok, result_};
}

// Why the plugin refused its last call; "" if it does not say.
const char* plugin_runner::failure_text() const {
  const char* const text = failure_ == nullptr ? nullptr : failure_();
  return text == nullptr ? "" : text;
}

device_reply plugin_runner::construct(const device_request& asked) {
  const std::optional<wire::device_construction> wanted = wire::decode_construction(asked.bytes);
  if (!wanted || device_ != nullptr) return refuse("it cannot be constructed here");
  if (wanted->plugin != plugin_.name) return {device_outcome::unknown_plugin, list().bytes};
  device_ = plugin_.construct(options_.c_str(), wanted->parameters.data(), wanted->parameters.size());
  if (device_ != nullptr) return {device_outcome::ok, {}};
  const char* const why = failure_text();
  return refuse(*why == 0 ? "the plugin refuses the parameters" : why);
}

device_reply plugin_runner::save(const device_request& asked) {
  if (plugin_.save == nullptr) return refuse("this device cannot be saved");
  if (asked.object == 0) {
    saved_.clear();
    sink collected{saved_, saved_.max_size()};
    const far_device_output into{&collected, append_to};
    const int code = plugin_.save(device_, &into);
    if (code != FAR_DEVICE_OK) {
      result_.assign(saved_.begin(), saved_.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                          saved_.size(), wire::most_device_bytes)));
      let_go(saved_);
      return ended(code);
    }
  }
  if (asked.object > saved_.size()) return refuse("nothing is saved there");
  constexpr std::size_t most_part = wire::most_device_bytes - sizeof(std::uint64_t);
  const std::size_t part = std::min<std::size_t>(saved_.size() - asked.object, most_part);
  const auto first = saved_.begin() + static_cast<std::ptrdiff_t>(asked.object);
  result_.resize(sizeof(std::uint64_t));
  wire::store(static_cast<std::uint64_t>(saved_.size()), result_.data());
  result_.insert(result_.end(), first, first + static_cast<std::ptrdiff_t>(part));
  if (asked.object + part == saved_.size()) let_go(saved_);
  return {device_outcome::ok, result_};
}

device_reply plugin_runner::load(const device_request& asked) {
  if (plugin_.load == nullptr) return refuse("this device cannot be loaded");
  loaded_.insert(loaded_.end(), asked.bytes.begin(), asked.bytes.end());
  if (asked.code == 0) return {device_outcome::ok, {}};
  const std::vector<std::byte> all = std::exchange(loaded_, {});
  return ended(plugin_.load(device_, all.data(), all.size()));
}

device_reply plugin_runner::ended(int code) {
  if (code == FAR_DEVICE_OK) return {device_outcome::ok, result_};
  if (code == FAR_DEVICE_NO_OBJECT) return {device_outcome::no_object, {}};
  // Part of a result may be in front of the text.
  if (const char* const why = failure_text(); *why != 0) return refuse(why);
  result_.resize(std::min<std::size_t>(result_.size(), FAR_DEVICE_FAILURE_BYTES));
  return {device_outcome::refused, result_};
}

}  // namespace far::device_parts
