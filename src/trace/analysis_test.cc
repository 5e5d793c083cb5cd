#include "trace/analysis.h"

#include <gtest/gtest.h>

#include "tests/support/trace_writer.h"
#include "trace/reader.h"

namespace far::trace {
namespace {

constexpr std::uint64_t page = 4096;

// Modules that are no files: lines are then "NAME+OFFSET", which is enough to tell them apart.
constexpr const char* maps =
    "100000-200000 r-xp 00000000 00:01 1 /opt/program\n"
    "200000-300000 r-xp 00000000 00:01 2 /lib/x86_64-linux-gnu/libc.so.6\n"
    "300000-400000 r-xp 00000000 00:01 3 /usr/bin/python3.11\n"
    "400000-500000 r-xp 00000000 00:01 4 /opt/numbers.so\n";

report analyze(const test_writer& writer, analysis_options options = {}) {
  analyzer all(std::move(options));
  const result<trace> read = parse_trace(writer.bytes(), "t");
  EXPECT_TRUE(read.ok());
  all.add(read.value());
  return all.finish();
}

test_writer with_maps(std::uint32_t pid = 100) {
  test_writer writer(pid);
  writer.maps(maps);
  return writer;
}

TEST(analysis, a_miss_belongs_to_the_innermost_line_of_the_program) {
  test_writer writer = with_maps();
  // memcpy in the C library, called from 0x100500.
  writer.miss(page, writer.stack({0x200100, 0x100501, 0x100900}));
  const report analysis = analyze(writer);
  ASSERT_EQ(analysis.lines.size(), 1u);
  EXPECT_EQ(analysis.lines[0].function, "program+0x500");  // the return address less one
  ASSERT_EQ(analysis.missing.size(), 1u);                  // not the C library
  EXPECT_EQ(analysis.missing[0].module, "/opt/program");
  analysis_options options;
  options.library_modules = {"program"};
  EXPECT_EQ(analyze(writer, options).lines[0].function, "libc.so.6+0x100");
}

TEST(analysis, a_stack_of_libraries_alone_or_none_still_counts) {
  test_writer writer = with_maps();
  writer.miss(page, writer.stack({0x200100, 0x200201}));
  writer.miss(page, 0);
  writer.miss(page, 77);  // lost
  const report analysis = analyze(writer);
  ASSERT_EQ(analysis.lines.size(), 2u);
  EXPECT_EQ(analysis.lines[0].function, "[no stack]");
  EXPECT_EQ(analysis.lines[0].misses, 2u);
  EXPECT_EQ(analysis.lines[1].function, "libc.so.6+0x100");
}

TEST(analysis, the_fewest_lines_that_explain_95_percent) {
  test_writer writer = with_maps();
  const unsigned counts[] = {3, 50, 2, 40, 5};
  for (unsigned i = 0; i < 5; ++i) {
    const std::uint32_t stack = writer.stack({0x100000 + 16 * i});
    for (unsigned j = 0; j < counts[i]; ++j) writer.miss(page * j, stack);
  }
  const report analysis = analyze(writer);
  EXPECT_EQ(analysis.misses, 100u);
  EXPECT_EQ(analysis.explaining, 3u);  // 50 + 40 + 5
  EXPECT_EQ(analysis.lines[0].misses, 50u);
  EXPECT_EQ(analysis.lines[2].misses, 5u);
  EXPECT_DOUBLE_EQ(analysis.lines[2].cumulative_share, 0.95);
  EXPECT_DOUBLE_EQ(analysis.lines[4].cumulative_share, 1.0);
  EXPECT_EQ(analyze(writer, {.explained_share = 0.951}).explaining, 4u);
}

TEST(analysis, kinds_threads_and_the_hint) {
  test_writer writer = with_maps();
  const std::uint32_t stack = writer.stack({0x100010});
  for (unsigned i = 0; i < 30; ++i) {
    const miss_kind kind = i < 10 ? miss_kind::read : i < 15 ? miss_kind::write : miss_kind::protection;
    writer.miss(page * (1000 + i), stack, 1 + i / 15, kind);
  }
  const line_report line = analyze(writer).lines.at(0);
  EXPECT_EQ(line.reads, 10u);
  EXPECT_EQ(line.writes, 5u);
  EXPECT_EQ(line.protections, 15u);
  EXPECT_EQ(line.threads, 2u);
  EXPECT_EQ(line.seen.kind, pattern_kind::forward);
  EXPECT_EQ(line.hint, "far_hint(ptr, .mutate = true, .read_ahead = 8, .sequential = true);");
}

TEST(analysis, first_touches_are_counted_beside_the_misses) {
  test_writer writer = with_maps();
  const std::uint32_t fills = writer.stack({0x100010});
  const std::uint32_t reads = writer.stack({0x100020});
  for (unsigned i = 0; i < 100; ++i) writer.miss(page * i, fills, 1, miss_kind::first_touch);
  for (unsigned i = 0; i < 10; ++i) {
    writer.miss(page * i * 70, reads, 2, miss_kind::first_touch);
    writer.miss(page * i, reads);
  }
  const report analysis = analyze(writer);
  EXPECT_EQ(analysis.misses, 10u);
  EXPECT_EQ(analysis.first_touches, 110u);
  EXPECT_EQ(analysis.explaining, 1u);
  ASSERT_EQ(analysis.lines.size(), 1u);
  EXPECT_EQ(analysis.lines[0].function, "program+0x20");
  EXPECT_EQ(analysis.lines[0].misses, 10u);
  EXPECT_EQ(analysis.lines[0].first_touches, 10u);
  EXPECT_EQ(analysis.lines[0].share, 1.0);
  EXPECT_EQ(analysis.lines[0].threads, 1u);
  EXPECT_EQ(analysis.lines[0].seen.distances, 9u);
  EXPECT_EQ(folded_stacks(analysis.flame), "[first touches];[program] 110\n[program] 10\n");
}

TEST(analysis, first_touches_alone_need_no_line) {
  test_writer writer = with_maps();
  writer.miss(page, writer.stack({0x100010}), 1, miss_kind::first_touch);
  const report analysis = analyze(writer);
  EXPECT_EQ(analysis.misses, 0u);
  EXPECT_EQ(analysis.explaining, 0u);
  EXPECT_TRUE(analysis.lines.empty());
}

TEST(analysis, allocations_are_those_alive_at_the_miss_and_tell_walks_apart) {
  test_writer writer = with_maps();
  const std::uint32_t first = writer.stack({0x200000, 0x100a01});
  const std::uint32_t second = writer.stack({0x200000, 0x100b01});
  const std::uint32_t stack = writer.stack({0x100010});
  const std::uint64_t left = 1 << 24;
  const std::uint64_t right = 1 << 26;
  writer.allocation(left, 64 * page, first);
  writer.allocation(right, 64 * page, second);
  for (unsigned i = 0; i < 20; ++i) {
    writer.miss(left + i * page, stack);
    writer.miss(right + i * page, stack);
  }
  writer.release(left);
  writer.allocation(left, 64 * page, second);
  writer.miss(left, stack);
  writer.release(right);
  writer.miss(right, stack);  // in no allocation
  const line_report line = analyze(writer).lines.at(0);
  EXPECT_EQ(line.seen.kind, pattern_kind::forward);
  ASSERT_EQ(line.allocations.size(), 2u);
  EXPECT_EQ(line.allocations[0].place, "program+0xb00");
  EXPECT_EQ(line.allocations[0].misses, 21u);
  EXPECT_EQ(line.allocations[1].place, "program+0xa00");
  EXPECT_EQ(line.allocations[1].misses, 20u);
}

TEST(analysis, in_an_interpreter_the_python_line_is_the_line) {
  test_writer writer = with_maps();
  const std::uint32_t python = writer.python_stack("job.py:12 load\njob.py:40 <module>\n");
  writer.miss(page, writer.stack({0x300100, 0x300200}), 1, miss_kind::read, python);
  writer.miss(page, writer.stack({0x400100, 0x300200}), 1, miss_kind::read, python);
  writer.miss(2 * page, 2, 1, miss_kind::read, python);
  const report analysis = analyze(writer);
  ASSERT_EQ(analysis.lines.size(), 2u);
  EXPECT_EQ(analysis.lines[0].function, "numbers.so+0x100");
  EXPECT_EQ(analysis.lines[0].python, "job.py:12");
  EXPECT_EQ(analysis.lines[1].place(), "job.py:12");
  EXPECT_EQ(analysis.lines[1].function, "load");
  EXPECT_EQ(folded_stacks(analysis.flame),
            "<module> (Python);load (Python) 1\n<module> (Python);load (Python);[numbers.so] 2\n");
}

TEST(analysis, hints_that_never_help_and_misses_beside_hints) {
  test_writer writer = with_maps();
  const std::uint32_t python = writer.python_stack("/src/job.py:12 load\n");
  writer.miss(page, writer.stack({0x300100}), 1, miss_kind::read, python);
  writer.hint_site("helps.cc", 3, 100, 10);
  writer.hint_site("idle.cc", 4, 0, 0);
  writer.hint_site("useless.cc", 5, 100, 0);
  writer.hint_site("job.py", 10, 1, 1);
  writer.end(1, 9);
  const report analysis = analyze(writer);
  ASSERT_EQ(analysis.hint_sites.size(), 4u);
  EXPECT_EQ(analysis.hint_sites[0].file, "useless.cc");
  EXPECT_TRUE(never_helps(analysis.hint_sites[0]));
  EXPECT_FALSE(never_helps(analysis.hint_sites[1]));
  EXPECT_FALSE(never_helps(analysis.hint_sites[3]));
  EXPECT_TRUE(analysis.lines[0].has_hint);
  EXPECT_EQ(analysis.misses_near_hints, 1u);
  EXPECT_EQ(analysis.hinted_misses, 9u);
}

TEST(analysis, a_line_without_a_file_has_no_hint_beside_it) {
  test_writer writer = with_maps();
  writer.miss(page, writer.stack({0x100010}));
  writer.hint_site("", 1, 1, 1);
  EXPECT_FALSE(analyze(writer).lines.at(0).has_hint);
}

TEST(analysis, processes_are_put_together) {
  analyzer all;
  for (const std::uint32_t pid : {1, 2}) {
    test_writer writer = with_maps(pid);
    const std::uint32_t stack = writer.stack({0x100010});
    for (unsigned i = 0; i < 5; ++i) writer.miss((1000 + i) * page, stack);
    all.add(parse_trace(writer.bytes(), "t").value());
  }
  const report analysis = all.finish();
  ASSERT_EQ(analysis.lines.size(), 1u);
  EXPECT_EQ(analysis.lines[0].misses, 10u);
  EXPECT_EQ(analysis.lines[0].threads, 2u);
  EXPECT_EQ(analysis.lines[0].seen.fit, 1.0);  // the second process's walk is another one
  ASSERT_EQ(analysis.processes.size(), 2u);
  EXPECT_EQ(analysis.processes[1].pid, 2u);
  EXPECT_FALSE(analysis.processes[1].ended);
}

TEST(analysis, every_miss_is_in_the_timeline_and_in_the_flame_graph) {
  test_writer writer = with_maps();
  const std::uint32_t stack = writer.stack({0x100010, 0x100020});
  for (unsigned i = 0; i < 1234; ++i) writer.miss(i * page, stack, 1, static_cast<miss_kind>(i % miss_kinds));
  const report analysis = analyze(writer);
  std::uint64_t sum = 0;
  for (const auto& counts : analysis.times.counts) {
    for (const std::uint64_t count : counts) sum += count;
  }
  EXPECT_EQ(sum, 1234u);
  EXPECT_EQ(analysis.flame.misses, 1234u);
  EXPECT_LE(analysis.times.counts[0].size(), 200u);
}

TEST(analysis, an_empty_trace) {
  const report analysis = analyze(test_writer());
  EXPECT_EQ(analysis.misses, 0u);
  EXPECT_EQ(analysis.explaining, 0u);
  EXPECT_TRUE(analysis.lines.empty());
}

}  // namespace
}  // namespace far::trace
