// Scenarios of mapper: structures that lead the kernel to far memory, words that it changes there by itself, and calls
// and handlers that find no memory where they expect some.
#include <elf.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/tcp.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>

#include <cstddef>

#include "mapper_tools.h"

namespace mapper {
namespace {

constexpr std::size_t block_bytes = 8 * mib;

// All of a block becomes remote at once.
void send_away(const char* block) {
  madvise(const_cast<char*>(block), block_bytes, MADV_PAGEOUT);
}

// Places of a block that lie across two pages, far from each other.
char* across(char* block, std::size_t number) {
  return block + (number + 1) * mib / 2 - 4;
}

void look_at_registers(char* block) {
  const pid_t child = fork();
  while (child == 0) pause();
  say("seize", ptrace(PTRACE_SEIZE, child, nullptr, nullptr));
  say("interrupt", ptrace(PTRACE_INTERRUPT, child, nullptr, nullptr));
  int status = 0;
  waitpid(child, &status, 0);
  void* const kind = reinterpret_cast<void*>(std::uintptr_t{NT_PRSTATUS});
  iovec registers{across(block, 0), sizeof(user_regs_struct)};
  send_away(block);
  say("registers", ptrace(PTRACE_GETREGSET, child, kind, &registers));
  send_away(block);
  say("and back", ptrace(PTRACE_SETREGSET, child, kind, &registers));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
}

void ask_map_of_kernel(char* block) {
  constexpr std::uint32_t value_bytes = 8192;
  bpf_attr attributes{};
  attributes.map_type = BPF_MAP_TYPE_HASH;
  attributes.key_size = 8;
  attributes.value_size = value_bytes;
  attributes.max_entries = 4;
  const auto ask = [&](int command) { return syscall(SYS_bpf, command, &attributes, sizeof attributes); };
  const auto made = static_cast<int>(ask(BPF_MAP_CREATE));
  say("a map of the kernel", made >= 0 ? 0L : -1L);
  if (made < 0) return;
  const auto element = [&](char* key, char* value) {
    attributes = {};
    attributes.map_fd = static_cast<std::uint32_t>(made);
    attributes.key = reinterpret_cast<std::uint64_t>(key);
    attributes.value = reinterpret_cast<std::uint64_t>(value);
    send_away(block);
  };
  element(across(block, 0), across(block, 1));
  say("update", ask(BPF_MAP_UPDATE_ELEM));
  element(across(block, 0), across(block, 2));
  say("look-up", ask(BPF_MAP_LOOKUP_ELEM));
  say("is the same", std::memcmp(across(block, 1), across(block, 2), value_bytes));
  auto* const program = reinterpret_cast<bpf_insn*>(across(block, 4) + 4 - sizeof(bpf_insn));
  program[0] = {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0};
  program[1] = {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0};
  attributes = {};
  attributes.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
  attributes.insns = reinterpret_cast<std::uint64_t>(program);
  attributes.insn_cnt = 2;
  attributes.license = reinterpret_cast<std::uint64_t>("GPL");
  attributes.log_buf = reinterpret_cast<std::uint64_t>(across(block, 5));
  attributes.log_size = 100'000;
  attributes.log_level = 2;
  send_away(block);
  say("a program", ask(BPF_PROG_LOAD) >= 0 ? 0L : -1L);
}

void receive_without_copies(char* block) {
  constexpr std::size_t bytes = 1000;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  const int from = socket(AF_INET, SOCK_STREAM, 0);
  const bool is_ready = bind(listener, name, length) == 0 && listen(listener, 1) == 0 &&
                        getsockname(listener, name, &length) == 0 && connect(from, name, length) == 0;
  const int to = accept(listener, nullptr, nullptr);
  say("a connection", is_ready && to >= 0 ? 0L : -1L);
  void* const window = mmap(nullptr, 16 * page, PROT_READ, MAP_SHARED, to, 0);
  say("send", send(from, block, bytes, 0));
  char first = 0;
  while (recv(to, &first, 1, MSG_PEEK) != 1) continue;
  tcp_zerocopy_receive asked{};
  asked.address = reinterpret_cast<std::uint64_t>(window);
  asked.length = 16 * page;
  asked.copybuf_address = reinterpret_cast<std::uint64_t>(across(block, 3));
  asked.copybuf_len = 4 * page;
  send_away(block);
  length = sizeof asked;
  say("receive", getsockopt(to, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, &asked, &length));
  say("copied", static_cast<long>(asked.copybuf_len));
  say("is the same", std::memcmp(block, across(block, 3), bytes));
}

void fill_watched_memory(const char* block) {
  constexpr std::size_t bytes = 2 * mib;
  const auto watcher = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
  uffdio_api api{.api = UFFD_API, .features = 0, .ioctls = 0};
  char* const watched = map(bytes, both, MAP_SHARED | MAP_ANONYMOUS);
  uffdio_register asked{};
  asked.range = {.start = reinterpret_cast<std::uint64_t>(watched), .len = bytes};
  asked.mode = UFFDIO_REGISTER_MODE_MISSING;
  const bool is_watched = ioctl(watcher, UFFDIO_API, &api) == 0 && ioctl(watcher, UFFDIO_REGISTER, &asked) == 0;
  say("memory that is watched", is_watched ? 0L : -1L);
  uffdio_copy copy{};
  copy.dst = asked.range.start;
  copy.src = reinterpret_cast<std::uint64_t>(block);
  copy.len = bytes;
  send_away(block);
  say("copy", ioctl(watcher, UFFDIO_COPY, &copy));
  say("copied", copy.copy);
  if (is_watched) say("holds", content(watched, bytes, 1));
}

void name_in_attributes(char* block) {
  constexpr long set_attribute = 463;  // setxattrat(2) and getxattrat(2), since Linux 6.13
  constexpr long get_attribute = 464;
  struct {
    std::uint64_t value;
    std::uint32_t bytes;
    std::uint32_t flags;
  } asked{reinterpret_cast<std::uint64_t>(across(block, 0)), 8, 0};
  const int file = file_of(page, 1);
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  send_away(block);
  say("attribute", syscall(set_attribute, AT_FDCWD, path.c_str(), 0, "user.mapper", &asked, sizeof asked));
  asked.value = reinterpret_cast<std::uint64_t>(across(block, 1));
  send_away(block);
  say("reads", syscall(get_attribute, AT_FDCWD, path.c_str(), 0, "user.mapper", &asked, sizeof asked));
}

// Whether the program has told the kernel that it reads a mapping in no order.
long is_random(const char* address) {
  std::FILE* const mappings = std::fopen("/proc/self/smaps", "r");
  char line[512];
  bool is_its = false;
  long random = -1;
  while (std::fgets(line, sizeof line, mappings) != nullptr) {
    std::uintptr_t first = 0;
    std::uintptr_t end = 0;
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    if (std::sscanf(line, "%lx-%lx ", &first, &end) == 2) is_its = first <= wanted && wanted < end;
    if (is_its && std::strncmp(line, "VmFlags:", 8) == 0) random = std::strstr(line, " rr") != nullptr ? 1 : 0;
  }
  std::fclose(mappings);
  return random;
}

// Names of memory, which are remote.
void name_memory(char* block) {
  char* const named = map_aligned(block_bytes);
  char* const name = across(block, 0);
  const auto give = [&](void* memory, const char* text) {
    send_away(block);
    return prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, memory, page, text);
  };
  std::strcpy(name, "a name of mapper");
  char* const elsewhere = map(page, both, anonymous | MAP_LOCKED);
  say("name", give(named, name));
  say("name of locked memory", give(elsewhere, name));
  say("no name", give(named, nullptr));
  std::memset(name, 'n', 79);
  name[79] = 0;
  say("the longest name", give(named, name));
  // Between, there is memory of the kernel's.
  char* const foreign = map_over(named, page, both, MAP_SHARED | MAP_ANONYMOUS);
  say("random", madvise(foreign, page, MADV_RANDOM));
  say("name of what is over it", give(named, name) == 0 || errno == EBADF ? 0L : -1L);
  say("still random", is_random(foreign));
  const int file = file_of(page, 1);
  say("a file", mmap(named, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == named ? 0L : -1L);
  say("name of a file", give(named, name));
  map_over(named, page, both, anonymous);
  name[79] = 'n';
  say("one that is longer", give(named, name));
  name[3] = '\n';
  say("one with a wrong character", give(named, name));
  say("one at the end", give(named, static_cast<char*>(MAP_FAILED)));
  munmap(block + 3 * mib, page);
  std::memset(block + 3 * mib - 8, 'n', 8);
  say("one that has no end", give(named, block + 3 * mib - 8));
}

void share_extents(char* block) {
  constexpr std::uint16_t files = 100;
  const int file = file_of(mib, 1);
  auto* const asked = reinterpret_cast<file_dedupe_range*>(block + mib - 1504);
  std::memset(asked, 0, sizeof *asked + files * sizeof(file_dedupe_range_info));
  asked->src_length = 64 * 1024;
  asked->dest_count = files;
  for (int i = 0; i < files; ++i) asked->info[i].dest_fd = file_of(64 * 1024, 1);
  send_away(block);
  say("equal extents", ioctl(file, FIDEDUPERANGE, asked) < 0 && errno == EFAULT ? -1L : 0L);
}

}  // namespace

void structures_that_lead_far() {
  char* const block = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  receive_without_copies(block);
  fill_watched_memory(block);
  share_extents(block);
  name_memory(map_aligned(block_bytes));
  name_in_attributes(block);
  ask_map_of_kernel(block);
  look_at_registers(block);
}

// A filter ends the process at a call that only debuggers need.
void structures_under_a_filter() {
  constexpr unsigned ask_terminal = 0x802c542a;  // TCGETS2, whose structure has 44 bytes
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = sizeof code / sizeof code[0], .filter = code};
  char* const block = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  const int udp = socket(AF_INET, SOCK_DGRAM, 0);
  const int file = file_of(page, 1);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  say("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
  say("a second one", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
  say("no terminal", ioctl(file, ask_terminal, across(block, 0)));
  ifconf list{};
  list.ifc_len = 64 * sizeof(ifreq);
  list.ifc_buf = across(block, 1);
  send_away(block);
  say("interfaces", ioctl(udp, SIOCGIFCONF, &list));
  say("no terminal", ioctl(file, ask_terminal, across(block, 2)));
}

// A child with a number of its parent's choice, which is remote.
void chosen_number() {
  char* const block = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  const pid_t before = fork();
  if (before == 0) _exit(0);
  waitpid(before, nullptr, 0);
  auto* const number = reinterpret_cast<pid_t*>(block + mib / 2);
  *number = before;  // which is free again
  clone_args asked{};
  asked.exit_signal = SIGCHLD;
  asked.set_tid = reinterpret_cast<std::uint64_t>(number);
  asked.set_tid_size = 1;
  send_away(block);
  const long child = syscall(SYS_clone3, &asked, sizeof asked);
  if (child == 0) _exit(3);
  int status = -1;
  if (child > 0) waitpid(static_cast<pid_t>(child), &status, 0);
  if (child < 0) say("the child", child);
  say("has its number", static_cast<long>(child == before));
  say("ended with", static_cast<long>(WEXITSTATUS(status)));
}

// Words that the kernel changes itself.
void words_of_futexes() {
  char* const block = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  auto* const first = reinterpret_cast<std::uint32_t*>(block + mib);
  auto* const second = reinterpret_cast<std::uint32_t*>(block + 2 * mib);
  *first = 0;
  *second = 0;
  const auto call = [&](int operation, long value = 0, long other = 0, long last = 0) {
    send_away(block);
    return syscall(SYS_futex, first, operation | FUTEX_PRIVATE_FLAG, value, other, second, last);
  };
  say("changes the other one", call(FUTEX_WAKE_OP, 1, 1, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0)));
  say("which is", static_cast<long>(*second));
  say("moves no waiter", call(FUTEX_CMP_REQUEUE, 1, 1, 0));
  say("takes", call(FUTEX_LOCK_PI));
  say("gives back", call(FUTEX_UNLOCK_PI));
  say("which is", static_cast<long>(*first));
  say("takes if free", call(FUTEX_TRYLOCK_PI));
  say("gives back", call(FUTEX_UNLOCK_PI));
  mprotect(block + 2 * mib, page, PROT_READ);
  say("not where it may not", call(FUTEX_WAKE_OP, 1, 1, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0)));
  munmap(block + 2 * mib, page);
  say("nor where nothing is", call(FUTEX_WAKE_OP, 1, 1, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0)));
}

// A message for which there is not enough room is gone.
void messages_beyond_the_end() {
  constexpr std::size_t room = 5;
  char* const block = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  munmap(block + mib, mib);
  for (const int kind : {SOCK_DGRAM, SOCK_SEQPACKET}) {
    int ends[2];
    if (socketpair(AF_UNIX, kind, 0, ends) != 0) std::exit(1);
    iovec vector{block + mib - room, 11};
    for (int i = 0; i < 3; ++i) {
      const std::string text = "message " + std::to_string(i) + " ";
      send(ends[0], text.c_str(), text.size(), 0);
      send_away(block);
      const long got = i == 0   ? recv(ends[1], block + mib - room, 11, MSG_DONTWAIT)
                       : i == 1 ? read(ends[1], block + mib - room, 11)
                                : readv(ends[1], &vector, 1);
      say("beyond the end", got);
      say("is it there still", recv(ends[1], block, 11, MSG_DONTWAIT));
    }
  }
}

namespace {

sigjmp_buf never_set;

// How a child ends whose handler of SIGSEGV has no stack.
void end_without_stack(const char* name, void (*handler)(int), void (*body)()) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    struct sigaction action{};
    action.sa_handler = handler;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    alarm(120);
    body();
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  say(name, WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : "code " + std::to_string(status));
}

int sink(int depth) {
  volatile char room[page];
  room[depth % page] = 1;
  return depth < 0 ? 0 : sink(depth + 1) + room[0];
}

}  // namespace

void handlers_without_stack() {
  const auto ends = [](int) { _exit(42); };
  end_without_stack("at the end of the stack", ends, [] { static_cast<void>(sink(0)); });
  end_without_stack("after a jump to nowhere", [](int) { siglongjmp(never_set, 1); }, [] { raise(SIGSEGV); });
#if defined(__x86_64__)
  end_without_stack("without one", ends, [] { asm volatile("movq $16, %%rsp\n pushq $1" ::: "memory"); });
#endif
}

// Names of memory are for those who look at its mappings.
void named_memory() {
  constexpr int change_mapping = 0x53564d41;
  char* const block = map_aligned(block_bytes);
  fill(block, block_bytes, 1);
  const auto give = [block](std::size_t at, std::size_t bytes, const char* name) {
    return prctl(change_mapping, 0UL, block + at, bytes, name);
  };
  for (std::size_t i = 0; i < 4; ++i) say("gives a name", give(i * mib, mib / 2, i % 2 == 0 ? "one" : "two"));
  say("a bad one", give(0, mib, "[one]"));
  say("unaligned", give(1, mib, "one"));
  munmap(block + 2 * mib, mib);
  say("over a hole", give(mib, 3 * mib, "one"));
  send_away(block);
  say("holds", content(block, 2 * mib, 1));
  say("moves", mremap(block, 2 * mib, 4 * mib, MREMAP_MAYMOVE));
  say("takes names away", give(3 * mib, mib, nullptr));
  say("an offset within a page", mmap(nullptr, mib, both, anonymous, -1, 1));
  say("by number", syscall(SYS_mmap, nullptr, mib, both, anonymous, -1, 1));
}

namespace {

constexpr std::size_t mask_bytes = 8;

// What the kernel refuses where a structure is at `place`, which cannot be read, nor written to.
void refuse(const char* name, void* place) {
  std::printf("%s\n", name);
  timespec none{};
  const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  say("clone3", syscall(435, place, sizeof(clone_args)));
  say("sigaction", syscall(SYS_rt_sigaction, SIGUSR1, place, nullptr, mask_bytes));
  say("old action", syscall(SYS_rt_sigaction, SIGUSR1, nullptr, place, mask_bytes));
  say("sigaction of a signal that is used", syscall(SYS_rt_sigaction, SIGBUS, place, nullptr, mask_bytes));
  say("old action of it", syscall(SYS_rt_sigaction, SIGBUS, nullptr, place, mask_bytes));
  say("sigprocmask", syscall(SYS_rt_sigprocmask, SIG_BLOCK, place, nullptr, mask_bytes));
  say("old mask", syscall(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, place, mask_bytes));
  say("sigsuspend", syscall(SYS_rt_sigsuspend, place, mask_bytes));
  say("ppoll", syscall(SYS_ppoll, nullptr, 0, &none, place, mask_bytes));
  say("pselect", syscall(SYS_pselect6, 0, nullptr, nullptr, nullptr, &none, place));
  say("sigaltstack", sigaltstack(static_cast<stack_t*>(place), nullptr));
  say("old stack", sigaltstack(nullptr, static_cast<stack_t*>(place)));
  say("process_madvise", process_madvise(self, static_cast<iovec*>(place), 2, MADV_DONTNEED, 0));
  say("prlimit", prlimit(0, RLIMIT_AS, static_cast<rlimit*>(place), nullptr));
  say("old limit", prlimit(0, RLIMIT_DATA, nullptr, static_cast<rlimit*>(place)));
  close(self);
}

// Memory that may only be written can be read, too; what the program maps over far memory has rights of its own, also
// where a structure lies half in it.
void rights_of_pages(char* block) {
  char* const written = block + 4 * mib;
  char* const refused = block + 5 * mib;
  char* const allowed = block + 6 * mib;
  mprotect(written, page, PROT_WRITE);
  map_over(refused, page, PROT_READ, MAP_PRIVATE, file_of(page, 1));
  map_over(allowed, page, both, MAP_PRIVATE, file_of(page, 1));
  for (char* const at : {written, refused, refused - 4, refused + page - 4, allowed, allowed - 4, allowed + page - 4}) {
    send_away(block);
    say("mask", syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, at, nullptr, mask_bytes));
    send_away(block);
    say("old mask", syscall(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, at, mask_bytes));
    send_away(block);
    say("old limit", prlimit(0, RLIMIT_DATA, nullptr, reinterpret_cast<rlimit*>(at)));
  }
}

}  // namespace

// Structures that are served by others than the kernel are refused like its own.
void bad_pointers() {
  char* const block = map_aligned(2 * block_bytes);
  fill(block, 2 * block_bytes, 1);
  munmap(block + mib, page);
  mprotect(block + 2 * mib, page, PROT_NONE);
  send_away(block);
  refuse("nowhere", reinterpret_cast<void*>(16));
  refuse("at the end", MAP_FAILED);
  refuse("in a hole", block + mib);
  refuse("from before a hole", block + mib - 4);
  refuse("without access", block + 2 * mib);
  // What is to be stored is refused where it may only be read.
  mprotect(block + 3 * mib, page, PROT_READ);
  void* const readable = block + 3 * mib;
  say("old action", syscall(SYS_rt_sigaction, SIGUSR1, nullptr, readable, mask_bytes));
  say("old mask", syscall(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, readable, mask_bytes));
  say("old stack", sigaltstack(nullptr, static_cast<stack_t*>(readable)));
  say("old limit", prlimit(0, RLIMIT_AS, nullptr, static_cast<rlimit*>(readable)));
  say("holds", content(block + 3 * mib, page, 1 + static_cast<int>(3 * mib / page * 7 + 3 * mib / 64)));
  say("too short a request", syscall(435, block, 8));
  say("too long a request", syscall(435, block, 2 * page));
  rights_of_pages(block);
}

namespace {

// A call that waits with a mask, which `pair` names, too.
long wait_with(long number, const timespec* time, const std::uint64_t* mask, const long* pair) {
  if (number == SYS_rt_sigsuspend) return syscall(number, mask, mask_bytes);
  if (number == SYS_ppoll) return syscall(number, nullptr, 0, time, mask, mask_bytes);
  return syscall(number, 0, nullptr, nullptr, nullptr, time, pair);
}

}  // namespace

// Masks of signals, and what leads to them, are remote when a call begins to wait with them. They block all signals
// but the one that comes, whose handler makes a call of its own.
void masks_from_afar() {
  char* const block = map_aligned(block_bytes);
  auto* const mask = reinterpret_cast<std::uint64_t*>(block + mib);
  auto* const pair = reinterpret_cast<long*>(block + 2 * mib);
  signal(SIGALRM, [](int) { static_cast<void>(syscall(SYS_getppid)); });
  for (const bool interrupted : {false, true}) {
    const itimerval soon{{0, 20'000}, {0, 20'000}};
    const itimerval never{};
    for (const long number : {SYS_ppoll, SYS_pselect6, SYS_rt_sigsuspend}) {
      if (number == SYS_rt_sigsuspend && !interrupted) continue;
      for (const bool is_pair_near : {true, false}) {
        *mask = interrupted ? ~(std::uint64_t{1} << (SIGALRM - 1)) : ~std::uint64_t{0};
        const long near_pair[] = {reinterpret_cast<long>(mask), mask_bytes};
        std::memcpy(pair, near_pair, sizeof near_pair);
        timespec time{interrupted ? 60 : 0, 1'000'000};
        send_away(block);
        if (interrupted) setitimer(ITIMER_REAL, &soon, nullptr);
        say("waits", wait_with(number, &time, mask, is_pair_near ? near_pair : pair));
        setitimer(ITIMER_REAL, &never, nullptr);
      }
    }
  }
}

namespace {

// A new program with these arguments and this environment. The C library itself reads the arguments of posix_spawn().
void start(const char* name, char** arguments, char** environment, bool spawns) {
  constexpr const char* program = "/proc/self/exe";
  std::printf("%s\n", name);
  say("execve", execve(program, arguments, environment));
  say("by number", syscall(SYS_execve, program, arguments, environment));
  if (!spawns) return;
  pid_t child = 0;
  errno = posix_spawn(&child, program, nullptr, nullptr, arguments, environment);
  say("posix_spawn", errno != 0 ? -1L : 0L);
}

}  // namespace

void bad_environments() {
  auto* const nowhere = reinterpret_cast<char*>(16);
  char* const block = map_aligned(2 * block_bytes);
  munmap(block + mib, mib);
  auto** const list = reinterpret_cast<char**>(block + mib) - 2;
  list[0] = list[1] = block;
  std::strcpy(block, "NAME=value");
  char text[] = "mapper";
  char* good[] = {text, nullptr};
  char* bad[] = {text, nowhere, nullptr};
  send_away(block);
  start("environment nowhere", good, reinterpret_cast<char**>(nowhere), true);
  start("environment without end", good, list, true);
  start("variable nowhere", good, bad, true);
  start("arguments nowhere", reinterpret_cast<char**>(nowhere), good, false);
  start("arguments without end", list, good, false);
  start("argument nowhere", bad, good, true);
  std::memset(block + mib - 16, 'x', 16);
  bad[1] = block + mib - 16;
  start("text without end", good, bad, true);
}

}  // namespace mapper
