#include "trace/record/unwinder.h"

#include <optional>

#include "trace/record/checked_memory.h"
#include "trace/record/frame_table.h"
#include "trace/record/table_cursor.h"

namespace far::trace {
namespace {

constexpr std::size_t frame_pointer = 6;
constexpr std::size_t stack_pointer = 7;
constexpr std::size_t code_address = 16;
constexpr std::uint64_t longest_frame_bytes = 1 << 20;  // of code without tables

// The stack machine of DWARF expressions, as far as unwind tables use it: linkers for stubs, C libraries for signals.
class expression {
 public:
  expression(const machine_state& state, checked_memory& memory) noexcept : state_(state), memory_(memory) {}

  [[nodiscard]] std::optional<std::uint64_t> run(byte_range code, const std::uint64_t* first) noexcept {
    if (first != nullptr) static_cast<void>(push(*first));
    table_cursor cursor(code);
    while (!cursor.done()) {
      if (!step(cursor, cursor.number<std::uint8_t>())) return std::nullopt;
    }
    if (cursor.failed() || depth_ == 0) return std::nullopt;
    return stack_[depth_ - 1];
  }

 private:
  [[nodiscard]] bool step(table_cursor& cursor, std::uint8_t operation) noexcept {
    if (operation >= 0x30 && operation <= 0x4f) return push(operation - 0x30U);
    if (operation >= 0x70 && operation <= 0x80) {
      return push(state_.registers[operation - 0x70U] + static_cast<std::uint64_t>(cursor.sleb()));
    }
    switch (operation) {
      case 0x06: return depth_ > 0 && memory_.read(stack_[depth_ - 1], &stack_[depth_ - 1]);
      case 0x08: return push(cursor.number<std::uint8_t>());
      case 0x09: return push(static_cast<std::uint64_t>(std::int64_t{cursor.number<std::int8_t>()}));
      case 0x0a: return push(cursor.number<std::uint16_t>());
      case 0x0b: return push(static_cast<std::uint64_t>(std::int64_t{cursor.number<std::int16_t>()}));
      case 0x0c: return push(cursor.number<std::uint32_t>());
      case 0x0d: return push(static_cast<std::uint64_t>(std::int64_t{cursor.number<std::int32_t>()}));
      case 0x10: return push(cursor.uleb());
      case 0x11: return push(static_cast<std::uint64_t>(cursor.sleb()));
      case 0x23: return depth_ > 0 && (stack_[depth_ - 1] += cursor.uleb(), true);
      default: return combine(operation);
    }
  }

  // The operations are DWARF's (section 2.5.1.4). Those that no compiler writes into unwind tables, such as division,
  // are left out and end the stack.
  [[nodiscard]] bool combine(std::uint8_t operation) noexcept {
    if (depth_ < 2) return false;
    const std::uint64_t b = stack_[--depth_];
    std::uint64_t& a = stack_[depth_ - 1];
    const auto signed_a = static_cast<std::int64_t>(a);
    const auto signed_b = static_cast<std::int64_t>(b);
    switch (operation) {
      case 0x1a: a &= b; return true;
      case 0x1c: a -= b; return true;
      case 0x21: a |= b; return true;
      case 0x22: a += b; return true;
      case 0x24: a = b < 64 ? a << b : 0; return true;
      case 0x25: a = b < 64 ? a >> b : 0; return true;
      case 0x29: a = a == b; return true;
      case 0x2a: a = signed_a >= signed_b; return true;
      case 0x2b: a = signed_a > signed_b; return true;
      case 0x2c: a = signed_a <= signed_b; return true;
      case 0x2d: a = signed_a < signed_b; return true;
      case 0x2e: a = a != b; return true;
      default: return false;
    }
  }

  [[nodiscard]] bool push(std::uint64_t value) noexcept {
    if (depth_ == stack_.size()) return false;
    stack_[depth_++] = value;
    return true;
  }

  const machine_state& state_;
  checked_memory& memory_;
  std::array<std::uint64_t, 16> stack_{};
  std::size_t depth_ = 0;
};

std::optional<std::uint64_t> frame_address(const frame_row& row, const machine_state& state,
                                           checked_memory& memory) noexcept {
  if (row.frame_by_expression) return expression(state, memory).run(row.frame_expression, nullptr);
  return state.registers[row.frame_register] + static_cast<std::uint64_t>(row.frame_offset);
}

// The value of a register in the caller; nothing if that cannot be known.
std::optional<std::uint64_t> restored(const register_rule& rule, std::size_t number, std::uint64_t frame,
                                      const machine_state& state, checked_memory& memory) noexcept {
  using kind = register_rule::kind;
  std::optional<std::uint64_t> place;
  switch (rule.how) {
    case kind::same: return state.registers[number];
    case kind::undefined: return std::nullopt;
    case kind::is_offset: return frame + static_cast<std::uint64_t>(rule.offset);
    case kind::in_register:
      if (rule.offset < 0 || rule.offset >= static_cast<std::int64_t>(unwound_registers)) return std::nullopt;
      return state.registers[static_cast<std::size_t>(rule.offset)];
    case kind::is_expression: return expression(state, memory).run(rule.expression, &frame);
    case kind::at_offset: place = frame + static_cast<std::uint64_t>(rule.offset); break;
    case kind::at_expression: place = expression(state, memory).run(rule.expression, &frame); break;
  }
  std::uint64_t value = 0;
  if (!place || !memory.read(*place, &value)) return std::nullopt;
  return value;
}

bool step_by_table(const frame_row& row, machine_state& state, checked_memory& memory) noexcept {
  const std::optional<std::uint64_t> frame = frame_address(row, state, memory);
  if (!frame) return false;
  machine_state caller;
  for (std::size_t i = 0; i < unwound_registers; ++i) {
    const bool is_stack = i == stack_pointer && row.rules[i].how == register_rule::kind::same;
    const std::optional<std::uint64_t> value = is_stack ? frame : restored(row.rules[i], i, *frame, state, memory);
    if (!value && (i == code_address || i == stack_pointer)) return false;
    caller.registers[i] = value.value_or(0);
  }
  // A caller has its frame above; only a signal may have changed stacks.
  if (!row.is_signal_frame && caller.registers[stack_pointer] <= state.registers[stack_pointer]) return false;
  state = caller;
  return true;
}

bool step_by_frame_pointer(machine_state& state, checked_memory& memory) noexcept {
  const std::uint64_t frame = state.registers[frame_pointer];
  const std::uint64_t stack = state.registers[stack_pointer];
  if (frame < stack || frame - stack > longest_frame_bytes || frame % 8 != 0) return false;
  std::uint64_t above = 0;
  std::uint64_t code = 0;
  if (!memory.read(frame, &above) || !memory.read(frame + 8, &code) || object_at(code).end == 0) return false;
  state.registers[frame_pointer] = above;
  state.registers[stack_pointer] = frame + 16;
  state.registers[code_address] = code;
  return true;
}

}  // namespace

machine_state interrupted_state(const ucontext_t& context) noexcept {
  machine_state state;
#if defined(__x86_64__)
  constexpr std::array<int, unwound_registers> numbers{REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI,
                                                       REG_RBP, REG_RSP, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                                       REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    state.registers[i] = static_cast<std::uint64_t>(context.uc_mcontext.gregs[numbers[i]]);
  }
#else
  static_cast<void>(context);
#endif
  return state;
}

std::size_t unwind(machine_state from, std::span<std::uint64_t> addresses) noexcept {
  checked_memory memory;
  std::size_t depth = 0;
  // A return address stands behind its call, which may have been the last instruction of its function.
  bool is_return = false;
  while (depth < addresses.size() && from.registers[code_address] != 0) {
    const std::uint64_t code = from.registers[code_address];
    addresses[depth++] = code;
    const std::optional<frame_row> row = find_row(is_return ? code - 1 : code);
    if (row ? !step_by_table(*row, from, memory) : !step_by_frame_pointer(from, memory)) break;
    is_return = !row || !row->is_signal_frame;
  }
  return depth;
}

}  // namespace far::trace
