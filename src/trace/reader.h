// Reads the file of a traced program (format.h).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "trace/trace.h"

namespace far::trace {

// `name` is for messages. A file that ends within a record, or in zeros, is good up to there: `cut_short`. Records of
// unknown types are skipped. Errors: no header, another format or version, a record that contradicts itself.
[[nodiscard]] result<trace> parse_trace(std::string_view bytes, const std::string& name);

// The same for a file. Errors also when it cannot be read.
[[nodiscard]] result<trace> read_trace(const std::string& path);

}  // namespace far::trace
