#include "imports.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.h"

namespace far::python {
namespace {

struct import_tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  std::span<const ElfW(Rela)> calls;
  std::span<const ElfW(Rela)> pointers;
};

// The loader has made the addresses in the dynamic section of a library absolute.
import_tables tables_of(const ElfW(Dyn) * entry) {
  import_tables tables;
  const ElfW(Rela)* calls = nullptr;
  const ElfW(Rela)* pointers = nullptr;
  std::size_t call_bytes = 0;
  std::size_t pointer_bytes = 0;
  for (; entry->d_tag != DT_NULL; ++entry) {
    switch (entry->d_tag) {
      case DT_SYMTAB: tables.symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr); break;
      case DT_STRTAB: tables.names = reinterpret_cast<const char*>(entry->d_un.d_ptr); break;
      case DT_JMPREL: calls = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr); break;
      case DT_PLTRELSZ: call_bytes = entry->d_un.d_val; break;
      case DT_RELA: pointers = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr); break;
      case DT_RELASZ: pointer_bytes = entry->d_un.d_val; break;
      default: break;
    }
  }
  if (calls != nullptr) tables.calls = {calls, call_bytes / sizeof(ElfW(Rela))};
  if (pointers != nullptr) tables.pointers = {pointers, pointer_bytes / sizeof(ElfW(Rela))};
  return tables;
}

// The range that the loader made read-only once it had filled it; empty if it left the imports writable.
std::span<std::byte> read_only_after_loading(const dl_phdr_info& library) {
  for (const ElfW(Phdr) & part : std::span(library.dlpi_phdr, library.dlpi_phnum)) {
    if (part.p_type != PT_GNU_RELRO) continue;
    const std::uintptr_t first = round_down(library.dlpi_addr + part.p_vaddr, page_bytes);
    const std::uintptr_t end = round_down(library.dlpi_addr + part.p_vaddr + part.p_memsz, page_bytes);
    return {reinterpret_cast<std::byte*>(first), end - first};
  }
  return {};
}

// Atomic, because other threads call through the entry meanwhile.
bool store(void** entry, void* function, std::span<std::byte> read_only) {
  if (__atomic_load_n(entry, __ATOMIC_RELAXED) == function) return true;
  const auto address = reinterpret_cast<std::uintptr_t>(entry);
  const bool is_read_only = address - reinterpret_cast<std::uintptr_t>(read_only.data()) < read_only.size();
  auto* page = reinterpret_cast<void*>(round_down(address, page_bytes));
  if (is_read_only && mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  __atomic_store_n(entry, function, __ATOMIC_RELEASE);
  if (is_read_only) static_cast<void>(mprotect(page, page_bytes, PROT_READ));
  return true;
}

struct place {
  void** entry;
  void* function;
};

// Returns whether all of the names are imported, and now redirected, in their order.
bool redirect(const dl_phdr_info& library, const import_tables& tables, std::span<const replacement> replacements) {
  std::vector<place> places;
  std::size_t found = 0;
  for (const replacement& one : replacements) {
    const std::size_t before = places.size();
    for (const std::span<const ElfW(Rela)> table : {tables.calls, tables.pointers}) {
      for (const ElfW(Rela) & entry : table) {
        const auto type = ELF64_R_TYPE(entry.r_info);
        if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
        const ElfW(Sym)& symbol = tables.symbols[ELF64_R_SYM(entry.r_info)];
        if (symbol.st_shndx != SHN_UNDEF || tables.names + symbol.st_name != one.name) continue;
        places.push_back({reinterpret_cast<void**>(library.dlpi_addr + entry.r_offset), one.function});
      }
    }
    found += places.size() > before ? 1 : 0;
  }
  if (found < replacements.size()) return false;
  const std::span<std::byte> read_only = read_only_after_loading(library);
  return std::ranges::all_of(places, [&](const place& one) { return store(one.entry, one.function, read_only); });
}

struct search {
  std::string_view library;
  std::span<const replacement> replacements;
  int redirected = 0;
};

// What dl_iterate_phdr() calls.
int visit(dl_phdr_info* loaded, std::size_t /*bytes*/, void* context) noexcept {
  auto& wanted = *static_cast<search*>(context);
  const std::string_view path = loaded->dlpi_name;
  if (!path.substr(path.rfind('/') + 1).starts_with(wanted.library)) return 0;
  for (const ElfW(Phdr) & part : std::span(loaded->dlpi_phdr, loaded->dlpi_phnum)) {
    if (part.p_type != PT_DYNAMIC) continue;
    const auto* dynamic = reinterpret_cast<const ElfW(Dyn)*>(loaded->dlpi_addr + part.p_vaddr);
    wanted.redirected += redirect(*loaded, tables_of(dynamic), wanted.replacements) ? 1 : 0;
  }
  return 0;
}

}  // namespace

int redirect_imports(std::string_view library, std::span<const replacement> replacements) {
  search wanted{library, replacements};
  dl_iterate_phdr(visit, &wanted);
  return wanted.redirected;
}

}  // namespace far::python
