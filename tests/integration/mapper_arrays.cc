// Scenarios of mapper: system calls with large arrays, or with memory that they take as a whole or not at all.
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <thread>

#include "mapper_tools.h"

namespace mapper {
namespace {

constexpr std::size_t message_bytes = mib + page;

// The first request of the kernel, and our answer: it may send us messages of a mebibyte.
bool greet(int device) {
  std::vector<char> request(message_bytes);
  if (read(device, request.data(), request.size()) < static_cast<ssize_t>(sizeof(fuse_in_header))) return false;
  struct {
    fuse_out_header header;
    fuse_init_out init;
  } reply{};
  reply.header.len = sizeof reply;
  std::memcpy(&reply.header.unique, request.data() + offsetof(fuse_in_header, unique), sizeof reply.header.unique);
  reply.init.major = FUSE_KERNEL_VERSION;
  reply.init.minor = FUSE_KERNEL_MINOR_VERSION;
  reply.init.max_write = mib;
  reply.init.flags = FUSE_BIG_WRITES | FUSE_MAX_PAGES;
  reply.init.max_pages = mib / page;
  return write(device, &reply, sizeof reply) == sizeof reply;
}

}  // namespace

// mincore: a byte for each page.
void residency_of_much() {
  constexpr std::size_t bytes = 8192 * mib;
  const int file = memfd_create("much", MFD_CLOEXEC);
  if (ftruncate(file, bytes) != 0) std::exit(1);
  auto* const much = static_cast<char*>(mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0));
  auto* const residency = reinterpret_cast<unsigned char*>(map(bytes / page));
  say("of memory that nobody has touched", mincore(much, bytes, residency));
  for (std::size_t at = 0; at < bytes; at += 10000 * page) static_cast<void>(access(much + at));
  press();
  say("after it has left", mincore(much, bytes, residency));
  std::size_t resident = 0;
  for (std::size_t i = 0; i < bytes / page; ++i) resident += residency[i] & 1;
  say("resident at least where it was touched", static_cast<long>(resident >= bytes / page / 10000));
}

// execve: more arguments than fit in any one piece.
void many_arguments() {
  constexpr std::size_t count = 120'000;
  auto** const arguments = reinterpret_cast<char**>(map((count + 1) * sizeof(char*)));
  char* const texts = map(count * 2);
  for (std::size_t i = 0; i < count; ++i) {
    texts[2 * i] = static_cast<char>('a' + i % 26);
    arguments[i] = texts + 2 * i;
  }
  press();
  const pid_t child = fork();
  if (child == 0) {
    execve("/bin/true", arguments, environ);
    _exit(errno);
  }
  int status = -1;
  waitpid(child, &status, 0);
  say("a program with so many arguments", static_cast<long>(status));
}

// A receiver that leaves the bytes where they are cannot go on behind them.
void much_peeked_at() {
  constexpr std::size_t bytes = 6 * mib;
  constexpr int room = 4 * static_cast<int>(bytes);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::exit(1);
  if (setsockopt(ends[0], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0) return;
  char* const sent = map(bytes);
  char* const got = map(bytes);
  for (std::size_t i = 0; i < bytes; i += sizeof i) std::memcpy(sent + i, &i, sizeof i);
  const auto is_right = [&] { return static_cast<long>(std::memcmp(sent, got, bytes) == 0); };
  say("sent", send(ends[0], sent, bytes, MSG_DONTWAIT));
  press();
  say("peeked at", recv(ends[1], got, bytes, MSG_PEEK | MSG_WAITALL));
  say("which is right", is_right());
  std::memset(got, 0, bytes);
  say("received", recv(ends[1], got, bytes, MSG_WAITALL));
  say("which is right", is_right());
}

// One message of more than the budget, on a socket that takes a part of it at a time.
void much_sent() {
  constexpr std::size_t bytes = 96 * mib;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) std::exit(1);
  char* const sent = map(bytes);
  char* const got = map(bytes);
  fill(sent, bytes, 6);
  for (std::size_t done = 0, taken = 0; taken < bytes;) {
    std::array<iovec, 2> parts{iovec{sent + done, (bytes - done) / 2}, iovec{sent + done + (bytes - done) / 2, 0}};
    parts[1].iov_len = bytes - done - parts[0].iov_len;
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t now = done < bytes ? sendmsg(ends[0], &message, 0) : 0;
    if (now > 0) done += static_cast<std::size_t>(now);
    const ssize_t received = recv(ends[1], got + taken, bytes - taken, 0);
    if (received > 0) taken += static_cast<std::size_t>(received);
  }
  say("received", content(got, bytes, 6));
}

// One call of the kernel transfers 2 GiB less a page at most, and programs keep its result in an int.
void most_written() {
  const std::size_t bytes = 3072 * mib;
  char* const block = map(bytes);
  block[0] = 1;
  const int device = open("/dev/null", O_WRONLY | O_CLOEXEC);
  say("written", static_cast<long>(write(device, block, bytes)));
  const volatile std::size_t negative = ~std::size_t{0} - page;
  say("written of a negative size", static_cast<long>(write(device, block, negative)));
  close(device);
}

// The kernel refuses to give a request to a reader that could not take the longest one, while all others wait as well.
void messages_of_devices() {
  constexpr std::size_t readers = 12;
  const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  char folder[] = "/tmp/mapper-XXXXXX";
  if (device < 0 || mkdtemp(folder) == nullptr) return;
  const std::string options = "fd=" + std::to_string(device) + ",rootmode=40000,user_id=0,group_id=0";
  if (mount("mapper", folder, "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0 || !greet(device)) {
    rmdir(folder);
    return;
  }
  std::atomic<long> refused{0};
  std::vector<std::thread> waiting;
  for (std::size_t i = 0; i < readers; ++i) {
    waiting.emplace_back([&refused, device, buffer = map(2 * mib)] {
      if (read(device, buffer, message_bytes) < 0 && errno == EINVAL) ++refused;
    });
  }
  usleep(300'000);
  umount2(folder, MNT_DETACH);
  close(device);
  for (std::thread& reader : waiting) reader.join();
  rmdir(folder);
  say("readers that were refused", refused.load());
}

namespace {

// Pages that a call names, and the one of them that is not for the kernel to write to, or not to read either.
struct extent {
  std::size_t pages;
  std::size_t refused;

  [[nodiscard]] std::size_t bytes() const { return pages * page; }
};
constexpr extent few{8, 5};
constexpr extent many{768, 700};

void refuse_page(char* block, const extent& asked, const std::string& how) {
  char* const at = block + asked.refused * page;
  if (how == "hole") munmap(at, page);
  if (how == "no access") mprotect(at, page, PROT_NONE);
  if (how == "read-only") mprotect(at, page, PROT_READ);
  if (how == "guard") madvise(at, page, MADV_GUARD_INSTALL);
}

// A descriptor from which as much as is asked for can be read.
int source(const std::string& kind, char* block, const extent& asked) {
  int ends[2] = {-1, -1};
  if (kind == "zeros") return open("/dev/zero", O_RDONLY);
  if (kind == "memory") {
    const int file = open("/proc/self/mem", O_RDWR);
    lseek(file, static_cast<off_t>(reinterpret_cast<std::uintptr_t>(block) + 4 * mib), SEEK_SET);
    return file;
  }
  if (kind == "pipe" && pipe(ends) != 0) std::exit(1);
  if (kind == "socket" && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::exit(1);
  if (kind == "file" || kind == "direct") ends[0] = file_of(2 * asked.bytes(), 57);
  if (kind == "file") lseek(ends[0], 0, SEEK_SET);
  if (kind == "direct") {
    const int direct = open(("/proc/self/fd/" + std::to_string(ends[0])).c_str(), O_RDWR | O_DIRECT);
    close(ends[0]);
    return direct;
  }
  const std::vector<char> text(asked.bytes(), 'x');
  if (ends[1] >= 0 && write(ends[1], text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::exit(1);
  return ends[0];
}

void transfer_over(const std::string& kind, const extent& asked, const std::string& how) {
  std::printf("%s, %zu pages, %s\n", kind.c_str(), asked.pages, how.c_str());
  char* const block = map_aligned(8 * mib);
  fill(block, 8 * mib, 56);
  refuse_page(block, asked, how);
  iovec halves[] = {{block, asked.bytes() / 2}, {block + asked.bytes() / 2, asked.bytes() / 2}};
  iovec eighths[8];
  for (std::size_t i = 0; i < 8; ++i) eighths[i] = {block + i * asked.bytes() / 8, asked.bytes() / 8};
  int from = -1;
  const auto again = [&] {
    close(from);
    madvise(block, 8 * mib, MADV_PAGEOUT);
    return from = source(kind, block, asked);
  };
  say("read", read(again(), block, asked.bytes()));
  say("from within", read(again(), block + asked.refused * page, page));
  say("readv of halves", readv(again(), halves, 2));
  say("readv of eighths", readv(again(), eighths, 8));
  if (kind != "pipe" && kind != "socket") {
    const off_t place = kind == "memory" ? static_cast<off_t>(reinterpret_cast<std::uintptr_t>(block) + 4 * mib) : 0;
    say("pread", pread(again(), block, asked.bytes(), place));
    say("preadv", preadv(again(), eighths, 8, place));
    say("write", write(again(), block, asked.bytes()));
    say("writev", writev(again(), eighths, 8));
    say("writev of halves", writev(again(), halves, 2));
  }
  say("behind it", content(block + 7 * mib, mib, 56 + static_cast<int>(7 * mib / page * 7 + 7 * mib / 64)));
  munmap(block, 8 * mib);
}

}  // namespace

// What the kernel has transferred before a page that it may not touch stays transferred, or all of it is refused.
void refused_buffers() {
  for (const char* const kind : {"file", "direct", "zeros", "pipe", "socket", "memory"}) {
    const bool takes_much = std::strcmp(kind, "pipe") != 0 && std::strcmp(kind, "socket") != 0;
    for (const char* const how : {"hole", "no access", "read-only", "guard"}) {
      transfer_over(kind, few, how);
      if (takes_much) transfer_over(kind, many, how);
    }
  }
}

// The process's own memory as a file, up to what is not mapped.
void own_memory_with_holes() {
  const int memory = open("/proc/self/mem", O_RDWR);
  for (const char* const how : {"hole", "no access", "read-only", "guard"}) {
    char* const block = map_aligned(4 * mib);
    fill(block, 4 * mib, 58);
    refuse_page(block, few, how);
    char* const room = block + 2 * mib;
    const auto place = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(block));
    iovec vectors[] = {{room, 3 * page}, {room + 3 * page, 5 * page}};
    std::printf("%s\n", how);
    press();
    say("pread", pread(memory, room, few.bytes(), place));
    say("preadv", preadv(memory, vectors, 2, place));
    say("from within", pread(memory, room, page, place + static_cast<off_t>(few.refused * page)));
    press();
    say("pwrite", pwrite(memory, room, few.bytes(), place));
    say("pwritev", pwritev(memory, vectors, 2, place));
    say("from within", pwrite(memory, room, page, place + static_cast<off_t>(few.refused * page)));
    say("across many", pread(memory, room, mib, place));
    const auto hole = place + static_cast<off_t>(few.refused * page);
    iovec some_empty[] = {{room, 0}, {room, page}, {room, 0}, {room + page, page}};
    say("nothing", pread(memory, room, 0, place));
    say("nothing of it", pread(memory, room, 0, hole));
    say("nothing to it", pwrite(memory, room, 0, hole));
    say("empty parts", preadv(memory, some_empty, 4, place));
    say("empty parts, written", pwritev(memory, some_empty, 4, place));
    munmap(block, 4 * mib);
  }
}

}  // namespace mapper
