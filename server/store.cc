#include "server/store.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::server {
namespace {

// How many freed blocks are given back before the thread does other work.
constexpr std::size_t reclaim_batch = 16;

constexpr std::size_t table_bytes = maximum_session_blocks * sizeof(std::atomic<std::uintptr_t>);

class frame_source final : public block_source {
 public:
  explicit frame_source(frames& from) : from_(from) {}
  std::byte* take(std::uint64_t /*number*/) override { return from_.take(); }
  void give_back(std::uint64_t /*number*/, std::byte* block) override { from_.give_back(block); }

 private:
  frames& from_;
};

std::byte* address_in(std::uintptr_t entry) {
  return reinterpret_cast<std::byte*>(entry & ~std::uintptr_t{3});
}

}  // namespace

session::session(store& owner, std::shared_ptr<tenant> whose, wire::session_id id, std::unique_ptr<block_source> source,
                 std::atomic<std::uintptr_t>* blocks)
    : store_(owner),
      tenant_(std::move(whose)),
      id_(id),
      source_(std::move(source)),
      blocks_(blocks),
      lock_(owner.lock_) {}

// A session that has ended holds nothing any more; others end with the store.
session::~session() {
  for (std::uint64_t number = 0; number < highest_ && !ended_; ++number) {
    const std::uintptr_t entry = blocks_[number].load();
    if (entry != 0) source_->give_back(number, address_in(entry));
  }
  platform::unmap_local(reinterpret_cast<std::byte*>(blocks_), table_bytes);
}

// Charges the whole allocation at once, under the lock, so that two sessions cannot both be promised the last blocks.
// Filling the blocks comes later, without the lock.
std::optional<session::step> session::begin(allocation& work) {
  const lock_guard guard(lock_);
  store_.lock_.assert_held();  // the same one
  if (ended_) return step{progress::done, wire::status::not_allocated};
  if (store_.draining()) return step{progress::done, wire::status::draining};
  if (under_way_ != nullptr) return step{progress::wait, wire::status::ok};
  std::uint64_t missing = 0;
  // Counting stops above the quota.
  for (std::uint64_t i = 0; i < work.blocks.count && missing <= tenant_->quota_blocks; ++i) {
    const std::uint64_t number = work.blocks.first + i;
    if (number >= highest_) {
      missing += work.blocks.count - i;
      break;
    }
    const std::uintptr_t entry = blocks_[number].load();
    if (entry == 0 || (entry & flags) != 0) ++missing;
  }
  const std::uint64_t room = std::min(tenant_->room(), store_.memory_blocks_ - store_.held_blocks_);
  if (missing > room) {
    const bool comes_back = missing <= tenant_->quota_blocks &&
                            (store_.freed_.size() + store_.being_reclaimed_ > 0 || store_.give_way(*tenant_, missing));
    return step{comes_back ? progress::wait : progress::done, wire::status::no_space};
  }
  tenant_->held_blocks += missing;
  store_.held_blocks_ += missing;
  held_blocks_ += missing;
  work.charged = missing;
  work.next = 0;
  work.begun = true;
  under_way_ = &work;
  highest_ = std::max(highest_, work.blocks.first + work.blocks.count);
  return std::nullopt;
}

// Filling a block with zeros takes about half a millisecond, so an allocation is cut into steps, between which other
// connections are served. A block becomes visible to the client only in finish().
session::step session::allocate_some(allocation& work, std::uint64_t most_blocks) {
  FAR_CHECK(can_name(work.blocks), "an allocation of blocks without a number");
  if (!work.begun) {
    std::optional<step> ended = begin(work);
    if (ended && ended->at == progress::wait) static_cast<void>(store_.reclaim());
    if (ended) return *ended;
  }
  for (std::uint64_t dealt_with = 0; work.next < work.blocks.count; ++dealt_with) {
    // Blocks that are there already cost only a look, so they count little.
    if (work.charged == 0) break;
    if (dealt_with >= most_blocks) return {progress::more, wire::status::ok};
    const std::uint64_t number = work.blocks.first + work.next;
    const std::uintptr_t entry = blocks_[number].load();
    if ((entry & being_freed) != 0) {
      static_cast<void>(store_.reclaim());
      return {progress::wait, wire::status::ok};
    }
    if (entry == 0) {
      std::byte* const block = source_->take(number);
      if (block == nullptr && store_.give_way_to_machine()) return {progress::wait, wire::status::ok};
      if (block == nullptr) return finish(work, wire::status::no_space);
      FAR_CHECK((reinterpret_cast<std::uintptr_t>(block) & flags) == 0, "a block that is not aligned");
      blocks_[number].store(reinterpret_cast<std::uintptr_t>(block) | being_allocated);
      --work.charged;
    }
    ++work.next;
  }
  return finish(work, wire::status::ok);
}

// Shows all blocks of an allocation at once, or none: a client that was refused must not find half of them.
session::step session::finish(allocation& work, wire::status result) {
  {
    const lock_guard guard(lock_);
    if (ended_) result = wire::status::not_allocated;
    if (result == wire::status::ok) {
      for (std::uint64_t i = 0; i < work.next; ++i) {
        std::atomic<std::uintptr_t>& entry = blocks_[work.blocks.first + i];
        const std::uintptr_t value = entry.load();
        if ((value & being_allocated) != 0) entry.store(value & ~being_allocated);
      }
      under_way_ = nullptr;
      return {progress::done, result};
    }
  }
  // These blocks were never visible, so nobody uses them. Their numbers stay ours until under_way_ is reset.
  std::uint64_t unused = work.charged;
  for (std::uint64_t i = 0; i < work.next; ++i) {
    std::atomic<std::uintptr_t>& entry = blocks_[work.blocks.first + i];
    const std::uintptr_t value = entry.load();
    if ((value & being_allocated) == 0) continue;
    source_->give_back(work.blocks.first + i, address_in(value));
    entry.store(0);
    ++unused;
  }
  const lock_guard guard(lock_);
  store_.lock_.assert_held();  // the same one
  held_blocks_ -= unused;
  under_way_ = nullptr;
  store_.uncharge(*tenant_, unused);
  return {progress::done, result};
}

void session::abandon(allocation& work) {
  if (work.begun) static_cast<void>(finish(work, wire::status::no_space));
}

wire::status session::allocate(wire::block_range blocks) {
  allocation work{.blocks = blocks};
  for (unsigned waits = 0; waits < 1000; ++waits) {
    const step got = allocate_some(work, maximum_session_blocks);
    if (got.at == progress::done) return got.result;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  abandon(work);
  return wire::status::no_space;
}

bool session::overlaps_allocation(wire::block_range blocks) const {
  if (under_way_ == nullptr) return false;
  const wire::block_range& other = under_way_->blocks;
  return blocks.first < other.first + other.count && other.first < blocks.first + blocks.count;
}

bool session::holds_all(wire::block_range blocks) const {
  if (blocks.first + blocks.count > highest_) return false;
  for (std::uint64_t number = blocks.first; number < blocks.first + blocks.count; ++number) {
    const std::uintptr_t value = blocks_[number].load();
    if (value == 0 || (value & flags) != 0) return false;
  }
  return true;
}

wire::status session::free(wire::block_range blocks) {
  const lock_guard guard(lock_);
  return free_locked(blocks);
}

wire::status session::free_held(wire::block_range blocks) {
  const lock_guard guard(lock_);
  return holds_all(blocks) ? free_locked(blocks) : wire::status::not_allocated;
}

wire::status session::free_locked(wire::block_range blocks) {
  FAR_CHECK(can_name(blocks), "freeing of blocks without a number");
  store_.lock_.assert_held();  // the same one
  if (ended_ || overlaps_allocation(blocks)) return wire::status::not_allocated;
  const std::uint64_t end = std::min(blocks.first + blocks.count, highest_);
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t number = blocks.first; number < end; ++number) {
    std::atomic<std::uintptr_t>& entry = blocks_[number];
    const std::uintptr_t value = entry.load();
    // Blocks that it does not hold are free already: the reply to an earlier request may have been lost.
    if (value == 0 || (value & flags) != 0) continue;
    entry.store(value | being_freed);
    numbers.push_back(number);
  }
  const quiescent_states::ticket unused_after = store_.readers_.draw();
  for (const std::uint64_t number : numbers) store_.freed_.push_back({shared_from_this(), number, unused_after});
  held_blocks_ -= numbers.size();
  return wire::status::ok;
}

wire::capacity_report session::report() const {
  const lock_guard guard(lock_);
  store_.lock_.assert_held();  // the same one
  return {.quota_slots = tenant_->quota_blocks * wire::block_slots,
          .tenant_slots = tenant_->held_blocks * wire::block_slots,
          .server_free_slots = (store_.memory_blocks_ - store_.held_blocks_) * wire::block_slots,
          .session_slots = held_blocks_ * wire::block_slots};
}

result<std::unique_ptr<store>> store::create(store_settings settings) {
  if (settings.memory_bytes < block_bytes) {
    return error{"--memory " + format_size(settings.memory_bytes) + " is less than one block of " +
                     format_size(block_bytes) + "; write for example --memory 1G",
                 EINVAL};
  }
  std::unique_ptr<store> created(new store(std::move(settings)));
  if (!created->settings_.make_source) {
    result<std::unique_ptr<frames>> reserved = frames::reserve(created->memory_blocks_, frames::free_in_pool());
    if (!reserved) return reserved.error();
    created->frames_ = std::move(reserved).value();
    created->settings_.make_source = [from = created->frames_.get()] { return std::make_unique<frame_source>(*from); };
  }
  return created;
}

store::store(store_settings settings)
    : settings_(std::move(settings)),
      memory_blocks_(settings_.memory_bytes / block_bytes),
      quota_bytes_(settings_.quota_bytes) {}

store::~store() = default;

std::uint64_t store::quota_of(const std::string& name) const {
  const auto found = quota_bytes_.find(name);
  if (found == quota_bytes_.end()) return memory_blocks_;
  return std::min(found->second / block_bytes, memory_blocks_);
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
  std::byte* const table = platform::try_map_local(table_bytes);
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
    platform::unmap_local(table, table_bytes);
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
  // It comes from a child that outlives the process which announced its end.
  to->is_leaving_ = false;
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
  if (missing > memory_blocks_ - held_blocks_ + reclaimable(nullptr)) return false;
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
        block.owner->source_->give_back(block.number, address_in(entry.load()));
        entry.store(0);
      }
      const lock_guard guard(lock_);
      for (const freed& block : batch) uncharge(*block.owner->tenant_, 1);
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
    std::uint64_t counted = client->under_way_ != nullptr ? client->under_way_->charged : 0;
    for (std::uint64_t number = 0; number < client->highest_; ++number) {
      const std::uintptr_t entry = client->blocks_[number].load();
      if (entry != 0 && (entry & session::being_freed) == 0) ++counted;
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
  FAR_CHECK(total == held_blocks_ && total <= memory_blocks_, "the store's blocks are miscounted");
}

}  // namespace far::server
