#include "fiber/control_block.h"

#include <cstdio>
#include <memory>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace far::fiber {
namespace {

constexpr std::size_t line_bytes = 64;

}  // namespace

void control_block::set_name(const char* given) {
  std::snprintf(name, sizeof name, "%s", given == nullptr || *given == '\0' ? "unnamed" : given);
  where.set_name(name);
}

control_block& control_block::create_on(stack on, std::size_t closure_bytes) {
  FAR_CHECK(closure_bytes <= largest_closure_bytes, "the closure of a fiber is small");
  constexpr std::size_t block_bytes = round_up(sizeof(control_block), line_bytes);
  auto* const block = new (on.low + on.bytes - block_bytes) control_block;
  block->memory = on;
  block->who.of_fiber = true;
  block->closure = reinterpret_cast<std::byte*>(block) - round_up(closure_bytes, line_bytes);
  return *block;
}

void control_block::drop_reference(control_block& one) noexcept {
  if (one.references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::shared_ptr<stack_pool> stacks = std::move(one.stacks);
  const stack memory = one.memory;
  one.~control_block();
  stacks->give_back(memory);
}

}  // namespace far::fiber
