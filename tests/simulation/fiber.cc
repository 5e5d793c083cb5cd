// A long jump to another stack is what this file is for; the check of it must not come in.
#undef _FORTIFY_SOURCE
#include "fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "base/check.h"

#if defined(__has_feature)
#define FAR_HAS_FEATURE(name) __has_feature(name)
#else
#define FAR_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || FAR_HAS_FEATURE(address_sanitizer)
#define FAR_ADDRESS_SANITIZER 1
#define FAR_SANITIZED_FIBERS 1
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__) || FAR_HAS_FEATURE(thread_sanitizer)
#define FAR_THREAD_SANITIZER 1
#define FAR_SANITIZED_FIBERS 1
#include <sanitizer/tsan_interface.h>
#endif

namespace far::simulation {
namespace {

constexpr std::size_t stack_bytes = 512 * 1024;
constexpr std::size_t guard_bytes = 4096;

// Stacks are used again by the next run: mapping one costs more than a short fiber does.
std::vector<std::byte*>& spare_stacks() {
  static std::vector<std::byte*> spares;
  return spares;
}

std::byte* take_stack() {
  if (!spare_stacks().empty()) {
    std::byte* const stack = spare_stacks().back();
    spare_stacks().pop_back();
    return stack;
  }
  void* const mapped =
      mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  FAR_CHECK(mapped != MAP_FAILED, "no memory for a fiber's stack");
  FAR_CHECK(mprotect(mapped, guard_bytes, PROT_NONE) == 0, "no guard below a fiber's stack");
  return static_cast<std::byte*>(mapped);
}

fiber* starting = nullptr;

}  // namespace

fiber::fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
  FAR_CHECK(getcontext(&own_) == 0, "a context can be made");
  own_.uc_stack.ss_sp = stack_ + guard_bytes;
  own_.uc_stack.ss_size = stack_bytes - guard_bytes;
  own_.uc_link = nullptr;
  makecontext(&own_, &fiber::enter, 0);
#ifdef FAR_THREAD_SANITIZER
  tsan_own_ = __tsan_create_fiber(0);
#endif
}

fiber::~fiber() {
  FAR_CHECK(!started_ || ended_, "a fiber that has begun must end");
#ifdef FAR_THREAD_SANITIZER
  __tsan_destroy_fiber(tsan_own_);
#endif
  spare_stacks().push_back(stack_);
}

// A null `fake_stack` says that this side is left for good.
void fiber::before_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* bottom,
                          [[maybe_unused]] std::size_t bytes, [[maybe_unused]] void* tsan_fiber) {
#ifdef FAR_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
#endif
#ifdef FAR_THREAD_SANITIZER
  __tsan_switch_to_fiber(tsan_fiber, 0);
#endif
}

void fiber::after_switch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** bottom,
                         [[maybe_unused]] std::size_t* bytes) {
#ifdef FAR_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(fake_stack, bottom, bytes);
#endif
}

void fiber::enter() {
  fiber& self = *starting;
  self.after_switch(nullptr, &self.resumer_bottom_, &self.resumer_bytes_);
  self.body_();
  self.ended_ = true;
  self.before_switch(nullptr, self.resumer_bottom_, self.resumer_bytes_, self.tsan_resumer_);
#ifdef FAR_SANITIZED_FIBERS
  setcontext(&self.resumer_);
#else
  _longjmp(self.resumer_place_, 1);
#endif
}

void fiber::resume() {
  FAR_CHECK(!ended_, "a fiber that has ended stays so");
  [[maybe_unused]] const bool first_time = !started_;
  if (first_time) starting = this;
  started_ = true;
#ifdef FAR_THREAD_SANITIZER
  tsan_resumer_ = __tsan_get_current_fiber();
#endif
  before_switch(&resumer_fake_stack_, stack_ + guard_bytes, stack_bytes - guard_bytes, tsan_own_);
#ifdef FAR_SANITIZED_FIBERS
  swapcontext(&resumer_, &own_);
#else
  if (_setjmp(resumer_place_) == 0) {
    if (first_time) setcontext(&own_);
    _longjmp(own_place_, 1);
  }
#endif
  after_switch(resumer_fake_stack_, nullptr, nullptr);
}

void fiber::suspend() {
  before_switch(&own_fake_stack_, resumer_bottom_, resumer_bytes_, tsan_resumer_);
#ifdef FAR_SANITIZED_FIBERS
  swapcontext(&own_, &resumer_);
#else
  if (_setjmp(own_place_) == 0) _longjmp(resumer_place_, 1);
#endif
  after_switch(own_fake_stack_, &resumer_bottom_, &resumer_bytes_);
}

}  // namespace far::simulation
