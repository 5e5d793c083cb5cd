// The Python stack of the calling thread, where the program is CPython. By the function that CPython has for its own
// fault handler (_Py_DumpTraceback).
#pragma once

#include <array>
#include <string_view>

#include "base/spin_lock.h"

namespace far::preload {

using python_text = std::array<char, 8192>;

class python_reader {
 public:
  // Looks for CPython among what the program has loaded by now. Allocates a descriptor if it is there.
  void find();

  // The lines of a python_stack_record, in `text`; empty where the thread runs no Python. It looks at the program's
  // objects, which may be far: misses of its own are resolved by handlers, so no lock of the pager may be held.
  // Requires: the calling thread is in a signal handler, or has its signals blocked; fault_mode::in_line.
  [[nodiscard]] std::string_view read(python_text& text) noexcept;

  // In the child of a fork, whose parent keeps the descriptor. A fork does not wait for read(), which may itself wait
  // for a miss that the fork holds up; so the lock may be that of a thread that is not here.
  void resume_in_child();

 private:
  using dump_function = void (*)(int descriptor, void* thread);
  using thread_function = void* (*)();

  void open() FAR_REQUIRES(lock_);

  // Written by find(), before the first read().
  dump_function dump_ = nullptr;
  thread_function current_thread_ = nullptr;
  spin_lock lock_;
  int descriptor_ FAR_GUARDED_BY(lock_) = -1;  // and the text in its file
};

}  // namespace far::preload
