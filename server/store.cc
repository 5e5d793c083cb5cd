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

class frame_source final : public block_source {
 public:
  explicit frame_source(frames& from) : from_(from) {}
  std::byte* take(std::uint64_t /*number*/) override { return from_.take(); }
  void give_back(std::uint64_t /*number*/, std::byte* block) override { from_.give_back(block); }

 private:
  frames& from_;
};

}  // namespace

result<std::unique_ptr<store>> store::create(store_settings settings) {
  if (settings.memory_bytes < block_bytes) {
    return error{"--memory " + format_size(settings.memory_bytes) + " is less than one block of " +
                     format_size(block_bytes) + "; write for example --memory 1G",
                 EINVAL};
  }
  std::unique_ptr<store> created(new store(std::move(settings)));
  if (!created->settings_.make_source) {
    const std::uint64_t most =
        std::max(created->settings_.most_memory_bytes / block_bytes, created->memory_blocks_.load());
    result<std::unique_ptr<frames>> reserved = frames::reserve(most, frames::free_in_pool());
    if (!reserved) return reserved.error();
    created->frames_ = std::move(reserved).value();
    created->settings_.make_source = [from = created->frames_.get()] { return std::make_unique<frame_source>(*from); };
  }
  return created;
}

store::store(store_settings settings)
    : settings_(std::move(settings)),
      memory_blocks_(settings_.memory_bytes / block_bytes),
      quota_bytes_(settings_.quota_bytes),
      most_blocks_(memory_blocks_) {}

store::~store() = default;

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
  return known;
}

void store::set_quotas(std::map<std::string, std::uint64_t> quota_bytes) {
  const lock_guard guard(lock_);
  quota_bytes_ = std::move(quota_bytes);
  apply_quotas();
}

void store::set_memory(std::uint64_t memory_bytes) {
  FAR_CHECK(memory_bytes >= block_bytes, "a server lends a block at least");
  const lock_guard guard(lock_);
  memory_blocks_ = memory_bytes / block_bytes;
  most_blocks_ = std::max(memory_blocks_.load(), held_blocks_);
  apply_quotas();
}

void store::apply_quotas() {
  for (const auto& [name, account] : tenants_) {
    account->quota_blocks = quota_of(name);
    account->most_blocks = std::max(account->quota_blocks.load(), account->held_blocks);
  }
}

void store::forget_if_unused(const std::string& name) {
  const auto found = tenants_.find(name);
  if (found == tenants_.end()) return;
  if (found->second->sessions == 0 && found->second->held_blocks == 0) tenants_.erase(found);
}

void store::uncharge(tenant& whose, std::uint64_t blocks) {
  FAR_CHECK(blocks <= whose.held_blocks && blocks <= held_blocks_, "more blocks come back than were lent");
  whose.held_blocks -= blocks;
  held_blocks_ -= blocks;
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
  const bool too_many = whose->sessions >= maximum_sessions_of_tenant && !end_longest_away(whose.get());
  if (draining() || too_many || sessions_.contains(id)) {
    forget_if_unused(tenant_name);
    platform::unmap_local(table, session::table_bytes);
    if (draining()) return error{"draining: the server is about to stop and takes no new sessions", ESHUTDOWN};
    return error{"the tenant has too many sessions; close some, or wait until their grace period is over", EBUSY};
  }
  ++whose->sessions;
  std::shared_ptr<session> opened(new session(*this, std::move(whose), id, std::move(source),
                                              reinterpret_cast<std::atomic<std::uintptr_t>*>(table)));
  opened->has_lease_ = has_lease;
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
  to->channels_.emplace(channel, attached.fenced);
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
          .maximum_outstanding = maximum_outstanding,
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
  now_ns_ = std::max(now_ns_, now_ns);
  if (left->channels_.empty()) left->away_since_ns_ = now_ns;
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

// Readers may still be copying from these blocks. They are fenced and queued here, and given back when all loops have
// passed a quiescent state.
void store::end_locked(session& client) {
  client.lock_.assert_held();  // it is ours
  if (client.ended_) return;
  client.ended_ = true;
  const std::shared_ptr<session> kept = client.shared_from_this();
  for (const auto& [channel, fenced] : client.channels_) fenced->store(true);
  client.channels_.clear();
  std::vector<std::uint64_t> numbers;
  numbers.reserve(client.held_blocks_);
  for (std::uint64_t number = 0; number < client.highest_ && numbers.size() < client.held_blocks_; ++number) {
    const std::uintptr_t entry = client.blocks_[number].load();
    // The thread that allocates blocks gives them back itself.
    if (entry == 0 || (entry & session::flags) != 0) continue;
    client.blocks_[number].store(entry | session::being_freed);
    numbers.push_back(number);
  }
  const quiescent_states::ticket unused_after = readers_.draw();
  for (const std::uint64_t number : numbers) freed_.push_back({kept, number, unused_after});
  client.held_blocks_ -= numbers.size();
  --client.tenant_->sessions;
  sessions_.erase(client.id_);
  forget_if_unused(client.tenant_->name);
}

void store::expire(std::uint64_t now_ns) {
  const std::uint64_t lease_ns = std::max(settings_.lease_ns, settings_.grace_ns);
  const lock_guard guard(lock_);
  now_ns_ = std::max(now_ns_, now_ns);
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    session& expired = *(at++)->second;  // ending it removes it from the map
    expired.lock_.assert_held();         // it is ours
    const std::uint64_t lives_ns = expired.has_lease_ && !expired.is_leaving_ ? lease_ns : grace_of(expired);
    if (!expired.channels_.empty() || now_ns_ - expired.away_since_ns_ < lives_ns) continue;
    ++sessions_expired_;
    end_locked(expired);
  }
  if (held_blocks_ > memory_blocks_ && freed_.empty()) end_longest_away(nullptr);
}

bool store::may_end_early(const session& client, const tenant* only) const {
  client.lock_.assert_held();  // it is ours
  return client.channels_.empty() && now_ns_ - client.away_since_ns_ >= grace_of(client) &&
         (only == nullptr || client.tenant_.get() == only);
}

std::uint64_t store::reclaimable(const tenant* only) const {
  std::uint64_t blocks = 0;
  for (const auto& [id, client] : sessions_) {
    client->lock_.assert_held();  // it is ours
    if (may_end_early(*client, only)) blocks += client->held_blocks_;
  }
  return blocks;
}

bool store::end_longest_away(const tenant* only) {
  session* longest = nullptr;
  std::uint64_t since_ns = 0;
  for (const auto& [id, client] : sessions_) {
    client->lock_.assert_held();  // it is ours
    if (!may_end_early(*client, only)) continue;
    if (longest != nullptr && client->away_since_ns_ >= since_ns) continue;
    longest = client.get();
    since_ns = client->away_since_ns_;
  }
  if (longest == nullptr) return false;
  ++sessions_ended_early_;
  end_locked(*longest);
  return true;
}

// An allocation lacks room. If ending sessions can make room, ends one and returns true; the caller tries again when
// the blocks are back. No session ends for an allocation that would fail all the same.
bool store::give_way(const tenant& whose, std::uint64_t missing) {
  const bool is_quota = missing > whose.room();
  // Blocks above a lowered quota must be freed first.
  const std::uint64_t held_after = whose.held_blocks - std::min(whose.held_blocks, reclaimable(&whose));
  if (is_quota && missing + held_after > whose.quota_blocks) return false;
  if (missing > free_blocks() + reclaimable(nullptr)) return false;
  return end_longest_away(is_quota ? &whose : nullptr);
}

// The machine has no memory left, though the server could lend more.
bool store::give_way_to_machine() {
  const lock_guard guard(lock_);
  if (freed_.size() + being_reclaimed_ > 0) return true;
  return reclaimable(nullptr) > 0 && end_longest_away(nullptr);
}

bool store::take_freed(std::vector<freed>* batch) {
  const lock_guard guard(lock_);
  while (batch->size() < reclaim_batch && !freed_.empty() && readers_.passed(freed_.front().unused_after)) {
    batch->push_back(std::move(freed_.front()));
    freed_.pop_front();
  }
  being_reclaimed_ = batch->size();
  return !batch->empty();
}

std::uint64_t store::reclaim() {
  if (reclaiming_.try_lock()) {
    const lock_guard reclaiming(reclaiming_, std::adopt_lock);
    std::vector<freed> batch;
    if (take_freed(&batch)) {
      for (const freed& block : batch) {
        std::atomic<std::uintptr_t>& entry = block.owner->blocks_[block.number];
        block.owner->source_->give_back(block.number, session::address_in(entry.load()));
      }
      const lock_guard guard(lock_);
      for (const freed& block : batch) {
        block.owner->lock_.assert_held();  // it is ours
        block.owner->reset_entry(block.number);
        uncharge(*block.owner->tenant_, 1);
      }
      being_reclaimed_ = 0;
    }
  }
  const lock_guard guard(lock_);
  return freed_.size() + being_reclaimed_;
}

void store::drain() {
  draining_.store(true);
}

// The lock of the store stops sessions, tenants and their counts from changing, so the sums agree with one another.
store_report store::report() const {
  const lock_guard guard(lock_);
  store_report report{.memory_blocks = memory_blocks_,
                      .held_blocks = held_blocks_,
                      .unreclaimed_blocks = freed_.size() + being_reclaimed_,
                      .sessions = sessions_.size(),
                      .connections = 0,
                      .away_sessions = 0,
                      .away_blocks = 0,
                      .needed_blocks = 0,
                      .sessions_expired = sessions_expired_,
                      .sessions_ended_early = sessions_ended_early_,
                      .draining = draining(),
                      .tenants = {}};
  for (const auto& [id, client] : sessions_) {
    client->lock_.assert_held();  // it is ours
    report.connections += client->channels_.size();
    // A client that has announced its end needs nothing after its last connection.
    const bool may_return = !client->is_leaving_ && now_ns_ - client->away_since_ns_ < settings_.grace_ns;
    if (!client->channels_.empty() || may_return) report.needed_blocks += client->held_blocks_;
    if (!client->channels_.empty()) continue;
    ++report.away_sessions;
    report.away_blocks += client->held_blocks_;
  }
  for (const auto& [name, account] : tenants_) {
    report.tenants.push_back({name, account->quota_blocks, account->held_blocks, account->sessions});
  }
  // Tenants with a quota are worth a line even while they hold nothing.
  for (const auto& [name, bytes] : quota_bytes_) {
    if (!tenants_.contains(name)) report.tenants.push_back({name, quota_of(name), 0, 0});
  }
  return report;
}

// Counts everything again from the blocks themselves, and compares the sums with those that are kept.
void store::validate() const {
  const lock_guard guard(lock_);
  std::map<const tenant*, std::uint64_t> held;
  std::map<const tenant*, std::size_t> opened;
  for (const auto& [id, client] : sessions_) {
    client->lock_.assert_held();  // it is ours
    std::uint64_t entries = 0;
    std::uint64_t counted = client->under_way_ != nullptr ? client->under_way_->charged : 0;
    for (std::uint64_t number = 0; number < client->highest_; ++number) {
      const std::uintptr_t entry = client->blocks_[number].load();
      if (entry != 0 && (entry & session::being_freed) == 0) ++counted;
      if (entry != 0) ++entries;
      if (number + 1 != client->highest_ && (number + 1) % session::entries_a_page != 0) continue;
      FAR_CHECK(std::exchange(entries, 0) == client->entries_of_page_[number / session::entries_a_page],
                "the entries of a page are miscounted");
    }
    FAR_CHECK(counted == client->held_blocks_, "a session's blocks are miscounted");
    held[client->tenant_.get()] += counted;
    ++opened[client->tenant_.get()];
  }
  FAR_CHECK(being_reclaimed_ == 0, "validate() while blocks are reclaimed");
  for (const freed& block : freed_) ++held[block.owner->tenant_.get()];
  std::uint64_t total = 0;
  for (const auto& [name, account] : tenants_) {
    FAR_CHECK(held[account.get()] == account->held_blocks, "a tenant's blocks are miscounted");
    FAR_CHECK(opened[account.get()] == account->sessions, "a tenant's sessions are miscounted");
    FAR_CHECK(account->held_blocks <= account->most_blocks, "a tenant holds more than its quota");
    total += account->held_blocks;
  }
  FAR_CHECK(total == held_blocks_ && total <= most_blocks_, "the store's blocks are miscounted");
}

}  // namespace far::server
