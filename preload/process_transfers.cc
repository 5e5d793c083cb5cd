#include "preload/process_transfers.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/units.h"
#include "control/control.h"
#include "platform/runtime_thread.h"
#include "preload/process_identity.h"
#include "preload/small_file.h"

namespace far::preload {
namespace {

// The process that a thread belongs to; 0 where there is none.
pid_t process_of(pid_t thread) {
  char path[64];
  char about[2048];
  std::snprintf(path, sizeof path, "/proc/%d/status", static_cast<int>(thread));
  if (!read_text(path, about)) return 0;
  const char* const group = std::strstr(about, "\nTgid:\t");
  return group != nullptr ? static_cast<pid_t>(std::strtol(group + 7, nullptr, 10)) : 0;
}

bool is_young(std::uint64_t start) {
  constexpr std::uint64_t young_seconds = 2;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto ticks_a_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(now.tv_sec) < start / ticks_a_second + young_seconds;
}

// A process that is stopped does not answer, nor does one that is traced: its threads wait for the tracer at every
// call.
bool can_answer(pid_t process) {
  char path[64];
  char about[2048];
  std::snprintf(path, sizeof path, "/proc/%d/status", static_cast<int>(process));
  if (!read_text(path, about)) return false;
  const char* const state = std::strstr(about, "\nState:\t");
  const char* const tracer = std::strstr(about, "\nTracerPid:\t");
  if (state == nullptr || tracer == nullptr) return false;
  return std::strchr("tTZX", state[8]) == nullptr && tracer[12] == '0';
}

// Whether threads of a runtime are there.
bool has_runtime(pid_t process) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/task", static_cast<int>(process));
  DIR* const tasks = opendir(path);
  if (tasks == nullptr) return false;
  bool found = false;
  while (const dirent* const task = readdir(tasks)) {
    char name[384];
    char text[32];
    std::snprintf(name, sizeof name, "%s/%s/comm", path, task->d_name);
    found = found || (task->d_name[0] != '.' && read_text(name, text) && std::strncmp(text, "farheap-", 8) == 0);
  }
  closedir(tasks);
  return found;
}

// The child of a fork listens a second after it was made; who does not listen by now never will, unless it is young.
// Nobody is waited for twice.
bool listens_in_time(pid_t process) {
  constexpr int most_waits = 500;
  constexpr useconds_t wait_us = 10'000;
  static constinit std::atomic<std::uint64_t> silent_start{0};
  static constinit std::atomic<pid_t> silent_process{0};
  if (control::is_answered(process)) return true;
  const std::uint64_t start = start_time_of(process);
  if (!is_young(start) || (silent_process.load() == process && silent_start.load() == start)) return false;
  for (int i = 0; i < most_waits; ++i) {
    if (!has_runtime(process) || !can_answer(process)) return false;
    usleep(wait_us);
    if (control::is_answered(process)) return true;
  }
  silent_process.store(process);
  silent_start.store(start);
  return false;
}

// It serves some requests at a time, and each may wait for its far tier.
bool is_brought_by(pid_t process, const std::string& request) {
  constexpr int most_seconds = 30;
  constexpr useconds_t wait_us = 10'000;
  timespec start{};
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    const result<std::string> reply = control::send_control_request(process, request);
    if (reply.ok() || reply.error().code != EAGAIN) return reply.ok();
    usleep(wait_us);
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (now.tv_sec - start.tv_sec < most_seconds);
  return false;
}

}  // namespace

bool is_sensible(std::span<const iovec> vectors) noexcept {
  std::uint64_t sum = 0;
  for (const iovec& vector : vectors) {
    if (vector.iov_len > (std::uint64_t{1} << 62)) return false;
    sum += vector.iov_len;
    if (sum > (std::uint64_t{1} << 62)) return false;
  }
  return sum > 0;
}

bool is_of_this_process(pid_t thread) noexcept {
  return thread == getpid() || (thread > 0 && syscall(SYS_tgkill, getpid(), thread, 0) == 0);
}

bool bring_in_of_other(const process_transfer& transfer, const std::byte* place, std::size_t bytes) noexcept {
  // What the kernel does not find in this process is not there: its far memory was brought in before.
  if (is_of_this_process(transfer.process)) return false;
  const int saved_errno = errno;
  const platform::runtime_mark allocate_locally;
  const auto address = reinterpret_cast<std::uintptr_t>(place);
  const std::string request = "bring " + std::to_string(address) + " " +
                              std::to_string(std::min(bytes, control::control_brought_bytes)) +
                              (transfer.writes ? " write" : " read");
  const pid_t process = process_of(transfer.process);
  const bool is_brought =
      process > 0 && can_answer(process) && listens_in_time(process) && is_brought_by(process, request);
  errno = saved_errno;
  return is_brought;
}

}  // namespace far::preload
