// The reader of trace files, and the reports of them. A file may be damaged, or made by somebody else. Addresses stay
// unknown, for the symbolizer would open the files that the input names.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/units.h"
#include "fuzz/fuzz_target.h"
#include "tests/support/trace_writer.h"
#include "trace/access_pattern.h"
#include "trace/analysis.h"
#include "trace/live_allocations.h"
#include "trace/memory_maps.h"
#include "trace/reader.h"
#include "trace/reports.h"

namespace far::fuzz {

namespace {

using namespace far::trace;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void check_trace(const far::trace::trace& read) {
  FUZZ_EXPECT(read.header.page_bytes >= page_bytes);
  for (const auto& [number, addresses] : read.stacks) FUZZ_EXPECT(number != 0 && addresses.size() <= deepest_stack);
  for (const auto& [number, frames] : read.python_stacks) FUZZ_EXPECT(number != 0 && frames.size() <= deepest_stack);
  for (const miss_record& miss : read.misses) FUZZ_EXPECT(miss.kind <= miss_kind::first_touch);
}

void check_pattern(const pattern& seen) {
  FUZZ_EXPECT(seen.fit >= 0 && seen.fit <= 1);
  FUZZ_EXPECT((seen.kind == pattern_kind::stride) == (seen.stride != 0));
  FUZZ_EXPECT(seen.kind == pattern_kind::unknown || seen.distances > 0);
}

void check_lines(const report& analysis) {
  std::uint64_t sum = 0;
  double reached = 0;
  for (const line_report& line : analysis.lines) {
    FUZZ_EXPECT(line.misses > 0 && line.misses == line.reads + line.writes + line.protections);
    FUZZ_EXPECT(line.in_kernel <= line.misses && line.threads > 0 && line.first_touches <= analysis.first_touches);
    FUZZ_EXPECT(line.cumulative_share >= reached && line.cumulative_share <= 1);
    FUZZ_EXPECT(!line.has_hint || !line.file.empty());
    check_pattern(line.seen);
    sum += line.misses;
    reached = line.cumulative_share;
  }
  FUZZ_EXPECT(sum == analysis.misses && analysis.flame.misses == analysis.misses + analysis.first_touches);
  FUZZ_EXPECT(analysis.explaining <= analysis.lines.size() && (analysis.explaining > 0) == (analysis.misses > 0));
}

void check_report(const report& analysis, std::size_t misses) {
  FUZZ_EXPECT(analysis.misses + analysis.first_touches == misses);
  check_lines(analysis);
  std::uint64_t in_time = 0;
  for (const std::vector<std::uint64_t>& counts : analysis.times.counts) {
    for (const std::uint64_t count : counts) in_time += count;
  }
  FUZZ_EXPECT(in_time == misses);
  FUZZ_EXPECT(!summary_text(analysis).empty() && !report_json(analysis).empty());
  FUZZ_EXPECT(folded_stacks(analysis.flame).empty() == (misses == 0));
}

void try_file(std::string_view bytes) {
  result<far::trace::trace> read = parse_trace(bytes, "input");
  if (!read) return FUZZ_EXPECT(!read.error().message.empty());
  far::trace::trace& found = read.value();
  check_trace(found);
  found.maps.clear();
  analyzer one;
  one.add(found);
  check_report(one.finish(), found.misses.size());
  analyzer both;
  both.add(found);
  both.add(found);
  check_report(both.finish(), 2 * found.misses.size());
}

// The same behind a header that is right, with records that are as long as they say.
void try_records(choices from) {
  test_writer writer;
  while (!from.empty()) {
    const auto type = static_cast<record_type>(from.number<std::uint8_t>() % 10);
    writer.record(type, text_of(from.take(from.number<std::uint8_t>())));
  }
  try_file(writer.bytes());
}

void try_maps(std::string_view text) {
  const std::size_t cut = text.size() / 2;
  const std::vector<module_range> modules =
      parse_maps({std::string(text.substr(0, cut)), std::string(text.substr(cut)), std::string(text)});
  std::uint64_t end = 0;
  for (const module_range& one : modules) {
    FUZZ_EXPECT(one.first >= end && one.end > one.first && !one.path.empty());
    FUZZ_EXPECT(find_module(modules, one.first) == &one && find_module(modules, one.end - 1) == &one);
    FUZZ_EXPECT(find_module(modules, one.end) != &one);
    end = one.end;
  }
}

// Beside a list that is searched from end to end.
void try_live_allocations(choices from) {
  live_allocations live;
  std::map<std::uint64_t, std::pair<std::uint64_t, std::size_t>> all;  // start -> bytes, number
  for (std::size_t number = 0; !from.empty() && number < 200; ++number) {
    const auto choice = from.number<std::uint8_t>();
    const std::uint64_t address = from.number<std::uint8_t>();
    if (choice % 2 == 0) {
      const std::uint64_t bytes = from.number<std::uint8_t>();
      live.add(address, bytes, number);
      all[address] = {bytes, number};
    } else {
      live.remove(address);
      all.erase(address);
    }
    const std::uint64_t asked = from.number<std::uint8_t>();
    std::size_t expected = live_allocations::none;
    for (const auto& [start, one] : all) {
      if (start <= asked && asked < start + one.first) expected = one.second;
    }
    FUZZ_EXPECT(live.find(asked) == expected);
  }
}

pattern_kind mirrored(pattern_kind kind) {
  if (kind == pattern_kind::forward) return pattern_kind::backward;
  return kind == pattern_kind::backward ? pattern_kind::forward : kind;
}

// A walk in a mirror is the same walk, backward.
void try_patterns(choices from) {
  constexpr std::uint64_t pages = std::uint64_t{1} << (64 - page_shift);
  pattern_finder finder;
  pattern_finder mirror;
  std::uint64_t page = 0;
  while (!from.empty()) {
    const auto walk = from.number<std::uint8_t>();
    const auto step = from.number<std::int8_t>();
    // Near the page before, as a rule.
    page = (step == -128 ? from.number<std::uint64_t>() : page + static_cast<std::uint64_t>(step)) % pages;
    finder.add(walk % 4, page);
    mirror.add(walk % 4, pages - page);
  }
  const pattern seen = finder.find();
  const pattern turned = mirror.find();
  check_pattern(seen);
  FUZZ_EXPECT(turned.kind == mirrored(seen.kind) && turned.stride == -seen.stride);
  FUZZ_EXPECT(turned.distances == seen.distances && turned.typical_run == seen.typical_run);
  FUZZ_EXPECT(hint_text(seen, true).size() >= hint_text(seen, false).size() && !pattern_text(seen).empty());
}

byte_string bytes_of(std::string_view text) {
  return recipe().text(text).bytes();
}

test_writer one_of_each() {
  test_writer writer(42);
  const std::uint32_t stack = writer.stack({0x1000, 0x2000, 0x3000});
  const std::uint32_t other = writer.stack({0x4000});
  const std::uint32_t python = writer.python_stack("my dir/job.py:12 load\n/a:b.py:7 <module>\n");
  writer.maps("00400000-00500000 r-xp 00000000 00:01 5 /bin/x\n");
  writer.allocation(0x10000, 65536, stack);
  for (unsigned i = 0; i < 8; ++i)
    writer.miss(0x10000 + 0x1000 * i, stack, 7, static_cast<miss_kind>(i % miss_kinds), python);
  writer.miss(0x20000, other);
  writer.release(0x10000);
  writer.hint_site("job.py", 11, 10, 0);
  writer.end(9, 6);
  return writer;
}

// As try_records() reads it.
byte_string as_choices(std::string_view file) {
  recipe built;
  file.remove_prefix(sizeof(file_header));
  while (!file.empty()) {
    record_header record{};
    std::memcpy(&record, file.data(), sizeof(record));
    built.number(static_cast<std::uint8_t>(record.type)).number(static_cast<std::uint8_t>(record.payload_bytes));
    built.text(file.substr(sizeof(record), record.payload_bytes));
    file.remove_prefix(sizeof(record) + round_up(record.payload_bytes, 8));
  }
  return built.bytes();
}

}  // namespace

std::vector<byte_string> seeds() {
  const test_writer writer = one_of_each();
  recipe walk;
  for (unsigned i = 0; i < 12; ++i) walk.number(std::uint8_t{1}).number(static_cast<std::int8_t>(i < 6 ? 1 : -7));
  return {bytes_of(writer.bytes()), as_choices(writer.bytes()), walk.bytes(),
          bytes_of("00400000-00401000 r--p 00000000 fe:01 17 /opt/my app/bin\n"
                   "00401000-00480000 r-xp 00001000 fe:01 17 /opt/my app/bin\n"
                   "7f0000010000-7f0000020000 r-xp 00000000 fe:01 19 /lib/gone.so (deleted)\n"
                   "7fff00000000-7fff00002000 r-xp 00000000 00:00 0 [vdso]\n")};
}

}  // namespace far::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  using namespace far::fuzz;
  const tight_copy input(std::as_bytes(std::span(data, bytes)));
  try_file(text_of(input.all()));
  try_records(choices(input.all()));
  try_maps(text_of(input.all()));
  try_live_allocations(choices(input.all()));
  try_patterns(choices(input.all()));
  return 0;
}
