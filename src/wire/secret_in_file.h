// Files that an operator may replace while the program runs: tokens, passwords, certificates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace far::wire {

// At least one of these changes when a file is replaced or written to. All zero: the file cannot be examined.
struct file_version {
  std::uint64_t device = 0;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::uint64_t changed_ns = 0;

  bool operator==(const file_version&) const = default;
};

[[nodiscard]] file_version version_of(const std::string& path);

// Reads a file of at most so many bytes through a descriptor of the runtime. Errors give the reason, without the path.
[[nodiscard]] result<std::string> read_whole_file(const std::string& path, std::size_t most_bytes);

// Not thread-safe.
class secret_in_file {
 public:
  using reader = result<std::string> (*)(const std::string& path);

  // An empty `path`: there is no file.
  secret_in_file(std::string path, reader read) : path_(std::move(path)), read_(read) {}

  // The secret, if the file has changed since the last call. An error, once for each change: it cannot be read, and the
  // caller keeps the old secret.
  [[nodiscard]] std::optional<result<std::string>> changed();

 private:
  std::string path_;
  reader read_;
  file_version seen_;
};

}  // namespace far::wire
