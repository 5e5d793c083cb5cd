// The promises of the simulated world to the code under test, so that a failure is the code's: nobody is late because
// of how the simulation looks at the others, and one trouble is over before the next begins.
#include "network.h"

#include <gtest/gtest.h>

#include <memory>

namespace far::simulation {
namespace {

constexpr std::uint64_t slice_ns = 1000;

// One thread asks inside the engine, as a miss does, and looks for the answer now and then; the other one answers, 20
// slices after it was asked.
TEST(simulated_time, whoever_waits_for_a_server_does_not_run_out_of_time_while_quiescence_is_sought) {
  random_source random{7};
  simulated_clock clock;
  scheduler threads(random, clock, {.slice_ns = slice_ns});
  bool is_answered = false;
  thread_id server = 0;
  std::uint64_t took_ns = 0;
  server = threads.spawn_timely("server", [&] {
    threads.block();
    threads.sleep(20 * slice_ns);
    is_answered = true;
  });
  threads.spawn("program", [&] {
    const scheduler::engine_call call(threads);
    const std::uint64_t asked_ns = clock.now_ns();
    threads.wake(server);
    threads.seek_quiescence(250);
    while (!is_answered) threads.sleep(400 * slice_ns);
    took_ns = clock.now_ns() - asked_ns;
  });
  threads.run([] {});
  EXPECT_LT(took_ns, 2000 * slice_ns);
}

class simulated_network : public testing::Test {
 protected:
  static constexpr std::uint64_t patience_ns = 5000;

  // As a server does when the handshake has ended well.
  void connect() {
    ASSERT_EQ(stream_->connect(), 0);
    clock_.advance_to(clock_.now_ns() + 1);
    const std::shared_ptr<link> arrived = tested_.accept(0);
    ASSERT_NE(arrived, nullptr);
    tested_.note_serving(*arrived, true);
  }

  random_source random_{1};
  simulated_clock clock_;
  scheduler threads_{random_, clock_, {}};
  network tested_{threads_, random_, clock_, 1, {.maximum_delay_ns = 0, .window_bytes = 1000, .slice_ns = slice_ns}};
  std::unique_ptr<backend::byte_stream> stream_ = tested_.make_stream(0);
};

TEST_F(simulated_network, a_trouble_is_over_when_nothing_can_fail_of_it_any_more) {
  tested_.road_to(0).is_up = true;
  EXPECT_FALSE(tested_.connected_for(0, 0));
  connect();
  EXPECT_TRUE(tested_.all_connected(0));
  EXPECT_FALSE(tested_.connected_for(0, patience_ns));
  clock_.advance_to(clock_.now_ns() + patience_ns);
  EXPECT_TRUE(tested_.connected_for(0, patience_ns));

  // It is noticed long after the road is well again, and what was asked for meanwhile waits for the next connection.
  tested_.forget_all(0);
  tested_.mend(0);
  clock_.advance_to(clock_.now_ns() + 100 * patience_ns);
  EXPECT_FALSE(tested_.connected_for(0, patience_ns));
  stream_->close();
  connect();
  EXPECT_TRUE(tested_.all_connected(0));
  EXPECT_FALSE(tested_.connected_for(0, patience_ns));
  clock_.advance_to(clock_.now_ns() + patience_ns);
  EXPECT_TRUE(tested_.connected_for(0, patience_ns));
}

}  // namespace
}  // namespace far::simulation
