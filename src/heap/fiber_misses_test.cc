// Fibers on a far heap that is larger than the budget, on the real kernel. Needs permission for userfaultfd.
//
// Not under ThreadSanitizer: it cannot see bytes that the kernel puts in place, and it delays signals, so that a
// fault's handler would not run at the access. The wake-ups run under it in waiting_fibers_test.cc, parking in a
// handler in fault_test.cc.
#include "heap/fiber_misses.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "base/units.h"
#include "engine/residency.h"
#include "far/detail/thread_sanitizer.h"
#include "fiber/this_fiber.h"
#include "pager/pager.h"
#include "platform/kernel_features.h"
#include "platform/signal_shield.h"

namespace far::heap {
namespace {

constexpr std::uint64_t budget = 16 * mib;
constexpr std::size_t heap_bytes = 4 * budget;
constexpr std::size_t heap_pages = heap_bytes / page_bytes;
constexpr std::size_t words_a_page = page_bytes / sizeof(std::uint64_t);

std::uint64_t content_of(const void* address, std::uint64_t version) {
  return (reinterpret_cast<std::uintptr_t>(address) ^ version << 48) * 0x9e3779b97f4a7c15u;
}

fiber::scheduler_options with_workers(unsigned count) {
  fiber::scheduler_options chosen;
  chosen.workers = count;
  return chosen;
}

// A runtime of `worker_count` workers over a far tier that takes 20 us for a read.
class fixture {
 public:
  explicit fixture(unsigned worker_count, pager::fault_mode mode = pager::fault_mode::in_line,
                   const char* far_uri = "memory:?latency=20us")
      : workers(with_workers(worker_count)), misses(workers) {
    pager::options chosen;
    chosen.budget_bytes = budget;
    chosen.mode = mode;
    chosen.far_uri = far_uri;
    chosen.fibers = &misses;
    chosen.object_readers = 2;
    result<std::unique_ptr<pager::pager>> created = pager::pager::create(chosen);
    EXPECT_TRUE(created.ok()) << created.error().message;
    far = std::move(created).value();
    misses.serve(*far);
    const result<std::byte*> mapped = far->map(heap_bytes, PROT_READ | PROT_WRITE, page_bytes);
    EXPECT_TRUE(mapped.ok());
    start = mapped.value();
  }
  // When everything is freed, no frame and no slot may be left.
  ~fixture() {
    EXPECT_TRUE(far->unmap(start, heap_bytes).ok());
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (far->snapshot().local_bytes + far->snapshot().far_bytes > 0) {
      if (std::chrono::steady_clock::now() > deadline) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(far->snapshot().local_bytes, 0u);
    EXPECT_EQ(far->snapshot().far_bytes, 0u);
    far->validate();
    misses.stop();
    far.reset();
  }

  [[nodiscard]] std::uint64_t* page(std::size_t index) const {
    return reinterpret_cast<std::uint64_t*>(start + index * page_bytes);
  }

  // Runs `body(number)` on `count` fibers and waits for them.
  void run(unsigned count, const std::function<void(unsigned)>& body) {
    std::vector<fiber::handle> all;
    for (unsigned i = 0; i < count; ++i) all.push_back(workers.spawn([&body, i] { body(i); }));
  }

  void fill() {
    run(4, [this](unsigned self) {
      for (std::size_t i = self; i < heap_pages; i += 4) write_page(i, 0);
    });
  }
  void write_page(std::size_t index, std::uint64_t version) const {
    std::uint64_t* const words = page(index);
    for (std::size_t i = 0; i < words_a_page; ++i) words[i] = content_of(words + i, version);
  }
  // The version that the page holds, from a look at one word of it.
  void check_word(std::size_t index, std::size_t word, std::uint64_t version) const {
    const std::uint64_t* const at = page(index) + word;
    ASSERT_EQ(*at, content_of(at, version)) << "page " << index;
  }
  void check_page(std::size_t index, std::uint64_t version) const {
    for (std::size_t i = 0; i < words_a_page; ++i) check_word(index, i, version);
  }

  fiber::scheduler workers;
  fiber_misses misses;
  std::unique_ptr<pager::pager> far;
  std::byte* start = nullptr;
};

class fiber_misses_test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!platform::probe_kernel().userfaultfd) {
      GTEST_SKIP() << "no userfaultfd: " << std::strerror(platform::probe_kernel().userfaultfd_error_code);
    }
  }
};

// Every fiber has the pages with its number modulo 64, so it knows what they hold; neighbours belong to others.
TEST_F(fiber_misses_test, many_fibers_miss_by_hardware_faults_and_every_byte_is_right) {
  constexpr unsigned fibers = 64;
  fixture world(2);
  world.fill();
  const std::uint64_t parks_before = world.workers.snapshot().fault_parks;
  std::vector<std::uint8_t> versions(heap_pages, 0);
  world.run(fibers, [&](unsigned self) {
    std::mt19937_64 random(self);
    for (int i = 0; i < 500; ++i) {
      const std::size_t index = random() % (heap_pages / fibers) * fibers + self;
      world.check_word(index, random() % words_a_page, versions[index]);
      if (random() % 4 == 0) world.write_page(index, ++versions[index]);
    }
  });
  EXPECT_GT(world.workers.snapshot().fault_parks - parks_before, fibers * 100u);
  // Overlap, by counting: so many misses were under way at one time.
  EXPECT_GT(world.misses.most_parked(), 16u);
  EXPECT_LE(world.far->snapshot().peak_local_bytes, budget + 64 * page_bytes);
  for (std::size_t i = 0; i < heap_pages; ++i) world.check_page(i, versions[i]);
}

TEST_F(fiber_misses_test, fibers_that_miss_the_same_pages_lose_no_update) {
  if (detail::has_thread_sanitizer) {
    GTEST_SKIP() << "ThreadSanitizer holds a lock of its own during an atomic access; a fiber that misses in one waits";
  }
  fixture world(2);
  world.fill();
  constexpr std::size_t shared_pages = 3 * budget / page_bytes;
  for (std::size_t i = 0; i < shared_pages; ++i) world.page(i)[0] = 0;
  constexpr unsigned fibers = 64;
  constexpr unsigned rounds = 300;
  world.run(fibers, [&](unsigned self) {
    // The same pages in the same order in each half, so that fibers meet in misses of one page.
    std::mt19937_64 random(self % 2);
    for (unsigned i = 0; i < rounds; ++i) {
      std::atomic_ref<std::uint64_t>(world.page(random() % shared_pages)[0]).fetch_add(1);
    }
  });
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < shared_pages; ++i) sum += world.page(i)[0];
  EXPECT_EQ(sum, std::uint64_t{fibers} * rounds);
}

TEST_F(fiber_misses_test, what_belongs_to_the_thread_survives_a_miss) {
  fixture world(1);
  world.fill();
  const auto blocked = [] {
    const std::uint64_t now = platform::block_signals();
    platform::restore_signals(now);
    return now;
  };
  std::atomic<unsigned> wrong{0};
  world.run(16, [&](unsigned self) {
    std::mt19937_64 random(self);
    for (int i = 0; i < 100; ++i) {
      const std::uint64_t mask = blocked();
      volatile int& number = errno;
      number = static_cast<int>(self) + 1;
      const double factor = self + 0.5;
      world.check_word(random() % heap_pages, 7, 0);
      if (number != static_cast<int>(self) + 1 || blocked() != mask || factor != self + 0.5) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(world.workers.snapshot().fault_parks, 100u);
}

TEST_F(fiber_misses_test, threads_and_fibers_share_a_far_heap) {
  fixture world(1);
  world.fill();
  std::vector<std::thread> threads;
  std::atomic<bool> failed{false};
  const auto read_some = [&](unsigned seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 2000; ++i) {
      const std::size_t index = random() % heap_pages;
      const std::uint64_t* const at = world.page(index) + random() % words_a_page;
      if (*at != content_of(at, 0)) failed = true;
    }
  };
  for (unsigned t = 0; t < 2; ++t) threads.emplace_back([&, t] { read_some(1000 + t); });
  world.run(32, read_some);
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(failed);
}

TEST_F(fiber_misses_test, streams_of_fibers_on_one_thread_are_told_apart) {
  fixture world(1);
  world.fill();
  const std::uint64_t hits_before = world.far->snapshot().prefetch_hits;
  constexpr unsigned fibers = 64;
  constexpr std::size_t pages_each = heap_pages / fibers;
  world.run(fibers, [&](unsigned self) {
    for (std::size_t i = 0; i < pages_each; ++i) {
      world.check_word(self * pages_each + i, 1, 0);
      fiber::yield();
    }
  });
  // One table of eight streams for all of them loses each stream before it goes on: no hit at all. How many pages are
  // prefetched depends on how fast frames become free; most of them, usually.
  EXPECT_GT(world.far->snapshot().prefetch_hits - hits_before, heap_pages / 16);
}

TEST_F(fiber_misses_test, fetch_makes_pages_resident_without_a_fault) {
  fixture world(1);
  world.fill();
  const std::uint8_t* const bytes = world.far->state_bytes();
  const auto byte_of = [&](std::size_t index) {
    const auto at = static_cast<std::size_t>(world.start - world.far->start()) / page_bytes + index;
    return __atomic_load_n(bytes + at, __ATOMIC_ACQUIRE);
  };
  world.far->evict(world.start, mib);
  EXPECT_NE(byte_of(3), engine::residency::byte_of_resident);
  const std::uint64_t faults = world.workers.snapshot().fault_parks;
  const std::uint64_t parks = world.workers.snapshot().parks;
  world.run(8, [&](unsigned self) {
    for (std::size_t i = self; i < 128; i += 8) {
      EXPECT_TRUE(world.far->fetch(world.start + i * page_bytes, 1, i % 2 == 0));
      EXPECT_EQ(byte_of(i), engine::residency::byte_of_resident);
      world.check_page(i, 0);
      if (i % 2 == 0) world.write_page(i, 1);
    }
  });
  EXPECT_GT(world.workers.snapshot().parks, parks);
  EXPECT_EQ(world.workers.snapshot().fault_parks, faults) << "nothing was left for the hardware guard";
  // A range, from an OS thread: one flight instead of a miss for each page.
  const std::uint64_t misses = world.far->snapshot().misses;
  EXPECT_TRUE(world.far->fetch(world.start + 128 * page_bytes, 128 * page_bytes, false));
  EXPECT_LT(world.far->snapshot().misses - misses, 128u);
  for (std::size_t i = 128; i < 256; ++i) world.check_page(i, 0);
}

TEST_F(fiber_misses_test, prefetch_starts_and_the_workers_finish) {
  fixture world(1);
  world.fill();
  world.far->evict(world.start, 64 * page_bytes);
  ASSERT_TRUE(world.far->resize(2 * budget));
  const std::uint64_t before = world.far->snapshot().fetched_pages;
  world.run(1, [&](unsigned) { world.far->prefetch(world.start, 64 * page_bytes); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (world.far->snapshot().fetched_pages < before + 64) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (std::size_t i = 0; i < 64; ++i) world.check_page(i, 0);
}

TEST_F(fiber_misses_test, objects_are_read_out_of_remote_pages) {
  fixture world(2);
  world.fill();
  world.far->evict(world.start, heap_bytes);
  const std::uint64_t fetched = world.far->snapshot().fetched_pages;
  std::atomic<unsigned> wrong{0};
  const auto read_objects = [&](unsigned seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 500; ++i) {
      const std::size_t words = 1 + random() % 16;
      const std::uint64_t* const at = world.page(random() % 64) + random() % (words_a_page - words);
      std::uint64_t copy[16];
      const auto seen = world.far->read_slot(reinterpret_cast<const std::byte*>(at), words * sizeof(std::uint64_t),
                                             reinterpret_cast<std::byte*>(copy));
      wrong += seen != pager::slot_read::done;
      for (std::size_t k = 0; k < words; ++k) wrong += copy[k] != content_of(at + k, 0);
    }
  };
  world.run(64, read_objects);
  read_objects(100);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(world.far->snapshot().fetched_pages, fetched) << "no page came in";
  world.check_page(5, 0);
  std::byte copy[8];
  EXPECT_EQ(world.far->read_slot(world.start + 5 * page_bytes, 8, copy), pager::slot_read::not_remote);
}

// Readers of objects beside fibers that take the pages in, write and discard them. A word that a read returns as done
// is one that the page has had.
TEST_F(fiber_misses_test, objects_are_read_while_their_pages_come_and_go) {
  fixture world(2);
  world.fill();
  constexpr std::size_t pages = 32;
  std::atomic<bool> ended{false};
  std::atomic<unsigned> foreign{0};
  std::atomic<unsigned> read{0};
  std::vector<fiber::handle> all;
  for (unsigned self = 0; self < 16; ++self) {
    all.push_back(world.workers.spawn([&, self] {
      std::mt19937_64 random(self);
      while (!ended) {
        const std::uint64_t* const at = world.page(random() % pages) + random() % (words_a_page - 8);
        std::uint64_t copy[8];
        const auto seen = world.far->read_slot(reinterpret_cast<const std::byte*>(at), sizeof copy,
                                               reinterpret_cast<std::byte*>(copy));
        if (seen == pager::slot_read::not_remote) fiber::yield();
        if (seen != pager::slot_read::done) continue;
        ++read;
        for (std::size_t k = 0; k < 8; ++k) {
          bool known = copy[k] == 0;
          for (std::uint64_t version = 0; version < 64 && !known; ++version) {
            known = copy[k] == content_of(at + k, version);
          }
          if (!known) ++foreign;
        }
      }
    }));
  }
  world.run(2, [&](unsigned self) {
    std::mt19937_64 random(100 + self);
    for (std::uint64_t round = 1; round < 64; ++round) {
      // Each has every second page.
      for (std::size_t i = self; i < pages; i += 2) {
        if (random() % 2 == 0) world.write_page(i, round);
        if (random() % 16 == 0) {
          EXPECT_TRUE(world.far->discard(world.start + i * page_bytes, page_bytes).ok());
        }
        if (random() % 16 == 0) world.write_page(i, round);
      }
      world.far->evict(world.start, pages * page_bytes);
      fiber::yield();
    }
  });
  ended = true;
  all.clear();
  EXPECT_EQ(foreign, 0u);
  EXPECT_GT(read, 0u);
}

TEST_F(fiber_misses_test, fibers_fetch_without_inline_faults_too) {
  fixture world(2, pager::fault_mode::thread);
  world.fill();
  world.run(32, [&](unsigned self) {
    std::mt19937_64 random(self);
    for (int i = 0; i < 100; ++i) {
      const std::size_t index = random() % heap_pages;
      EXPECT_TRUE(world.far->fetch(reinterpret_cast<std::byte*>(world.page(index)), page_bytes, false));
      world.check_word(index, 3, 0);
    }
  });
  EXPECT_GT(world.misses.most_parked(), 8u);
}

TEST_F(fiber_misses_test, a_far_tier_without_latency_needs_no_parking) {
  fixture world(2, pager::fault_mode::in_line, "memory:");
  world.fill();
  world.run(16, [&](unsigned self) {
    std::mt19937_64 random(self);
    for (int i = 0; i < 300; ++i) world.check_word(random() % heap_pages, 3, 0);
  });
}

TEST_F(fiber_misses_test, two_runtimes_in_one_process) {
  fixture one(1);
  fixture two(1);
  one.fill();
  two.fill();
  for (fixture* world : {&one, &two}) {
    world->run(16, [world](unsigned self) {
      std::mt19937_64 random(self);
      for (int i = 0; i < 100; ++i) world->check_word(random() % heap_pages, 3, 0);
    });
  }
}

}  // namespace
}  // namespace far::heap
