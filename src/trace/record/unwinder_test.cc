// Stacks of known functions, with and without frame pointers, from calls and from signal handlers.
#include "trace/record/unwinder.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/units.h"
#include "trace/format.h"
#include "trace/record/checked_memory.h"

namespace far::trace {
namespace {

struct stack {
  std::array<std::uint64_t, deepest_stack> addresses{};
  std::size_t depth = 0;
};
stack seen;

// Without inlining and tail calls every function has its frame; WITHOUT_POINTER: one to which no register points. clang
// can do that for a whole file alone, so that there it is one as any other.
#if defined(__clang__)
#define APART __attribute__((noinline))
#define WITHOUT_POINTER APART
#else
#define APART __attribute__((noinline, noclone))
#define WITHOUT_POINTER __attribute__((noinline, noclone, optimize("omit-frame-pointer")))
#endif

// Where each function of a chain goes on: a label behind its call.
std::uint64_t outer_returns = 0;
std::uint64_t middle_returns = 0;

APART void take() {
  middle_returns = reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
  seen.depth = unwind(current_state(), seen.addresses);
}

// A frame of changing size, so that only its table, or a frame pointer, tells where it begins.
WITHOUT_POINTER int middle(int bytes) {
  outer_returns = reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
  char* volatile room = static_cast<char*>(alloca(static_cast<std::size_t>(bytes)));
  room[0] = 1;
  take();
  return room[0];
}

APART int outer(int bytes) {
  return middle(bytes) + 1;
}

TEST(unwinder, FollowsCalls) {
  EXPECT_EQ(outer(100), 2);
  ASSERT_GE(seen.depth, 4U);
  EXPECT_EQ(seen.addresses[1], middle_returns);
  EXPECT_EQ(seen.addresses[2], outer_returns);
}

TEST(unwinder, ReachesTheProgramsStart) {
  EXPECT_EQ(outer(5000), 2);
  Dl_info last{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(seen.addresses[seen.depth - 1]), &last), 0);
  EXPECT_LT(seen.depth, deepest_stack);
  EXPECT_GT(seen.depth, 5U);
}

TEST(unwinder, StopsWhereThereIsNoRoom) {
  std::array<std::uint64_t, 2> few{};
  EXPECT_EQ(unwind(current_state(), few), 2U);
}

std::uint64_t faulting_address = 0;
std::byte* page = nullptr;

void on_fault(int, siginfo_t*, void* context) {
  const auto& interrupted = *static_cast<const ucontext_t*>(context);
  faulting_address = interrupted_state(interrupted).registers.back();
  seen.depth = unwind(interrupted_state(interrupted), seen.addresses);
  mprotect(page, page_bytes, PROT_READ | PROT_WRITE);
}

WITHOUT_POINTER int touch(volatile std::byte* at) {
  outer_returns = reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
  *at = std::byte{1};
  return 1;
}

APART int calls_touch(volatile std::byte* at) {
  return touch(at) + 1;
}

TEST(unwinder, FollowsFromASignal) {
  page = static_cast<std::byte*>(mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  struct sigaction ours{};
  struct sigaction before{};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &ours, &before);
  EXPECT_EQ(calls_touch(page), 2);
  sigaction(SIGSEGV, &before, nullptr);
  munmap(page, page_bytes);
  ASSERT_GE(seen.depth, 3U);
  EXPECT_EQ(seen.addresses[0], faulting_address);
  EXPECT_EQ(seen.addresses[1], outer_returns);
}

int compare(const void* a, const void* b) {
  seen.depth = unwind(current_state(), seen.addresses);
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

APART int sorts() {
  outer_returns = reinterpret_cast<std::uint64_t>(__builtin_return_address(0));
  std::array<int, 2> numbers{2, 1};
  qsort(numbers.data(), numbers.size(), sizeof numbers[0], compare);
  return numbers[0];
}

// The C library is built without frame pointers.
TEST(unwinder, PassesThroughTheCLibrary) {
  EXPECT_EQ(sorts(), 1);
  const auto end = seen.addresses.begin() + static_cast<std::ptrdiff_t>(seen.depth);
  EXPECT_NE(std::find(seen.addresses.begin(), end, outer_returns), end);
}

TEST(unwinder, DamagedStacksEndIt) {
  machine_state state = current_state();
  state.registers[7] = 8;           // the stack
  state.registers[6] = ~0ULL - 64;  // the frame pointer
  EXPECT_EQ(unwind(state, seen.addresses), 1U);
  state.registers.back() = 12345;  // no code at all
  EXPECT_EQ(unwind(state, seen.addresses), 1U);
  state.registers.back() = 0;
  EXPECT_EQ(unwind(state, seen.addresses), 0U);
}

TEST(checked_memory, ReadsUpToWhereItEnds) {
  auto* const pages = static_cast<std::byte*>(
      mmap(nullptr, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(pages + page_bytes, page_bytes, PROT_NONE);
  const auto end = reinterpret_cast<std::uint64_t>(pages) + page_bytes;
  *reinterpret_cast<std::uint64_t*>(end - 8) = 42;
  checked_memory memory;
  std::uint64_t value = 0;
  EXPECT_TRUE(memory.read(end - 8, &value));
  EXPECT_EQ(value, 42U);
  EXPECT_FALSE(memory.read(end - 4, &value));
  EXPECT_FALSE(memory.read(end, &value));
  EXPECT_FALSE(memory.read(0, &value));
  EXPECT_FALSE(memory.read(~std::uint64_t{0} - 3, &value));
  munmap(pages, 2 * page_bytes);
}

}  // namespace
}  // namespace far::trace
