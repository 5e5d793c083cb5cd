#include "configuration.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "clang.h"
#include "driver_options.h"

namespace far::compiler {
namespace {

constexpr std::string_view user_folder = "--config-user-dir=";
constexpr std::string_view system_folder = "--config-system-dir=";

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool has_configuration(const std::filesystem::path& folder) {
  std::error_code failure;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator at(folder, failure); !failure && at != end; at.increment(failure)) {
    if (at->path().extension() == ".cfg") return true;
  }
  return false;
}

// Where a program that is called by its name is, and where it really is.
std::vector<std::filesystem::path> folders_of_program(const std::string& name) {
  if (name.find('/') != name.npos) return {};
  for (const std::string& folder : parts_of(environment("PATH"), ':')) {
    const std::filesystem::path file = std::filesystem::path(folder) / name;
    if (access(file.c_str(), X_OK) != 0) continue;
    std::error_code failure;
    return {folder, std::filesystem::canonical(file, failure).parent_path()};
  }
  return {};
}

// Whether clang may find a configuration file by itself. It costs a third of the compilation of a small file to ask it,
// so we look first into the folders that it is built with where it is built with any. One that FARHEAP_CLANG names may
// have others.
bool may_be_configured(const std::string& clang, const std::vector<std::string>& words) {
  if (!environment("CLANG_NO_DEFAULT_CONFIG").empty()) return false;
  if (std::find(words.begin(), words.end(), "--no-default-config") != words.end()) return false;
  const auto names_folder = [](const std::string& word) {
    return starts_with(word, user_folder) || starts_with(word, system_folder);
  };
  if (!environment("FARHEAP_CLANG").empty() || std::any_of(words.begin(), words.end(), names_folder)) return true;
  std::vector<std::filesystem::path> folders = folders_of_program(clang);
  folders.emplace_back("/etc/clang");
  folders.push_back(std::filesystem::path(environment("HOME")) / ".config" / "clang");
  return std::any_of(folders.begin(), folders.end(), has_configuration);
}

// Those of the words by which clang chooses its configuration files: for the mode and the target that they name. All of
// them may be too many for a command line.
std::vector<std::string> deciding(const std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 9> all{
      user_folder, system_folder, "--driver-mode=",        "--target=", "-m16", "-m32",
      "-m64",      "-mx32",       "-no-canonical-prefixes"};
  std::vector<std::string> found;
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const auto begins = [&word = words[i]](std::string_view option) { return starts_with(word, option); };
    if (std::any_of(all.begin(), all.end(), begins)) found.push_back(words[i]);
    if (!takes_next(words[i]) || i + 1 == words.size()) continue;
    if (words[i] == "-target") found.insert(found.end(), {words[i], words[i + 1]});
    ++i;
  }
  return found;
}

std::vector<std::string> own_files(const std::string& clang, const std::string& mode,
                                   const std::vector<std::string>& words) {
  if (!may_be_configured(clang, words)) return {};
  std::vector<std::string> asked = deciding(words);
  asked.insert(asked.begin(), mode);
  return own_configuration_files(clang, asked);
}

// Clang looks for a file without a folder in those of these options, and where it is itself. None: in folders that it
// was built with, perhaps.
std::string find_configuration(const std::string& clang, const std::string& file,
                               const std::vector<std::string>& words) {
  if (file.find('/') != file.npos) return file;
  std::vector<std::filesystem::path> folders;
  for (const std::string_view option : {user_folder, system_folder}) {
    const auto last =
        std::find_if(words.rbegin(), words.rend(), [option](const auto& word) { return starts_with(word, option); });
    if (last != words.rend()) folders.emplace_back(last->substr(option.size()));
  }
  folders.emplace_back(folder_of(clang));
  for (const std::filesystem::path& folder : folders) {
    std::string path = (folder / file).string();
    if (!folder.empty() && access(path.c_str(), R_OK) == 0) return path;
  }
  return "";
}

}  // namespace

std::vector<std::string> with_configuration(const std::string& clang, const std::string& mode,
                                            const std::vector<std::string>& words) {
  constexpr std::string_view option = "--config";
  std::vector<std::string> named;
  std::vector<std::string> others;
  const auto end = std::find(words.begin(), words.end(), "--");
  for (auto word = words.begin(); word != words.end(); ++word) {
    const bool has_argument = word < end && takes_next(*word) && word + 1 != words.end();
    if (word < end && starts_with(*word, "--config=")) {
      named.push_back(word->substr(option.size() + 1));
    } else if (has_argument && *word == option) {
      named.push_back(*++word);
    } else {
      others.push_back(*word);
      if (has_argument) others.push_back(*++word);
    }
  }
  const std::vector<std::string> own = own_files(clang, mode, others);
  if (own.empty() && named.empty()) return words;
  // Clang does not warn of these where a step does not use them.
  std::vector<std::string> all{"--start-no-unused-arguments"};
  // It is not to read them again.
  if (!own.empty()) all.insert(all.begin(), "--no-default-config");
  const auto add = [&all](const std::vector<std::string>& some) { all.insert(all.end(), some.begin(), some.end()); };
  for (const std::string& file : own) add(words_of_configuration(file));
  for (const std::string& file : named) {
    const std::string path = find_configuration(clang, file, words);
    add(path.empty() ? std::vector<std::string>{"--config=" + file} : words_of_configuration(path));
  }
  all.emplace_back("--end-no-unused-arguments");
  add(others);
  return all;
}

}  // namespace far::compiler
