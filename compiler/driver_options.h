// What farheap-clang knows of clang's command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace far::compiler {

[[nodiscard]] bool starts_with(std::string_view text, std::string_view with);

// Whether it is an option of farheap-clang, which clang does not know.
[[nodiscard]] bool is_own(std::string_view option);

// What stands between the separators, without empty parts.
[[nodiscard]] std::vector<std::string> parts_of(std::string_view list, char separator);

// Whether the option's argument is the next word, which is then neither an option nor an input file.
[[nodiscard]] bool takes_next(std::string_view option);

// Whether clang stops before it links.
[[nodiscard]] bool prevents_linking(std::string_view option);

// Whether the option alone makes clang call the linker, without any file: its argument, too, may name one.
[[nodiscard]] bool is_linker_input(std::string_view option);

// Of words for the linker, with commas in between: whether it makes an object of objects, or a shared library.
[[nodiscard]] bool makes_object(std::string_view linker_words);
[[nodiscard]] bool makes_library(std::string_view linker_words);

// Of the list of -fsanitize= or -fno-sanitize=: whether the sanitizer that labels values is in it.
[[nodiscard]] bool names_data_flow(std::string_view sanitizers);

// Of -fuse-ld= or --ld-path=: whether it names lld.
[[nodiscard]] bool names_lld(std::string_view option);

// Whether the file becomes a precompiled header, which is not linked, and whether it goes to the linker as it is: by
// the language that -x says, or by its name.
[[nodiscard]] bool is_header(std::string_view path, std::string_view language);
[[nodiscard]] bool is_linked(std::string_view path, std::string_view language);

// The words of a response file (@FILE), as clang reads it: with quotation marks and backslashes. None if it cannot be
// read; clang will say so.
[[nodiscard]] std::vector<std::string> words_of(const std::string& path);

// The words of a configuration file (--config), and of those that it includes.
[[nodiscard]] std::vector<std::string> words_of_configuration(const std::string& path);

// A word as clang reads it in a response file.
[[nodiscard]] std::string quoted(const std::string& word);

}  // namespace far::compiler
