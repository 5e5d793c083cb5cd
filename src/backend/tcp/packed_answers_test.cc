// Packed answers of a memory server, as they come to a client (wire/packing.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "backend/tcp/connection.h"
#include "tests/support/connection_bench.h"
#include "wire/packing.h"
#include "wire/reduction.h"

namespace far::backend {
namespace {

using bench = connection_bench;

// Questions about slots 7 to 26, which make one message; the answer about a slot has its number in every fifth byte.
struct packed_answers : testing::Test {
  static constexpr std::uint64_t slots = 20;
  const page_hasher hash{3};
  const page_reduction asked{{detail::number_type::int64, 0, 9, reduction_kind::marks}, &hash};
  std::size_t joined = 0;  // ranges of the last question that the server got

  [[nodiscard]] std::vector<std::byte> result_of(std::span<const std::byte> payload) {
    const auto call = wire::decode_call(payload);
    const auto got = call ? wire::decode_reduction(call->arguments) : std::nullopt;
    EXPECT_TRUE(got);
    if (!got) return {};
    joined = (call->arguments.size() - wire::reduction_bytes) / wire::range_bytes;
    std::vector<std::byte> result;
    for (const wire::range& one : got->ranges.all()) {
      for (std::size_t i = 0; i < answer_bytes(got->how); ++i) result.push_back(byte_of(one.slot, i));
    }
    return result;
  }
  [[nodiscard]] static std::byte byte_of(std::uint64_t slot, std::size_t i) {
    return static_cast<std::byte>(i % 5 == 0 ? slot : 0);
  }
  [[nodiscard]] static std::vector<std::byte> packed(const std::vector<std::byte>& whole) {
    wire::packer packs;
    std::vector<std::byte> into(whole.size());
    into.resize(packs.pack(whole, into));
    EXPECT_FALSE(into.empty());
    return into;
  }
  void answer_packed(bench& all) {
    all.server.on_call = [this](auto payload) -> scripted_server::call_result {
      return {packed(result_of(payload)), true};
    };
  }
  // All of them are answered, after so many attempts.
  void expect_answers(bench& all, int connects) {
    all.jobs.clear();
    for (std::uint64_t slot = 7; slot < 7 + slots; ++slot) all.ask(slot, asked);
    all.tested->push(&all);
    all.run_to_end(40'000, 20'000);
    for (const auto& job : all.jobs) {
      ASSERT_EQ(job->moved.error_code, 0);
      for (std::size_t i = 0; i < job->buffer.size(); ++i) ASSERT_EQ(job->buffer[i], byte_of(job->moved.io.slot, i));
    }
    EXPECT_EQ(all.plan.connects, connects);
  }
};

TEST_F(packed_answers, go_where_they_are_awaited_however_they_are_cut) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{41}, std::size_t{1} << 20}) {
    bench all;
    all.plan.bytes_a_call = bytes;
    all.make();
    all.become_ready();
    answer_packed(all);
    expect_answers(all, 1);
  }
}

TEST_F(packed_answers, may_come_between_others) {
  bench all;
  all.make();
  write_and_read(all);
  int calls = 0;
  all.server.on_call = [&](auto payload) -> scripted_server::call_result {
    const bool packs = ++calls % 2 == 1;
    return {packs ? packed(result_of(payload)) : result_of(payload), packs};
  };
  for (int i = 0; i < 4; ++i) expect_answers(all, 1);
  EXPECT_GE(calls, 4);
}

TEST_F(packed_answers, that_arrive_damaged_or_in_part_are_asked_for_again) {
  bench whole;
  whole.make();
  whole.become_ready();
  const std::uint64_t before = whole.plan.received;
  answer_packed(whole);
  expect_answers(whole, 1);
  for (std::uint64_t at = before; at < whole.plan.received; ++at) {
    SCOPED_TRACE(testing::Message() << "byte " << at);
    for (const bool is_cut : {false, true}) {
      bench all;
      all.make();
      all.become_ready();
      answer_packed(all);
      (is_cut ? all.plan.cut_received_at : all.plan.damage_received_at) = at;
      expect_answers(all, 2);
      if (HasFailure()) return;
    }
  }
}

// Whatever the bytes are: the connection ends, and nothing of them is an answer.
TEST_F(packed_answers, that_are_none_end_the_connection) {
  using bytes = std::vector<std::byte>;
  const std::function<bytes(const bytes&)> lies[] = {
      [](const bytes& good) { return packed(bytes(good.begin(), good.end() - 1)); },
      [](const bytes& good) {
        bytes longer = good;
        longer.push_back(std::byte{0});
        return packed(longer);
      },
      [](const bytes&) { return packed(bytes(wire::most_unpacked_bytes)); },
      [](const bytes& good) {
        bytes cut = packed(good);
        cut.pop_back();
        return cut;
      },
      [](const bytes& good) { return bytes(good.begin(), good.end() - 1); },
      [](const bytes& good) { return good; },  // as long as the whole
      [](const bytes&) { return bytes(1); },
      [](const bytes&) { return bytes(wire::most_packed_bytes + 1); },
  };
  for (const auto& lie : lies) {
    bench all;
    all.make();
    all.become_ready();
    int calls = 0;
    all.server.on_call = [&](auto payload) -> scripted_server::call_result {
      const bytes good = result_of(payload);
      return {++calls == 1 ? lie(good) : packed(good), true};
    };
    expect_answers(all, 2);
    EXPECT_EQ(calls, 2);
  }
}

TEST_F(packed_answers, are_asked_for_with_neighbouring_slots_as_one_but_not_of_older_servers) {
  for (const std::uint16_t version : {std::uint16_t{4}, wire::newest_version}) {
    bench all;
    all.server.version = version;
    all.make();
    all.become_ready();
    all.server.on_call = [&](auto payload) -> scripted_server::call_result { return {result_of(payload), false}; };
    expect_answers(all, 1);
    EXPECT_EQ(joined, version >= wire::first_version_that_joins ? 1u : slots);
  }
}

}  // namespace
}  // namespace far::backend
