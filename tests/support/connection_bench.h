// A connection to a scripted server, for tests of connections.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/tcp/connection.h"
#include "tests/support/scripted_server.h"

namespace far::backend {

inline constexpr std::uint64_t millisecond_ns = 1'000'000;
inline constexpr std::uint64_t timeout_ns = 1000 * millisecond_ns;
inline constexpr std::string_view secret = "a token of enough bytes";

struct fake_clock final : platform::clock {
  std::uint64_t ns = 1'000'000'000;
  [[nodiscard]] std::uint64_t now_ns() const override { return ns; }
};

inline std::byte content(std::uint64_t address, unsigned generation) {
  return static_cast<std::byte>((address * 0x9e3779b97f4a7c15u >> 32) + generation * 37);
}

struct scripted_control final : control_source {
  std::vector<control_request> wanted;
  std::vector<wire::status> outcomes;
  bool is_draining = false;
  bool stores_nothing = false;

  bool next(std::uint32_t /*epoch*/, std::uint64_t /*now_ns*/, control_request* into) override {
    if (wanted.empty()) return false;
    *into = wanted.front();
    return true;
  }
  void done(const control_request& request, std::uint32_t /*epoch*/, wire::status outcome,
            std::uint64_t /*now_ns*/) override {
    ASSERT_FALSE(wanted.empty());
    EXPECT_EQ(request.blocks, wanted.front().blocks);
    wanted.erase(wanted.begin());
    outcomes.push_back(outcome);
  }
  [[nodiscard]] bool stores_anything() const override { return !stores_nothing; }
  void draining(std::uint32_t /*epoch*/) override { is_draining = true; }
};

// A client with one connection, its server, and a clock that moves when it is told to.
struct connection_bench : completion_sink {
  struct job {
    transfer moved;
    std::vector<std::byte> buffer;
    bool ended = false;
  };

  fake_clock time;
  scripted_server server;
  scripted_stream::script plan;
  tcp_session session;
  wire::credentials shown;
  scripted_control control;
  std::vector<std::unique_ptr<job>> jobs;
  std::unique_ptr<tcp_connection> tested;

  tcp_connection& make(bool opens_session = true) {
    tcp_connection_settings settings{
        .peer = "tcp://scripted:1", .channel = 7, .timeout_ns = timeout_ns, .opens_session = opens_session};
    tested = std::make_unique<tcp_connection>(settings, std::make_unique<scripted_stream>(server, plan), session, shown,
                                              time, &control);
    return *tested;
  }

  job& start(operation op, slot_id slot, std::uint32_t offset, std::uint32_t length, unsigned generation) {
    jobs.push_back(std::make_unique<job>());
    job& added = *jobs.back();
    added.buffer.resize(length, std::byte{0xee});
    const std::uint64_t address = slot * page_bytes + offset;
    for (std::uint32_t i = 0; op == operation::write && i < length; ++i)
      added.buffer[i] = content(address + i, generation);
    added.moved.io = {op, slot, offset, length, added.buffer.data(), jobs.size()};
    prepare(added);
    tested->push(this);
    tested->validate();
    return added;
  }

  // About the whole of a slot; it waits for the next push. Requires: the question lasts until its end.
  job& ask(slot_id slot, const page_reduction& asked) {
    jobs.push_back(std::make_unique<job>());
    job& added = *jobs.back();
    added.buffer.resize(answer_bytes(asked.how), std::byte{0xee});
    added.moved.io = {operation::read, slot, 0, page_bytes, added.buffer.data(), jobs.size()};
    added.moved.io.reduce = &asked;
    prepare(added);
    return added;
  }

  void prepare(job& added) {
    added.moved.owner = this;
    added.moved.epoch = session.epoch();
    added.moved.deadline_ns = time.ns + timeout_ns;
    tested->enqueue(added.moved);
  }

  void complete(transfer& ended, const completion_sink* /*sink*/) override {
    for (const auto& entry : jobs) {
      if (&entry->moved != &ended) continue;
      EXPECT_FALSE(entry->ended) << "a completion comes once";
      EXPECT_EQ(ended.outstanding, 0u);
      entry->ended = true;
    }
  }

  void step(std::uint64_t ns = millisecond_ns) {
    tested->advance(this);
    tested->validate();
    time.ns += ns;
  }
  void run(const std::function<bool()>& reached, int steps = 400, std::uint64_t step_ns = millisecond_ns) {
    while (!reached() && steps-- > 0) step(step_ns);
    EXPECT_TRUE(reached());
  }
  void run_to_end(int steps = 400, std::uint64_t step_ns = millisecond_ns) {
    const auto ended = [](const auto& entry) { return entry->ended; };
    run([&] { return std::all_of(jobs.begin(), jobs.end(), ended); }, steps, step_ns);
  }
  void become_ready() {
    run([this] { return tested->now() == tcp_connection::phase::ready; });
  }
};

inline bool holds(const connection_bench::job& read, unsigned generation) {
  const std::uint64_t address = read.moved.io.slot * page_bytes + read.moved.io.offset_bytes;
  for (std::size_t i = 0; i < read.buffer.size(); ++i) {
    if (read.buffer[i] != content(address + i, generation)) return false;
  }
  return true;
}

// Some writes, then reads of the same, and that everything ended well.
inline void write_and_read(connection_bench& all) {
  constexpr unsigned count = 5;
  for (unsigned i = 0; i < count; ++i) all.start(operation::write, i * 3, i * 17, 60 + i, i);
  all.run_to_end();
  std::vector<connection_bench::job*> reads;
  for (unsigned i = 0; i < count; ++i) reads.push_back(&all.start(operation::read, i * 3, i * 17, 60 + i, i));
  all.run_to_end();
  for (const auto& job : all.jobs) EXPECT_EQ(job->moved.error_code, 0);
  for (unsigned i = 0; i < count; ++i) EXPECT_TRUE(holds(*reads[i], i)) << i;
}

}  // namespace far::backend
