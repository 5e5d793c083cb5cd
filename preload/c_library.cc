#include "preload/c_library.h"

#include <dlfcn.h>
#include <link.h>

#include <array>

namespace far::preload {
namespace {

// One from each library: a function that nobody interposes.
std::array<code_range, 2> libraries{};

struct search {
  std::uintptr_t address;
  code_range* found;
};

int note_if_holding(dl_phdr_info* object, std::size_t, void* context) {
  const auto* const wanted = static_cast<search*>(context);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
    const code_range range{object->dlpi_addr + segment.p_vaddr, segment.p_memsz};
    if (!range.holds(wanted->address)) continue;
    *wanted->found = range;
    return 1;
  }
  return 0;
}

void find(const char* symbol, code_range* range) {
  search wanted{reinterpret_cast<std::uintptr_t>(dlsym(RTLD_NEXT, symbol)), range};
  if (wanted.address != 0) dl_iterate_phdr(note_if_holding, &wanted);
}

}  // namespace

void find_c_library() noexcept {
  find("fopen", &libraries[0]);
  find("__tls_get_addr", &libraries[1]);
}

code_range c_library_code() noexcept {
  return libraries[0];
}

code_range loader_code() noexcept {
  return libraries[1];
}

bool in_c_library(const void* return_address) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(return_address);
  return libraries[0].holds(address) || libraries[1].holds(address);
}

}  // namespace far::preload
