#include "fiber/context.h"

#include <boost/context/detail/fcontext.hpp>

#include "base/check.h"
#include "fiber/sanitizers.h"

namespace far::fiber {

namespace raw = boost::context::detail;

// fcontext calls this on a fresh stack: `transferred.data` is the passage, whose `data` belongs to the entry.
struct context_entry {
  static void start(raw::transfer_t transferred) {
    const auto& passing = *static_cast<context::passage*>(transferred.data);
    context& here = *passing.to;
    void* const data = passing.data;
    here.arrived(passing, transferred.fctx);
    here.entry_(data);
    FAR_CHECK(false, "a fiber's entry returned");
  }
};

context::~context() {
  if (owns_thread_sanitizer_fiber_) sanitizers::destroy_thread_sanitizer_fiber(known_to_thread_sanitizer_);
}

void context::prepare(std::byte* low, std::size_t bytes, void (*entry)(void* data)) {
  stack_low_ = low;
  stack_bytes_ = bytes;
  entry_ = entry;
  saved_by_address_sanitizer_ = nullptr;
  if (!owns_thread_sanitizer_fiber_) {
    known_to_thread_sanitizer_ = sanitizers::create_thread_sanitizer_fiber();
    owns_thread_sanitizer_fiber_ = known_to_thread_sanitizer_ != nullptr;
  }
  resume_at_ = raw::make_fcontext(low + bytes, bytes, &context_entry::start);
}

void context::set_name(const char* name) {
  if (owns_thread_sanitizer_fiber_) sanitizers::name_thread_sanitizer_fiber(known_to_thread_sanitizer_, name);
}

// Not instrumented: the passage must lie on the stack itself. AddressSanitizer keeps the locals of instrumented
// functions elsewhere, and takes them away when a stack is left for good, before the other side has read them.
__attribute__((no_sanitize_address)) void* context::switch_to(context& from, context& to, void* data, bool for_good) {
  passage passing{.from = &from, .to = &to, .data = data};
  if (from.known_to_thread_sanitizer_ == nullptr) {
    from.known_to_thread_sanitizer_ = sanitizers::current_thread_sanitizer_fiber();
  }
  sanitizers::leave_stack(for_good ? nullptr : &from.saved_by_address_sanitizer_, to.stack_low_, to.stack_bytes_);
  sanitizers::switch_thread_sanitizer_fiber(to.known_to_thread_sanitizer_);
  const raw::transfer_t transferred = raw::jump_fcontext(to.resume_at_, &passing);
  const auto& back = *static_cast<passage*>(transferred.data);
  void* const carried = back.data;
  from.arrived(back, transferred.fctx);
  return carried;
}

void context::arrived(const passage& passing, void* left_at) {
  passing.from->resume_at_ = left_at;
  sanitizers::arrive_on_stack(saved_by_address_sanitizer_, &passing.from->stack_low_, &passing.from->stack_bytes_);
}

}  // namespace far::fiber
