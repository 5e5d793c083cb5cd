#include "trace_report.h"

#include <fmt/format.h>

#include <filesystem>

#include "message.h"
#include "program.h"
#include "trace/reports.h"

namespace far::tools {

int trace_report(const std::string& dir, bool json) {
  const result<trace::report> made = trace::read_reports(dir);
  if (!made) return fail(exit_failure, made.error().message);
  if (json) {
    fmt::print("{}\n", trace::report_json(made.value()));
    return 0;
  }
  const result<void> written = trace::write_report_files(dir, made.value());
  if (!written) return fail(exit_failure, written.error().message);
  fmt::print("{}\nThe flame graph, misses over time and all lines: {}\n", trace::summary_text(made.value()),
             (std::filesystem::path(dir) / "report.html").string());
  return 0;
}

}  // namespace far::tools
