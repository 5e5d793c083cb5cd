// Clients of a server over shared memory that says what it should not. They give it up, say so once, and go on: what
// they have stored stays in the memory that they have mapped.
#include "tests/support/shm_untrusted_server.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backend/shm/shm_backend.h"

namespace far::server {
namespace {

using backend::completion;
using backend::operation;
using backend::shm_backend;

constexpr std::uint64_t ask_cookie = static_cast<std::uint64_t>(wire::ring_operation::allocate);
constexpr std::uint64_t free_cookie = static_cast<std::uint64_t>(wire::ring_operation::free);

class shm_untrusted : public testing::Test {
 protected:
  void SetUp() override {
    backend::shm_options chosen;
    chosen.name = server_.path();
    chosen.server_copies = true;
    control_ = &server_.welcome([&] {
      auto created = shm_backend::create(chosen);
      ASSERT_TRUE(created.ok()) << created.error().message;
      client_ = std::move(created).value();
    });
    copies_ = &server_.welcome([&] {
      auto opened = client_->open_channel(4);
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      channel_ = std::move(opened).value();
    });
    slot_ = client_->allocate(4).value();
  }

  // Writes a page; the answers are `says`.
  template <typename Says>
  [[nodiscard]] int write(Says says) {
    std::vector<std::byte> page(page_bytes, std::byte{7});
    const backend::request one{.op = operation::write, .slot = slot_, .buffer = page.data()};
    EXPECT_EQ(channel_->submit({&one, 1}), 1u);
    says();
    completion done;
    for (int polls = 0; polls < 1'000'000; ++polls) {
      if (channel_->poll({&done, 1}) == 1) return done.error_code;
    }
    ADD_FAILURE() << "the transfer does not end";
    return -1;
  }

  shm_untrusted_server server_{8};
  shm_untrusted_server::peer* control_ = nullptr;
  shm_untrusted_server::peer* copies_ = nullptr;
  std::unique_ptr<backend::backend> client_;
  std::unique_ptr<backend::channel> channel_;
  backend::slot_id slot_ = 0;
};

TEST_F(shm_untrusted, answers_that_were_not_asked_for_end_the_connection_and_nothing_else) {
  for (const std::uint64_t cookie : {~std::uint64_t{0}, std::uint64_t{wire::ring_length}, std::uint64_t{3}}) {
    EXPECT_EQ(write([&] { copies_->reply({.cookie = cookie}); }), 0) << "the client copies itself from now on";
  }
  std::vector<std::byte> page(page_bytes);
  const backend::request one{.op = operation::read, .slot = slot_, .buffer = page.data()};
  ASSERT_EQ(channel_->submit({&one, 1}), 1u);
  completion done;
  ASSERT_EQ(channel_->poll({&done, 1}), 1u);
  EXPECT_EQ(done.error_code, 0);
  EXPECT_EQ(page[99], std::byte{7});
}

TEST_F(shm_untrusted, positions_that_cannot_be_end_the_connection_and_nothing_else) {
  EXPECT_EQ(write([&] { copies_->file->replies_put.value.store(1'000'000); }), 0);
  copies_->file->requests_taken.value.store(77'777);
  EXPECT_EQ(write([] {}), 0);
}

TEST_F(shm_untrusted, blocks_that_were_not_asked_for_are_not_taken) {
  for (const std::uint64_t cookie : {ask_cookie, free_cookie, ask_cookie + 1000}) {
    for (unsigned i = 0; i < 100; ++i) control_->reply({.cookie = cookie, .status = 9, .values = {~std::uint64_t{0}}});
    client_->tend();
    client_->tend();
  }
  EXPECT_EQ(client_->report().used_slots, 4u);
  pollfd watched{.fd = control_->socket, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&watched, 1, 0), 1);
  EXPECT_NE(watched.revents & POLLHUP, 0) << "the client has hung up";
}

}  // namespace
}  // namespace far::server
