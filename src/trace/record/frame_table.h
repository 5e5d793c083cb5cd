// How to step from one frame to its caller: a row of the table that .eh_frame describes, for one place in the code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "trace/record/unwinder.h"

namespace far::trace {

struct byte_range {
  const std::uint8_t* begin = nullptr;
  const std::uint8_t* end = nullptr;
};

struct register_rule {
  enum class kind : std::uint8_t { same, undefined, at_offset, is_offset, in_register, at_expression, is_expression };
  kind how = kind::same;
  std::int64_t offset = 0;  // from the frame's address; or the number of a register
  byte_range expression;
};

struct frame_row {
  bool frame_by_expression = false;
  std::uint64_t frame_register = 0;
  std::int64_t frame_offset = 0;
  byte_range frame_expression;
  std::array<register_rule, unwound_registers> rules{};
  bool is_signal_frame = false;
};

struct code_range {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
};

// Where the loaded object that holds this address lies; empty where there is none.
[[nodiscard]] code_range object_at(std::uint64_t address) noexcept;

// The row for the code at `address`; nothing where there is no table, or one in an unknown form.
[[nodiscard]] std::optional<frame_row> find_row(std::uint64_t address) noexcept;

}  // namespace far::trace
