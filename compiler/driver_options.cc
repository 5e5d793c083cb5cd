#include "driver_options.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace far::compiler {
namespace {

// Words with blanks in between, and at both ends.
bool has_word(std::string_view words, std::string_view one) {
  for (std::size_t at = words.find(one); at != words.npos; at = words.find(one, at + 1)) {
    if (at > 0 && words[at - 1] == ' ' && words[at + one.size()] == ' ') return true;
  }
  return false;
}

bool has_any(std::string_view linker_words, std::string_view wanted) {
  for (std::string_view rest = linker_words; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    if (has_word(wanted, one)) return true;
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
  }
  return false;
}

bool has_language(std::string_view language) {
  return !language.empty() && language != "none";
}

std::string ending_of(std::string_view path) {
  return std::filesystem::path(path).extension().string();
}

// Clang takes a backslash as an escape within either kind of quotation marks, and drops empty words.
void add_words_of(const std::string& text, std::vector<std::string>& words) {
  constexpr std::string_view blanks(" \t\r\n\0", 5);
  std::string word;
  char quote = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    if (letter == '\\' && at + 1 < text.size()) {
      word += text[++at];
    } else if (quote == 0 && blanks.find(letter) != blanks.npos) {
      if (!word.empty()) words.push_back(std::exchange(word, ""));
    } else if (letter == quote) {
      quote = 0;
    } else if (quote == 0 && (letter == '"' || letter == '\'')) {
      quote = letter;
    } else {
      word += letter;
    }
  }
  if (!word.empty()) words.push_back(word);
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The lines of a configuration file, without those of comments. A backslash at the end joins a line to the next one.
std::vector<std::string> lines_of_configuration(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size(); ++at) {
    at = text.find_first_not_of(" \t\r\n\v\f", at);
    if (at == text.npos) break;
    const bool is_comment = text[at] == '#';
    std::string line;
    for (; at < text.size() && text[at] != '\n'; ++at) {
      line += text[at];
      if (is_comment || text[at] != '\\' || at + 1 == text.size()) continue;
      at += text.compare(at + 1, 2, "\r\n") == 0 ? 2 : 1;
      if (text[at] == '\n') {
        line.pop_back();
      } else {
        line += text[at];
      }
    }
    if (!is_comment) lines.push_back(line);
  }
  return lines;
}

// Response files in it lie in its folder, which it calls <CFGDIR>.
void add_words_of_configuration(const std::filesystem::path& path, int depth, std::vector<std::string>& words) {
  constexpr std::string_view folder = "<CFGDIR>";
  std::vector<std::string> own;
  for (const std::string& line : lines_of_configuration(text_of(path))) add_words_of(line, own);
  for (std::string& word : own) {
    for (std::size_t at = 0; (at = word.find(folder, at)) != word.npos;) {
      const std::string place = path.parent_path().string();
      word.replace(at, folder.size(), place);
      at += place.size();
    }
    std::error_code failure;
    const std::filesystem::path included = path.parent_path() / word.substr(word[0] == '@' ? 1 : 0);
    if (depth > 0 && word[0] == '@' && std::filesystem::exists(included, failure)) {
      add_words_of_configuration(included, depth - 1, words);
    } else {
      words.push_back(word);
    }
  }
}

}  // namespace

bool starts_with(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

bool is_own(std::string_view option) {
  return starts_with(option, "--farheap-") || starts_with(option, "-ffar-profile") || option == "-ffar-objects" ||
         starts_with(option, "-ffar-objects=");
}

std::vector<std::string> parts_of(std::string_view list, char separator) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::string_view one = list.substr(0, list.find(separator));
    if (!one.empty()) parts.emplace_back(one);
    list.remove_prefix(std::min(list.size(), one.size() + 1));
  }
  return parts;
}

bool takes_next(std::string_view option) {
  // All of clang 19's that it takes for Linux, in either spelling.
  constexpr std::string_view all =
      " -A -B -D -F -G -I -L -MF -MJ -MQ -MT -T -U -Xanalyzer -Xassembler -Xclang -Xcuda-fatbinary -Xcuda-ptxas"
      " -Xlinker -Xoffload-linker -Xopenmp-target -Xpreprocessor -arch -arcmt-migrate-report-output -aux-info -b"
      " -ccc-arcmt-migrate -ccc-gcc-name -ccc-install-dir -ccc-objcmt-migrate -cxx-isystem -dependency-dot"
      " -dependency-file -dumpbase -dumpdir -e -fdebug-compilation-dir -fexperimental-openacc-macro-override -filelist"
      " -fmodules-user-build-path -force_load -framework -ftrapv-handler -gen-cdb-fragment-path -iapinotes-modules"
      " -idirafter -iframework -iframeworkwithsysroot -imacros -imultilib -include -include-pch -init -iprefix -iquote"
      " -isysroot -isystem -isystem-after -ivfsoverlay -iwithprefix -iwithprefixbefore -iwithsysroot -l -meabi -mllvm"
      " -mmlir -module-dependency-dir -mthread-model -o -resource-dir -rpath -serialize-diagnostics -stdlib++-isystem"
      " -target -u -undefined -vfsoverlay -working-directory -x -z --CLASSPATH --analyzer-output --assert"
      " --bootclasspath --classpath --config --define-macro --dyld-prefix --encoding --extdirs --for-linker"
      " --force-link --imacros --include --include-directory --include-directory-after --include-with-prefix"
      " --include-with-prefix-after --include-with-prefix-before --language --library-directory"
      " --no-system-header-prefix --output --output-class-directory --param --prefix --serialize-diagnostics --std"
      " --sysroot --system-header-prefix --undefine-macro --vfsoverlay ";
  constexpr std::string_view for_one_target = "-Xarch_";
  constexpr std::string_view for_one_device = "-Xopenmp-target=";
  return has_word(all, option) || starts_with(option, for_one_target) || starts_with(option, for_one_device);
}

bool prevents_linking(std::string_view option) {
  return has_word(
      " -c -S -E -M -MM -fsyntax-only --precompile --analyze -emit-ast --version -### --help -emit-pch --compile"
      " --assemble --preprocess -verify-pch --emit-static-lib --driver-mode=cpp ",
      option);
}

bool is_linker_input(std::string_view option) {
  return option.substr(0, 2) == "-l" || option.substr(0, 4) == "-Wl," ||
         has_word(" -Xlinker --for-linker -z -e -rpath ", option);
}

bool makes_object(std::string_view linker_words) {
  return has_any(linker_words, " -r --relocatable -relocatable ");
}

bool makes_library(std::string_view linker_words) {
  return has_any(linker_words, " -shared --shared -Bshareable --Bshareable ");
}

bool names_data_flow(std::string_view sanitizers) {
  return has_any(sanitizers, " dataflow all ");
}

bool names_lld(std::string_view option) {
  const std::string file = std::filesystem::path(option.substr(option.find('=') + 1)).filename().string();
  return file.substr(0, 3) == "lld" || file.substr(0, 6) == "ld.lld";
}

bool is_header(std::string_view path, std::string_view language) {
  if (has_language(language)) return language.find("header") != language.npos;
  return has_word(" .h .hh .hp .hpp .hxx .h++ .H ", ending_of(path));
}

bool is_linked(std::string_view path, std::string_view language) {
  return !has_language(language) && !has_word(" .bc .ll ", ending_of(path));
}

std::vector<std::string> words_of(const std::string& path) {
  std::vector<std::string> words;
  add_words_of(text_of(path), words);
  return words;
}

std::vector<std::string> words_of_configuration(const std::string& path) {
  constexpr int most_depth = 64;
  std::vector<std::string> words;
  add_words_of_configuration(path, most_depth, words);
  return words;
}

std::string quoted(const std::string& word) {
  std::string text = "\"";
  for (const char letter : word) {
    if (letter == '"' || letter == '\\') text += '\\';
    text += letter;
  }
  return text + "\"\n";
}

}  // namespace far::compiler
