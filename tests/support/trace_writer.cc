#include "tests/support/trace_writer.h"

#include <fstream>

#include "base/check.h"

namespace far::trace {
namespace {

constexpr std::uint64_t step_ns = 1000;

template <typename T>
std::string as_bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

test_writer::test_writer(std::uint32_t pid) {
  bytes_ = as_bytes(file_header{magic, version, 4096, now_ns_, 64 << 20, pid, 1});
}

void test_writer::record(record_type type, std::string_view payload) {
  bytes_ += as_bytes(record_header{type, static_cast<std::uint32_t>(payload.size())});
  bytes_ += payload;
  while (bytes_.size() % 8 != 0) bytes_ += '\0';
}

std::uint32_t test_writer::stack(const std::vector<std::uint64_t>& addresses) {
  std::string payload = as_bytes(stack_record{++stacks_, static_cast<std::uint32_t>(addresses.size())});
  for (const std::uint64_t address : addresses) payload += as_bytes(address);
  record(record_type::stack, payload);
  return stacks_;
}

std::uint32_t test_writer::python_stack(std::string_view lines) {
  record(record_type::python_stack, as_bytes(python_stack_record{++python_stacks_, 0}) + std::string(lines));
  return python_stacks_;
}

void test_writer::miss(std::uint64_t address, std::uint32_t stack, std::uint32_t thread, miss_kind kind,
                       std::uint32_t python_stack) {
  now_ns_ += step_ns;
  record(record_type::miss, as_bytes(miss_record{now_ns_, address, thread, stack, python_stack, kind, 0, 0}));
}

void test_writer::allocation(std::uint64_t address, std::uint64_t bytes, std::uint32_t stack) {
  now_ns_ += step_ns;
  record(record_type::allocation, as_bytes(allocation_record{now_ns_, address, bytes, 1, stack}));
}

void test_writer::release(std::uint64_t address) {
  now_ns_ += step_ns;
  record(record_type::release, as_bytes(release_record{now_ns_, address}));
}

void test_writer::maps(std::string_view text) {
  record(record_type::maps, text);
}

void test_writer::hint_site(std::string_view file, unsigned line, std::uint64_t calls, std::uint64_t misses) {
  record(record_type::hint_site, as_bytes(hint_site_record{calls, misses, line, 0}) + std::string(file));
}

void test_writer::end(std::uint64_t misses, std::uint64_t hinted_misses) {
  record(record_type::end, as_bytes(end_record{now_ns_, misses, hinted_misses, misses + hinted_misses, 0, 0}));
}

void test_writer::save(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  file << bytes_;
  file.flush();
  FAR_CHECK(file.good(), "a trace for a test could not be written");
}

}  // namespace far::trace
