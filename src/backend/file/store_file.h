// The file or block device behind `file:`: finding it, opening it safely, knowing its alignment, reserving its space.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "base/result.h"

namespace far::backend {

// Where a plain `file:` lies: in the directory that $FARHEAP_DIR or else $TMPDIR names, or in /var/tmp.
struct default_place {
  std::string directory;
  const char* variable = "FARHEAP_DIR";  // names it, or should
};
[[nodiscard]] default_place default_place_of_files();

// Whether the file system of a directory, or of an open file, is RAM: tmpfs or ramfs.
[[nodiscard]] bool lies_in_ram(const std::string& directory);
[[nodiscard]] bool lies_in_ram(int descriptor);

struct file_options {
  // A directory (an unlinked file in it), a regular file, a block device, or empty: an unlinked file in the default
  // place.
  std::string path;
  std::uint64_t capacity_bytes = 0;  // 0: that of the device
  std::optional<bool> direct;        // O_DIRECT; nothing: where the file system can
  bool use_io_uring = true;          // false: as on a kernel without it
};

// A file that users name is absent (it is created, mode 0600), empty, or left behind by an earlier run, as its first
// page then says. Any other file is refused, because it is somebody's data. A lock prevents two processes from sharing
// one. A block device must not be in use (mounted, swapped to, ...); its contents are overwritten.
//
// Thread-safe once opened. After a fork only the parent may use it; the child may destroy it.
class store_file {
 public:
  [[nodiscard]] static result<std::unique_ptr<store_file>> open(const file_options& chosen);
  ~store_file();
  store_file(const store_file&) = delete;
  store_file& operator=(const store_file&) = delete;

  [[nodiscard]] int descriptor() const { return descriptor_; }

  // The position of the bytes of `slot` in the file.
  [[nodiscard]] std::uint64_t position_of(slot_id slot) const { return data_position_ + slot * page_bytes; }

  // Whether the kernel accepts the transfer as it is. Otherwise it must go through a page-aligned buffer, at positions
  // that are multiples of position_alignment().
  [[nodiscard]] bool is_aligned(std::uint64_t position, std::uint64_t length_bytes, const std::byte* buffer) const {
    return ((position | length_bytes) & (position_alignment_ - 1)) == 0 &&
           (reinterpret_cast<std::uintptr_t>(buffer) & (buffer_alignment_ - 1)) == 0;
  }
  [[nodiscard]] std::uint64_t position_alignment() const { return position_alignment_; }
  [[nodiscard]] bool is_direct() const { return direct_; }

  // The most slots that may ever be used; max() when only the device limits it.
  [[nodiscard]] std::uint64_t capacity_slots() const { return capacity_slots_; }
  // The most slots that a map is worth: no more fit on the device as it is.
  [[nodiscard]] std::uint64_t possible_slots() const { return possible_slots_; }

  // Makes sure that the slots [first, first + count) have space on the device, so that writing to them cannot fail for
  // lack of it (but see below). Returns 0 or an errno value, ENOSPC for any kind of "full". On file systems that cannot
  // reserve space the file only grows in name, and a full disk shows as a failed write.
  [[nodiscard]] int reserve(slot_id first, std::uint64_t count);

  // Flags of a write (pwritev2): where neither space is reserved nor the transfer direct, it waits for the device,
  // which may turn out to be full only then.
  [[nodiscard]] int write_flags() const {
    return !direct_ && cannot_reserve_.load(std::memory_order_relaxed) ? RWF_DSYNC : 0;
  }

  // Whether the process may write up to here now. The program may have limited the size of files since the start
  // (RLIMIT_FSIZE), and a write beyond that would not just fail but kill it with SIGXFSZ.
  [[nodiscard]] bool may_write_up_to(std::uint64_t end) const;

  // "/var/tmp (unlinked, O_DIRECT)".
  [[nodiscard]] std::string describe() const;

 private:
  enum class kind { unlinked, named, device };

  store_file() = default;
  [[nodiscard]] result<void> open_default(const file_options& chosen);
  [[nodiscard]] result<void> open_path(const file_options& chosen);
  [[nodiscard]] result<void> open_unlinked(const std::string& directory, const std::string& advice);
  [[nodiscard]] result<void> open_named(const std::string& path, bool exists);
  [[nodiscard]] result<void> open_device(const std::string& path);
  [[nodiscard]] result<void> choose_alignment(const file_options& chosen);
  [[nodiscard]] result<void> choose_capacity(const file_options& chosen);
  void warn_when_ram() const;

  kind kind_ = kind::unlinked;
  std::string place_;  // for messages
  int descriptor_ = -1;
  int owner_process_ = 0;
  bool is_ours_ = false;  // a file, and its bytes may be dropped
  std::uint64_t data_position_ = 0;
  std::uint64_t device_bytes_ = 0;
  std::uint64_t capacity_slots_ = 0;
  std::uint64_t possible_slots_ = 0;
  std::uint64_t position_alignment_ = 1;
  std::uint64_t buffer_alignment_ = 1;
  bool direct_ = false;
  std::atomic<bool> cannot_reserve_{false};
};

}  // namespace far::backend
