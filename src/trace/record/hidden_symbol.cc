#include "trace/record/hidden_symbol.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace far::trace {
namespace {

// A file that is mapped for reading.
class mapped_file {
 public:
  explicit mapped_file(const char* path) {
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status{};
    if (descriptor >= 0 && fstat(descriptor, &status) == 0 && status.st_size > 0) {
      bytes_ = static_cast<std::size_t>(status.st_size);
      start_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    }
    if (descriptor >= 0) close(descriptor);
  }
  ~mapped_file() {
    if (start_ != MAP_FAILED) munmap(start_, bytes_);
  }
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;

  // `count` values at an offset, or nothing where the file does not hold as many.
  template <typename T>
  [[nodiscard]] std::span<const T> at(std::uint64_t offset, std::uint64_t count) const {
    if (start_ == MAP_FAILED || offset % alignof(T) != 0 || offset > bytes_) return {};
    if (count > (bytes_ - offset) / sizeof(T)) return {};
    return {reinterpret_cast<const T*>(static_cast<const std::byte*>(start_) + offset), count};
  }

 private:
  void* start_ = MAP_FAILED;
  std::size_t bytes_ = 0;
};

// The value of a function's symbol in the table `symbols`.
std::optional<std::uint64_t> find_in(const mapped_file& file, const Elf64_Shdr& symbols, const Elf64_Shdr& strings,
                                     std::string_view name) {
  const std::span<const char> text = file.at<char>(strings.sh_offset, strings.sh_size);
  for (const Elf64_Sym& symbol : file.at<Elf64_Sym>(symbols.sh_offset, symbols.sh_size / sizeof(Elf64_Sym))) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF || symbol.st_name >= text.size())
      continue;
    const std::string_view rest(text.data() + symbol.st_name, text.size() - symbol.st_name);
    if (rest.size() > name.size() && rest.starts_with(name) && rest[name.size()] == 0) return symbol.st_value;
  }
  return std::nullopt;
}

}  // namespace

void* find_hidden_function(const void* neighbour, const char* name) {
  Dl_info holder{};
  if (dladdr(neighbour, &holder) == 0 || holder.dli_fname == nullptr) return nullptr;
  const mapped_file file(holder.dli_fname);
  const std::span<const Elf64_Ehdr> header = file.at<Elf64_Ehdr>(0, 1);
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return nullptr;
  if (header[0].e_ident[EI_CLASS] != ELFCLASS64 || header[0].e_shentsize != sizeof(Elf64_Shdr)) return nullptr;
  const std::span<const Elf64_Shdr> sections = file.at<Elf64_Shdr>(header[0].e_shoff, header[0].e_shnum);
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const std::optional<std::uint64_t> value = find_in(file, section, sections[section.sh_link], name);
    if (!value) continue;
    const bool fixed = header[0].e_type == ET_EXEC;
    return reinterpret_cast<void*>(*value + (fixed ? 0 : reinterpret_cast<std::uint64_t>(holder.dli_fbase)));
  }
  return nullptr;
}

}  // namespace far::trace
