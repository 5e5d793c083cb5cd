// Scenarios of mapper: calls that change memory beside the usual ones (protection keys, seals, shared segments, memory
// policies), structures with pointers, and signal handlers on stacks that the program has mapped.
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/fiemap.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <ucontext.h>

#include <algorithm>
#include <initializer_list>
#include <thread>

#include "mapper_tools.h"

namespace mapper {
namespace {

constexpr std::size_t block_bytes = 4 * mib;

int protect_with_key(char* at, std::size_t bytes, int protection, int key) {
  return static_cast<int>(syscall(SYS_pkey_mprotect, at, bytes, protection, key));
}

int seal(char* at, std::size_t bytes, unsigned long flags = 0) {
  return static_cast<int>(syscall(/* mseal */ 462, at, bytes, flags));
}

}  // namespace

// Without a key it is mprotect by another name; with one, on machines that have them, the key stays with the memory.
void protection_keys() {
  char* const block = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  say("takes access away", protect_with_key(block, block_bytes, PROT_NONE, -1));
  say("which is gone", std::string(access(block)));
  say("and cannot be populated", madvise(block, page, MADV_POPULATE_READ));
  press();
  say("gives it back", protect_with_key(block, block_bytes, both, -1));
  say("holds", content(block, block_bytes, 1));
  char* const reserved = map(8 * block_bytes, PROT_NONE);
  say("a reservation in use", protect_with_key(reserved, block_bytes, both, -1));
  say("and the next part by name", pkey_mprotect(reserved + block_bytes, block_bytes, both, -1));
  say("can be populated", madvise(reserved, page, MADV_POPULATE_WRITE));
  fill(reserved, 2 * block_bytes, 2);
  press();
  say("holds", content(reserved, 2 * block_bytes, 2));
  say("behind it", std::string(access(reserved + 2 * block_bytes)));
  say("a key that nobody has", protect_with_key(block, mib, PROT_READ, 9));
  fill(block, page, 3);
  const int key = pkey_alloc(0, PKEY_DISABLE_WRITE);
  if (key < 0) return;
  char* const later = reserved + 4 * block_bytes;
  say("a key for a reservation", protect_with_key(later, block_bytes, PROT_NONE, key));
  say("in use", mprotect(later, block_bytes, both));
  const auto writable = [&] {
    if (sigsetjmp(jump, 1) != 0) return "fault";
    *const_cast<volatile char*>(later) = 1;
    return "writable";
  };
  say("without the right", std::string(writable()));
  say("pkey_set", pkey_set(key, 0));
  fill(later, block_bytes, 4);
  press();
  say("holds", content(later, block_bytes, 4));
  say("pkey_set", pkey_set(key, PKEY_DISABLE_WRITE));
  press();
  say("without the right again", std::string(writable()));
}

void sealed() {
  char* const block = map_aligned(block_bytes);
  char* const constant = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  fill(constant, block_bytes, 2);
  say("read-only", mprotect(constant, block_bytes, PROT_READ));
  if (seal(block + mib, 0) != 0) return;  // the kernel has no seals
  say("unknown flags", seal(block, mib, 1));
  say("unaligned", seal(block + 1, mib));
  say("seals a part", seal(block + mib, mib));
  say("seals what is read-only", seal(constant, block_bytes));
  press();
  say("holds", content(block, block_bytes, 1));
  fill(block, block_bytes, 3);
  press();
  say("read-only", content(constant, block_bytes, 2));
  say("munmap of all", munmap(block, block_bytes));
  say("mprotect", mprotect(block + mib, page, PROT_NONE));
  say("mmap over it", mmap(block, block_bytes, both, anonymous | MAP_FIXED, -1, 0));
  say("a stack over it", mmap(block, block_bytes, both, anonymous | MAP_FIXED | MAP_STACK, -1, 0));
  say("mremap", mremap(block + mib, mib, 2 * mib, MREMAP_MAYMOVE));
  say("mremap that keeps it", mremap(block + mib, mib, mib, MREMAP_MAYMOVE | MREMAP_DONTUNMAP));
  say("mremap, shorter", mremap(block + mib, mib, page, 0));
  char* const other = map_aligned(mib);
  say("mremap over it", mremap(other, mib, mib, MREMAP_MAYMOVE | MREMAP_FIXED, block + mib));
  say("mremap out of the heap",
      mremap(block + mib, mib, mib, MREMAP_MAYMOVE | MREMAP_FIXED, map(mib, PROT_NONE, anonymous | MAP_STACK)));
  say("drops what it could write", madvise(block + mib, page, MADV_DONTNEED));
  say("which reads", content(block + mib, page, 0));
  for (const int advice : {MADV_DONTNEED, MADV_FREE, MADV_DONTFORK, MADV_WIPEONFORK, MADV_GUARD_INSTALL}) {
    say("drops what it could not", madvise(constant, page, advice));
  }
  say("gives advice", madvise(constant, block_bytes, MADV_PAGEOUT));
  say("read-only", content(constant, block_bytes, 2));
  say("before the seal", munmap(block, mib));
  say("after the seal", munmap(block + 2 * mib, 2 * mib));
  munmap(other + page, page);
  say("a range with a hole", seal(other, 3 * page));
  say("is not sealed", munmap(other, page));
}

// What the kernel refuses to unmap, replace or move because a part of it is sealed stays as it is, neighbours included.
void sealed_neighbours() {
  static constexpr std::size_t third = 64 * 1024;
  static char array[14 * mib];
  const int file = file_of(third, 4);
  char* const block = map_aligned(mib);
  fill(block, mib, 1);
  map_over(block + third, third, both, MAP_SHARED, file);
  if (seal(block + third, 0) != 0) return;  // the kernel has no seals
  say("seals a file", seal(block + third, third));
  say("munmap", munmap(block, 3 * third));
  say("mmap over it", mmap(block, 3 * third, both, anonymous | MAP_FIXED, -1, 0));
  say("a file over it", mmap(block, 3 * third, both, MAP_SHARED | MAP_FIXED, file, 0));
  say("before it", content(block, third, 1));
  say("the file", content(block + third, third, 4));
  say("behind it", content(block + 2 * third, third, 1 + static_cast<int>(2 * third / page * 7)));
  // Only whole blocks of 2 MiB of an array are far. Its end is the kernel's.
  const auto end = reinterpret_cast<std::uintptr_t>(array) + sizeof(array) - page;
  auto* const last = reinterpret_cast<char*>(end / (2 * mib) * (2 * mib));
  fill(last - mib, mib, 2);
  say("seals the end of an array", seal(last, page));
  say("munmap", munmap(last - mib, mib + page));
  say("the array", content(last - mib, mib, 2));
}

void moved_sealed() {
  constexpr std::size_t bytes = 64 * 1024;
  const int file = file_of(bytes, 4);
  auto* const native = static_cast<char*>(mmap(nullptr, bytes, both, MAP_SHARED, file, 0));
  char* const block = map_aligned(bytes);
  char* const target = map_aligned(bytes);
  fill(block, bytes, 1);
  fill(target, bytes, 2);
  if (seal(block, 0) != 0) return;  // the kernel has no seals
  say("seals", seal(block, bytes));
  constexpr int fixed = MREMAP_MAYMOVE | MREMAP_FIXED;
  say("moves out of the heap", mremap(block, bytes, bytes, fixed, native));
  say("moves a part of it", mremap(block, bytes, page, fixed, native));
  say("the file", content(native, bytes, 4));
  say("as long as it was", mremap(block, bytes, bytes, 0));
  say("seals a file", seal(native, bytes));
  say("moves it into the heap", mremap(native, bytes, bytes, fixed, target));
  say("what was there", content(target, bytes, 2));
  say("the source", content(block, bytes, 1));
  map_over(target + 4 * page, 4 * page, both, MAP_SHARED, file);
  say("seals a part of the heap", seal(target + 4 * page, 4 * page));
  char* const other = map_aligned(bytes);
  fill(other, bytes, 3);
  say("moves it in the heap", mremap(target + 4 * page, 4 * page, 4 * page, fixed, other));
  say("as long as that was", mremap(target + 4 * page, 4 * page, 4 * page, 0));
  say("what was there", content(other, bytes, 3));
  char* const cut = map_aligned(2 * bytes);
  fill(cut + bytes, bytes, 5);
  map_over(cut, bytes, both, MAP_SHARED, file);
  say("seals what is behind a file", seal(cut + bytes, bytes));
  say("moves the file alone", mremap(cut, 2 * bytes, bytes, fixed, other));
  say("the file", content(cut, bytes, 4));
  say("behind it", content(cut + bytes, bytes, 5));
}

// A segment that lasts no longer than its last attachment, as one does that was removed while others have it.
// Nothing is said while all is well: only root may ask for this.
void segment_of_attachments() {
  if (unshare(CLONE_NEWIPC) != 0) return;
  const int setting = open("/proc/sys/kernel/shm_rmid_forced", O_WRONLY);
  if (setting < 0 || write(setting, "1", 1) != 1) return;
  const int segment = shmget(IPC_PRIVATE, mib, IPC_CREAT | 0600);
  char* const block = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  const void* const attached = shmat(segment, block + mib, SHM_REMAP);
  if (attached == MAP_FAILED) std::printf("a segment ends before it is attached\n");
  fill(block + mib, mib, 2);
  press();
  if (content(block + mib, mib, 2) != "kept" || content(block, mib, 1) != "kept") std::printf("bytes are lost\n");
}

// A ring buffer's way to a place: map anything, unmap it, attach there. And SHM_REMAP, over what is mapped.
void shared_segments() {
  const int segment = shmget(IPC_PRIVATE, mib, IPC_CREAT | 0600);
  char* const block = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  press();
  say("where something is mapped", shmat(segment, block, 0));
  say("holds", content(block, block_bytes, 1));
  say("instead of it", shmat(segment, block + mib, SHM_REMAP));
  say("reads", content(block + mib, mib, 0));
  fill(block + mib, mib, 2);
  munmap(block + 2 * mib, mib);
  say("in a hole", shmat(segment, block + 2 * mib + 8, SHM_RND));
  press();
  say("the same bytes", content(block + 2 * mib, mib, 2));
  say("before them", content(block, mib, 1));
  say("behind them", content(block + 3 * mib, mib, 1 + static_cast<int>(3 * mib / page * 7)));
  say("shmdt", shmdt(block + mib));
  say("which is gone", std::string(access(block + mib)));
  say("shmdt again", shmdt(block + mib));
  say("shmdt of the other", shmdt(block + 2 * mib));
  shmctl(segment, IPC_RMID, nullptr);
  say("no such segment", shmat(segment, block + mib, SHM_REMAP));
  say("memory there", mmap(block + mib, 2 * mib, both, anonymous | MAP_FIXED_NOREPLACE, -1, 0));
  fill(block + mib, 2 * mib, 3);
  press();
  say("holds", content(block + mib, 2 * mib, 3));
}

// The kernel reads and writes these arrays, which are larger than any structure.
void memory_policies() {
  constexpr std::size_t count = 30'000;
  static char local[page];
  local[0] = 1;
  char* const block = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  auto* const nodes = static_cast<unsigned long*>(std::calloc(64, sizeof(unsigned long)));
  auto* const places = static_cast<void**>(std::malloc(count * sizeof(void*)));
  auto* const status = static_cast<int*>(std::malloc(count * sizeof(int)));
  std::fill_n(places, count, static_cast<void*>(local));
  std::fill_n(status, count, -1);
  nodes[0] = 1;
  press();
  constexpr int bind = 2;
  constexpr unsigned long most_nodes = 1024;
  say("mbind", syscall(SYS_mbind, block + mib, mib, bind, nodes, most_nodes, 0));
  press();
  say("move_pages", syscall(SYS_move_pages, 0, count, places, nullptr, status, 0));
  say("on the first node", static_cast<long>(std::count(status, status + count, 0)));
  press();
  int policy = -1;
  nodes[0] = 0;
  say("get_mempolicy", syscall(SYS_get_mempolicy, &policy, nodes, most_nodes, block + mib, 2 /* MPOL_F_ADDR */));
  say("policy", static_cast<long>(policy));
  say("nodes", static_cast<long>(nodes[0]));
  say("holds", content(block, block_bytes, 1));
  fill(block, block_bytes, 2);
  press();
  say("holds", content(block, block_bytes, 2));
}

// What a structure points to, or what follows it, is also memory that the kernel reads or writes.
void pointers_in_structures() {
  constexpr std::size_t extents = 500;
  constexpr std::size_t instructions = 4000;
  constexpr sock_filter pass = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  ifconf list{};
  list.ifc_len = 64 * sizeof(ifreq);
  list.ifc_buf = static_cast<char*>(std::malloc(64 * sizeof(ifreq)));
  press();
  say("interfaces", ioctl(udp, SIOCGIFCONF, &list));
  say("some", static_cast<long>(list.ifc_len > 0 && list.ifc_req[0].ifr_name[0] != 0));
  auto* const link = static_cast<ethtool_value*>(std::calloc(1, sizeof(ethtool_value)));
  link->cmd = ETHTOOL_GLINK;
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_data = reinterpret_cast<char*>(link);
  press();
  say("link", ioctl(udp, SIOCETHTOOL, &loopback));
  auto* const map_of_file = static_cast<fiemap*>(std::calloc(1, sizeof(fiemap) + extents * sizeof(fiemap_extent)));
  map_of_file->fm_length = FIEMAP_MAX_OFFSET;
  map_of_file->fm_extent_count = extents;
  const int file = file_of(mib, 1);
  press();
  const bool mapped = ioctl(file, FS_IOC_FIEMAP, map_of_file) == 0;
  std::printf("extents: %s\n", mapped || errno == EOPNOTSUPP ? "known, if to the file system" : std::strerror(errno));
  auto* const code = static_cast<sock_filter*>(std::malloc(instructions * sizeof(sock_filter)));
  std::fill_n(code, instructions, sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0});
  code[instructions - 1] = pass;
  auto* const filter = static_cast<sock_fprog*>(std::malloc(sizeof(sock_fprog)));
  *filter = {.len = 64, .filter = code + instructions - 64};
  press();
  say("filter of a socket", setsockopt(udp, SOL_SOCKET, SO_ATTACH_FILTER, filter, sizeof *filter));
  *filter = {.len = instructions, .filter = code};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  press();
  say("filter of the process", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter));
  press();
  say("another one", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter));
}

namespace {

volatile long handled;
ucontext_t outside;
ucontext_t coroutine;

void handle(int) {
  volatile char room[6 * page];  // more than the page that the frame is on
  for (std::size_t i = 0; i < sizeof room; i += page / 2) room[i] = 1;
  handled = handled + room[0];
}

void set_handler(int signal, int flags) {
  struct sigaction action{};
  action.sa_handler = handle;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

// Waits without a system call or a function call, so that nothing below its stack pointer is touched. What a handler
// interrupts must find its registers, those of the processor's vector unit, too.
double spin_until(long wanted) {
  double half = static_cast<double>(wanted) + 0.5;
  while (handled < wanted) half += 0.0;
  return half;
}

// Far memory leaves while the thread spins; only then comes the signal.
void interrupt(pthread_t thread, int signal) {
  press();
  pthread_kill(thread, signal);
}

void run_coroutine() {
  const pthread_t self = pthread_self();
  double sum = 0;
  for (long round = 1; round <= 2; ++round) {
    std::thread interrupter([self] { interrupt(self, SIGUSR1); });
    sum += spin_until(round);
    interrupter.join();
  }
  std::printf("in the coroutine: %.1f\n", sum);
}

void* be_interrupted(void*) {
  std::printf("in the thread: %.1f\n", spin_until(3));
  return nullptr;
}

}  // namespace

// Stacks of coroutines and of threads that the program has made of ordinary memory: what lies below the stack pointer
// is far when a signal comes.
void signals_on_stacks() {
  constexpr std::size_t stack_bytes = std::size_t{256} * 1024;
  set_handler(SIGUSR1, 0);
  set_handler(SIGUSR2, SA_RESTART | SA_NODEFER);
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = map(stack_bytes);
  coroutine.uc_stack.ss_size = stack_bytes;
  coroutine.uc_link = &outside;
  makecontext(&coroutine, run_coroutine, 0);
  swapcontext(&outside, &coroutine);
  say("handled", handled);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, map(stack_bytes), stack_bytes);
  pthread_t thread{};
  pthread_create(&thread, &attributes, be_interrupted, nullptr);
  interrupt(thread, SIGUSR2);
  pthread_join(thread, nullptr);
  say("handled", handled);
  struct sigaction now{};
  sigaction(SIGUSR2, nullptr, &now);
  std::printf("the action: %s, flags %x\n", now.sa_handler == handle ? "as set" : "another",
              static_cast<unsigned>(now.sa_flags));
  set_handler(SIGUSR1, static_cast<int>(SA_RESETHAND));
  raise(SIGUSR1);
  sigaction(SIGUSR1, nullptr, &now);
  std::printf("used up: %s\n", now.sa_handler == SIG_DFL ? "yes" : "no");
  say("handled", handled);
}

namespace {

constexpr std::size_t big = mib;  // of stack, more than any signal stack of the runtime
sigjmp_buf before_jump;

std::string blocked() {
  sigset_t now;
  sigprocmask(SIG_SETMASK, nullptr, &now);
  std::string names;
  for (int number : {SIGUSR1, SIGUSR2, SIGWINCH, SIGRTMIN + 1}) {
    names += sigismember(&now, number) != 0 ? " " + std::to_string(number) : "";
  }
  return names;
}

void tell(int number, siginfo_t* info, void* context) {
  volatile char room[big];
  for (std::size_t i = 0; i < big; i += page) room[i] = 1;
  const bool linked = static_cast<ucontext_t*>(context)->uc_link != nullptr;
  std::printf("%d with %d, blocked%s%s\n", number, number > 31 ? info->si_value.sival_int : room[0] - 1,
              blocked().c_str(), linked ? ", a link" : "");
}

void tell_and_jump(int number, siginfo_t* info, void* context) {
  tell(number, info, context);
  siglongjmp(before_jump, 1);
}

sigset_t set_of(std::initializer_list<int> numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (int number : numbers) sigaddset(&set, number);
  return set;
}

void set_teller(int number, int flags, sigset_t mask = set_of({}), void (*handler)(int, siginfo_t*, void*) = tell) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = flags | SA_SIGINFO;
  action.sa_mask = mask;
  sigaction(number, &action, nullptr);
}

void send_together() {
  raise(SIGUSR1);
  raise(SIGUSR2);
  for (int value = 1; value <= 3; ++value) sigqueue(getpid(), SIGRTMIN + 1, sigval{.sival_int = value});
}

void receive_together() {
  const sigset_t all = set_of({SIGUSR1, SIGUSR2, SIGRTMIN + 1});
  pthread_kill(pthread_self(), SIGUSR1);
  pthread_kill(pthread_self(), SIGUSR2);
  pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
}

}  // namespace

// The kernel delivers all of them before the first handler begins.
void signals_together() {
  const sigset_t all = set_of({SIGUSR1, SIGUSR2, SIGRTMIN + 1});
  const sigset_t none = set_of({SIGWINCH});
  set_teller(SIGUSR1, 0);
  set_teller(SIGUSR2, SA_NODEFER, set_of({SIGWINCH}));
  set_teller(SIGRTMIN + 1, SA_NODEFER);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  send_together();
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
  std::printf("after these:%s\n", blocked().c_str());
  sigprocmask(SIG_BLOCK, &all, nullptr);
  send_together();
  say("suspended", sigsuspend(&none));
  std::printf("after these:%s\n", blocked().c_str());
  std::thread(receive_together).join();
  set_handler(SIGUSR1, 0);
  set_handler(SIGUSR2, 0);
  std::thread(receive_together).join();
  say("handled", handled);
  // The one that runs first leaves the other behind; the next uses up its action.
  set_teller(SIGUSR2, 0, set_of({}), tell_and_jump);
  set_teller(SIGUSR1, static_cast<int>(SA_RESETHAND), set_of({SIGWINCH}));
  raise(SIGUSR1);
  raise(SIGUSR2);
  if (sigsetjmp(before_jump, 1) == 0) sigprocmask(SIG_UNBLOCK, &all, nullptr);
  std::printf("after the jump:%s\n", blocked().c_str());
  struct sigaction now{};
  sigaction(SIGUSR1, nullptr, &now);
  std::printf("used up: %d, mask kept: %d\n", now.sa_handler == SIG_DFL, sigismember(&now.sa_mask, SIGWINCH));
}

// What the kernel refuses changes nothing.
void refused_actions() {
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)();
    unsigned long mask;
  } action{};
  set_handler(SIGUSR1, 0);
  syscall(SYS_rt_sigaction, SIGUSR1, nullptr, &action, sizeof action.mask);
  action.handler = [](int) { std::puts("the wrong handler"); };
  say("half a mask", syscall(SYS_rt_sigaction, SIGUSR1, &action, nullptr, sizeof action.mask / 2));
  say("a signal that has no handler", syscall(SYS_rt_sigaction, SIGKILL, &action, nullptr, sizeof action.mask));
  raise(SIGUSR1);
  say("handled", handled);
}

namespace {

// Structures at MAP_FAILED, which would go on behind the last address.
void wrong_ends(int udp, int file) {
  void* const last = MAP_FAILED;
  char* const environment[] = {nullptr};
  say("read into nothing", readv(file, static_cast<iovec*>(last), 1));
  say("write of nothing", writev(file, static_cast<iovec*>(last), 1));
  say("send nothing", sendmsg(udp, static_cast<msghdr*>(last), 0));
  say("receive nothing", recvmsg(udp, static_cast<msghdr*>(last), MSG_DONTWAIT));
  say("filter from the end", setsockopt(udp, SOL_SOCKET, SO_ATTACH_FILTER, last, sizeof(sock_fprog)));
  say("extents at the end", ioctl(file, FS_IOC_FIEMAP, last));
  say("a program for the kernel", syscall(SYS_bpf, BPF_MAP_CREATE, last, 64));
  say("arguments from the end", execve("/proc/self/exe", static_cast<char**>(last), environment));
}

// A structure whose last bytes, which are no whole word, lie behind the end of what is mapped.
void cut_structure() {
  constexpr unsigned bytes = 127;
  char* const two = map(2 * page);
  munmap(two + page, page);
  say("a part of a program", syscall(SYS_bpf, BPF_PROG_LOAD, two + page - bytes / 8 * 8, bytes));
}

}  // namespace

// Pointers and lengths in structures that are wrong are for the kernel to refuse.
void wrong_structures() {
  void* const nowhere = reinterpret_cast<void*>(16);
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  const int file = file_of(mib, 1);
  say("filter from nowhere", setsockopt(udp, SOL_SOCKET, SO_ATTACH_FILTER, nowhere, sizeof(sock_fprog)));
  say("interfaces to nowhere", ioctl(udp, SIOCGIFCONF, nowhere));
  char* const two = map(2 * block_bytes);
  munmap(two + block_bytes, block_bytes);
  auto* const last = reinterpret_cast<ifreq*>(two + block_bytes) - 64;
  ifconf list{};
  list.ifc_len = INT_MAX;
  list.ifc_req = last;
  press();
  say("more than is mapped", ioctl(udp, SIOCGIFCONF, &list));
  say("some", static_cast<long>(list.ifc_len > 0 && last->ifr_name[0] != 0));
  say("of a file", ioctl(file, SIOCGIFCONF, &list));
  auto* const extents = reinterpret_cast<fiemap*>(two + block_bytes - 2 * page);
  *extents = {};
  extents->fm_length = FIEMAP_MAX_OFFSET;
  for (const unsigned count : {UINT_MAX, static_cast<unsigned>(UINT_MAX / sizeof(fiemap_extent))}) {
    extents->fm_extent_count = count;
    press();
    say("extents", ioctl(file, FS_IOC_FIEMAP, extents));
  }
  wrong_ends(udp, file);
  cut_structure();
}

}  // namespace mapper
