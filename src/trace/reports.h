// From the files of a traced run to what a person reads.
#pragma once

#include <string>

#include "base/result.h"
#include "trace/analysis.h"

namespace far::trace {

// Reads DIR/misses-PID.trace, all of them, and puts together what is in them. Errors: none is there, or one is damaged.
[[nodiscard]] result<report> read_reports(const std::string& dir, const analysis_options& options = {});

// Writes DIR/summary.txt, DIR/stacks.folded, DIR/report.html and DIR/misses.profile (profile.h), in place of older
// ones. Errors: DIR cannot be written.
[[nodiscard]] result<void> write_report_files(const std::string& dir, const report& analysis);

// Both; gives back the text of summary.txt, for the terminal.
[[nodiscard]] result<std::string> write_reports(const std::string& dir, const analysis_options& options = {});

// The three formats, and one for machines.
[[nodiscard]] std::string summary_text(const report& analysis);
[[nodiscard]] std::string report_page(const report& analysis);
[[nodiscard]] std::string report_json(const report& analysis);

}  // namespace far::trace
