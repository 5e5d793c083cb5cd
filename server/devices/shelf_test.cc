// Deadlines of a device whose process also has calls that do not come by the server, at times of the test's own.
#include "server/devices/shelf.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/devices/calls.h"
#include "server/devices/host.h"
#include "wire/bytes.h"

namespace far::server {
namespace {

using wire::device_op;
using wire::device_outcome;

constexpr std::uint64_t longest_ns = 1000;

// What a process is, and what it was told.
struct scripted_process {
  std::optional<direct_calls> shown;  // nothing: it is writing it
  bool is_busy = false;
  std::uint64_t deadline_ns = 0;
};

class scripted_body final : public device_body {
 public:
  explicit scripted_body(scripted_process& of) : of_(of) {}
  void begin(std::span<const std::byte>, std::uint64_t, std::uint64_t deadline_ns) override {
    of_.deadline_ns = deadline_ns;
  }
  [[nodiscard]] state advance(std::uint64_t now_ns) override {
    if (!of_.is_busy) return state::replied;
    return now_ns >= of_.deadline_ns ? state::timed_out : state::waiting;
  }
  [[nodiscard]] std::span<const std::byte> reply() const override { return said_; }
  [[nodiscard]] bool has_ended() const override { return false; }
  [[nodiscard]] std::optional<direct_calls> direct() const override { return of_.shown; }

 private:
  scripted_process& of_;
  const std::array<std::byte, wire::device_reply_bytes> said_{};  // ok
};

class Shelf : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto begin = [this](const loaded_plugin&, std::size_t) {
      return result<std::unique_ptr<device_body>>(std::make_unique<scripted_body>(process));
    };
    host = device_host::simulate(
        {{.chosen = {.file = "", .deadline_ns = longest_ns, .options = ""}, .name = "scripted"}}, begin);
    lent = store::create({.memory_bytes = 64 * mib, .quota_bytes = {}, .make_source = {}}).value();
    client = lent->open("default", 1).value();
    ASSERT_EQ(construct(1, 1), device_outcome::ok);
  }
  void TearDown() override { lent->leave(client, 1'000'000); }

  // Nothing: it is under way.
  [[nodiscard]] std::optional<device_outcome> call(const wire::device_request& asked, std::uint64_t now_ns) {
    std::vector<std::byte> arguments(wire::device_request_bytes);
    wire::encode(asked, std::span(arguments).first<wire::device_request_bytes>());
    arguments.insert(arguments.end(), asked.bytes.begin(), asked.bytes.end());
    device_calls calls(host);
    const device_calls::progress got = calls.go_on(*client.to, arguments, now_ns, space);
    if (got.retry_at_ns != 0) return std::nullopt;
    return wire::decode_device_reply(std::span(space).first(got.reply_bytes))->outcome;
  }
  [[nodiscard]] std::optional<device_outcome> construct(std::uint64_t number, std::uint64_t now_ns,
                                                        std::uint32_t deadline_ms = 0) {
    const std::string name = "\x08scripted";
    return call({.op = device_op::construct,
                 .device = number,
                 .call = 1,
                 .room_bytes = mib,
                 .deadline_ms = deadline_ms,
                 .bytes = std::as_bytes(std::span(name))},
                now_ns);
  }
  [[nodiscard]] static wire::device_request asking(std::uint64_t number) {
    return {.op = device_op::ask, .device = 1, .call = number};
  }

  scripted_process process;
  std::shared_ptr<device_host> host;
  std::unique_ptr<store> lent;
  attachment client;
  std::vector<std::byte> space = std::vector<std::byte>(wire::maximum_payload_bytes);
};

// It has ended one call after the other, and is read in the middle of the next note.
TEST_F(Shelf, EndsNoDeviceForACallThatMayBeOver) {
  process.shown = direct_calls{.call = 5, .until_ns = 1500};
  host->look_after(1400);
  process.shown.reset();
  host->look_after(1600);
  EXPECT_EQ(host->devices(), 1u);
  process.shown = direct_calls{.call = 6, .until_ns = 2500};
  host->look_after(1700);
  EXPECT_EQ(host->devices(), 1u);
  EXPECT_EQ(call(asking(7), 1800), device_outcome::ok);
}

TEST_F(Shelf, EndsADeviceThatIsSeenToBeLate) {
  process.shown = direct_calls{.call = 5, .until_ns = 1500};
  host->look_after(1400);
  EXPECT_EQ(host->devices(), 1u);
  host->look_after(1600);
  EXPECT_EQ(host->devices(), 0u);
  EXPECT_EQ(call(asking(5), 1700), device_outcome::timed_out);
}

// Its connection broke while the process was in the call; the process reads the second one when that is over.
TEST_F(Shelf, TimesARepeatedCallFromTheEndOfTheFirst) {
  process.is_busy = true;
  process.shown = direct_calls{.call = 5, .until_ns = 1500};
  EXPECT_FALSE(call(asking(5), 700));
  process.shown = direct_calls{};
  host->look_after(1450);
  host->look_after(2400);
  EXPECT_EQ(host->devices(), 1u);
  process.is_busy = false;
  EXPECT_EQ(call(asking(5), 2450), device_outcome::ok);
}

TEST_F(Shelf, EndsARepeatedCallThatIsLateItself) {
  process.is_busy = true;
  process.shown = direct_calls{.call = 5, .until_ns = 1500};
  EXPECT_FALSE(call(asking(5), 700));
  process.shown = direct_calls{};
  EXPECT_FALSE(call(asking(5), 2499));
  EXPECT_EQ(call(asking(5), 2500), device_outcome::timed_out);
  EXPECT_EQ(host->devices(), 0u);
}

// However short the calls of its plugin are. These have no more for it, and clients may ask for less.
TEST_F(Shelf, GivesAProcessTimeToStart) {
  constexpr std::uint64_t s = 1'000'000'000;
  process.is_busy = true;
  EXPECT_FALSE(construct(2, 100));
  EXPECT_EQ(process.deadline_ns, 100 + 5 * s);
  EXPECT_FALSE(construct(3, 200, 3'000));
  EXPECT_EQ(process.deadline_ns, 200 + 3 * s);
  process.is_busy = false;
  EXPECT_EQ(construct(2, 5 * s), device_outcome::ok);
  EXPECT_EQ(call(wire::device_request{.op = device_op::ask, .device = 2, .call = 2}, 5 * s), device_outcome::ok);
  EXPECT_EQ(process.deadline_ns, 5 * s + longest_ns);
}

// A plugin may write anything there.
TEST_F(Shelf, WaitsForNoProcessThatSaysItsCallNeverEnds) {
  process.is_busy = true;
  process.shown = direct_calls{.call = 5, .until_ns = ~std::uint64_t{0}};
  EXPECT_FALSE(call(asking(5), 700));
  EXPECT_FALSE(call(asking(5), 700 + 2 * longest_ns - 1));
  EXPECT_EQ(call(asking(5), 700 + 2 * longest_ns), device_outcome::timed_out);
}

}  // namespace
}  // namespace far::server
