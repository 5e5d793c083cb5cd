// Threads of the runtime: they never touch far memory, run none of the program's signal handlers, and their allocations
// are local, also inside libraries that they call.
#pragma once

#include <functional>
#include <thread>

namespace far::pager {

// Whether the calling thread is one of the runtime's. The preload library asks this in malloc and mmap.
[[nodiscard]] bool on_runtime_thread() noexcept;

// While one of these lives, the calling thread counts as one of the runtime's.
class runtime_section {
 public:
  runtime_section() noexcept;
  ~runtime_section();
  runtime_section(const runtime_section&) = delete;
  runtime_section& operator=(const runtime_section&) = delete;
};

[[nodiscard]] std::thread start_runtime_thread(const char* name, std::function<void()> body);

}  // namespace far::pager
