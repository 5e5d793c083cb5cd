// Fibers that park inside the handler of a fault, as they will for a miss of the inline hardware guard. Pages without
// access stand in for remote ones, SIGSEGV for SIGBUS, and a fiber for the far tier.
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/spin_lock.h"
#include "base/units.h"
#include "fiber/mutex.h"
#include "fiber/semaphore.h"
#include "platform/signal_shield.h"
#include "tests/support/fiber_runs.h"

// Hidden from the sanitizers: the page faults before the value that is read was written.
#define FAR_TEST_UNSEEN __attribute__((noinline, no_sanitize("address", "thread", "undefined")))

namespace far::fiber {
namespace {

using namespace testing;

std::uint64_t blocked_signals() {
  const std::uint64_t now = platform::block_signals();
  platform::restore_signals(now);
  return now;
}

// Asked of the kernel: the compiler may remember what pthread_self() said.
pid_t this_thread() {
  return static_cast<pid_t>(syscall(SYS_gettid));
}

// One miss, on the stack of the handler that waits for it.
struct miss {
  std::byte* page;
  miss* next;
  waiter* resolved;
};

// Pages that are not accessible until a fiber has fetched them.
class far_memory {
 public:
  explicit far_memory(std::size_t pages, int extra_flags = 0) : bytes_(pages * page_bytes) {
    // Mapped twice, so that a page is complete before anybody can access it.
    file_ = memfd_create("pages", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(file_, static_cast<off_t>(bytes_)), 0);
    start_ = static_cast<std::byte*>(mmap(nullptr, bytes_, PROT_NONE, MAP_SHARED, file_, 0));
    staging_ = static_cast<std::byte*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0));
    the_one = this;
    struct sigaction ours{};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | extra_flags;
    sigfillset(&ours.sa_mask);
    sigaction(SIGSEGV, &ours, &before_);
  }
  ~far_memory() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(start_, bytes_);
    munmap(staging_, bytes_);
    close(file_);
    the_one = nullptr;
  }

  [[nodiscard]] std::byte* page(std::size_t index) const { return start_ + index * page_bytes; }
  [[nodiscard]] static std::uint64_t content(const void* address) {
    return std::bit_cast<std::uintptr_t>(address) * 0x9e3779b97f4a7c15u;
  }

  // Serves misses until stop(). For a fiber.
  void serve() {
    while (true) {
      wanted_.acquire();
      miss* one = nullptr;
      {
        const std::lock_guard guard(lock_);
        one = misses_;
        if (one != nullptr) misses_ = one->next;
      }
      if (one == nullptr) return;
      if (served_.fetch_add(1) % 3 == 0) sleep_for(20us);
      fill(one->page);
      one->resolved->wake();
    }
  }
  void stop() { wanted_.release(); }
  [[nodiscard]] unsigned served() const { return served_; }
  // Handlers that went on with another signal mask than they had.
  [[nodiscard]] unsigned wrong_masks() const { return wrong_masks_; }

 private:
  // Two fibers may have missed the same page; then it is written twice with the same bytes.
  FAR_TEST_UNSEEN void fill(std::byte* page) {
    std::byte* const staged = staging_ + (page - start_);
    for (std::size_t i = 0; i < page_bytes; i += sizeof(std::uint64_t)) {
      *reinterpret_cast<volatile std::uint64_t*>(staged + i) = content(page + i);
    }
    mprotect(page, page_bytes, PROT_READ);
  }

  static void on_fault(int /*signal*/, siginfo_t* info, void* /*context*/) {
    auto* const address = static_cast<std::byte*>(info->si_addr);
    far_memory* const self = the_one;
    if (self == nullptr || address < self->start_ || address >= self->start_ + self->bytes_) {
      signal(SIGSEGV, SIG_DFL);
      return;
    }
    waiter mine;
    miss one{self->page(static_cast<std::size_t>(address - self->start_) / page_bytes), nullptr, &mine};
    {
      const std::lock_guard guard(self->lock_);
      one.next = self->misses_;
      self->misses_ = &one;
    }
    self->wanted_.release();
    const std::uint64_t mask = blocked_signals();
    static_cast<void>(mine.park_in_fault_handler());
    if (blocked_signals() != mask) self->wrong_masks_.fetch_add(1);
  }

  static inline far_memory* the_one = nullptr;
  int file_ = -1;
  std::byte* start_;
  std::byte* staging_;
  std::size_t bytes_;
  struct sigaction before_{};
  spin_lock lock_;
  miss* misses_ = nullptr;
  semaphore wanted_;
  std::atomic<unsigned> served_{0};
  std::atomic<unsigned> wrong_masks_{0};
};

FAR_TEST_UNSEEN std::uint64_t read_word(const std::byte* address) {
  return *reinterpret_cast<const volatile std::uint64_t*>(address);
}

thread_local int of_this_thread;

// Reads words of `pages`, with state in registers, errno, thread-local variables and the signal mask that must survive.
// Not inlined, and without a switch other than by the fault in between.
[[gnu::noinline]] void read_page(const far_memory& memory, std::size_t index) {
  const std::byte* const address = memory.page(index) + (index % 512) * 8;
  const std::uint64_t mask = blocked_signals();
  const pid_t thread = this_thread();
  const double factor = static_cast<double>(index) + 0.5;
  int* const local = &of_this_thread;
  volatile int& number = errno;  // volatile: a read of memory does not change it, as far as the compiler knows
  number = static_cast<int>(index % 100) + 1;
  const std::uint64_t word = read_word(address);
  EXPECT_EQ(number, static_cast<int>(index % 100) + 1);
  EXPECT_EQ(word, far_memory::content(address));
  EXPECT_EQ(factor, static_cast<double>(index) + 0.5);
  EXPECT_EQ(&of_this_thread, local);
  EXPECT_EQ(this_thread(), thread);
  EXPECT_EQ(blocked_signals(), mask);
}

void run_many(unsigned workers_count, unsigned fibers, std::size_t pages, bool share_pages) {
  scheduler workers(with_workers(workers_count));
  far_memory memory(pages);
  std::atomic<unsigned> beside{0};
  std::atomic<bool> ended{false};
  handle far_tier = workers.spawn([&] { memory.serve(); }, {.level = priority::runtime, .name = "far tier"});
  handle other = workers.spawn([&] {
    while (!ended) {
      ++beside;
      // Signals of other fibers' handlers are not blocked here.
      EXPECT_EQ(blocked_signals() & (std::uint64_t{1} << (SIGSEGV - 1)), 0u);
      yield();
    }
  });
  {
    std::vector<handle> all;
    for (unsigned i = 0; i < fibers; ++i) {
      all.push_back(workers.spawn([&, i] {
        for (std::size_t page = i; page < pages; page += fibers) {
          read_page(memory, share_pages ? page / 2 : page);
          if (page % 4 == 0) yield();
        }
      }));
    }
  }
  ended = true;
  other.join();
  memory.stop();
  far_tier.join();
  EXPECT_GE(memory.served(), share_pages ? pages / 2 : pages);
  EXPECT_EQ(workers.snapshot().fault_parks, memory.served());
  EXPECT_EQ(memory.wrong_masks(), 0u);
  EXPECT_GT(beside, 0u);
}

TEST(faults, a_fiber_parks_in_the_handler_and_others_run_meanwhile) {
  run_many(1, 1, 4, false);
}
TEST(faults, many_fibers_park_in_handlers_on_one_worker) {
  run_many(1, 64, 2048, false);
}
TEST(faults, many_fibers_park_in_handlers_on_two_workers_that_steal) {
  run_many(2, 200, 4000, false);
}
TEST(faults, fibers_that_miss_the_same_page_each_wait_for_it) {
  run_many(3, 100, 2000, true);
}

TEST(faults, a_fiber_that_parked_in_the_handler_is_not_stolen) {
  scheduler workers(with_workers(2));
  far_memory memory(1);
  std::atomic<pid_t> missed_on = 0;
  std::atomic<pid_t> went_on_on = 0;
  handle missing = workers.spawn([&] {
    missed_on = this_thread();
    static_cast<void>(read_word(memory.page(0)));
    went_on_on = this_thread();
  });
  ASSERT_TRUE(eventually([&] { return workers.snapshot().parks > 0; }));
  // One fiber keeps each worker; then the worker that did not miss is let go.
  std::atomic<pid_t> kept[2] = {0, 0};
  std::atomic<bool> let_go[2] = {false, false};
  handle keeping[2];
  for (int i = 0; i < 2; ++i) {
    keeping[i] = workers.spawn([&, i] {
      kept[i] = this_thread();
      while (!let_go[i]) std::this_thread::yield();
    });
  }
  ASSERT_TRUE(eventually([&] { return kept[0] != 0 && kept[1] != 0; }));
  const int other = kept[0] == missed_on ? 1 : 0;
  let_go[other] = true;
  std::thread far_tier([&] { memory.serve(); });
  ASSERT_TRUE(eventually([&] { return memory.served() == 1; }));
  sleep_for(20ms);  // a worker that steals it against the rule does so now
  EXPECT_EQ(went_on_on, 0);
  let_go[1 - other] = true;
  missing.join();
  EXPECT_EQ(went_on_on, missed_on);
  memory.stop();
  far_tier.join();
}

TEST(faults, threads_wait_in_the_handler_too) {
  scheduler workers(with_workers(1));
  far_memory memory(64);
  handle far_tier = workers.spawn([&] { memory.serve(); });
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t page = t; page < 64; page += 2) read_page(memory, page);
    });
  }
  for (std::thread& one : threads) one.join();
  memory.stop();
  far_tier.join();
  EXPECT_EQ(memory.served(), 64u);
}

TEST(faults, a_fiber_may_hold_a_mutex_while_it_parks_in_the_handler) {
  scheduler workers(with_workers(2));
  far_memory memory(256);
  handle far_tier = workers.spawn([&] { memory.serve(); });
  mutex lock;
  std::uint64_t sum = 0;
  {
    std::vector<handle> all;
    for (std::size_t i = 0; i < 256; ++i) {
      all.push_back(workers.spawn([&, i] {
        const std::lock_guard guard(lock);
        sum += read_word(memory.page(i));
      }));
    }
  }
  memory.stop();
  far_tier.join();
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < 256; ++i) expected += far_memory::content(memory.page(i));
  EXPECT_EQ(sum, expected);
}

TEST(faults, a_deadline_ends_the_wait_in_the_handler) {
  // Nobody serves: the handler gives up, makes the page accessible itself and returns.
  scheduler workers(with_workers(1));
  static std::byte* page = nullptr;
  static std::atomic<int> gave_up = 0;
  page = static_cast<std::byte*>(mmap(nullptr, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  struct sigaction ours{};
  struct sigaction before{};
  ours.sa_sigaction = [](int, siginfo_t*, void*) {
    waiter nobody;
    if (!nobody.park_in_fault_handler(after(1ms))) ++gave_up;
    mprotect(page, page_bytes, PROT_READ);
  };
  ours.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &ours, &before);
  workers.spawn([] { EXPECT_EQ(read_word(page), 0u); }).join();
  sigaction(SIGSEGV, &before, nullptr);
  EXPECT_EQ(gave_up, 1);
  munmap(page, page_bytes);
}

TEST(faults_death, a_handler_on_the_signal_stack_is_refused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        scheduler workers(with_workers(1));
        far_memory memory(1, SA_ONSTACK);
        workers.spawn([&] { static_cast<void>(read_word(memory.page(0))); }).join();
      },
      "SA_ONSTACK");
}

}  // namespace
}  // namespace far::fiber
