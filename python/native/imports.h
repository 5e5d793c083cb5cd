// What a loaded library calls in others, by name: the entries of its table of imports (ELF's global offset table) can
// be redirected, so that this library's calls, and no others, go elsewhere.
#pragma once

#include <span>
#include <string_view>

namespace far::python {

struct replacement {
  std::string_view name;  // of the function that is imported
  void* function;         // of the same type; it stays loaded as long as the process
};

// Redirects the imports of each loaded library whose file name starts with `library`. Entries that are redirected
// already stay, so it may be called again after a library has been loaded. Returns the number of libraries that import
// all of the names, and whose imports are redirected now; nothing changes in those that do not import one of them. They
// are redirected in the order given: what gives memory back comes before what takes it. One thread at a time.
[[nodiscard]] int redirect_imports(std::string_view library, std::span<const replacement> replacements);

}  // namespace far::python
