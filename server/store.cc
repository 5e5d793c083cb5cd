#include "server/store.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::server {
namespace {

// How many freed blocks are given back before the thread does other work.
constexpr std::size_t reclaim_batch = 16;

// How many sessions expire before the lock is given to others.
constexpr unsigned expiry_batch = 16;

// Saturates.
std::uint64_t later(std::uint64_t time_ns, std::uint64_t duration_ns) {
  return time_ns + std::min(duration_ns, ~std::uint64_t{0} - time_ns);
}

class frame_source final : public block_source {
 public:
  explicit frame_source(frames& from) : from_(from) {}
  std::byte* take(std::uint64_t /*number*/) override { return from_.take(); }
  void give_back(std::uint64_t /*number*/, std::byte* block) override { from_.give_back(block); }

 private:
  frames& from_;
};

error too_many_connections() {
  return {"the tenant has too many connections; close some, give programs fewer (connections=), or raise its --limit",
          EBUSY};
}

}  // namespace

result<std::unique_ptr<store>> store::create(store_settings settings) {
  if (settings.memory_bytes < block_bytes) {
    return error{"--memory " + format_size(settings.memory_bytes) + " is less than one block of " +
                     format_size(block_bytes) + "; write for example --memory 1G",
                 EINVAL};
  }
  if (settings.spill && settings.spill->places() <= spiller::spare_places) {
    return error{"--spill-size: less than " + format_size((spiller::spare_places + 1) * block_bytes) +
                     " is of no use; write more",
                 EINVAL};
  }
  std::unique_ptr<store> created(new store(std::move(settings)));
  if (!created->settings_.make_source) {
    const std::uint64_t most =
        std::max(created->settings_.most_memory_bytes, created->settings_.memory_bytes) / block_bytes;
    // The pool's pages are nobody else's from now on, so no more of them than may be lent.
    const std::uint64_t pool = std::min(frames::free_in_pool(), created->settings_.memory_bytes / block_bytes);
    result<std::unique_ptr<frames>> reserved = frames::reserve(most, pool);
    if (!reserved) return reserved.error();
    created->frames_ = std::move(reserved).value();
    created->settings_.make_source = [from = created->frames_.get()] { return std::make_unique<frame_source>(*from); };
  }
  if (created->settings_.spill) {
    created->spiller_ =
        std::make_unique<spiller>(*created, created->settings_.spill, created->settings_.memory_bytes / block_bytes);
  }
  return created;
}

store::store(store_settings settings)
    : settings_(std::move(settings)),
      memory_blocks_(lendable_blocks(settings_.memory_bytes)),
      quota_bytes_(settings_.quota_bytes),
      limits_(settings_.limits),
      most_blocks_(memory_blocks_) {}

store::~store() = default;

std::uint64_t store::lendable_blocks(std::uint64_t memory_bytes) const {
  const std::uint64_t on_disk = settings_.spill ? settings_.spill->places() - spiller::spare_places : 0;
  return memory_bytes / block_bytes + on_disk;
}

std::uint64_t store::quota_of(const std::string& name) const {
  const auto found = quota_bytes_.find(name);
  if (found == quota_bytes_.end()) return memory_blocks_;
  return std::min(found->second / block_bytes, memory_blocks_.load());
}

std::shared_ptr<tenant> store::tenant_named(const std::string& name) {
  std::shared_ptr<tenant>& known = tenants_[name];
  if (known) return known;
  known = std::make_shared<tenant>();
  known->name = name;
  known->quota_blocks = known->most_blocks = quota_of(name);
  known->limits = limits_of(name);
  known->rates.set(known->limits, now_ns_);
  return known;
}

tenant_limits store::limits_of(const std::string& name) const {
  const auto own = limits_.find(name);
  const auto found = own != limits_.end() ? own : limits_.find(every_tenant);
  return found == limits_.end() ? tenant_limits{} : found->second;
}

void store::set_limits(std::map<std::string, tenant_limits> limits) {
  const lock_guard guard(lock_);
  limits_ = std::move(limits);
  for (const auto& [name, account] : tenants_) {
    account->limits = limits_of(name);
    account->rates.set(account->limits, now_ns_);
  }
}

void store::set_quotas(std::map<std::string, std::uint64_t> quota_bytes) {
  const lock_guard guard(lock_);
  quota_bytes_ = std::move(quota_bytes);
  apply_quotas();
}

void store::set_memory(std::uint64_t memory_bytes) {
  FAR_CHECK(memory_bytes >= block_bytes, "a server lends a block at least");
  const lock_guard guard(lock_);
  memory_blocks_ = lendable_blocks(memory_bytes);
  if (spiller_) spiller_->set_memory(memory_bytes / block_bytes);
  most_blocks_ = std::max(memory_blocks_.load(), held_.whole_blocks());
  apply_quotas();
}

void store::apply_quotas() {
  for (const auto& [name, account] : tenants_) {
    account->quota_blocks = quota_of(name);
    account->most_blocks = std::max(account->quota_blocks.load(), account->held.whole_blocks());
  }
}

void store::forget_if_unused(const std::string& name) {
  const auto found = tenants_.find(name);
  if (found == tenants_.end()) return;
  const tenant& known = *found->second;
  if (known.sessions == 0 && known.held.blocks == 0 && known.held.table_pages == 0) tenants_.erase(found);
}

void store::uncharge(tenant& whose, std::uint64_t blocks) {
  FAR_CHECK(blocks <= whose.held.blocks && blocks <= held_.blocks, "more blocks come back than were lent");
  whose.held.blocks -= blocks;
  held_.blocks -= blocks;
  forget_if_unused(whose.name);
}

// Address space is reserved and the identity drawn before taking the lock, which the loops need, too. A refusal gives
// the address space back.
result<attachment> store::open(const std::string& tenant_name, std::uint32_t channel,
                               std::unique_ptr<block_source> source) {
  std::byte* const table = platform::try_map_local(session::table_bytes);
  if (table == nullptr) return error{"the server has no address space for one more session", ENOMEM};
  // A caller with memory of its own shares it with a process on this machine, whose end can be seen for certain.
  const bool has_lease = source == nullptr;
  if (!source) source = settings_.make_source();
  wire::session_id id{};
  settings_.random(id);
  const lock_guard guard(lock_);
  std::shared_ptr<tenant> whose = tenant_named(tenant_name);
  const bool is_limited = has_too_many_connections(*whose);
  const bool is_refused = draining() || is_limited || sessions_.contains(id);
  // No session ends for one that would be refused all the same.
  const bool too_many = !is_refused && whose->sessions >= maximum_sessions_of_tenant && !end_longest_away(whose->away);
  if (is_refused || too_many) {
    forget_if_unused(tenant_name);
    platform::unmap_local(table, session::table_bytes);
    if (draining()) return error{"draining: the server is about to stop and takes no new sessions", ESHUTDOWN};
    if (is_limited) return too_many_connections();
    return error{"the tenant has too many sessions; close some, or wait until their grace period is over", EBUSY};
  }
  ++whose->sessions;
  std::shared_ptr<session> opened(new session(*this, std::move(whose), id, std::move(source),
                                              reinterpret_cast<std::atomic<std::uintptr_t>*>(table)));
  opened->has_lease_ = has_lease;
  opened->spills_ = has_lease && spiller_ != nullptr;
  sessions_.emplace(id, opened);
  return attach(opened, channel);
}

result<attachment> store::join(const std::string& tenant_name, const wire::session_id& id, std::uint32_t channel) {
  const lock_guard guard(lock_);
  const auto found = sessions_.find(id);
  // The same answer for both, so that nobody learns of other tenants' sessions.
  if (found == sessions_.end() || found->second->tenant_name() != tenant_name) {
    return error{std::string(wire::refusal_unknown_session) + ": it has ended, or its lease is over", ENOENT};
  }
  return attach(found->second, channel);
}

bool store::knows(const std::string& tenant_name, const wire::session_id& id) {
  const lock_guard guard(lock_);
  const auto found = sessions_.find(id);
  return found != sessions_.end() && found->second->tenant_name() == tenant_name;
}

bool store::has_too_many_connections(const tenant& whose) {
  return whose.limits.connections != 0 && whose.connections >= whose.limits.connections;
}

result<attachment> store::attach(const std::shared_ptr<session>& to, std::uint32_t channel) {
  to->lock_.assert_held();  // it is ours
  attachment attached{to, channel, std::make_shared<std::atomic<bool>>(false), 0};
  const auto found = to->channels_.find(channel);
  if (found != to->channels_.end()) {
    found->second->store(true);
    attached.fence = readers_.draw();
    found->second = attached.fenced;
    return attached;
  }
  if (to->channels_.size() >= maximum_channels_of_session) {
    return error{"the session has too many connections", EBUSY};
  }
  // What a session once had, it gets again: others may not keep it from its bytes until its lease is over.
  if (to->channels_.size() >= to->most_channels_ && has_too_many_connections(*to->tenant_)) {
    return too_many_connections();
  }
  note_return(*to);
  ++to->tenant_->connections;
  to->channels_.emplace(channel, attached.fenced);
  to->most_channels_ = std::max(to->most_channels_, to->channels_.size());
  // A child outlives the process that has announced its end. A connection of that process may be on its way still.
  if (channel >= wire::first_child_channel) to->is_leaving_ = false;
  return attached;
}

wire::welcome store::welcome_to(const session& joined, std::uint32_t maximum_outstanding) const {
  const std::uint64_t grace_ms = settings_.grace_ns / 1'000'000;
  return {.proof = {},
          .session = joined.id(),
          .quota_slots = joined.quota_blocks() * wire::block_slots,
          .grace_ms = static_cast<std::uint32_t>(std::min<std::uint64_t>(grace_ms, 0xffff'ffffu)),
          .maximum_outstanding = joined.tenant_->rates.outstanding(maximum_outstanding),
          .lease_ms = std::max(settings_.lease_ns / 1'000'000, grace_ms)};
}

void store::leave(attachment& connection, std::uint64_t now_ns) {
  const std::shared_ptr<session> left = std::exchange(connection.to, nullptr);
  if (!left) return;
  const lock_guard guard(lock_);
  left->lock_.assert_held();  // it is ours
  const auto found = left->channels_.find(connection.channel);
  if (found == left->channels_.end() || found->second != connection.fenced) return;
  left->channels_.erase(found);
  --left->tenant_->connections;
  now_ns_ = std::max(now_ns_, now_ns);
  if (left->channels_.empty()) note_away(*left, now_ns);
}

void store::note_away(session& client, std::uint64_t now_ns) {
  client.lock_.assert_held();  // it is ours
  const std::uint64_t lease_ns = std::max(settings_.lease_ns, settings_.grace_ns);
  const std::uint64_t grace_ns = grace_of(client);
  client.away_since_ns_ = now_ns;
  client.ends_early_at_ns_ = later(now_ns, grace_ns);
  client.expires_at_ns_ = later(now_ns, client.has_lease_ && !client.is_leaving_ ? lease_ns : grace_ns);
  away_.emplace(client.ends_early_at_ns_, &client);
  client.tenant_->away.emplace(client.ends_early_at_ns_, &client);
  expiring_.emplace(client.expires_at_ns_, &client);
}

void store::note_return(session& client) {
  client.lock_.assert_held();  // it is ours
  away_.erase({client.ends_early_at_ns_, &client});
  client.tenant_->away.erase({client.ends_early_at_ns_, &client});
  expiring_.erase({client.expires_at_ns_, &client});
}

void store::note_leaving(session& client) {
  const lock_guard guard(lock_);
  client.lock_.assert_held();  // it is ours
  client.is_leaving_ = true;
}

std::uint64_t store::grace_of(const session& client) const {
  client.lock_.assert_held();  // it is ours
  return client.is_leaving_ ? std::min(leaving_ns, settings_.grace_ns) : settings_.grace_ns;
}

void store::end(session& client) {
  const lock_guard guard(lock_);
  end_locked(client);
}

// Readers may still be copying from its blocks. They are fenced here, and reclaim() looks for the blocks and gives them
// back, a few at a time, when all loops have passed a quiescent state: by then nobody is left who could use them.
void store::end_locked(session& client) {
  client.lock_.assert_held();  // it is ours
  if (client.ended_) return;
  client.ended_ = true;
  const std::shared_ptr<session> kept = client.shared_from_this();
  for (const auto& [channel, fenced] : client.channels_) fenced->store(true);
  client.tenant_->connections -= client.channels_.size();
  client.channels_.clear();
  note_return(client);
  // The thread that allocates blocks gives them back itself.
  const std::uint64_t under_way = client.under_way_ != nullptr ? client.under_way_->promised.blocks : 0;
  const std::uint64_t room = std::exchange(client.room_blocks_, 0);
  client.tenant_->devices -= std::exchange(client.devices_, 0);
  const std::uint64_t blocks = client.held_blocks_ - under_way - room;
  client.held_blocks_ = under_way;
  if (client.burden_) client.burden_->end();
  if (blocks > 0) ended_.push_back({kept, readers_.draw(), 0, blocks});
  ended_blocks_ += blocks;
  --client.tenant_->sessions;
  sessions_.erase(client.id_);
  uncharge(*client.tenant_, room);
}

void store::expire(std::uint64_t now_ns) {
  for (bool more = true; more;) {
    const lock_guard guard(lock_);
    now_ns_ = std::max(now_ns_, now_ns);
    unsigned count = 0;
    for (; count < expiry_batch && !expiring_.empty() && expiring_.begin()->first <= now_ns_; ++count) {
      ++sessions_expired_;
      end_locked(*expiring_.begin()->second);
    }
    more = count == expiry_batch;
    if (!more && held_.whole_blocks() > memory_blocks_ && !is_reclaiming()) end_longest_away(away_);
  }
}

std::uint64_t store::sessions_ended_early() const {
  const lock_guard guard(lock_);
  return sessions_ended_early_;
}

template <typename Fits>
bool store::would_fit(const sessions_in_time& away, Fits fits) const {
  lent_memory given_back;
  for (const auto& [ends_early_at_ns, client] : away) {
    client->lock_.assert_held();  // it is ours
    if (ends_early_at_ns > now_ns_ || fits(given_back)) break;
    given_back += {client->held_blocks_, client->table_pages_};
  }
  return fits(given_back);
}

bool store::end_longest_away(const sessions_in_time& away) {
  if (away.empty() || away.begin()->first > now_ns_) return false;
  ++sessions_ended_early_;
  end_locked(*away.begin()->second);
  return true;
}

// Blocks above a lowered quota must be freed first.
bool store::may_fit(const tenant& whose, const lent_memory& wanted) const {
  const lent_memory of_tenant = whose.held + wanted + lent_memory{0, whose.promised_pages};
  const lent_memory of_all = held_ + wanted + lent_memory{0, promised_pages_};
  const auto fits_quota = [&](const lent_memory& given_back) {
    return (of_tenant - given_back).whole_blocks() <= whose.quota_blocks;
  };
  const auto fits_memory = [&](const lent_memory& given_back) {
    return (of_all - given_back).whole_blocks() <= memory_blocks_;
  };
  return would_fit(whose.away, fits_quota) && would_fit(away_, fits_memory);
}

// An allocation lacks room. If ending sessions can make room, ends one and returns true; the caller tries again when
// the blocks are back. No session ends for an allocation that would fail all the same.
bool store::give_way(const tenant& whose, const lent_memory& wanted) {
  return may_fit(whose, wanted) && end_longest_away(whose.has_room_for(wanted) ? away_ : whose.away);
}

// The machine has no memory left, though the server could lend more.
bool store::give_way_to_machine() {
  const lock_guard guard(lock_);
  if (is_reclaiming()) return true;
  const bool helps = would_fit(away_, [](const lent_memory& given_back) { return given_back.blocks > 0; });
  return helps && end_longest_away(away_);
}

bool store::take_freed(std::vector<freed>* batch) {
  const lock_guard guard(lock_);
  while (batch->size() < reclaim_batch && !freed_.empty() && readers_.passed(freed_.front().unused_after)) {
    const freed& front = freed_.front();
    if ((front.owner->blocks_[front.number].load() & session::moving) != 0) break;
    batch->push_back(std::move(freed_.front()));
    freed_.pop_front();
  }
  take_ended(batch);
  being_reclaimed_ = batch->size();
  return !batch->empty();
}

// A session may have had blocks anywhere, so a call looks at only so many places.
void store::take_ended(std::vector<freed>* batch) {
  while (batch->size() < reclaim_batch && !ended_.empty() && readers_.passed(ended_.front().unused_after)) {
    ended& front = ended_.front();
    front.owner->lock_.assert_held();  // it is ours
    const session::search found = front.owner->look_for_held(front.next);
    if (found.is_found && (front.owner->blocks_[found.number].load() & session::moving) != 0) return;
    front.next = found.is_found ? found.number + 1 : found.number;
    if (found.is_found) {
      batch->push_back({front.owner, found.number, front.unused_after});
      --front.blocks;
      --ended_blocks_;
    } else if (found.number < front.owner->highest_) {
      return;
    }
    if (front.blocks == 0) {
      ended_.pop_front();
    } else {
      FAR_CHECK(front.next < front.owner->highest_, "blocks of a session that has ended are missing");
    }
  }
}

std::uint64_t store::reclaim() {
  if (reclaiming_.try_lock()) {
    const lock_guard reclaiming(reclaiming_, std::adopt_lock);
    std::vector<freed> batch;
    if (take_freed(&batch)) {
      for (const freed& block : batch) {
        block.owner->give_back(block.number, block.owner->blocks_[block.number].load());
      }
      const lock_guard guard(lock_);
      for (const freed& block : batch) {
        block.owner->lock_.assert_held();  // it is ours
        block.owner->discharge(block.owner->blocks_[block.number].load());
        block.owner->reset_entry(block.number);
        uncharge(*block.owner->tenant_, 1);
      }
      being_reclaimed_ = 0;
    }
  }
  const lock_guard guard(lock_);
  return unreclaimed();
}

void store::drain() {
  draining_.store(true);
}

// The lock of the store stops sessions, tenants and their counts from changing, so the sums agree with one another.
store_report store::report() const {
  const lock_guard guard(lock_);
  store_report report{.memory_blocks = memory_blocks_,
                      .held_blocks = held_.whole_blocks(),
                      .table_bytes = held_.table_pages * page_bytes,
                      .unreclaimed_blocks = unreclaimed(),
                      .sessions = sessions_.size(),
                      .connections = 0,
                      .away_sessions = 0,
                      .away_blocks = 0,
                      .needed_blocks = 0,
                      .sessions_expired = sessions_expired_,
                      .sessions_ended_early = sessions_ended_early_,
                      .draining = draining(),
                      .spill = spiller_ ? std::optional(spiller_->report()) : std::nullopt,
                      .tenants = {}};
  for (const auto& [id, client] : sessions_) {
    client->lock_.assert_held();  // it is ours
    report.connections += client->channels_.size();
    // A client that has announced its end needs nothing after its last connection.
    const bool may_return = !client->is_leaving_ && now_ns_ - client->away_since_ns_ < settings_.grace_ns;
    const bool is_in_use = !client->channels_.empty() || may_return;
    if (is_in_use && !client->source().outlives_server()) report.needed_blocks += client->held_blocks_;
    if (!client->channels_.empty()) continue;
    ++report.away_sessions;
    report.away_blocks += client->held_blocks_;
  }
  for (const auto& [name, account] : tenants_) {
    report.tenants.push_back({.name = name,
                              .quota_blocks = account->quota_blocks,
                              .held_blocks = account->held.whole_blocks(),
                              .table_bytes = account->held.table_pages * page_bytes,
                              .sessions = account->sessions,
                              .connections = account->connections,
                              .devices = account->devices,
                              .limits = account->limits,
                              .delays = account->rates.delays()});
  }
  // Tenants with a quota are worth a line even while they hold nothing.
  for (const auto& [name, bytes] : quota_bytes_) {
    if (tenants_.contains(name)) continue;
    report.tenants.push_back({.name = name, .quota_blocks = quota_of(name), .limits = limits_of(name)});
  }
  return report;
}

store::usage store::used() const {
  const lock_guard guard(lock_);
  return {.held_blocks = held_.whole_blocks(), .spilled_blocks = spiller_ ? spiller_->report().places_used : 0};
}

// Counts a session's blocks and pages again, and compares them with what it keeps.
lent_memory store::recount(const session& client) {
  client.lock_.assert_held();  // it is ours
  lent_memory counted;
  std::uint64_t entries = 0;
  for (std::uint64_t number = 0; number < client.highest_; ++number) {
    const std::uintptr_t entry = client.blocks_[number].load();
    if (entry != 0 && (entry & session::being_freed) == 0) ++counted.blocks;
    if (entry != 0) ++entries;
    if (number + 1 != client.highest_ && (number + 1) % session::entries_a_page != 0) continue;
    if (entries > 0) ++counted.table_pages;
    FAR_CHECK(std::exchange(entries, 0) == client.entries_of_page_[number / session::entries_a_page],
              "the entries of a page are miscounted");
  }
  FAR_CHECK(counted.table_pages == client.table_pages_, "a session's pages are miscounted");
  return counted;
}

store::places_count store::count_places(const session& client) {
  places_count counted;
  if (!client.spills_) return counted;
  client.lock_.assert_held();  // it is ours
  for (std::uint64_t number = 0; number < client.highest_; ++number) {
    const std::uintptr_t entry = client.blocks_[number].load();
    if (entry != 0 && (entry & session::on_disk) == 0) ++counted.resident_blocks;
    if ((entry & session::on_disk) != 0 && session::place_in(entry) != spill_area::nowhere) ++counted.places_used;
  }
  return counted;
}

// Counts everything again from the blocks themselves, and compares the sums with those that are kept.
void store::validate() const {
  const lock_guard guard(lock_);
  FAR_CHECK(being_reclaimed_ == 0, "validate() while blocks are reclaimed");
  std::map<const tenant*, lent_memory> held;
  std::map<const tenant*, std::size_t> opened;
  std::map<const tenant*, std::size_t> connected;
  std::map<const tenant*, std::size_t> devices;
  std::set<const session*> gone;
  places_count spilled;
  for (const auto& [id, client] : sessions_) {
    client->lock_.assert_held();  // it is ours
    lent_memory counted = recount(*client);
    counted.blocks += client->room_blocks_ + (client->under_way_ != nullptr ? client->under_way_->charged : 0);
    FAR_CHECK(counted.blocks == client->held_blocks_, "a session's blocks are miscounted");
    const bool is_away = away_.contains({client->ends_early_at_ns_, client.get()});
    FAR_CHECK(is_away == client->channels_.empty(), "a session is away when it has no connection");
    held[client->tenant_.get()] += counted;
    spilled += count_places(*client);
    ++opened[client->tenant_.get()];
    connected[client->tenant_.get()] += client->channels_.size();
    devices[client->tenant_.get()] += client->devices_;
  }
  for (const freed& block : freed_) {
    block.owner->lock_.assert_held();  // it is ours
    ++held[block.owner->tenant_.get()].blocks;
    if (block.owner->ended_) gone.insert(block.owner.get());
  }
  for (const ended& past : ended_) {
    held[past.owner->tenant_.get()].blocks += past.blocks;
    gone.insert(past.owner.get());
  }
  for (const session* client : gone) spilled += count_places(*client);
  if (spiller_) spiller_->validate(spilled.resident_blocks, spilled.places_used);
  for (const session* client : gone) held[client->tenant_.get()].table_pages += recount(*client).table_pages;
  lent_memory total;
  for (const auto& [name, account] : tenants_) {
    const lent_memory& counted = held[account.get()];
    FAR_CHECK(counted.blocks == account->held.blocks, "a tenant's blocks are miscounted");
    FAR_CHECK(counted.table_pages == account->held.table_pages, "a tenant's pages are miscounted");
    FAR_CHECK(opened[account.get()] == account->sessions, "a tenant's sessions are miscounted");
    FAR_CHECK(connected[account.get()] == account->connections, "a tenant's connections are miscounted");
    FAR_CHECK(devices[account.get()] == account->devices, "a tenant's devices are miscounted");
    FAR_CHECK(account->held.whole_blocks() <= account->most_blocks, "a tenant holds more than its quota");
    total += account->held;
  }
  FAR_CHECK(
      total.blocks == held_.blocks && total.table_pages == held_.table_pages && total.whole_blocks() <= most_blocks_,
      "the store's blocks are miscounted");
}

}  // namespace far::server
