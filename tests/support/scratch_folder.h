// A new folder for a test, which goes away with everything in it.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "base/check.h"

namespace far {

class scratch_folder {
 public:
  explicit scratch_folder(const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path_(parent / "farheap-test-XXXXXX") {
    FAR_CHECK(mkdtemp(path_.data()) != nullptr, "a test cannot make a folder");
  }
  ~scratch_folder() {
    std::error_code ignored;  // a folder that stays behind harms no test
    std::filesystem::remove_all(path_, ignored);
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace far
