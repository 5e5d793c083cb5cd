#include "clang.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "driver_options.h"

extern char** environ;

namespace far::compiler {
namespace {

// What the command prints, but not what it says is wrong: clang will say that again. None if it fails.
std::string output_of(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failure = posix_spawnp(&child, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t now = 0; failure == 0 && (now = read(ends[0], part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(now));
  }
  close(ends[0]);
  int status = 0;
  while (failure == 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return failure == 0 && status == 0 ? text : "";
}

// The rest of each line that begins so.
std::vector<std::string> lines_of(std::string_view text, std::string_view begin) {
  std::vector<std::string> found;
  for (const std::string& line : parts_of(text, '\n')) {
    if (line.compare(0, begin.size(), begin) == 0) found.push_back(line.substr(begin.size()));
  }
  return found;
}

}  // namespace

std::string version_of(const std::string& clang) {
  const std::string text = output_of({clang, "-dumpversion"});
  return text.substr(0, text.find_last_not_of(" \n") + 1);
}

std::string folder_of(const std::string& clang) {
  const std::vector<std::string> found =
      lines_of(output_of({clang, "--no-default-config", "--version"}), "InstalledDir: ");
  return found.empty() ? "" : found.front();
}

std::vector<std::string> own_configuration_files(const std::string& clang, const std::vector<std::string>& words) {
  std::vector<std::string> command{clang, "--version"};
  command.insert(command.end(), words.begin(), words.end());
  return lines_of(output_of(command), "Configuration file: ");
}

std::vector<std::string> library_folders(const std::string& clang, const std::vector<std::string>& words) {
  // In front: the last word may be an option that wants an argument.
  std::vector<std::string> command{clang, "-print-search-dirs"};
  command.insert(command.end(), words.begin(), words.end());
  std::vector<std::string> folders;
  for (const std::string& line : lines_of(output_of(command), "libraries: =")) {
    const std::vector<std::string> some = parts_of(line, ':');
    folders.insert(folders.end(), some.begin(), some.end());
  }
  return folders;
}

}  // namespace far::compiler
