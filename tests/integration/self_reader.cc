// Looks at itself through the kernel: counts its threads, and reads and writes its own memory, by several calls on
// /proc/self/mem, process_vm_readv and process_vm_writev. Works on more than its local memory. In the end it prints
// "done".
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t pages = 12288;  // 48 MiB

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

void check(bool good, const char* what) {
  if (!good) fail(what);
}

unsigned char pattern(std::size_t at) {
  return static_cast<unsigned char>(at * 131 / 64 + at / page_bytes);
}

void check_bytes(const unsigned char* bytes, std::size_t first, std::size_t count, const char* what) {
  for (std::size_t i = 0; i < count; ++i) check(bytes[i] == pattern(first + i), what);
}

off_t place_of(const unsigned char* memory, std::size_t at) {
  return static_cast<off_t>(reinterpret_cast<std::uintptr_t>(memory) + at);
}

// Each call at another place, so that it meets pages that have left.
void read_by_file(const unsigned char* memory, const char* path) {
  const int file = open(path, O_RDWR | O_CLOEXEC);
  check(file >= 0, path);
  std::vector<unsigned char> buffer(300'000);
  for (const std::size_t at : {std::size_t{0}, 100 * page_bytes + 7, 6000 * page_bytes - 1}) {
    const ssize_t got = pread(file, buffer.data(), buffer.size(), place_of(memory, at));
    check(got == static_cast<ssize_t>(buffer.size()), "pread");
    check_bytes(buffer.data(), at, buffer.size(), "bytes of pread");
  }
  const std::size_t second = 300 * page_bytes + 3;
  check(lseek(file, place_of(memory, second), SEEK_SET) == place_of(memory, second), "lseek");
  for (std::size_t done = 0; done < buffer.size(); done += 100'000) {
    check(read(file, buffer.data(), 100'000) == 100'000, "read");
    check_bytes(buffer.data(), second + done, 100'000, "bytes of read");
  }
  const std::size_t third = 900 * page_bytes;
  const std::array<iovec, 2> parts{iovec{buffer.data(), 5000}, iovec{buffer.data() + 5000, 70'000}};
  check(preadv(file, parts.data(), 2, place_of(memory, third)) == 75'000, "preadv");
  check_bytes(buffer.data(), third, 75'000, "bytes of preadv");
  // Into far memory that has left, too.
  auto* const target = const_cast<unsigned char*>(memory) + 3000 * page_bytes;
  check(pread(file, target, 40 * page_bytes, place_of(memory, 3000 * page_bytes)) == 40 * page_bytes,
        "pread to itself");
  check_bytes(target, 3000 * page_bytes, 40 * page_bytes, "bytes of pread to itself");
  close(file);
}

void write_by_file(unsigned char* memory) {
  const int file = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  check(file >= 0, "/proc/self/mem");
  std::vector<unsigned char> buffer(200'000);
  const std::size_t at = 5000 * page_bytes + 11;
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<unsigned char>(pattern(at + i) ^ 0xff);
  check(pwrite(file, buffer.data(), buffer.size(), place_of(memory, at)) == static_cast<ssize_t>(buffer.size()),
        "pwrite");
  for (std::size_t i = 0; i < buffer.size(); ++i) check(memory[at + i] == buffer[i], "bytes of pwrite");
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = pattern(at + i);
  check(lseek(file, place_of(memory, at), SEEK_SET) == place_of(memory, at), "lseek");
  check(write(file, buffer.data(), buffer.size()) == static_cast<ssize_t>(buffer.size()), "write");
  close(file);
}

// What the program itself may not touch, and what is not there.
void reach_protected(unsigned char* memory) {
  const int file = open("/proc/thread-self/mem", O_RDWR | O_CLOEXEC);
  check(file >= 0, "/proc/thread-self/mem");
  unsigned char* const hidden = memory + 8000 * page_bytes;
  check(mprotect(hidden, 16 * page_bytes, PROT_NONE) == 0, "mprotect");
  std::vector<unsigned char> buffer(16 * page_bytes);
  check(pread(file, buffer.data(), buffer.size(), place_of(hidden, 0)) == 16 * page_bytes, "pread of what is hidden");
  check_bytes(buffer.data(), 8000 * page_bytes, buffer.size(), "bytes of what is hidden");
  check(mprotect(hidden, 16 * page_bytes, PROT_READ) == 0, "mprotect");
  for (unsigned char& byte : buffer) byte = static_cast<unsigned char>(byte + 1);
  check(pwrite(file, buffer.data(), buffer.size(), place_of(hidden, 0)) == 16 * page_bytes,
        "pwrite to read-only memory");
  check(std::memcmp(hidden, buffer.data(), buffer.size()) == 0, "bytes in read-only memory");
  check(mprotect(hidden, 16 * page_bytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
  for (std::size_t i = 0; i < buffer.size(); ++i) hidden[i] = static_cast<unsigned char>(hidden[i] - 1);
  check(pread(file, buffer.data(), page_bytes, static_cast<off_t>(page_bytes)) < 0, "pread of nothing");
  close(file);
}

void transfer(unsigned char* memory) {
  std::vector<unsigned char> buffer(250'000);
  const std::array<iovec, 2> local{iovec{buffer.data(), 100'001}, iovec{buffer.data() + 100'001, 149'999}};
  const std::array<iovec, 2> remote{iovec{memory + 2000 * page_bytes + 5, 200'000},
                                    iovec{memory + 7000 * page_bytes, 50'000}};
  check(process_vm_readv(getpid(), local.data(), 2, remote.data(), 2, 0) == 250'000, "process_vm_readv");
  check_bytes(buffer.data(), 2000 * page_bytes + 5, 200'000, "bytes of process_vm_readv");
  check_bytes(buffer.data() + 200'000, 7000 * page_bytes, 50'000, "more bytes of process_vm_readv");
  for (unsigned char& byte : buffer) byte = static_cast<unsigned char>(~byte);
  check(process_vm_writev(getpid(), local.data(), 2, remote.data(), 2, 0) == 250'000, "process_vm_writev");
  check(memory[7000 * page_bytes + 3] == static_cast<unsigned char>(~pattern(7000 * page_bytes + 3)), "written bytes");
  for (unsigned char& byte : buffer) byte = static_cast<unsigned char>(~byte);
  check(process_vm_writev(getpid(), local.data(), 2, remote.data(), 2, 0) == 250'000, "process_vm_writev");
}

// The links of this directory are two, and one for each thread.
void count_threads() {
  const int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat about{};
  check(stat("/proc/self/task", &about) == 0 && about.st_nlink == 3, "one thread, by stat");
  check(fstatat(proc, "self/task/", &about, 0) == 0 && about.st_nlink == 3, "one thread, by fstatat");
  check(fstatat(proc, "1/task", &about, 0) == 0 && about.st_nlink >= 3, "threads of another process");
  close(proc);
}

}  // namespace

int main() {
  count_threads();
  const pid_t child = fork();
  if (child == 0) {
    count_threads();
    _exit(0);
  }
  int status = 1;
  check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "threads of a child");
  auto* const memory = static_cast<unsigned char*>(
      mmap(nullptr, pages * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  check(memory != MAP_FAILED, "mmap");
  for (std::size_t at = 0; at < pages * page_bytes; ++at) memory[at] = pattern(at);
  read_by_file(memory, "/proc/self/mem");
  read_by_file(memory, ("/proc/" + std::to_string(getpid()) + "/mem").c_str());
  write_by_file(memory);
  reach_protected(memory);
  transfer(memory);
  check_bytes(memory, 0, pages * page_bytes, "all bytes in the end");
  std::puts("done");
}
