// Observes every miss of the hardware guard, such as a tracer of misses. The run door gives one to pager::create.
#pragma once

#include <cstddef>
#include <cstdint>

namespace far::pager {

// One miss, as it is reported.
struct observed_miss {
  enum class kind {
    read,
    write,
    protection,   // a write to a page that was resident, and clean
    first_touch,  // by a read or a write, of a page without content: there is nothing to fetch, zeros are put there
  };

  std::uint64_t time_ns;     // when it began, by the monotonic clock
  const std::byte* address;  // as exact as the machine reports it
  kind cause;
  std::uint32_t thread;  // of the kernel
  // The registers of the thread: a ucontext_t, while missed() runs. Null in fault_mode::thread, where they are not
  // accessible; and in pin(), for a system call that would miss, where the caller of pin() has them.
  const void* context;
  bool pinned;  // by pin(): the system call would have missed
};

class miss_observer {
 public:
  // fault_mode::in_line: called when the miss is resolved, before the program continues, on the missing thread, in its
  // signal handler, with no lock of the pager held. It may itself touch far memory if it unblocks SIGBUS; then it is
  // called for that miss, too. fault_mode::thread: called when the miss is reported, on the thread that resolves
  // misses, which must not touch far memory.
  virtual void missed(const observed_miss& one) noexcept = 0;

 protected:
  ~miss_observer() = default;
};

}  // namespace far::pager
