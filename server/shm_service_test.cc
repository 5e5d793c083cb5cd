// Clients of `shm:` against a server on a thread of this process: blocks come and go, tokens, quotas, the end of either
// side.
#include "server/shm_service.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "backend/shm/shm_backend.h"
#include "backend/slot_allocator.h"
#include "tests/support/eventually.h"
#include "tests/support/shm_test_server.h"
#include "wire/rendezvous.h"

namespace far::server {
namespace {

using backend::completion;
using backend::operation;
using backend::request;
using backend::shm_backend;
using backend::shm_options;
using backend::slot_id;
using wire::block_slots;

constexpr std::uint64_t second_ns = 1'000'000'000;

std::byte content(slot_id slot, std::size_t at, unsigned generation) {
  return static_cast<std::byte>((slot * 131 + at * 7 + generation * 29 + (at >> 8)) & 0xff);
}

std::unique_ptr<backend::backend> open(const shm_options& chosen) {
  auto opened = shm_backend::create(chosen);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return opened.ok() ? std::move(opened).value() : nullptr;
}

// As the engine does: EAGAIN is tried again, and somebody calls tend().
result<slot_id> allocate(backend::backend& from, std::size_t count) {
  result<slot_id> got = from.allocate(count);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!got.ok() && got.error().code == EAGAIN && std::chrono::steady_clock::now() < deadline) {
    static_cast<void>(from.tend());
    std::this_thread::yield();
    got = from.allocate(count);
  }
  return got;
}

int transfer(backend::channel& queue, operation op, slot_id slot, std::byte* buffer) {
  const request one{.op = op, .slot = slot, .buffer = buffer, .cookie = slot};
  while (queue.submit(std::span(&one, 1)) == 0) queue.wait(second_ns);
  completion done;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (queue.poll(std::span(&done, 1)) == 0) {
    queue.wait(second_ns);
    if (std::chrono::steady_clock::now() > deadline) return ETIMEDOUT;
  }
  return done.error_code;
}

void write_slots(backend::channel& queue, slot_id first, std::size_t count, unsigned generation) {
  std::vector<std::byte> page(page_bytes);
  for (slot_id slot = first; slot < first + count; ++slot) {
    for (std::size_t at = 0; at < page_bytes; ++at) page[at] = content(slot, at, generation);
    ASSERT_EQ(transfer(queue, operation::write, slot, page.data()), 0);
  }
}

// How many slots hold something else; errors count too.
std::size_t wrong_slots(backend::channel& queue, slot_id first, std::size_t count, unsigned generation) {
  std::size_t wrong = 0;
  std::vector<std::byte> page(page_bytes);
  for (slot_id slot = first; slot < first + count; ++slot) {
    bool same = transfer(queue, operation::read, slot, page.data()) == 0;
    for (std::size_t at = 0; same && at < page_bytes; ++at) same = page[at] == content(slot, at, generation);
    wrong += same ? 0 : 1;
  }
  return wrong;
}

class shm_service_test : public testing::TestWithParam<bool> {
 protected:
  shm_options options(const shm_test_server& server) {
    shm_options chosen;
    chosen.name = server.path();
    chosen.server_copies = GetParam();
    return chosen;
  }
};

TEST_P(shm_service_test, blocks_come_as_they_are_needed_and_keep_their_bytes) {
  shm_test_server server(256 * mib);
  const auto far = open(options(server));
  const auto queue = far->open_channel(64).value();
  EXPECT_EQ(far->report().total_slots, 128 * block_slots);
  constexpr std::size_t run = 300;
  std::vector<slot_id> runs;
  bool was_put_off = false;
  for (int i = 0; i < 150; ++i) {
    const result<slot_id> many = far->allocate(block_slots * 20);  // more than is there ahead of need, mostly
    was_put_off |= !many.ok();
    if (many.ok()) far->free(many.value(), block_slots * 20);
    const result<slot_id> got = allocate(*far, run);
    ASSERT_TRUE(got.ok()) << got.error().message;
    runs.push_back(got.value());
    write_slots(*queue, got.value(), 3, 1);
    write_slots(*queue, got.value() + run - 1, 1, 1);
    if (far->report().used_slots > 110 * block_slots) break;
  }
  EXPECT_TRUE(was_put_off);
  for (const slot_id first : runs) {
    EXPECT_EQ(wrong_slots(*queue, first, 3, 1), 0u);
    EXPECT_EQ(wrong_slots(*queue, first + run - 1, 1, 1), 0u);
  }
}

TEST_P(shm_service_test, a_full_server_says_enospc_and_serves_what_others_give_back) {
  shm_test_server server(100 * mib);
  auto first = open(options(server));
  ASSERT_TRUE(allocate(*first, 24 * block_slots).ok());
  auto second = open(options(server));
  ASSERT_TRUE(eventually([&] {
    static_cast<void>(second->tend());
    const result<slot_id> got = second->allocate(block_slots);
    return !got.ok() && got.error().code == ENOSPC;
  }));
  server.lent().validate();
  first.reset();  // its socket closes: its blocks are free at once
  EXPECT_TRUE(eventually([&] {
    static_cast<void>(second->tend());
    return second->allocate(block_slots).ok();
  }));
}

TEST_P(shm_service_test, blocks_that_are_free_go_back_and_can_be_had_again) {
  shm_test_server server(512 * mib);
  const auto far = open(options(server));
  const auto queue = far->open_channel(64).value();
  constexpr std::size_t blocks = 128;
  const slot_id first = allocate(*far, blocks * block_slots).value();
  write_slots(*queue, first + 5 * block_slots, 2, 1);
  ASSERT_GE(server.lent().report().held_blocks, blocks);
  far->free(first, 5 * block_slots);
  far->free(first + 6 * block_slots, (blocks - 6) * block_slots);
  EXPECT_TRUE(eventually([&] {
    static_cast<void>(far->tend());
    return server.lent().report().held_blocks < blocks / 2;
  })) << server.lent().report().held_blocks;
  EXPECT_EQ(far->report().used_slots, block_slots);
  EXPECT_EQ(wrong_slots(*queue, first + 5 * block_slots, 2, 1), 0u) << "the block in use stays";

  const slot_id again = allocate(*far, (blocks - 6) * block_slots).value();
  write_slots(*queue, again, 4, 2);
  write_slots(*queue, again + (blocks - 6) * block_slots - 4, 4, 2);
  EXPECT_EQ(wrong_slots(*queue, again, 4, 2), 0u);
  EXPECT_EQ(wrong_slots(*queue, again + (blocks - 6) * block_slots - 4, 4, 2), 0u);
  EXPECT_EQ(wrong_slots(*queue, first + 5 * block_slots, 2, 1), 0u);
}

TEST_P(shm_service_test, a_tenant_has_its_quota) {
  store_settings lending = shm_test_server::lending(64 * mib, 0);
  lending.quota_bytes["small"] = 4 * mib;
  shm_test_server server(lending);
  shm_options chosen = options(server);
  chosen.tenant = "small";
  const auto far = open(chosen);
  EXPECT_EQ(far->report().total_slots, 2 * block_slots);
  EXPECT_TRUE(allocate(*far, 2 * block_slots).ok());
  const result<slot_id> more = allocate(*far, 1);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, ENOSPC);
  chosen.tenant = "other";
  EXPECT_TRUE(allocate(*open(chosen), 8 * block_slots).ok());
}

TEST_P(shm_service_test, sessions_do_not_see_each_other) {
  shm_test_server server(64 * mib);
  const auto one = open(options(server));
  const auto other = open(options(server));
  const auto one_queue = one->open_channel(8).value();
  const auto other_queue = other->open_channel(8).value();
  const slot_id slot = allocate(*one, 4).value();
  ASSERT_EQ(allocate(*other, 4).value(), slot);
  write_slots(*one_queue, slot, 4, 1);
  write_slots(*other_queue, slot, 4, 2);
  EXPECT_EQ(wrong_slots(*one_queue, slot, 4, 1), 0u);
  EXPECT_EQ(wrong_slots(*other_queue, slot, 4, 2), 0u);
}

TEST_P(shm_service_test, tokens_are_proven_by_both_sides) {
  const std::string secret = "a-token-of-the-tests";
  shm_test_server server(16 * mib, "default " + secret + "\n");
  shm_options chosen = options(server);
  EXPECT_EQ(shm_backend::create(chosen).error().code, EACCES) << "no token";
  chosen.token = "another-token-as-long";
  const auto refused = shm_backend::create(chosen);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, EACCES);
  EXPECT_EQ(refused.error().message.find(chosen.token), std::string::npos);
  chosen.token = secret;
  chosen.tenant = "unknown";
  EXPECT_EQ(shm_backend::create(chosen).error().code, EACCES) << "another tenant's token";
  chosen.tenant = "default";
  EXPECT_TRUE(allocate(*open(chosen), 8).ok());

  shm_test_server open_server(16 * mib);
  chosen.name = open_server.path();
  EXPECT_EQ(shm_backend::create(chosen).error().code, EACCES) << "a server that cannot prove who it is";
}

TEST_P(shm_service_test, what_is_stored_outlives_the_server_and_a_new_one_serves_on) {
  shm_test_server server(128 * mib);
  const auto far = open(options(server));
  const auto queue = far->open_channel(16).value();
  const slot_id first = allocate(*far, 10 * block_slots + 5).value();
  write_slots(*queue, first + 10 * block_slots - 2, 7, 1);
  write_slots(*queue, first, 3, 1);
  server.stop();
  ASSERT_TRUE(eventually([&] {
    static_cast<void>(far->tend());
    const result<slot_id> got = far->allocate(60 * block_slots);
    return !got.ok() && got.error().code == ENOSPC;
  }));
  EXPECT_EQ(wrong_slots(*queue, first + 10 * block_slots - 2, 7, 1), 0u);
  write_slots(*queue, first, 3, 2);  // our slots may still be written
  EXPECT_EQ(wrong_slots(*queue, first, 3, 2), 0u);

  server.restart_empty(128 * mib);
  result<slot_id> more = error{"", ENOSPC};
  ASSERT_TRUE(eventually([&] {
    static_cast<void>(far->tend());
    more = far->allocate(20 * block_slots);
    return more.ok();
  })) << "no new memory after the server came back";
  write_slots(*queue, more.value(), 3, 3);
  write_slots(*queue, more.value() + 20 * block_slots - 3, 3, 3);
  EXPECT_EQ(wrong_slots(*queue, first + 10 * block_slots - 2, 7, 1), 0u) << "from the old server";
  EXPECT_EQ(wrong_slots(*queue, first, 3, 2), 0u) << "from the old server";
  EXPECT_EQ(wrong_slots(*queue, more.value(), 3, 3), 0u);
  EXPECT_EQ(wrong_slots(*queue, more.value() + 20 * block_slots - 3, 3, 3), 0u);
  // The new one counts what it has lent, and nothing of the old.
  server.lent().validate();
  EXPECT_GE(server.lent().report().held_blocks, 20u);
  EXPECT_LT(server.lent().report().held_blocks, 64u);

  // Orphans that are freed become ordinary blocks again.
  far->free(first, 10 * block_slots + 5);
  far->free(more.value(), 20 * block_slots);
  ASSERT_TRUE(eventually([&] {
    static_cast<void>(far->tend());
    return far->allocate(60 * block_slots).ok();
  }));
}

TEST_P(shm_service_test, a_server_that_drains_says_so_and_waits_for_nobody_here) {
  shm_test_server server(128 * mib);
  const auto far = open(options(server));
  const auto queue = far->open_channel(16).value();
  const slot_id first = allocate(*far, 10 * block_slots).value();
  write_slots(*queue, first, 5, 1);
  EXPECT_GE(server.lent().report().held_blocks, 10u);
  server.lent().drain();
  EXPECT_EQ(server.lent().report().needed_blocks, 0u) << "what is stored outlives the server";
  testing::internal::CaptureStderr();
  EXPECT_TRUE(eventually([&] {
    static_cast<void>(far->tend());
    const result<slot_id> got = far->allocate(60 * block_slots);
    return !got.ok() && got.error().code == ENOSPC;
  }));
  for (int i = 0; i < 3; ++i) static_cast<void>(far->allocate(60 * block_slots));
  const std::string said = testing::internal::GetCapturedStderr();
  const std::size_t place = said.find("is about to stop");
  ASSERT_NE(place, std::string::npos) << said;
  EXPECT_EQ(said.find("is about to stop", place + 1), std::string::npos) << "once: " << said;
  server.stop();
  EXPECT_EQ(wrong_slots(*queue, first, 5, 1), 0u);
}

TEST_P(shm_service_test, a_forked_child_reads_its_parents_slots_and_keeps_the_session_alive) {
  shm_test_server server(64 * mib);
  std::array<int, 2> gate{};
  ASSERT_EQ(pipe(gate.data()), 0);
  auto far = open(options(server));
  auto queue = far->open_channel(16).value();
  const slot_id first = allocate(*far, 600).value();
  write_slots(*queue, first, 600, 5);
  const pid_t child = fork();
  if (child == 0) {
    far->after_fork_in_child();
    bool good = !far->allocate(4 * block_slots * 8).ok() && far->tend() == backend::no_tending;
    char ready = 0;
    close(gate[1]);
    good &= read(gate[0], &ready, 1) == 0;  // until the parent has closed its session
    auto own = far->open_channel(4);
    good &= own.ok() && wrong_slots(*own.value(), first, 600, 5) == 0;
    _exit(good ? 0 : 1);
  }
  queue.reset();
  far.reset();
  close(gate[0]);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // ticks of the server go by
  EXPECT_GE(server.lent().report().held_blocks, 2u);
  close(gate[1]);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(eventually([&] { return server.lent().report().held_blocks == 0; })) << "the child has ended too";
}

TEST_P(shm_service_test, a_draining_server_grants_nothing_and_keeps_what_is_there) {
  shm_test_server server(128 * mib);
  const auto far = open(options(server));
  const auto queue = far->open_channel(16).value();
  const slot_id first = allocate(*far, 8).value();
  write_slots(*queue, first, 8, 1);
  server.lent().drain();
  const result<slot_id> more = allocate(*far, 40 * block_slots);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, ENOSPC);
  EXPECT_EQ(wrong_slots(*queue, first, 8, 1), 0u);
  EXPECT_FALSE(shm_backend::create(options(server)).ok());
}

INSTANTIATE_TEST_SUITE_P(copies, shm_service_test, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "by_server" : "by_client"; });

TEST(shm_rendezvous, names_and_places) {
  EXPECT_FALSE(wire::check_server_name("").ok());
  EXPECT_FALSE(wire::check_server_name(".hidden").ok());
  EXPECT_FALSE(wire::check_server_name("a b").ok());
  EXPECT_FALSE(wire::check_server_name(std::string(65, 'a')).ok());
  EXPECT_TRUE(wire::check_server_name("main-1.a_b").ok());
  EXPECT_EQ(wire::socket_paths("/x/y.sock"), std::vector<std::string>{"/x/y.sock"});
  const auto places = wire::socket_paths("main");
  EXPECT_NE(std::find(places.begin(), places.end(), "/run/farheap/main.sock"), places.end());
  shm_options chosen;
  chosen.name = "no-server-has-this-name";
  const auto nowhere = shm_backend::create(chosen);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_NE(nowhere.error().message.find("farheapd --shm no-server-has-this-name"), std::string::npos);
}

TEST(shm_socket, a_name_belongs_to_one_server_and_is_free_after_a_crash) {
  shm_test_server server(16 * mib);
  const auto second = shm_socket::listen(server.path(), false);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, EADDRINUSE);
  const std::string left_behind = server.path() + "2";
  close(wire::listen_at(left_behind, 0600).value());  // as a killed server leaves it
  {
    const auto third = shm_socket::listen(left_behind, false);
    EXPECT_TRUE(third.ok()) << third.error().message;
  }
  EXPECT_NE(access(left_behind.c_str(), F_OK), 0);
  unlink((left_behind + ".lock").c_str());
}

}  // namespace
}  // namespace far::server
