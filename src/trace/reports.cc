#include "trace/reports.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "trace/profile.h"
#include "trace/reader.h"

namespace far::trace {
namespace {

result<std::vector<std::string>> trace_files(const std::string& dir) {
  std::error_code failure;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir, failure)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("misses-") && name.ends_with(".trace")) files.push_back(entry.path().string());
  }
  if (failure) {
    return error{
        "cannot read the directory '" + dir + "': " + failure.message() + "; name the one that `farheap trace` wrote",
        failure.value()};
  }
  if (files.empty()) {
    return error{"there is no misses-PID.trace in '" + dir + "'; name the directory that `farheap trace` wrote",
                 ENOENT};
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::filesystem::file_time_type last_written(const std::filesystem::path& folder) {
  std::error_code failure;
  auto latest = std::filesystem::file_time_type::min();
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    if (entry.path().extension() == ".trace") latest = std::max(latest, entry.last_write_time(failure));
  }
  return latest;
}

result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.flush();
  if (file.good()) return {};
  const int failure = errno;
  return error{
      "cannot write '" + path + "': " + std::strerror(failure) + "; free space there, or check its permissions",
      failure};
}

}  // namespace

result<report> read_reports(const std::string& dir, const analysis_options& options) {
  const result<std::vector<std::string>> files = trace_files(dir);
  if (!files) return files.error();
  analyzer all(options);
  std::vector<std::string> empty_files;
  for (const std::string& file : files.value()) {
    std::error_code failure;
    if (std::filesystem::file_size(file, failure) == 0) {
      empty_files.push_back(file);
      continue;
    }
    const result<trace> one = read_trace(file);
    if (!one) return one.error();
    all.add(one.value());
  }
  report analysis = all.finish();
  analysis.empty_files = std::move(empty_files);
  return analysis;
}

result<void> write_report_files(const std::string& dir, const report& analysis) {
  const std::filesystem::path folder(dir);
  result<void> written = write_file(folder / "summary.txt", summary_text(analysis));
  if (written.ok()) written = write_file(folder / "stacks.folded", folded_stacks(analysis.flame));
  if (written.ok()) written = write_file(folder / "report.html", report_page(analysis));
  if (written.ok()) written = write_file(folder / profile_file, profile_text(analysis, last_written(folder)));
  return written;
}

result<std::string> write_reports(const std::string& dir, const analysis_options& options) {
  const result<report> analysis = read_reports(dir, options);
  if (!analysis) return analysis.error();
  const result<void> written = write_report_files(dir, analysis.value());
  if (!written) return written.error();
  return summary_text(analysis.value());
}

}  // namespace far::trace
