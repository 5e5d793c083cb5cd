// A cluster of which all but the sockets is real: the client of `tcp:` with its connections, handshake, sessions and
// blocks, the wire, and the memory server, joined by a simulated network.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "cluster.h"
#include "device_user.h"
#include "network.h"
#include "network_server.h"
#include "wire/client_handshake.h"

namespace far::simulation {

class network_cluster final : public cluster {
 public:
  network_cluster(scheduler& threads, random_source& random, const simulated_clock& time,
                  const cluster_options& chosen);
  ~network_cluster() override;

  void start() override;
  void stop() override;
  void be_in_child() override;
  [[nodiscard]] std::uint64_t end_parent() override;
  void outlive_damage(const std::function<void()>& read) override;
  [[nodiscard]] bool outlive_leases() override;
  void outlive_patience(const std::function<bool()>& read) override;
  [[nodiscard]] std::vector<count> counted() const override;

 private:
  void make_trouble(std::size_t server) override;
  void after_trouble(std::size_t server) override;
  void heal(std::size_t server) override;
  void take_away(std::size_t server) override;
  [[nodiscard]] bool all_well() const override;
  void describe_servers() const override;
  void check_untroubled() const override;
  [[nodiscard]] const std::byte* bytes(std::size_t server, backend::slot_id slot) const override {
    return servers_[server]->bytes(slot);
  }

  void partition();
  void stop_client();
  void damage(network_server& victim);
  void make_device_users();
  [[nodiscard]] device_parts::device_tier device_tier(std::size_t copies);
  void end_users() override;
  [[nodiscard]] wire::credentials login() const;
  [[nodiscard]] std::uint64_t draw_absence();
  void make_servers(std::uint64_t capacity_slots);
  [[nodiscard]] std::unique_ptr<backend::backend> make_client(std::size_t server, std::uint64_t capacity_slots);
  [[nodiscard]] std::span<const std::unique_ptr<network_server>> servers() const {
    return std::span(servers_).first(server_count());
  }

  const simulated_clock& time_;
  std::string tokens_;
  std::uint64_t freezing_ns_ = 0;     // how late a thread may be
  std::uint64_t all_over_at_ns_ = 0;  // by then, whatever was under way in the last trouble has ended
  std::uint64_t timeout_ns_ = 0;
  std::uint64_t streams_ = 0;
  std::uint64_t partitions_ = 0;
  std::uint64_t client_stops_ = 0;
  std::uint64_t absences_beyond_grace_ = 0;
  std::uint64_t leases_outlived_ = 0;
  bool has_short_leases_ = false;  // and the client is stopped for longer in the end
  std::uint64_t patiences_outlived_ = 0;
  std::uint64_t read_patience_ns_ = 0;  // 0: as long as the leases
  std::uint64_t lost_after_ns_ = 0;
  bool has_damaged_ = false;
  std::uint64_t least_grace_ns_ = ~std::uint64_t{0};  // of the servers
  std::uint64_t least_silence_ns_ = ~std::uint64_t{0};
  std::uint64_t longest_kept_ns_ = 0;                // since it was last heard of
  std::uint64_t least_kept_ns_ = ~std::uint64_t{0};  // for which a server keeps what a client that is away has there
  std::uint64_t device_kills_ = 0;
  std::uint64_t function_kills_ = 0;
  network network_;
  std::array<std::unique_ptr<network_server>, most_servers> servers_;
  std::vector<std::unique_ptr<device_user>> users_;  // of devices
};

}  // namespace far::simulation
