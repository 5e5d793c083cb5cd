// The commands of a connection that have no reply yet, in the order in which they are sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/tcp/transfer.h"
#include "base/check.h"
#include "platform/local_memory.h"

namespace far::backend {

struct command {
  enum class kind : std::uint8_t { read, write, make, remove, renew, facts, nodes, ping };

  kind is = kind::ping;
  bool has_permission = false;  // of a node that was asked: its reply to ASKING has come
  bool was_asked = false;       // it was sent to such a node before
  std::uint32_t bytes = 0;      // of a read or a write
  std::uint32_t text_bytes = 0;
  transfer* owner = nullptr;  // of a read or a write
  std::byte* buffer = nullptr;
  std::uint64_t deadline_ns = 0;
  std::uint64_t string = 0;  // of make, remove, renew
  std::array<char, 352> text{};

  // A write is followed by its bytes and the end of their line.
  [[nodiscard]] std::size_t sent_bytes() const { return text_bytes + (is == kind::write ? bytes + 2 : 0); }
  [[nodiscard]] bool is_transfer() const { return is == kind::read || is == kind::write; }
};

class command_ring {
 public:
  static constexpr std::size_t most = 320;
  // Transfers leave some of them for commands that keep the session alive.
  static constexpr std::size_t most_for_transfers = 256;
  // Replies may wait for us in the server's memory.
  static constexpr std::uint64_t most_bytes = std::uint64_t{8} << 20;

  command_ring() : commands_(most) {}

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] bool has_room() const { return count_ < most; }
  [[nodiscard]] bool takes_transfers() const { return count_ < most_for_transfers && bytes_ < most_bytes; }
  [[nodiscard]] command& at(std::size_t index) { return commands_[(first_ + index) % most]; }
  [[nodiscard]] const command& at(std::size_t index) const { return commands_[(first_ + index) % most]; }

  // The last one, to be filled in. Requires: has_room().
  [[nodiscard]] command& add(command::kind is, std::uint64_t deadline_ns) {
    FAR_CHECK(has_room(), "a full ring takes no command");
    command& added = at(count_++);
    added.is = is;
    added.deadline_ns = deadline_ns;
    added.owner = nullptr;
    added.buffer = nullptr;
    added.bytes = added.text_bytes = 0;
    added.has_permission = added.was_asked = false;
    return added;
  }
  // Takes a command over from another ring.
  command& add(const command& taken) {
    command& added = add(taken.is, taken.deadline_ns);
    added = taken;
    bytes_ += taken.bytes;
    return added;
  }
  // Requires: it has been sent.
  void pop() {
    FAR_CHECK(sent_ > 0, "a reply belongs to a command that was sent");
    bytes_ -= at(0).bytes;
    first_ = (first_ + 1) % most;
    --count_;
    --sent_;
  }
  void count_bytes(std::uint64_t added) { bytes_ += added; }

  // How many commands have been sent as a whole, and how many bytes of the next one.
  [[nodiscard]] std::size_t sent() const { return sent_; }
  [[nodiscard]] std::size_t sent_of_next_bytes() const { return sent_of_next_bytes_; }
  void note_sent(std::size_t bytes) {
    sent_of_next_bytes_ += bytes;
    while (sent_ < count_ && sent_of_next_bytes_ >= at(sent_).sent_bytes()) {
      sent_of_next_bytes_ -= at(sent_).sent_bytes();
      ++sent_;
    }
  }
  // The connection is gone: everything is sent again.
  void rewind() {
    sent_ = sent_of_next_bytes_ = 0;
    for (std::size_t i = 0; i < count_; ++i) at(i).has_permission = false;
  }

  // Removes the commands for which `ended` returns true. Requires: no part of them has been sent.
  template <typename Ended>
  void remove_if(const Ended& ended) {
    FAR_CHECK(sent_ == 0 && sent_of_next_bytes_ == 0, "what was sent waits for its reply");
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      command& seen = at(i);
      const std::uint64_t bytes = seen.bytes;
      if (ended(seen)) {
        bytes_ -= bytes;
      } else if (kept++ != i) {
        at(kept - 1) = seen;
      }
    }
    count_ = kept;
  }

  void clear() {
    count_ = 0;
    bytes_ = 0;
    rewind();
  }

 private:
  std::vector<command, platform::local_allocator<command>> commands_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
  std::size_t sent_ = 0;
  std::size_t sent_of_next_bytes_ = 0;
};

}  // namespace far::backend
