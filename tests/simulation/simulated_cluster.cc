#include "simulated_cluster.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "model.h"
#include "trace.h"

namespace far::simulation {
namespace {

// How often something is asked for in vain before the run is called stuck.
constexpr std::uint64_t longest_wait_slices = 500'000;

// Whole pages are written, of which every part tells from its first bytes which write it is of (model.h). This is done
// often, so one part is looked at, each time another one.
bool look_alike(const std::byte* a, const std::byte* b, std::uint64_t part) {
  const std::size_t at = part % model::parts_a_page * model::part_bytes;
  return std::memcmp(a + at, b + at, sizeof(std::uint64_t)) == 0;
}

}  // namespace

simulated_cluster::simulated_cluster(scheduler& threads, random_source& random, const simulated_clock& time,
                                     const cluster_options& chosen)
    : threads_(threads), random_(random), time_(time), chosen_(chosen) {
  const std::uint64_t deadline_ns =
      2 * chosen.maximum_delay_ns + random.one_of<std::uint64_t>({10, 100}) * chosen.slice_ns;
  std::vector<std::unique_ptr<backend::backend>> members;
  for (std::size_t i = 0; i < server_count; ++i) {
    auto server = std::make_unique<simulated_server>(
        threads, random, time,
        server_options{.name = "server " + std::to_string(i),
                       .slots = round_up(chosen.slots, backend::group_slots) + 2 * backend::group_slots,
                       .maximum_delay_ns = chosen.maximum_delay_ns,
                       .deadline_ns = deadline_ns,
                       .grant_after_ns = random.one_of<std::uint64_t>({0, 20, 200}) * chosen.slice_ns});
    servers_[i] = server.get();
    members.push_back(std::move(server));
  }
  backend::replicated_options options;
  options.copies = copies;
  options.capacity_slots = chosen.slots;
  options.clock = &time;
  options.probe_interval_ns = deadline_ns / 2;
  options.lost_after_ns = deadline_ns * random.one_of<std::uint64_t>({2, 5, 50});
  tier_ = std::move(backend::replicated_backend::create(std::move(members), options)).value();
  layer_ = tier_.get();
}

void simulated_cluster::run_tender() {
  while (!stopping_) {
    std::uint64_t next_ns = 0;
    {
      const scheduler::engine_call call(threads_);
      next_ns = layer_->tend();
    }
    threads_.sleep(1 + random_.below(std::min<std::uint64_t>(next_ns, 50 * chosen_.slice_ns)));
  }
}

// The layer may not know yet that a server has forgotten everything.
bool simulated_cluster::is_whole() {
  const scheduler::engine_call call(threads_);
  if (!layer_->is_whole()) return false;
  if (!std::all_of(servers_.begin(), servers_.end(), [](const simulated_server* each) { return each->is_well(); })) {
    return false;
  }
  const backend::layer& books = layer_->books();
  for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
    for (const backend::copy& held : books.group_at(number).copies) {
      if (held.present && servers_[held.member]->bytes(held.first) == nullptr) return false;
    }
  }
  return true;
}

void simulated_cluster::run_weather() {
  while (!calm_ && !stopping_) {
    threads_.sleep(random_.between(1, 300) * chosen_.slice_ns);
    if (calm_ || stopping_ || !is_whole()) continue;
    simulated_server& victim = *servers_[random_.below(server_count)];
    for (std::uint64_t left = random_.between(1, 4); left > 0 && !calm_ && !stopping_; --left) {
      make_trouble(victim);
      threads_.sleep(random_.between(1, random_.chance(300) ? 3000 : 300) * chosen_.slice_ns);
      victim.store_some_late();
    }
    victim.set_drops(0);
    victim.set_failures(0);
    victim.set_cut_off(false);
    victim.restart();
  }
  weather_ended_ = true;
}

void simulated_cluster::make_trouble(simulated_server& victim) {
  ++troubles_;
  const std::uint64_t drawn = random_.below(6);
  trace("%8llu trouble %llu with %s", static_cast<unsigned long long>(threads_.slices()),
        static_cast<unsigned long long>(drawn), victim.describe().c_str());
  switch (drawn) {
    case 0: return victim.set_drops(random_.one_of<std::uint64_t>({20, 200, 700}));
    case 1: return victim.set_failures(random_.one_of<std::uint64_t>({20, 200, 700}));
    case 2:
    case 3: return victim.set_cut_off(random_.chance(700));
    case 4:
      ++crashes_;
      victim.crash();
      if (random_.chance(300)) victim.restart();
      return;
    default: return victim.restart();
  }
}

void simulated_cluster::clear_weather() {
  calm_ = true;
  while (!weather_ended_) threads_.sleep(100 * chosen_.slice_ns);
}

void simulated_cluster::wait_until_whole() {
  const std::uint64_t since = threads_.slices();
  while (!is_whole()) {
    if (threads_.slices() - since > longest_wait_slices) {
      describe_copies();
      fail("the copies are never whole again");
    }
    threads_.sleep(20 * chosen_.slice_ns);
  }
}

void simulated_cluster::describe_copies() const {
  std::fprintf(stderr, "%s\n", layer_->describe().c_str());
  const backend::layer& books = layer_->books();
  for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
    const backend::group& seen = books.group_at(number);
    std::fprintf(stderr, "group %llu: placed %d, available %d, owned %zu", static_cast<unsigned long long>(number),
                 seen.placed, seen.available, seen.owned.size());
    for (std::size_t place = 0; place < seen.copies.size(); ++place) {
      const backend::copy& held = seen.copies[place];
      if (!held.present) continue;
      std::fprintf(stderr, "; on %d: stale %zu%s", held.member, seen.stale(place).size(),
                   held.leaving ? ", leaving" : "");
    }
    std::fprintf(stderr, "\n");
  }
}

void simulated_cluster::lose_one() {
  servers_[random_.below(server_count)]->crash();
}

void simulated_cluster::check_copies(const simulated_backend& user) const {
  layer_->validate();
  const backend::layer& books = layer_->books();
  for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
    const backend::group& seen = books.group_at(number);
    for (std::size_t slot = seen.owned.next(0); slot < backend::group_slots; slot = seen.owned.next(slot + 1)) {
      const auto shown = static_cast<unsigned long long>(number * backend::group_slots + slot);
      if (!user.is_settled(shown)) continue;
      const std::byte* first = nullptr;
      for (const backend::copy& held : seen.copies) {
        if (!held.present || held.missing.contains(slot)) continue;
        const std::byte* const bytes = servers_[held.member]->bytes(held.first + slot);
        if (bytes == nullptr) continue;
        if (first == nullptr) first = bytes;
        if (!look_alike(first, bytes, threads_.slices() + slot))
          fail("the copies of slot %llu differ, and both are current", shown);
      }
      if (first == nullptr) fail("nobody has the bytes of slot %llu", shown);
    }
  }
}

simulated_cluster::counts simulated_cluster::counted() const {
  counts sum{troubles_, crashes_, 0, layer_->repaired()};
  for (const simulated_server* each : servers_) sum.late_writes += each->late_writes();
  return sum;
}

}  // namespace far::simulation
