#include "wire/certificate.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "wire/openssl.h"

namespace far::wire {
namespace {

struct free_bio {
  void operator()(BIO* used) const { BIO_free(used); }
};
struct free_certificate {
  void operator()(X509* used) const { X509_free(used); }
};
struct free_names {
  void operator()(GENERAL_NAMES* used) const { GENERAL_NAMES_free(used); }
};

std::string text_of(const GENERAL_NAME& name) {
  const std::unique_ptr<BIO, free_bio> printed(BIO_new(BIO_s_mem()));
  if (printed == nullptr || GENERAL_NAME_print(printed.get(), const_cast<GENERAL_NAME*>(&name)) != 1) return "?";
  std::array<char, 256> text{};
  const int length = BIO_read(printed.get(), text.data(), text.size());
  return {text.data(), static_cast<std::size_t>(length > 0 ? length : 0)};
}

std::string names_of(const X509& certificate) {
  const std::unique_ptr<GENERAL_NAMES, free_names> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::string all;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    all += (all.empty() ? "" : ", ") + text_of(*sk_GENERAL_NAME_value(names.get(), i));
  }
  return all;
}

}  // namespace

result<certificate_facts> read_certificate(const std::string& path) {
  prepare_openssl();
  const std::unique_ptr<BIO, free_bio> file(BIO_new_file(path.c_str(), "r"));
  if (file == nullptr) return error{"certificate '" + path + "' cannot be read: " + std::strerror(errno), errno};
  const std::unique_ptr<X509, free_certificate> read(PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr));
  if (read == nullptr) return error{"certificate '" + path + "' holds no certificate in PEM", EINVAL};
  certificate_facts facts{.names = names_of(*read)};
  int days = 0;
  int seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, nullptr, X509_get0_notAfter(read.get())) != 1) {
    return error{"certificate '" + path + "' has no date of expiry", EINVAL};
  }
  facts.days_left = seconds < 0 && days == 0 ? -1 : days;
  facts.is_valid_yet = X509_cmp_current_time(X509_get0_notBefore(read.get())) < 0;
  return facts;
}

}  // namespace far::wire
