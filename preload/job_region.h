// The shared state of a job's processes: a small file in memory, mapped by each, with the budget of all and one slot
// for each process. docs/decisions/0023-a-process-tree-is-one-job.md.
//
// Locks, not process numbers, tell which processes have a share: a process holds a POSIX record lock on the byte of its
// slot for as long as it lives or until it calls exec, and the kernel releases it however the process ends, in any
// namespace. Between its release at exec and the new program's joining, /proc tells that the process still runs, so
// that nobody removes the file meanwhile. Byte 0 is the lock of the job: its holder decides. A process writes its own
// slot, except for its state and its granted budget, which the holder of the job's lock writes.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/zmem/zmem_backend.h"
#include "base/result.h"
#include "engine/statistics.h"
#include "preload/process_usage.h"

namespace far::preload {

using shared_number = std::atomic<std::uint64_t>;
static_assert(shared_number::is_always_lock_free, "numbers are shared between processes");

inline constexpr std::size_t job_statistics = sizeof(engine::statistics) / sizeof(std::uint64_t);
inline constexpr std::size_t job_slots = 256;

// ended: the process said so. lost: it does not hold the lock of its slot any more, because it was killed, or is just
// becoming another program, which will take the slot again.
enum class job_slot_state : std::uint32_t { free, running, ended, lost };

// Shared counters. Readers never wait, and never see half of a number.
struct shared_account {
  std::array<shared_number, job_statistics> counted{};
  shared_number user_ns{0};
  shared_number system_ns{0};
  shared_number peak_rss_bytes{0};

  void store(const engine::statistics& now, const process_usage& used) noexcept;
  void store_budget(std::uint64_t bytes) noexcept;
  [[nodiscard]] engine::statistics statistics() const noexcept;
  [[nodiscard]] process_usage usage() const noexcept;
};

struct alignas(64) job_slot {
  // Written with the lock of the job.
  std::atomic<job_slot_state> state{};
  std::atomic<pid_t> pid{};        // as its namespace numbers it
  shared_number owner{0};          // a number of its own for each program that a process became
  shared_number start_time{0};     // of the process, in clock ticks since the boot; 0: unknown
  shared_number pid_namespace{0};  // its inode; 0: unknown
  shared_number joined_ns{0};      // CLOCK_MONOTONIC
  shared_number came_ns{0};        // the same, or when it called exec
  shared_number ended_ns{0};       // when that was noticed
  shared_number granted_bytes{0};
  std::array<std::atomic<char>, 48> program{};
  // The state of the previous decision: see job::decide().
  shared_number demand{0};  // a double
  shared_number seen_need{0};
  shared_number seen_cpu_ns{0};

  // Written by the process.
  shared_account account;
};

// The terms of a job's budget.
struct budget_terms {
  std::uint64_t bytes = 0;
  bool automatic = false;  // it follows what the machine can spare: pressure_budget.h
};

// The budget of all and whether it is automatic, in one number, because two processes write it at a time:
// - resize, by any process, also without the lock of the job, whose holder may be stopped. It is one store, and ends
//   the automatic budget for good: nobody sets the flag again in this region.
// - follow, by the holder of the job's lock. It reads /proc between its look at the terms and its store, for
//   milliseconds where there are many mounts. So it stores only if the number is still what it has seen. A number with
//   the flag is written by holders of the lock alone, so any other number there is a resize, which stays.
class shared_budget {
 public:
  [[nodiscard]] budget_terms load() const noexcept {
    const std::uint64_t word = word_.load();
    return {word & ~automatic_bit, (word & automatic_bit) != 0};
  }
  // Before anybody else knows of it.
  void found(const budget_terms& terms) noexcept { word_.store(word_of(terms)); }
  void resize(std::uint64_t bytes) noexcept { word_.store(word_of({bytes, false})); }
  // Returns false, and changes nothing, where it has been resized since it was `seen`. Requires: seen.automatic.
  [[nodiscard]] bool follow(const budget_terms& seen, std::uint64_t bytes) noexcept {
    std::uint64_t expected = word_of(seen);
    return word_.compare_exchange_strong(expected, word_of({bytes, true}));
  }

 private:
  static constexpr std::uint64_t automatic_bit = std::uint64_t{1} << 63;
  [[nodiscard]] static std::uint64_t word_of(const budget_terms& terms) noexcept {
    return (terms.bytes & ~automatic_bit) | (terms.automatic ? automatic_bit : 0);
  }

  shared_number word_{0};
};

struct job_region {
  static constexpr std::uint64_t right_magic = 0x36626f6a72616600;  // also the version of the layout

  shared_number magic{0};  // stored last
  shared_number bytes{0};  // sizeof(job_region)
  std::array<shared_number, 2> secret{};
  shared_number started_ns{0};
  std::atomic<std::uint32_t> shares{0};  // 0: each process has the whole budget for itself
  std::atomic<std::uint32_t> warned{0};  // that the minima do not fit the budget
  shared_budget budget;
  shared_number decided_ns{0};
  shared_number peak_local_bytes{0};  // of all together, as seen when it was decided
  shared_number peak_far_bytes{0};
  shared_number peak_far_stored_bytes{0};
  backend::shared_takings compressed;  // by tiers of compressed memory
  // Processes that have ended and whose slots were needed.
  shared_number forgotten{0};
  shared_account forgotten_account;
  // Hashes of programs that the runtime cannot be loaded into, so that each is named once.
  std::array<shared_number, 32> named{};
  std::array<job_slot, job_slots> slots;
};

// The name of a job: "PATH#SECRET", in the environment of its processes.
struct job_name {
  std::string path;
  std::array<std::uint64_t, 2> secret{};

  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string secret_text() const;
};
[[nodiscard]] result<job_name> parse_job_name(std::string_view text);

// A new name in the first of the usual directories that can be used; makes no file. Fails when there is none.
[[nodiscard]] result<job_name> new_job_name();

// Whether a file's name is that of a job.
[[nodiscard]] bool is_job_file(std::string_view name);
// The directories where jobs are, the preferred one first.
[[nodiscard]] std::vector<std::string> job_directories();

// Whether the process of a slot whose lock is not held still runs; nothing where that cannot be told, as in another
// namespace of processes.
[[nodiscard]] std::optional<bool> still_runs(const job_slot& slot) noexcept;

// Removes the files of jobs of this user in which no process is left, some time after they were made.
void remove_abandoned_jobs() noexcept;
// The same for one file that is older than `age_s`. Requires: this process is not of the job.
void remove_abandoned_job(const std::string& path, time_t age_s) noexcept;

// Terms of a job that is not there yet.
struct job_terms {
  budget_terms budget;  // an automatic one requires `shares`
  bool shares = true;
};

// A mapping of a job's file; the descriptor is close-on-exec and in the runtime's care. It outlives its file's name.
class job_mapping {
 public:
  // Opens or makes the file for a process that joins. Fails when it belongs to another user or another job.
  [[nodiscard]] static result<job_mapping> open(const job_name& name, const job_terms& terms);
  // The same with a descriptor that another process of the job has sent; takes it over, also when it fails.
  [[nodiscard]] static result<job_mapping> adopt(int descriptor, const job_name& name);
  // For reading only. Takes `descriptor` over.
  [[nodiscard]] static result<job_mapping> look_at(int descriptor);
  [[nodiscard]] static result<job_mapping> look_at(const std::string& path);

  job_mapping(job_mapping&& other) noexcept;
  job_mapping& operator=(job_mapping&&) = delete;
  ~job_mapping();

  [[nodiscard]] job_region& region() const { return *region_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

  // Whether the descriptor still refers to the file.
  [[nodiscard]] bool is_intact() const noexcept;
  // If not: opens the file again. Returns false when that fails.
  [[nodiscard]] bool reopen(const std::string& path) noexcept;

  // Whether the last process of the job has removed the file.
  [[nodiscard]] bool is_removed() const noexcept;
  // In that case: opens or makes another file of the same name, on the same terms, and maps it in place of this one, in
  // one step.
  [[nodiscard]] bool found_again(const job_name& name) noexcept;

  // Takes a lock for this process; false when another process holds it.
  [[nodiscard]] bool try_lock(std::size_t byte) const noexcept;
  void unlock(std::size_t byte) const noexcept;
  // Whether another process holds it.
  [[nodiscard]] bool is_locked_elsewhere(std::size_t byte) const noexcept;
  // The lock of the job, within `deadline_ms`.
  [[nodiscard]] bool lock_job(int deadline_ms) const noexcept;

  static constexpr std::size_t job_lock = 0;
  static constexpr std::size_t lock_of_slot(std::size_t slot) { return slot + 1; }

 private:
  job_mapping(int descriptor, job_region* region, dev_t device, ino_t inode)
      : descriptor_(descriptor), region_(region), device_(device), inode_(inode) {}
  [[nodiscard]] bool is_this_file(int descriptor) const noexcept;
  [[nodiscard]] static result<job_mapping> map(int descriptor, int protection, const std::string& name);

  int descriptor_;
  job_region* region_;
  dev_t device_;
  ino_t inode_;
};

}  // namespace far::preload
