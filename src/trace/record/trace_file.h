// A file of the form in trace/format.h while it is being written, one for each process. For signal handlers: takes a
// spin lock for the time of a copy, sometimes of a write(2); allocates nothing; uses local memory alone.
//
// Requires: callers have signals blocked whose handlers may come here, and touch no far memory meanwhile.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/spin_lock.h"
#include "trace/format.h"

namespace far::trace {

// Numbers of texts that were seen before, by their hash. In local memory.
class number_table {
 public:
  number_table();
  ~number_table();
  number_table(const number_table&) = delete;
  number_table& operator=(const number_table&) = delete;

  // The number of what has this hash; it is new if `*is_new`. 0 when the table is full.
  [[nodiscard]] std::uint32_t number_of(std::uint64_t hash, bool* is_new) noexcept;
  void clear() noexcept;

  static constexpr std::size_t capacity = std::size_t{1} << 20;

 private:
  struct entry {
    std::uint64_t hash;
    std::uint64_t number;
  };
  entry* entries_;
  std::uint32_t used_ = 0;
};

class trace_file {
 public:
  struct options {
    std::string directory;  // absolute
    std::uint64_t budget_bytes = 0;
    std::uint32_t sampled_one_in = 1;
  };

  explicit trace_file(options chosen) : chosen_(std::move(chosen)) {}
  ~trace_file();
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;

  // Makes the file of this process in the directory: misses-PID.trace, or misses-PID-2.trace where a program before
  // this one had the same process; mode 0600. Errors name it.
  [[nodiscard]] result<void> open();

  // The number of a stack, which is written when it is new.
  [[nodiscard]] std::uint32_t stack(std::span<const std::uint64_t> addresses) noexcept;
  [[nodiscard]] std::uint32_t python_stack(std::string_view lines) noexcept;

  void add(const miss_record& record) noexcept;
  void add(const allocation_record& record) noexcept;
  void add(const release_record& record) noexcept;
  void add_hint_site(std::uint64_t calls, std::uint64_t misses, std::uint32_t line, std::string_view name) noexcept;
  void add_maps() noexcept;  // of what is mapped from files now
  void add_end(end_record record) noexcept;
  void flush() noexcept;

  // Around fork(2), on the forking thread. The child goes on with a file of its own, or with none if it cannot be made.
  void lock_for_fork() noexcept FAR_ACQUIRE(lock_) { lock_.lock(); }
  void unlock_after_fork() noexcept FAR_RELEASE(lock_) { lock_.unlock(); }
  [[nodiscard]] result<void> resume_in_child();

 private:
  using bytes = std::span<const std::byte>;
  static constexpr std::size_t buffer_bytes = std::size_t{128} << 10;

  [[nodiscard]] int create_file();
  void append(record_type type, bytes head, bytes tail = {}) noexcept FAR_REQUIRES(lock_);
  void write_out() noexcept FAR_REQUIRES(lock_);
  void write_all(bytes from) noexcept FAR_REQUIRES(lock_);

  options chosen_;
  spin_lock lock_;
  int descriptor_ FAR_GUARDED_BY(lock_) = -1;
  std::byte* buffer_ FAR_GUARDED_BY(lock_) = nullptr;
  std::size_t used_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t good_bytes_ FAR_GUARDED_BY(lock_) = 0;  // of the file: whole records
  std::uint64_t buffered_records_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t lost_records_ FAR_GUARDED_BY(lock_) = 0;
  bool stopped_ FAR_GUARDED_BY(lock_) = false;  // a write failed; the file ends with its last whole record
  number_table stacks_ FAR_GUARDED_BY(lock_);
  number_table python_stacks_ FAR_GUARDED_BY(lock_);
};

}  // namespace far::trace
