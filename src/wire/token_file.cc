#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "platform/own_descriptors.h"
#include "wire/handshake.h"

namespace far::wire {

namespace {

// Secrets are read again while the program runs, which may close descriptors that it does not know at any moment.
class file {
 public:
  explicit file(const std::string& path)
      : descriptor_(platform::own_descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))) {}
  ~file() {
    if (descriptor_ >= 0) platform::close_own_descriptor(descriptor_);
  }
  file(const file&) = delete;
  file& operator=(const file&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// Reads as much as there is and fits; -1 and errno when it cannot.
ssize_t read_all(int descriptor, std::span<char> into) {
  std::size_t have = 0;
  while (have < into.size()) {
    const ssize_t got = read(descriptor, into.data() + have, into.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return static_cast<ssize_t>(have);
}

}  // namespace

result<std::string> read_token_file(const std::string& path) {
  static const std::string too_short = "its first line is shorter than " + std::to_string(minimum_token_bytes) +
                                       " bytes; make a token with: openssl rand -hex 32";
  return read_secret_file({.secret = "token file", .least_bytes = minimum_token_bytes, .if_too_short = too_short},
                          path);
}

result<std::string> read_secret_file(const secret_file_rules& rules, const std::string& path) {
  const auto failure = [&](const std::string& why, int code) {
    return error{.message = std::string(rules.secret) + " " + path + ": " + why, .code = code};
  };
  const file opened(path);
  if (opened.descriptor() < 0) {
    const int code = errno;
    return failure(std::string("cannot be read: ") + std::strerror(code), code);
  }
  struct stat facts = {};
  if (fstat(opened.descriptor(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
    return failure("is not a file", EINVAL);
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return failure("others may read it; keep it to yourself with: chmod 600 " + path, EACCES);
  }
  std::array<char, maximum_token_bytes + 2> text{};
  const ssize_t have = read_all(opened.descriptor(), text);
  if (have < 0) {
    const int code = errno;
    return failure(std::string("cannot be read: ") + std::strerror(code), code);
  }
  std::string_view line(text.data(), static_cast<std::size_t>(have));
  line = line.substr(0, line.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (line.size() < rules.least_bytes) return failure(std::string(rules.if_too_short), EINVAL);
  if (line.size() > maximum_token_bytes) {
    return failure("its first line is longer than " + std::to_string(maximum_token_bytes) + " bytes", EINVAL);
  }
  return std::string(line);
}

}  // namespace far::wire
