// A program that calls the kernel in the ways that are hard for somebody in between: threads cancelled inside a call,
// calls left by siglongjmp, calls that a signal interrupts, with buffers in far memory, and calls that fail. Its output
// does not depend on time.
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t far_bytes = std::size_t{96} << 20;  // more than the budget

unsigned char* memory = nullptr;

// Where the part of a message lies.
std::size_t place_of(std::size_t round, std::size_t part) {
  return (round * 3 + part) * 5 % (far_bytes / page) * page;
}

unsigned char content(std::size_t at) {
  return static_cast<unsigned char>(at / page * 7 + at % 251);
}

// Everything else in `memory` is far afterwards.
std::size_t count_wrong() {
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < far_bytes; at += 509) wrong += memory[at] != content(at);
  return wrong;
}

void expect(bool is_right, const char* claim) {
  if (is_right) return;
  std::printf("wrong: %s (errno %d)\n", claim, errno);
  std::exit(1);
}

struct pipe_pair {
  int ends[2];
  pipe_pair() { expect(pipe(ends) == 0, "pipe"); }
  ~pipe_pair() {
    close(ends[0]);
    close(ends[1]);
  }
};

std::atomic<int> unwound{0};

struct counts_its_end {
  ~counts_its_end() { ++unwound; }
};

// Each is blocked in a read into far memory when it is cancelled; its destructors run.
void cancel_threads() {
  const pipe_pair silent;
  for (int round = 0; round < 40; ++round) {
    int end = silent.ends[0];
    pthread_t thread{};
    expect(pthread_create(
               &thread, nullptr,
               [](void* descriptor) -> void* {
                 const counts_its_end guard;
                 static_cast<void>(read(*static_cast<int*>(descriptor), memory + 50 * page, 3 * page));
                 return nullptr;
               },
               &end) == 0,
           "pthread_create");
    usleep(round % 4 == 0 ? 0 : 2000);
    pthread_cancel(thread);
    void* ended = nullptr;
    pthread_join(thread, &ended);
    expect(ended == PTHREAD_CANCELED, "the thread ends by its cancellation");
  }
  std::printf("cancelled, with destructors: %d\n", unwound.load() >= 30 ? 1 : 0);
}

sigjmp_buf back;
volatile sig_atomic_t signals = 0;
volatile sig_atomic_t jumps = 0;

void set_alarms(int flags, long interval_us) {
  struct sigaction action{};
  action.sa_handler = [](int) {
    signals = signals + 1;
    if (jumps != 0) siglongjmp(back, 1);
  };
  action.sa_flags = flags;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval every{{0, interval_us}, {0, interval_us}};
  setitimer(ITIMER_REAL, &every, nullptr);
}

// Blocked reads that never return, because the handler leaves them: of more memory, all in all, than the budget.
void leave_calls() {
  const pipe_pair silent;
  volatile int left = 0;
  jumps = 1;
  set_alarms(0, 1000);
  while (left < 600) {
    if (sigsetjmp(back, 1) == 0) {
      static_cast<void>(read(silent.ends[0], memory + static_cast<std::size_t>(left) * 16 * page, 16 * page));
    } else {
      left = left + 1;
    }
  }
  set_alarms(0, 0);
  jumps = 0;
  std::printf("left: %d\n", left);
}

void interrupt_calls() {
  const pipe_pair one;
  set_alarms(0, 2000);
  int interrupted = 0;
  for (int i = 0; i < 50; ++i) interrupted += read(one.ends[0], memory, 64) < 0 && errno == EINTR;
  epoll_event event{};
  const int epoll = epoll_create1(0);
  for (int i = 0; i < 50; ++i) interrupted += epoll_wait(epoll, &event, 1, 10'000) < 0 && errno == EINTR;
  close(epoll);
  // The kernel calls again by itself.
  set_alarms(SA_RESTART, 1000);
  std::thread writer([&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    usleep(100'000);
    expect(write(one.ends[1], memory, page) == page, "write");
  });
  const ssize_t got = read(one.ends[0], memory, page);
  set_alarms(0, 0);
  writer.join();
  std::printf("interrupted: %d, restarted: %zd\n", interrupted, got);
}

// A file in memory with as many zeros.
int make_file(std::size_t bytes) {
  const int file = memfd_create("caller", 0);
  expect(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0, "memfd_create");
  return file;
}

// Reads zeros here and there into far memory, which nobody uses afterwards; returns how many reads were whole.
int read_here_and_there(int file, int times) {
  int whole = 0;
  unsigned random = 1;
  for (int i = 0; i < times; ++i) {
    random = random * 1103515245 + 12345;
    unsigned char* const at = memory + far_bytes + (random >> 4) % 1000 * page;
    unsigned char* const seldom = memory + (random >> 4) % (far_bytes / page - 4) * page;
    whole += seldom[9] == content(static_cast<std::size_t>(seldom - memory) + 9) &&
             pread(file, at, 3 * page, 0) == 3 * page && pwrite(file, seldom, 3 * page, 4 * page) == 3 * page;
  }
  return whole;
}

// A thread whose stack is as small as can be.
void use_small_stack() {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, static_cast<std::size_t>(PTHREAD_STACK_MIN));
  int file = make_file(8 * page);
  pthread_t thread{};
  expect(
      pthread_create(
          &thread, &attributes,
          [](void* descriptor) -> void* {
            return reinterpret_cast<void*>(static_cast<long>(read_here_and_there(*static_cast<int*>(descriptor), 500)));
          },
          &file) == 0,
      "pthread_create");
  void* whole = nullptr;
  pthread_join(thread, &whole);
  pthread_attr_destroy(&attributes);
  close(file);
  std::printf("small stack: %ld\n", reinterpret_cast<long>(whole));
}

std::atomic<bool> child_goes_on{true};

// A child that is no thread, and runs with the thread-local variables of its parent, while that makes calls, too.
void share_variables() {
  constexpr std::size_t stack_bytes = std::size_t{256} << 10;
  static unsigned char stack[stack_bytes];
  int files[] = {make_file(8 * page), make_file(page)};
  const pid_t child = clone(
      [](void* descriptor) {
        for (int i = 0; i < 3'000'000 && child_goes_on; ++i)
          static_cast<void>(pwrite(*static_cast<int*>(descriptor), memory, 64, 0));
        return 0;
      },
      stack + stack_bytes, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | SIGCHLD, &files[1]);
  expect(child > 0, "clone");
  const int whole = read_here_and_there(files[0], 10'000);
  child_goes_on = false;
  int status = -1;
  expect(waitpid(child, &status, __WALL) == child, "waitpid");
  close(files[0]);
  close(files[1]);
  std::printf("shared variables: %d, child: %d\n", whole, status);
}

// A message is sent and received whole, also while much memory is held by other calls.
void send_messages() {
  constexpr std::size_t message_bytes = 200'000;
  constexpr std::size_t held_bytes = std::size_t{1} << 20;
  pipe_pair silent;
  std::vector<std::thread> holders;
  for (std::size_t i = 0; i < 8; ++i) {
    holders.emplace_back(
        [&, i] { static_cast<void>(read(silent.ends[0], memory + far_bytes / 2 + i * held_bytes, held_bytes)); });
  }
  usleep(300'000);
  for (const int type : {SOCK_DGRAM, SOCK_SEQPACKET}) {
    int sockets[2];
    expect(socketpair(AF_UNIX, type, 0, sockets) == 0, "socketpair");
    unsigned char* const into = memory + far_bytes;
    for (int round = 0; round < 2; ++round) {
      iovec part{memory, message_bytes};
      const ssize_t sent = round == 0 ? send(sockets[0], memory, message_bytes, 0) : writev(sockets[0], &part, 1);
      part = {into, message_bytes + page};
      const ssize_t got =
          round == 0 ? recv(sockets[1], into, message_bytes + page, MSG_DONTWAIT) : readv(sockets[1], &part, 1);
      std::printf("message: %zd, %zd, %d\n", sent, got, std::memcmp(memory, into, message_bytes));
    }
    close(sockets[0]);
    close(sockets[1]);
  }
  close(silent.ends[1]);
  silent.ends[1] = -1;
  for (std::thread& holder : holders) holder.join();
}

void transfer(std::size_t rounds) {
  int sockets[2];
  expect(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
  std::thread sender([&] {
    for (std::size_t i = 0; i < rounds; ++i) {
      std::array<iovec, 3> parts{};
      for (std::size_t part = 0; part < parts.size(); ++part) parts[part] = {memory + place_of(i, part), 100};
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = parts.size();
      expect(sendmsg(sockets[0], &message, 0) == 300, "sendmsg");
    }
  });
  std::size_t wrong = 0;
  auto* const into = memory + far_bytes;
  for (std::size_t i = 0; i < rounds; ++i) {
    std::array<iovec, 2> parts{{{into + i % 100 * page, 130}, {into + (100 + i % 200) * page, 170}}};
    std::size_t got = 0;
    while (got < 300) {
      std::array<iovec, 2> rest = parts;
      std::size_t skip = got;
      for (iovec& part : rest) {
        const std::size_t here = std::min(skip, part.iov_len);
        part = {static_cast<char*>(part.iov_base) + here, part.iov_len - here};
        skip -= here;
      }
      const ssize_t now = readv(sockets[1], rest.data(), rest.size());
      expect(now > 0, "readv");
      got += static_cast<std::size_t>(now);
    }
    for (std::size_t at = 0; at < 300; ++at) {
      const auto* const there = static_cast<unsigned char*>(at < 130 ? parts[0].iov_base : parts[1].iov_base);
      wrong += there[at < 130 ? at : at - 130] != content(place_of(i, at / 100) + at % 100);
    }
  }
  sender.join();
  close(sockets[0]);
  close(sockets[1]);
  std::printf("transferred, wrong: %zu\n", wrong);
}

// Files read and written side by side, by threads that wait for each other on a far lock.
void share_files(const char* path) {
  struct shared {
    pthread_mutex_t lock;
    long sum;
  };
  auto* const far_lock = reinterpret_cast<shared*>(memory + far_bytes + 500 * page);
  pthread_mutex_init(&far_lock->lock, nullptr);
  const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  expect(file >= 0 && ftruncate(file, 64 * page) == 0, "open");
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 2000; ++i) {
        const auto place = static_cast<off_t>((i * 4 + thread) % 64) * static_cast<off_t>(page);
        auto* const from = memory + static_cast<std::size_t>(i * 16 + thread) % (far_bytes / page - 1) * page;
        pthread_mutex_lock(&far_lock->lock);
        expect(pwrite(file, from, page, place) == page, "pwrite");
        auto* const into = memory + far_bytes + (600 + static_cast<std::size_t>(thread)) * page;
        expect(pread(file, into, page, place) == page, "pread");
        far_lock->sum += std::memcmp(from, into, page) == 0;
        pthread_mutex_unlock(&far_lock->lock);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  close(file);
  unlink(path);
  std::printf("equal: %ld\n", far_lock->sum);
}

void fail() {
  int failed = 0;
  failed += read(-1, memory, 10) < 0 && errno == EBADF;
  failed += open(reinterpret_cast<const char*>(memory), O_RDONLY) < 0 && errno != EFAULT;
  const pipe_pair one;
  static_cast<void>(write(one.ends[1], memory, 1));
  void* volatile nowhere = reinterpret_cast<void*>(8);
  failed += read(one.ends[0], nowhere, 1) < 0 && errno == EFAULT;
  failed += lseek(one.ends[0], 0, SEEK_CUR) < 0 && errno == ESPIPE;
  failed += poll(nullptr, 0, 1) == 0;
  const timespec soon{0, 1000};
  failed += ppoll(nullptr, 0, &soon, nullptr) == 0;
  std::printf("failed as they should: %d, parent is there: %d\n", failed, getppid() > 0);
}

// Whether there is something to read.
int left(int descriptor) {
  pollfd one{descriptor, POLLIN, 0};
  return poll(&one, 1, 0);
}

// A line that was typed is lost.
int read_line(void* place) {
  const int keyboard = posix_openpt(O_RDWR | O_NOCTTY);
  if (keyboard < 0 || grantpt(keyboard) != 0 || unlockpt(keyboard) != 0) return 0;
  const int terminal = open(ptsname(keyboard), O_RDWR | O_NOCTTY | O_NONBLOCK);
  static_cast<void>(write(keyboard, "line\n", 5));
  while (left(terminal) == 0) sched_yield();
  const int failure = read(terminal, place, 5) < 0 ? errno : 0;
  close(terminal);
  close(keyboard);
  return failure;
}

int read_message(void* place) {
  constexpr long most_bytes = 16;
  mq_attr kind{};
  kind.mq_maxmsg = 1;
  kind.mq_msgsize = most_bytes;
  const std::string name = "/caller-" + std::to_string(getpid());
  const int queue = mq_open(name.c_str(), O_RDWR | O_CREAT | O_NONBLOCK, 0600, &kind);
  if (queue < 0) return 0;
  mq_unlink(name.c_str());
  mq_send(queue, "x", 1, 0);
  const int failure = mq_receive(queue, static_cast<char*>(place), most_bytes, nullptr) < 0 ? errno : 0;
  mq_close(queue);
  return failure;
}

int take_signal(void* place) {
  sigset_t taken{};
  sigemptyset(&taken);
  sigaddset(&taken, SIGUSR2);
  sigset_t before{};
  pthread_sigmask(SIG_BLOCK, &taken, &before);
  raise(SIGUSR2);
  const timespec now{};
  const int failure = sigtimedwait(&taken, static_cast<siginfo_t*>(place), &now) < 0 ? errno : 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return failure;
}

int read_events(void* place, bool by_vector) {
  const int events = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
  const iovec vector{place, sizeof(std::uint64_t)};
  const ssize_t got = by_vector ? readv(events, &vector, 1) : read(events, place, sizeof(std::uint64_t));
  const int failure = got < 0 ? errno : 0;
  close(events);
  return failure;
}

// The error of a call, and in thousands how often something was sent all the same.
template <typename Send>
int send_once(Send send) {
  constexpr std::size_t bytes = 5;
  int ends[2];
  expect(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0, "socketpair");
  const pipe_pair passed;
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int result = send(file, ends[0], passed.ends[1], bytes) < 0 ? errno : 0;
  for (const int receiver : {ends[1], passed.ends[0]}) {
    std::array<char, bytes> sent{};
    for (; left(receiver) != 0; result += 1000) static_cast<void>(read(receiver, sent.data(), sent.size()));
  }
  for (const int one : {file, ends[0], ends[1]}) close(one);
  return result;
}

// Calls that take or give something before they find that they cannot say so: that is not to happen twice.
void fail_late() {
  for (const int protection : {PROT_NONE, PROT_READ}) {
    void* const bad = mmap(nullptr, page, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(bad != MAP_FAILED, "mmap");
    std::printf("late: %d %d %d %d %d\n", read_events(bad, false), read_events(bad, true), read_line(bad),
                read_message(bad), take_signal(bad));
    const auto by_sendfile = [bad](int file, int socket, int, std::size_t bytes) {
      return sendfile(socket, file, static_cast<off_t*>(bad), bytes);
    };
    const auto by_splice = [bad](int file, int, int into, std::size_t bytes) {
      return splice(file, static_cast<loff_t*>(bad), into, nullptr, bytes, 0);
    };
    const auto by_message = [bad](int, int socket, int, std::size_t) {
      return sendmmsg(socket, static_cast<mmsghdr*>(bad), 1, 0);
    };
    std::printf("sent: %d %d %d\n", send_once(by_sendfile), send_once(by_splice), send_once(by_message));
    munmap(bad, page);
  }
}

// Structures and texts that a call leads to, where they may not be read.
void fail_at_structures() {
  char* const place =
      static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  expect(place != MAP_FAILED, "mmap");
  std::memset(place, 'x', page);
  mprotect(place + page, page, PROT_NONE);
  void* const bad = place + page;
  const pipe_pair one;
  int ends[2];
  expect(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
  int failed = 0;
  failed += readv(one.ends[0], static_cast<const iovec*>(bad), 1) < 0 && errno == EFAULT;
  failed += sendmsg(ends[0], static_cast<const msghdr*>(bad), 0) < 0 && errno == EFAULT;
  char* const long_name[] = {place, nullptr};
  failed += execve("/proc/self/exe", long_name, environ) < 0 && errno == EFAULT;
  failed += execve("/proc/self/exe", static_cast<char* const*>(bad), environ) < 0 && errno == EFAULT;
  std::printf("bad structures: %d\n", failed);
  for (const int end : ends) close(end);
  munmap(place, 2 * page);
}

volatile sig_atomic_t lost_address_is_right = 0;

// What the kernel sends about memory of the machine that has failed, and which no handler can mend.
void lose_memory() {
  struct sigaction action{};
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    lost_address_is_right = info->si_code == BUS_MCEERR_AR && info->si_addr == memory;
  };
  action.sa_flags = SA_SIGINFO;
  struct sigaction before{};
  sigaction(SIGBUS, &action, &before);
  siginfo_t info{};
  info.si_signo = SIGBUS;
  info.si_code = BUS_MCEERR_AR;
  info.si_addr = memory;
  expect(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &info) == 0, "rt_tgsigqueueinfo");
  sigaction(SIGBUS, &before, nullptr);
  std::printf("told of lost memory: %d\n", static_cast<int>(lost_address_is_right));
}

void spawn() {
  char name[] = "true";
  char* arguments[] = {name, nullptr};
  int right = 0;
  for (int i = 0; i < 5; ++i) {
    pid_t child = 0;
    int status = -1;
    expect(posix_spawnp(&child, "true", nullptr, nullptr, arguments, environ) == 0, "posix_spawnp");
    right += waitpid(child, &status, 0) == child && status == 0;
  }
  std::printf("spawned: %d, system: %d\n", right, std::system("exit 3") >> 8);
}

// Children that close all that they do not know before they become a program, whose arguments are far.
void spawn_without_descriptors() {
  void* const cold = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  expect(cold != MAP_FAILED, "mmap");
  auto* const text = static_cast<char*>(cold);
  std::strcpy(text, "exit 7");
  char name[] = "sh";
  char option[] = "-c";
  char* arguments[] = {name, option, text, nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  int right = 0;
  for (int i = 0; i < 5; ++i) {
    pid_t child = 0;
    int status = -1;
    expect(madvise(text, page, MADV_PAGEOUT) == 0, "madvise");
    expect(posix_spawn(&child, "/bin/sh", &actions, nullptr, arguments, environ) == 0, "posix_spawn");
    right += waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7;
  }
  posix_spawn_file_actions_destroy(&actions);
  munmap(text, page);
  std::printf("spawned without descriptors: %d\n", right);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  memory = static_cast<unsigned char*>(std::malloc(far_bytes + 1024 * page));
  for (std::size_t at = 0; at < far_bytes; ++at) memory[at] = content(at);
  cancel_threads();
  leave_calls();
  use_small_stack();
  share_variables();
  send_messages();
  interrupt_calls();
  for (std::size_t at = 0; at < page; ++at) memory[at] = content(at);
  transfer(3000);
  share_files(arguments[1]);
  fail();
  fail_late();
  fail_at_structures();
  spawn();
  spawn_without_descriptors();
  lose_memory();
  std::printf("wrong bytes: %zu\n", count_wrong());
  return 0;
}
