// Certificates for tests, made on the spot: an authority, and certificates that it has signed. Kept out of what is
// preloaded.
#pragma once

#include <string>

#include "tests/support/scratch_folder.h"

namespace far::wire {

// PEM files in a folder of their own that goes with the object.
class tls_test_files {
 public:
  tls_test_files();
  tls_test_files(const tls_test_files&) = delete;
  tls_test_files& operator=(const tls_test_files&) = delete;

  // Makes an authority; returns its certificate's file.
  std::string make_authority(const std::string& name);
  // Makes NAME.pem and NAME.key (0600), signed by that authority. `alternative_names` as in
  // "DNS:far.test,IP:127.0.0.1". `valid_seconds` below 0: it has ended already.
  void make_server(const std::string& name, const std::string& authority, const std::string& alternative_names,
                   long valid_seconds = 3600);

  [[nodiscard]] std::string certificate(const std::string& name) const { return folder_ + "/" + name + ".pem"; }
  [[nodiscard]] std::string key(const std::string& name) const { return folder_ + "/" + name + ".key"; }
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  const scratch_folder scratch_;
  const std::string folder_ = scratch_.path();
};

}  // namespace far::wire
