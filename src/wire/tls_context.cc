#include <openssl/ssl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "wire/openssl.h"
#include "wire/tls.h"

namespace far::wire {

namespace {

struct context_deleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using owned_context = std::unique_ptr<SSL_CTX, context_deleter>;

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

}  // namespace

result<std::unique_ptr<tls_context>> tls_context::for_server(const std::string& certificate_file,
                                                             const std::string& key_file) {
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
  return std::unique_ptr<tls_context>(new tls_context(context.release(), false));
}

result<std::unique_ptr<tls_context>> tls_context::for_client(const std::string& authority_file) {
  owned_context context = new_context(TLS_client_method());
  if (context == nullptr) return error{.message = "TLS does not start: " + openssl_error(), .code = EPROTO};
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (authority_file.empty()) {
    if (SSL_CTX_set_default_verify_paths(context.get()) != 1) {
      return error{.message = "the system's certificate authorities cannot be read: " + openssl_error() +
                              "; name a file of yours with ca=FILE",
                   .code = EINVAL};
    }
  } else if (SSL_CTX_load_verify_file(context.get(), authority_file.c_str()) != 1) {
    return failure("certificate authority", authority_file,
                   openssl_error() + "; it must hold certificates in PEM form");
  }
  return std::unique_ptr<tls_context>(new tls_context(context.release(), true));
}

tls_context::~tls_context() {
  SSL_CTX_free(static_cast<SSL_CTX*>(handle_));
}

}  // namespace far::wire
