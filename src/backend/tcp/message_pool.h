// Messages of a connection: unused ones, and those that wait for a reply, in the order in which they are sent.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/tcp/transfer.h"
#include "wire/function.h"
#include "wire/message.h"
#include "wire/reduction.h"
#include "wire/rows.h"

namespace far::backend {

// In front of what is written, or a call's ranges.
inline constexpr std::size_t most_prefix_bytes = std::max(
    wire::write_prefix_bytes(wire::maximum_batch),
    wire::call_header_bytes + std::max({wire::reduction_bytes, wire::most_function_bytes, wire::most_rows_bytes}) +
        wire::maximum_batch * wire::range_bytes);
static_assert(wire::call_header_bytes + wire::most_rows_bytes + wire::maximum_batch * sizeof(std::uint64_t) <=
              most_prefix_bytes);

// A request message. Its header and ranges stay encoded until the reply has come, so that it can be sent again on the
// next connection; bytes to be written, and groups of numbers, are taken from the callers' buffers each time.
struct message {
  // Where the reply's bytes go, or what is written: a part of a transfer. Of a call, the result for its range.
  struct part {
    transfer* owner = nullptr;
    std::byte* buffer = nullptr;
    std::uint32_t length_bytes = 0;
  };

  message* previous = nullptr;
  message* next = nullptr;
  std::uint64_t cookie = 0;
  std::uint64_t deadline_ns = 0;
  std::uint32_t index = 0;
  std::uint32_t epoch = 0;
  std::uint32_t part_count = 0;
  std::uint32_t slot_count = 0;    // of a call about rows: of all parts, from the questions of their transfers
  std::uint32_t data_bytes = 0;    // of all parts
  std::uint32_t group_bytes = 0;   // of a call: of all parts, from the questions of their transfers
  std::uint32_t prefix_bytes = 0;  // header, and what stands in front of the data
  wire::opcode op = wire::opcode::ping;
  wire::block_range blocks{};  // of allocate and free
  bool in_use = false;
  bool sent = false;                                      // as a whole, on the present connection
  bool is_alone = false;                                  // it carries a part of one transfer that is alone
  std::array<wire::range, wire::maximum_batch> ranges{};  // of the parts
  std::array<part, wire::maximum_batch> parts{};
  std::array<std::byte, wire::header_bytes + most_prefix_bytes> prefix{};

  [[nodiscard]] std::span<const part> all() const { return {parts.data(), part_count}; }
  [[nodiscard]] bool carries_data() const { return op == wire::opcode::write; }
  [[nodiscard]] bool sends_parts() const { return carries_data() || group_bytes > 0; }
  // What is sent of part i: the bytes that are written, or the groups of the numbers that are asked about.
  [[nodiscard]] std::span<const std::byte> sent_of(std::size_t i) const {
    if (carries_data()) return {parts[i].buffer, parts[i].length_bytes};
    const page_reduction& asked = *parts[i].owner->io.reduce;
    return {asked.groups, packed_group_bytes(asked.how, ranges[i].length_bytes)};
  }
  // The request, and the reply when all is well.
  [[nodiscard]] std::size_t sent_bytes() const {
    return prefix_bytes + group_bytes + (carries_data() ? data_bytes : 0);
  }
  [[nodiscard]] std::size_t reply_bytes() const {
    return op == wire::opcode::read || op == wire::opcode::call ? data_bytes : 0;
  }
};

class message_pool {
 public:
  // The last `reserved` messages are handed out by take_reserved() only.
  static constexpr std::size_t messages = 256;
  static constexpr std::size_t reserved = 2;

  message_pool();
  ~message_pool();
  message_pool(const message_pool&) = delete;
  message_pool& operator=(const message_pool&) = delete;

  // At most this many at a time, beyond the reserved ones: the server takes no more.
  void limit(std::size_t most);

  // A message with a cookie of its own, not in the list yet; nullptr: all are in use.
  [[nodiscard]] message* take();
  // The same from the reserve. Requires: that one is not in use.
  [[nodiscard]] message& take_reserved(std::size_t index);
  // Back to the pool. Requires: not in the list.
  void give_back(message& unused);

  void append(message& added);
  void remove(message& removed);
  [[nodiscard]] message* first() const { return first_; }
  [[nodiscard]] message* last() const { return last_; }
  // The message of the list with this cookie, or nullptr.
  [[nodiscard]] message* find(std::uint64_t cookie) const;

  // Forgets the list and every use.
  void reset();

 private:
  message& start(message& taken);

  message* const all_;
  std::array<std::uint32_t, messages>
      unused_{};  // the last one given back is the first to be taken: its memory is warm
  std::size_t unused_count_ = 0;
  std::size_t used_ = 0;
  std::size_t limit_ = messages - reserved;
  std::uint64_t serial_ = 0;
  message* first_ = nullptr;
  message* last_ = nullptr;
};

}  // namespace far::backend
