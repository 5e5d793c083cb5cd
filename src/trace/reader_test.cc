#include "trace/reader.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>

#include "tests/support/trace_writer.h"

namespace far::trace {
namespace {

test_writer one_of_each() {
  test_writer writer(42);
  const std::uint32_t stack = writer.stack({0x1000, 0x2000, 0x3000});
  const std::uint32_t python = writer.python_stack("my dir/job.py:12 load\n/a:b.py:7 <module>\n");
  writer.maps("00400000-00500000 r-xp 00000000 00:01 5 /bin/x\n");
  writer.allocation(0x10000, 65536, stack);
  writer.miss(0x11000, stack, 7, miss_kind::protection, python);
  writer.release(0x10000);
  writer.hint_site("hot.cc", 99, 10, 3);
  writer.end(5, 6);
  return writer;
}

TEST(reader, reads_every_kind_of_record) {
  const result<trace> read = parse_trace(one_of_each().bytes(), "t");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const trace& got = read.value();
  EXPECT_FALSE(got.cut_short);
  EXPECT_EQ(got.header.pid, 42u);
  EXPECT_EQ(got.stacks.at(1), (std::vector<std::uint64_t>{0x1000, 0x2000, 0x3000}));
  const std::vector<python_frame>& python = got.python_stacks.at(1);
  ASSERT_EQ(python.size(), 2u);
  EXPECT_EQ(python[0].file, "my dir/job.py");
  EXPECT_EQ(python[0].line, 12u);
  EXPECT_EQ(python[0].function, "load");
  EXPECT_EQ(python[1].file, "/a:b.py");
  ASSERT_EQ(got.misses.size(), 1u);
  EXPECT_EQ(got.misses[0].address, 0x11000u);
  EXPECT_EQ(got.misses[0].kind, miss_kind::protection);
  EXPECT_EQ(got.misses[0].thread, 7u);
  EXPECT_EQ(got.allocations.at(0).bytes, 65536u);
  EXPECT_EQ(got.releases.at(0).address, 0x10000u);
  EXPECT_EQ(got.maps.size(), 1u);
  EXPECT_EQ(got.hint_sites.at(0).file, "hot.cc");
  EXPECT_EQ(got.hint_sites.at(0).line, 99u);
  ASSERT_TRUE(got.end.has_value());
  EXPECT_EQ(got.end->hinted_misses, 6u);
}

TEST(reader, takes_what_stands_before_a_cut_at_every_length) {
  const std::string whole = one_of_each().bytes();
  std::size_t most = 0;
  for (std::size_t length = sizeof(file_header); length < whole.size(); ++length) {
    const result<trace> read = parse_trace(whole.substr(0, length), "t");
    ASSERT_TRUE(read.ok()) << length << ": " << read.error().message;
    EXPECT_FALSE(read.value().end.has_value() && length < whole.size() - 8) << length;
    const std::size_t records = read.value().misses.size() + read.value().allocations.size();
    EXPECT_GE(records, most);
    most = records;
  }
  EXPECT_EQ(most, 2u);
  EXPECT_TRUE(parse_trace(whole.substr(0, whole.size() - 9), "t").value().cut_short);
}

TEST(reader, a_tail_of_zeros_is_a_cut) {
  const result<trace> read = parse_trace(one_of_each().bytes() + std::string(4096, '\0'), "t");
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read.value().cut_short);
  EXPECT_EQ(read.value().misses.size(), 1u);
}

TEST(reader, skips_records_of_unknown_types) {
  test_writer writer;
  writer.record(static_cast<record_type>(1000), "whatever");
  writer.end(1, 2);
  const result<trace> read = parse_trace(writer.bytes(), "t");
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read.value().end.has_value());
}

TEST(reader, names_the_file_and_the_offset_of_damage) {
  test_writer writer;
  const std::size_t offset = writer.bytes().size();
  writer.record(record_type::miss, "short");
  const result<trace> read = parse_trace(writer.bytes(), "some/misses-1.trace");
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("'some/misses-1.trace'"), std::string::npos) << read.error().message;
  EXPECT_NE(read.error().message.find("offset " + std::to_string(offset)), std::string::npos);
}

TEST(reader, refuses_a_miss_of_an_unknown_kind) {
  test_writer known;
  known.miss(0x1000, 0, 1, miss_kind::first_touch);
  ASSERT_TRUE(parse_trace(known.bytes(), "t").ok());
  EXPECT_EQ(parse_trace(known.bytes(), "t").value().misses.at(0).kind, miss_kind::first_touch);
  test_writer unknown;
  unknown.miss(0x1000, 0, 1, static_cast<miss_kind>(miss_kinds));
  EXPECT_FALSE(parse_trace(unknown.bytes(), "t").ok());
}

TEST(reader, refuses_a_stack_deeper_than_its_record) {
  test_writer writer;
  const stack_record lying{1, 0xffffffff};
  writer.record(record_type::stack, {reinterpret_cast<const char*>(&lying), sizeof(lying)});
  EXPECT_FALSE(parse_trace(writer.bytes(), "t").ok());
}

TEST(reader, refuses_stacks_deeper_than_any_that_is_recorded) {
  test_writer deepest;
  deepest.stack(std::vector<std::uint64_t>(deepest_stack, 1));
  std::string lines;
  for (unsigned i = 0; i < deepest_stack; ++i) lines += "a.py:1 f\n";
  deepest.python_stack(lines);
  EXPECT_TRUE(parse_trace(deepest.bytes(), "t").ok());
  test_writer native;
  native.stack(std::vector<std::uint64_t>(deepest_stack + 1, 1));
  EXPECT_FALSE(parse_trace(native.bytes(), "t").ok());
  test_writer python;
  python.python_stack(lines + "a.py:1 f\n");
  EXPECT_FALSE(parse_trace(python.bytes(), "t").ok());
}

TEST(reader, refuses_pages_of_an_impossible_size) {
  for (const std::uint32_t page_bytes : {0u, 1u, 2048u, 4097u}) {
    std::string bytes = test_writer().bytes();
    bytes.replace(offsetof(file_header, page_bytes), sizeof page_bytes, reinterpret_cast<const char*>(&page_bytes),
                  sizeof page_bytes);
    EXPECT_FALSE(parse_trace(bytes, "t").ok()) << page_bytes;
  }
}

TEST(reader, refuses_what_is_not_a_trace) {
  EXPECT_FALSE(parse_trace("", "t").ok());
  std::string bytes = test_writer().bytes();
  bytes[0] = 'X';
  EXPECT_NE(parse_trace(bytes, "t").error().message.find("not a trace"), std::string::npos);
  bytes = test_writer().bytes();
  bytes[8] = 9;
  EXPECT_NE(parse_trace(bytes, "t").error().message.find("version 9"), std::string::npos);
  EXPECT_FALSE(read_trace("no/such/file").ok());
  EXPECT_EQ(read_trace(".").error().code, EISDIR);
}

}  // namespace
}  // namespace far::trace
