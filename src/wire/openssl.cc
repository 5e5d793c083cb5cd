#include "wire/openssl.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/sanitizers.h"
#include "platform/local_memory.h"

namespace far::wire {

namespace {

// In front of each block: how long it is, which free_local() wants to know. 16 bytes keep the block aligned.
constexpr std::size_t prefix_bytes = 16;

void* allocate(std::size_t bytes, const char* /*file*/, int /*line*/) {
  if (bytes == 0 || bytes > std::numeric_limits<std::size_t>::max() / 2) return nullptr;
  void* const start = platform::allocate_local(bytes + prefix_bytes);
  std::memcpy(start, &bytes, sizeof bytes);
  return static_cast<std::byte*>(start) + prefix_bytes;
}

std::size_t length_of(void* block) {
  std::size_t bytes = 0;
  std::memcpy(&bytes, static_cast<std::byte*>(block) - prefix_bytes, sizeof bytes);
  return bytes;
}

void release(void* block, const char* /*file*/, int /*line*/) {
  if (block == nullptr) return;
  platform::free_local(static_cast<std::byte*>(block) - prefix_bytes, length_of(block) + prefix_bytes);
}

void* reallocate(void* block, std::size_t bytes, const char* file, int line) {
  if (block == nullptr) return allocate(bytes, file, line);
  void* const moved = allocate(bytes, file, line);
  if (moved != nullptr) std::memcpy(moved, block, std::min(bytes, length_of(block)));
  if (moved != nullptr || bytes == 0) release(block, file, line);
  return moved;
}

void prepare_once() {
#if !defined(FAR_ADDRESS_SANITIZER)  // which finds more when it sees every block
  FAR_CHECK(CRYPTO_set_mem_functions(allocate, reallocate, release) == 1, "OpenSSL was used before it was prepared");
#else
  static_cast<void>(allocate), static_cast<void>(reallocate), static_cast<void>(release);
#endif
  constexpr std::uint64_t options = OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG;
  FAR_CHECK(OPENSSL_init_ssl(options, nullptr) == 1, "OpenSSL does not start");
}

}  // namespace

void prepare_openssl() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  FAR_CHECK(pthread_once(&once, prepare_once) == 0, "pthread_once");
}

std::string openssl_error() {
  std::array<char, 256> text{};
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "no reason given";
  const char* const reason = ERR_reason_error_string(code);
  if (reason != nullptr) return reason;
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

}  // namespace far::wire
