// A plugin (include/far/plugin.h) in this process, and one device of it: requests in, replies out.
//
// A memory server has one such in a process for each device; in programs with a far tier of their own it runs beside
// them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "far/plugin.h"
#include "wire/device.h"

namespace far::device_parts {

struct plugin_code {
  const far_device_functions& functions;
  const char* (*failure)() = nullptr;  // far_device_failure(), if the plugin has it
};

// It stays loaded until the process ends: its code may have left threads behind.
// Errors: no shared object, not a plugin, another version of the interface, a name that cannot be.
[[nodiscard]] result<plugin_code> load_plugin(const std::string& file);

// Not thread-safe.
class plugin_runner {
 public:
  // Allocates what replies need, so that a device that takes all memory does not stop them. `options`: for the device.
  plugin_runner(const plugin_code& plugin, std::string options);
  // Destructs the device, if there is one.
  ~plugin_runner();
  plugin_runner(const plugin_runner&) = delete;
  plugin_runner& operator=(const plugin_runner&) = delete;

  // Does what is asked, whatever the device's number and the call's are. The reply's bytes are valid until the next
  // call. construct replaces nothing: there is one device.
  [[nodiscard]] wire::device_reply run(const wire::device_request& asked) noexcept;

 private:
  [[nodiscard]] wire::device_reply dispatch(const wire::device_request& asked);
  [[nodiscard]] wire::device_reply construct(const wire::device_request& asked);
  [[nodiscard]] wire::device_reply save(const wire::device_request& asked);
  [[nodiscard]] wire::device_reply load(const wire::device_request& asked);
  [[nodiscard]] wire::device_reply list();
  [[nodiscard]] wire::device_reply ended(int code);
  [[nodiscard]] const char* failure_text() const;
  // The beginning of the text.
  [[nodiscard]] static wire::device_reply refuse(const char* why);

  const far_device_functions& plugin_;
  const char* (*const failure_)();
  const std::string options_;
  void* device_ = nullptr;
  std::vector<std::byte> result_;
  std::vector<std::byte> saved_;   // while save is read in parts
  std::vector<std::byte> loaded_;  // what load has brought so far
};

}  // namespace far::device_parts
