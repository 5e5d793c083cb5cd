// limiter as|data: limits its own address space or data (setrlimit), takes all that the limit allows, and works at the
// limit: gives blocks back for other uses, checks its bytes, gives some back and takes it again, starts a thread,
// forks, and becomes another program, which is under the same limit. Prints what a program may rely on, in the end
// "done".
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t block_bytes = 16 * mib;
constexpr std::size_t step_bytes = 16 * 4096;
constexpr rlim_t limit_bytes = 480 * mib;

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::fflush(stdout);
  _exit(1);
}

void check(bool good, const char* what) {
  if (!good) fail(what);
}

unsigned char* take() {
  void* const block = mmap(nullptr, block_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return block == MAP_FAILED ? nullptr : static_cast<unsigned char*>(block);
}

void fill(unsigned char* block, std::size_t number) {
  for (std::size_t at = 0; at < block_bytes; at += step_bytes)
    block[at] = static_cast<unsigned char>(number + at / step_bytes);
}

void check_bytes(const std::vector<unsigned char*>& blocks) {
  for (std::size_t number = 0; number < blocks.size(); ++number) {
    for (std::size_t at = 0; at < block_bytes; at += step_bytes) {
      check(blocks[number][at] == static_cast<unsigned char>(number + at / step_bytes), "bytes");
    }
  }
}

std::vector<unsigned char*> take_all() {
  std::vector<unsigned char*> blocks;
  blocks.reserve(100);
  while (unsigned char* const block = take()) {
    fill(block, blocks.size());
    blocks.push_back(block);
    check(blocks.size() < 90, "there is no limit");
  }
  check(errno == ENOMEM, "error at the limit");
  return blocks;
}

// Some memory is the program's own code and stack, and what an allocator holds.
void check_count(std::size_t count) {
  const std::size_t most = limit_bytes / block_bytes;
  if (count > most + 2 || count < most - 6) {
    std::printf("%zu blocks of at most %zu\n", count, most);
    fail("the limit is another one");
  }
}

void check_limit(int kind) {
  rlimit now{};
  check(getrlimit(kind, &now) == 0 && now.rlim_cur == limit_bytes, "getrlimit");
  check(prlimit(0, static_cast<__rlimit_resource>(kind), nullptr, &now) == 0 && now.rlim_cur == limit_bytes, "prlimit");
}

void run_thread() {
  pthread_t thread{};
  int ran = 0;
  const int failure = pthread_create(
      &thread, nullptr,
      [](void* flag) -> void* {
        *static_cast<int*>(flag) = 1;
        return nullptr;
      },
      &ran);
  errno = failure;
  check(failure == 0 && pthread_join(thread, nullptr) == 0 && ran == 1, "a thread");
}

// Also its own allocations, at the limit.
void run_child(const std::vector<unsigned char*>& blocks) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    check_bytes(blocks);
    munmap(blocks[0], block_bytes);
    unsigned char* const block = take();
    check(block != nullptr, "memory of the child");
    fill(block, 0);
    _exit(0);
  }
  int status = 1;
  check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the child");
}

// Blocks of malloc that were freed leave room for other mappings, as from an allocator that gives large blocks back.
void free_and_map() {
  std::vector<void*> blocks;
  blocks.reserve(2 * limit_bytes / mib);
  while (void* const block = std::malloc(mib)) {
    blocks.push_back(block);
    check(blocks.size() < 2 * limit_bytes / mib, "there is no limit");
  }
  for (void* const block : blocks) std::free(block);
  run_thread();
  void* const half = mmap(nullptr, limit_bytes / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(half != MAP_FAILED, "a mapping in place of freed blocks");
  munmap(half, limit_bytes / 2);
}

void work_at_limit(int kind) {
  check_limit(kind);
  free_and_map();
  std::vector<unsigned char*> blocks = take_all();
  check_count(blocks.size());
  check(std::malloc(std::size_t{1} << 32) == nullptr && errno == ENOMEM, "a block beyond the limit");
  check_bytes(blocks);
  munmap(blocks.back(), block_bytes);
  blocks.back() = take();
  check(blocks.back() != nullptr, "memory that was given back");
  fill(blocks.back(), blocks.size() - 1);
  munmap(blocks.back(), block_bytes);
  blocks.pop_back();
  run_thread();
  run_child(blocks);
  check_bytes(blocks);
  check(mremap(blocks[0], block_bytes, limit_bytes, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM, "mremap");
  check_bytes(blocks);
  rlimit more{};
  check(getrlimit(kind, &more) == 0, "getrlimit");
  if (more.rlim_max == limit_bytes) return;
  more.rlim_cur = more.rlim_max;
  check(setrlimit(kind, &more) == 0, "setrlimit, back");
  for (int i = 0; i < 4; ++i) {
    unsigned char* const block = take();
    check(block != nullptr, "memory without the limit");
    fill(block, 0);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const bool data = count > 1 && std::strcmp(arguments[1], "data") == 0;
  const bool again = count > 2;
  const int kind = data ? RLIMIT_DATA : RLIMIT_AS;
  for (int i = 0; i < 1000; ++i) run_thread();  // what they had is not in the limit any more
  rlimit limit{};
  check(getrlimit(kind, &limit) == 0, "getrlimit");
  if (!again) {
    limit.rlim_cur = limit_bytes;
    check(setrlimit(kind, &limit) == 0, "setrlimit");
    check(execl("/nowhere", "nowhere", nullptr) == -1 && errno == ENOENT, "execl of nothing");
  }
  std::printf("%s: %zu MiB\n", again ? "again" : "first", static_cast<std::size_t>(limit.rlim_cur) / mib);
  work_at_limit(kind);
  if (!again) {
    limit.rlim_cur = limit_bytes;
    check(setrlimit(kind, &limit) == 0, "setrlimit");
    std::fflush(stdout);
    execl("/proc/self/exe", arguments[0], arguments[1], "again", nullptr);
    fail("exec");
  }
  std::puts("done");
}
