// The way to a device through shared memory, when its server does not answer.
#include "device/shm_link.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/devices/device_server.h"
#include "tests/support/scratch_folder.h"

namespace far::device_parts {
namespace {

using testing_support::device_server;
using wire::device_op;
using wire::device_outcome;

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr device_link::patience generous{.reach_ns = 30 * second_ns, .answer_ns = 30 * second_ns};
constexpr device_link::patience hurried{.reach_ns = second_ns, .answer_ns = second_ns / 20};

TEST(ShmLink, GivesCallsUpAndTakesNoAnswerForAnothers) {
  const scratch_folder place;
  device_server server({"--memory", "128M", "--shm", place.path() + "/socket", "--plugin", SORTED});
  backend::shm::connection_options chosen;
  chosen.name = place.path() + "/socket";
  shm_link link(chosen);
  std::uint64_t calls = 0;
  const auto ask = [&](wire::device_request asked, const device_link::patience& how) {
    asked.device = 1;
    asked.call = ++calls;
    return link.ask(asked, how);
  };
  const std::string name = "\6sorted";
  const link_answer made =
      ask({.op = device_op::construct, .room_bytes = 16 << 20, .bytes = std::as_bytes(std::span(name))}, generous);
  ASSERT_EQ(made.how, link_answer::kind::answered) << made.why;
  ASSERT_EQ(wire::decode_device_reply(made.bytes)->outcome, device_outcome::ok);
  server.signal(SIGSTOP);
  // Each has a place of its own until the server has answered it; then there are no more.
  for (std::uint64_t object = 0; object < 6; ++object) {
    const std::string text(100'000, static_cast<char>('a' + object));
    const link_answer got =
        ask({.op = device_op::write, .object = object, .bytes = std::as_bytes(std::span(text))}, hurried);
    EXPECT_EQ(got.how, link_answer::kind::unreachable);
    EXPECT_EQ(got.why.ends_with("earlier calls yet"), object >= 4) << got.why;
  }
  server.signal(SIGCONT);
  for (std::uint64_t object = 0; object < 6; ++object) {
    link_answer got = ask({.op = device_op::read, .object = object}, generous);
    while (got.how == link_answer::kind::unreachable) got = ask({.op = device_op::read, .object = object}, generous);
    ASSERT_EQ(got.how, link_answer::kind::answered) << got.why;
    const std::optional<wire::device_reply> said = wire::decode_device_reply(got.bytes);
    ASSERT_TRUE(said.has_value());
    ASSERT_EQ(said->outcome, object < 4 ? device_outcome::ok : device_outcome::no_object) << object;
    if (object >= 4) continue;
    ASSERT_EQ(said->bytes.size(), 100'000u);
    for (const std::byte one : said->bytes) ASSERT_EQ(one, static_cast<std::byte>('a' + object));
  }
  server.signal(SIGKILL);
  EXPECT_EQ(ask({.op = device_op::read, .object = 1}, generous).how, link_answer::kind::forgotten);
  EXPECT_EQ(link.keep_alive(), device_link::health::forgotten);
}

}  // namespace
}  // namespace far::device_parts
