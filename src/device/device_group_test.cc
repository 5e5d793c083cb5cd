// The copies of a device where servers are silent at the wrong moment, and whose number comes back.
#include "device/device_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "wire/bytes.h"

namespace far::device_parts {
namespace {

using reason = device_error::reason;
using wire::device_op;
using wire::device_outcome;

// A server with one device, a sum. It remembers the last change, as shelf.h does.
struct fake_server {
  bool is_silent = false;      // nothing arrives
  bool loses_replies = false;  // what arrives takes effect
  bool dies_of_changes = false;
  bool dies_of_questions = false;
  bool has_room_for_one = false;
  bool has_ended = false;                          // the device's process, of which the server tells only when asked
  std::uint64_t silent_after = ~std::uint64_t{0};  // so many more calls
  std::uint64_t reached_after_ns = 0;              // for less it is not reached
  bool has_device = false;
  const void* owner = nullptr;  // the link over which it was constructed
  std::uint64_t sum = 0;
  std::uint64_t changed_by = 0;
  unsigned changes = 0;
};

struct fake_clock final : platform::clock {
  mutable std::uint64_t at_ns = 1'000'000'000;
  [[nodiscard]] std::uint64_t now_ns() const override { return at_ns; }
};

class fake_link final : public device_link {
 public:
  fake_link(fake_server& to, fake_clock& time) : to_(to), time_(time) {}

  [[nodiscard]] link_answer ask(const wire::device_request& asked, const patience& how) override {
    if (to_.silent_after == 0) to_.is_silent = true;
    --to_.silent_after;
    const auto silent = [&] {
      time_.at_ns += how.reach_ns;
      return link_answer::failed(link_answer::kind::unreachable, "silent");
    };
    if (is_silent_for(how)) return silent();
    const wire::device_reply said = answer(asked);
    if (to_.loses_replies) return silent();
    std::vector<std::byte> bytes(wire::device_reply_bytes);
    wire::encode(said, std::span(bytes).first<wire::device_reply_bytes>());
    bytes.insert(bytes.end(), said.bytes.begin(), said.bytes.end());
    return {link_answer::kind::answered, bytes, ""};
  }
  [[nodiscard]] health keep_alive() override {
    if (to_.is_silent) return health::silent;
    return to_.has_device ? health::alive : health::forgotten;
  }
  [[nodiscard]] bool leave(const patience& how) override {
    if (is_silent_for(how)) time_.at_ns += how.reach_ns;
    if (is_silent_for(how)) return false;
    if (to_.owner == this) to_.has_device = false;
    return true;
  }
  [[nodiscard]] const std::string& peer() const override { return peer_; }

 private:
  [[nodiscard]] bool is_silent_for(const patience& how) const {
    return to_.is_silent || how.reach_ns < to_.reached_after_ns;
  }
  wire::device_reply answer(const wire::device_request& asked) {
    if (asked.op == device_op::construct) {
      if (to_.has_room_for_one && to_.has_device) return {device_outcome::no_room, {}};
      to_ = {.loses_replies = to_.loses_replies,
             .has_room_for_one = to_.has_room_for_one,
             .silent_after = to_.silent_after,
             .reached_after_ns = to_.reached_after_ns,
             .has_device = true,
             .owner = this,
             .changed_by = asked.call};
    }
    if (!to_.has_device || to_.has_ended) return {device_outcome::lost, {}};
    const bool is_deadly = asked.op == device_op::compute ? to_.dies_of_changes : to_.dies_of_questions;
    if (is_deadly && wire::is_operation(asked.op)) {
      to_.has_device = false;
      return {device_outcome::crashed, {}};
    }
    if (asked.op == device_op::compute && asked.call > to_.changed_by) {
      to_.sum += wire::load<std::uint64_t>(asked.bytes.data());
      to_.changed_by = asked.call;
      ++to_.changes;
    }
    if (asked.op == device_op::load) to_.sum = wire::load<std::uint64_t>(asked.bytes.data());
    if (asked.op == device_op::destruct) to_.has_device = false;
    wire::store(std::uint64_t{sizeof to_.sum}, said_.data());
    wire::store(to_.sum, said_.data() + sizeof to_.sum);
    return {device_outcome::ok, asked.op == device_op::save ? std::span(said_) : std::span(said_).subspan(8)};
  }

  fake_server& to_;
  fake_clock& time_;
  const std::string peer_ = "a server";
  std::array<std::byte, 16> said_{};
};

class Group : public ::testing::Test {
 protected:
  [[nodiscard]] device_tier tier() {
    device_tier wanted;
    wanted.copies = wanted_copies;
    wanted.has_keeper = false;
    wanted.times.clock = &time;
    wanted.random = [](std::span<std::byte> into) { std::ranges::fill(into, std::byte{0}); };
    for (fake_server& server : std::span(servers).first(wanted_copies)) {
      wanted.servers.push_back(
          [this, &server] { return result<std::unique_ptr<device_link>>(std::make_unique<fake_link>(server, time)); });
    }
    return wanted;
  }
  std::uint64_t add(device_group& to, std::uint64_t amount) {
    std::array<std::byte, 8> bytes;
    wire::store(amount, bytes.data());
    return wire::load<std::uint64_t>(to.call({.op = device_op::compute, .bytes = bytes}).data());
  }
  reason failure_of_adding(device_group& to, std::uint64_t amount) {
    try {
      static_cast<void>(add(to, amount));
    } catch (const device_error& failure) {
      return failure.why();
    }
    ADD_FAILURE() << "it succeeds";
    return reason::refused;
  }
  std::uint64_t sum_of(device_group& whose) {
    return wire::load<std::uint64_t>(whose.call({.op = device_op::ask}).data());
  }

  fake_clock time;
  // How many copies of a new device are kept.
  std::size_t wanted_copies = 2;
  std::array<fake_server, 3> servers;
};

// The client is cut off, and of the servers one has taken the change before, and loses everything before the client is
// back. The other has all the same what was answered before, and takes the change once.
TEST_F(Group, KeepsAllCopiesWhileAllAreSilent) {
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 1), 1u);
  servers[0].loses_replies = true;
  servers[1].is_silent = true;
  EXPECT_EQ(failure_of_adding(device, 2), reason::unreachable);
  EXPECT_EQ(servers[0].sum, 3u);
  EXPECT_EQ(device.copies(), 2u);
  device.look_after();
  EXPECT_EQ(device.copies(), 2u);
  servers[0] = {};
  servers[1].is_silent = false;
  EXPECT_EQ(sum_of(device), 3u);
  EXPECT_EQ(servers[1].changes, 2u);
}

// Nobody is told that a change has not happened which the other copy, or a later call, shows to have happened.
TEST_F(Group, SettlesAChangeInDoubtBeforeAnythingElse) {
  for (const bool is_question : {true, false}) {
    device_group device(tier(), "sum", {});
    EXPECT_EQ(add(device, 1), 1u);
    servers[0].is_silent = true;
    servers[1].loses_replies = true;
    EXPECT_EQ(failure_of_adding(device, 2), reason::unreachable);
    servers[0].is_silent = false;
    servers[1].loses_replies = false;
    EXPECT_EQ(is_question ? sum_of(device) : add(device, 0), 3u);
    EXPECT_EQ(servers[0].sum, 3u);
    EXPECT_EQ(servers[1].sum, 3u);
    EXPECT_EQ(device.copies(), 2u);
  }
}

// The first copy has answered, and is lost while the other one's server is waited for.
TEST_F(Group, DoesNotGiveUpASilentCopyForOneThatIsGone) {
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 1), 1u);
  servers[1].is_silent = true;
  servers[0].silent_after = 1;
  EXPECT_EQ(failure_of_adding(device, 2), reason::unreachable);
  EXPECT_EQ(servers[0].sum, 3u);
  EXPECT_EQ(device.copies(), 2u);
  servers[0] = {};
  servers[1].is_silent = false;
  EXPECT_EQ(sum_of(device), 3u);
}

TEST_F(Group, GivesUpASilentCopyForOneThatAnswers) {
  device_group device(tier(), "sum", {});
  servers[0].is_silent = true;
  EXPECT_EQ(add(device, 5), 5u);
  EXPECT_EQ(device.copies(), 1u);
  EXPECT_EQ(sum_of(device), 5u);
  servers[0].is_silent = false;
  time.at_ns += 100'000'000'000;
  EXPECT_EQ(sum_of(device), 5u);
  EXPECT_EQ(device.copies(), 2u) << "it is made again";
  EXPECT_EQ(servers[0].sum, 5u);
}

// Its silence counts from the moment that another one is heard: before, it may have been our network that was away.
TEST_F(Group, LooksAtAllCopiesBeforeItGivesOneUp) {
  device_group device(tier(), "sum", {});
  servers[0].is_silent = true;
  servers[1].is_silent = true;
  for (int i = 0; i < 2; ++i) {
    device.look_after();
    time.at_ns += 100'000'000'000;
  }
  EXPECT_EQ(device.copies(), 2u);
  servers[1].is_silent = false;
  device.look_after();
  EXPECT_EQ(device.copies(), 2u);
  time.at_ns += 100'000'000'000;
  device.look_after();
  EXPECT_EQ(device.copies(), 1u);
  EXPECT_EQ(sum_of(device), 0u);
}

TEST_F(Group, TakesThePatienceOfASilentCopyFromTheEndOfAnAbsence) {
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  for (fake_server& server : servers) server.is_silent = true;
  device.look_after();
  time.at_ns += 100'000'000'000;
  // The first one's ping is still lost.
  servers[1].is_silent = false;
  device.look_after();
  servers[0].is_silent = false;
  device.look_after();
  EXPECT_EQ(device.copies(), 2u);
}

// Its server answers pings, but the device has ended.
TEST_F(Group, DoesNotGiveUpASilentCopyForAServerWithoutTheDevice) {
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  servers[0].is_silent = true;
  servers[1].has_ended = true;
  for (int i = 0; i < 3; ++i) {
    device.look_after();
    time.at_ns += 100'000'000'000;
  }
  EXPECT_EQ(device.copies(), 1u);
  servers[0].is_silent = false;
  EXPECT_EQ(sum_of(device), 5u);
}

// A question in between costs no copy, either.
TEST_F(Group, AsksTheNextCopyWhereOneIsSilent) {
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  servers[0].is_silent = true;
  servers[1].is_silent = true;
  EXPECT_THROW(sum_of(device), device_error);
  EXPECT_EQ(device.copies(), 2u);
  servers[1].is_silent = false;
  EXPECT_EQ(sum_of(device), 5u);
}

TEST_F(Group, LosesTheCopyThatDiesOfACall) {
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  servers[0].dies_of_changes = true;
  EXPECT_EQ(failure_of_adding(device, 2), reason::crashed);
  EXPECT_EQ(servers[1].sum, 5u);
  EXPECT_EQ(add(device, 1), 6u);
}

// A copy that has died of the call answers for nobody: the silent one may be the last.
TEST_F(Group, KeepsASilentCopyWhenTheOtherDiesOfTheCall) {
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 1), 1u);
  servers[0].is_silent = true;
  servers[1].dies_of_changes = true;
  EXPECT_EQ(failure_of_adding(device, 2), reason::unreachable);
  EXPECT_EQ(device.copies(), 1u);
  servers[0].is_silent = false;
  EXPECT_EQ(sum_of(device), 3u);
}

// Of three, the last has not been told of the deadly call, and is asked whether it lives.
TEST_F(Group, GivesUpASilentCopyForOneThatWasNotAsked) {
  wanted_copies = 3;
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 1), 1u);
  servers[0].is_silent = true;
  servers[1].dies_of_changes = true;
  EXPECT_EQ(failure_of_adding(device, 2), reason::crashed);
  EXPECT_EQ(servers[2].changes, 1u) << "the deadly call is kept from it";
  EXPECT_EQ(servers[2].sum, 1u);
  servers[0].is_silent = false;
  EXPECT_EQ(add(device, 1), 2u);
}

TEST_F(Group, KeepsASilentCopyWhenTheOneThatWasNotAskedIsGone) {
  wanted_copies = 3;
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 1), 1u);
  servers[0].is_silent = true;
  servers[1].dies_of_changes = true;
  servers[2].has_ended = true;
  EXPECT_EQ(failure_of_adding(device, 2), reason::unreachable);
  EXPECT_EQ(device.copies(), 1u);
  servers[0].is_silent = false;
  EXPECT_EQ(sum_of(device), 3u);
}

TEST_F(Group, KeepsSilentCopiesWhenNobodyElseIsHeard) {
  wanted_copies = 3;
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 1), 1u);
  servers[0].is_silent = servers[2].is_silent = true;
  servers[1].dies_of_changes = true;
  EXPECT_EQ(failure_of_adding(device, 2), reason::unreachable);
  EXPECT_EQ(device.copies(), 2u);
  servers[0].is_silent = servers[2].is_silent = false;
  EXPECT_EQ(sum_of(device), 3u);
  EXPECT_EQ(servers[2].sum, 3u);
}

// The lost one is made again from a copy that is heard, whichever comes first.
TEST_F(Group, MakesACopyFromOneThatIsHeard) {
  wanted_copies = 3;
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  servers[0].is_silent = true;
  servers[2] = {};
  device.look_after();
  EXPECT_EQ(device.copies(), 3u);
  EXPECT_EQ(servers[2].sum, 5u);
}

TEST_F(Group, MakesNoCopyWhileNoneIsHeard) {
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  servers[0].is_silent = true;
  servers[1] = {};
  device.look_after();
  EXPECT_FALSE(servers[1].has_device);
  servers[0].is_silent = false;
  EXPECT_EQ(sum_of(device), 5u);
  device.look_after();
  EXPECT_EQ(device.copies(), 2u);
  EXPECT_EQ(servers[1].sum, 5u);
}

// The server falls silent when it has half a copy, and another one has all of it then.
class HalfACopy : public Group {
 protected:
  [[nodiscard]] device_tier two_of_three() {
    wanted_copies = 3;
    device_tier wanted = tier();
    wanted.copies = 2;
    return wanted;
  }
  void break_off_a_copy(device_group& device) {
    EXPECT_EQ(add(device, 5), 5u);
    servers[1] = {.silent_after = 1};
    device.look_after();
    EXPECT_EQ(device.copies(), 2u);
    EXPECT_EQ(servers[2].sum, 5u);
    EXPECT_TRUE(servers[1].has_device);
    EXPECT_TRUE(servers[1].is_silent);
  }
};

TEST_F(HalfACopy, IsEndedWhenItsServerCanBeTold) {
  device_group device(two_of_three(), "sum", {});
  break_off_a_copy(device);
  time.at_ns += 1'000'000'000'000;
  device.look_after();
  EXPECT_TRUE(servers[1].has_device) << "it is still silent";
  servers[1].is_silent = false;
  time.at_ns += 1'000'000'000'000;
  device.look_after();
  EXPECT_FALSE(servers[1].has_device);
  EXPECT_EQ(device.copies(), 2u);
  EXPECT_EQ(add(device, 1), 6u);
}

TEST_F(HalfACopy, EndsWithTheDevice) {
  {
    device_group device(two_of_three(), "sum", {});
    break_off_a_copy(device);
    servers[1].is_silent = false;
  }
  EXPECT_FALSE(servers[1].has_device);
}

TEST_F(HalfACopy, MakesWayForAWholeOne) {
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  servers[1] = {.has_room_for_one = true, .silent_after = 1};
  device.look_after();
  EXPECT_EQ(device.copies(), 1u);
  EXPECT_TRUE(servers[1].has_device);
  servers[1].is_silent = false;
  time.at_ns += 1'000'000'000'000;
  device.look_after();
  EXPECT_EQ(device.copies(), 2u);
  EXPECT_EQ(servers[1].sum, 5u);
}

// A server far away, over a network that loses packets: what reaches it to construct a device reaches it to end one.
TEST_F(HalfACopy, IsEndedOnAServerThatIsReachedLate) {
  device_group device(two_of_three(), "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  servers[1] = {.silent_after = 1, .reached_after_ns = device_times{}.mending_reach_ns};
  device.look_after();
  EXPECT_EQ(servers[2].sum, 5u);
  EXPECT_TRUE(servers[1].has_device);
  servers[1].is_silent = false;
  time.at_ns += 1'000'000'000'000;
  device.look_after();
  EXPECT_FALSE(servers[1].has_device);
}

TEST_F(HalfACopy, MakesWayOnAServerThatIsReachedLate) {
  device_tier chosen = tier();
  chosen.times.longest_unlooked_ns = ~std::uint64_t{0};
  device_group device(chosen, "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  servers[1] = {.has_room_for_one = true, .silent_after = 1, .reached_after_ns = device_times{}.mending_reach_ns};
  device.look_after();
  EXPECT_EQ(device.copies(), 1u);
  EXPECT_TRUE(servers[1].has_device);
  servers[1].is_silent = false;
  time.at_ns += 1'000'000'000'000;
  // The call alone looks for a place for the copy.
  EXPECT_EQ(add(device, 1), 6u);
  EXPECT_EQ(device.copies(), 2u);
  EXPECT_EQ(servers[1].sum, 6u);
}

// Whose answer is lost: the server has the device, and the program does not know.
TEST_F(HalfACopy, IsEndedWhereItsConstructionHadNoAnswer) {
  device_group device(two_of_three(), "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  servers[1] = {.loses_replies = true};
  device.look_after();
  EXPECT_EQ(servers[2].sum, 5u);
  EXPECT_FALSE(servers[1].has_device);
}

TEST_F(Group, RemembersWhichCopyWasSilentToAQuestion) {
  wanted_copies = 3;
  device_group device(tier(), "sum", {});
  EXPECT_EQ(add(device, 5), 5u);
  servers[0].is_silent = true;
  servers[1].dies_of_questions = true;
  EXPECT_THROW(sum_of(device), device_error);
  EXPECT_EQ(device.copies(), 3u);
  EXPECT_EQ(servers[1].sum, 5u);
}

}  // namespace
}  // namespace far::device_parts
