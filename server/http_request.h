// The head of an HTTP/1 request, as far as a metrics server needs it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace far::server {

struct http_request {
  enum class state : std::uint8_t {
    incomplete,  // more bytes are to come
    complete,
    malformed,
  };

  std::string method;
  std::string path;           // without what follows a '?'
  std::string authorization;  // the header's value; empty: there is none
};

// Takes the bytes from the start of a connection. It does not read the request's body.
[[nodiscard]] http_request::state parse_http_request(std::string_view bytes, http_request* into);

}  // namespace far::server
