// Places for compressed pages: objects of a few sizes, in zones of local memory, as in the kernel's zsmalloc.
//
// A zone is 64 KiB and holds objects of one size class. Classes are 32 bytes apart up to 512 bytes, then 64; so inside
// an object less than 32 bytes, or an eighth, are wasted, 2% of pages that shrink to a half. The last class is a whole
// page, for what does not compress.
//
// Holes: objects go to the fullest zones first, and a class whose holes exceed an eighth of its objects, and two zones,
// is compacted (page_store.h): the objects of its emptiest zone move into the holes of others. So when that is done,
// the zones occupy at most 9/8 of their objects, and three zones a class.
//
// Promises: with each slot that is allocated comes a promise of room for a page that does not compress at all. A zone
// is opened for a class only while the room that is left, all of it for whole pages, covers what has been promised;
// else the object goes to a larger class. So a page that was promised room finds it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/units.h"

namespace far::backend {

// An object. Numbers of a zone, and of the object in it.
struct object_place {
  std::uint32_t zone = 0;
  std::uint32_t index = 0;
  bool operator==(const object_place&) const = default;
};

// Not thread-safe: one lock is held around every call but bytes_of().
class zones {
 public:
  static constexpr std::size_t zone_bytes = 64 * kib;
  static constexpr std::size_t pages_a_zone = zone_bytes / page_bytes;
  // Longer ones are stored as whole pages.
  static constexpr std::size_t most_packed_bytes = 3072 - sizeof(std::uint32_t);
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  // Room for `capacity_bytes`, at least two zones; nothing of it is filled. nullptr addresses stop the process.
  explicit zones(std::uint64_t capacity_bytes);
  ~zones();
  zones(const zones&) = delete;
  zones& operator=(const zones&) = delete;

  // Promises room for `pages` that do not compress. Returns whether there is so much.
  [[nodiscard]] bool promise(std::uint64_t pages);
  void take_back(std::uint64_t pages) { promised_pages_ -= pages; }

  // Takes an object of `length` bytes, at most most_packed_bytes or exactly a page, for `owner`. `promised`: one page
  // of a promise is used up, and it succeeds. Otherwise it may fail.
  [[nodiscard]] bool allocate(std::size_t length, std::uint32_t owner, bool promised, object_place* into);
  void free(object_place place);

  // Where the owner's bytes are. Valid until it is freed, without the lock.
  [[nodiscard]] std::byte* bytes_of(object_place place) const;
  // Requires: the object was allocated once; it may be free.
  [[nodiscard]] std::uint32_t owner_of(object_place place) const;

  // Compaction of a zone: nothing is allocated in it, and its owners move what they have there to objects of the same
  // class elsewhere; then it is given back. `when_full`: also where the holes are within their bound. none: there is
  // nothing to compact.
  [[nodiscard]] std::uint32_t begin_compaction(bool when_full);
  [[nodiscard]] std::uint32_t object_count(std::uint32_t number) const { return zones_[number].fresh; }
  [[nodiscard]] bool allocate_like(object_place moved, std::uint32_t owner, object_place* into);
  void end_compaction(std::uint32_t number);
  [[nodiscard]] bool wants_compaction() const;

  // Free zones that still have frames: those that are too many go back to the kernel, in between without the lock.
  // While memory is short, none is kept.
  void keep_frames(bool kept) { kept_zones_ = kept ? usually_kept_zones : 0; }
  [[nodiscard]] bool wants_release() const { return ready_.count > kept_zones_; }
  [[nodiscard]] std::uint32_t begin_release();
  void end_release(std::uint32_t number);
  [[nodiscard]] std::byte* address_of(std::uint32_t number) const {
    return memory_ + std::uint64_t{number} * zone_bytes;
  }

  [[nodiscard]] std::uint64_t capacity_bytes() const { return zone_count_ * zone_bytes; }
  [[nodiscard]] std::uint64_t occupied_bytes() const { return used_zones_ * zone_bytes; }
  [[nodiscard]] std::uint64_t promised_pages() const { return promised_pages_; }
  void set_promised(std::uint64_t pages) { promised_pages_ = pages; }

  // Recounts everything; stops the process where a count is wrong.
  void validate() const;

 private:
  static constexpr std::size_t small_step = 32;
  static constexpr std::size_t small_classes = 16;  // up to 512
  static constexpr std::size_t large_step = 64;
  static constexpr std::size_t page_class = small_classes + (3072 - 512) / large_step;
  static constexpr std::size_t class_count = page_class + 1;
  static constexpr std::size_t fullness_groups = 4;
  static constexpr std::uint32_t usually_kept_zones = 128;

  enum class use : std::uint8_t { free, partial, full, compacting };
  struct zone {
    std::uint32_t next = none;
    std::uint32_t previous = none;
    std::uint16_t used = 0;
    std::uint16_t fresh = 0;  // objects that were ever used are below
    std::uint16_t first_free = 0;
    std::uint8_t size_class = 0;
    use state = use::free;
  };
  struct list {
    std::uint32_t first = none;
    std::uint32_t count = 0;
  };
  struct size_class {
    std::array<list, fullness_groups> partial;  // by fullness, the emptiest first
    std::uint64_t zone_count = 0;
    std::uint64_t used = 0;
  };

  [[nodiscard]] static constexpr std::size_t bytes_of_class(std::size_t class_index) {
    if (class_index == page_class) return page_bytes;
    return class_index < small_classes ? (class_index + 1) * small_step
                                       : small_classes * small_step + (class_index - small_classes + 1) * large_step;
  }
  [[nodiscard]] static constexpr std::size_t objects_a_zone(std::size_t class_index) {
    return zone_bytes / bytes_of_class(class_index);
  }
  [[nodiscard]] static std::size_t class_of(std::size_t length);
  [[nodiscard]] static std::size_t group_of(const zone& one);
  [[nodiscard]] std::uint64_t holes_of(std::size_t class_index) const;
  [[nodiscard]] bool has_holes_in_excess(std::size_t class_index) const;
  [[nodiscard]] std::uint64_t room_in_pages() const;
  [[nodiscard]] std::uint32_t fullest_partial(std::size_t class_index) const;
  [[nodiscard]] std::uint32_t open_zone(std::size_t class_index);
  [[nodiscard]] object_place take_object(std::uint32_t from, std::uint32_t owner);
  [[nodiscard]] std::byte* object_at(object_place place) const;
  void push(list* into, std::uint32_t number);
  void remove(list* from, std::uint32_t number);
  void file(std::uint32_t number);
  void unfile(std::uint32_t number);
  void settle(std::uint32_t number);

  const std::uint64_t zone_count_;
  std::byte* const memory_;
  zone* const zones_;
  std::uint32_t* const page_owners_;  // of each page of memory_, where its zone holds whole pages
  std::array<size_class, class_count> classes_;
  list ready_;     // free, with frames
  list released_;  // free, without
  std::uint32_t kept_zones_ = usually_kept_zones;
  std::uint64_t untouched_ = 0;  // zones from here on were never used
  std::uint64_t used_zones_ = 0;
  std::uint64_t promised_pages_ = 0;
  std::uint64_t withheld_pages_ = 0;  // of zones for whole pages that are compacted: no room for anybody
};

}  // namespace far::backend
