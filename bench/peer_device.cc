#include "peer_device.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/loop.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/swap.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "system_file.h"

namespace far::bench {

namespace {

constexpr const char* page_cluster_path = "/proc/sys/vm/page-cluster";

error failed(const std::string& what) {
  return {fmt::format("{}: {}", what, strerror(errno)), errno};
}

void warn(const std::string& what) {
  fmt::print(stderr, "farheap-bench: {}\n", what);
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

// A file in RAM that stays there. Its pages are all made now, by this process: made later, they would count against the
// peer's cgroup. They are locked: while swap is on, any reclaim (also a proactive one, such as DAMON's) could otherwise
// swap out the pages that hold the swap itself, and then the loop device waits for its own input for ever.
class locked_file {
 public:
  [[nodiscard]] static result<std::unique_ptr<locked_file>> create(std::uint64_t bytes);
  ~locked_file() { munmap(pages_, bytes_); }

  locked_file(const locked_file&) = delete;
  locked_file& operator=(const locked_file&) = delete;

  [[nodiscard]] int number() const { return file_.number; }

 private:
  locked_file(int opened, void* pages, std::size_t bytes) : file_(opened), pages_(pages), bytes_(bytes) {}

  descriptor file_;
  void* pages_;
  std::size_t bytes_;
};

class loop_device final : public ram_device {
 public:
  loop_device(std::string path, int opened, std::unique_ptr<locked_file> file)
      : path_(std::move(path)), file_(std::move(file)), device_(opened) {}
  ~loop_device() override {
    // Detaches at once, or at its last close.
    if (ioctl(device_.number, LOOP_CLR_FD) != 0 && errno != ENXIO) {
      warn(fmt::format("cannot detach {}: {}; detach it with: losetup -d {}", path_, strerror(errno), path_));
    }
  }
  [[nodiscard]] std::string path() const override { return path_; }

 private:
  std::string path_;
  std::unique_ptr<locked_file> file_;  // outlives the device
  descriptor device_;
};

class zram_device final : public ram_device {
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

// What mkswap(8) writes: a header page with the number of the last page and a signature at its end.
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

result<std::unique_ptr<locked_file>> locked_file::create(std::uint64_t bytes) {
  descriptor file(memfd_create("farheap-bench-device", MFD_CLOEXEC));
  if (file.number < 0 || ftruncate(file.number, static_cast<off_t>(bytes)) != 0) {
    return failed("cannot make a file in RAM");
  }
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.number, 0);
  if (pages == MAP_FAILED) return failed("cannot map a file in RAM");
  auto made = std::unique_ptr<locked_file>(new locked_file(std::exchange(file.number, -1), pages, bytes));
  if (mlock(pages, bytes) != 0) {
    return failed(fmt::format("cannot lock {} of RAM for the peer's device (root? memory?)", format_size(bytes)));
  }
  return made;
}

}  // namespace

result<std::unique_ptr<ram_device>> open_loop_device(std::uint64_t bytes) {
  auto created = locked_file::create(bytes);
  if (!created) return created.error();
  std::unique_ptr<locked_file> file = std::move(created).value();
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
    config.fd = static_cast<__u32>(file->number());
    config.block_size = page_bytes;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;  // detach at the last close, even if this program is killed
    if (ioctl(device.number, LOOP_CONFIGURE, &config) == 0) {
      return std::unique_ptr<ram_device>(new loop_device(path, std::exchange(device.number, -1), std::move(file)));
    }
    if (errno != EBUSY) return failed("cannot attach a file in RAM to " + path);
  }
  return error{"other programs keep taking the free loop device; try again", EBUSY};
}

result<std::unique_ptr<ram_device>> open_zram_device(std::uint64_t bytes) {
  const result<std::string> number = read_system_file("/sys/class/zram-control/hot_add");
  if (!number) return error{"no zram device can be made (root? modprobe zram?): " + number.error().message, ENODEV};
  auto device = std::make_unique<zram_device>(std::stoi(number.value()));
  // Without LZ4 the kernel's own choice stays.
  static_cast<void>(write_system_file(device->attribute("comp_algorithm"), "lz4"));
  const result<void> sized = write_system_file(device->attribute("disksize"), std::to_string(bytes));
  if (!sized) return sized.error();
  return std::unique_ptr<ram_device>(std::move(device));
}

result<std::unique_ptr<swap_area>> swap_area::enable(std::unique_ptr<ram_device> device, std::uint64_t bytes) {
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
