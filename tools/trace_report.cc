#include <fmt/format.h>

#include <filesystem>

#include "commands.h"
#include "message.h"
#include "program.h"
#include "trace/reports.h"

namespace far::tools {

int trace_report(const std::string& dir, bool json) {
  const result<trace::report> reports = trace::read_reports(dir);
  if (!reports) return fail(exit_failure, reports.error().message);
  if (json) {
    fmt::print("{}\n", trace::report_json(reports.value()));
    return 0;
  }
  const result<void> written = trace::write_report_files(dir, reports.value());
  if (!written) return fail(exit_failure, written.error().message);
  fmt::print("{}\nThe flame graph, misses over time and all lines: {}\n", trace::summary_text(reports.value()),
             (std::filesystem::path(dir) / "report.html").string());
  return 0;
}

}  // namespace far::tools
