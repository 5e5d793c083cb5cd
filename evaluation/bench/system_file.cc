#include "system_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <array>

namespace far::bench {

result<std::string> read_system_file(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return error{"cannot open " + path + ": " + strerror(errno), errno};
  std::string text;
  std::array<char, 4096> buffer;
  ssize_t got = 0;
  while ((got = read(descriptor, buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  const int failure = got < 0 ? errno : 0;
  close(descriptor);
  if (failure != 0) return error{"cannot read " + path + ": " + strerror(failure), failure};
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

result<void> write_system_file(const std::string& path, const std::string& value) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return error{"cannot open " + path + ": " + strerror(errno), errno};
  const ssize_t done = write(descriptor, value.data(), value.size());
  const int failure = done < 0 ? errno : 0;
  close(descriptor);
  if (failure != 0) return error{"cannot write '" + value + "' to " + path + ": " + strerror(failure), failure};
  return {};
}

}  // namespace far::bench
