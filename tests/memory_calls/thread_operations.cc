// Threads, each with a world of its own, or all of them in one under a lock; and handlers that jump.
#include <pthread.h>
#include <sys/time.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstring>

#include "world.h"

namespace memory_calls {
namespace {

constexpr int most_threads = 4;

struct job {
  world* its_world = nullptr;
  std::uint64_t seed = 0;
  std::uint64_t count = 0;
  pthread_mutex_t* lock = nullptr;
};

void* work(void* argument) {
  auto& mine = *static_cast<job*>(argument);
  world& w = *mine.its_world;
  if (mine.lock == nullptr) {
    run_operations(w, mine.seed, mine.count);
    wait_for_children(w);
    verify_all(w);
    return nullptr;
  }
  random_numbers random(mine.seed);
  for (std::uint64_t i = 0; i < mine.count; ++i) {
    pthread_mutex_lock(mine.lock);
    run_operations(w, random.next(), 1);
    pthread_mutex_unlock(mine.lock);
  }
  return nullptr;
}

void run_jobs(world& w, job* jobs, int count) {
  pthread_t threads[most_threads];
  for (int i = 0; i < count; ++i) {
    const int failure = ::pthread_create(&threads[i], nullptr, work, &jobs[i]);
    if (failure != 0) fail(w, "pthread_create ends with %d", failure);
  }
  for (int i = 0; i < count; ++i) ::pthread_join(threads[i], nullptr);
}

}  // namespace

void run_threads(world& w) {
  if (w.index != 0 || w.depth > 1) return;
  const int count = 2 + static_cast<int>(w.random.below(most_threads - 1));
  say(w, "%d threads", count);
  job jobs[most_threads];
  options smaller = *w.chosen;
  smaller.working_set_bytes /= static_cast<std::size_t>(count);
  for (int i = 0; i < count; ++i) {
    jobs[i] = {make_world(smaller, 1 + i, w.random.next()), w.random.next(), w.random.below(60)};
    jobs[i].its_world->depth = w.depth;
    jobs[i].its_world->operation = w.operation;
    jobs[i].its_world->holes_are_safe = false;
  }
  run_jobs(w, jobs, count);
  for (int i = 0; i < count; ++i) {
    release_everything(*jobs[i].its_world);
    drop_world(*jobs[i].its_world);
  }
  something_was_mapped(w);
}

void share_world(world& w) {
  if (w.index != 0 || w.depth > 1) return;
  const int count = 2 + static_cast<int>(w.random.below(most_threads - 1));
  say(w, "%d threads", count);
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  job jobs[most_threads];
  for (int i = 0; i < count; ++i) jobs[i] = {&w, w.random.next(), w.random.below(30), &lock};
  const bool safe = w.holes_are_safe;
  w.holes_are_safe = false;
  const int index = w.index;
  w.index = index + most_threads + 1;  // no threads within threads
  run_jobs(w, jobs, count);
  w.index = index;
  w.holes_are_safe = safe;
  something_was_mapped(w);
}

namespace {

sigjmp_buf out_of_handler;
std::byte* volatile scratch = nullptr;
constexpr std::size_t scratch_bytes = std::size_t{256} << 10;

void jump(int) {
  siglongjmp(out_of_handler, 1);
}

std::atomic<unsigned> ticks = 0;

// Memory calls of a handler's own, beside whatever it interrupted.
void tick(int) {
  const int saved = errno;
  void* const mapped = ::mmap(nullptr, page_bytes * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped != MAP_FAILED) {
    std::memset(mapped, 1, page_bytes);
    ::madvise(mapped, page_bytes, MADV_DONTNEED);
    if (*static_cast<volatile char*>(mapped) != 0) ::_exit(9);
    ::munmap(mapped, page_bytes * 2);
  }
  ticks.fetch_add(1);
  errno = saved;
}

void set_timer(long microseconds) {
  itimerval every = {};
  every.it_interval.tv_usec = microseconds;
  every.it_value.tv_usec = microseconds;
  ::setitimer(ITIMER_REAL, &every, nullptr);
}

}  // namespace

// A handler that leaves by siglongjmp whatever it interrupted: mmap, a touch, munmap.
void jump_from_handler(world& w) {
  if (w.index != 0 || !w.holes_are_safe || w.chosen->timer) return;
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = jump;
  ::sigaction(SIGALRM, &action, &before);
  volatile unsigned jumps = 0;
  const unsigned most = 3 + static_cast<unsigned>(w.random.below(8));
  if (sigsetjmp(out_of_handler, 1) != 0) jumps = jumps + 1;
  // Memory that is mapped when a jump comes between two steps stays mapped: a handler of this kind leaks by nature.
  if (jumps < most) {
    set_timer(1000);
    while (true) {
      void* const mapped = ::mmap(nullptr, scratch_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapped == MAP_FAILED) break;
      scratch = static_cast<std::byte*>(mapped);
      for (std::size_t at = 0; at < scratch_bytes; at += page_bytes) scratch[at] = std::byte{1};
      ::madvise(scratch, scratch_bytes / 2, MADV_DONTNEED);
      ::munmap(scratch, scratch_bytes);
      scratch = nullptr;
    }
  }
  set_timer(0);
  ::sigaction(SIGALRM, &before, nullptr);
  something_was_mapped(w);
  say(w, "%u jumps", jumps);
}

void start_timer() {
  struct sigaction action{};
  action.sa_handler = tick;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &action, nullptr);
  set_timer(1000);
}

void stop_timer() {
  set_timer(0);
}

}  // namespace memory_calls
