#include "fiber.h"

#include <sys/mman.h>

#include <utility>
#include <vector>

#include "base/check.h"
#include "fiber/sanitizers.h"

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

}  // namespace

fiber::fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
  own_.prepare(stack_ + guard_bytes, stack_bytes - guard_bytes, &fiber::enter);
}

fiber::~fiber() {
  FAR_CHECK(!started_ || ended_, "a fiber that has begun must end");
  far::fiber::sanitizers::forget_frames(stack_ + guard_bytes, stack_bytes - guard_bytes);
  spare_stacks().push_back(stack_);
}

void fiber::enter(void* entered) {
  fiber& self = *static_cast<fiber*>(entered);
  self.body_();
  self.ended_ = true;
  far::fiber::context::switch_to(self.own_, self.resumer_, nullptr, true);
}

void fiber::resume() {
  FAR_CHECK(!ended_, "a fiber that has ended stays so");
  started_ = true;
  far::fiber::context::switch_to(resumer_, own_, this, false);
}

void fiber::suspend() {
  far::fiber::context::switch_to(own_, resumer_, nullptr, false);
}

}  // namespace far::simulation
