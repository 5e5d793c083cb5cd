// The client of `tcp:` and a real server, which goes and comes back; and a fork.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/tcp/tcp_backend.h"
#include "backend/tcp/tcp_uri.h"
#include "backend/uri.h"
#include "base/units.h"
#include "memory_server.h"
#include "tests/support/slot_transfers.h"
#include "tests/support/tls_test_files.h"

namespace far::backend {
namespace {

using testing_support::content;
using testing_support::memory_server;
using testing_support::reached;
using testing_support::read_slot;
using testing_support::write_slot;

constexpr std::uint64_t second_ns = 1'000'000'000;

// Without the layer above servers, so that what it hides can be seen.
std::unique_ptr<backend> open_at(const memory_server& server, const std::string& options = "capacity=64M&timeout=20s") {
  const tcp_name name = parse_tcp(uri::parse("tcp://" + server.address() + "?" + options).value()).value();
  result<std::unique_ptr<backend>> opened =
      tcp_backend::open(name.servers[0], name.options, tcp_trust::load(name.options).value());
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return opened.ok() ? std::move(opened).value() : nullptr;
}

TEST(tcp_server, what_is_freed_goes_back_and_the_session_ends_with_the_backend) {
  memory_server server({});
  {
    const auto far = open_at(server, "capacity=200M");
    std::vector<slot_id> taken;
    while (taken.size() < 90) {
      const result<slot_id> block = far->allocate(512);
      if (block) {
        taken.push_back(block.value());
      } else {
        ASSERT_EQ(block.error().code, EAGAIN);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        far->tend();
      }
    }
    EXPECT_GE(server.report().held_blocks, 90u);
    for (const slot_id block : taken) far->free(block, 512);
    EXPECT_TRUE(reached(*far, [&] { return server.report().held_blocks < 60; }));
  }
  for (int tries = 0; tries < 3000 && server.report().sessions != 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(server.report().sessions, 0u);
}

// As of a server of an older release: that is no loss, the bytes can be read.
TEST(tcp_server, what_a_server_cannot_reduce_is_refused_and_nothing_else) {
  const memory_server server({});
  const auto far = open_at(server);
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id slot = far->allocate(1).value();
  ASSERT_EQ(write_slot(*far, *queue, slot), 0);
  const page_hasher hash(1);
  const page_reduction asked{{detail::number_type::int64, 0, 9}, &hash};
  reduced_page found;
  const request io{.op = operation::read,
                   .slot = slot,
                   .offset_bytes = 4,
                   .length_bytes = 8,
                   .buffer = reinterpret_cast<std::byte*>(&found),
                   .reduce = &asked};
  ASSERT_EQ(queue->submit({&io, 1}), 1u);
  completion ended;
  while (queue->poll({&ended, 1}) == 0) queue->wait(second_ns);
  EXPECT_EQ(ended.error_code, EAGAIN) << "no number begins there; others may be asked about";
  EXPECT_EQ(read_slot(*far, *queue, slot), 0);
}

// Until all of them have ended well.
void run(channel& queue, std::span<const request> all) {
  std::size_t ended = 0;
  for (std::size_t begun = 0; ended < all.size();) {
    begun += queue.submit(all.subspan(begun));
    std::array<completion, 16> done;
    const std::size_t now = queue.poll(done);
    for (std::size_t i = 0; i < now; ++i) ASSERT_EQ(done[i].error_code, 0);
    ended += now;
    if (now == 0) queue.wait(second_ns);
  }
}

// One question, about two columns of keys. Returns how it ended.
int ask_about_rows(channel& queue, const std::array<slot_id, 2>& slots) {
  detail::keyed_rows rows{.rows = page_bytes, .keys = 2};
  rows.key[0] = rows.key[1] = {0, 4, detail::number_type::uint8};
  const page_hasher hash(9);
  const page_reduction asked{
      .how = {.kind = reduction_kind::of_rows, .groups = 16, .rows = &rows}, .hash = &hash, .slots = slots};
  std::array<std::byte, most_answer_bytes> found;
  const request io{.op = operation::read, .slot = slots[0], .buffer = found.data(), .reduce = &asked};
  EXPECT_EQ(queue.submit({&io, 1}), 1u);
  completion ended;
  while (queue.poll({&ended, 1}) == 0) queue.wait(second_ns);
  return ended.error_code;
}

// So many that they take several messages; some are about rows without numbers.
TEST(tcp_server, questions_about_rows_are_answered_from_several_slots) {
  constexpr std::size_t count = 40;
  const memory_server server({});
  const auto far = open_at(server);
  const auto queue = std::move(far->open_channel(64)).value();
  const slot_id first = far->allocate(count).value();
  std::vector<std::byte> pages(count * page_bytes);
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::byte>(i * i % 251 + i / page_bytes);
  const request whole{
      .op = operation::write, .slot = first, .length_bytes = count * page_bytes, .buffer = pages.data()};
  run(*queue, {&whole, 1});
  const page_hasher hash(9);
  detail::keyed_rows with_numbers{.rows = 4096, .keys = 1, .wants_sums = true, .wants_greatest = true};
  with_numbers.key[0] = {5, 20, detail::number_type::uint8};
  detail::keyed_rows alone = with_numbers;
  alone.wants_sums = alone.wants_greatest = false;
  std::array<std::vector<slot_id>, 50> slots;
  std::array<page_reduction, slots.size()> questions;
  std::array<std::array<std::byte, most_answer_bytes>, slots.size()> found{};
  std::vector<request> all;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const bool is_alone = i % 8 == 7;
    for (std::size_t page = 0; page < (is_alone ? 1u : 5u); ++page) slots[i].push_back(first + (7 * i + page) % count);
    const reduction how{.type = detail::number_type::int32,
                        .highest = 0x7fff'ffff,
                        .kind = reduction_kind::of_rows,
                        .groups = 20,
                        .rows = is_alone ? &alone : &with_numbers};
    questions[i] = {.how = how, .hash = &hash, .slots = slots[i]};
    all.push_back({.op = operation::read,
                   .slot = slots[i].front(),
                   .buffer = found[i].data(),
                   .cookie = i,
                   .reduce = &questions[i]});
  }
  run(*queue, all);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    std::vector<const std::byte*> of_question;
    for (const slot_id slot : slots[i]) of_question.push_back(pages.data() + (slot - first) * page_bytes);
    std::array<std::byte, most_answer_bytes> expected{};
    answer_about_rows(questions[i], of_question, expected.data());
    EXPECT_EQ(found[i], expected) << i;
  }
}

// So many that they take several messages, in each of which are the groups of many pages.
TEST(tcp_server, sums_of_groups_are_those_of_each_page) {
  constexpr std::size_t count = 300;
  const memory_server server({});
  const auto far = open_at(server);
  const auto queue = std::move(far->open_channel(count)).value();
  const slot_id first = far->allocate(count).value();
  const reduction how{detail::number_type::int16, 0, 30'000, reduction_kind::group_sums, 0, 19};
  std::vector<std::int16_t> numbers(count * page_bytes / sizeof(std::int16_t));
  std::vector<std::uint8_t> groups(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int16_t>(i * i % 65'521);
    groups[i] = static_cast<std::uint8_t>(i / 3 * 7 % 23);
  }
  auto* const bytes = reinterpret_cast<std::byte*>(numbers.data());
  const request whole{.op = operation::write, .slot = first, .length_bytes = count * page_bytes, .buffer = bytes};
  run(*queue, {&whole, 1});
  const page_hasher hash(1);
  std::vector<std::vector<std::byte>> packed(count);
  std::vector<std::vector<std::byte>> found(count, std::vector<std::byte>(answer_bytes(how)));
  std::vector<page_reduction> asked(count);
  std::vector<request> all(count);
  constexpr std::size_t on_a_page = page_bytes / sizeof(std::int16_t);
  for (std::size_t i = 0; i < count; ++i) {
    // Of the last pages, fewer numbers.
    const auto length = static_cast<std::uint32_t>(i < 200 ? page_bytes : 2 * i);
    packed[i].resize(packed_group_bytes(how, length));
    pack_groups(how, &groups[i * on_a_page], length / sizeof(std::int16_t), packed[i].data());
    asked[i] = {how, &hash, packed[i].data()};
    all[i] = {.op = operation::read,
              .slot = first + i,
              .length_bytes = length,
              .buffer = found[i].data(),
              .reduce = &asked[i]};
  }
  run(*queue, all);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::byte> expected(answer_bytes(how));
    answer(how, hash, &groups[i * on_a_page], bytes + i * page_bytes, {bytes + i * page_bytes, all[i].length_bytes},
           expected.data());
    ASSERT_EQ(found[i], expected) << i;
  }
}

TEST(tcp_server, a_restarted_server_has_lost_its_slots_and_serves_new_ones) {
  memory_server server({});
  const auto far = open_at(server);
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id old = far->allocate(4).value();
  ASSERT_EQ(write_slot(*far, *queue, old), 0);
  ASSERT_EQ(read_slot(*far, *queue, old), 0);
  server.restart();
  EXPECT_EQ(read_slot(*far, *queue, old), ESTALE);
  result<slot_id> fresh = far->allocate(1);
  EXPECT_TRUE(reached(*far, [&] { return fresh.ok() || (fresh = far->allocate(1)).ok(); }));
  ASSERT_TRUE(fresh.ok());
  EXPECT_FALSE(fresh.value() >= old && fresh.value() < old + 4);
  EXPECT_EQ(write_slot(*far, *queue, fresh.value()), 0);
  EXPECT_EQ(read_slot(*far, *queue, fresh.value()), 0);
  EXPECT_EQ(read_slot(*far, *queue, old + 1), ESTALE);
  EXPECT_EQ(write_slot(*far, *queue, old + 1), ESTALE);
  // The server would end the connection of a client that asks about slots that it has not lent.
  EXPECT_EQ(ask_about_rows(*queue, {fresh.value(), fresh.value()}), 0);
  EXPECT_EQ(ask_about_rows(*queue, {fresh.value(), old + 1}), ESTALE);
  EXPECT_EQ(ask_about_rows(*queue, {old + 1, fresh.value()}), ESTALE);
  far->free(old, 4);
  EXPECT_EQ(far->report().used_slots, 1u);
}

TEST(tcp_server, a_server_that_is_gone_is_waited_for_until_the_timeout) {
  memory_server server({});
  const auto far = open_at(server, "capacity=8M&timeout=10s");
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id slot = far->allocate(1).value();
  ASSERT_EQ(write_slot(*far, *queue, slot), 0);
  server.kill();
  EXPECT_EQ(read_slot(*far, *queue, slot), ETIMEDOUT);
  EXPECT_EQ(write_slot(*far, *queue, slot), ETIMEDOUT);
}

TEST(tcp_server, a_draining_server_serves_what_it_holds) {
  memory_server server({});
  const auto far = open_at(server);
  const auto queue = std::move(far->open_channel(8)).value();
  const slot_id slot = far->allocate(1).value();
  ASSERT_EQ(write_slot(*far, *queue, slot), 0);
  server.drain();
  EXPECT_TRUE(reached(*far, [&] {
    const result<slot_id> more = far->allocate(64);
    return !more && more.error().code == ENOSPC;
  }));
  EXPECT_EQ(read_slot(*far, *queue, slot), 0);
}

TEST(tcp_server, refusals_say_what_to_do_and_not_the_token) {
  const std::string token = "a-token-that-nobody-shall-see";
  wire::tls_test_files files;
  files.make_authority("ours");
  files.make_authority("theirs");
  files.make_server("server", "ours", "IP:127.0.0.1");
  files.make_server("elsewhere", "ours", "IP:127.0.0.2");
  const auto write_file = [&](const std::string& name, const std::string& line) {
    std::FILE* const file = std::fopen((files.folder() + "/" + name).c_str(), "w");
    std::fputs((line + "\n").c_str(), file);
    std::fclose(file);
    chmod((files.folder() + "/" + name).c_str(), 0600);
    return files.folder() + "/" + name;
  };
  const std::string right = write_file("right", token);
  const std::string wrong = write_file("wrong", "another-token-of-some-length");
  memory_server with_token({.token = token});
  memory_server secure({.certificate_file = files.certificate("server"), .key_file = files.key("server")});
  memory_server misplaced({.certificate_file = files.certificate("elsewhere"), .key_file = files.key("elsewhere")});
  memory_server plain({});
  const std::string ours = "&ca=" + files.certificate("ours");
  const std::string theirs = "&ca=" + files.certificate("theirs");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {with_token.address() + "?timeout=20s", "token-file"},
      {with_token.address() + "?timeout=20s&token-file=" + wrong, "refuses"},
      {plain.address() + "?timeout=20s&token-file=" + right, "token"},
      {plain.address() + "?timeout=1s&tls=1" + ours, "cannot be used"},
      {secure.address() + "?timeout=1s", "cannot be used"},
      {secure.address() + "?timeout=20s&tls=1" + theirs, "certificate"},
      {misplaced.address() + "?timeout=20s&tls=1" + ours, "certificate"},
      {"127.0.0.1:1?timeout=2s", "farheapd"},
      {"does-not-exist.invalid:1?timeout=2s", "resolved"},
      {plain.address() + "?token-file=" + files.folder() + "/absent", "absent"},
  };
  for (const auto& [name, expected] : cases) {
    const result<std::unique_ptr<backend>> opened = open("tcp://" + name);
    ASSERT_FALSE(opened.ok()) << name;
    EXPECT_NE(opened.error().message.find(expected), std::string::npos) << opened.error().message;
    EXPECT_EQ(opened.error().message.find(token), std::string::npos);
  }
  EXPECT_TRUE(open("tcp://" + with_token.address() + "?token-file=" + right).ok());
  EXPECT_TRUE(open("tcp://" + secure.address() + "?tls=1" + ours).ok());
}

// Two threads, each with a channel, over one connection. One sleeps on its descriptor; the other polls all the time and
// meets the first one's completions as well.
TEST(tcp_server, who_sleeps_is_woken_though_another_channel_receives) {
  memory_server server({});
  const auto far = open_at(server, "capacity=64M&connections=1");
  const slot_id slots = far->allocate(2).value();
  const auto sleeper = std::move(far->open_channel(4)).value();
  const auto other = std::move(far->open_channel(4)).value();
  ASSERT_EQ(write_slot(*far, *sleeper, slots), 0);
  ASSERT_EQ(write_slot(*far, *other, slots + 1), 0);
  std::atomic<bool> done{false};
  std::thread busy([&] {
    while (!done.load()) EXPECT_EQ(read_slot(*far, *other, slots + 1), 0);
  });
  std::vector<std::byte> bytes(page_bytes);
  const request one{.op = operation::read, .slot = slots, .buffer = bytes.data()};
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(sleeper->submit({&one, 1}), 1u);
    std::array<completion, 1> ended;
    pollfd watched{.fd = sleeper->event_descriptor(), .events = POLLIN, .revents = 0};
    do {
      ASSERT_EQ(poll(&watched, 1, 120'000), 1) << "nobody woke the sleeper";
    } while (sleeper->poll(ended) == 0);
    ASSERT_EQ(ended[0].error_code, 0);
  }
  done.store(true);
  busy.join();
}

// The same without luck: the reply is received on behalf of nobody, and nothing follows it on the connection.
TEST(tcp_server, who_sleeps_is_woken_by_what_was_received_before) {
  memory_server server({});
  const auto far = open_at(server, "capacity=64M&connections=1");
  const slot_id slot = far->allocate(1).value();
  const auto sleeper = std::move(far->open_channel(4)).value();
  ASSERT_EQ(write_slot(*far, *sleeper, slot), 0);
  pollfd watched{.fd = sleeper->event_descriptor(), .events = POLLIN, .revents = 0};
  std::vector<std::byte> bytes(page_bytes);
  const request one{.op = operation::read, .slot = slot, .buffer = bytes.data()};
  ASSERT_EQ(sleeper->submit({&one, 1}), 1u);
  // Until the descriptor has been told of the reply, and tend() has taken that reply from the connection.
  ASSERT_EQ(poll(&watched, 1, 120'000), 1);
  far->tend();
  EXPECT_EQ(poll(&watched, 1, 0), 1) << "the completion is there, and nothing says so";
  std::array<completion, 1> ended;
  EXPECT_EQ(sleeper->poll(ended), 1u);
  EXPECT_EQ(poll(&watched, 1, 0), 0);
}

// The outcome of a child: exit code 0, or where it failed.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void check_fork(memory_server& server, const std::string& options) {
  const auto far = open_at(server, options);
  auto queue = std::move(far->open_channel(8)).value();
  const slot_id first = far->allocate(16).value();
  for (slot_id slot = first; slot < first + 16; ++slot) ASSERT_EQ(write_slot(*far, *queue, slot), 0);
  // A read of the parent is on its way at the fork; its bytes are the parent's.
  std::vector<std::byte> bytes(page_bytes);
  const request pending{.op = operation::read, .slot = first, .buffer = bytes.data(), .cookie = 7};
  ASSERT_EQ(queue->submit({&pending, 1}), 1u);
  const auto child_reads = [&] {
    static_cast<void>(queue.release());
    far->after_fork_in_child();
    const auto mine = std::move(far->open_channel(4)).value();
    for (slot_id slot = first; slot < first + 16; ++slot) {
      if (read_slot(*far, *mine, slot) != 0) return static_cast<int>(1 + slot - first);
    }
    return 0;
  };
  EXPECT_EQ(in_child(child_reads), 0);
  // A child of the child, too.
  EXPECT_EQ(in_child([&] {
              const int own = child_reads();
              return own != 0 ? own : in_child([&] { return child_reads(); });
            }),
            0);
  std::array<completion, 1> done;
  while (queue->poll(done) == 0) queue->wait(second_ns);
  EXPECT_EQ(done[0].error_code, 0);
  EXPECT_EQ(bytes[100], content(first, 100));
  for (slot_id slot = first; slot < first + 16; ++slot) {
    EXPECT_EQ(write_slot(*far, *queue, slot), 0);
    EXPECT_EQ(read_slot(*far, *queue, slot), 0);
  }
  EXPECT_EQ(server.report().sessions, 1u) << "children join the session of their parent";
}

TEST(tcp_server, a_child_reads_over_connections_of_its_own) {
  memory_server server({});
  check_fork(server, "capacity=64M&timeout=20s");
}

TEST(tcp_server, a_child_reads_over_tls_connections_of_its_own) {
  wire::tls_test_files files;
  files.make_authority("authority");
  files.make_server("server", "authority", "IP:127.0.0.1");
  memory_server server({.certificate_file = files.certificate("server"), .key_file = files.key("server")});
  check_fork(server, "capacity=64M&timeout=20s&tls=1&ca=" + files.certificate("authority"));
}

// A child that nobody prepares: it leaves the program's objects behind, as main() returning does.
TEST(tcp_server, a_child_that_destroys_the_far_tier_ends_nothing_of_its_parents) {
  for (const bool is_told : {false, true}) {
    memory_server server({.grace_ns = second_ns / 100});
    auto far = open_at(server, "capacity=64M&timeout=20s");
    auto queue = std::move(far->open_channel(8)).value();
    const slot_id first = far->allocate(4).value();
    for (slot_id slot = first; slot < first + 4; ++slot) ASSERT_EQ(write_slot(*far, *queue, slot), 0);
    pollfd watched{.fd = queue->event_descriptor(), .events = POLLIN, .revents = 0};
    const auto leave = [&] {
      far.reset();
      return 0;
    };
    const auto leave_with_a_child = [&] {
      static_cast<void>(queue.release());
      if (is_told) far->after_fork_in_child();
      const int grandchild = in_child(leave);
      return grandchild != 0 ? grandchild : leave();
    };
    EXPECT_EQ(in_child(leave_with_a_child), 0);
    for (slot_id slot = first; slot < first + 4; ++slot) EXPECT_EQ(read_slot(*far, *queue, slot), 0);
    EXPECT_EQ(server.report().sessions, 1u);
    // The part that tells the parent of an answer is still there, too.
    std::vector<std::byte> bytes(page_bytes);
    std::array<completion, 1> done;
    EXPECT_EQ(queue->poll(done), 0u);
    const request one{.op = operation::read, .slot = first, .buffer = bytes.data(), .cookie = 1};
    ASSERT_EQ(queue->submit({&one, 1}), 1u);
    EXPECT_EQ(::poll(&watched, 1, 120'000), 1) << "nobody is told that the answer has come";
    while (queue->poll(done) == 0) queue->wait(second_ns);
    EXPECT_EQ(done[0].error_code, 0);
  }
}

}  // namespace
}  // namespace far::backend
