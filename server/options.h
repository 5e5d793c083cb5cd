// The command line of farheapd, and its configuration file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/address.h"
#include "server/token_book.h"

namespace far::server {

// The options, checked as far as possible without opening anything but the token file.
struct options {
  std::optional<address> listen;   // nothing: only shared memory
  std::optional<address> metrics;  // nothing: no metrics
  std::uint64_t memory_bytes = 0;
  unsigned threads = 1;
  token_book tokens;
  std::string certificate_file;  // empty: no TLS
  std::string key_file;
  std::map<std::string, std::uint64_t> quota_bytes;
  std::string shm_name;  // empty: no shared memory
  std::uint64_t grace_ns = 0;
  std::uint64_t lease_ns = 0;  // not below grace_ns
  std::uint64_t drain_ns = 0;
  std::uint64_t patience_ns = 0;
  std::uint64_t silence_ns = 0;
  std::uint64_t spin_ns = 0;
  bool use_io_uring = true;
};

struct command_line {
  std::optional<options> chosen;  // nothing: print `text` and end well
  std::string text;               // of --help or --version
};

// Errors: one line that says what is wrong and what to write instead.
[[nodiscard]] result<command_line> parse_command_line(std::vector<std::string> arguments);

}  // namespace far::server
