#include "preload/c_library_memory.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/log.h"
#include "base/units.h"
#include "platform/runtime_thread.h"
#include "preload/c_library.h"
#include "preload/in_runtime.h"
#include "preload/kernel_calls.h"
#include "preload/runtime_blocks.h"

namespace far::preload {
namespace {

// Those of the program.
void* (*program_malloc)(std::size_t) = nullptr;
void* (*program_calloc)(std::size_t, std::size_t) = nullptr;
void* (*program_realloc)(void*, std::size_t) = nullptr;
void (*program_free)(void*) = nullptr;

void* take(std::size_t bytes) {
  void* const block = allocate_runtime_block(std::max<std::size_t>(bytes, 1), 1);
  if (block == nullptr) errno = ENOMEM;
  return block;
}

void* malloc_for_c_library(std::size_t bytes) {
  return platform::on_runtime_thread() ? take(bytes) : program_malloc(bytes);
}

void* calloc_for_c_library(std::size_t count, std::size_t bytes) {
  if (!platform::on_runtime_thread()) return program_calloc(count, bytes);
  std::size_t all = 0;
  if (__builtin_mul_overflow(count, bytes, &all)) {
    errno = ENOMEM;
    return nullptr;
  }
  void* const block = take(all);
  return block != nullptr ? std::memset(block, 0, all) : nullptr;
}

void free_for_c_library(void* block) {
  if (block == nullptr) return;
  if (!is_runtime_block(block)) return program_free(block);
  in_runtime([block] { free_runtime_block(block); });
}

// A block stays where it came from: the runtime's, or the program's.
void* realloc_for_c_library(void* block, std::size_t bytes) {
  if (block == nullptr) return malloc_for_c_library(bytes);
  if (!is_runtime_block(block)) return program_realloc(block, bytes);
  if (bytes == 0) {
    free_for_c_library(block);
    return nullptr;
  }
  return in_runtime([&]() -> void* {
    void* const moved = take(bytes);
    if (moved == nullptr) return nullptr;
    std::memcpy(moved, block, std::min(bytes, runtime_block_bytes(block)));
    free_runtime_block(block);
    return moved;
  });
}

struct replacement {
  const char* name;
  std::uintptr_t programs;
  std::uintptr_t ours;
};

template <typename Function>
replacement replace(const char* name, Function& programs, Function ours) {
  programs = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return {name, reinterpret_cast<std::uintptr_t>(programs), reinterpret_cast<std::uintptr_t>(ours)};
}

using replacements = std::array<replacement, 4>;

// Both libraries' pointers to functions are read-only by now.
bool write_pointer(std::uintptr_t place, std::uintptr_t value) {
  auto* const page = reinterpret_cast<std::byte*>(round_down(place, page_bytes));
  if (kernel_mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
  std::memcpy(reinterpret_cast<void*>(place), &value, sizeof value);
  return true;
}

// An object in memory.
struct object {
  std::uintptr_t code;  // an address in its code, by which it is found
  ElfW(Addr) base;
  const ElfW(Phdr) * headers;
  std::size_t header_count;
};

int note_object(dl_phdr_info* info, std::size_t, void* context) {
  auto& wanted = *static_cast<object*>(context);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || wanted.code - (info->dlpi_addr + segment.p_vaddr) >= segment.p_memsz) continue;
    wanted.base = info->dlpi_addr;
    wanted.headers = info->dlpi_phdr;
    wanted.header_count = info->dlpi_phnum;
    return 1;
  }
  return 0;
}

// The pages from the first written one to the last are made what they were: read-only as far as the loader made them
// so.
void protect_again(const object& library) {
  for (std::size_t i = 0; i < library.header_count; ++i) {
    const ElfW(Phdr)& segment = library.headers[i];
    if (segment.p_type != PT_GNU_RELRO) continue;
    const std::uintptr_t first = round_down(library.base + segment.p_vaddr, page_bytes);
    const std::uintptr_t end = round_down(library.base + segment.p_vaddr + segment.p_memsz, page_bytes);
    if (end > first) kernel_mprotect(reinterpret_cast<void*>(first), end - first, PROT_READ);
  }
}

std::uintptr_t dynamic_value(const object& library, ElfW(Sxword) tag) {
  for (std::size_t i = 0; i < library.header_count; ++i) {
    if (library.headers[i].p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(library.base + library.headers[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == tag) return entry->d_un.d_ptr;
    }
  }
  return 0;
}

// Not all loaders write the addresses into the table.
template <typename Value>
const Value* dynamic_pointer(const object& library, ElfW(Sxword) tag) {
  const std::uintptr_t value = dynamic_value(library, tag);
  return reinterpret_cast<const Value*>(value == 0 || value >= library.base ? value : library.base + value);
}

// The C library calls these functions by its relocations, some of which are bound at the first call only.
std::size_t replace_in_relocations(const object& library, const replacements& all, ElfW(Sxword) table,
                                   ElfW(Sxword) table_bytes) {
  const auto* const symbols = dynamic_pointer<ElfW(Sym)>(library, DT_SYMTAB);
  const auto* const names = dynamic_pointer<char>(library, DT_STRTAB);
  const auto* const first = dynamic_pointer<ElfW(Rela)>(library, table);
  const std::size_t count = dynamic_value(library, table_bytes) / sizeof(ElfW(Rela));
  if (symbols == nullptr || names == nullptr || first == nullptr) return 0;
  std::size_t written = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view name(names + symbols[ELF64_R_SYM(first[i].r_info)].st_name);
    for (const replacement& one : all) {
      if (name == one.name) written += write_pointer(library.base + first[i].r_offset, one.ours) ? 1 : 0;
    }
  }
  return written;
}

// The loader keeps pointers to these functions, without names.
std::size_t replace_in_data(const object& loader, const replacements& all) {
  std::size_t written = 0;
  for (std::size_t i = 0; i < loader.header_count; ++i) {
    const ElfW(Phdr)& segment = loader.headers[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) == 0) continue;
    const std::uintptr_t end = loader.base + segment.p_vaddr + segment.p_memsz;
    std::uintptr_t at = round_up(loader.base + segment.p_vaddr, sizeof(void*));
    for (; at + sizeof(void*) <= end; at += sizeof(void*)) {
      std::uintptr_t value = 0;
      std::memcpy(&value, reinterpret_cast<const void*>(at), sizeof value);
      for (const replacement& one : all) {
        if (value == one.programs) written += write_pointer(at, one.ours) ? 1 : 0;
      }
    }
  }
  return written;
}

object find_object(const code_range& code) {
  object found{.code = code.start, .base = 0, .headers = nullptr, .header_count = 0};
  if (code.bytes > 0) dl_iterate_phdr(note_object, &found);
  return found;
}

}  // namespace

void keep_runtime_out_of_programs_malloc() noexcept {
  const replacements all{
      replace("malloc", program_malloc, malloc_for_c_library), replace("calloc", program_calloc, calloc_for_c_library),
      replace("realloc", program_realloc, realloc_for_c_library), replace("free", program_free, free_for_c_library)};
  // This library's own name is bound to its own function.
  const auto own = reinterpret_cast<std::uintptr_t>(static_cast<void* (*)(std::size_t)>(std::malloc));
  const bool complete = std::all_of(all.begin(), all.end(), [](const replacement& one) { return one.programs != 0; });
  if (all[0].programs == own || !complete) return;
  const object library = find_object(c_library_code());
  const object loader = find_object(loader_code());
  const std::size_t in_library = replace_in_relocations(library, all, DT_RELA, DT_RELASZ) +
                                 replace_in_relocations(library, all, DT_JMPREL, DT_PLTRELSZ);
  const std::size_t in_loader = replace_in_data(loader, all);
  protect_again(library);
  protect_again(loader);
  log_line(
      log_level::verbose,
      "the program has a malloc of its own: the C library (%zu places) and the loader (%zu) ask the runtime for what "
      "its threads need",
      in_library, in_loader);
}

}  // namespace far::preload
