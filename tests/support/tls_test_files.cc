#include "tests/support/tls_test_files.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "base/check.h"
#include "wire/openssl.h"

namespace far::wire {

namespace {

template <auto Release>
struct deleter {
  template <typename T>
  void operator()(T* object) const {
    Release(object);
  }
};
using owned_key = std::unique_ptr<EVP_PKEY, deleter<EVP_PKEY_free>>;
using owned_certificate = std::unique_ptr<X509, deleter<X509_free>>;
using owned_extension = std::unique_ptr<X509_EXTENSION, deleter<X509_EXTENSION_free>>;
using owned_file = std::unique_ptr<std::FILE, deleter<std::fclose>>;

owned_file open_file(const std::string& path, const char* mode) {
  owned_file opened(std::fopen(path.c_str(), mode));
  FAR_CHECK(opened != nullptr, "a test file cannot be opened");
  return opened;
}

void add_extension(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const owned_extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  FAR_CHECK(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1, "extension");
}

// A certificate without a signature, valid from an hour before `valid_seconds` from now on.
owned_certificate new_certificate(const std::string& name, EVP_PKEY* key, long valid_seconds) {
  static long serial = 0;
  owned_certificate certificate(X509_new());
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600 + (valid_seconds < 0 ? valid_seconds : 0));
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), valid_seconds);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

void write_both(const std::string& certificate_file, X509* certificate, const std::string& key_file, EVP_PKEY* key) {
  FAR_CHECK(PEM_write_X509(open_file(certificate_file, "w").get(), certificate) == 1, "certificate");
  FAR_CHECK(PEM_write_PrivateKey(open_file(key_file, "w").get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
            "key");
  FAR_CHECK(chmod(key_file.c_str(), 0600) == 0, "chmod");
}

}  // namespace

tls_test_files::tls_test_files() {
  prepare_openssl();
}

std::string tls_test_files::make_authority(const std::string& name) {
  const owned_key pair(EVP_EC_gen("P-256"));
  const owned_certificate signer = new_certificate(name, pair.get(), 3600);
  X509_set_issuer_name(signer.get(), X509_get_subject_name(signer.get()));
  add_extension(signer.get(), signer.get(), NID_basic_constraints, "critical,CA:TRUE");
  add_extension(signer.get(), signer.get(), NID_subject_key_identifier, "hash");
  FAR_CHECK(X509_sign(signer.get(), pair.get(), EVP_sha256()) > 0, "sign");
  write_both(certificate(name), signer.get(), key(name), pair.get());
  return certificate(name);
}

void tls_test_files::make_server(const std::string& name, const std::string& authority,
                                 const std::string& alternative_names, long valid_seconds) {
  const owned_certificate issuer(
      PEM_read_X509(open_file(certificate(authority), "r").get(), nullptr, nullptr, nullptr));
  const owned_key issuer_key(PEM_read_PrivateKey(open_file(key(authority), "r").get(), nullptr, nullptr, nullptr));
  FAR_CHECK(issuer != nullptr && issuer_key != nullptr, "no such authority");
  const owned_key pair(EVP_EC_gen("P-256"));
  const owned_certificate issued = new_certificate(name, pair.get(), valid_seconds);
  X509_set_issuer_name(issued.get(), X509_get_subject_name(issuer.get()));
  if (!alternative_names.empty()) {
    add_extension(issued.get(), issuer.get(), NID_subject_alt_name, alternative_names.c_str());
  }
  FAR_CHECK(X509_sign(issued.get(), issuer_key.get(), EVP_sha256()) > 0, "sign");
  write_both(certificate(name), issued.get(), key(name), pair.get());
}

}  // namespace far::wire
