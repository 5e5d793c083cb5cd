#include "server/spill_disk.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/units.h"

namespace far::server {
namespace {

error failure(const std::string& what, int code) {
  return {what + " (" + std::strerror(code) + ")", code};
}

class spill_file final : public spill_disk {
 public:
  explicit spill_file(int descriptor) : descriptor_(descriptor) {}
  ~spill_file() override { close(descriptor_); }

  // Past the page cache where the file system can: memory would be used twice, and errors would come later.
  void bypass_cache() {
    const int flags = fcntl(descriptor_, F_GETFL);
    is_direct_ = flags >= 0 && fcntl(descriptor_, F_SETFL, flags | O_DIRECT) == 0;
  }

  result<void> write(std::uint64_t position, std::span<const std::byte> from) override {
    for (std::size_t done = 0; done < from.size();) {
      const ssize_t got =
          pwrite(descriptor_, from.data() + done, from.size() - done, static_cast<off_t>(position + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return failure("cannot write to the spill file", got < 0 ? errno : ENOSPC);
      done += static_cast<std::size_t>(got);
    }
    // Otherwise the kernel would report a failing disk after the memory has been given away.
    if (!is_direct_ && fdatasync(descriptor_) != 0) return failure("cannot write to the spill file", errno);
    return {};
  }

  result<void> read(std::uint64_t position, std::span<std::byte> into) override {
    for (std::size_t done = 0; done < into.size();) {
      const ssize_t got =
          pread(descriptor_, into.data() + done, into.size() - done, static_cast<off_t>(position + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return failure("cannot read the spill file", got < 0 ? errno : EIO);
      done += static_cast<std::size_t>(got);
    }
    return {};
  }

  // Where the file system cannot do it, the space stays taken.
  void discard(std::uint64_t position, std::uint64_t bytes) override {
    static_cast<void>(fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(position),
                                static_cast<off_t>(bytes)));
  }

 private:
  int descriptor_;
  bool is_direct_ = false;
};

// Not every file system has files without a name (O_TMPFILE); then the name is there for a moment.
int open_nameless(const std::string& directory) {
  int descriptor = open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return descriptor;
  std::string name = directory + "/farheapd-spill-XXXXXX";
  descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor >= 0 && unlink(name.c_str()) != 0) {
    const int code = errno;
    close(descriptor);
    errno = code;
    return -1;
  }
  return descriptor;
}

}  // namespace

result<std::unique_ptr<spill_disk>> open_spill_file(const std::string& directory, std::uint64_t size_bytes,
                                                    bool is_reserved) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size_bytes) {
    return error{"a file of " + format_size(size_bytes) + " is more than the limit on file sizes, " +
                     format_size(limit.rlim_cur) + "; raise it (ulimit -f), or lower --spill-size",
                 EFBIG};
  }
  const int descriptor = open_nameless(directory);
  if (descriptor < 0) {
    return error{"cannot make a file in " + directory + " (" + std::strerror(errno) +
                     "); name a directory where the server may write",
                 errno};
  }
  auto opened = std::make_unique<spill_file>(descriptor);
  int failed = 0;
  if (is_reserved) {
    do {
      failed = fallocate(descriptor, 0, 0, static_cast<off_t>(size_bytes)) == 0 ? 0 : errno;
    } while (failed == EINTR);
  }
  if (failed != 0 && failed != EOPNOTSUPP) {
    return error{"cannot reserve " + format_size(size_bytes) + " in " + directory + " (" + std::strerror(failed) +
                     "); free some space, or lower --spill-size",
                 failed};
  }
  opened->bypass_cache();
  return std::unique_ptr<spill_disk>(std::move(opened));
}

result<std::uint64_t> free_space(const std::string& directory) {
  struct statvfs facts{};
  if (statvfs(directory.c_str(), &facts) != 0) return failure("cannot look at " + directory, errno);
  return std::uint64_t{facts.f_bavail} * facts.f_frsize;
}

}  // namespace far::server
