// The Python stack of the calling thread, where the program is CPython. It comes from the function that CPython's own
// fault handler uses (_Py_DumpTraceback).
#pragma once

#include <array>
#include <string_view>

#include "base/spin_lock.h"

namespace far::preload {

using python_text = std::array<char, 8192>;

class python_reader {
 public:
  // Looks for CPython among the libraries loaded so far. Allocates a descriptor if it is there.
  void find();

  // The lines of a python_stack_record, in `text`; empty where the thread runs no Python. It reads the program's
  // objects, which may be far. Handlers resolve its misses, so no lock of the pager may be held. Requires: the calling
  // thread is in a signal handler, or has its signals blocked; fault_mode::in_line.
  [[nodiscard]] std::string_view read(python_text& text) noexcept;

  // In the child of a fork, whose parent keeps the descriptor. A fork does not wait for read(), which may itself wait
  // for a miss that the fork holds up. So the lock may belong to a thread that the child does not have.
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
