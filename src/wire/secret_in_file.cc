#include "wire/secret_in_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "platform/own_descriptors.h"

namespace far::wire {

file_version version_of(const std::string& path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) return {};
  // Not the time of the last write: that can be set, and stays when only the mode changes.
  return {.device = facts.st_dev,
          .number = facts.st_ino,
          .bytes = static_cast<std::uint64_t>(facts.st_size),
          .changed_ns = static_cast<std::uint64_t>(facts.st_ctim.tv_sec) * 1'000'000'000 +
                        static_cast<std::uint64_t>(facts.st_ctim.tv_nsec)};
}

result<std::string> read_whole_file(const std::string& path, std::size_t most_bytes) {
  const int descriptor = platform::own_descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor < 0) return error{std::strerror(errno), errno};
  std::string text;
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while ((got = read(descriptor, part.data(), part.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || text.size() + static_cast<std::size_t>(got) > most_bytes) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  const int code = got < 0 ? errno : EFBIG;
  platform::close_own_descriptor(descriptor);
  if (got != 0) return error{std::strerror(code), code};
  return text;
}

// The version is taken before the file is read: a change in between is noticed at the next call.
std::optional<result<std::string>> secret_in_file::changed() {
  if (path_.empty()) return std::nullopt;
  const file_version now = version_of(path_);
  const bool is_new = now != seen_;
  if (!is_new && !has_failed_) return std::nullopt;
  seen_ = now;
  result<std::string> got = read_(path_);
  has_failed_ = !got;
  if (has_failed_ && !is_new) return std::nullopt;  // it has been told
  return got;
}

}  // namespace far::wire
