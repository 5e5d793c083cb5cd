// The far memory of the peers: loop devices in RAM and zram, as swap or as a device to map, and a file on disk, as
// swap. Everything is undone by the destructors, and main() leaves by them also after SIGINT and SIGTERM.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace far::bench {

// A block device, or a file, that holds a peer's bytes.
class peer_device {
 public:
  virtual ~peer_device() = default;
  [[nodiscard]] virtual std::string path() const = 0;
};

// A loop device over a file in RAM that the kernel never swaps, with all its pages there from the start.
[[nodiscard]] result<std::unique_ptr<peer_device>> open_loop_device(std::uint64_t bytes);

// A zram device of its own, compressing with LZ4 where the kernel has it.
[[nodiscard]] result<std::unique_ptr<peer_device>> open_zram_device(std::uint64_t bytes);

// A file of mode 0600 in the folder where `file:` keeps its bytes, too, with all its blocks there from the start.
[[nodiscard]] result<std::unique_ptr<peer_device>> open_swap_file(std::uint64_t bytes);

// The kernel swaps to a device while this lives.
class swap_area {
 public:
  // Takes the device. Fails when swap of another kind is in use: the figures would mix.
  [[nodiscard]] static result<std::unique_ptr<swap_area>> enable(std::unique_ptr<peer_device> device,
                                                                 std::uint64_t bytes);
  ~swap_area();

  swap_area(const swap_area&) = delete;
  swap_area& operator=(const swap_area&) = delete;

 private:
  explicit swap_area(std::unique_ptr<peer_device> device) : device_(std::move(device)) {}

  std::unique_ptr<peer_device> device_;
};

// Sets how many pages (2 to the power of `value`) the kernel reads around a missing one, and restores what was set.
class page_cluster {
 public:
  [[nodiscard]] static result<std::unique_ptr<page_cluster>> set(int value);
  ~page_cluster();

  page_cluster(const page_cluster&) = delete;
  page_cluster& operator=(const page_cluster&) = delete;

 private:
  explicit page_cluster(std::string before) : before_(std::move(before)) {}

  std::string before_;
};

}  // namespace far::bench
