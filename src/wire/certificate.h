// What an operator wants to know of a certificate before clients do.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace far::wire {

struct certificate_facts {
  std::string names;           // its subject alternative names, "DNS:cache1, IP:10.0.0.1"; empty: it has none
  std::int64_t days_left = 0;  // negative: it has expired
  bool is_valid_yet = true;
};

// Of the first certificate in a PEM file. Errors: the file cannot be read, or holds none.
[[nodiscard]] result<certificate_facts> read_certificate(const std::string& path);

}  // namespace far::wire
