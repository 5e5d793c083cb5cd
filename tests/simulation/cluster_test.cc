// When the next server may fail, and which troubles may meet: only then is what the simulation expects of two copies a
// fair demand. A writer, and servers that fail one after another, each as soon as the cluster says that it may.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "base/log.h"
#include "simulated_backend.h"
#include "simulated_cluster.h"

namespace far::simulation {
namespace {

using backend::completion;
using backend::operation;
using backend::request;

constexpr std::uint64_t slots = backend::group_slots;
constexpr std::uint64_t slice_ns = 1000;
constexpr std::uint64_t longest_hold_up_ns = 300 * slice_ns;

class cluster_world {
 public:
  // The weather: one that loses transfers and bytes, or the cluster's own.
  enum class weather { of_losses, of_cluster };

  cluster_world(std::uint64_t seed, weather chosen)
      : chosen_(chosen),
        random_(seed),
        threads_(random_, clock_,
                 {.slice_blocks = random_.one_of<std::uint64_t>({10, 30, 100}),
                  .switch_per_mille = 500,
                  .slice_ns = slice_ns,
                  .freeze_per_mille = 0}),
        servers_(threads_, random_, clock_,
                 {.slots = slots, .maximum_delay_ns = 2 * slice_ns, .slice_ns = slice_ns, .is_calm = true}),
        far_(make_far()) {
    servers_.serve(far_);
    for (std::size_t i = 0; i < 2; ++i) servers_.server(i).set_hold_up(longest_hold_up_ns);
  }

  // Returns how many of the slots that were written cannot be read back, or hold something else.
  std::uint64_t run() {
    threads_.spawn("writer", [this] { write_and_read_back(); });
    threads_.spawn("tender", [this] {
      while (!ended_) {
        {
          const scheduler::engine_call call(threads_);
          static_cast<void>(tier_->tend());
        }
        threads_.sleep(1 + random_.below(20 * slice_ns));
      }
    });
    if (chosen_ == weather::of_cluster) servers_.start();
    threads_.spawn("weather", [this] { chosen_ == weather::of_cluster ? await_weather() : make_weather(); });
    threads_.run([] {});
    return lost_;
  }

 private:
  static constexpr std::uint64_t troubles = 10;

  simulated_backend make_far() {
    std::unique_ptr<backend::backend> tier = servers_.take_tier();
    tier_ = tier.get();
    far_tier chosen;
    chosen.slots = slots;
    chosen.maximum_delay_ns = 2 * slice_ns;
    return {threads_, random_, chosen, std::move(tier)};
  }

  // One server loses transfers, and then the other forgets everything.
  void make_weather() {
    for (std::uint64_t i = 0; i < troubles; ++i) {
      const std::size_t victim = random_.below(2);
      servers_.server(victim).set_drops(500);
      threads_.sleep(random_.between(1, 100) * slice_ns);
      servers_.server(victim).set_drops(0);
      wait_until_whole();
      // The last failure is noticed only now, if it could not be noticed before.
      threads_.sleep(1 + random_.below(longest_hold_up_ns));
      servers_.server(1 - victim).crash();
      servers_.server(1 - victim).restart();
      wait_until_whole();
    }
    weather_ended_ = true;
  }

  void await_weather() {
    threads_.sleep(100'000 * slice_ns);
    servers_.clear_weather();
    servers_.wait_until_whole();
    weather_ended_ = true;
    servers_.stop();
  }

  // Nobody need have noticed a crash of a server that held nothing. Were it noticed later, beside the next failure, new
  // groups would get one copy then.
  void wait_until_whole() {
    while (!servers_.server(0).is_known() || !servers_.server(1).is_known() || !servers_.is_whole()) {
      threads_.sleep(slice_ns);
    }
    servers_.note_trouble_ahead();
  }

  void write_and_read_back() {
    std::unique_ptr<backend::channel> queue = far_.open_channel(8).value();
    std::vector<backend::slot_id> written;
    while (!weather_ended_) {
      threads_.sleep(random_.below(10 * slice_ns));
      const scheduler::engine_call call(threads_);
      write_one(*queue, &written);
    }
    const scheduler::engine_call call(threads_);
    for (const backend::slot_id value : written) lost_ += !is_as_written(*queue, value);
    for (const backend::slot_id value : written) far_.free(value, 1);
    queue = nullptr;
    ended_ = true;
  }

  void write_one(backend::channel& queue, std::vector<backend::slot_id>* written) {
    if (written->size() == most_written_) {
      const bool is_right = is_as_written(queue, written->front());
      // A server may be lying.
      lost_ += !is_right && chosen_ != weather::of_cluster;
      far_.free(written->front(), 1);
      written->erase(written->begin());
    }
    const result<backend::slot_id> slot = far_.allocate(1);
    if (!slot) return;
    std::memset(bytes_.data(), value_of(slot.value()), bytes_.size());
    if (transfer(queue, operation::write, slot.value()) != 0) return far_.free(slot.value(), 1);
    written->push_back(slot.value());
  }

  bool is_as_written(backend::channel& queue, backend::slot_id slot) {
    std::memset(bytes_.data(), 0, bytes_.size());
    // A read that was begun while the first server failed may meet the second, so it is tried again.
    bool is_read = false;
    for (int attempts = 0; attempts < 3 && !is_read; ++attempts) is_read = transfer(queue, operation::read, slot) == 0;
    const auto is_expected = [slot](std::byte value) { return value == static_cast<std::byte>(value_of(slot)); };
    return is_read && std::all_of(bytes_.begin(), bytes_.end(), is_expected);
  }

  static int value_of(backend::slot_id slot) { return 1 + static_cast<int>(slot % 200); }

  int transfer(backend::channel& queue, operation op, backend::slot_id slot) {
    const request wanted{
        .op = op, .slot = slot, .offset_bytes = 0, .length_bytes = page_bytes, .buffer = bytes_.data(), .cookie = slot};
    EXPECT_EQ(queue.submit({&wanted, 1}), 1u);
    completion done;
    while (queue.poll({&done, 1}) == 0) queue.wait(slice_ns);
    return done.error_code;
  }

  const weather chosen_;
  const std::size_t most_written_ = chosen_ == weather::of_cluster ? 100 : 12;
  random_source random_;
  simulated_clock clock_;
  scheduler threads_;
  simulated_cluster servers_;
  backend::backend* tier_ = nullptr;
  simulated_backend far_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(page_bytes);
  bool weather_ended_ = false;
  bool ended_ = false;
  std::uint64_t lost_ = 0;
};

TEST(cluster_test, a_server_fails_only_when_what_the_last_one_failed_is_made_good) {
  set_log_level(log_level::error);
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    EXPECT_EQ(std::make_unique<cluster_world>(seed, cluster_world::weather::of_losses)->run(), 0u) << "seed " << seed;
  }
}

// The wrong bytes of a server that lies are not copied to others: that stops the run.
TEST(cluster_test, what_a_server_lies_stays_with_it) {
  set_log_level(static_cast<log_level>(-1));
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    EXPECT_EQ(std::make_unique<cluster_world>(seed, cluster_world::weather::of_cluster)->run(), 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace far::simulation
