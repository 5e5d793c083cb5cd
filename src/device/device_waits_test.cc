// How long a device waits, and for what: its calls, and its keeper, the thread that looks after its copies.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device_group.h"
#include "wire/bytes.h"

namespace far::device_parts {
namespace {

using wire::device_op;
using wire::device_outcome;

// A link whose answers are the test's.
class scripted_link final : public device_link {
 public:
  using script = std::function<link_answer(const wire::device_request& asked, const patience& how)>;
  using leave_script = std::function<bool(const patience& how)>;
  explicit scripted_link(
      script answers, leave_script leaves = [](const patience&) { return true; })
      : answers_(std::move(answers)), leaves_(std::move(leaves)) {}
  [[nodiscard]] link_answer ask(const wire::device_request& asked, const patience& how) override {
    return answers_(asked, how);
  }
  [[nodiscard]] bool leave(const patience& how) override { return leaves_(how); }
  [[nodiscard]] const std::string& peer() const override { return peer_; }

 private:
  const script answers_;
  const leave_script leaves_;
  const std::string peer_ = "a server";
};

link_answer answered(device_outcome outcome, std::span<const std::byte> text = {}) {
  std::vector<std::byte> bytes(wire::device_reply_bytes);
  wire::encode(wire::device_reply{outcome, text}, std::span(bytes).first<wire::device_reply_bytes>());
  bytes.insert(bytes.end(), text.begin(), text.end());
  return {link_answer::kind::answered, bytes, ""};
}

// What a server is asked, and how long it is waited for.
struct asked_call {
  device_op op = device_op::list;
  std::uint32_t deadline_ms = 0;
  std::uint64_t answer_ns = 0;
};
// The construction of a device with such a deadline, and a call.
std::vector<asked_call> calls_with(std::chrono::milliseconds deadline) {
  std::vector<asked_call> calls;
  device_tier tier;
  tier.has_keeper = false;
  tier.servers = {[&calls] {
    return result<std::unique_ptr<device_link>>(
        std::make_unique<scripted_link>([&calls](const wire::device_request& asked, const auto& how) {
          calls.push_back({asked.op, asked.deadline_ms, how.answer_ns});
          return answered(device_outcome::ok);
        }));
  }};
  device_group device(tier, "sum", {.parameters = {}, .deadline = deadline});
  static_cast<void>(device.call({.op = device_op::ask}));
  return calls;
}

// It is that of a process, too.
TEST(Deadline, OfAConstructionIsNotThatOfAShortCall) {
  const std::vector<asked_call> calls = calls_with(std::chrono::milliseconds(2));
  ASSERT_EQ(calls[0].op, device_op::construct);
  EXPECT_EQ(calls[0].deadline_ms, 5'000u);
  EXPECT_GT(calls[0].answer_ns, 5'000 * device_times::ms);
  ASSERT_EQ(calls[1].op, device_op::ask);
  EXPECT_EQ(calls[1].deadline_ms, 2u);
}

// A server that is silent would be waited for as long, although none permits such a call.
TEST(Deadline, OfACallIsNoLongerThanServersPermit) {
  const device_times usual;
  for (const std::chrono::milliseconds wanted :
       {std::chrono::milliseconds(std::chrono::hours(10)), std::chrono::milliseconds::max()}) {
    for (const asked_call& one : calls_with(wanted)) {
      if (one.op == device_op::destruct) continue;
      EXPECT_EQ(one.deadline_ms, usual.longest_call_ns / device_times::ms);
      EXPECT_EQ(one.answer_ns, usual.longest_call_ns + usual.slack_ns);
    }
  }
}

// What servers hear of a device that is constructed, in order, and how long each time they are waited for to be
// reached.
class Construction : public ::testing::Test {
 protected:
  struct heard {
    std::string what;
    std::uint64_t reach_ns = 0;
    bool operator==(const heard&) const = default;
  };
  // Of a server that has constructed the device, though the answer is lost so many times.
  [[nodiscard]] device_tier tier(unsigned lost_answers, unsigned lost_farewells) {
    device_tier wanted;
    wanted.has_keeper = false;
    wanted.times = times;
    wanted.servers = {
        [=, this, constructions = std::make_shared<unsigned>(0), farewells = std::make_shared<unsigned>(0)] {
          const auto answer = [=, this](const wire::device_request& asked, const device_link::patience& how) {
            if (asked.op != device_op::construct) return answered(device_outcome::ok);
            all.push_back({"construct", how.reach_ns});
            return (*constructions)++ < lost_answers ? link_answer::failed(link_answer::kind::unreachable, "silent")
                                                     : answered(device_outcome::ok);
          };
          const auto leave = [=, this](const device_link::patience& how) {
            all.push_back({"leave", how.reach_ns});
            return (*farewells)++ >= lost_farewells;
          };
          return result<std::unique_ptr<device_link>>(std::make_unique<scripted_link>(answer, leave));
        }};
    return wanted;
  }

  const device_times times;
  const heard first_try{"construct", times.mending_reach_ns};
  const heard last_try{"construct", device_tier{}.patience_ns};
  const heard farewell{"leave", times.farewell_ns / 2};
  const heard leaving{"leave", times.mending_reach_ns};
  std::vector<heard> all;
};

// There may be room for one only.
TEST_F(Construction, EndsWhatItsFirstRoundHasLeftBeforeTheSecond) {
  const device_group device(tier(1, 1), "sum", {});
  EXPECT_EQ(device.copies(), 1u);
  EXPECT_EQ(all, (std::vector{first_try, farewell, leaving, last_try}));
}

// Not on a server that may have it still.
TEST_F(Construction, ThatFailsTellsItsServerOnceMore) {
  EXPECT_THROW(device_group(tier(2, 2), "sum", {}), device_error);
  EXPECT_EQ(all, (std::vector{first_try, farewell, leaving, farewell}));
}

// False: not in a minute.
template <typename Condition>
bool wait_until(const Condition& holds) {
  for (int i = 0; i < 60'000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
}

// A device with a keeper. Its second server has no room at first.
class Keeper : public ::testing::Test {
 protected:
  [[nodiscard]] device_tier tier() {
    device_tier wanted;
    wanted.copies = 2;
    wanted.random = [](std::span<std::byte> into) { std::ranges::fill(into, std::byte{0}); };
    const auto opener = [](scripted_link::script answers) {
      return [answers] { return result<std::unique_ptr<device_link>>(std::make_unique<scripted_link>(answers)); };
    };
    wanted.servers = {opener([this](const auto& asked, const auto& how) { return first(asked, how); }),
                      opener([this](const auto& asked, const auto& how) {
                        const bool has_room = asked.op != device_op::construct || constructions.fetch_add(1) > 0;
                        return has_room ? second(asked, how) : answered(device_outcome::no_room);
                      })};
    return wanted;
  }

  std::atomic<unsigned> constructions{0};
  scripted_link::script first = [](const auto&, const auto&) { return answered(device_outcome::ok); };
  scripted_link::script second = first;
};

TEST_F(Keeper, IsNotWaitedForWhereItWaitsForAServer) {
  std::atomic<bool> waits{false};
  std::atomic<bool> is_let_go{false};
  second = [&](const wire::device_request&, const device_link::patience& how) {
    waits = true;
    is_let_go = wait_until([&] { return how.is_given_up(); });
    return link_answer::failed(link_answer::kind::unreachable, "silent");
  };
  {
    device_group device(tier(), "sum", {});
    ASSERT_TRUE(wait_until([&] { return waits.load(); }));
  }
  EXPECT_TRUE(is_let_go);
}

TEST_F(Keeper, CopiesNothingMoreWhenTheDeviceEnds) {
  std::atomic<unsigned> parts{0};
  std::atomic<unsigned> parts_after_the_end{0};
  first = [&](const wire::device_request& asked, const device_link::patience& how) {
    if (asked.op != device_op::save) return answered(device_outcome::ok);
    ++parts;
    if (how.is_given_up() && ++parts_after_the_end > 100) return answered(device_outcome::refused);
    std::array<std::byte, 16> part{};
    wire::store(std::uint64_t{1} << 40, part.data());  // and 8 bytes of that
    return answered(device_outcome::ok, part);
  };
  {
    device_group device(tier(), "sum", {});
    ASSERT_TRUE(wait_until([&] { return parts > 10; }));
  }
  EXPECT_LE(parts_after_the_end, 1u);
}

// The device's owner may wait for it meanwhile.
TEST_F(Keeper, AsksOnceForAChangeInDoubt) {
  std::atomic<bool> repeats{true};
  std::atomic<unsigned> changes{0};
  first = [&](const wire::device_request& asked, const device_link::patience& how) {
    if (asked.op != device_op::compute) return answered(device_outcome::ok);
    repeats = how.again;
    const bool is_first = changes.fetch_add(1) == 0;
    return is_first ? link_answer::failed(link_answer::kind::unreachable, "silent") : answered(device_outcome::ok);
  };
  device_group device(tier(), "sum", {});
  EXPECT_THROW(device.call({.op = device_op::compute}), device_error);
  ASSERT_TRUE(wait_until([&] { return changes == 2; }));
  EXPECT_FALSE(repeats);
}

// It has asked once only, so its patience with the silent one has not begun to end.
TEST_F(Keeper, GivesUpNoSilentCopyForAChangeInDoubt) {
  std::atomic<bool> is_silent{true};
  std::atomic<unsigned> heard{0};
  std::atomic<unsigned> missed{0};
  constructions = 1;
  first = [&](const wire::device_request& asked, const device_link::patience&) {
    if (asked.op != device_op::compute) return answered(device_outcome::ok);
    const bool is_lost = heard.fetch_add(1) == 0;
    return is_lost ? link_answer::failed(link_answer::kind::unreachable, "silent") : answered(device_outcome::ok);
  };
  second = [&](const wire::device_request& asked, const device_link::patience&) {
    if (asked.op != device_op::compute || !is_silent) return answered(device_outcome::ok);
    missed.fetch_add(1);
    return link_answer::failed(link_answer::kind::unreachable, "silent");
  };
  device_group device(tier(), "sum", {});
  ASSERT_EQ(device.copies(), 2u);
  EXPECT_THROW(device.call({.op = device_op::compute}), device_error);
  ASSERT_TRUE(wait_until([&] { return missed > 2; }));
  EXPECT_EQ(device.copies(), 2u);
  is_silent = false;
  EXPECT_NO_THROW(device.call({.op = device_op::compute}));
  EXPECT_EQ(device.copies(), 2u);
}

}  // namespace
}  // namespace far::device_parts
