// The tokens of the tenants, as a file tells them.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace far::server {

class token_book {
 public:
  // Without tokens: nobody has to prove anything.
  token_book() = default;

  // A file of mode 0600 (or stricter) with one line for each tenant: "TENANT TOKEN", or only "TOKEN" for the tenant
  // "default". Empty lines, and lines that begin with '#', are left out. Errors say what to do; none of them holds a
  // token.
  [[nodiscard]] static result<token_book> read(const std::string& path);
  // The same from text; `path` is for messages.
  [[nodiscard]] static result<token_book> parse(std::string_view text, const std::string& path);

  [[nodiscard]] bool empty() const { return tokens_.empty(); }
  // nullptr: there is no such tenant.
  [[nodiscard]] const std::string* find(const std::string& tenant) const;

 private:
  std::map<std::string, std::string> tokens_;
};

// Reads a file that only its owner may read. Errors: not there, not a file, others may read it; `what` names it
// ("token file").
[[nodiscard]] result<std::string> read_secret_file(const std::string& path, const char* purpose);

}  // namespace far::server
