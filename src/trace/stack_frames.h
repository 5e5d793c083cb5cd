// The stacks of a trace as frames with names, native and Python ones together.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/analysis.h"

namespace far::trace {

[[nodiscard]] std::string file_name(const std::string& path);

// "FILE:LINE", or empty.
[[nodiscard]] std::string place_of(const frame& one);

// All frames of a stack of addresses, inlined ones too, innermost first. At least one.
[[nodiscard]] std::vector<frame> frames_of(const trace& from, std::uint32_t stack, symbolizer& symbols);

[[nodiscard]] bool is_interpreter(const frame& one, const analysis_options& options);

// The innermost frame that belongs to the program; the innermost of all when none does.
[[nodiscard]] const frame& program_frame(const std::vector<frame>& frames, const analysis_options& options);

// What the program's frame called, if that is a far container or far pointer: the outermost frame of their headers
// that was passed over. Null when there is none.
[[nodiscard]] const frame* container_frame(const std::vector<frame>& frames, const analysis_options& options);

// The name of its function; an inlined one that debug information names without its class comes with its header,
// "far/HEADER: NAME".
[[nodiscard]] std::string container_name(const frame& one);

// Root first. With a Python stack, its frames take the place of the interpreter's own: below them stands only what the
// innermost Python function called.
[[nodiscard]] std::vector<flame_frame> flame_stack(const std::vector<frame>& frames,
                                                   const std::vector<python_frame>& python,
                                                   const analysis_options& options);

}  // namespace far::trace
