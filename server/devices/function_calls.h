// Calls of functions of plugins on a session's pages, as one connection makes them (wire/function.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "server/devices/function_processes.h"
#include "server/devices/host.h"
#include "server/store.h"
#include "wire/function.h"
#include "wire/message.h"

namespace far::server {

// The arguments of far_device_functions::compute for a call: their size, and what they are (far/plugin.h), with the
// hashes of the pages. False: the session has not allocated one of them. Requires: `into` is of that size.
[[nodiscard]] std::size_t gathered_bytes(const wire::function_request& asked);
[[nodiscard]] bool gather(const session& data, const wire::function_request& asked, std::vector<std::uint64_t>& checks,
                          std::span<std::byte> into);

class function_calls {
 public:
  explicit function_calls(std::shared_ptr<device_host> host) : host_(std::move(host)) {}

  struct progress {
    std::uint64_t retry_at_ns = 0;           // not 0: call again then, with the same arguments
    wire::status result = wire::status::ok;  // or unknown_call, call_failed, not_allocated
    std::size_t reply_bytes = 0;
    std::size_t touched_bytes = 0;
  };
  // Requires: the server has plugins. `into` has room for a whole payload. `arguments` come from the client and may be
  // anything.
  [[nodiscard]] progress go_on(session& caller, std::span<const std::byte> arguments, std::uint64_t now_ns,
                               std::span<std::byte> into);

  [[nodiscard]] bool is_waiting() const { return asked_ != nullptr; }
  // The requests that are handled from now on have not waited for the calls before. Calls of a round share a time, so
  // that a client does not take a server for dead because many slow functions wait for one another.
  void begin_round() { used_ns_ = 0; }
  // The connection is gone: the process ends its call for nobody.
  void abandon() { asked_.reset(); }

 private:
  [[nodiscard]] progress say_why(session& caller, const wire::function_request& asked, std::span<std::byte> into);

  const std::shared_ptr<device_host> host_;
  std::shared_ptr<function_processes::call> asked_;  // under way
  std::uint64_t since_ns_ = 0;
  std::uint64_t used_ns_ = 0;          // by the calls of this round
  std::vector<std::uint64_t> checks_;  // the hashes of the pages
  std::vector<std::byte> reply_;
  bool is_allocated_ = true;  // the pages were, when the process was free
};

}  // namespace far::server
