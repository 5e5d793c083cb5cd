// A buffer of fixed size between a connection and its messages: bytes are added at the end and removed at the front.
//
// Both ends may be in use by the kernel while messages are handled, so bytes move only where a function says so.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/units.h"
#include "platform/local_memory.h"

namespace far::server {

class byte_buffer {
 public:
  // Reserves address space. It takes memory only where it is written to.
  explicit byte_buffer(std::size_t capacity_bytes)
      : bytes_(platform::map_local(capacity_bytes)), capacity_(capacity_bytes) {}
  ~byte_buffer() { platform::unmap_local(bytes_, capacity_); }
  byte_buffer(const byte_buffer&) = delete;
  byte_buffer& operator=(const byte_buffer&) = delete;

  [[nodiscard]] std::span<const std::byte> filled() const { return {bytes_ + begin_, end_ - begin_}; }
  [[nodiscard]] std::span<std::byte> space() { return {bytes_ + end_, capacity_ - end_}; }
  [[nodiscard]] std::size_t room() const { return capacity_ - end_; }
  [[nodiscard]] bool empty() const { return begin_ == end_; }

  // The first bytes of space() have been written.
  void add(std::size_t bytes) {
    FAR_CHECK(bytes <= capacity_ - end_, "a buffer overflows");
    end_ += bytes;
    if (end_ > highest_) highest_ = end_;
  }
  void remove(std::size_t bytes) {
    FAR_CHECK(bytes <= end_ - begin_, "more bytes leave a buffer than it holds");
    begin_ += bytes;
  }

  // Moves the filled part to the front, unless there is room for `wanted_bytes` behind it. Requires: nobody uses
  // filled() or space().
  void make_room(std::size_t wanted_bytes) {
    if (begin_ == end_) begin_ = end_ = 0;
    if (begin_ == 0 || capacity_ - end_ >= wanted_bytes) return;
    std::memmove(bytes_, bytes_ + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }

  // Moves the filled part to the front when it is smaller than the free part before it, so at most one byte is moved
  // for each byte that was removed. Requires: nobody uses filled() or space().
  void make_some_room() {
    if (end_ - begin_ <= begin_) make_room(capacity_);
  }

  // Gives back memory that a busier time has left, except for the first `in_use_bytes` of space(). Requires: empty().
  void release_memory(std::size_t in_use_bytes) {
    const std::size_t kept = round_up(std::max(kept_bytes, end_ + in_use_bytes), page_bytes);
    if (highest_ <= kept) return;
    platform::release_local_frames(bytes_ + kept, round_up(highest_, page_bytes) - kept);
    highest_ = kept;
  }

 private:
  static constexpr std::size_t kept_bytes = 16384;

  std::byte* bytes_;
  std::size_t capacity_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t highest_ = 0;
};

}  // namespace far::server
