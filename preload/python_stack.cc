#include "preload/python_stack.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/log.h"
#include "platform/own_descriptors.h"
#include "platform/signal_shield.h"
#include "trace/record/hidden_symbol.h"
#include "trace/record/python_text.h"

namespace far::preload {
namespace {

constexpr std::size_t longest_text_bytes = 16384;

// Lets misses in, and nothing else.
class misses_let_in {
 public:
  misses_let_in() noexcept {
    const std::uint64_t sigbus = std::uint64_t{1} << (SIGBUS - 1);
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &sigbus, &before_, sizeof sigbus);
  }
  ~misses_let_in() { platform::restore_signals(before_); }
  misses_let_in(const misses_let_in&) = delete;
  misses_let_in& operator=(const misses_let_in&) = delete;

 private:
  std::uint64_t before_ = 0;
};

}  // namespace

void python_reader::find() {
  constexpr const char* dump_name = "_Py_DumpTraceback";
  void* const current = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
  if (current == nullptr) return;
  void* dump = dlsym(RTLD_DEFAULT, dump_name);
  // Most builds do not export it.
  if (dump == nullptr) dump = trace::find_hidden_function(current, dump_name);
  if (dump == nullptr) {
    return log_line(log_level::warning,
                    "this Python does not show %s and is stripped, so Python lines are not recorded; use one that is "
                    "not stripped, or Debian's",
                    dump_name);
  }
  current_thread_ = reinterpret_cast<thread_function>(current);
  dump_ = reinterpret_cast<dump_function>(dump);
  const lock_guard guard(lock_);
  open();
}

void python_reader::open() {
  descriptor_ = platform::own_descriptor(static_cast<int>(syscall(SYS_memfd_create, "farheap-python", MFD_CLOEXEC)));
}

void python_reader::resume_in_child() {
  lock_.open_in_child();
  const lock_guard guard(lock_);
  if (descriptor_ < 0) return;
  platform::disown_descriptor(descriptor_);
  close(descriptor_);
  open();
}

// CPython writes its stack to a descriptor only, and the file has one for all threads, so the lock is held until what
// was written has been read back. It is parsed without the lock: `dumped` is this thread's own.
std::string_view python_reader::read(python_text& text) noexcept {
  if (current_thread_ == nullptr) return {};
  void* const thread = current_thread_();
  if (thread == nullptr) return {};
  std::array<char, longest_text_bytes> dumped;
  std::size_t length = 0;
  {
    const lock_guard guard(lock_);
    if (descriptor_ < 0) return {};
    lseek(descriptor_, 0, SEEK_SET);
    {
      const misses_let_in open;
      dump_(descriptor_, thread);
    }
    const off_t end = lseek(descriptor_, 0, SEEK_CUR);
    const std::size_t wanted = std::min<std::size_t>(dumped.size(), end < 0 ? 0 : static_cast<std::size_t>(end));
    const ssize_t got = pread(descriptor_, dumped.data(), wanted, 0);
    length = got < 0 ? 0 : static_cast<std::size_t>(got);
  }
  return {text.data(), trace::parse_python_text({dumped.data(), length}, text)};
}

}  // namespace far::preload
