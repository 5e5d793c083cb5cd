// Places for blocks on a disk: which are free, and what a block looks like there. A block may be compressed; then it
// takes less of its place, and the file system keeps the rest. A hash tells when other bytes come back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/spill_disk.h"

namespace far::server {

enum class spill_codec : std::uint8_t { none, lz4, zstd };

[[nodiscard]] std::optional<spill_codec> spill_codec_named(std::string_view name);

// take() and release() belong to whoever holds the lock over places; write() and read() to one thread.
class spill_area {
 public:
  // A place that holds nothing: its block is zeros, and was never written.
  static constexpr std::uint64_t nowhere = 0;

  spill_area(std::unique_ptr<spill_disk> disk, std::uint64_t places, spill_codec codec);
  ~spill_area();
  spill_area(const spill_area&) = delete;
  spill_area& operator=(const spill_area&) = delete;

  [[nodiscard]] std::uint64_t places() const { return facts_.size() - 1; }
  [[nodiscard]] std::uint64_t free_places() const { return free_.size(); }
  [[nodiscard]] std::optional<std::uint64_t> take();
  void release(std::uint64_t place);

  [[nodiscard]] result<void> write(std::uint64_t place, std::span<const std::byte> block);
  // Errors: the disk's, and EBADMSG when other bytes come back. Requires: the place was written.
  [[nodiscard]] result<void> read(std::uint64_t place, std::span<std::byte> block);

  // What all places take on the disk, those that are free again included. Thread-safe.
  [[nodiscard]] std::uint64_t disk_bytes() const { return disk_bytes_.load(std::memory_order_relaxed); }

 private:
  struct facts {
    std::uint64_t hash = 0;         // of the block
    std::uint32_t length = 0;       // of what stands there
    std::uint32_t taken_bytes = 0;  // of the disk
  };

  [[nodiscard]] std::size_t compress(std::span<const std::byte> block);
  [[nodiscard]] bool decompress(std::size_t length, std::span<std::byte> block) const;

  std::unique_ptr<spill_disk> disk_;
  const spill_codec codec_;
  std::vector<facts> facts_;  // by place; the first is `nowhere`
  std::vector<std::uint64_t> free_;
  std::byte* buffer_ = nullptr;  // for compressed bytes
  std::size_t buffer_bytes_ = 0;
  std::atomic<std::uint64_t> disk_bytes_{0};
};

}  // namespace far::server
