#include "fiber/this_fiber.h"

#include <sched.h>

#include "far/detail/scope_record.h"
#include "fiber/control_block.h"
#include "fiber/worker.h"

namespace far::detail {

constinit thread_local scope_record* scope_record_here = nullptr;

}  // namespace far::detail

namespace far::fiber {
namespace {

constinit thread_local identity of_thread;

}  // namespace

// Opaque like worker::current().
[[gnu::noinline]] identity& current_identity() noexcept {
  control_block* const self = current_fiber();
  asm volatile("");
  return self != nullptr ? self->who : of_thread;
}

miss_room* current_miss_room() noexcept {
  control_block* const self = current_fiber();
  return self != nullptr ? &self->misses : nullptr;
}

bool on_fiber() noexcept {
  return current_fiber() != nullptr;
}

void yield() noexcept {
  control_block* const self = current_fiber();
  if (self != nullptr) {
    worker::current()->yield(*self);
  } else {
    sched_yield();
  }
}

void yield_unless_waited() noexcept {
  control_block* const self = current_fiber();
  if (self == nullptr) return;
  if (!self->has_waited) worker::current()->yield(*self);
  self->has_waited = false;
}

void sleep_until(time_point when) noexcept {
  waiter nobody;  // wakes it
  static_cast<void>(nobody.park_until(when));
}

void sleep_for(std::chrono::nanoseconds how_long) noexcept {
  sleep_until(after(how_long));
}

const char* current_name() noexcept {
  const control_block* const self = current_fiber();
  return self != nullptr ? self->name : "";
}

std::uint64_t current_number() noexcept {
  const control_block* const self = current_fiber();
  return self != nullptr ? self->number : 0;
}

}  // namespace far::fiber
