// Three simulated servers under a replicated far tier with two copies, and their weather: something is wrong with one
// of them at a time, and with the next only when every copy is whole again. So no byte may ever be lost.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "backend/replicated/replicated_backend.h"
#include "random_source.h"
#include "scheduler.h"
#include "simulated_backend.h"
#include "simulated_server.h"

namespace far::simulation {

struct cluster_options {
  std::uint64_t slots = 0;  // that the engine may need
  std::uint64_t maximum_delay_ns = 0;
  std::uint64_t slice_ns = 0;
};

class simulated_cluster {
 public:
  static constexpr std::size_t server_count = 3;
  static constexpr std::size_t copies = 2;

  simulated_cluster(scheduler& threads, random_source& random, const simulated_clock& time,
                    const cluster_options& chosen);

  // The far tier; to be taken once, and to outlive this object's users but not this object.
  [[nodiscard]] std::unique_ptr<backend::backend> take_tier() { return std::move(tier_); }

  // The bodies of two threads. Both end after stop().
  void run_tender();
  void run_weather();
  void stop() { stopping_ = true; }

  // From now on all is well.
  void clear_weather();
  // Waits until every copy is whole.
  void wait_until_whole();
  // Takes a server away for good, with all it holds.
  void lose_one();

  // Every settled slot has the same bytes in all copies that are current, and there is one. Requires quiescence.
  void check_copies(const simulated_backend& user) const;

  struct counts {
    std::uint64_t troubles = 0;
    std::uint64_t crashes = 0;
    std::uint64_t late_writes = 0;
    backend::repair_counts repaired;
  };
  [[nodiscard]] counts counted() const;

 private:
  void make_trouble(simulated_server& victim);
  [[nodiscard]] bool is_whole();
  void describe_copies() const;

  scheduler& threads_;
  random_source& random_;
  const simulated_clock& time_;
  const cluster_options chosen_;
  std::array<simulated_server*, server_count> servers_{};
  std::unique_ptr<backend::replicated_backend> tier_;
  backend::replicated_backend* layer_ = nullptr;
  bool stopping_ = false;
  bool calm_ = false;
  bool weather_ended_ = false;
  std::uint64_t troubles_ = 0;
  std::uint64_t crashes_ = 0;
};

}  // namespace far::simulation
