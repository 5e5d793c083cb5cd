#include "server/token_book.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/handshake.h"
#include "wire/server_handshake.h"

namespace far::server {
namespace {

constexpr std::size_t maximum_file_bytes = 4 << 20;

class descriptor {
 public:
  explicit descriptor(const std::string& path) : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~descriptor() {
    if (number_ >= 0) close(number_);
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

// A secret that others can read is refused; a warning would not do. The mode is checked on the opened file, so that it
// cannot be exchanged in between.
result<std::string> read_secret_file(const std::string& path, const char* purpose) {
  const auto failure = [&](const std::string& why, int code) {
    return error{std::string(purpose) + " '" + path + "' " + why, code};
  };
  const descriptor opened(path);
  if (opened.number() < 0) return failure(std::string("cannot be read: ") + std::strerror(errno), errno);
  struct stat facts{};
  if (fstat(opened.number(), &facts) != 0 || !S_ISREG(facts.st_mode)) return failure("is not a file", EINVAL);
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return failure("can be read by others; run: chmod 600 " + path, EACCES);
  }
  std::string text;
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while ((got = ::read(opened.number(), part.data(), part.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failure(std::string("cannot be read: ") + std::strerror(errno), errno);
    text.append(part.data(), static_cast<std::size_t>(got));
    if (text.size() > maximum_file_bytes) return failure("is too large to be one", EFBIG);
  }
  return text;
}

result<token_book> token_book::read(const std::string& path) {
  const result<std::string> text = read_secret_file(path, "token file");
  if (!text) return text.error();
  return parse(text.value(), path);
}

// A file with a wrong line is refused as a whole, because it would be noticed late that a server has only some of its
// tenants.
result<token_book> token_book::parse(std::string_view text, const std::string& path) {
  table found;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const auto failure = [&](const std::string& why) {
      return error{"token file '" + path + "', line " + std::to_string(number) + ": " + why, EINVAL};
    };
    const std::size_t gap = line.find_first_of(" \t");
    const std::string_view tenant = gap == line.npos ? "default" : line.substr(0, gap);
    const std::string_view token = gap == line.npos ? line : trimmed(line.substr(gap));
    if (!wire::is_tenant_name(tenant)) {
      return failure("a tenant's name has letters, digits, '-', '_' and '.'; write: TENANT TOKEN");
    }
    if (token.find_first_of(" \t") != token.npos) return failure("a token has no spaces; write: TENANT TOKEN");
    if (token.size() < wire::minimum_token_bytes || token.size() > wire::maximum_token_bytes) {
      return failure("a token has " + std::to_string(wire::minimum_token_bytes) + " to " +
                     std::to_string(wire::maximum_token_bytes) + " bytes; make one with: openssl rand -hex 32");
    }
    std::vector<std::string>& of_tenant = found[std::string(tenant)];
    if (of_tenant.size() == wire::server_handshake::most_tokens) {
      return failure("a third token for the same tenant; remove the oldest one");
    }
    of_tenant.emplace_back(token);
  }
  if (found.empty())
    return error{"token file '" + path + "' holds no token; make one with: openssl rand -hex 32", EINVAL};
  return token_book(std::make_shared<const table>(std::move(found)));
}

token_book::token_book() : token_book(std::make_shared<const table>()) {}

token_book::token_book(std::shared_ptr<const table> tokens) : tokens_(std::move(tokens)) {}

token_book& token_book::operator=(token_book&& other) noexcept {
  std::shared_ptr<const table> fresh = other.now();
  const lock_guard guard(lock_);
  tokens_.swap(fresh);
  return *this;
}

std::shared_ptr<const token_book::table> token_book::now() const {
  const lock_guard guard(lock_);
  return tokens_;
}

std::vector<std::string> token_book::tokens_of(const std::string& tenant) const {
  const std::shared_ptr<const table> book = now();
  const auto found = book->find(tenant);
  return found == book->end() ? std::vector<std::string>() : found->second;
}

}  // namespace far::server
