#include "trace/record/frame_table.h"

#include <dlfcn.h>

#include "trace/record/table_cursor.h"

// Of glibc 2.35 and later: takes no lock. Older ones have only dl_iterate_phdr, whose lock an interrupted thread may
// hold, so stacks there are followed by frame pointers.
extern "C" __attribute__((weak)) int _dl_find_object(void* address, dl_find_object* found) noexcept;

namespace far::trace {
namespace {

constexpr std::uint8_t omitted = 0xff;
constexpr std::uint8_t sorted_form = 0x3b;  // of the search table: relative to its start, four bytes, signed
constexpr std::uint64_t longest_entry_bytes = 1 << 20;

struct common_entry {
  std::uint64_t code_unit = 1;
  std::int64_t data_unit = 1;
  std::uint64_t return_register = 16;
  std::uint8_t address_form = 0;
  bool has_augmentation = false;
  bool is_signal_frame = false;
  byte_range program;
};

// The body of the entry at `place`, or nothing.
std::optional<byte_range> body_at(const std::uint8_t* place) noexcept {
  table_cursor length({place, place + 4});
  const auto bytes = length.number<std::uint32_t>();
  if (bytes == 0 || bytes > longest_entry_bytes) return std::nullopt;
  return byte_range{place + 4, place + 4 + bytes};
}

// Called inside fault handlers and signal handlers, so it allocates nothing and gives up on anything it does not know:
// a missing frame shortens a stack, a wrong one could crash the program.
std::optional<common_entry> read_common(const std::uint8_t* place) noexcept {
  const std::optional<byte_range> body = body_at(place);
  if (!body) return std::nullopt;
  table_cursor cursor(*body);
  common_entry read;
  static_cast<void>(cursor.number<std::uint32_t>());
  const auto version = cursor.number<std::uint8_t>();
  const char* const augmentation = reinterpret_cast<const char*>(cursor.place());
  while (!cursor.failed() && cursor.number<std::uint8_t>() != 0) {
  }
  if (cursor.failed() || (version != 1 && version != 3)) return std::nullopt;
  read.code_unit = cursor.uleb();
  read.data_unit = cursor.sleb();
  read.return_register = version == 1 ? cursor.number<std::uint8_t>() : cursor.uleb();
  for (const char* letter = augmentation; *letter != 0; ++letter) {
    switch (*letter) {
      case 'z':
        read.has_augmentation = true;
        static_cast<void>(cursor.uleb());
        break;
      case 'R': read.address_form = cursor.number<std::uint8_t>(); break;
      case 'L': static_cast<void>(cursor.number<std::uint8_t>()); break;
      case 'P': {
        const auto form = cursor.number<std::uint8_t>();
        if (form != omitted) static_cast<void>(cursor.address(form & 0x1f));
        break;
      }
      case 'S': read.is_signal_frame = true; break;
      default: return std::nullopt;
    }
  }
  read.program = cursor.rest();
  if (cursor.failed() || read.return_register != 16) return std::nullopt;
  return read;
}

// Carries out the instructions of a table until the row for the wanted address is complete.
class row_maker {
 public:
  row_maker(const common_entry& common, std::uint64_t start, std::uint64_t wanted) noexcept
      : common_(common), at_(start), wanted_(wanted) {
    row_.is_signal_frame = common.is_signal_frame;
  }

  [[nodiscard]] bool run(byte_range program) noexcept {
    table_cursor cursor(program);
    while (!cursor.done() && at_ <= wanted_) {
      if (!step(cursor, cursor.number<std::uint8_t>())) return false;
    }
    return !cursor.failed();
  }
  void end_of_common() noexcept { initial_ = row_; }
  [[nodiscard]] const frame_row& row() const noexcept { return row_; }

 private:
  using kind = register_rule::kind;

  // The numbers are those of DWARF's call frame instructions (section 6.4.2); the first three keep their operand in the
  // low six bits.
  [[nodiscard]] bool step(table_cursor& cursor, std::uint8_t instruction) noexcept {
    const std::uint8_t low = instruction & 0x3f;
    switch (instruction & 0xc0) {
      case 0x40: return advance(low);
      case 0x80: return set(low, kind::at_offset, factored(cursor.uleb()));
      case 0xc0: return restore(low);
      default: break;
    }
    switch (instruction) {
      case 0x00: return true;
      case 0x01: at_ = cursor.address(common_.address_form); return true;
      case 0x02: return advance(cursor.number<std::uint8_t>());
      case 0x03: return advance(cursor.number<std::uint16_t>());
      case 0x04: return advance(cursor.number<std::uint32_t>());
      case 0x0a: return remember();
      case 0x0b: return recall();
      case 0x0c:
      case 0x0d:
      case 0x0e:
      case 0x0f:
      case 0x12:
      case 0x13: return define_frame(cursor, instruction);
      case 0x2e: static_cast<void>(cursor.uleb()); return true;  // DW_CFA_GNU_args_size
      default: return rule(cursor, instruction);
    }
  }

  [[nodiscard]] bool rule(table_cursor& cursor, std::uint8_t instruction) noexcept {
    const std::uint64_t number = cursor.uleb();
    switch (instruction) {
      case 0x05: return set(number, kind::at_offset, factored(cursor.uleb()));
      case 0x06: return restore(number);
      case 0x07: return set(number, kind::undefined, 0);
      case 0x08: return set(number, kind::same, 0);
      case 0x09: return set(number, kind::in_register, static_cast<std::int64_t>(cursor.uleb()));
      case 0x10: return set(number, kind::at_expression, 0, cursor.block());
      case 0x11: return set(number, kind::at_offset, cursor.sleb() * common_.data_unit);
      case 0x14: return set(number, kind::is_offset, factored(cursor.uleb()));
      case 0x15: return set(number, kind::is_offset, cursor.sleb() * common_.data_unit);
      case 0x16: return set(number, kind::is_expression, 0, cursor.block());
      default: return false;
    }
  }

  [[nodiscard]] bool define_frame(table_cursor& cursor, std::uint8_t instruction) noexcept {
    row_.frame_by_expression = instruction == 0x0f;
    switch (instruction) {
      case 0x0c:
        row_.frame_register = cursor.uleb();
        row_.frame_offset = static_cast<std::int64_t>(cursor.uleb());
        break;
      case 0x0d: row_.frame_register = cursor.uleb(); break;
      case 0x0e: row_.frame_offset = static_cast<std::int64_t>(cursor.uleb()); break;
      case 0x0f: row_.frame_expression = cursor.block(); break;
      case 0x12:
        row_.frame_register = cursor.uleb();
        row_.frame_offset = cursor.sleb() * common_.data_unit;
        break;
      default: row_.frame_offset = cursor.sleb() * common_.data_unit; break;
    }
    return row_.frame_register < unwound_registers;
  }

  [[nodiscard]] std::int64_t factored(std::uint64_t offset) const noexcept {
    return static_cast<std::int64_t>(offset) * common_.data_unit;
  }
  [[nodiscard]] bool advance(std::uint64_t units) noexcept {
    at_ += units * common_.code_unit;
    return true;
  }
  // Registers beyond ours are those of vectors, which no frame's address depends on.
  [[nodiscard]] bool set(std::uint64_t number, kind how, std::int64_t offset, byte_range expression = {}) noexcept {
    if (number < unwound_registers) row_.rules[number] = {how, offset, expression};
    return true;
  }
  [[nodiscard]] bool restore(std::uint64_t number) noexcept {
    if (number < unwound_registers) row_.rules[number] = initial_.rules[number];
    return true;
  }
  [[nodiscard]] bool remember() noexcept {
    if (depth_ == remembered_.size()) return false;
    remembered_[depth_++] = row_;
    return true;
  }
  [[nodiscard]] bool recall() noexcept {
    if (depth_ == 0) return false;
    row_ = remembered_[--depth_];
    return true;
  }

  const common_entry& common_;
  std::uint64_t at_;
  std::uint64_t wanted_;
  frame_row row_;
  frame_row initial_;
  std::array<frame_row, 4> remembered_;
  std::size_t depth_ = 0;
};

bool find_object(std::uint64_t address, dl_find_object* found) noexcept {
  return _dl_find_object != nullptr && _dl_find_object(reinterpret_cast<void*>(address), found) == 0;
}

// The entry for `address` in the sorted table of its object (.eh_frame_hdr).
const std::uint8_t* find_entry(const std::uint8_t* header, std::uint64_t address) noexcept {
  constexpr std::size_t longest_start = 4 + 8 + 8;
  const auto start = reinterpret_cast<std::uint64_t>(header);
  table_cursor cursor({header, header + longest_start});
  const auto version = cursor.number<std::uint8_t>();
  const auto frames_form = cursor.number<std::uint8_t>();
  const auto count_form = cursor.number<std::uint8_t>();
  const auto table_form = cursor.number<std::uint8_t>();
  if (version != 1 || count_form == omitted || table_form != sorted_form) return nullptr;
  static_cast<void>(cursor.address(frames_form, start));
  const std::uint64_t count = cursor.address(count_form, start);
  if (cursor.failed() || count == 0) return nullptr;
  const std::uint8_t* const table = cursor.place();
  const auto word = [table](std::uint64_t index) {
    std::int32_t value = 0;
    std::memcpy(&value, table + 4 * index, sizeof value);
    return static_cast<std::int64_t>(value);
  };
  const auto wanted = static_cast<std::int64_t>(address - start);
  std::uint64_t low = 0;
  std::uint64_t high = count;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (word(2 * middle) <= wanted ? low : high) = middle;
  }
  return word(2 * low) <= wanted ? header + word(2 * low + 1) : nullptr;
}

}  // namespace

code_range object_at(std::uint64_t address) noexcept {
  dl_find_object found;
  if (!find_object(address, &found)) return {};
  return {reinterpret_cast<std::uint64_t>(found.dlfo_map_start), reinterpret_cast<std::uint64_t>(found.dlfo_map_end)};
}

// The row is computed anew each time: a cache would need memory and a lock inside fault handlers.
std::optional<frame_row> find_row(std::uint64_t address) noexcept {
  dl_find_object found;
  if (!find_object(address, &found) || found.dlfo_eh_frame == nullptr) return std::nullopt;
  const std::uint8_t* const entry = find_entry(static_cast<const std::uint8_t*>(found.dlfo_eh_frame), address);
  if (entry == nullptr) return std::nullopt;
  const std::optional<byte_range> body = body_at(entry);
  if (!body) return std::nullopt;
  table_cursor cursor(*body);
  const std::uint8_t* const back_from = cursor.place();
  const std::optional<common_entry> common = read_common(back_from - cursor.number<std::uint32_t>());
  if (!common) return std::nullopt;
  const std::uint64_t start = cursor.address(common->address_form);
  const std::uint64_t bytes = cursor.address(common->address_form & 0x0f);
  if (common->has_augmentation) static_cast<void>(cursor.block());
  if (cursor.failed() || address - start >= bytes) return std::nullopt;
  row_maker maker(*common, start, address);
  if (!maker.run(common->program)) return std::nullopt;
  maker.end_of_common();
  if (!maker.run(cursor.rest())) return std::nullopt;
  return maker.row();
}

}  // namespace far::trace
