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
  bool for_cxx = false;
  bool off = false;
  bool lto = false;                  // the passes run when it is linked
  bool links = true;                 // unless an option says otherwise
  std::string language;              // of the files that follow; by their names if it is empty or "none"
  std::vector<std::string> inputs;   // files, other than headers
  bool libraries = false;            // -lNAME
  bool no_c_library = false;         // -nostdlib and the like
  bool c_library = false;            // named nevertheless
  bool foreign = false;              // for another processor, another system, or the kernel
  bool narrow = false;               // for 32 bits, by the target
  std::string width;                 // -m32 and the like, which count more than the target, wherever they stand
  std::string object_bytes;          // of -ffar-objects, or empty
  std::string profile;               // a folder of `farheap trace`, or empty
  std::vector<std::string> passed;   // clang's own
  std::vector<std::string> options;  // the plugin's
};

bool starts_with(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

// Options of clang whose argument is the next word, which is then not an input file.
bool takes_next(std::string_view option) {
  constexpr std::array with_argument{"-o",
                                     "-x",
                                     "-I",
                                     "-L",
                                     "-D",
                                     "-U",
                                     "-l",
                                     "-include",
                                     "-imacros",
                                     "-isystem",
                                     "-iquote",
                                     "-idirafter",
                                     "-MF",
                                     "-MT",
                                     "-MQ",
                                     "-Xlinker",
                                     "-Xclang",
                                     "-Xassembler",
                                     "-Xpreprocessor",
                                     "-mllvm",
                                     "-target",
                                     "-arch",
                                     "-T",
                                     "-u",
                                     "-z",
                                     "-e",
                                     "-iprefix",
                                     "-iwithprefix",
                                     "-iwithprefixbefore",
                                     "-isysroot",
                                     "-framework",
                                     "-rpath",
                                     "-B",
                                     "-F",
                                     "--param",
                                     "-aux-info",
                                     "-G",
                                     "-A",
                                     "-dumpbase",
                                     "-dumpdir",
                                     "-serialize-diagnostics",
                                     "--serialize-diagnostics",
                                     "--sysroot"};
  return std::any_of(with_argument.begin(), with_argument.end(), [&](const char* one) { return option == one; });
}

bool prevents_linking(std::string_view option) {
  constexpr std::array some{"-c",
                            "-S",
                            "-E",
                            "-M",
                            "-MM",
                            "-fsyntax-only",
                            "-r",
                            "--precompile",
                            "--analyze",
                            "-emit-ast",
                            "--version",
                            "-###",
                            "--help",
                            "-emit-pch",
                            "--compile",
                            "--assemble",
                            "--preprocess",
                            "-verify-pch",
                            "--emit-static-lib",
                            "--driver-mode=cpp"};
  return std::any_of(some.begin(), some.end(), [&](const char* one) { return option == one; });
}

bool is_own(std::string_view option) {
  return starts_with(option, "--farheap-") || starts_with(option, "-ffar-profile") || option == "-ffar-objects" ||
         starts_with(option, "-ffar-objects=");
}

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

// Whether the file becomes a precompiled header, which is not linked: by the language that -x says, or by its name.
bool is_header(std::string_view path, const std::string& language) {
  constexpr std::array endings{".h", ".hh", ".hp", ".hpp", ".hxx", ".h++", ".H"};
  if (!language.empty() && language != "none") return language.find("header") != language.npos;
  const std::string ending = std::filesystem::path(path).extension().string();
  return std::find(endings.begin(), endings.end(), ending) != endings.end();
}

// Options for the linker, one after the other with commas in between, that make an object of objects.
bool makes_object(std::string_view options) {
  for (std::string_view rest = options; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    if (one == "-r" || one == "--relocatable" || one == "-relocatable") return true;
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
  }
  return false;
}

// Reads the option at `words[i]` and its argument, and returns how many words these are.
std::size_t read_option(const std::vector<std::string>& words, std::size_t i, request& wanted) {
  constexpr std::string_view target = "--target=";
  constexpr std::string_view linker = "-Wl,";
  constexpr std::string_view language = "-x";
  const std::string_view option = words[i];
  if (takes_next(option) && i + 1 < words.size()) {
    if (option == "-target") read_target(words[i + 1], wanted);
    if (option == "-l") wanted.c_library |= words[i + 1] == "c";
    if (option == "-x") wanted.language = words[i + 1];
    if (option == "-Xlinker") wanted.links &= !makes_object(words[i + 1]);
    return 2;
  }
  wanted.links &= !prevents_linking(option);
  if (starts_with(option, "-flto")) wanted.lto = true;
  if (option == "-fno-lto") wanted.lto = false;
  if (starts_with(option, target)) read_target(option.substr(target.size()), wanted);
  if (option == "-mcmodel=kernel") wanted.foreign = true;
  if (starts_with(option, linker)) wanted.links &= !makes_object(option.substr(linker.size()));
  if (starts_with(option, language)) wanted.language = option.substr(language.size());
  if (option == "-m32" || option == "-mx32" || option == "-m16" || option == "-m64") wanted.width = option;
  if (option == "-nostdlib" || option == "-nodefaultlibs" || option == "-nolibc") wanted.no_c_library = true;
  if (option == "-lc" || starts_with(option, "-l:libc.")) wanted.c_library = true;
  if (starts_with(option, "-l")) {
    wanted.libraries = true;
  } else if ((!starts_with(option, "-") || option == "-") && !is_header(option, wanted.language)) {
    wanted.c_library |= starts_with(std::filesystem::path(option).filename().string(), "libc.");
    wanted.inputs.emplace_back(option);
  }
  return 1;
}

// The words of a response file (@FILE), as clang reads it: with quotation marks and backslashes. None if it cannot be
// read; clang will say so.
std::vector<std::string> words_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (char letter = 0; file.get(letter);) {
    if (quote == 0 && std::isspace(static_cast<unsigned char>(letter)) != 0) {
      if (in_word) words.push_back(std::exchange(word, ""));
      in_word = false;
      continue;
    }
    in_word = true;
    if (letter == quote) {
      quote = 0;
    } else if (quote == 0 && (letter == '"' || letter == '\'')) {
      quote = letter;
    } else if (letter != '\\' || quote == '\'' || file.get(letter)) {
      word += letter;
    }
  }
  if (in_word) words.push_back(word);
  return words;
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

// As clang reads it in a response file.
std::string quoted(const std::string& word) {
  std::string text = "\"";
  for (const char letter : word) {
    if (letter == '"' || letter == '\\') text += '\\';
    text += letter;
  }
  return text + "\"\n";
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

// Words of response files with options of ours are put into another one, as clang would not know these. They may be
// more than a command line has room for.
request read_arguments(std::string_view name, const std::vector<std::string>& given) {
  request wanted;
  wanted.for_cxx = name.size() >= 2 && name.substr(name.size() - 2) == "++";
  std::vector<std::string> all;
  expand(name, given, 0, all);
  const std::ptrdiff_t own = std::count_if(all.begin(), all.end(), is_own);
  const bool are_in_files = own != std::count_if(given.begin(), given.end(), is_own);
  all.erase(std::remove_if(all.begin(), all.end(), [&](const auto& one) { return take_own(name, one, wanted); }),
            all.end());
  for (std::size_t i = 0; i < all.size();) i += read_option(all, i, wanted);
  if (std::find(all.begin(), all.end(), "--driver-mode=cl") != all.end()) {
    fail(name, "'--driver-mode=cl' is a command line for Windows, where there is no far memory; use clang-cl");
  }
  if (are_in_files) {
    wanted.passed.push_back(response_file(name, all));
  } else {
    std::remove_copy_if(given.begin(), given.end(), std::back_inserter(wanted.passed), is_own);
  }
  // The support is for x86-64 and Linux, and so are the passes.
  wanted.links &= (wanted.libraries || !wanted.inputs.empty()) && is_for_us(wanted);
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

bool is_bitcode(const std::array<char, 4>& begin) {
  constexpr std::array<char, 4> bare{'B', 'C', '\xc0', '\xde'};
  constexpr std::array<char, 4> wrapped{'\xde', '\xc0', '\x17', '\x0b'};
  return begin == bare || begin == wrapped;
}

// Whether the file is an object for link-time optimisation, or an archive with one in it.
bool has_bitcode(const std::string& path) {
  constexpr std::string_view archive = "!<arch>\n";
  constexpr std::size_t header_bytes = 60;
  constexpr std::size_t size_at = 48;
  std::ifstream file(path, std::ios::binary);
  std::array<char, 8> begin{};
  if (!file.read(begin.data(), begin.size())) return false;
  if (std::string_view(begin.data(), begin.size()) != archive) {
    return is_bitcode({begin[0], begin[1], begin[2], begin[3]});
  }
  for (std::array<char, header_bytes + 1> header{}; file.read(header.data(), header_bytes);) {
    const long long bytes = std::atoll(header.data() + size_at);
    const std::streamoff next = file.tellg() + static_cast<std::streamoff>(bytes + bytes % 2);
    std::array<char, 4> member{};
    if (!file.read(member.data(), member.size())) break;
    if (is_bitcode(member)) return true;
    file.seekg(next);
  }
  return false;
}

// Objects that were compiled with -flto have no code yet. The linker of a command without it would say that it does not
// know them, or compile them without the passes.
void check_inputs(std::string_view name, const request& wanted) {
  if (!wanted.links || wanted.lto || wanted.off) return;
  for (const std::string& input : wanted.inputs) {
    if (!has_bitcode(input)) continue;
    fail(name, "'" + input + "' was compiled with -flto; link it with -flto, too, which is when the passes run");
  }
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

std::string version_of(const std::string& clang) {
  const std::string command = "'" + clang + "' -dumpversion 2>/dev/null";
  FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return "";
  std::array<char, 64> text{};
  const bool any = std::fgets(text.data(), text.size(), output) != nullptr;
  pclose(output);
  std::string version = any ? text.data() : "";
  version.erase(version.find_last_not_of(" \n") + 1);
  return version;
}

// The plugin is made for one version of LLVM, and another would stop with a message about symbols.
std::string find_clang(std::string_view name, bool for_cxx) {
  const char* const chosen = std::getenv("FARHEAP_CLANG");
  if (chosen == nullptr || *chosen == 0) return for_cxx ? "clang++-19" : "clang-19";
  if (std::strchr(chosen, '\'') != nullptr) fail(name, "FARHEAP_CLANG has a quotation mark in it; name another path");
  const std::string version = version_of(chosen);
  if (version.empty()) {
    fail(name, "FARHEAP_CLANG='" + std::string(chosen) + "' does not run; name clang 19, or unset it");
  }
  if (starts_with(version, "19.")) return chosen;
  fail(name, "FARHEAP_CLANG='" + std::string(chosen) + "' has version " + version + "; the plugin is for clang 19");
}

// The passes run once: while compiling, or, with -flto, in the linker, which sees whole functions after inlining (all
// but the one that reads the marks of hot members, which would hide addresses from what runs before the linker). Our
// options come before the user's, so that files and libraries keep their order, and the support library comes last,
// after everything that refers to it.
std::vector<std::string> command_of(std::string_view name, const request& wanted) {
  std::vector<std::string> command{find_clang(name, wanted.for_cxx)};
  // No warnings about what a step does not use.
  command.emplace_back("--start-no-unused-arguments");
  if (!wanted.off) {
    std::vector<std::string> options = wanted.options;
    if (!wanted.object_bytes.empty()) options.emplace_back("-farheap-objects=" + wanted.object_bytes);
    if (!wanted.profile.empty()) options.emplace_back("-farheap-profile=" + find_profile(name, wanted.profile));
    // Lines, for the profile and the report, also where there is to be no debug information: remarks need them.
    if (!options.empty()) command.emplace_back("-Rpass=^$");
    const std::string plugin = find_part(name, "farheap-passes.so");
    if (!wanted.lto) {
      command.emplace_back("-fpass-plugin=" + plugin);
      // Loaded early, too, so that clang knows the plugin's options.
      if (!options.empty()) command.insert(command.end(), {"-Xclang", "-load", "-Xclang", plugin});
      // For the compiler alone: the assembler does not load plugins, and would not know them.
      for (const std::string& option : options) {
        command.insert(command.end(), {"-Xclang", "-mllvm", "-Xclang", option});
      }
    } else {
      command.emplace_back("-fpass-plugin=" + plugin);
      command.insert(command.end(), {"-Xclang", "-load", "-Xclang", plugin});
      for (const char* const pass : {"-farheap-streams=0", "-farheap-guards=0"}) {
        command.insert(command.end(), {"-Xclang", "-mllvm", "-Xclang", pass});
      }
    }
    if (wanted.lto && wanted.links) {
      command.emplace_back("-fuse-ld=lld");
      command.emplace_back("-Wl,--load-pass-plugin=" + plugin);
      // The linker reads options before it loads passes, and would not know ours.
      if (!options.empty()) command.emplace_back("-Wl,-mllvm,-load=" + plugin);
      for (const std::string& option : options) command.emplace_back("-Wl,-mllvm," + option);
    }
  }
  command.emplace_back("--end-no-unused-arguments");
  command.insert(command.end(), wanted.passed.begin(), wanted.passed.end());
  // Also where nothing was instrumented: FARHEAP_LOCAL starts the runtime of every program.
  if (wanted.links) {
    const bool runs_alone = wanted.no_c_library && !wanted.c_library;
    if (runs_alone && !wanted.off) {
      std::fprintf(stderr,
                   "%s: warning: without the C library the program has no far memory; add -lc, or --farheap-off\n",
                   std::string(name).c_str());
    }
    command.emplace_back("--start-no-unused-arguments");
    command.insert(command.end(), {"-Xlinker", "-u", "-Xlinker", "__farheap_compiled"});
    // What the runtime looks for in the program.
    if (!wanted.object_bytes.empty() && !wanted.off) {
      command.emplace_back("-Wl,--export-dynamic-symbol=far_compiled_object_bytes");
    }
    command.insert(command.end(),
                   {"-Xlinker", find_part(name, runs_alone ? "libfarheap-alone.a" : "libfarheap-compiled.a")});
    command.emplace_back("--end-no-unused-arguments");
  }
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

}  // namespace

int main(int count, char** arguments) {
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
