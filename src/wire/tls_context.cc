#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pemerr.h>
#include <openssl/ssl.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/openssl.h"
#include "wire/secret_in_file.h"
#include "wire/tls.h"

namespace far::wire {

namespace {

struct context_deleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using owned_context = std::unique_ptr<SSL_CTX, context_deleter>;

struct bio_deleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct certificate_deleter {
  void operator()(X509* certificate) const { X509_free(certificate); }
};

constexpr std::size_t most_authority_bytes = std::size_t{4} << 20;

// The fastest first, where the processor knows AES.
constexpr const char* ciphers = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

error failure(const std::string& action, const std::string& path, const std::string& why, int code = EINVAL) {
  return {.message = action + " " + path + ": " + why, .code = code};
}

// An encrypted key would otherwise ask for its password on the terminal.
int no_password(char* /*into*/, int /*bytes*/, int /*is_writing*/, void* /*unused*/) {
  return -1;
}

owned_context new_context(const SSL_METHOD* method) {
  prepare_openssl();
  owned_context context(SSL_CTX_new(method));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context.get(), ciphers) != 1) {
    return nullptr;
  }
  // Connections live long and none is resumed; a session would only be one more secret to keep.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  return context;
}

// Whether only its owner may read the file at `path`; the error says what to do.
result<void> check_private(const std::string& path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) {
    const int code = errno;
    return failure("private key", path, std::string("cannot be read: ") + std::strerror(code), code);
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return failure("private key", path, "others may read it; keep it to yourself with: chmod 600 " + path, EACCES);
  }
  return {};
}

// The file is read here rather than by OpenSSL, whose descriptor the program could close.
result<void> trust(SSL_CTX* context, const std::string& authority_file) {
  const result<std::string> text = read_whole_file(authority_file, most_authority_bytes);
  if (!text) return failure("certificate authority", authority_file, "cannot be read: " + text.error().message);
  const std::unique_ptr<BIO, bio_deleter> pem(
      BIO_new_mem_buf(text.value().data(), static_cast<int>(text.value().size())));
  std::size_t count = 0;
  ERR_clear_error();
  while (pem != nullptr) {
    const std::unique_ptr<X509, certificate_deleter> one(PEM_read_bio_X509(pem.get(), nullptr, nullptr, nullptr));
    if (one == nullptr) break;
    count += X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one.get()) == 1 ? 1 : 0;
  }
  // The end of the text is an error, too, to OpenSSL. Any other one is about a certificate that is damaged or cut off.
  const unsigned long last = ERR_peek_last_error();
  const bool at_end = ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE;
  const std::string why = openssl_error();
  if (count > 0 && at_end) return {};
  return failure("certificate authority", authority_file, why + "; it must hold certificates in PEM form");
}

result<owned_context> make_server_context(const std::string& certificate_file, const std::string& key_file) {
  const result<void> is_private = check_private(key_file);
  if (!is_private) return is_private.error();
  owned_context context = new_context(TLS_server_method());
  if (context == nullptr) return error{.message = "TLS does not start: " + openssl_error(), .code = EPROTO};
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate_file.c_str()) != 1) {
    return failure("certificate", certificate_file, openssl_error() + "; it must hold certificates in PEM form");
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    return failure("private key", key_file,
                   openssl_error() + "; it must hold the key of " + certificate_file + " in PEM form, not encrypted");
  }
  return context;
}

result<owned_context> make_client_context(const std::string& authority_file) {
  owned_context context = new_context(TLS_client_method());
  if (context == nullptr) return error{.message = "TLS does not start: " + openssl_error(), .code = EPROTO};
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (authority_file.empty()) {
    if (SSL_CTX_set_default_verify_paths(context.get()) != 1) {
      return error{.message = "the system's certificate authorities cannot be read: " + openssl_error() +
                              "; name a file of yours with ca=FILE",
                   .code = EINVAL};
    }
  } else if (result<void> trusted = trust(context.get(), authority_file); !trusted) {
    return trusted.error();
  }
  return context;
}

}  // namespace

// Where it comes from; `seen`: the version of the files that were read last; `has_failed`: they cannot be used. Both
// are guarded by the context's lock.
struct tls_context::sources {
  bool is_client = false;
  std::string certificate_file;
  std::string key_file;
  std::string authority_file;
  std::array<file_version, 2> seen{};
  bool has_failed = false;

  [[nodiscard]] std::array<file_version, 2> versions() const {
    if (!is_client) return {version_of(certificate_file), version_of(key_file)};
    if (authority_file.empty()) return {};  // the system's are read once
    return {version_of(authority_file), {}};
  }
  [[nodiscard]] result<owned_context> read() const {
    return is_client ? make_client_context(authority_file) : make_server_context(certificate_file, key_file);
  }
};

tls_context::tls_context(std::unique_ptr<sources> read_from, void* handle)
    : sources_(std::move(read_from)), is_client_(sources_->is_client), handle_(handle) {}

result<std::unique_ptr<tls_context>> tls_context::create(std::unique_ptr<sources> read_from) {
  read_from->seen = read_from->versions();
  result<owned_context> context = read_from->read();
  if (!context) return context.error();
  return std::unique_ptr<tls_context>(new tls_context(std::move(read_from), std::move(context).value().release()));
}

result<std::unique_ptr<tls_context>> tls_context::for_server(const std::string& certificate_file,
                                                             const std::string& key_file) {
  return create(std::make_unique<sources>(
      sources{.certificate_file = certificate_file, .key_file = key_file, .authority_file = {}}));
}

result<std::unique_ptr<tls_context>> tls_context::for_client(const std::string& authority_file) {
  return create(std::make_unique<sources>(
      sources{.is_client = true, .certificate_file = {}, .key_file = {}, .authority_file = authority_file}));
}

// Files are read without the lock, under which others begin connections. When two threads do it at once, the one that
// noticed the change reads it.
result<bool> tls_context::refresh(telling errors) {
  const std::array<file_version, 2> now = sources_->versions();
  bool is_new = false;
  {
    const lock_guard guard(lock_);
    is_new = std::exchange(sources_->seen, now) != now;
    if (!is_new && !sources_->has_failed) return false;
  }
  result<owned_context> fresh = sources_->read();
  owned_context old;
  const lock_guard guard(lock_);
  if (sources_->seen != now) return false;  // another thread reads what has replaced them meanwhile
  sources_->has_failed = !fresh;
  if (!fresh && !is_new && errors == telling::once_a_change) return false;
  if (!fresh) return fresh.error();
  old.reset(static_cast<SSL_CTX*>(std::exchange(handle_, std::move(fresh).value().release())));
  return true;
}

void* tls_context::share() const {
  const lock_guard guard(lock_);
  SSL_CTX_up_ref(static_cast<SSL_CTX*>(handle_));
  return handle_;
}

tls_context::~tls_context() {
  lock_.assert_held();  // nobody else is at work
  SSL_CTX_free(static_cast<SSL_CTX*>(handle_));
}

}  // namespace far::wire
