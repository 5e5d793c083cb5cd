// farheap-clang and farheap-clang++: clang 19 with Farheap's passes, and with the support that their code needs linked
// to what they link. Everything else on the command line is clang's.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clang.h"
#include "configuration.h"
#include "driver_options.h"
#include "linker_inputs.h"

namespace far::compiler {
namespace {

constexpr int exit_failure = 1;
constexpr int exit_not_executable = 127;
constexpr std::string_view help =
    "Usage: {} [OPTIONS OF CLANG] [OPTIONS] FILE...\n"
    "\n"
    "Clang 19 that prepares programs for far memory: it compiles, assembles and links like clang, for any build "
    "system.\n"
    "The program runs natively, under `farheap run`, or with FARHEAP_LOCAL=SIZE and FARHEAP_FAR=URI in its "
    "environment.\n"
    "\n"
    "Options:\n"
    "  --farheap-report=FILE   append what the passes did with each loop and access to FILE, a line of JSON each; "
    "-Rpass=farheap says the same as remarks\n"
    "  -ffar-profile=DIR       look only after what missed in a run of `farheap trace -o DIR` on this program, "
    "compiled "
    "with -g and --farheap-off\n"
    "  -ffar-objects[=BYTES]   read small objects that are far away without their pages, 64 to 512 bytes at a time; "
    "when linking, too\n"
    "  --farheap-no-streams    do not tell the runtime of loops over memory in order, or by indices\n"
    "  --farheap-no-guards     do not guard accesses that are not in order\n"
    "  --farheap-off           compile as clang does; link the support\n"
    "  --farheap-help          print this help and exit\n"
    "\n"
    "Clang is $FARHEAP_CLANG if that is set, and otherwise clang-19 or clang++-19.\n";

[[noreturn]] void fail(std::string_view name, const std::string& message, int status = exit_failure) {
  std::fprintf(stderr, "%s: error: %s\n", std::string(name).c_str(), message.c_str());
  std::exit(status);
}

struct request {
  std::string clang;
  bool for_cxx = false;
  bool off = false;
  bool labels_values = false;        // -fsanitize=dataflow
  bool lto = false;                  // the passes run when it is linked
  bool links = true;                 // the linker runs, unless an option says otherwise
  std::string language;              // of the files that follow; by their names if it is empty or "none"
  bool any_input = false;            // a file other than a header, or words for the linker
  bool makes_library = false;        // -shared
  bool makes_object = false;         // -r: what is linked is going to be linked again, with the support
  std::string linker;                // the option that names it, or empty
  linker_inputs linked;              // what goes to the linker as it is
  bool no_c_library = false;         // -nostdlib and the like
  bool c_library = false;            // named nevertheless
  bool foreign = false;              // for another processor, another system, or the kernel
  bool narrow = false;               // for 32 bits, by the target
  std::string width;                 // -m32 and the like, which count more than the target, wherever they stand
  std::string object_bytes;          // of -ffar-objects, or empty
  std::string profile;               // a folder of `farheap trace`, or empty
  std::vector<std::string> passed;   // clang's own, without
  std::vector<std::string> behind;   // "--" and the files that follow it
  std::vector<std::string> options;  // the plugin's
};

// Takes our own option out; everything else is clang's.
bool take_own(std::string_view name, std::string_view option, request& wanted) {
  constexpr std::string_view report = "--farheap-report=";
  constexpr std::string_view profile = "-ffar-profile";
  constexpr std::string_view objects = "-ffar-objects";
  if (!is_own(option)) return false;
  if (starts_with(option, profile)) {
    if (option.size() < profile.size() + 2 || option[profile.size()] != '=') {
      fail(name, "'" + std::string(option) +
                     "' names no folder; write -ffar-profile=DIR, with the DIR of `farheap trace -o DIR`");
    }
    wanted.profile = option.substr(profile.size() + 1);
    return true;
  }
  if (starts_with(option, objects)) {
    wanted.object_bytes = option == objects ? "64" : option.substr(objects.size() + 1);
    constexpr std::array sizes{"64", "128", "256", "512"};
    if (std::find(sizes.begin(), sizes.end(), wanted.object_bytes) == sizes.end()) {
      fail(name, "'" + std::string(option) + "': objects are read 64, 128, 256 or 512 bytes at a time");
    }
    return true;
  }
  if (option == "--farheap-off") {
    wanted.off = true;
  } else if (option == "--farheap-no-streams") {
    wanted.options.emplace_back("-farheap-streams=false");
  } else if (option == "--farheap-no-guards") {
    wanted.options.emplace_back("-farheap-guards=false");
  } else if (starts_with(option, report) && option.size() > report.size()) {
    const std::filesystem::path file(option.substr(report.size()));
    wanted.options.emplace_back("-farheap-report=" + std::filesystem::absolute(file).string());
  } else {
    fail(name, "unknown option '" + std::string(option) + "'; --farheap-help lists them");
  }
  return true;
}

// The target, such as x86_64-linux-gnu, that code is compiled for.
void read_target(std::string_view target, request& wanted) {
  const bool is_narrow = target.size() >= 4 && target[0] == 'i' && target.substr(2, 2) == "86";
  const bool is_wide = starts_with(target, "x86_64") || starts_with(target, "amd64");
  wanted.foreign = !(is_narrow || is_wide) || target.find("linux") == target.npos || target.find("x32") != target.npos;
  wanted.narrow = is_narrow;
}

[[nodiscard]] bool is_for_us(const request& wanted) {
  const bool is_wide = wanted.width.empty() ? !wanted.narrow : wanted.width == "-m64";
  return is_wide && !wanted.foreign;
}

void read_input(const std::string& path, request& wanted) {
  if (is_header(path, wanted.language)) return;
  wanted.any_input = true;
  wanted.c_library |= starts_with(std::filesystem::path(path).filename().string(), "libc.");
  if (is_linked(path, wanted.language)) wanted.linked.add_file(path);
}

void read_linker_words(std::string_view words, request& wanted) {
  wanted.linked.read(words);
  wanted.makes_object |= makes_object(words);
  wanted.makes_library |= makes_library(words);
}

void read_library(std::string_view name, request& wanted) {
  wanted.c_library |= name == "c" || starts_with(name, ":libc.");
  wanted.linked.add_library(name);
}

void read_option(const std::string& option, const std::string& argument, request& wanted) {
  if (option == "-target") read_target(argument, wanted);
  if (option == "-l") read_library(argument, wanted);
  if (option == "-L" || option == "--library-directory") wanted.linked.add_folder(argument);
  if (option == "-x" || option == "--language") wanted.language = argument;
  if (option == "-Xlinker" || option == "--for-linker") read_linker_words(argument, wanted);
}

// One that takes no further word.
void read_option(std::string_view option, request& wanted) {
  constexpr std::string_view target = "--target=";
  constexpr std::string_view linker = "-Wl,";
  constexpr std::string_view language = "-x";
  constexpr std::string_view path = "--ld-path=";
  constexpr std::string_view sanitize = "-fsanitize=";
  constexpr std::string_view sanitize_not = "-fno-sanitize=";
  constexpr std::string_view library = "-l";
  constexpr std::string_view libraries = "-L";
  constexpr std::string_view folder = "--library-directory=";
  wanted.links &= !prevents_linking(option);
  if (option == "-r") wanted.makes_object = true;
  // The path counts more, wherever it stands.
  if (starts_with(option, path) || (starts_with(option, "-fuse-ld=") && !starts_with(wanted.linker, path))) {
    wanted.linker = option;
  }
  if (option == "-flto" || starts_with(option, "-flto=")) wanted.lto = true;
  if (option == "-fno-lto") wanted.lto = false;
  if (option == "-shared" || option == "--shared") wanted.makes_library = true;
  if (starts_with(option, target)) read_target(option.substr(target.size()), wanted);
  if (option == "-mcmodel=kernel") wanted.foreign = true;
  if (starts_with(option, sanitize)) wanted.labels_values |= names_data_flow(option.substr(sanitize.size()));
  if (starts_with(option, sanitize_not)) wanted.labels_values &= !names_data_flow(option.substr(sanitize_not.size()));
  if (starts_with(option, linker)) read_linker_words(option.substr(linker.size()), wanted);
  if (starts_with(option, language)) wanted.language = option.substr(language.size());
  if (option == "-m32" || option == "-mx32" || option == "-m16" || option == "-m64") wanted.width = option;
  if (option == "-nostdlib" || option == "-nodefaultlibs" || option == "-nolibc") wanted.no_c_library = true;
  if (starts_with(option, library)) read_library(option.substr(library.size()), wanted);
  if (starts_with(option, libraries)) wanted.linked.add_folder(option.substr(libraries.size()));
  if (starts_with(option, folder)) wanted.linked.add_folder(option.substr(folder.size()));
  if (option == "-static" || option == "--static" || option == "-static-pie") wanted.linked.want_archives(true);
}

// Reads the word at `words[i]`, and its argument, and returns how many words these are. What is clang's is passed on.
std::size_t read_word(std::string_view name, const std::vector<std::string>& words, std::size_t i, request& wanted) {
  const std::string& word = words[i];
  if (take_own(name, word, wanted)) return 1;
  wanted.any_input |= is_linker_input(word);
  wanted.passed.push_back(word);
  if (takes_next(word) && i + 1 < words.size()) {
    read_option(word, words[i + 1], wanted);
    wanted.passed.push_back(words[i + 1]);
    return 2;
  }
  if (starts_with(word, "-") && word != "-") {
    read_option(word, wanted);
  } else {
    read_input(word, wanted);
  }
  return 1;
}

// Reads the words up to the first "--", behind which all are files, and then these.
void read_words(std::string_view name, const std::vector<std::string>& words, request& wanted) {
  std::size_t i = 0;
  while (i < words.size() && words[i] != "--") i += read_word(name, words, i, wanted);
  if (i >= words.size()) return;
  wanted.behind.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
  for (std::size_t k = i + 1; k < words.size(); ++k) read_input(words[k], wanted);
}

// Appends the words, and in place of response files what these say, which may be of further ones.
void expand(std::string_view name, const std::vector<std::string>& words, int depth, std::vector<std::string>& all) {
  constexpr int most_depth = 64;
  for (const std::string& word : words) {
    if (word.size() < 2 || word[0] != '@' || access(word.c_str() + 1, R_OK) != 0) {
      all.push_back(word);
    } else if (depth == most_depth) {
      fail(name, "'" + word + "' leads to response files " + std::to_string(most_depth) + " deep; one includes itself");
    } else {
      expand(name, words_of(word.substr(1)), depth + 1, all);
    }
  }
}

// A response file of these words. It has no name, and is gone when clang is: nobody would remove it, as clang takes the
// place of this process.
std::string response_file(std::string_view name, const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += quoted(word);
  const int file = memfd_create("farheap-clang", 0);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t now = write(file, text.data() + done, text.size() - done);
    if (now <= 0) {
      fail(name, "cannot keep the words of response files in memory: " + std::string(std::strerror(errno)) +
                     "; free some, or name the options of farheap-clang on the command line");
    }
    done += static_cast<std::size_t>(now);
  }
  return "@/proc/self/fd/" + std::to_string(file);
}

// The plugin is made for one version of LLVM, and another would stop with a message about symbols.
std::string find_clang(std::string_view name, bool for_cxx) {
  const char* const chosen = std::getenv("FARHEAP_CLANG");
  if (chosen == nullptr || *chosen == 0) return for_cxx ? "clang++-19" : "clang-19";
  const std::string version = version_of(chosen);
  if (version.empty()) {
    fail(name, "FARHEAP_CLANG='" + std::string(chosen) + "' does not run; name clang 19, or unset it");
  }
  if (starts_with(version, "19.")) return chosen;
  fail(name, "FARHEAP_CLANG='" + std::string(chosen) + "' has version " + version + "; the plugin is for clang 19");
}

// One FARHEAP_CLANG serves both wrappers.
const char* driver_mode(bool for_cxx) {
  return for_cxx ? "--driver-mode=g++" : "--driver-mode=gcc";
}

// Words of response and configuration files are put into others where options of ours are among them, which clang would
// not know, or the "--" that the support has to be in front of. They may be more than a command line has room for.
request read_arguments(std::string_view name, const std::vector<std::string>& given) {
  request wanted;
  wanted.for_cxx = name.size() >= 2 && name.substr(name.size() - 2) == "++";
  wanted.clang = find_clang(name, wanted.for_cxx);
  std::vector<std::string> expanded;
  expand(name, given, 0, expanded);
  const std::vector<std::string> all = with_configuration(wanted.clang, driver_mode(wanted.for_cxx), expanded);
  read_words(name, all, wanted);
  if (std::find(all.begin(), all.end(), "--driver-mode=cl") != all.end()) {
    fail(name, "'--driver-mode=cl' is a command line for Windows, where there is no far memory; use clang-cl");
  }
  const auto matters = [](const std::string& word) { return is_own(word) || word == "--"; };
  if (std::count_if(all.begin(), all.end(), matters) != std::count_if(given.begin(), given.end(), matters)) {
    wanted.passed = {response_file(name, wanted.passed)};
    if (!wanted.behind.empty()) wanted.behind = {response_file(name, wanted.behind)};
  } else if (all != given) {
    request as_given = wanted;
    as_given.passed.clear();
    as_given.behind.clear();
    read_words(name, given, as_given);
    wanted.passed = std::move(as_given.passed);
    wanted.behind = std::move(as_given.behind);
  }
  // That sanitizer renames all functions that it does not know, and drops the labels of what they copy.
  wanted.off |= wanted.labels_values;
  // It is guards that read objects.
  const auto& options = wanted.options;
  if (std::find(options.begin(), options.end(), "-farheap-guards=false") != options.end()) wanted.object_bytes.clear();
  // The support is for x86-64 and Linux, and so are the passes.
  wanted.links &= wanted.any_input && is_for_us(wanted);
  return wanted;
}

// The path of a file that was built or installed with the wrapper: in ../lib or ../lib/farheap.
std::string find_part(std::string_view name, const char* file) {
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) fail(name, "cannot read /proc/self/exe: " + failure.message() + "; mount /proc");
  const std::filesystem::path libraries = self.parent_path().parent_path() / "lib";
  for (const std::filesystem::path& folder : {libraries / "farheap", libraries}) {
    const std::string part = (folder / file).string();
    if (access(part.c_str(), R_OK) == 0) return part;
  }
  fail(name,
       "'" + (libraries / file).string() + "' is missing; build Farheap with `make compiler`, or install it again");
}

// Objects that were compiled with -flto have no code yet, nor have libraries of them. The linker of a command without
// it would say that it does not know them, or compile them without the passes.
void check_inputs(std::string_view name, const request& wanted) {
  if (!wanted.links || wanted.lto || wanted.off) return;
  const auto folders = [&wanted] { return library_folders(wanted.clang, wanted.passed); };
  const std::string found = wanted.linked.find_bitcode(folders);
  if (found.empty()) return;
  fail(name, "'" + found + "' was compiled with -flto; link it with -flto, too, which is when the passes run");
}

// The profile in the folder that -ffar-profile names. A wrong one is noticed here, before each file of a build says so.
std::string find_profile(std::string_view name, const std::string& folder) {
  const std::filesystem::path path = std::filesystem::absolute(std::filesystem::path(folder) / "misses.profile");
  std::ifstream file(path);
  const std::string begin = "-ffar-profile: '" + folder + "' ";
  std::error_code failure;
  if (!file) {
    if (!std::filesystem::is_directory(folder, failure))
      fail(name, begin + "is no folder; name the one of `farheap trace -o DIR`");
    for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
      if (entry.path().extension() == ".trace")
        fail(name, begin + "has traces and no profile; run `farheap report " + folder + "`");
    }
    fail(name, begin + "has no trace in it; name the folder of `farheap trace -o DIR`");
  }
  bool any_source = false;
  bool any_here = false;
  bool any_misses = false;
  std::string line;
  if (!std::getline(file, line) || line != "farheap profile 1") {
    fail(name, begin + "has a profile of another release; run `farheap report " + folder + "`");
  }
  while (std::getline(file, line)) {
    any_misses |= starts_with(line, "access ");
    if (!starts_with(line, "access ") && !starts_with(line, "source ") && !starts_with(line, "misses ")) {
      fail(name, begin + "has a damaged profile; run `farheap report " + folder + "`");
    }
    if (!starts_with(line, "source ")) continue;
    any_source = true;
    any_here = any_here || access(line.substr(std::min(line.size(), line.find(' ', 7) + 1)).c_str(), F_OK) == 0;
  }
  if (!any_source) fail(name, begin + "names no source lines; trace the program compiled with -g and --farheap-off");
  if (!any_misses) fail(name, begin + "has no misses; trace with a smaller --local");
  if (!any_here) fail(name, begin + "is of a program whose sources are not here; trace the program that you compile");
  return path.string();
}

// Adds what has clang run the passes. They run once: while compiling, or, with -flto, in the linker, which sees whole
// functions after inlining (all but the one that reads the marks of hot members, which would hide addresses from what
// runs before the linker; it also says that the program reads objects).
void add_passes(std::string_view name, const request& wanted, std::vector<std::string>& command) {
  std::vector<std::string> options = wanted.options;
  if (!wanted.object_bytes.empty()) options.emplace_back("-farheap-objects=" + wanted.object_bytes);
  if (!wanted.profile.empty()) options.emplace_back("-farheap-profile=" + find_profile(name, wanted.profile));
  // Lines, for the profile and the report, also where there is to be no debug information: remarks need them.
  if (!options.empty()) command.emplace_back("-Rpass=^$");
  const std::string plugin = find_part(name, "farheap-passes.so");
  std::vector<std::string> compiling = options;
  if (wanted.lto) {
    compiling = {"-farheap-streams=0", "-farheap-guards=0"};
    if (!wanted.object_bytes.empty()) compiling.emplace_back("-farheap-objects=" + wanted.object_bytes);
  }
  command.emplace_back("-fpass-plugin=" + plugin);
  // Loaded early, too, so that clang knows the plugin's options.
  if (!compiling.empty()) command.insert(command.end(), {"-Xclang", "-load", "-Xclang", plugin});
  // For the compiler alone: the assembler does not load plugins, and would not know them.
  for (const std::string& option : compiling) {
    command.insert(command.end(), {"-Xclang", "-mllvm", "-Xclang", option});
  }
  if (!wanted.lto || !wanted.links) return;
  if (!wanted.linker.empty() && !names_lld(wanted.linker)) {
    fail(name, "-flto needs lld 19; leave " + wanted.linker + " out");
  }
  command.emplace_back("-fuse-ld=lld");
  // Not by -Wl, which takes a comma in a path for the end of a word.
  command.insert(command.end(), {"-Xlinker", "--load-pass-plugin=" + plugin});
  // The linker reads options before it loads passes, and would not know ours.
  if (!options.empty()) options.insert(options.begin(), "-load=" + plugin);
  for (const std::string& option : options) {
    command.insert(command.end(), {"-Xlinker", "-mllvm", "-Xlinker", option});
  }
}

// Adds the support. Also where nothing was instrumented: FARHEAP_LOCAL starts the runtime of every program. The library
// is found by a symbol that the linker is told to look for, so it may stand before files, as those behind "--".
void add_support(std::string_view name, const request& wanted, std::vector<std::string>& command) {
  const bool runs_alone = wanted.no_c_library && !wanted.c_library;
  if (runs_alone && !wanted.off) {
    std::fprintf(stderr,
                 "%s: warning: without the C library the program has no far memory; add -lc, or --farheap-off\n",
                 std::string(name).c_str());
  }
  command.emplace_back("--start-no-unused-arguments");
  command.insert(command.end(), {"-Xlinker", "-u", "-Xlinker", "__farheap_compiled"});
  if (!wanted.makes_library && !runs_alone) {
    command.insert(command.end(), {"-Xlinker", "-u", "-Xlinker", "__farheap_restart"});
  }
  // What the runtime looks for in the program.
  if (!wanted.object_bytes.empty() && !wanted.off) {
    command.emplace_back("-Wl,--export-dynamic-symbol=far_compiled_object_bytes");
  }
  command.insert(command.end(),
                 {"-Xlinker", find_part(name, runs_alone ? "libfarheap-alone.a" : "libfarheap-compiled.a")});
  command.emplace_back("--end-no-unused-arguments");
}

// Our options come before the user's, so that files and libraries keep their order.
std::vector<std::string> command_of(std::string_view name, const request& wanted) {
  std::vector<std::string> command{wanted.clang, driver_mode(wanted.for_cxx)};
  // No warnings about what a step does not use.
  command.emplace_back("--start-no-unused-arguments");
  if (!wanted.off) add_passes(name, wanted, command);
  command.emplace_back("--end-no-unused-arguments");
  command.insert(command.end(), wanted.passed.begin(), wanted.passed.end());
  if (wanted.links && !wanted.makes_object) add_support(name, wanted, command);
  command.insert(command.end(), wanted.behind.begin(), wanted.behind.end());
  return command;
}

std::vector<std::string> make_command(std::string_view name, const std::vector<std::string>& given) {
  if (!given.empty() && starts_with(given[0], "-cc1")) {  // clang's inner tools take none of our options
    std::vector<std::string> command{find_clang(name, false)};
    command.insert(command.end(), given.begin(), given.end());
    return command;
  }
  const request wanted = read_arguments(name, given);
  check_inputs(name, wanted);
  return command_of(name, wanted);
}

int run(int count, char** arguments) {
  const std::string name = std::filesystem::path(arguments[0]).filename().string();
  for (int i = 1; i < count; ++i) {
    if (std::string_view(arguments[i]) != "--farheap-help") continue;
    std::string text(help);
    std::printf("%s", text.replace(text.find("{}"), 2, name).c_str());
    return 0;
  }
  const std::vector<std::string> given(arguments + 1, arguments + count);
  const std::vector<std::string> command = make_command(name, given);
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const std::string begin = "cannot start '" + command[0] + "': " + std::strerror(errno);
  if (errno == E2BIG) fail(name, begin + "; put words into a response file, @FILE", exit_not_executable);
  fail(name, begin + "; install clang-19 (scripts/install-packages compiler)", exit_not_executable);
}

}  // namespace
}  // namespace far::compiler

int main(int count, char** arguments) {
  return far::compiler::run(count, arguments);
}
