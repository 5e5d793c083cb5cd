#include "peer_device.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/loop.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/swap.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "system_file.h"

namespace far::bench {

namespace {

constexpr const char* page_cluster_path = "/proc/sys/vm/page-cluster";

error failed(const std::string& action) {
  return {fmt::format("{}: {}", action, strerror(errno)), errno};
}

void warn(const std::string& action) {
  fmt::print(stderr, "farheap-bench: {}\n", action);
}

// Closes a descriptor at the end of its scope.
struct descriptor {
  int number = -1;
  explicit descriptor(int opened) : number(opened) {}
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (number >= 0) close(number);
  }
};

// A file in RAM whose pages are all there and stay there: in a ramfs that is mounted nowhere. Never a file in tmpfs:
// while swap is on, any reclaim (also a proactive one, such as DAMON's) may swap out tmpfs pages, and when these hold
// the swap itself, the loop device waits for its own input for ever. The kernel never swaps ramfs, even when this
// program is killed. The pages are made now, by this process: made later, they would count against the peer's cgroup.
result<int> open_unswappable_file(std::uint64_t bytes) {
  const descriptor context(fsopen("ramfs", FSOPEN_CLOEXEC));
  if (context.number < 0 || fsconfig(context.number, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) {
    return failed("cannot make a ramfs (root?)");
  }
  const descriptor mounted(fsmount(context.number, FSMOUNT_CLOEXEC, 0));
  if (mounted.number < 0) return failed("cannot make a ramfs (root?)");
  descriptor file(openat(mounted.number, "device", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (file.number < 0) return failed("cannot make a file in a ramfs");
  const std::vector<char> zeros(mib);
  for (std::uint64_t offset = 0; offset < bytes; offset += zeros.size()) {
    const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(zeros.size(), bytes - offset));
    if (pwrite(file.number, zeros.data(), length, static_cast<off_t>(offset)) != static_cast<ssize_t>(length)) {
      return failed("cannot fill a file in RAM");
    }
  }
  return std::exchange(file.number, -1);
}

class loop_device final : public peer_device {
 public:
  loop_device(std::string path, int opened) : path_(std::move(path)), device_(opened) {}
  ~loop_device() override {
    // Detaches at once, or at its last close.
    if (ioctl(device_.number, LOOP_CLR_FD) != 0 && errno != ENXIO) {
      warn(fmt::format("cannot detach {}: {}; detach it with: losetup -d {}", path_, strerror(errno), path_));
    }
  }
  [[nodiscard]] std::string path() const override { return path_; }

 private:
  std::string path_;
  descriptor device_;
};

class zram_device final : public peer_device {
 public:
  explicit zram_device(int number) : number_(number) {}
  ~zram_device() override {
    // The device is busy for a moment after its last user.
    result<void> done;
    for (int attempt = 0; attempt < 100; ++attempt) {
      done = write_system_file("/sys/class/zram-control/hot_remove", std::to_string(number_));
      if (done) return;
      const timespec pause{0, 20'000'000};
      nanosleep(&pause, nullptr);
    }
    warn(done.error().message + "; the device " + path() + " is left behind");
  }
  [[nodiscard]] std::string path() const override { return fmt::format("/dev/zram{}", number_); }
  [[nodiscard]] std::string attribute(const char* name) const {
    return fmt::format("/sys/block/zram{}/{}", number_, name);
  }

 private:
  int number_;
};

class swap_file final : public peer_device {
 public:
  explicit swap_file(std::string path) : path_(std::move(path)) {}
  ~swap_file() override {
    if (unlink(path_.c_str()) != 0) warn(failed("cannot remove " + path_).message);
  }
  [[nodiscard]] std::string path() const override { return path_; }

 private:
  std::string path_;
};

// The header that mkswap(8) writes: a page with the number of the last page and a signature at its end.
result<void> write_swap_header(const std::string& path, std::uint64_t bytes) {
  const descriptor device(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (device.number < 0) return failed("cannot open " + path);
  std::array<char, page_bytes> header{};
  constexpr std::size_t boot_bytes = 1024;  // kept free for boot sectors
  constexpr std::string_view signature = "SWAPSPACE2";
  const std::uint32_t version = 1;
  const auto last_page = static_cast<std::uint32_t>(bytes / page_bytes - 1);
  memcpy(header.data() + boot_bytes, &version, sizeof version);
  memcpy(header.data() + boot_bytes + sizeof version, &last_page, sizeof last_page);
  memcpy(header.data() + header.size() - signature.size(), signature.data(), signature.size());
  if (pwrite(device.number, header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()) ||
      fsync(device.number) != 0) {
    return failed("cannot write a swap header to " + path);
  }
  return {};
}

}  // namespace

result<std::unique_ptr<peer_device>> open_loop_device(std::uint64_t bytes) {
  const result<int> opened = open_unswappable_file(bytes);
  if (!opened) return opened.error();
  const descriptor file(opened.value());
  const descriptor control(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
  if (control.number < 0) return failed("no loop device can be made, as /dev/loop-control cannot be opened (root?)");
  // Another program may take the free device first: try again.
  for (int attempt = 0; attempt < 10; ++attempt) {
    const int number = ioctl(control.number, LOOP_CTL_GET_FREE);
    if (number < 0) return failed("no loop device is free");
    const std::string path = fmt::format("/dev/loop{}", number);
    descriptor device(open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (device.number < 0) return failed("cannot open " + path);
    loop_config config{};
    config.fd = static_cast<__u32>(file.number);
    config.block_size = page_bytes;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;  // detach at the last close, even if this program is killed
    if (ioctl(device.number, LOOP_CONFIGURE, &config) == 0) {
      return std::unique_ptr<peer_device>(new loop_device(path, std::exchange(device.number, -1)));
    }
    if (errno != EBUSY) return failed("cannot attach a file in RAM to " + path);
  }
  return error{"other programs keep taking the free loop device; try again", EBUSY};
}

result<std::unique_ptr<peer_device>> open_zram_device(std::uint64_t bytes) {
  const result<std::string> number = read_system_file("/sys/class/zram-control/hot_add");
  if (!number) return error{"no zram device can be made (root? modprobe zram?): " + number.error().message, ENODEV};
  auto device = std::make_unique<zram_device>(std::stoi(number.value()));
  // Without LZ4 the kernel's own choice stays.
  static_cast<void>(write_system_file(device->attribute("comp_algorithm"), "lz4"));
  const result<void> sized = write_system_file(device->attribute("disksize"), std::to_string(bytes));
  if (!sized) return sized.error();
  return std::unique_ptr<peer_device>(std::move(device));
}

result<std::unique_ptr<peer_device>> open_swap_file(std::uint64_t bytes) {
  std::string folder = "/var/tmp";
  for (const char* const variable : {"TMPDIR", "FARHEAP_DIR"}) {
    if (const char* const named = getenv(variable); named != nullptr && *named != '\0') folder = named;
  }
  std::string path = folder + "/farheap-bench-swap.XXXXXX";
  const descriptor file(mkostemp(path.data(), O_CLOEXEC));
  if (file.number < 0) return failed("cannot make a swap file " + path);
  auto created = std::make_unique<swap_file>(path);
  // Swap files must not have holes.
  if (const int code = posix_fallocate(file.number, 0, static_cast<off_t>(bytes)); code != 0) {
    return error{fmt::format("no room for a swap file of {} in {}: {}", format_size(bytes), path, strerror(code)),
                 code};
  }
  return std::unique_ptr<peer_device>(std::move(created));
}

result<std::unique_ptr<swap_area>> swap_area::enable(std::unique_ptr<peer_device> device, std::uint64_t bytes) {
  const result<std::string> in_use = read_system_file("/proc/swaps");
  if (in_use && in_use.value().find('\n') != std::string::npos) {
    return error{"this machine swaps already, and the figures would mix; try again after: swapoff -a", EBUSY};
  }
  if (result<void> written = write_swap_header(device->path(), bytes); !written) return written.error();
  if (swapon(device->path().c_str(), 0) != 0) return failed("cannot swap to " + device->path() + " (root?)");
  return std::unique_ptr<swap_area>(new swap_area(std::move(device)));
}

swap_area::~swap_area() {
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (swapoff(device_->path().c_str()) == 0) return;
    if (errno != EINTR) break;  // a signal interrupts swapoff(2)
  }
  warn(fmt::format("cannot stop swapping to {}: {}; stop it with: swapoff {}", device_->path(), strerror(errno),
                   device_->path()));
}

result<std::unique_ptr<page_cluster>> page_cluster::set(int value) {
  const result<std::string> before = read_system_file(page_cluster_path);
  if (!before) return before.error();
  auto setting = std::unique_ptr<page_cluster>(new page_cluster(before.value()));
  const result<void> written = write_system_file(page_cluster_path, std::to_string(value));
  if (!written) return error{written.error().message + " (root?)", written.error().code};
  return setting;
}

page_cluster::~page_cluster() {
  const result<void> restored = write_system_file(page_cluster_path, before_);
  if (!restored && restored.error().code != EACCES) warn(restored.error().message);
}

}  // namespace far::bench
