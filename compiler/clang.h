// What clang is asked for before it runs.
#pragma once

#include <string>
#include <vector>

namespace far::compiler {

// The version of this clang, such as 19.1.7; none if it does not run.
[[nodiscard]] std::string version_of(const std::string& clang);

// The folder that it is installed in, where it looks for configuration files; none if it does not run.
[[nodiscard]] std::string folder_of(const std::string& clang);

// The configuration files that it reads for these words by itself, in its order. None, too, if it refuses what stands
// in one of them.
[[nodiscard]] std::vector<std::string> own_configuration_files(const std::string& clang,
                                                               const std::vector<std::string>& words);

// The folders of its own in which it has the linker look for libraries, behind those of -L.
[[nodiscard]] std::vector<std::string> library_folders(const std::string& clang, const std::vector<std::string>& words);

}  // namespace far::compiler
