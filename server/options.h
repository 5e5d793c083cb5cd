// The command line of farheapd, and its configuration file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/address.h"
#include "server/devices/host.h"
#include "server/event_log.h"
#include "server/spill_area.h"
#include "server/tenant_rates.h"
#include "server/token_book.h"

namespace far::server {

// The options, checked as far as possible without opening anything but the token file.
struct options {
  std::optional<address> listen;   // nothing: only shared memory
  std::optional<address> metrics;  // nothing: no metrics
  std::uint64_t memory_bytes = 0;
  unsigned threads = 1;
  token_book tokens;
  std::string token_file;  // empty: no tokens
  token_book metrics_tokens;
  std::string metrics_token_file;  // empty: metrics are for everybody
  std::string certificate_file;    // empty: no TLS
  std::string key_file;
  std::map<std::string, std::uint64_t> quota_bytes;
  std::map<std::string, tenant_limits> limits;  // every_tenant: of all others
  std::string shm_name;                         // empty: no shared memory
  std::string spill_directory;                  // empty: all blocks stay in memory
  std::uint64_t spill_bytes = 0;
  spill_codec spill_compress = spill_codec::none;
  std::vector<plugin_choice> plugins;
  std::uint64_t grace_ns = 0;
  std::uint64_t lease_ns = 0;  // not below grace_ns
  std::uint64_t drain_ns = 0;
  std::uint64_t patience_ns = 0;
  std::uint64_t silence_ns = 0;
  std::uint64_t spin_ns = 0;
  bool use_io_uring = true;
  log_level least_logged = log_level::info;
  log_format logged_as = log_format::text;
  bool only_check = false;  // say whether a server could start, and end
};

struct command_line {
  std::optional<options> chosen;  // nothing: print `text` and end well
  std::string text;               // of --help or --version
};

// Errors: one line that says what is wrong and what to write instead.
[[nodiscard]] result<command_line> parse_command_line(std::vector<std::string> arguments);

// The names of the options that differ and that a running server cannot change: all but tokens, certificates and keys
// in files of the same names, the memory, quotas, limits, and the log level.
[[nodiscard]] std::vector<std::string> fixed_differences(const options& before, const options& now);

}  // namespace far::server
