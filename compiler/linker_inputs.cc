#include "linker_inputs.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "driver_options.h"

namespace far::compiler {
namespace {

bool is_bitcode(std::string_view begin) {
  return starts_with(begin, "BC\xc0\xde") || starts_with(begin, "\xde\xc0\x17\x0b");
}

bool is_file(const std::filesystem::path& path) {
  std::error_code failure;
  return std::filesystem::is_regular_file(path, failure);
}

// The first bytes of the file. None of a pipe, which can be read once.
std::string beginning_of(const std::filesystem::path& path) {
  std::string begin(8, 0);
  if (!is_file(path)) return "";
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), static_cast<std::streamsize>(begin.size())) ? begin : "";
}

// A member of an archive is a header of text and its bytes, of which a thin archive has none: it names files.
struct member_header {
  std::array<char, 16> name;
  std::array<char, 32> times_and_rights;
  std::array<char, 10> bytes;
  std::array<char, 2> end;
};
static_assert(sizeof(member_header) == 60);

// The name, or where it is in the table of long ones.
std::string name_of(std::string_view name, std::string_view long_names) {
  if (name[0] != '/') return std::string(name.substr(0, name.find('/')));
  const auto at = static_cast<std::size_t>(std::atoll(std::string(name.substr(1)).c_str()));
  if (at >= long_names.size()) return "";
  const std::string_view line = long_names.substr(at, long_names.find('\n', at) - at);
  return std::string(line.substr(0, line.find_last_not_of('/') + 1));
}

bool archive_has_bitcode(const std::filesystem::path& path, bool is_thin) {
  std::error_code failure;
  const auto file_bytes = static_cast<long long>(std::filesystem::file_size(path, failure));
  std::ifstream file(path, std::ios::binary);
  file.seekg(8);
  std::string long_names;
  for (member_header header{}; file.read(reinterpret_cast<char*>(&header), sizeof header);) {
    const std::string_view name(header.name.data(), header.name.size());
    const long long bytes = std::atoll(std::string(header.bytes.data(), header.bytes.size()).c_str());
    const bool is_table = starts_with(name, "/ ") || starts_with(name, "// ") || starts_with(name, "/SYM64/");
    if (is_thin && !is_table) {
      if (is_bitcode(beginning_of(path.parent_path() / name_of(name, long_names)))) return true;
      continue;
    }
    if (bytes < 0 || bytes > file_bytes) return false;  // damaged, which the linker says
    const std::streamoff next = file.tellg() + static_cast<std::streamoff>(bytes + bytes % 2);
    std::string begin(starts_with(name, "// ") ? static_cast<std::size_t>(bytes) : 4, 0);
    if (!file.read(begin.data(), static_cast<std::streamsize>(begin.size()))) return false;
    if (is_bitcode(begin)) return true;
    if (starts_with(name, "// ")) long_names = std::move(begin);
    file.seekg(next);
  }
  return false;
}

// The file that the linker takes for the library in this folder, or none.
std::string library_in(const std::filesystem::path& folder, const std::string& name, bool is_archive) {
  if (starts_with(name, ":")) return is_file(folder / name.substr(1)) ? (folder / name.substr(1)).string() : "";
  for (const char* const ending : {".so", ".a"}) {
    if (is_archive && std::string_view(ending) == ".so") continue;
    const std::filesystem::path path = folder / ("lib" + name + ending);
    if (is_file(path)) return path.string();
  }
  return "";
}

std::string library_in(const std::vector<std::string>& folders, const std::string& name, bool is_archive) {
  for (const std::string& folder : folders) {
    std::string path = library_in(std::filesystem::path(folder), name, is_archive);
    if (!path.empty()) return path;
  }
  return "";
}

}  // namespace

bool has_bitcode(const std::string& path) {
  const std::string begin = beginning_of(path);
  const bool is_thin = begin == "!<thin>\n";
  return is_thin || begin == "!<arch>\n" ? archive_has_bitcode(path, is_thin) : is_bitcode(begin);
}

void linker_inputs::read(std::string_view words) {
  for (const std::string& word : parts_of(words, ',')) read_word(std::exchange(waiting_, "") + word);
}

void linker_inputs::read_word(const std::string& word) {
  constexpr std::string_view library = "--library=";
  constexpr std::string_view folder = "--library-path=";
  constexpr std::string_view format = "--format=";
  if (word == "-l" || word == "-L" || word == "-b") {
    waiting_ = word;
  } else if (word == "--format") {
    waiting_ = format;
  } else if (starts_with(word, "-b") || starts_with(word, format)) {
    is_data_ = word == "-bbinary" || word == "--format=binary";
  } else if (word == "--push-state") {
    pushed_.push_back(wants_archives_);
  } else if (word == "--pop-state" && !pushed_.empty()) {
    wants_archives_ = pushed_.back();
    pushed_.pop_back();
  } else if (starts_with(word, "-l")) {
    add_library(word.substr(2));
  } else if (starts_with(word, library)) {
    add_library(word.substr(library.size()));
  } else if (starts_with(word, "-L")) {
    linker_folders_.push_back(word.substr(2));
  } else if (starts_with(word, folder)) {
    linker_folders_.push_back(word.substr(folder.size()));
  } else if (word == "-Bstatic" || word == "-dn" || word == "-non_shared" || word == "-static") {
    want_archives(true);
  } else if (word == "-Bdynamic" || word == "-dy" || word == "-call_shared") {
    want_archives(false);
  } else if (!starts_with(word, "-")) {
    add_file(word);
  }
}

std::string linker_inputs::find_bitcode(const std::function<std::vector<std::string>()>& own_folders) const {
  std::vector<std::string> others;  // in the order in which clang names them to the linker, behind those of -L
  const auto add = [&others](const std::vector<std::string>& more) {
    others.insert(others.end(), more.begin(), more.end());
  };
  bool has_others = false;
  for (const input& one : inputs_) {
    std::string path = one.is_library ? library_in(folders_, one.name, one.is_archive) : one.name;
    if (path.empty() && !std::exchange(has_others, true)) {
      const char* const of_environment = std::getenv("LIBRARY_PATH");
      add(own_folders());
      add(parts_of(of_environment == nullptr ? "" : of_environment, ':'));
      add(linker_folders_);
    }
    if (path.empty()) path = library_in(others, one.name, one.is_archive);
    if (has_bitcode(path)) return path;
  }
  return "";
}

}  // namespace far::compiler
