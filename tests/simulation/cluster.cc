#include "cluster.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "model.h"
#include "trace.h"

namespace far::simulation {
namespace {

// How often something is asked for in vain before the run is called stuck.
constexpr std::uint64_t longest_wait_slices = 9'000'000;

// Whole pages are written, of which every part tells from its first bytes which write it is of (model.h). This is done
// often, so one part is looked at, each time another one.
bool look_alike(const std::byte* a, const std::byte* b, std::uint64_t part) {
  const std::size_t at = part % model::parts_a_page * model::part_bytes;
  return std::memcmp(a + at, b + at, sizeof(std::uint64_t)) == 0;
}

}  // namespace

cluster::cluster(scheduler& threads, random_source& random, const cluster_options& chosen)
    : threads_(threads), random_(random), chosen_(chosen) {}

cluster::~cluster() = default;

void cluster::make_tier(std::vector<std::unique_ptr<backend::backend>> members,
                        const backend::replicated_options& options) {
  if (random_.chance(500)) {
    has_late_ = true;
    late_ = std::move(members.back());
    late_name_ = late_->describe();
    members.pop_back();
  }
  tier_ = std::move(backend::replicated_backend::create(std::move(members), options)).value();
  layer_ = tier_.get();
}

void cluster::start() {
  threads_.spawn("servers", [this] { run_weather(); });
}

// The layer may not know yet that a server has forgotten everything; and when it is asked first, it may learn of it,
// and let go of what is gone, before the rest is looked at.
bool cluster::looks_whole() {
  const scheduler::engine_call call(threads_);
  if (!all_well()) return false;
  const backend::layer& books = layer_->books();
  for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
    for (const backend::copy& held : books.group_at(number).copies) {
      if (held.present && bytes(held.member, held.first) == nullptr) return false;
    }
  }
  return layer_->is_whole();
}

// How often the layer has found a server not to answer, or to have forgotten.
std::uint64_t cluster::errors() const {
  std::uint64_t sum = 0;
  for (const backend::member* book : layer_->books().view()) sum += book->now().errors;
  return sum;
}

// That a transfer has failed on a server is not known to the layer until the transfer's thread goes on, which may be
// long after the server has become well. Data that was written is missing on that server then, and data that is written
// next goes past it. Were the next server to fail before that is repaired, two would have failed at once. The same goes
// for a group that gets one copy only, because one server served when its allocation began. So whatever began before
// all was well must have ended, and the layer must have found nothing wrong since.
bool cluster::is_whole() {
  const std::uint64_t errors_before = errors();
  const bool has_ended = well_since_ && user_->have_ended(well_since_->calls_begun);
  if (!looks_whole() || errors() != errors_before) {
    well_since_.reset();
    return false;
  }
  if (well_since_ && well_since_->errors == errors_before) return has_ended;
  well_since_ = {.calls_begun = user_->calls_begun(), .errors = errors_before};
  return false;
}

void cluster::run_weather() {
  while (!calm_ && !stopping_) {
    threads_.sleep(random_.between(1, 300) * chosen_.slice_ns);
    if (late_ != nullptr && random_.chance(200)) add_late_member();
    if (calm_ || stopping_ || chosen_.is_untroubled || !all_known() || !is_whole()) continue;
    const std::size_t victim = random_.below(server_count);
    note_trouble_ahead();
    is_first_trouble_ = true;
    are_troubles_over_ = false;
    for (std::uint64_t left = random_.between(1, 4); left > 0 && !is_ending() && !are_troubles_over_; --left) {
      make_trouble(victim);
      is_first_trouble_ = false;
      const std::uint64_t most = random_.chance(300) ? trouble_lasts_.longest_slices : trouble_lasts_.usual_slices;
      threads_.sleep(random_.between(1, most) * chosen_.slice_ns);
      after_trouble(victim);
    }
    heal(victim);
  }
  weather_ended_ = true;
}

std::uint64_t cluster::groups_on(std::size_t server) const {
  const scheduler::uninterrupted body;
  const backend::layer& books = layer_->books();
  return server < books.member_count() ? books.at(server).extents.load() : 0;
}

void cluster::add_late_member() {
  trace("%8llu %s is added", static_cast<unsigned long long>(threads_.slices()), late_name_.c_str());
  const scheduler::engine_call call(threads_);
  if (!layer_->add_member(std::move(late_), late_name_)) fail("%s cannot be added", late_name_.c_str());
}

void cluster::note_trouble(std::uint64_t kind, const std::string& server) {
  ++troubles_;
  trace("%8llu trouble %llu with %s", static_cast<unsigned long long>(threads_.slices()),
        static_cast<unsigned long long>(kind), server.c_str());
}

void cluster::clear_weather() {
  calm_ = true;
  while (!weather_ended_) threads_.sleep(100 * chosen_.slice_ns);
  if (chosen_.is_untroubled) check_untroubled();
}

void cluster::wait_until_whole() {
  const std::uint64_t since = threads_.slices();
  while (!is_whole()) {
    if (threads_.slices() - since > longest_wait_slices) {
      describe_copies();
      describe_servers();
      fail("the copies are never whole again");
    }
    threads_.sleep(20 * chosen_.slice_ns);
  }
}

void cluster::describe_copies() const {
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

void cluster::check_copies() const {
  layer_->validate();
  const backend::layer& books = layer_->books();
  for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
    const backend::group& seen = books.group_at(number);
    for (std::size_t slot = seen.owned.next(0); slot < backend::group_slots; slot = seen.owned.next(slot + 1)) {
      const auto shown = static_cast<unsigned long long>(number * backend::group_slots + slot);
      if (!user_->is_settled(shown)) continue;
      const std::byte* first = nullptr;
      for (const backend::copy& held : seen.copies) {
        if (!held.present || held.missing.contains(slot)) continue;
        const std::byte* const stored = bytes(held.member, held.first + slot);
        if (stored == nullptr) continue;
        if (first == nullptr) first = stored;
        if (!look_alike(first, stored, threads_.slices() + slot))
          fail("the copies of slot %llu differ, and both are current", shown);
      }
      if (first == nullptr) fail("nobody has the bytes of slot %llu", shown);
    }
  }
}

std::vector<cluster::count> cluster::counted() const {
  const backend::repair_counts repaired = layer_->repaired();
  return {{"troubles", troubles_},
          {"crashes", crashes_},
          {"repaired slots", repaired.repaired_slots},
          {"raced slots", repaired.raced_slots, true},
          {"placed copies", repaired.placed_copies},
          {"moved groups", repaired.moved_groups},
          {"removed copies", repaired.removed_copies}};
}

}  // namespace far::simulation
