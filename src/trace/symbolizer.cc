#include "trace/symbolizer.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <unordered_map>
#include <utility>

#include "trace/memory_maps.h"

namespace far::trace {
namespace {

struct freer {
  void operator()(void* memory) const { std::free(memory); }
};

std::string demangle(const char* name) {
  if (name == nullptr) return {};
  if (std::strncmp(name, "_Z", 2) != 0) return name;
  int status = 0;
  const std::unique_ptr<char, freer> readable(abi::__cxa_demangle(name, nullptr, nullptr, &status));
  return status == 0 && readable ? readable.get() : name;
}

// The entry that an inlined function, or a definition outside its class, refers to; itself when there is none.
Dwarf_Die declaration_of(Dwarf_Die entry) {
  Dwarf_Attribute attribute;
  for (const unsigned kind : {DW_AT_abstract_origin, DW_AT_specification}) {
    Dwarf_Die referred;
    if (dwarf_formref_die(dwarf_attr(&entry, kind, &attribute), &referred) != nullptr) entry = referred;
  }
  return entry;
}

// "a::b::name" from the namespaces and classes around it.
std::string qualified_name(Dwarf_Die* entry) {
  const char* const name = dwarf_diename(entry);
  if (name == nullptr) return {};
  std::string qualified = name;
  Dwarf_Die declaration = declaration_of(*entry);
  Dwarf_Die* found = nullptr;
  const int count = dwarf_getscopes_die(&declaration, &found);
  const std::unique_ptr<Dwarf_Die, freer> scopes(found);
  for (int i = 1; i < count; ++i) {
    Dwarf_Die* const scope = scopes.get() + i;
    const int tag = dwarf_tag(scope);
    if (tag != DW_TAG_namespace && tag != DW_TAG_class_type && tag != DW_TAG_structure_type) continue;
    const char* const outer = dwarf_diename(scope);
    if (outer != nullptr) qualified = std::string(outer) + "::" + qualified;
  }
  return qualified;
}

// The name of a function's or an inlined function's entry. Functions with internal linkage, and C functions, have no
// linkage name.
std::string function_name(Dwarf_Die* entry) {
  Dwarf_Attribute attribute;
  for (const unsigned kind : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    if (dwarf_attr_integrate(entry, kind, &attribute) != nullptr) {
      const char* const mangled = dwarf_formstring(&attribute);
      if (mangled != nullptr) return demangle(mangled);
    }
  }
  return qualified_name(entry);
}

std::string source_path(const char* file, Dwarf_Die* unit) {
  if (file == nullptr) return {};
  Dwarf_Attribute attribute;
  const char* const folder = dwarf_formstring(dwarf_attr(unit, DW_AT_comp_dir, &attribute));
  std::filesystem::path path(file);
  if (path.is_relative() && folder != nullptr) path = std::filesystem::path(folder) / path;
  return path.lexically_normal().string();
}

unsigned number_of(Dwarf_Die* entry, unsigned kind) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  if (dwarf_formudata(dwarf_attr(entry, kind, &attribute), &value) != 0) return 0;
  return static_cast<unsigned>(value);
}

// Where an inlined function was called from.
void set_call_place(Dwarf_Die* inlined, Dwarf_Die* unit, frame& caller) {
  Dwarf_Files* files = nullptr;
  std::size_t count = 0;
  caller.line = number_of(inlined, DW_AT_call_line);
  const unsigned number = number_of(inlined, DW_AT_call_file);
  if (dwarf_getsrcfiles(unit, &files, &count) != 0 || number >= count) return;
  caller.file = source_path(dwarf_filesrc(files, number, nullptr, nullptr), unit);
}

// The innermost entry with code at the address. dwarf_getscopes() does not look into namespaces, where clang has the
// entries of functions; GCC has them outside.
bool find_innermost(Dwarf_Die* around, Dwarf_Addr address, Dwarf_Die* found) {
  Dwarf_Die inner;
  if (dwarf_child(around, &inner) != 0) return false;
  do {
    if (dwarf_haspc(&inner, address) > 0) {
      *found = inner;
      find_innermost(&inner, address, found);
      return true;
    }
    const int tag = dwarf_tag(&inner);
    if ((tag == DW_TAG_namespace || tag == DW_TAG_module) && find_innermost(&inner, address, found)) return true;
  } while (dwarf_siblingof(&inner, &inner) == 0);
  return false;
}

// libdw's own search would ask a debuginfod server over the network. This one looks where Debian's -dbgsym packages put
// their files, by build id, then beside the module by the name in .gnu_debuglink.
int find_debug_file(Dwfl_Module* module, void** user, const char* name, Dwarf_Addr base, const char* file,
                    const char* link, GElf_Word checksum, char** found) {
  const int by_id = dwfl_build_id_find_debuginfo(module, user, name, base, file, link, checksum, found);
  if (by_id >= 0 || file == nullptr || link == nullptr) return by_id;
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  for (const std::filesystem::path& place : {folder / link, folder / ".debug" / link,
                                             std::filesystem::path("/usr/lib/debug") / folder.relative_path() / link}) {
    if (place == file) continue;
    const int opened = open(place.c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0) continue;
    *found = strdup(place.c_str());
    return opened;
  }
  return -1;
}

std::string install_advice(const std::string& path) {
  if (path.starts_with("/usr/") || path.starts_with("/lib")) {
    return "install its debug symbols (on Debian the package NAME-dbgsym of the package that `dpkg -S " + path +
           "` names), or compile it with -g";
  }
  return "compile it with -g, and do not strip it";
}

}  // namespace

class symbolizer::modules {
 public:
  explicit modules(const std::vector<std::string>& maps) : ranges_(parse_maps(maps)) {
    static const Dwfl_Callbacks callbacks = {dwfl_linux_proc_find_elf, find_debug_file, nullptr, nullptr};
    session_ = dwfl_begin(&callbacks);
    if (session_ == nullptr) return;
    dwfl_report_begin(session_);
    for (const module_range& range : ranges_) {
      // A file that replaced the one that ran would give wrong lines.
      if (range.deleted || range.path.front() != '/') continue;
      Dwfl_Module* const module =
          dwfl_report_elf(session_, range.path.c_str(), range.path.c_str(), -1, range.first, false);
      if (module != nullptr) by_path_[range.path] = module;
    }
    dwfl_report_end(session_, nullptr, nullptr);
  }
  ~modules() { dwfl_end(session_); }
  modules(const modules&) = delete;
  modules& operator=(const modules&) = delete;

  const std::vector<frame>& at(std::uint64_t address, bool is_return_address) {
    const std::uint64_t looked_up = is_return_address && address > 0 ? address - 1 : address;
    const auto [place, is_new] = known_.try_emplace(looked_up);
    if (is_new) place->second = look_up(looked_up);
    return place->second;
  }

  [[nodiscard]] std::vector<std::string> units_of(const std::string& path) const {
    std::vector<std::string> units;
    const auto module = by_path_.find(path);
    if (module == by_path_.end()) return units;
    Dwarf_Addr bias = 0;
    Dwarf_Die* unit = nullptr;
    while ((unit = dwfl_module_nextcu(module->second, unit, &bias)) != nullptr) {
      std::string source = source_path(dwarf_diename(unit), unit);
      if (!source.empty()) units.push_back(std::move(source));
    }
    return units;
  }

  [[nodiscard]] std::vector<missing_symbols> missing() const {
    std::vector<missing_symbols> list;
    for (const auto& [module, one] : missing_) list.push_back(one);
    std::sort(list.begin(), list.end(), [](const missing_symbols& a, const missing_symbols& b) {
      return a.lookups != b.lookups ? a.lookups > b.lookups : a.module < b.module;
    });
    return list;
  }

 private:
  // Debug information, then the symbol table, then the bare offset: each gives less, and the report says what to
  // install to get more.
  std::vector<frame> look_up(std::uint64_t address) {
    frame base;
    const module_range* const range = find_module(ranges_, address);
    base.offset = range != nullptr ? address - range->first : address;
    if (range != nullptr) base.module = range->path;
    Dwfl_Module* const module = session_ != nullptr ? dwfl_addrmodule(session_, address) : nullptr;
    if (module == nullptr) {
      if (range != nullptr && range->path.front() == '/') {
        note_missing(*range, range->deleted ? "it was replaced or removed while the program ran; trace again"
                                            : "the file cannot be read here; make the report where the program ran");
      }
      return {base};
    }
    std::vector<frame> frames = by_debug_information(module, address, base);
    if (!frames.empty()) return frames;
    GElf_Off offset = 0;
    GElf_Sym symbol;
    base.function = demangle(dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr, nullptr, nullptr));
    if (range != nullptr) note_missing(*range, install_advice(range->path));
    return {base};
  }

  // The unit of the address. libdw finds it by .debug_aranges, which clang does not write; then by the units' own
  // ranges.
  Dwarf_Die* find_unit(Dwfl_Module* module, std::uint64_t address, Dwarf_Addr* bias) {
    Dwarf_Die* const found = dwfl_module_addrdie(module, address, bias);
    if (found != nullptr) return found;
    const auto [known, is_new] = unit_ranges_.try_emplace(module);
    unit_ranges& all = known->second;
    Dwarf_Die* unit = nullptr;
    while (is_new && (unit = dwfl_module_nextcu(module, unit, &all.bias)) != nullptr) {
      Dwarf_Addr base = 0;
      Dwarf_Addr begin = 0;
      Dwarf_Addr end = 0;
      for (std::ptrdiff_t next = 0; (next = dwarf_ranges(unit, next, &base, &begin, &end)) > 0;) {
        all.by_begin[begin] = {end, unit};
      }
    }
    *bias = all.bias;
    const auto behind = all.by_begin.upper_bound(address - all.bias);
    if (behind == all.by_begin.begin()) return nullptr;
    const auto& [end, unit_there] = std::prev(behind)->second;
    return address - all.bias < end ? unit_there : nullptr;
  }

  // The scopes around the address, from the inside out: each inlined function knows from where it was called, which is
  // the place of the next frame. Empty when nothing is known.
  std::vector<frame> by_debug_information(Dwfl_Module* module, std::uint64_t address, const frame& base) {
    Dwarf_Addr bias = 0;
    Dwarf_Die* const unit = find_unit(module, address, &bias);
    if (unit == nullptr) return {};
    Dwarf_Die innermost;
    if (!find_innermost(unit, address - bias, &innermost)) return {};
    Dwarf_Die* found = nullptr;
    const int count = dwarf_getscopes_die(&innermost, &found);
    const std::unique_ptr<Dwarf_Die, freer> scopes(found);

    frame current = base;
    Dwarf_Line* const source = dwarf_getsrc_die(unit, address - bias);
    int line = 0;
    if (source != nullptr && dwarf_lineno(source, &line) == 0) {
      current.line = static_cast<unsigned>(std::max(line, 0));
      current.file = source_path(dwarf_linesrc(source, nullptr, nullptr), unit);
    }
    std::vector<frame> frames;
    for (int i = 0; i < count; ++i) {
      Dwarf_Die* const scope = scopes.get() + i;
      const int tag = dwarf_tag(scope);
      if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
      current.function = function_name(scope);
      current.inlined = tag == DW_TAG_inlined_subroutine;
      frames.push_back(current);
      if (!current.inlined) break;
      current = base;
      set_call_place(scope, unit, current);
    }
    return frames;
  }

  void note_missing(const module_range& range, std::string advice) {
    missing_symbols& one = missing_[range.path];
    if (one.lookups++ > 0) return;
    one.module = range.path;
    one.advice = std::move(advice);
  }

  std::vector<module_range> ranges_;
  Dwfl* session_ = nullptr;
  std::unordered_map<std::uint64_t, std::vector<frame>> known_;
  std::map<std::string, missing_symbols> missing_;
  std::map<std::string, Dwfl_Module*> by_path_;
  struct unit_ranges {
    Dwarf_Addr bias = 0;
    std::map<Dwarf_Addr, std::pair<Dwarf_Addr, Dwarf_Die*>> by_begin;  // -> their end
  };
  std::map<Dwfl_Module*, unit_ranges> unit_ranges_;
};

symbolizer::symbolizer(const std::vector<std::string>& maps) : modules_(std::make_unique<modules>(maps)) {}
symbolizer::~symbolizer() = default;

const std::vector<frame>& symbolizer::at(std::uint64_t address, bool is_return_address) {
  return modules_->at(address, is_return_address);
}

std::vector<std::string> symbolizer::units_of(const std::string& module) const {
  return modules_->units_of(module);
}

std::vector<missing_symbols> symbolizer::missing() const {
  return modules_->missing();
}

}  // namespace far::trace
