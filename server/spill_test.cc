// Blocks on disk: the store's side, over a disk in memory that fails when a test wants it to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/parked_request.h"
#include "server/spill_area.h"
#include "server/spill_disk.h"
#include "server/store.h"
#include "tests/support/scripted_client.h"

namespace far::server {
namespace {

using namespace std::chrono_literals;
using wire::status;

constexpr std::uint64_t memory_blocks = 8;

struct disk_state {
  std::atomic<int> write_error{0};
  std::atomic<int> read_error{0};
  std::atomic<bool> damages{false};
  std::atomic<std::uint64_t> discarded{0};
};

class test_disk final : public spill_disk {
 public:
  test_disk(disk_state& state, std::uint64_t places) : state_(state), bytes_(places * block_bytes) {}
  result<void> write(std::uint64_t position, std::span<const std::byte> from) override {
    if (const int code = state_.write_error; code != 0) return error{"cannot write, as the test wants it", code};
    EXPECT_EQ(position % page_bytes + from.size() % page_bytes, 0u);
    std::memcpy(bytes_.data() + position, from.data(), from.size());
    return {};
  }
  result<void> read(std::uint64_t position, std::span<std::byte> into) override {
    if (const int code = state_.read_error; code != 0) return error{"cannot read, as the test wants it", code};
    std::memcpy(into.data(), bytes_.data() + position, into.size());
    if (state_.damages) into[into.size() / 2] ^= std::byte{1};
    return {};
  }
  void discard(std::uint64_t, std::uint64_t bytes) override { state_.discarded += bytes; }

 private:
  disk_state& state_;
  std::vector<std::byte> bytes_;
};

std::unique_ptr<store> make_store(disk_state& disk, std::uint64_t on_disk, spill_codec codec = spill_codec::none) {
  const std::uint64_t places = on_disk + spiller::spare_places;
  store_settings settings;
  settings.memory_bytes = memory_blocks * block_bytes;
  settings.spill = std::make_shared<spill_area>(std::make_unique<test_disk>(disk, places), places, codec);
  return std::move(store::create(std::move(settings))).value();
}

attachment open(store& from) {
  return std::move(from.open("default", 0)).value();
}

std::uint64_t first_slot(std::uint64_t block) {
  return block * wire::block_slots;
}

// Contents that depend on the address, and do not compress well.
std::uint64_t word_of(std::uint64_t block, std::uint64_t index) {
  std::uint64_t mixed = (block << 32 | index) * 0x9e37'79b9'7f4a'7c15u;
  mixed ^= mixed >> 29;
  return mixed * 0xbf58'476d'1ce4'e5b9u;
}

std::vector<std::uint64_t> contents_of(std::uint64_t block) {
  std::vector<std::uint64_t> words(block_bytes / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = word_of(block, i);
  return words;
}

// Waits until the block is in memory; nullptr when it cannot be.
std::byte* bring(session& mine, std::uint64_t block, quiescent_states::reader* reader = nullptr) {
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (std::chrono::steady_clock::now() < end) {
    if (reader != nullptr) reader->quiet();
    if (std::byte* const found = mine.address_of(first_slot(block))) return found;
    const session::whereabouts where = mine.bring_in(first_slot(block));
    if (where == session::whereabouts::unreadable || where == session::whereabouts::nowhere) return nullptr;
    if (reader != nullptr) reader->offline();
    std::this_thread::sleep_for(100us);
  }
  ADD_FAILURE() << "block " << block << " does not come back";
  return nullptr;
}

// A reader keeps the block from leaving between the look-up and the use, as an event loop does.
void fill(store& from, session& mine, std::uint64_t block) {
  quiescent_states::reader reader(from.readers());
  std::byte* const bytes = bring(mine, block, &reader);
  ASSERT_NE(bytes, nullptr);
  std::memcpy(bytes, contents_of(block).data(), block_bytes);
}

bool holds(store& from, session& mine, std::uint64_t block) {
  quiescent_states::reader reader(from.readers());
  const std::byte* const bytes = bring(mine, block, &reader);
  return bytes != nullptr && std::memcmp(bytes, contents_of(block).data(), block_bytes) == 0;
}

template <typename Condition>
void wait_until(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(condition());
}

spill_report spilled(const store& from) {
  return from.report().spill.value();
}

void reclaim_all(store& from) {
  const auto end = std::chrono::steady_clock::now() + 60s;
  while (from.reclaim() != 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(100us);
}

// Nothing moves when a few looks in a row have shown the same.
void settle(const store& lent) {
  std::uint64_t same = 0;
  std::uint64_t seen = 0;
  wait_until([&] {
    const spill_report now = spilled(lent);
    const std::uint64_t sum = now.writes + now.reads + now.errors;
    same = sum == seen ? same + 1 : 0;
    seen = sum;
    return same > 20;
  });
}

class Spill : public testing::TestWithParam<spill_codec> {};

TEST_P(Spill, BlocksComeBackAsTheyWere) {
  disk_state disk;
  const std::unique_ptr<store> lent = make_store(disk, 24, GetParam());
  attachment mine = open(*lent);
  ASSERT_EQ(mine.to->allocate({0, 30}), status::ok);
  for (std::uint64_t block = 0; block < 30; ++block) fill(*lent, *mine.to, block);
  for (std::uint64_t round = 0; round < 2; ++round) {
    for (std::uint64_t block = 0; block < 30; ++block) EXPECT_TRUE(holds(*lent, *mine.to, block)) << block;
    EXPECT_LE(spilled(*lent).resident_blocks, memory_blocks);
  }
  EXPECT_GT(spilled(*lent).writes, 30u);
  EXPECT_EQ(spilled(*lent).errors, 0u);
  settle(*lent);
  lent->validate();
  lent->leave(mine, 0);
}

TEST_P(Spill, BlocksThatWereNeverWrittenAreZeros) {
  disk_state disk;
  const std::unique_ptr<store> lent = make_store(disk, 24, GetParam());
  attachment mine = open(*lent);
  ASSERT_EQ(mine.to->allocate({100, 20}), status::ok);
  for (std::uint64_t block = 100; block < 120; ++block) {
    const std::byte* const bytes = bring(*mine.to, block);
    ASSERT_NE(bytes, nullptr);
    quiescent_states::reader reader(lent->readers());
    const std::byte* const again = bring(*mine.to, block, &reader);
    EXPECT_TRUE(std::all_of(again, again + block_bytes, [](std::byte value) { return value == std::byte{}; }));
  }
  lent->leave(mine, 0);
}

INSTANTIATE_TEST_SUITE_P(Codecs, Spill, testing::Values(spill_codec::none, spill_codec::lz4, spill_codec::zstd));

TEST(Spill, CompressedBlocksTakeLessOfTheDisk) {
  for (const spill_codec codec : {spill_codec::lz4, spill_codec::zstd}) {
    disk_state state;
    spill_area area(std::make_unique<test_disk>(state, 2), 2, codec);
    std::vector<std::byte> block(block_bytes, std::byte{7});
    const std::uint64_t place = area.take().value();
    ASSERT_TRUE(area.write(place, {reinterpret_cast<const std::byte*>(contents_of(1).data()), block_bytes}).ok());
    EXPECT_EQ(area.disk_bytes(), block_bytes);
    ASSERT_TRUE(area.write(place, block).ok());
    EXPECT_LT(area.disk_bytes(), block_bytes / 50);
    EXPECT_EQ(area.disk_bytes() + state.discarded, block_bytes);
    std::vector<std::byte> back(block_bytes);
    ASSERT_TRUE(area.read(place, back).ok());
    EXPECT_EQ(back, block);
  }
}

TEST(Spill, LimitsCountBlocksWhereverTheyAre) {
  disk_state disk;
  const std::unique_ptr<store> lent = make_store(disk, 24);
  attachment mine = open(*lent);
  EXPECT_EQ(lent->report().memory_blocks, memory_blocks + 24);
  EXPECT_EQ(mine.to->allocate({0, memory_blocks + 25}), status::no_space);
  EXPECT_EQ(mine.to->allocate({0, memory_blocks + 24}), status::ok);
  EXPECT_EQ(mine.to->allocate({500, 1}), status::no_space);
  for (std::uint64_t block = 0; block < memory_blocks + 24; ++block) fill(*lent, *mine.to, block);
  // All of it is lent, and still everything can move.
  for (std::uint64_t block = 0; block < memory_blocks + 24; ++block) EXPECT_TRUE(holds(*lent, *mine.to, block));
  ASSERT_EQ(mine.to->free({0, 20}), status::ok);
  reclaim_all(*lent);
  settle(*lent);
  lent->validate();
  EXPECT_EQ(mine.to->allocate({0, 20}), status::ok);
  EXPECT_TRUE(holds(*lent, *mine.to, 25));
  lent->end(*mine.to);
  reclaim_all(*lent);
  settle(*lent);
  lent->validate();
  EXPECT_EQ(spilled(*lent).resident_blocks, 0u);
  EXPECT_EQ(spilled(*lent).places_used, 0u);
  lent->leave(mine, 0);
}

TEST(Spill, LessMemoryMakesBlocksLeave) {
  disk_state disk;
  const std::unique_ptr<store> lent = make_store(disk, 24);
  attachment mine = open(*lent);
  ASSERT_EQ(mine.to->allocate({0, 32}), status::ok);
  for (std::uint64_t block = 0; block < 32; ++block) fill(*lent, *mine.to, block);
  lent->set_memory(3 * block_bytes);
  // All the places that there are may be taken, so what stays is what is lent beyond them.
  wait_until([&] { return spilled(*lent).resident_blocks <= 3; });
  for (std::uint64_t block = 0; block < 32; ++block) EXPECT_TRUE(holds(*lent, *mine.to, block)) << block;
  lent->leave(mine, 0);
}

TEST(Spill, AFullDiskLosesNothing) {
  disk_state disk;
  const std::unique_ptr<store> lent = make_store(disk, 24);
  attachment mine = open(*lent);
  disk.write_error = ENOSPC;
  ASSERT_EQ(mine.to->allocate({0, memory_blocks - 1}), status::ok);
  for (std::uint64_t block = 0; block < memory_blocks - 1; ++block) fill(*lent, *mine.to, block);
  wait_until([&] { return spilled(*lent).is_failing; });
  EXPECT_GT(spilled(*lent).errors, 0u);
  // Memory is lent as before, and nothing beyond it.
  EXPECT_EQ(mine.to->allocate({100, 20}), status::no_space);
  for (std::uint64_t block = 0; block < memory_blocks - 1; ++block) EXPECT_TRUE(holds(*lent, *mine.to, block));
  // An attempt takes places for a moment.
  wait_until([&] { return spilled(*lent).places_used == 0; });
  disk.write_error = 0;
  wait_until([&] { return !spilled(*lent).is_failing; });
  EXPECT_EQ(mine.to->allocate({100, 20}), status::ok);
  for (std::uint64_t block = 0; block < memory_blocks - 1; ++block) EXPECT_TRUE(holds(*lent, *mine.to, block));
  lent->leave(mine, 0);
}

// Blocks for which a client waited have no way back while the disk takes none. They must not keep memory from others
// when nobody waits for them any more.
TEST(Spill, MemoryComesBackWhileTheDiskIsFull) {
  for (const bool ends : {false, true}) {
    disk_state disk;
    const std::unique_ptr<store> lent = make_store(disk, 24);
    attachment mine = open(*lent);
    ASSERT_EQ(mine.to->allocate({0, 30}), status::ok);
    for (std::uint64_t block = 0; block < 30; ++block) fill(*lent, *mine.to, block);
    // The first one is given back first.
    wait_until([&] {
      for (std::uint64_t block = 10; block < 30; ++block) EXPECT_TRUE(holds(*lent, *mine.to, block));
      return mine.to->address_of(first_slot(0)) == nullptr;
    });
    settle(*lent);
    disk.write_error = ENOSPC;
    for (std::uint64_t block = 30; block > 0; --block) static_cast<void>(mine.to->bring_in(first_slot(block - 1)));
    wait_until([&] { return spilled(*lent).is_failing && spilled(*lent).resident_blocks == memory_blocks - 1; });
    if (ends) {
      lent->end(*mine.to);
    } else {
      ASSERT_EQ(mine.to->free({0, 30}), status::ok);
    }
    // A block that was being read has a frame for a moment longer.
    wait_until(
        [&] { return lent->reclaim() == 0 && spilled(*lent).resident_blocks == 0 && spilled(*lent).places_used == 0; });
    attachment other = open(*lent);
    EXPECT_EQ(other.to->allocate({0, memory_blocks - 1}), status::ok);
    lent->leave(other, 0);
    if (!ends) lent->leave(mine, 0);
  }
}

TEST(Spill, WhatTheDiskDoesNotReturnIsAnErrorAndNotOtherBytes) {
  disk_state disk;
  const std::unique_ptr<store> lent = make_store(disk, 24);
  attachment mine = open(*lent);
  ASSERT_EQ(mine.to->allocate({0, 30}), status::ok);
  for (std::uint64_t block = 0; block < 30; ++block) fill(*lent, *mine.to, block);
  settle(*lent);
  const auto count_lost = [&] {
    unsigned lost = 0;
    for (std::uint64_t block = 0; block < 30; ++block) lost += bring(*mine.to, block) == nullptr;
    return lost;
  };
  disk.read_error = EIO;
  EXPECT_GE(count_lost(), 30 - memory_blocks);
  disk.read_error = 0;
  disk.damages = true;
  EXPECT_GE(count_lost(), 30 - memory_blocks);
  disk.damages = false;
  // Nothing was forgotten; the flags of the last errors are gone after one more try.
  static_cast<void>(count_lost());
  for (std::uint64_t block = 0; block < 30; ++block) EXPECT_TRUE(holds(*lent, *mine.to, block)) << block;
  lent->leave(mine, 0);
}

TEST(Spill, BlocksThatMoveCanBeFreed) {
  disk_state disk;
  const std::unique_ptr<store> lent = make_store(disk, 24);
  attachment mine = open(*lent);
  for (unsigned round = 0; round < 50; ++round) {
    ASSERT_EQ(mine.to->allocate({0, 20}), status::ok) << round;
    for (std::uint64_t block = round % 20; block < 20; block += 3) {
      static_cast<void>(mine.to->bring_in(first_slot(block)));
    }
    ASSERT_EQ(mine.to->free({0, 20}), status::ok);
    reclaim_all(*lent);
  }
  // The same for sessions that end.
  for (unsigned round = 0; round < 30; ++round) {
    attachment other = open(*lent);
    ASSERT_EQ(other.to->allocate({0, 20}), status::ok);
    for (std::uint64_t block = round % 20; block < 20; ++block) {
      static_cast<void>(other.to->bring_in(first_slot(block)));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300 * (round % 10)));
    lent->end(*other.to);
    reclaim_all(*lent);
    lent->leave(other, 0);
  }
  settle(*lent);
  lent->validate();
  EXPECT_EQ(spilled(*lent).places_used, 0u);
  EXPECT_EQ(spilled(*lent).resident_blocks, 0u);
  lent->leave(mine, 0);
}

TEST(Spill, ARequestForMoreThanMemoryHoldsIsServed) {
  disk_state disk;
  const std::unique_ptr<store> lent = make_store(disk, 50);
  attachment mine = open(*lent);
  constexpr std::size_t parts = 40;
  ASSERT_EQ(mine.to->allocate({0, parts + 1}), status::ok);
  // The ends of each block and the beginning of the next.
  wire::batch wanted;
  std::vector<std::byte> bytes;
  for (std::uint64_t block = 0; block < parts; ++block) {
    wanted.ranges[wanted.count++] = {first_slot(block + 1) - 1, page_bytes - 50, 100};
    for (unsigned i = 0; i < 100; ++i) bytes.push_back(static_cast<std::byte>(block + i));
  }
  wanted.total_bytes = bytes.size();
  wanted.bytes = bytes;
  parked_request parked;
  quiescent_states::reader reader(lent->readers());
  const auto serve = [&](auto step) {
    parked_request::step reached = parked_request::step::wait;
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (reached == parked_request::step::wait && std::chrono::steady_clock::now() < end) {
      reader.quiet();
      reached = step();
      reader.offline();
      std::this_thread::sleep_for(100us);
    }
    return reached;
  };
  EXPECT_EQ(serve([&] { return parked.write(*mine.to, wanted, 1); }), parked_request::step::done);
  EXPECT_EQ(serve([&] { return parked.read(*mine.to, wanted, 1); }), parked_request::step::done);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), parked.gathered().begin(), parked.gathered().end()));
  wanted.ranges[parts - 1].slot = first_slot(600);
  EXPECT_EQ(serve([&] { return parked.read(*mine.to, wanted, 1); }), parked_request::step::not_allocated);
  lent->leave(mine, 0);
}

// An operation needs all of its blocks in memory at the same time.
TEST(Spill, ACallThatDoesNotFitIntoMemoryIsRefusedOnce) {
  constexpr std::uint64_t blocks = 20;
  static_assert(blocks > memory_blocks);
  disk_state disk;
  for (const std::uint64_t patience_ns : {second_ns / 2, 10 * second_ns}) {
    test_server server;
    server.reader.reset();
    server.lent = make_store(disk, 24);
    server.settings.lent = server.lent.get();
    server.settings.patience_ns = patience_ns;
    server.reader.emplace(server.lent->readers());
    server.reader->quiet();
    scripted_client client(server);
    ASSERT_TRUE(client.shake_hands({}).has_value());
    ASSERT_EQ(client.ask_blocks(wire::opcode::allocate, 0, blocks), status::ok);
    std::vector<wire::range> ranges;
    for (std::uint64_t block = 0; block < blocks; ++block) ranges.push_back({first_slot(block), 0, 8});
    std::vector<std::byte> payload(wire::call_header_bytes);
    ASSERT_TRUE(wire::encode_call("checksum", std::span(payload).first<wire::call_header_bytes>()));
    const std::vector<std::byte> arguments = scripted_client::read_payload(ranges);
    payload.insert(payload.end(), arguments.begin(), arguments.end());
    client.send({.op = wire::opcode::call, .cookie = 77}, payload);
    std::vector<status> replies;
    for (const std::uint64_t end_ns = server.now_ns + 3 * second_ns; server.now_ns < end_ns;) {
      server.now_ns += second_ns / 1000;
      client.turn();
      while (const std::optional<message> got = client.take()) replies.push_back(got->head.result);
      std::this_thread::sleep_for(20us);
    }
    EXPECT_EQ(replies, std::vector<status>{status::call_failed});
    EXPECT_EQ(client.ask(wire::opcode::ping).head.result, status::ok);
  }
}

TEST(Spill, ManyClientsAtOnce) {
  disk_state disk;
  const std::unique_ptr<store> lent = make_store(disk, 40, spill_codec::lz4);
  constexpr std::uint64_t blocks = 10;
  std::vector<std::thread> clients;
  for (std::uint64_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      attachment mine = open(*lent);
      ASSERT_EQ(mine.to->allocate({0, blocks}), status::ok);
      quiescent_states::reader reader(lent->readers());
      std::array<std::uint64_t, blocks> written{};
      for (std::uint64_t step = 1; step <= 300; ++step) {
        const std::uint64_t block = word_of(client, step) % blocks;
        auto* const words = reinterpret_cast<std::uint64_t*>(bring(*mine.to, block, &reader));
        ASSERT_NE(words, nullptr);
        EXPECT_EQ(words[client], written[block]);
        words[client] = written[block] = step;
        reader.offline();
      }
      lent->leave(mine, 0);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(spilled(*lent).reads, 0u);
}

TEST(Spill, TheFileHasNoName) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("farheap-spill-test-" + std::to_string(getpid()));
  std::filesystem::create_directory(directory);
  {
    result<std::unique_ptr<spill_disk>> disk = open_spill_file(directory, 4 * block_bytes, true);
    ASSERT_TRUE(disk.ok()) << disk.error().message;
    EXPECT_TRUE(std::filesystem::is_empty(directory));
    spill_area area(std::move(disk).value(), 4, spill_codec::none);
    alignas(4096) static std::array<std::byte, block_bytes> block;
    std::memcpy(block.data(), contents_of(3).data(), block_bytes);
    const std::uint64_t place = area.take().value();
    ASSERT_TRUE(area.write(place, block).ok());
    block.fill({});
    ASSERT_TRUE(area.read(place, block).ok());
    EXPECT_EQ(std::memcmp(block.data(), contents_of(3).data(), block_bytes), 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory));
  std::filesystem::remove(directory);
  EXPECT_EQ(open_spill_file(directory, block_bytes, true).error().code, ENOENT);
}

}  // namespace
}  // namespace far::server
