// The tokens of the tenants, read from a file.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_mutex.h"

namespace far::server {

// Thread-safe, also while another book is moved into its place.
class token_book {
 public:
  // Without tokens: nobody has to prove anything.
  token_book();
  token_book(token_book&& other) noexcept : tokens_(other.now()) {}
  token_book& operator=(token_book&& other) noexcept;

  // A file of mode 0600 (or stricter) with one line for each tenant: "TENANT TOKEN", or only "TOKEN" for the tenant
  // "default"; two lines for a tenant whose token is being replaced. Empty lines, and lines that begin with '#', are
  // left out. Errors say what to do; none of them holds a token.
  [[nodiscard]] static result<token_book> read(const std::string& path);
  // The same from text; `path` is for messages.
  [[nodiscard]] static result<token_book> parse(std::string_view text, const std::string& path);

  [[nodiscard]] bool empty() const { return now()->empty(); }
  // How many tenants have a token.
  [[nodiscard]] std::size_t tenants() const { return now()->size(); }
  // The valid tokens of a tenant; none: there is no such tenant.
  [[nodiscard]] std::vector<std::string> tokens_of(const std::string& tenant) const;

 private:
  using table = std::map<std::string, std::vector<std::string>>;

  explicit token_book(std::shared_ptr<const table> tokens);
  [[nodiscard]] std::shared_ptr<const table> now() const;

  mutable thread_mutex lock_;
  std::shared_ptr<const table> tokens_ FAR_GUARDED_BY(lock_);
};

// Reads a file that only its owner may read. Errors: not there, not a file, others may read it; `purpose` names it
// ("token file").
[[nodiscard]] result<std::string> read_secret_file(const std::string& path, const char* purpose);

}  // namespace far::server
