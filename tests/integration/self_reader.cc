// Looks at itself through the kernel: counts its threads, and reads and writes its own memory, by several calls on
// /proc/self/mem, process_vm_readv and process_vm_writev. Works on more than its local memory. In the end it prints
// "done". With an argument it does one of these things only, as the first.
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
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

// ---- other ways to the same file ----

constexpr const char* own_memory = "/proc/self/mem";

// By an instruction of its own.
long instruction(long number, long a, long b, long c, long d = 0) {
#if defined(__x86_64__)
  register long r10 asm("r10") = d;
  long result = number;
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
#else
  return syscall(number, a, b, c, d);
#endif
}

template <typename Value>
long number_of(Value* pointer) {
  return reinterpret_cast<long>(pointer);
}

void read_all(const unsigned char* memory, int file, const char* way) {
  check(file >= 0, way);
  std::vector<unsigned char> buffer(150'000);
  for (std::size_t at = 5; at + buffer.size() < pages * page_bytes; at += 8'000'003) {
    check(pread(file, buffer.data(), buffer.size(), place_of(memory, at)) == 150'000, way);
    check_bytes(buffer.data(), at, buffer.size(), way);
  }
  close(file);
}

void read_by_other_descriptors(const unsigned char* memory) {
  const int file = open(own_memory, O_RDWR | O_CLOEXEC);
  read_all(memory, dup(file), "dup");
  read_all(memory, dup2(file, 200), "dup2");
  read_all(memory, dup3(file, 2000, O_CLOEXEC), "dup3");
  read_all(memory, fcntl(file, F_DUPFD, 300), "F_DUPFD");
  read_all(memory, fcntl(file, F_DUPFD_CLOEXEC, 400), "F_DUPFD_CLOEXEC");
  read_all(memory, open(("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDONLY), "open of a descriptor");
  read_all(memory, static_cast<int>(instruction(SYS_dup, file, 0, 0)), "dup by an instruction");
  close(file);
}

void read_by_number(const unsigned char* memory) {
  open_how how{};
  how.flags = O_RDONLY;
  read_all(memory, static_cast<int>(syscall(SYS_openat2, AT_FDCWD, own_memory, &how, sizeof how)), "openat2");
}

void read_by_other_number(const unsigned char* memory) {
  read_all(memory, static_cast<int>(syscall(SYS_openat, AT_FDCWD, own_memory, O_RDONLY)), "SYS_openat");
}

void read_by_instruction(const unsigned char* memory) {
  const long file = instruction(SYS_openat, AT_FDCWD, number_of(own_memory), O_RDONLY);
  check(file >= 0, "openat by an instruction");
  std::vector<unsigned char> buffer(150'000);
  for (std::size_t at = 5; at + buffer.size() < pages * page_bytes; at += 8'000'003) {
    check(instruction(SYS_pread64, file, number_of(buffer.data()), 150'000, place_of(memory, at)) == 150'000,
          "pread64 by an instruction");
    check_bytes(buffer.data(), at, buffer.size(), "bytes of pread64 by an instruction");
  }
  check(lseek(static_cast<int>(file), place_of(memory, 4'000'000), SEEK_SET) > 0, "lseek");
  check(instruction(SYS_read, file, number_of(buffer.data()), 150'000) == 150'000, "read by an instruction");
  check_bytes(buffer.data(), 4'000'000, buffer.size(), "bytes of read by an instruction");
  close(static_cast<int>(file));
}

void read_by_newer_calls(unsigned char* memory) {
  const int file = open(own_memory, O_RDWR | O_CLOEXEC);
  std::vector<unsigned char> buffer(150'000);
  const std::array<iovec, 2> parts{iovec{buffer.data(), 70'001}, iovec{buffer.data() + 70'001, 79'999}};
  check(preadv2(file, parts.data(), 2, place_of(memory, 9'000'000), 0) == 150'000, "preadv2");
  check_bytes(buffer.data(), 9'000'000, buffer.size(), "bytes of preadv2");
  check(pwritev2(file, parts.data(), 2, place_of(memory, 9'000'000), 0) == 150'000, "pwritev2");
  check(lseek(file, place_of(memory, 21'000'000), SEEK_SET) > 0, "lseek");
  for (std::size_t at = 21'000'000; at < 21'450'000; at += 150'000) {
    check(preadv2(file, parts.data(), 2, -1, 0) == 150'000, "preadv2 from where it stands");
    check_bytes(buffer.data(), at, buffer.size(), "bytes of preadv2 from where it stands");
  }
  close(file);
}

void read_by_streams(unsigned char* memory) {
  std::vector<unsigned char> buffer(150'000);
  std::FILE* const stream = std::fopen(own_memory, "r+");
  check(stream != nullptr, "fopen");
  for (std::size_t at = 5; at + buffer.size() < pages * page_bytes; at += 8'000'003) {
    check(std::fseek(stream, place_of(memory, at), SEEK_SET) == 0, "fseek");
    check(std::fread(buffer.data(), 1, buffer.size(), stream) == buffer.size(), "fread");
    check_bytes(buffer.data(), at, buffer.size(), "bytes of fread");
    check(std::fseek(stream, place_of(memory, at), SEEK_SET) == 0, "fseek");
    check(std::fwrite(buffer.data(), 1, 9'000, stream) == 9'000 && std::fflush(stream) == 0, "fwrite");
  }
  std::fclose(stream);
}

void read_by_file_stream(const unsigned char* memory) {
  std::vector<char> buffer(150'000);
  std::ifstream file(own_memory, std::ios::binary);
  check(file.good(), "ifstream");
  for (std::size_t at = 5; at + buffer.size() < pages * page_bytes; at += 8'000'003) {
    file.seekg(place_of(memory, at));
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    check(file.good(), "ifstream::read");
    check_bytes(reinterpret_cast<const unsigned char*>(buffer.data()), at, buffer.size(), "bytes of ifstream");
  }
}

// Fails as natively.
void transfer_badly() {
  const int file = open(own_memory, O_RDWR | O_CLOEXEC);
  auto* const far = static_cast<unsigned char*>(
      mmap(nullptr, 4 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  check(mprotect(far + page_bytes, page_bytes, PROT_READ) == 0, "mprotect");
  const ssize_t got = pread(file, far, 2 * page_bytes, place_of(far, 2 * page_bytes));
  std::printf("into what is read-only: %zd\n", got);
  munmap(far + 2 * page_bytes, page_bytes);
  std::printf("over a hole: %zd\n", pread(file, far, page_bytes, place_of(far, page_bytes * 3 / 2)));
  std::printf("of nothing: %zd\n", pread(file, far, 0, place_of(far, 2 * page_bytes)));
  std::printf("from a hole: %zd", pread(file, far, 8, place_of(far, 2 * page_bytes)));
  std::printf(" %s\n", std::strerror(errno));
  close(file);
  errno = 0;
  std::printf("of a closed file: %zd", pread(file, far, 8, place_of(far, 0)));
  std::printf(" %s\n", std::strerror(errno));
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

// What programs call that were built with older C libraries.
#if defined(__x86_64__)
extern "C" int old_stat(int version, const char* path, struct stat* about);
extern "C" int old_fstatat(int version, int directory, const char* path, struct stat* about, int flags);
asm(".symver old_stat, __xstat@GLIBC_2.2.5");
asm(".symver old_fstatat, __fxstatat@GLIBC_2.4");

void count_threads_as_before() {
  struct stat about{};
  check(old_stat(1, "/proc/self/task", &about) == 0 && about.st_nlink == 3, "one thread, by __xstat");
  check(old_fstatat(1, AT_FDCWD, "/proc/self/task", &about, 0) == 0 && about.st_nlink == 3, "one, by __fxstatat");
  check(old_stat(7, "/proc/self/task", &about) == -1 && errno == EINVAL, "an unknown version of __xstat");
}
#else
void count_threads_as_before() {}
#endif

void count_listed_threads() {
  DIR* const folder = opendir("/proc/self/task");
  int threads = 0;
  while (const dirent* const entry = readdir(folder)) threads += entry->d_name[0] != '.' ? 1 : 0;
  check(threads == 1, "one thread, listed");
  closedir(folder);
  std::error_code failure;
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(getpid()) + "/task", failure);
  check(!failure && std::distance(begin(all), end(all)) == 1, "one thread, listed by C++");
}

// Field 20 of "stat", where the program's name has no space.
void count_threads_in_files() {
  std::ifstream stat_file("/proc/self/stat");
  std::string field;
  for (int i = 0; i < 20; ++i) stat_file >> field;
  check(field == "1", "one thread, in stat");
  for (int i = 20; i < 28; ++i) stat_file >> field;
  check(stat_file.good() && field.size() > 8, "what follows in stat: the place of the stack");
  std::ifstream status_file("/proc/self/status");
  std::string row;
  while (std::getline(status_file, row) && row.rfind("Threads:", 0) != 0) {
  }
  check(row == "Threads:\t1", "one thread, in status");
  check(std::getline(status_file, row) && !row.empty(), "what follows in status");
  std::FILE* const stream = std::fopen(("/proc/" + std::to_string(getpid()) + "/stat").c_str(), "re");
  int threads = 0;
  check(std::fscanf(stream, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d",
                    &threads) == 1 &&
            threads == 1,
        "one thread, in the stat of a number");
  check((fcntl(fileno(stream), F_GETFD) & FD_CLOEXEC) != 0, "closed at exec");
  std::fclose(stream);
}

// The links of this directory are two, and one for each thread.
void count_threads() {
  const int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  struct stat about{};
  check(stat("/proc/self/task", &about) == 0 && about.st_nlink == 3, "one thread, by stat");
  check(fstatat(proc, "self/task/", &about, 0) == 0 && about.st_nlink == 3, "one thread, by fstatat");
  check(lstat("/proc/self/task", &about) == 0 && about.st_nlink == 3, "one thread, by lstat");
  check(fstatat(proc, "1/task", &about, 0) == 0 && about.st_nlink >= 3, "threads of another process");
  close(proc);
  count_threads_as_before();
  count_listed_threads();
  count_threads_in_files();
}

}  // namespace

int main(int count, char** arguments) {
  const std::string_view only = count > 1 ? arguments[1] : "";
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
  const auto with = [&](std::string_view name, auto function) {
    if (only.empty() || only == name) function(memory);
  };
  with("instruction", read_by_instruction);
  with("file", [](unsigned char* all) { read_by_file(all, own_memory); });
  with("number", [](unsigned char* all) { read_by_file(all, ("/proc/" + std::to_string(getpid()) + "/mem").c_str()); });
  with("write", write_by_file);
  with("protected", reach_protected);
  with("descriptors", read_by_other_descriptors);
  with("openat2", read_by_number);
  with("openat", read_by_other_number);
  with("newer", read_by_newer_calls);
  with("streams", read_by_streams);
  with("ifstream", read_by_file_stream);
  with("badly", [](unsigned char* /*all*/) { transfer_badly(); });
  with("process", transfer);
  check_bytes(memory, 0, pages * page_bytes, "all bytes in the end");
  std::puts("done");
}
