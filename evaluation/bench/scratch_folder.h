// A new folder for certificates, sockets and traces, which goes away with everything in it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace far::bench {

class scratch_folder {
 public:
  scratch_folder() {
    std::string pattern = std::filesystem::temp_directory_path() / "farheap-bench-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~scratch_folder() {
    std::error_code ignored;  // the folder for temporary files keeps it then
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;

  // Empty when there is none.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace far::bench
