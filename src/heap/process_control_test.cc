// The view that other processes have of far::runtime objects, by the control socket. Needs permission for userfaultfd.
#include "heap/process_control.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "base/units.h"
#include "control/control.h"
#include "far/runtime.h"
#include "far/unique_ptr.h"
#include "tests/support/real_pager.h"

namespace far::heap {
namespace {

using process_control_test = real_pager_test<>;

result<std::string> ask(const std::string& request) {
  return control::send_control_request(getpid(), request);
}

std::uint64_t number_of(const std::string& json, const std::string& name) {
  const std::size_t at = json.find("\"" + name + "\": ");
  return at == std::string::npos ? ~std::uint64_t{0} : std::stoull(json.substr(at + name.size() + 4));
}

std::uint64_t answered(const std::string& name) {
  const result<std::string> reply = ask("stats");
  EXPECT_TRUE(reply.ok()) << reply.error().message;
  return reply ? number_of(reply.value(), name) : 0;
}

std::string resize_to(std::uint64_t bytes) {
  return "resize " + std::to_string(bytes);
}

TEST_F(process_control_test, a_runtime_answers_while_it_lives) {
  EXPECT_FALSE(control::is_answered(getpid()));
  {
    runtime farheap(small_runtime(32 * mib));
    auto one = make_unique<int[]>(farheap, 100'000);
    one.write(99'999, 7);
    EXPECT_EQ(answered("budget_bytes"), 32 * mib);
    EXPECT_EQ(answered("local_bytes"), farheap.statistics().local_bytes);
    EXPECT_GT(answered("local_bytes"), 0u);
    EXPECT_EQ(answered("lost_pages"), 0u);
    ASSERT_TRUE(ask(resize_to(48 * mib)).ok());
    EXPECT_EQ(farheap.statistics().budget_bytes, 48 * mib);
    EXPECT_NE(ask(resize_to(mib)).error().message.find("give at least 16.0 MiB"), std::string::npos);
    EXPECT_NE(ask("add-server 127.0.0.1:1").error().message.find("server"), std::string::npos);
    EXPECT_NE(ask("job").error().message.find("is in no job"), std::string::npos);
    EXPECT_EQ(one.read(99'999), 7);
  }
  EXPECT_FALSE(control::is_answered(getpid()));
}

TEST_F(process_control_test, the_runtimes_of_a_process_answer_together) {
  auto first = std::make_unique<runtime>(small_runtime(32 * mib));
  runtime second(small_runtime(64 * mib));
  runtime_options silent = small_runtime(16 * mib);
  silent.answers_commands = false;
  const runtime third(silent);
  EXPECT_EQ(answered("budget_bytes"), 96 * mib);
  EXPECT_NE(ask(resize_to(31 * mib)).error().message.find("give at least 32.0 MiB"), std::string::npos);
  ASSERT_TRUE(ask(resize_to(160 * mib)).ok());
  EXPECT_EQ(first->statistics().budget_bytes, 48 * mib);
  EXPECT_EQ(second.statistics().budget_bytes, 112 * mib);
  ASSERT_TRUE(ask(resize_to(32 * mib)).ok());
  ASSERT_TRUE(ask(resize_to(64 * mib)).ok()) << "where nobody has more than the least";
  EXPECT_EQ(first->statistics().budget_bytes, 32 * mib);
  EXPECT_EQ(third.statistics().budget_bytes, 16 * mib);
  first.reset();
  EXPECT_EQ(answered("budget_bytes"), second.statistics().budget_bytes);
}

TEST_F(process_control_test, a_second_process_wide_runtime_leaves_nothing_behind) {
  runtime_options chosen = small_runtime(32 * mib);
  chosen.process_wide = true;
  const runtime first(chosen);
  EXPECT_THROW(const runtime second(chosen), std::runtime_error);
  EXPECT_EQ(&runtime::process(), &first);
  EXPECT_EQ(answered("budget_bytes"), 32 * mib);
}

TEST_F(process_control_test, public_calls_throw_what_the_commands_say) {
  runtime farheap(small_runtime());
  farheap.resize(32 * mib);
  EXPECT_EQ(farheap.statistics().budget_bytes, 32 * mib);
  EXPECT_THROW(farheap.resize(mib), std::runtime_error);
  EXPECT_THROW(farheap.add_server("127.0.0.1:1"), std::runtime_error);
  EXPECT_THROW(static_cast<void>(farheap.remove_server("127.0.0.1:1")), std::runtime_error);
  EXPECT_THROW(static_cast<void>(farheap.removal_left("127.0.0.1:1")), std::runtime_error);
}

// As under `farheap run`, whose runtime listens first.
TEST_F(process_control_test, another_runtime_of_the_process_keeps_its_name) {
  struct other {
    static result<void> resize(void*, std::uint64_t) { return {}; }
    static engine::statistics stats(void*) { return {.misses = 4711}; }
    static result<void> add_server(void*, std::string_view) { return {}; }
    static result<std::uint64_t> remove_server(void*, std::string_view, removal) { return std::uint64_t{0}; }
  };
  const auto server =
      control::control_server::open({nullptr, other::resize, other::stats, other::add_server, other::remove_server});
  std::thread running([&] {
    while (server->step(-1)) continue;
  });
  {
    ::testing::internal::CaptureStderr();
    const runtime farheap(small_runtime());
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("budget of its own of 16.0 MiB"), std::string::npos);
    EXPECT_EQ(answered("misses"), 4711u);
  }
  EXPECT_EQ(answered("misses"), 4711u);
  server->wake();
  running.join();
}

}  // namespace
}  // namespace far::heap
