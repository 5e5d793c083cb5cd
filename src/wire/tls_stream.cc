#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "platform/local_memory.h"
#include "wire/openssl.h"
#include "wire/tls.h"

namespace far::wire {

namespace {

// The longest record that OpenSSL makes of plaintext, and what is added around it.
constexpr std::size_t record_bytes = 16384;
constexpr std::size_t record_overhead_bytes = 512;

// Bytes on their way, first in, first out: a ring, so that a queue that stays full is never moved. Its frames are
// filled on first touch, and it starts again at the front whenever it is empty, so that a connection of small messages
// touches few.
class byte_queue {
 public:
  byte_queue() : bytes_(platform::map_local(capacity)) {}
  ~byte_queue() { platform::unmap_local(bytes_, capacity); }
  byte_queue(const byte_queue&) = delete;
  byte_queue& operator=(const byte_queue&) = delete;

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t room() const { return capacity - size_; }

  // Requires: room() is enough.
  void push(const void* from, std::size_t bytes) {
    const std::size_t end = (begin_ + size_) % capacity;
    const std::size_t first = std::min(bytes, capacity - end);
    std::memcpy(bytes_ + end, from, first);
    std::memcpy(bytes_, static_cast<const std::byte*>(from) + first, bytes - first);
    size_ += bytes;
  }

  // Returns how many bytes there were for `into`.
  std::size_t pop(void* into, std::size_t bytes) {
    const std::size_t taken = std::min(bytes, size_);
    const std::size_t first = std::min(taken, capacity - begin_);
    std::memcpy(into, bytes_ + begin_, first);
    std::memcpy(static_cast<std::byte*>(into) + first, bytes_, taken - first);
    size_ -= taken;
    begin_ = size_ == 0 ? 0 : (begin_ + taken) % capacity;
    return taken;
  }

 private:
  static constexpr std::size_t capacity = tls_stream::buffer_bytes;

  std::byte* bytes_;
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
};

struct both_queues {
  byte_queue in;   // from the peer, for OpenSSL
  byte_queue out;  // from OpenSSL, for the peer
};

both_queues& queues_of(BIO* bio) {
  return *static_cast<both_queues*>(BIO_get_data(bio));
}

int read_queue(BIO* bio, char* into, std::size_t bytes, std::size_t* taken) {
  BIO_clear_retry_flags(bio);
  *taken = queues_of(bio).in.pop(into, bytes);
  if (*taken == 0) BIO_set_retry_read(bio);
  return *taken > 0 ? 1 : 0;
}

int write_queue(BIO* bio, const char* from, std::size_t bytes, std::size_t* taken) {
  BIO_clear_retry_flags(bio);
  byte_queue& out = queues_of(bio).out;
  *taken = std::min(bytes, out.room());
  if (*taken == 0) BIO_set_retry_write(bio);
  if (*taken > 0) out.push(from, *taken);
  return *taken > 0 ? 1 : 0;
}

long control_queue(BIO* /*bio*/, int command, long /*number*/, void* /*unused*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* queue_method = nullptr;

void make_queue_method() {
  BIO_METHOD* const method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "farheap queue");
  const bool complete = method != nullptr && BIO_meth_set_read_ex(method, read_queue) == 1 &&
                        BIO_meth_set_write_ex(method, write_queue) == 1 &&
                        BIO_meth_set_ctrl(method, control_queue) == 1;
  FAR_CHECK(complete, "OpenSSL takes no BIO method");
  queue_method = method;
}

struct stream_deleter {
  void operator()(SSL* stream) const { SSL_free(stream); }
};

bool is_address(const std::string& name) {
  std::array<unsigned char, 16> address{};
  return inet_pton(AF_INET, name.c_str(), address.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), address.data()) == 1;
}

// Makes `stream` accept only a certificate for `name`.
bool expect_name(SSL* stream, const std::string& name) {
  X509_VERIFY_PARAM* const wanted = SSL_get0_param(stream);
  if (is_address(name)) return X509_VERIFY_PARAM_set1_ip_asc(wanted, name.c_str()) == 1;
  X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  return X509_VERIFY_PARAM_set1_host(wanted, name.c_str(), name.size()) == 1 &&
         SSL_set_tlsext_host_name(stream, name.c_str()) == 1;
}

}  // namespace

struct tls_stream::parts {
  both_queues queues;
  std::unique_ptr<SSL, stream_deleter> stream;
  std::string server_name;
  std::optional<error> failed;  // OpenSSL says why only once
  std::optional<std::array<std::byte, 32>> binding;

  // The reason for the end of the connection, after OpenSSL's call returned `code`.
  [[nodiscard]] error failure(int code) const;
};

// Requires: the TLS handshake is over, and nothing has failed since.
static std::array<std::byte, 32> export_binding(SSL* stream) {
  constexpr std::string_view label = "EXPORTER-Channel-Binding";
  std::array<std::byte, 32> exported{};
  const int code = SSL_export_keying_material(stream, reinterpret_cast<unsigned char*>(exported.data()),
                                              exported.size(), label.data(), label.size(), nullptr, 0, 1);
  FAR_CHECK(code == 1, "OpenSSL exports no keying material");
  return exported;
}

error tls_stream::parts::failure(int code) const {
  const int kind = SSL_get_error(stream.get(), code);
  if (kind == SSL_ERROR_ZERO_RETURN) return {.message = "TLS: the peer closed the connection", .code = ECONNRESET};
  const long verified = SSL_get_verify_result(stream.get());
  const std::string reason = openssl_error();
  if (verified == X509_V_OK) return {.message = "TLS: " + reason, .code = EPROTO};
  std::string text = "TLS: the certificate of " + server_name + " is refused: ";
  text += X509_verify_cert_error_string(verified);
  if (verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH) {
    text += "; it must name " + server_name + " among its subject alternative names";
  } else {
    text += "; name the authority that signed it with ca=FILE";
  }
  return {.message = std::move(text), .code = 0};
}

tls_stream::tls_stream(std::unique_ptr<parts> all) : parts_(std::move(all)) {}

tls_stream::~tls_stream() = default;

result<std::unique_ptr<tls_stream>> tls_stream::create(tls_context& context, const std::string& server_name) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  FAR_CHECK(pthread_once(&once, make_queue_method) == 0, "pthread_once");
  FAR_CHECK(context.is_client_ != server_name.empty(), "clients name the server, servers nobody");
  auto all = std::make_unique<parts>();
  all->server_name = server_name;
  auto* const certificates = static_cast<SSL_CTX*>(context.share());
  all->stream.reset(SSL_new(certificates));  // which holds on to them
  SSL_CTX_free(certificates);
  SSL* const stream = all->stream.get();
  BIO* const bio = BIO_new(queue_method);
  if (stream == nullptr || bio == nullptr) {
    BIO_free(bio);
    return error{.message = "TLS does not start: " + openssl_error(), .code = ENOMEM};
  }
  BIO_set_data(bio, &all->queues);
  BIO_set_init(bio, 1);
  SSL_set_bio(stream, bio, bio);
  if (!context.is_client_) {
    SSL_set_accept_state(stream);
    return std::unique_ptr<tls_stream>(new tls_stream(std::move(all)));
  }
  if (!expect_name(stream, server_name)) {
    return error{.message = "TLS: '" + server_name + "' is no name for a server: " + openssl_error(), .code = EINVAL};
  }
  SSL_set_connect_state(stream);
  ERR_clear_error();
  const int code = SSL_do_handshake(stream);
  if (SSL_get_error(stream, code) != SSL_ERROR_WANT_READ) return all->failure(code);
  return std::unique_ptr<tls_stream>(new tls_stream(std::move(all)));
}

bool tls_stream::feed(std::span<const std::byte> ciphertext) {
  byte_queue& in = parts_->queues.in;
  if (ciphertext.size() > in.room()) return false;
  in.push(ciphertext.data(), ciphertext.size());
  return true;
}

result<std::size_t> tls_stream::read(std::span<std::byte> into) {
  SSL* const stream = parts_->stream.get();
  std::size_t total = 0;
  while (total < into.size() && !parts_->failed) {
    std::size_t got = 0;
    ERR_clear_error();
    const int code = SSL_read_ex(stream, into.data() + total, into.size() - total, &got);
    if (code == 1) {
      // A later failure, of which the caller hears after these bytes, ends what can be exported.
      if (!parts_->binding) parts_->binding = export_binding(stream);
      total += got;
      continue;
    }
    const int kind = SSL_get_error(stream, code);
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) break;
    parts_->failed = parts_->failure(code);
  }
  // Bytes decrypted before the failure are good.
  if (parts_->failed && total == 0) return *parts_->failed;
  return total;
}

result<std::size_t> tls_stream::write(std::span<const std::byte> plaintext) {
  SSL* const stream = parts_->stream.get();
  if (parts_->failed) return *parts_->failed;
  if (!established()) return std::size_t{0};
  std::size_t total = 0;
  // A record is begun only when there is room for all of it, so OpenSSL never keeps a record for a second call.
  while (total < plaintext.size() && parts_->queues.out.room() >= record_bytes + record_overhead_bytes) {
    std::size_t taken = 0;
    const std::size_t length = std::min(plaintext.size() - total, record_bytes);
    ERR_clear_error();
    const int code = SSL_write_ex(stream, plaintext.data() + total, length, &taken);
    if (code != 1) return *(parts_->failed = parts_->failure(code));
    total += taken;
  }
  return total;
}

std::size_t tls_stream::take(std::span<std::byte> into) {
  return parts_->queues.out.pop(into.data(), into.size());
}

std::size_t tls_stream::pending() const {
  return parts_->queues.out.size();
}

bool tls_stream::established() const {
  return SSL_is_init_finished(parts_->stream.get()) == 1;
}

std::array<std::byte, 32> tls_stream::binding() const {
  if (parts_->binding) return *parts_->binding;
  FAR_CHECK(established(), "the binding of a connection that is not there yet");
  return export_binding(parts_->stream.get());
}

}  // namespace far::wire
