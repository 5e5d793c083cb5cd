#include "preload/job_region.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "base/units.h"
#include "platform/clock.h"
#include "platform/own_descriptors.h"
#include "platform/signal_shield.h"
#include "preload/process_identity.h"

namespace far::preload {
namespace {

constexpr std::string_view file_prefix = "farheap-job-";
constexpr int opening_deadline_ms = 1000;
constexpr time_t abandoned_s = 60;
constexpr std::uint64_t region_bytes = (sizeof(job_region) + page_bytes - 1) / page_bytes * page_bytes;

static_assert(sizeof(engine::statistics) == job_statistics * sizeof(std::uint64_t), "it is an array of numbers");
using statistics_array = std::array<std::uint64_t, job_statistics>;

error cannot_use(const std::string& name, int failure) {
  const char* const advice = failure == EFBIG ? "; raise the limit on file sizes (ulimit -f)" : "";
  return error{"the job's file " + name + " cannot be used: " + std::strerror(failure) + advice, failure};
}

struct flock lock_of(std::size_t byte, short type) {
  struct flock asked{};
  asked.l_type = type;
  asked.l_whence = SEEK_SET;
  asked.l_start = static_cast<off_t>(byte);
  asked.l_len = 1;
  return asked;
}

void pause_a_little() {
  const timespec half_a_millisecond{0, 500'000};
  nanosleep(&half_a_millisecond, nullptr);
}

// With the lock of the job: a region that nobody has used yet.
void found_job(job_region& region, const job_name& name, const job_terms& terms) {
  for (std::size_t i = 0; i < name.secret.size(); ++i) region.secret[i].store(name.secret[i]);
  region.started_ns.store(platform::monotonic_clock().now_ns());
  region.shares.store(terms.shares ? 1 : 0);
  region.budget.found(terms.budget);
  region.bytes.store(sizeof(job_region));
  region.magic.store(job_region::right_magic, std::memory_order_release);
}

bool is_right(const job_region& region) {
  return region.magic.load(std::memory_order_acquire) == job_region::right_magic &&
         region.bytes.load() == sizeof(job_region);
}

bool knows(const job_region& region, const job_name& name) {
  return region.secret[0].load() == name.secret[0] && region.secret[1].load() == name.secret[1];
}

// 0, or why the open file must not be trusted.
int check_owner(int descriptor) {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) return errno;
  const uid_t user = geteuid();
  if (!S_ISREG(status.st_mode) || (status.st_mode & 077) != 0) return EPERM;
  return status.st_uid == user || user == 0 ? 0 : EPERM;
}

// Growing a file beyond the limit on its size (RLIMIT_FSIZE) would not just fail but kill the program with SIGXFSZ.
bool may_grow() {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= region_bytes;
}

bool is_whole(int descriptor) {
  struct stat status{};
  return fstat(descriptor, &status) == 0 && status.st_size >= static_cast<off_t>(region_bytes);
}

// Allocates all of the file now, because a full file system could not be reported later. Older kernels give up at a
// signal without having done anything, so the program's timers are kept out. The C library's own signals are not: it
// uses them when the program gives up rights, and then it is tried again.
int make_room(int descriptor) {
  if (!may_grow() && !is_whole(descriptor)) return EFBIG;
  const platform::signal_shield shield;
  int failure = EINTR;
  while (failure == EINTR) failure = posix_fallocate(descriptor, 0, static_cast<off_t>(region_bytes));
  return failure;
}

// Whether a process of the job, none of which holds a lock, is just becoming another program. Of processes in other
// namespaces, and of jobs of other versions, nothing is known.
bool is_between_programs(int descriptor) {
  const result<job_mapping> seen = job_mapping::look_at(descriptor);
  if (!seen) return false;
  const auto& slots = seen.value().region().slots;
  return std::any_of(slots.begin(), slots.end(), [](const job_slot& slot) {
    const job_slot_state state = slot.state.load();
    return (state == job_slot_state::running || state == job_slot_state::lost) && still_runs(slot).value_or(false);
  });
}

bool is_unlinked(int descriptor) {
  struct stat status{};
  return fstat(descriptor, &status) == 0 && status.st_nlink == 0;
}

}  // namespace

void shared_account::store(const engine::statistics& now, const process_usage& used) noexcept {
  const auto numbers = std::bit_cast<statistics_array>(now);
  for (std::size_t i = 0; i < numbers.size(); ++i) counted[i].store(numbers[i], std::memory_order_relaxed);
  user_ns.store(used.user_ns, std::memory_order_relaxed);
  system_ns.store(used.system_ns, std::memory_order_relaxed);
  peak_rss_bytes.store(used.peak_rss_bytes, std::memory_order_relaxed);
}

void shared_account::store_budget(std::uint64_t bytes) noexcept {
  static_assert(offsetof(engine::statistics, budget_bytes) == 0, "the first number is the budget");
  counted[0].store(bytes, std::memory_order_relaxed);
}

engine::statistics shared_account::statistics() const noexcept {
  statistics_array numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = counted[i].load(std::memory_order_relaxed);
  return std::bit_cast<engine::statistics>(numbers);
}

process_usage shared_account::usage() const noexcept {
  return {user_ns.load(std::memory_order_relaxed), system_ns.load(std::memory_order_relaxed),
          peak_rss_bytes.load(std::memory_order_relaxed)};
}

std::string job_name::text() const {
  return path + "#" + secret_text();
}

std::string job_name::secret_text() const {
  char digits[40];
  std::snprintf(digits, sizeof digits, "%016" PRIx64 "%016" PRIx64, secret[0], secret[1]);
  return digits;
}

result<job_name> parse_job_name(std::string_view text) {
  const std::size_t mark = text.rfind('#');
  if (text.empty() || text.front() != '/' || mark == std::string_view::npos || text.size() - mark != 33) {
    return error{"'" + std::string(text) + "' does not name a job", EINVAL};
  }
  job_name name;
  name.path = text.substr(0, mark);
  const std::string digits(text.substr(mark + 1));
  if (digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return error{"'" + std::string(text) + "' does not name a job", EINVAL};
  }
  for (std::size_t i = 0; i < name.secret.size(); ++i) {
    name.secret[i] = std::strtoull(digits.substr(16 * i, 16).c_str(), nullptr, 16);
  }
  return name;
}

std::vector<std::string> job_directories() {
  std::vector<std::string> found{"/dev/shm"};
  const char* const own = std::getenv("XDG_RUNTIME_DIR");
  if (own != nullptr && *own == '/') found.emplace_back(own);
  found.emplace_back("/tmp");
  return found;
}

bool is_job_file(std::string_view name) {
  return name.starts_with(file_prefix);
}

result<job_name> new_job_name() {
  std::array<std::uint64_t, 3> random{};
  if (getrandom(random.data(), sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    return error{std::string("no random numbers: ") + std::strerror(errno), errno};
  }
  for (const std::string& directory : job_directories()) {
    if (access(directory.c_str(), W_OK | X_OK) != 0) continue;
    char text[64];
    std::snprintf(text, sizeof text, "/%s%016" PRIx64, std::string(file_prefix).c_str(), random[0]);
    return job_name{directory + text, {random[1], random[2]}};
  }
  return error{"neither /dev/shm nor $XDG_RUNTIME_DIR nor /tmp can be written to", EACCES};
}

std::optional<bool> still_runs(const job_slot& slot) noexcept {
  const std::uint64_t start_time = slot.start_time.load();
  const std::uint64_t space = slot.pid_namespace.load();
  if (start_time == 0 || space == 0 || space != pid_namespace_of_this_process()) return std::nullopt;
  return start_time_of(slot.pid.load()) == start_time;
}

void remove_abandoned_job(const std::string& path, time_t age_s) noexcept {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
  if (descriptor < 0) return;
  struct stat status{};
  struct flock any = lock_of(0, F_WRLCK);
  any.l_len = 0;  // to the end
  const bool old = fstat(descriptor, &status) == 0 && status.st_uid == geteuid() && S_ISREG(status.st_mode) &&
                   status.st_ctime + age_s < time(nullptr);
  const bool unlocked = old && fcntl(descriptor, F_GETLK, &any) == 0 && any.l_type == F_UNLCK;
  if (!unlocked) {
    close(descriptor);
  } else if (!is_between_programs(descriptor)) {
    unlink(path.c_str());
  }
}

void remove_abandoned_jobs() noexcept {
  for (const std::string& directory : job_directories()) {
    DIR* const listed = opendir(directory.c_str());
    if (listed == nullptr) continue;
    while (const dirent* const entry = readdir(listed)) {
      if (is_job_file(entry->d_name)) remove_abandoned_job(directory + "/" + entry->d_name, abandoned_s);
    }
    closedir(listed);
  }
}

result<job_mapping> job_mapping::map(int descriptor, int protection, const std::string& name) {
  struct stat status{};
  const bool known = fstat(descriptor, &status) == 0;
  const bool whole = known && status.st_size == static_cast<off_t>(region_bytes);
  void* const mapped =
      whole ? mmap(nullptr, region_bytes, protection, MAP_SHARED, descriptor, 0) : static_cast<void*>(MAP_FAILED);
  if (mapped == MAP_FAILED) {
    const int failure = known && !whole ? EPROTO : errno;
    ::close(descriptor);
    return cannot_use(name, failure);
  }
  return job_mapping(descriptor, static_cast<job_region*>(mapped), status.st_dev, status.st_ino);
}

// The first process creates the file and the last one removes it, so an opened file may be unlinked by the time we have
// its lock. The loop then opens the new one.
result<job_mapping> job_mapping::open(const job_name& name, const job_terms& terms) {
  const int creation = may_grow() ? O_CREAT : 0;
  // Once more if the last process removes the file between our opening and locking it.
  for (int attempt = 0; attempt < 10; ++attempt) {
    const int descriptor = platform::own_descriptor(
        ::open(name.path.c_str(), O_RDWR | creation | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, S_IRUSR | S_IWUSR));
    if (descriptor < 0) return cannot_use(name.path, creation == 0 && errno == ENOENT ? EFBIG : errno);
    int failure = check_owner(descriptor);
    if (failure == 0) failure = make_room(descriptor);
    if (failure != 0) {
      ::close(descriptor);
      return cannot_use(name.path, failure);
    }
    result<job_mapping> opened = map(descriptor, PROT_READ | PROT_WRITE, name.path);
    if (!opened) return opened;
    const job_mapping& mapping = opened.value();
    if (!mapping.lock_job(opening_deadline_ms)) return cannot_use(name.path, ETIMEDOUT);
    if (is_unlinked(descriptor)) continue;
    if (mapping.region().magic.load() == 0) found_job(mapping.region(), name, terms);
    mapping.unlock(job_lock);
    if (!is_right(mapping.region())) return cannot_use(name.path, EPROTO);
    if (!knows(mapping.region(), name)) return cannot_use(name.path, EPERM);
    return opened;
  }
  return cannot_use(name.path, ESTALE);
}

result<job_mapping> job_mapping::adopt(int descriptor, const job_name& name) {
  result<job_mapping> opened = map(platform::own_descriptor(descriptor), PROT_READ | PROT_WRITE, name.path);
  if (!opened) return opened;
  if (!is_right(opened.value().region())) return cannot_use(name.path, EPROTO);
  if (!knows(opened.value().region(), name)) return cannot_use(name.path, EPERM);
  return opened;
}

result<job_mapping> job_mapping::look_at(int descriptor) {
  result<job_mapping> opened = map(descriptor, PROT_READ, "that was sent");
  if (opened && !is_right(opened.value().region())) return cannot_use("that was sent", EPROTO);
  return opened;
}

result<job_mapping> job_mapping::look_at(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY);
  if (descriptor < 0) return cannot_use(path, errno);
  if (const int failure = check_owner(descriptor); failure != 0) {
    ::close(descriptor);
    return cannot_use(path, failure);
  }
  return look_at(descriptor);
}

job_mapping::job_mapping(job_mapping&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      region_(std::exchange(other.region_, nullptr)),
      device_(other.device_),
      inode_(other.inode_) {}

job_mapping::~job_mapping() {
  if (region_ != nullptr) munmap(region_, region_bytes);
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool job_mapping::is_this_file(int descriptor) const noexcept {
  struct stat status{};
  return fstat(descriptor, &status) == 0 && status.st_dev == device_ && status.st_ino == inode_;
}

bool job_mapping::is_intact() const noexcept {
  return is_this_file(descriptor_);
}

bool job_mapping::reopen(const std::string& path) noexcept {
  const int descriptor = platform::own_descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY));
  if (descriptor < 0) return false;
  if (!is_this_file(descriptor)) {
    ::close(descriptor);
    return false;
  }
  platform::disown_descriptor(descriptor_);  // its number may be the program's by now
  descriptor_ = descriptor;
  return true;
}

bool job_mapping::is_removed() const noexcept {
  return is_unlinked(descriptor_);
}

bool job_mapping::found_again(const job_name& name) noexcept {
  result<job_mapping> opened = open(name, {region_->budget.load(), region_->shares.load() != 0});
  if (!opened) return false;
  job_mapping& other = opened.value();
  const void* const mapped =
      mmap(region_, region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, other.descriptor_, 0);
  if (mapped == MAP_FAILED) return false;
  std::swap(descriptor_, other.descriptor_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  return true;
}

bool job_mapping::try_lock(std::size_t byte) const noexcept {
  struct flock asked = lock_of(byte, F_WRLCK);
  return fcntl(descriptor_, F_SETLK, &asked) == 0;
}

void job_mapping::unlock(std::size_t byte) const noexcept {
  struct flock asked = lock_of(byte, F_UNLCK);
  fcntl(descriptor_, F_SETLK, &asked);
}

bool job_mapping::is_locked_elsewhere(std::size_t byte) const noexcept {
  struct flock asked = lock_of(byte, F_WRLCK);
  // If the lock cannot be tested, the process counts as alive.
  return fcntl(descriptor_, F_GETLK, &asked) != 0 || asked.l_type != F_UNLCK;
}

bool job_mapping::lock_job(int deadline_ms) const noexcept {
  for (int attempt = 0; attempt < 2 * deadline_ms; ++attempt) {
    if (try_lock(job_lock)) return true;
    pause_a_little();
  }
  return try_lock(job_lock);
}

}  // namespace far::preload
