#include "simulated_cluster.h"

#include <algorithm>
#include <string>
#include <utility>

#include "trace.h"

namespace far::simulation {
namespace {

// How long a server waits until it holds nothing more.
constexpr std::uint64_t drain_step_slices = 20;
constexpr std::uint64_t longest_drain_slices = 20'000;

}  // namespace

simulated_cluster::simulated_cluster(scheduler& threads, random_source& random, const simulated_clock& time,
                                     const cluster_options& chosen)
    : cluster(threads, random, chosen) {
  const std::uint64_t deadline_ns =
      2 * chosen.maximum_delay_ns + random.one_of<std::uint64_t>({10, 100}) * chosen.slice_ns;
  std::vector<std::unique_ptr<backend::backend>> members;
  for (std::size_t i = 0; i < server_count(); ++i) {
    auto server = std::make_unique<simulated_server>(
        threads, random, time,
        server_options{
            .name = "server " + std::to_string(i),
            .slots = round_up(chosen.slots, backend::group_slots) + (chosen.has_parity ? 5 : 2) * backend::group_slots,
            .maximum_delay_ns = chosen.maximum_delay_ns,
            .deadline_ns = deadline_ns,
            .grant_after_ns = random.one_of<std::uint64_t>({0, 20, 200}) * chosen.slice_ns,
            .on_lie = [this, i] { check_lie(i); }});
    servers_[i] = server.get();
    members.push_back(std::move(server));
  }
  backend::striped_options options;
  options.copies = chosen.copies;
  options.shape = {.data = 2, .parity = 1};
  options.capacity_slots = chosen.slots;
  options.clock = &time;
  options.probe_interval_ns = deadline_ns / 2;
  options.lost_after_ns = deadline_ns * random.one_of<std::uint64_t>({2, 5, 50});
  // Much faster than anybody would: time is short here.
  options.scrubbed_pages_per_second = random.one_of<std::uint64_t>({0, 10'000, 1'000'000});
  make_tier(std::move(members), options);
}

bool simulated_cluster::all_well() const {
  return std::all_of(servers_.begin(), servers_.end(),
                     [](const simulated_server* server) { return server == nullptr || server->is_well(); });
}

bool simulated_cluster::all_known() const {
  return std::all_of(servers_.begin(), servers_.end(),
                     [](const simulated_server* server) { return server == nullptr || server->is_known(); });
}

// It ends when the far tier holds nothing there any more, and with it goes another one, if the rest has all bytes. When
// it takes too long, it goes on after all.
void simulated_cluster::send_away(std::size_t server) {
  simulated_server& victim = *servers_[server];
  victim.set_draining(true);
  // They have all bytes twice then, and lack none from before.
  const bool others_suffice = chosen_.copies == 2 && is_first_trouble() && !is_late(server_count() - 1);
  for (std::uint64_t left = longest_drain_slices / drain_step_slices; left > 0 && groups_on(server) > 0; --left) {
    threads_.sleep(drain_step_slices * chosen_.slice_ns);
    if (is_ending()) break;
  }
  if (groups_on(server) > 0) return victim.set_draining(false);
  ++drained_;
  note_crash();
  victim.crash();
  victim.set_draining(false);
  if (!others_suffice || !random_.chance(500)) return;
  simulated_server& second = *servers_[(server + random_.between(1, 2)) % server_count()];
  note_crash();
  second.crash();
  second.restart();
  end_troubles();
}

// Of single copies nobody may lose anything but by the way out.
void simulated_cluster::make_harmless_trouble(std::size_t server) {
  simulated_server& victim = *servers_[server];
  const std::uint64_t drawn = random_.below(4);
  note_trouble(drawn, victim.describe());
  switch (drawn) {
    case 0: return victim.set_drops(random_.one_of<std::uint64_t>({20, 200, 700}));
    case 1: return victim.set_cut_off(random_.chance(700));
    default: return send_away(server);
  }
}

void simulated_cluster::make_trouble(std::size_t server) {
  if (chosen_.copies == 1) return make_harmless_trouble(server);
  simulated_server& victim = *servers_[server];
  // Where groups or pages move or are repaired, wrong bytes would be moved, too: only their writer could tell. And a
  // server that comes back after another trouble is asked for what was being rebuilt without it. So nobody lies but
  // where all copies are whole, and not beside another trouble.
  const bool may_lie = !chosen_.has_parity && !has_late() && is_first_trouble() && !is_pair_in_trouble();
  victim.set_lies(0);
  const std::uint64_t drawn = random_.below(may_lie ? 10 : 9);
  note_trouble(drawn, victim.describe());
  switch (drawn) {
    case 0: return victim.set_drops(random_.one_of<std::uint64_t>({20, 200, 700}));
    case 1: return victim.set_failures(random_.one_of<std::uint64_t>({20, 200, 700}));
    case 2:
    case 3: return victim.set_cut_off(random_.chance(700));
    case 4:
      note_crash();
      victim.crash();
      if (random_.chance(300)) victim.restart();
      return;
    case 5: return victim.restart();
    case 6:
    case 7: return send_away(server);
    case 8: return victim.break_block();
    default: return victim.set_lies(random_.one_of<std::uint64_t>({20, 200, 1000}));
  }
}

void simulated_cluster::check_lie(std::size_t server) const {
  if (may_be_copied_from(server)) fail("server %zu returns wrong bytes where others may copy them", server);
}

void simulated_cluster::heal(std::size_t server) {
  servers_[server]->set_drops(0);
  servers_[server]->set_failures(0);
  servers_[server]->set_lies(0);
  servers_[server]->mend_block();
  servers_[server]->set_cut_off(false);
  servers_[server]->restart();
}

void simulated_cluster::take_away(std::size_t server) {
  if (chosen_.copies == 1) {
    const std::uint64_t since = threads_.slices();
    servers_[server]->set_draining(true);
    while (groups_on(server) > 0) {
      if (threads_.is_stuck_since(since)) fail("a server that is to end is never empty");
      threads_.sleep(drain_step_slices * chosen_.slice_ns);
    }
  }
  servers_[server]->crash();
}

void simulated_cluster::stop() {
  cluster::stop();
  for (std::size_t i = 0; i < server_count(); ++i) {
    const std::uint64_t damaged = damaged_slots(i);
    const std::uint64_t wrong = servers_[i]->wrong_pages();
    if (damaged <= wrong) continue;
    fail("%llu copies of server %zu were taken for damaged, and it has returned no more than %llu wrongly",
         static_cast<unsigned long long>(damaged), i, static_cast<unsigned long long>(wrong));
  }
}

std::vector<cluster::count> simulated_cluster::counted() const {
  std::vector<count> all = cluster::counted();
  std::uint64_t late_writes = 0;
  std::uint64_t broken_blocks = 0;
  for (std::size_t i = 0; i < server_count(); ++i) {
    late_writes += servers_[i]->late_writes();
    broken_blocks += servers_[i]->broken_blocks();
  }
  all.push_back({"broken blocks", broken_blocks});
  all.push_back({"late writes", late_writes});
  all.push_back({"drained servers", drained_});
  if (!chosen_.has_parity) all.push_back({"damaged slots", damaged_slots()});
  return all;
}

}  // namespace far::simulation
