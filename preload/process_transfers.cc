#include "preload/process_transfers.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "base/units.h"
#include "control/control.h"
#include "platform/runtime_thread.h"

namespace far::preload {
namespace {

// Reads the start of a small file as text.
template <std::size_t Size>
bool read_text(const char* path, char (&text)[Size]) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t got = read(file, text, Size - 1);
  close(file);
  text[got > 0 ? got : 0] = 0;
  return got > 0;
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

// Whether threads of a runtime are there: the child of a fork listens a second after it was made.
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

bool listens_in_time(pid_t process) {
  constexpr int most_waits = 500;
  constexpr useconds_t wait_us = 10'000;
  for (int i = 0; !control::is_answered(process); ++i) {
    if (i == most_waits || !has_runtime(process) || !can_answer(process)) return false;
    usleep(wait_us);
  }
  return true;
}

}  // namespace

bool is_of_this_process(pid_t thread) noexcept {
  return thread == getpid() || (thread > 0 && syscall(SYS_tgkill, getpid(), thread, 0) == 0);
}

bool bring_in_of_other(const process_transfer& transfer, const std::byte* place, std::size_t bytes) noexcept {
  const int saved_errno = errno;
  const platform::runtime_mark allocate_locally;
  const auto address = reinterpret_cast<std::uintptr_t>(place);
  const std::string request = "bring " + std::to_string(address) + " " +
                              std::to_string(std::min(bytes, control::control_brought_bytes)) +
                              (transfer.writes ? " write" : " read");
  const bool is_brought = can_answer(transfer.process) && listens_in_time(transfer.process) &&
                          control::send_control_request(transfer.process, request).ok();
  errno = saved_errno;
  return is_brought;
}

}  // namespace far::preload
