// The files and libraries that the linker is given: which of them are for link-time optimisation.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace far::compiler {

// Whether the file is an object for link-time optimisation, or an archive, also a thin one, with such an object in it.
[[nodiscard]] bool has_bitcode(const std::string& path);

class linker_inputs {
 public:
  void add_file(std::string path) {
    if (!is_data_) inputs_.push_back({std::move(path), false, false});
  }
  void add_library(std::string_view name) { inputs_.push_back({std::string(name), true, wants_archives_}); }
  void add_folder(std::string_view path) { folders_.emplace_back(path); }
  // Of the libraries that follow, archives are linked and no shared ones.
  void want_archives(bool wanted) { wants_archives_ = wanted; }
  // Words for the linker, with commas in between.
  void read(std::string_view words);

  // The path of the first one that has bitcode, or none. Clang's own folders are asked for only where a library is not
  // in those of -L.
  [[nodiscard]] std::string find_bitcode(const std::function<std::vector<std::string>()>& own_folders) const;

 private:
  struct input {
    std::string name;  // of a library, what is behind -l
    bool is_library;
    bool is_archive;
  };

  void read_word(const std::string& word);

  std::vector<input> inputs_;
  std::vector<std::string> folders_;
  std::vector<std::string> linker_folders_;  // of words for the linker, which clang puts behind its own folders
  std::string waiting_;                      // an option whose argument is the linker's next word
  bool is_data_ = false;                     // files that follow are linked as bytes, whatever is in them
  bool wants_archives_ = false;
  std::vector<bool> pushed_;  // of --push-state: wants_archives_ then
};

}  // namespace far::compiler
