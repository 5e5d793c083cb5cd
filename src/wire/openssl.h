// The copy of OpenSSL inside this program or library, made ready before its first use.
#pragma once

#include <string>

namespace far::wire {

// Idempotent and thread-safe. Registers no exit handler, reads no configuration of OpenSSL (which could load modules
// that belong to another copy), and keeps its memory local.
void prepare_openssl();

// The oldest error that OpenSSL has noted in this thread, for a person; the notes are cleared.
[[nodiscard]] std::string openssl_error();

}  // namespace far::wire
