// What a session has beside its blocks (server/store.h).
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/store.h"

namespace far::server {

session::room session::take_room(std::uint64_t blocks, bool may_end_others) {
  const lock_guard guard(lock_);
  store_.lock_.assert_held();  // the same one
  if (ended_ || store_.draining()) return room::none;
  const lent_memory wanted{blocks, 0};
  const std::uint64_t most_devices = tenant_->limits.devices;
  if (most_devices != 0 && tenant_->devices >= most_devices) {
    const bool helps = may_end_others && store_.may_fit(*tenant_, wanted);
    if (!helps || !store_.make_way_for_device(*tenant_)) return room::too_many;
  }
  if (!tenant_->has_room_for(wanted) || !store_.has_room_for(wanted)) {
    const bool comes_back = blocks <= tenant_->quota_blocks &&
                            (store_.is_reclaiming() || (may_end_others && store_.give_way(*tenant_, wanted)));
    return comes_back ? room::wait : room::none;
  }
  tenant_->held.blocks += blocks;
  store_.held_.blocks += blocks;
  held_blocks_ += blocks;
  room_blocks_ += blocks;
  ++tenant_->devices;
  ++devices_;
  return room::granted;
}

// Sessions past their grace period make way, the longest away first, as for memory: the devices of a program that has
// crashed keep nobody out until its lease is over. Those that have far memory, too, do not: their devices are processes
// for functions, which end by themselves when they are idle. A tenant has 1024 sessions at most.
bool store::make_way_for_device(const tenant& whose) {
  std::vector<session*> ending;
  std::uint64_t devices = whose.devices;
  for (const auto& [ends_early_at_ns, client] : whose.away) {
    if (ends_early_at_ns > now_ns_ || devices < whose.limits.devices) break;
    client->lock_.assert_held();  // it is ours
    if (client->devices_ == 0 || client->held_blocks_ > client->room_blocks_) continue;
    devices -= client->devices_;
    ending.push_back(client);
  }
  if (devices >= whose.limits.devices) return false;
  for (session* const client : ending) {
    ++sessions_ended_early_;
    end_locked(*client);
  }
  return true;
}

void session::give_back_room(std::uint64_t blocks, std::size_t devices) {
  const lock_guard guard(lock_);
  store_.lock_.assert_held();  // the same one
  if (ended_) return;          // its end has given back all
  FAR_CHECK(blocks <= room_blocks_ && devices <= devices_, "more room comes back than was taken");
  tenant_->devices -= devices;
  devices_ -= devices;
  held_blocks_ -= blocks;
  room_blocks_ -= blocks;
  store_.uncharge(*tenant_, blocks);
}

std::shared_ptr<session_burden> session::burden() const {
  const lock_guard guard(lock_);
  return burden_;
}

std::shared_ptr<session_burden> session::load(std::shared_ptr<session_burden> added) {
  const lock_guard guard(lock_);
  if (ended_) return nullptr;
  if (!burden_) burden_ = std::move(added);
  return burden_;
}

}  // namespace far::server
