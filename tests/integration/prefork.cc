// Processes that fork and live on, all with more memory than their budget, as servers with workers, daemons and pools
// of processes do. Every process writes and verifies all of its memory, over and over; content depends on the address,
// the process and the round.
//
//   prefork MIB CHILDREN ROUNDS WAY    exit code 0: all data right; 3: wrong data somewhere; 4: a process died of
//                                      something else; 2: it could not even try
//
// WAY is one of:
//   workers   the children inherit, verify, rewrite; the parent rewrites beside them, and verifies
//   daemon    the parent exits at once; its child goes on, and tells how it went by the file RESULT (environment)
//   pool      in each round, CHILDREN short-lived children, and the parent rewrites; prints what FARHEAP_PROBE prints
//   tree      each child forks a child of its own, and all verify and rewrite
//   killed    the children are killed while they rewrite
//   storm     threads miss all the time while the main thread forks
//   nested    each child forks again and again while it begins to evict, beside threads that allocate and free
//   resident  one child rewrites everything, again and again, and prints the most memory that it held
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr int cannot_try = 2;
constexpr int wrong_data = 3;
constexpr int died = 4;
constexpr std::size_t page_words = 4096 / sizeof(std::uint64_t);

std::uint64_t* words = nullptr;
std::size_t word_count = 0;

std::uint64_t expected(std::size_t index, std::uint64_t salt) {
  return (reinterpret_cast<std::uintptr_t>(words + index) + salt * 0x51ed27) * 0x9e3779b97f4a7c15u;
}

void write(std::size_t begin, std::size_t end, std::uint64_t salt) {
  for (std::size_t index = begin; index < end; ++index) words[index] = expected(index, salt);
}

void check(const char* who, std::size_t begin, std::size_t end, std::uint64_t salt) {
  for (std::size_t index = begin; index < end; ++index) {
    if (words[index] == expected(index, salt)) continue;
    std::printf("wrong data: %s (%d), word %zu: expected %016llx, found %016llx\n", who, static_cast<int>(getpid()),
                index, static_cast<unsigned long long>(expected(index, salt)),
                static_cast<unsigned long long>(words[index]));
    std::fflush(stdout);
    std::_Exit(wrong_data);
  }
}

pid_t fork_or_die() {
  const pid_t child = fork();
  if (child >= 0) return child;
  std::perror("prefork: fork");
  std::_Exit(cannot_try);
}

int wait_for(const std::vector<pid_t>& children, bool killed = false) {
  int outcome = 0;
  for (const pid_t child : children) {
    int status = 0;
    if (waitpid(child, &status, 0) != child) return cannot_try;
    if (killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    std::printf("child %d: wait status %d\n", static_cast<int>(child), status);
    outcome = WIFEXITED(status) && WEXITSTATUS(status) == wrong_data ? wrong_data : died;
  }
  return outcome;
}

// Verifies what was inherited, then owns one half after the other.
void live(const char* who, std::uint64_t inherited, std::uint64_t salt, int rounds) {
  const std::size_t half = word_count / 2;
  check(who, 0, word_count, inherited);
  for (int round = 0; round < rounds; ++round) {
    write(half, word_count, salt + 1);
    check(who, 0, half, round == 0 ? inherited : salt);
    write(0, half, salt + 1);
    check(who, half, word_count, salt + 1);
    ++salt;
  }
  check(who, 0, word_count, salt);
}

int workers(std::uint64_t child_count, int rounds, bool with_grandchildren) {
  std::vector<pid_t> children;
  for (std::uint64_t child = 1; child <= child_count; ++child) {
    const pid_t pid = fork_or_die();
    if (pid != 0) {
      children.push_back(pid);
      continue;
    }
    std::vector<pid_t> grandchildren;
    if (with_grandchildren) {
      write(0, word_count / 4, 0);  // some of it is the child's own by now, with the same bytes
      grandchildren.push_back(fork_or_die());
      if (grandchildren.back() == 0) {
        live("grandchild", 0, 100'000 * child, rounds);
        std::_Exit(0);
      }
    }
    live("child", 0, 1000 * child, rounds);
    std::_Exit(wait_for(grandchildren));
  }
  live("parent", 0, 1'000'000, rounds);
  return wait_for(children);
}

int be_daemon(int rounds) {
  if (fork_or_die() != 0) std::_Exit(0);
  setsid();
  usleep(300'000);  // the parent is gone
  live("daemon", 0, 5000, rounds);
  std::FILE* const result = std::fopen(std::getenv("RESULT"), "w");
  if (result == nullptr) return cannot_try;
  std::fputs("all data right\n", result);
  return std::fclose(result) == 0 ? 0 : cannot_try;
}

int pool(std::uint64_t child_count, int rounds) {
  std::uint64_t salt = 0;
  for (int round = 0; round < rounds; ++round) {
    std::vector<pid_t> children;
    for (std::uint64_t child = 1; child <= child_count; ++child) {
      children.push_back(fork_or_die());
      if (children.back() != 0) continue;
      live("child", salt, 1000 * child, 1);
      std::_Exit(0);
    }
    write(0, word_count, ++salt);
    const int outcome = wait_for(children);
    if (outcome != 0) return outcome;
    check("parent", 0, word_count, salt);
    const char* const probe = std::getenv("FARHEAP_PROBE");
    if (probe != nullptr) {
      sleep(1);  // the children's slots are freed
      char command[4096];
      std::snprintf(command, sizeof command, "env -u LD_PRELOAD %s %d", probe, static_cast<int>(getpid()));
      std::fflush(stdout);
      if (std::system(command) != 0) return cannot_try;
    }
  }
  return 0;
}

int killed(std::uint64_t child_count, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<pid_t> children;
    for (std::uint64_t child = 1; child <= child_count; ++child) {
      children.push_back(fork_or_die());
      if (children.back() == 0) live("child", static_cast<std::uint64_t>(round), 1000 * child, 1'000'000);
    }
    write(0, word_count, static_cast<std::uint64_t>(round + 1));
    for (const pid_t child : children) kill(child, SIGKILL);
    const int outcome = wait_for(children, true);
    if (outcome != 0) return outcome;
    check("parent", 0, word_count, static_cast<std::uint64_t>(round + 1));
  }
  return 0;
}

int storm(std::uint64_t child_count, int rounds) {
  constexpr std::size_t thread_count = 3;
  std::atomic<bool> stopping{false};
  std::vector<std::thread> threads;
  const std::size_t part = word_count / (thread_count + 1) / page_words * page_words;
  for (std::size_t i = 0; i < thread_count; ++i) {
    threads.emplace_back([&, begin = (i + 1) * part, end = (i + 2) * part] {
      std::uint64_t salt = 0;
      while (!stopping.load()) {
        check("thread", begin, end, salt);
        write(begin, end, ++salt);
      }
    });
  }
  int outcome = 0;
  for (int round = 0; round < rounds && outcome == 0; ++round) {
    std::vector<pid_t> children;
    for (std::uint64_t child = 1; child <= child_count; ++child) {
      children.push_back(fork_or_die());
      if (children.back() != 0) continue;
      // Nobody writes to the first part. The part that the threads were writing is somewhere between two of their
      // rounds.
      check("child", 0, part, 0);
      write(part, word_count, 7);
      check("child", part, word_count, 7);
      check("child", 0, part, 0);
      std::_Exit(0);
    }
    outcome = wait_for(children);
  }
  stopping.store(true);
  for (std::thread& thread : threads) thread.join();
  check("parent", 0, part, 0);
  return outcome;
}

void allocate_and_free(const std::atomic<bool>& stopping) {
  constexpr std::size_t most_blocks = 256;
  std::vector<void*> blocks(most_blocks);
  std::size_t size = 16;
  while (!stopping.load()) {
    for (void*& block : blocks) {
      size = size * 5 % 32749 + 16;
      block = std::malloc(size);
      if (block == nullptr) std::_Exit(cannot_try);
      std::memset(block, 1, size);
    }
    for (void* const block : blocks) std::free(block);
  }
}

// Owns all of its memory piece by piece, with a child of its own after each.
void fork_while_evicting(int rounds) {
  std::atomic<bool> stopping{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { allocate_and_free(stopping); });
  const std::size_t step = word_count / 64;
  for (int round = 1; round <= rounds; ++round) {
    for (std::size_t begin = 0; begin < word_count; begin += step) {
      const std::size_t end = begin + step < word_count ? begin + step : word_count;
      write(begin, end, static_cast<std::uint64_t>(round));
      const pid_t child = fork_or_die();
      if (child == 0) {
        check("grandchild", begin, end, static_cast<std::uint64_t>(round));
        std::_Exit(0);
      }
      const int outcome = wait_for({child});
      if (outcome != 0) std::_Exit(outcome);
    }
    check("child", 0, word_count, static_cast<std::uint64_t>(round));
  }
  stopping.store(true);
  for (std::thread& thread : threads) thread.join();
}

int nested(std::uint64_t child_count, int rounds) {
  for (std::uint64_t child = 1; child <= child_count; ++child) {
    const pid_t pid = fork_or_die();
    if (pid == 0) {
      fork_while_evicting(rounds);
      std::_Exit(0);
    }
    const int outcome = wait_for({pid});
    if (outcome != 0) return outcome;
  }
  check("parent", 0, word_count, 0);
  return 0;
}

long resident_kib() {
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  if (status == nullptr) std::_Exit(cannot_try);
  long kib = 0;
  char line[256];
  while (std::fgets(line, sizeof line, status) != nullptr) {
    if (std::sscanf(line, "RssAnon: %ld kB", &kib) == 1) break;
  }
  std::fclose(status);
  return kib;
}

int resident(int rounds) {
  const pid_t child = fork_or_die();
  if (child != 0) return wait_for({child});
  long most = 0;
  const std::size_t step = word_count / 16;
  check("child", 0, word_count, 0);
  for (int round = 1; round <= rounds; ++round) {
    for (std::size_t begin = 0; begin < word_count; begin += step) {
      const std::size_t end = begin + step < word_count ? begin + step : word_count;
      write(begin, end, static_cast<std::uint64_t>(round));
      const long now = resident_kib();
      if (now > most) most = now;
    }
    check("child", 0, word_count, static_cast<std::uint64_t>(round));
  }
  std::printf("most anonymous memory: %ld KiB\n", most);
  std::fflush(stdout);
  std::_Exit(0);
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 5) {
    std::fputs("usage: prefork MIB CHILDREN ROUNDS WAY\n", stderr);
    return cannot_try;
  }
  word_count = (std::size_t{std::strtoul(arguments[1], nullptr, 10)} << 20) / sizeof(std::uint64_t);
  const std::uint64_t children = std::strtoul(arguments[2], nullptr, 10);
  const int rounds = std::atoi(arguments[3]);
  const std::string_view way = arguments[4];
  words = static_cast<std::uint64_t*>(std::malloc(word_count * sizeof(std::uint64_t)));
  if (words == nullptr) return cannot_try;
  write(0, word_count, 0);
  int outcome = cannot_try;
  if (way == "workers" || way == "tree") outcome = workers(children, rounds, way == "tree");
  if (way == "daemon") outcome = be_daemon(rounds);
  if (way == "pool") outcome = pool(children, rounds);
  if (way == "killed") outcome = killed(children, rounds);
  if (way == "storm") outcome = storm(children, rounds);
  if (way == "nested") outcome = nested(children, rounds);
  if (way == "resident") outcome = resident(rounds);
  if (outcome == 0) std::puts("all data right");
  return outcome;
}
