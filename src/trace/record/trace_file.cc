#include "trace/record/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/quiet_write.h"
#include "base/units.h"
#include "platform/clock.h"
#include "platform/local_memory.h"
#include "platform/own_descriptors.h"

namespace far::trace {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::uint64_t hash_of(std::span<const std::byte> bytes) noexcept {
  // FNV-1a over words and then a mix: stacks are short, and no input is hostile.
  std::uint64_t hash = 0xcbf29ce484222325;
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::uint64_t word = 0;
    const std::size_t part = std::min(sizeof word, bytes.size() - at);
    std::memcpy(&word, bytes.data() + at, part);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
    at += part;
  }
  return hash ^ bytes.size();
}

}  // namespace

number_table::number_table() : entries_(reinterpret_cast<entry*>(platform::map_local(capacity * sizeof(entry)))) {}
number_table::~number_table() {
  platform::unmap_local(reinterpret_cast<std::byte*>(entries_), capacity * sizeof(entry));
}

std::uint32_t number_table::number_of(std::uint64_t hash, bool* is_new) noexcept {
  *is_new = false;
  std::size_t place = hash % capacity;
  for (; entries_[place].number != 0; place = (place + 1) % capacity) {
    if (entries_[place].hash == hash) return static_cast<std::uint32_t>(entries_[place].number);
  }
  if (used_ >= capacity / 4 * 3) return 0;
  *is_new = true;
  entries_[place] = {hash, ++used_};
  return used_;
}

void number_table::clear() noexcept {
  platform::release_local_frames(reinterpret_cast<std::byte*>(entries_), capacity * sizeof(entry));
  used_ = 0;
}

trace_file::~trace_file() {
  flush();
  if (descriptor_ >= 0) {
    platform::disown_descriptor(descriptor_);
    close(descriptor_);
  }
  if (buffer_ != nullptr) platform::unmap_local(buffer_, buffer_bytes);
}

// Also called in the child of a fork, which needs a file of its own but keeps the buffer. The header is written at
// once, so that the file of a killed program can be read.
result<void> trace_file::open() {
  const int descriptor = create_file();
  if (descriptor < 0) {
    const int failure = errno;
    return error{"cannot make a trace file in '" + chosen_.directory + "' (" + std::strerror(failure) +
                     "); name a directory that you may write, by -o",
                 failure};
  }
  const lock_guard guard(lock_);
  descriptor_ = platform::own_descriptor(descriptor);
  if (buffer_ == nullptr) buffer_ = platform::map_local(buffer_bytes);
  const file_header header{.magic = magic,
                           .version = version,
                           .page_bytes = static_cast<std::uint32_t>(page_bytes),
                           .started_ns = platform::monotonic_clock().now_ns(),
                           .budget_bytes = chosen_.budget_bytes,
                           .pid = static_cast<std::uint32_t>(getpid()),
                           .sampled_one_in = chosen_.sampled_one_in};
  write_all(bytes_of(header));
  return {};
}

int trace_file::create_file() {
  constexpr int most_programs = 1000;  // that one process became, by exec
  const std::string start = chosen_.directory + "/misses-" + std::to_string(getpid());
  for (int i = 1; i <= most_programs; ++i) {
    const std::string path = start + (i == 1 ? "" : "-" + std::to_string(i)) + ".trace";
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}

std::uint32_t trace_file::stack(std::span<const std::uint64_t> addresses) noexcept {
  if (addresses.empty()) return 0;
  const bytes text = std::as_bytes(addresses);
  const lock_guard guard(lock_);
  bool is_new = false;
  const std::uint32_t number = stacks_.number_of(hash_of(text), &is_new);
  const stack_record record{number, static_cast<std::uint32_t>(addresses.size())};
  if (is_new) append(record_type::stack, bytes_of(record), text);
  return number;
}

std::uint32_t trace_file::python_stack(std::string_view lines) noexcept {
  if (lines.empty()) return 0;
  const bytes text = std::as_bytes(std::span(lines));
  const lock_guard guard(lock_);
  bool is_new = false;
  const std::uint32_t number = python_stacks_.number_of(hash_of(text), &is_new);
  if (is_new) append(record_type::python_stack, bytes_of(python_stack_record{number, 0}), text);
  return number;
}

void trace_file::add(const miss_record& record) noexcept {
  const lock_guard guard(lock_);
  append(record_type::miss, bytes_of(record));
}
void trace_file::add(const allocation_record& record) noexcept {
  const lock_guard guard(lock_);
  append(record_type::allocation, bytes_of(record));
}
void trace_file::add(const release_record& record) noexcept {
  const lock_guard guard(lock_);
  append(record_type::release, bytes_of(record));
}

void trace_file::add_hint_site(std::uint64_t calls, std::uint64_t misses, std::uint32_t line,
                               std::string_view name) noexcept {
  const hint_site_record record{calls, misses, line, 0};
  const lock_guard guard(lock_);
  append(record_type::hint_site, bytes_of(record), std::as_bytes(std::span(name)));
}

void trace_file::add_end(end_record record) noexcept {
  const lock_guard guard(lock_);
  record.lost_records = lost_records_;
  append(record_type::end, bytes_of(record));
  write_out();
}

// The far heap has tens of thousands of lines of its own, which name no file and tell nothing.
void trace_file::add_maps() noexcept {
  constexpr std::size_t text_bytes = std::size_t{128} << 10;
  const int maps = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return;
  std::byte* const memory = platform::try_map_local(2 * text_bytes);
  if (memory != nullptr) {
    char* const read_text = reinterpret_cast<char*>(memory);
    char* const kept = read_text + text_bytes;
    std::size_t held = 0;
    std::size_t kept_bytes = 0;
    ssize_t more = 0;
    while ((more = read(maps, read_text + held, text_bytes - held)) > 0) {
      std::string_view text(read_text, held + static_cast<std::size_t>(more));
      for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
        const std::string_view line = text.substr(0, end + 1);
        if (line.find('/') == std::string_view::npos && line.find('[') == std::string_view::npos) continue;
        if (line.size() > text_bytes - kept_bytes) continue;
        std::memcpy(kept + kept_bytes, line.data(), line.size());
        kept_bytes += line.size();
      }
      held = text.size();
      std::memmove(read_text, text.data(), held);
    }
    const lock_guard guard(lock_);
    append(record_type::maps, std::as_bytes(std::span(kept, kept_bytes)));
  }
  if (memory != nullptr) platform::unmap_local(memory, 2 * text_bytes);
  close(maps);
}

void trace_file::flush() noexcept {
  const lock_guard guard(lock_);
  write_out();
}

result<void> trace_file::resume_in_child() {
  lock_.open_in_child();
  lock_.assert_held();  // the child has one thread
  // The parent's file stays the parent's, and the parent writes its buffer itself.
  platform::disown_descriptor(descriptor_);
  close(descriptor_);
  descriptor_ = -1;
  used_ = 0;
  good_bytes_ = 0;
  buffered_records_ = 0;
  lost_records_ = 0;
  stopped_ = false;
  stacks_.clear();
  python_stacks_.clear();
  const result<void> opened = open();
  stopped_ = !opened.ok();
  return opened;
}

void trace_file::append(record_type type, bytes head, bytes tail) noexcept {
  const std::size_t payload = head.size() + tail.size();
  const std::size_t whole = sizeof(record_header) + round_up(payload, 8);
  if (whole > buffer_bytes - used_) write_out();
  if (stopped_ || buffer_ == nullptr || whole > buffer_bytes) {
    ++lost_records_;
    return;
  }
  std::byte* at = buffer_ + used_;
  std::memset(at + whole - 8, 0, 8);
  const record_header header{type, static_cast<std::uint32_t>(payload)};
  std::memcpy(at, &header, sizeof header);
  at += sizeof header;
  std::memcpy(at, head.data(), head.size());
  if (!tail.empty()) std::memcpy(at + head.size(), tail.data(), tail.size());
  used_ += whole;
  ++buffered_records_;
}

void trace_file::write_out() noexcept {
  if (used_ == 0) return;
  write_all({buffer_, used_});
  used_ = 0;
  buffered_records_ = 0;
}

// After a failure the file is cut back to its last whole write, so that it can still be read, and nothing more is
// written. `errno` is kept because this runs inside calls of the program.
void trace_file::write_all(bytes from) noexcept {
  if (stopped_ || descriptor_ < 0) {
    lost_records_ += buffered_records_;
    return;
  }
  const int saved_errno = errno;
  const std::size_t all = from.size();
  while (!from.empty()) {
    const ssize_t written = write_quietly(descriptor_, from.data(), from.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    from = from.subspan(static_cast<std::size_t>(written));
  }
  if (from.empty()) {
    good_bytes_ += all;
  } else {
    stopped_ = true;
    lost_records_ += buffered_records_;
    log_line(log_level::warning, "the trace in '%s' ends here: it cannot be written (%s); make room and trace again",
             chosen_.directory.c_str(), std::strerror(errno));
    static_cast<void>(ftruncate(descriptor_, static_cast<off_t>(good_bytes_)) == 0);
  }
  errno = saved_errno;
}

}  // namespace far::trace
