// How the far tier of a Redis Cluster grows: one client and many nodes, and many clients and many nodes, simulated.
//
//     build/tests/cluster_growth
//
// The placement is the product's: parts in hash slots that are drawn at random, groups on the masters with the highest
// weights, two copies. The nodes are queues: each command takes the processor that was measured (docs/cluster.md), each
// answer goes over the node's link and the client's. Clients keep 16 reads of 4 KiB outstanding, of pages drawn at
// random, each from one of its two copies.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "backend/replicated/placement.h"

namespace far::backend {
namespace {

constexpr double service_us = 2.6;            // of a node's processor for a read
constexpr double client_us = 1.5;             // of a client's thread for a read
constexpr double way_us = 10;                 // through the network, each way
constexpr double node_bytes_per_us = 1250;    // 10 Gbit/s
constexpr double client_bytes_per_us = 3125;  // 25 Gbit/s
constexpr double page = 4096 + 64;
constexpr std::size_t groups_a_client = 2048;  // 4 GiB
constexpr std::size_t depth = 16;
constexpr std::size_t reads_a_client = 20'000;
constexpr std::uint32_t slots = 16384;

struct client {
  std::vector<std::vector<std::uint16_t>> holders;  // of each group
  double thread_free_us = 0;
  double link_free_us = 0;
  std::size_t begun = 0;
  std::size_t ended = 0;
};

struct node {
  double processor_free_us = 0;
  double link_free_us = 0;
  std::size_t copies = 0;
  std::size_t reads = 0;
};

struct event {
  double when_us = 0;
  std::size_t client = 0;
  double begun_us = 0;
  bool operator<(const event& other) const { return when_us > other.when_us; }
};

class growth {
 public:
  growth(std::size_t clients, std::size_t nodes) : clients_(clients), nodes_(nodes), chance_(18) {
    std::vector<int> tenants(slots);
    for (std::size_t c = 0; c < clients; ++c) {
      std::vector<std::uint64_t> names;
      for (std::size_t n = 0; n < std::min(nodes, maximum_members); ++n) {
        // A client takes 64 masters at most.
        const std::size_t at = nodes > maximum_members ? (c * maximum_members + n) % nodes : n;
        used_.push_back(at);
        const std::size_t slot = chance_() % slots;
        ++tenants[slot];
        names.push_back(hash_of_name("10.0." + std::to_string(at / 250) + "." + std::to_string(at % 250) +
                                     ":6379 slot " + std::to_string(slot)));
      }
      clients_[c].holders.resize(groups_a_client);
      for (std::size_t group = 0; group < groups_a_client; ++group) {
        const member_order order = order_for(names, group);
        for (std::size_t copy = 0; copy < 2; ++copy) {
          const std::size_t at = used_[used_.size() - names.size() + order.members[copy]];
          clients_[c].holders[group].push_back(static_cast<std::uint16_t>(at));
          ++nodes_[at].copies;
        }
      }
    }
    most_in_a_slot_ = *std::max_element(tenants.begin(), tenants.end());
  }

  void run() {
    std::priority_queue<event> pending;
    const auto begin = [&](std::size_t c, double now_us) {
      client& asking = clients_[c];
      if (asking.begun++ >= reads_a_client) return;
      asking.thread_free_us = std::max(asking.thread_free_us, now_us) + client_us;
      const std::vector<std::uint16_t>& holders = asking.holders[chance_() % groups_a_client];
      node& asked = nodes_[holders[chance_() % holders.size()]];
      ++asked.reads;
      asked.processor_free_us = std::max(asked.processor_free_us, asking.thread_free_us + way_us) + service_us;
      asked.link_free_us = std::max(asked.link_free_us, asked.processor_free_us) + page / node_bytes_per_us;
      asking.link_free_us = std::max(asking.link_free_us, asked.link_free_us + way_us) + page / client_bytes_per_us;
      pending.push({.when_us = asking.link_free_us, .client = c, .begun_us = now_us});
    };
    for (std::size_t c = 0; c < clients_.size(); ++c) {
      for (std::size_t i = 0; i < depth; ++i) begin(c, 0);
    }
    while (!pending.empty()) {
      const event done = pending.top();
      pending.pop();
      end_us_ = done.when_us;
      took_us_.push_back(done.when_us - done.begun_us);
      begin(done.client, done.when_us);
    }
    std::sort(took_us_.begin(), took_us_.end());
  }

  void print() const {
    const double total = static_cast<double>(took_us_.size());
    double most_copies = 0;
    double copies = 0;
    for (const node& one : nodes_) {
      most_copies = std::max(most_copies, static_cast<double>(one.copies));
      copies += static_cast<double>(one.copies);
    }
    const double mean_copies = copies / static_cast<double>(nodes_.size());
    const std::size_t connections = 2 * used_.size();
    std::printf("| %zu | %zu | %.0f | %.2f | %.1f | %.1f | %.2f | %zu | %.0f | %d |\n", clients_.size(), nodes_.size(),
                total / end_us_ * 1000, total * page / end_us_ / 1000 * 8 / static_cast<double>(nodes_.size()),
                took_us_[took_us_.size() / 2], took_us_[took_us_.size() * 99 / 100], most_copies / mean_copies,
                connections / clients_.size(), static_cast<double>(connections) / static_cast<double>(nodes_.size()),
                most_in_a_slot_);
  }

 private:
  std::vector<client> clients_;
  std::vector<node> nodes_;
  std::vector<std::size_t> used_;
  std::mt19937_64 chance_;
  std::vector<double> took_us_;
  double end_us_ = 0;
  int most_in_a_slot_ = 0;
};

}  // namespace
}  // namespace far::backend

int main() {
  std::printf(
      "| clients | nodes | thousand reads/s | Gbit/s a node | p50 us | p99 us | fullest node over mean | connections "
      "of a "
      "client | of a node | most parts in a hash slot |\n");
  std::printf("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  for (const auto& [clients, nodes] : {std::pair<std::size_t, std::size_t>{1, 3},
                                       {1, 6},
                                       {1, 16},
                                       {1, 64},
                                       {4, 3},
                                       {16, 3},
                                       {16, 6},
                                       {16, 16},
                                       {64, 16},
                                       {64, 64},
                                       {256, 64},
                                       {256, 128}}) {
    far::backend::growth simulated(clients, nodes);
    simulated.run();
    simulated.print();
  }
}
