// The session's memory in the client's address space: block n of the session is 2 MiB at base() + n * 2 MiB, whichever
// file backs it.
//
// Normally that is one file, the one of the server. When a server is lost, its file stays mapped, with the bytes that
// are stored there. Blocks in use then are orphans; the file of the next server backs all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "wire/message.h"

namespace far::backend::shm {

inline constexpr std::uint64_t block_bytes = wire::block_slots * page_bytes;

// Its users serialise changes; base() may be called from any thread.
class block_map {
 public:
  enum class state : std::uint8_t {
    absent = 0,  // the server has not granted it, or has it back
    granted,
    orphan,  // of a server that is gone; nobody else counts its bytes
  };

  // Maps the file. Errors: it could be made smaller by somebody, it holds no block, no address space.
  [[nodiscard]] static result<std::unique_ptr<block_map>> create(int memory, std::uint64_t most_blocks);
  ~block_map();
  block_map(const block_map&) = delete;
  block_map& operator=(const block_map&) = delete;

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::uint64_t blocks() const { return blocks_; }
  // How many blocks, from 0 on, the file behind absent blocks has: fewer than blocks() after a smaller server.
  [[nodiscard]] std::uint64_t reachable_blocks() const { return reachable_blocks_; }

  [[nodiscard]] state state_of(std::uint64_t block) const { return states_[block]; }
  void grant(std::uint64_t block) { states_[block] = state::granted; }
  // Brings the pages of granted blocks into our page table, so that transfers take no faults. Needs no lock.
  void populate(std::uint64_t first, std::uint64_t count);
  void give_back(std::uint64_t block) { states_[block] = state::absent; }
  // Frees the bytes of a block whose server is gone, and makes it absent.
  void discard_orphan(std::uint64_t block);

  // Another server's file: every granted block becomes an orphan, absent ones get the new file. Returns how many
  // orphans there are now.
  [[nodiscard]] result<std::uint64_t> adopt(int memory);

 private:
  block_map() = default;
  [[nodiscard]] bool map_blocks(std::uint64_t first, std::uint64_t count);

  std::byte* base_ = nullptr;
  std::uint64_t blocks_ = 0;
  std::uint64_t reachable_blocks_ = 0;
  int memory_ = -1;
  state* states_ = nullptr;
};

}  // namespace far::backend::shm
