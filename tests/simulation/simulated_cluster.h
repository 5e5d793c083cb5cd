// A cluster of simulated servers: clients that behave as badly as the layer of copies allows.
#pragma once

#include <array>
#include <memory>

#include "cluster.h"
#include "simulated_server.h"

namespace far::simulation {

class simulated_cluster final : public cluster {
 public:
  simulated_cluster(scheduler& threads, random_source& random, const simulated_clock& time,
                    const cluster_options& chosen);

  // Fails when more copies of a server were taken for damaged than it has returned wrong bytes or errors for.
  void stop() override;
  [[nodiscard]] std::vector<count> counted() const override;
  // For tests that make its weather themselves.
  [[nodiscard]] simulated_server& server(std::size_t index) { return *servers_[index]; }

 private:
  void make_trouble(std::size_t server) override;
  void after_trouble(std::size_t server) override { servers_[server]->store_some_late(); }
  void heal(std::size_t server) override;
  void take_away(std::size_t server) override;
  void make_harmless_trouble(std::size_t server);
  void send_away(std::size_t server);
  void check_lie(std::size_t server) const;
  [[nodiscard]] bool all_well() const override;
  [[nodiscard]] bool all_known() const override;
  void describe_servers() const override {}
  [[nodiscard]] const std::byte* bytes(std::size_t server, backend::slot_id slot) const override {
    return servers_[server]->bytes(slot);
  }

  std::array<simulated_server*, most_servers> servers_{};
  std::uint64_t drained_ = 0;
};

}  // namespace far::simulation
