#include "server/shm_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/check.h"
#include "platform/system_memory.h"
#include "server/event_log.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace far::server {
namespace {

constexpr std::uint64_t sector_bytes = 512;  // the unit of st_blocks
constexpr std::uint64_t takes_between_looks = 16;
constexpr std::uint64_t spared_share = 64;

// Whether shared memory gets huge pages where a mapping asks for them, and only there.
bool huge_pages_on_advice() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string words;
  std::getline(file, words);
  return words.find("[advise]") != std::string::npos;
}

}  // namespace

result<int> make_sealed_file(const char* name, std::uint64_t bytes) {
  const int file = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0) {
    return file;
  }
  const int code = errno;
  if (file >= 0) close(file);
  return error{std::string("the server cannot make a file in memory: ") + std::strerror(code), code};
}

result<void> shm_memory::create(std::uint64_t blocks) {
  FAR_CHECK(file_ < 0 && blocks > 0, "shm_memory::create is called once");
  const result<int> file = make_sealed_file("farheap-session", blocks * block_bytes);
  if (!file) return file.error();
  file_ = file.value();
  void* const mapped =
      mmap(nullptr, blocks * block_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (mapped == MAP_FAILED) {
    return error{std::string("the server has no address space for one more session: ") + std::strerror(errno), errno};
  }
  base_ = static_cast<std::byte*>(mapped);
  blocks_ = blocks;
  // Only advice. A core file would touch every page of the file, and so fill it.
  static_cast<void>(madvise(base_, blocks * block_bytes, MADV_DONTDUMP));
  static_cast<void>(madvise(base_, blocks * block_bytes, MADV_DONTFORK));
  through_mapping_ = huge_pages_on_advice() && madvise(base_, blocks * block_bytes, MADV_HUGEPAGE) == 0;
  return {};
}

shm_memory::~shm_memory() {
  if (base_ != nullptr) munmap(base_, blocks_ * block_bytes);
  // Also frees pages that a client has filled beyond its grants, although it may still map the file.
  if (file_ >= 0 && !keeps_bytes_.load()) {
    static_cast<void>(
        fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(blocks_ * block_bytes)));
  }
  if (file_ >= 0) close(file_);
}

std::byte* shm_memory::take(std::uint64_t number) {
  const lock_guard guard(lock_);
  if (number >= blocks_ || !machine_can_spare() || !fill(number)) return nullptr;
  ++granted_blocks_;
  return base_ + number * block_bytes;
}

bool shm_memory::fill(std::uint64_t number) {
  if (through_mapping_ && madvise(base_ + number * block_bytes, block_bytes, MADV_POPULATE_WRITE) == 0) return true;
  const auto position = static_cast<off_t>(number * block_bytes);
  while (fallocate(file_, 0, position, block_bytes) != 0) {
    if (errno == EINTR) continue;
    // The part that was filled is not granted, so it must not count.
    static_cast<void>(fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, position, block_bytes));
    return false;
  }
  return true;
}

bool shm_memory::machine_can_spare() {
  if (takes_++ % takes_between_looks == 0 || !enough_memory_) {
    const result<platform::system_memory> machine = platform::read_system_memory();
    enough_memory_ =
        !machine || machine.value().available_bytes > machine.value().usable_bytes() / spared_share + block_bytes;
  }
  return enough_memory_;
}

void shm_memory::give_back(std::uint64_t number, std::byte* block) {
  FAR_CHECK(block == base_ + number * block_bytes, "a block of another session");
  const lock_guard guard(lock_);
  FAR_CHECK(granted_blocks_ > 0, "more blocks come back than were granted");
  --granted_blocks_;
  if (keeps_bytes_.load()) return;
  const auto position = static_cast<off_t>(number * block_bytes);
  if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, position, block_bytes) != 0) {
    log_event(std::string("shared memory of a session cannot be freed; it stays until the session ends: ") +
              std::strerror(errno));
  }
}

bool shm_memory::overdrawn() const {
  const lock_guard guard(lock_);
  struct stat about{};
  FAR_CHECK(fstat(file_, &about) == 0, "the session's file can always be looked at");
  return static_cast<std::uint64_t>(about.st_blocks) * sector_bytes > granted_blocks_ * block_bytes;
}

}  // namespace far::server
