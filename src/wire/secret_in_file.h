// Files that an operator may replace while the program runs: tokens, passwords, certificates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace far::wire {

// Some of these change when a file is replaced, written to, or given other rights. All zero: it cannot be looked at.
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

  // The secret, when the file is another one than at the last call, or could not be read then. An error, once for each
  // change: it cannot be read now, and the secret of before stays in use.
  [[nodiscard]] std::optional<result<std::string>> changed();

 private:
  std::string path_;
  reader read_;
  file_version seen_;
  bool has_failed_ = false;  // the last time that it was read
};

}  // namespace far::wire
