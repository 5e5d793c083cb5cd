// The server is killed while a client over shared memory writes and verifies; another takes its place. No byte is lost.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "backend/shm/shm_backend.h"
#include "server/shm_service.h"
#include "server/store.h"
#include "tests/support/scratch_folder.h"

namespace far::server {
namespace {

using backend::operation;
using backend::request;
using backend::slot_id;

// A process of its own that does nothing but serve, until it is killed.
class server_process {
 public:
  explicit server_process(const std::string& path) {
    std::array<int, 2> ready{};
    FAR_CHECK(pipe(ready.data()) == 0, "no pipe");
    pid_ = fork();
    if (pid_ == 0) serve(path, ready[1]);
    close(ready[1]);
    char byte = 0;
    FAR_CHECK(read(ready[0], &byte, 1) == 1, "the server did not start");
    close(ready[0]);
  }
  ~server_process() { kill(); }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  [[noreturn]] static void serve(const std::string& path, int ready) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    store_settings settings;
    settings.memory_bytes = 512 * mib;
    auto lent = store::create(settings);
    const token_book tokens;
    if (!lent.ok()) _exit(1);
    auto service = shm_service::start({.name = path, .settings = {.lent = lent.value().get(), .tokens = &tokens}});
    if (!service.ok() || write(ready, "x", 1) != 1) _exit(1);
    close(ready);
    while (true) pause();
  }

  pid_t pid_ = -1;
};

void fill(std::span<std::byte> page, slot_id slot, std::uint64_t generation) {
  std::mt19937_64 random(slot * 1'000'003 + generation);
  for (std::size_t at = 0; at < page.size(); at += 8) {
    const std::uint64_t word = random();
    std::memcpy(page.data() + at, &word, sizeof word);
  }
}

int transfer(backend::channel& queue, operation op, slot_id slot, std::byte* buffer) {
  const request one{.op = op, .slot = slot, .buffer = buffer};
  while (queue.submit(std::span(&one, 1)) == 0) queue.wait(1'000'000);
  backend::completion done;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (queue.poll(std::span(&done, 1)) == 0) {
    queue.wait(10'000'000);
    if (std::chrono::steady_clock::now() > deadline) return ETIMEDOUT;
  }
  return done.error_code;
}

class shm_kill : public testing::TestWithParam<bool> {};

TEST_P(shm_kill, no_byte_is_lost_however_often_the_server_is_killed) {
  constexpr std::uint64_t seed = 99;
  constexpr int kills = 6;
  constexpr std::size_t large_slots = 40 * wire::block_slots;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const scratch_folder folder;
  const std::string path = folder.path() + "/server.sock";
  std::mt19937_64 random(seed);
  {
    auto server = std::make_unique<server_process>(path);
    backend::shm_options chosen;
    chosen.name = path;
    chosen.server_copies = GetParam();
    auto opened = backend::shm_backend::create(chosen);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    backend::backend& far = *opened.value();
    const auto queue = far.open_channel(32).value();
    std::map<slot_id, std::uint64_t> model;  // slot -> generation of its bytes
    std::vector<std::byte> page(page_bytes);
    std::vector<std::byte> expected(page_bytes);
    std::uint64_t generation = 0;
    const auto step = [&] {
      static_cast<void>(far.tend());
      const result<slot_id> got = far.allocate(1 + random() % 60);
      if (got.ok()) model.emplace(got.value(), 0);  // one of each run, so that they lie in many blocks
      for (auto& [slot, wrote] : model) {
        if (wrote != 0 && random() % 4 != 0) continue;
        wrote = ++generation;
        fill(page, slot, wrote);
        ASSERT_EQ(transfer(*queue, operation::write, slot, page.data()), 0);
      }
      for (const auto& [slot, wrote] : model) {
        fill(expected, slot, wrote);
        ASSERT_EQ(transfer(*queue, operation::read, slot, page.data()), 0);
        ASSERT_EQ(std::memcmp(page.data(), expected.data(), page_bytes), 0) << "slot " << slot;
      }
    };
    for (int killed = 0; killed < kills; ++killed) {
      for (int i = 0; i < 15; ++i) ASSERT_NO_FATAL_FAILURE(step());
      server->kill();
      for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(step());
      server = std::make_unique<server_process>(path);
      // More than is ever there ahead of need: some of it comes from the new server.
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      result<slot_id> large = far.allocate(large_slots);
      // No step() meanwhile: it keeps what it allocates, and beside a slow server it would take what this waits for.
      while (!large.ok() && std::chrono::steady_clock::now() < deadline) {
        static_cast<void>(far.tend());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        large = far.allocate(large_slots);
      }
      ASSERT_TRUE(large.ok()) << "no memory of the new server";
      fill(page, large.value(), 1);
      ASSERT_EQ(transfer(*queue, operation::write, large.value() + large_slots - 1, page.data()), 0);
      far.free(large.value(), large_slots);
    }
    EXPECT_GT(model.size(), 20u);
  }
}

INSTANTIATE_TEST_SUITE_P(copies, shm_kill, testing::Bool(),
                         [](const auto& tested) { return tested.param ? "by_server" : "by_client"; });

}  // namespace
}  // namespace far::server
