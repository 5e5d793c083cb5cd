#include "cluster.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "trace.h"

namespace far::simulation {
cluster::cluster(scheduler& threads, random_source& random, const cluster_options& chosen)
    : threads_(threads), random_(random), chosen_(chosen) {}

cluster::~cluster() = default;

void cluster::make_tier(std::vector<std::unique_ptr<backend::backend>> members,
                        const backend::striped_options& options) {
  if (random_.chance(500)) {
    has_late_ = true;
    late_ = std::move(members.back());
    late_name_ = late_->describe();
    members.pop_back();
  }
  if (chosen_.has_parity) {
    auto tier = std::move(backend::striped_backend::create(std::move(members), options)).value();
    books_ = books_of(*tier);
    tier_ = std::move(tier);
  } else {
    auto tier = std::move(backend::replicated_backend::create(std::move(members), options)).value();
    books_ = books_of(*tier);
    tier_ = std::move(tier);
  }
}

void cluster::start() {
  threads_.spawn("servers", [this] { run_weather(); });
}

// The layer may not know yet that a server has forgotten everything; and when it is asked first, it may learn of it,
// and let go of what is gone, before the rest is looked at.
bool cluster::looks_whole() {
  const scheduler::engine_call call(threads_);
  if (!all_well()) return false;
  const auto stored = [this](std::size_t server, backend::slot_id slot) { return bytes(server, slot); };
  return books_->are_known(stored) && books_->is_whole();
}

// How often the layer has found a server not to answer, or to have forgotten.
std::uint64_t cluster::errors() const {
  std::uint64_t sum = 0;
  for (const backend::member* book : books_->members().view()) sum += book->now().errors;
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
    if (chosen_.has_parity && random_.chance(200)) books_->make_work();
    if (calm_ || stopping_ || chosen_.is_untroubled || !all_known() || !is_whole()) continue;
    std::array<std::size_t, 2> victims{random_.below(server_count())};
    is_pair_ = chosen_.copies > 2 && random_.chance(700);
    victims[1] = is_pair_ ? (victims[0] + random_.between(1, server_count() - 1)) % server_count() : victims[0];
    pairs_ += is_pair_;
    note_trouble_ahead();
    is_first_trouble_ = true;
    are_troubles_over_ = false;
    for (std::uint64_t left = random_.between(1, is_pair_ ? 8 : 4); left > 0 && !is_ending() && !are_troubles_over_;
         --left) {
      const std::size_t victim = is_pair_ ? victims[random_.below(2)] : victims[0];
      make_trouble(victim);
      is_first_trouble_ = false;
      const std::uint64_t most = random_.chance(300) ? trouble_lasts_.longest_slices : trouble_lasts_.usual_slices;
      threads_.sleep(random_.between(1, most) * chosen_.slice_ns);
      after_trouble(victim);
    }
    heal(victims[0]);
    if (is_pair_) heal(victims[1]);
  }
  weather_ended_ = true;
}

std::uint64_t cluster::groups_on(std::size_t server) const {
  const scheduler::uninterrupted body;
  const backend::layer& books = books_->members();
  return server < books.member_count() ? books.at(server).extents.load() : 0;
}

std::uint64_t cluster::damaged_slots(std::size_t server) const {
  const backend::layer& books = books_->members();
  return server < books.member_count() ? books.at(server).damaged_slots.load() : 0;
}

void cluster::add_late_member() {
  trace("%8llu %s is added", static_cast<unsigned long long>(threads_.slices()), late_name_.c_str());
  const scheduler::engine_call call(threads_);
  if (!books_->add_member(std::move(late_), late_name_)) fail("%s cannot be added", late_name_.c_str());
}

void cluster::note_trouble(std::uint64_t kind, const std::string& server) {
  ++troubles_;
  trace("%8llu trouble %llu with %s", static_cast<unsigned long long>(threads_.slices()),
        static_cast<unsigned long long>(kind), server.c_str());
}

void cluster::clear_weather() {
  calm_ = true;
  while (!weather_ended_) threads_.sleep(100 * chosen_.slice_ns);
  end_users();
  if (chosen_.is_untroubled) check_untroubled();
}

void cluster::wait_until_whole() {
  const std::uint64_t since = threads_.slices();
  while (!is_whole()) {
    if (threads_.is_stuck_since(since)) {
      books_->describe();
      describe_servers();
      fail("the copies are never whole again");
    }
    threads_.sleep(20 * chosen_.slice_ns);
  }
}

void cluster::check_copies() const {
  books_->check([this](std::size_t server, backend::slot_id slot) { return bytes(server, slot); },
                [this](backend::slot_id slot) { return user_->is_settled(slot); }, threads_.slices());
}

void cluster::describe_slot(backend::slot_id slot, const tier_books::right_bytes& fits) const {
  books_->describe_slot(
      slot, [this](std::size_t server, backend::slot_id stored) { return bytes(server, stored); }, fits);
}

std::vector<cluster::count> cluster::counted() const {
  std::vector<count> all{{"troubles", troubles_}, {"crashes", crashes_}};
  if (!chosen_.has_parity) all.push_back({"pairs in trouble", pairs_});
  for (const count& one : books_->counted()) all.push_back(one);
  return all;
}

}  // namespace far::simulation
