#include "server/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace far::server {
namespace {

using wire::block_range;
using wire::status;

constexpr std::uint64_t second_ns = 1'000'000'000;

// Blocks from the C library, so that tests can see what is taken and given back, and make it fail.
struct heap_log {
  std::uint64_t most = ~std::uint64_t{0};
  std::set<std::uint64_t> taken;
};

class heap_source final : public block_source {
 public:
  explicit heap_source(heap_log& log) : log_(log) {}
  std::byte* take(std::uint64_t number) override {
    if (log_.taken.size() >= log_.most) return nullptr;
    EXPECT_TRUE(log_.taken.insert(number).second) << "taken twice: " << number;
    return new (std::align_val_t{4096}) std::byte[block_bytes]{};
  }
  void give_back(std::uint64_t number, std::byte* block) override {
    EXPECT_EQ(log_.taken.erase(number), 1u) << "not taken: " << number;
    ::operator delete[](block, std::align_val_t{4096});
  }

 private:
  heap_log& log_;
};

std::unique_ptr<store> make_store(std::uint64_t blocks, std::map<std::string, std::uint64_t> quota = {},
                                  std::uint64_t lease_ns = 0, std::uint64_t grace_ns = 10 * second_ns) {
  store_settings settings;
  settings.memory_bytes = blocks * block_bytes;
  settings.grace_ns = grace_ns;
  settings.lease_ns = lease_ns;
  settings.quota_bytes = std::move(quota);
  return std::move(store::create(std::move(settings))).value();
}

attachment open(store& from, const std::string& tenant = "default", std::uint32_t channel = 0) {
  return std::move(from.open(tenant, channel)).value();
}

void reclaim_all(store& from) {
  while (from.reclaim() != 0) {
  }
}

bool is_zero(const std::byte* block) {
  return std::all_of(block, block + block_bytes, [](std::byte value) { return value == std::byte{}; });
}

TEST(Store, LessThanABlockIsRefused) {
  store_settings settings;
  settings.memory_bytes = block_bytes - 1;
  EXPECT_FALSE(store::create(settings).ok());
}

TEST(Store, BlocksAreAlignedZeroedAndAddressedBySlot) {
  const std::unique_ptr<store> lent = make_store(4);
  attachment mine = open(*lent);
  session& session = *mine.to;
  EXPECT_EQ(session.address_of(0), nullptr);
  ASSERT_EQ(session.allocate({7, 2}), status::ok);
  lent->validate();
  std::byte* const first = session.address_of(7 * wire::block_slots);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % block_bytes, 0u);
  EXPECT_TRUE(is_zero(first));
  EXPECT_EQ(session.address_of(7 * wire::block_slots + 3), first + 3 * page_bytes);
  EXPECT_NE(session.address_of(9 * wire::block_slots - 1), nullptr);
  EXPECT_EQ(session.address_of(9 * wire::block_slots), nullptr);
  EXPECT_EQ(session.address_of(~std::uint64_t{0}), nullptr);
}

TEST(Store, MemoryIsNeverExceededByAllTenantsTogether) {
  const std::unique_ptr<store> lent = make_store(3);
  attachment a = open(*lent, "a");
  attachment b = open(*lent, "b");
  EXPECT_EQ(a.to->allocate({0, 2}), status::ok);
  EXPECT_EQ(b.to->allocate({0, 2}), status::no_space) << "all or none";
  EXPECT_EQ(b.to->address_of(0), nullptr);
  lent->validate();
  EXPECT_EQ(b.to->allocate({0, 1}), status::ok);
  EXPECT_EQ(a.to->allocate({2, 1}), status::no_space);
  EXPECT_EQ(a.to->allocate({0, 2}), status::ok) << "blocks that are held cost nothing";
  EXPECT_EQ(lent->report().held_blocks, 3u);
  lent->validate();
}

TEST(Store, QuotasAreKeptOverAllSessionsOfATenant) {
  const std::unique_ptr<store> lent = make_store(8, {{"small", 2 * block_bytes + 5}});
  attachment one = open(*lent, "small");
  attachment two = open(*lent, "small");
  EXPECT_EQ(one.to->allocate({0, 1}), status::ok);
  EXPECT_EQ(two.to->allocate({0, 2}), status::no_space);
  EXPECT_EQ(two.to->allocate({0, 1}), status::ok);
  EXPECT_EQ(one.to->allocate({5, 1}), status::no_space);
  const wire::capacity_report report = one.to->report();
  EXPECT_EQ(report.quota_slots, 2 * wire::block_slots);
  EXPECT_EQ(report.tenant_slots, 2 * wire::block_slots);
  EXPECT_EQ(report.session_slots, wire::block_slots);
  EXPECT_EQ(report.server_free_slots, 6 * wire::block_slots);
  lent->validate();
}

TEST(Store, SessionsOfProcessesThatEndedAreNotKept) {
  const std::unique_ptr<store> lent = make_store(8, {}, 3600 * second_ns);
  attachment first = open(*lent);
  attachment second = std::move(lent->join("default", first.to->id(), 1)).value();
  attachment other = open(*lent);
  ASSERT_EQ(first.to->allocate({0, 4}), status::ok);
  lent->note_leaving(*first.to);
  lent->leave(first, second_ns);
  lent->expire(3000 * second_ns);
  EXPECT_EQ(lent->report().sessions, 2u) << "a child of it may still read";
  lent->leave(second, 3000 * second_ns);
  lent->leave(other, 3000 * second_ns);
  lent->expire(3009 * second_ns);
  EXPECT_EQ(lent->report().sessions, 2u) << "a connection may have broken before the end";
  lent->expire(3010 * second_ns);
  EXPECT_EQ(lent->report().sessions, 1u);
  reclaim_all(*lent);
  EXPECT_EQ(lent->report().held_blocks, 0u);
  lent->validate();
}

TEST(Store, AChildThatConnectsAfterItsParentEndedKeepsTheLease) {
  const std::unique_ptr<store> lent = make_store(8, {}, 3600 * second_ns);
  attachment parent = open(*lent);
  lent->note_leaving(*parent.to);
  attachment child = std::move(lent->join("default", parent.to->id(), wire::first_child_channel + 77)).value();
  lent->leave(parent, second_ns);
  lent->leave(child, 2 * second_ns);
  lent->expire(3000 * second_ns);
  EXPECT_EQ(lent->report().sessions, 1u) << "it may only be paused";
}

// Its other connection was just being opened anew.
TEST(Store, AConnectionThatComesBackAfterTheAnnouncementChangesNothing) {
  const std::unique_ptr<store> lent = make_store(8, {}, 3600 * second_ns);
  attachment first = open(*lent);
  lent->note_leaving(*first.to);
  attachment second = std::move(lent->join("default", first.to->id(), 1)).value();
  lent->leave(first, second_ns);
  lent->leave(second, second_ns);
  lent->expire(12 * second_ns);
  EXPECT_EQ(lent->report().sessions, 0u);
}

TEST(Store, NeededIsWhatAClientHasOrMayComeBackFor) {
  const std::unique_ptr<store> lent = make_store(16, {}, 3600 * second_ns, 60 * second_ns);
  attachment here = open(*lent);
  attachment away = open(*lent);
  attachment ending = open(*lent);
  ASSERT_EQ(here.to->allocate({0, 1}), status::ok);
  ASSERT_EQ(away.to->allocate({0, 2}), status::ok);
  ASSERT_EQ(ending.to->allocate({0, 4}), status::ok);
  EXPECT_EQ(lent->report().needed_blocks, 7u);
  lent->note_leaving(*ending.to);
  lent->leave(ending, 10 * second_ns);
  lent->leave(away, 10 * second_ns);
  EXPECT_EQ(lent->report().needed_blocks, 3u);
  lent->expire(70 * second_ns);
  EXPECT_EQ(lent->report().needed_blocks, 1u) << "its grace period is over";
}

TEST(Store, SessionsOfProcessesThatEndedAreNotKeptForLongerThanOthers) {
  const std::unique_ptr<store> lent = make_store(8, {}, 3600 * second_ns, second_ns);
  attachment only = open(*lent);
  lent->note_leaving(*only.to);
  lent->leave(only, 5 * second_ns);
  lent->expire(6 * second_ns - 1);
  EXPECT_EQ(lent->report().sessions, 1u);
  lent->expire(6 * second_ns);
  EXPECT_EQ(lent->report().sessions, 0u) << "the grace period is shorter";
}

// Ending a session that is away would not bring the tenant below its quota: it is left alone.
TEST(Store, NobodyMakesWayForATenantAboveALoweredQuota) {
  const std::unique_ptr<store> lent = make_store(8, {{"small", 6 * block_bytes}}, 3600 * second_ns, second_ns);
  attachment here = open(*lent, "small");
  attachment away = open(*lent, "small");
  ASSERT_EQ(here.to->allocate({0, 4}), status::ok);
  ASSERT_EQ(away.to->allocate({0, 2}), status::ok);
  lent->leave(away, 0);
  lent->expire(2 * second_ns);
  lent->set_quotas({{"small", 4 * block_bytes}});
  EXPECT_EQ(here.to->allocate({4, 1}), status::no_space);
  EXPECT_EQ(lent->report().sessions, 2u);
  lent->validate();
}

TEST(Store, QuotasChangeWhileTenantsHoldMemory) {
  const std::unique_ptr<store> lent = make_store(8, {{"small", 4 * block_bytes}});
  attachment one = open(*lent, "small");
  EXPECT_EQ(one.to->allocate({0, 4}), status::ok);
  EXPECT_EQ(one.to->allocate({4, 1}), status::no_space);
  lent->set_quotas({{"small", 2 * block_bytes}, {"other", block_bytes}});
  lent->validate();
  EXPECT_EQ(one.to->report().quota_slots, 2 * wire::block_slots);
  EXPECT_EQ(lent->report().held_blocks, 4u) << "nothing is taken away";
  EXPECT_EQ(one.to->allocate({4, 1}), status::no_space);
  ASSERT_EQ(one.to->free({0, 2}), status::ok);
  reclaim_all(*lent);
  EXPECT_EQ(one.to->allocate({4, 1}), status::no_space) << "it holds its quota";
  attachment other = open(*lent, "other");
  EXPECT_EQ(other.to->allocate({0, 2}), status::no_space);
  lent->set_quotas({});
  EXPECT_EQ(one.to->allocate({4, 6}), status::ok) << "without a quota all of the memory is its";
  lent->validate();
}

TEST(Store, FreedBlocksAreReadAsZerosByTheNextTenant) {
  const std::unique_ptr<store> lent = make_store(1);
  attachment a = open(*lent, "a");
  ASSERT_EQ(a.to->allocate({0, 1}), status::ok);
  std::memset(a.to->address_of(0), 0x5a, block_bytes);
  EXPECT_EQ(a.to->free({0, 1}), status::ok);
  EXPECT_EQ(a.to->address_of(0), nullptr);
  EXPECT_EQ(a.to->free({0, 1}), status::ok) << "again";
  EXPECT_EQ(a.to->free_held({0, 1}), status::not_allocated) << "from whom nothing is repeated";
  lent->validate();
  attachment b = open(*lent, "b");
  ASSERT_EQ(b.to->allocate({3, 1}), status::ok) << "allocate waits until the freed block is back";
  EXPECT_TRUE(is_zero(b.to->address_of(3 * wire::block_slots)));
  lent->validate();
}

TEST(Store, AFreedBlockStaysUntilEveryLoopWasQuiet) {
  heap_log log;
  const std::unique_ptr<store> lent = make_store(1);
  attachment mine = std::move(lent->open("default", 0, std::make_unique<heap_source>(log))).value();
  quiescent_states::reader loop(lent->readers());
  quiescent_states::reader idle(lent->readers());
  ASSERT_EQ(mine.to->allocate({0, 1}), status::ok);
  loop.quiet();
  const std::byte* const used = mine.to->address_of(0);
  ASSERT_NE(used, nullptr);
  ASSERT_EQ(mine.to->free({0, 1}), status::ok);
  EXPECT_EQ(lent->reclaim(), 1u);
  EXPECT_EQ(log.taken.size(), 1u) << "the loop may still be copying from it";
  session::allocation work{.blocks = {5, 1}};
  EXPECT_EQ(mine.to->allocate_some(work, 1).at, session::progress::wait) << "nor does it count as free";
  session::allocation same{.blocks = {0, 1}};
  EXPECT_EQ(mine.to->allocate_some(same, 1).at, session::progress::wait);
  lent->validate();
  loop.quiet();
  EXPECT_EQ(lent->reclaim(), 0u);
  EXPECT_TRUE(log.taken.empty());
  EXPECT_EQ(mine.to->allocate({0, 1}), status::ok);
  ASSERT_EQ(mine.to->free({0, 1}), status::ok);
  loop.offline();
  EXPECT_EQ(lent->reclaim(), 0u) << "a loop that sleeps holds nothing up";
}

TEST(Store, AnAllocationInStepsAppearsAtOnceOrNotAtAll) {
  heap_log log;
  const std::unique_ptr<store> lent = make_store(8);
  attachment mine = std::move(lent->open("default", 0, std::make_unique<heap_source>(log))).value();
  session::allocation work{.blocks = {0, 4}};
  EXPECT_EQ(mine.to->allocate_some(work, 3).at, session::progress::more);
  EXPECT_EQ(mine.to->address_of(0), nullptr);
  session::allocation other{.blocks = {6, 1}};
  EXPECT_EQ(mine.to->allocate_some(other, 3).at, session::progress::wait) << "one allocation of a session at a time";
  const session::step last = mine.to->allocate_some(work, 3);
  EXPECT_EQ(last.at, session::progress::done);
  EXPECT_EQ(last.result, status::ok);
  EXPECT_NE(mine.to->address_of(0), nullptr);
  lent->validate();

  log.most = 6;
  EXPECT_EQ(mine.to->allocate({2, 6}), status::no_space) << "the machine has no more";
  EXPECT_EQ(log.taken.size(), 4u);
  EXPECT_NE(mine.to->address_of(3 * wire::block_slots), nullptr) << "held before, and still";
  EXPECT_EQ(mine.to->address_of(4 * wire::block_slots), nullptr);
  lent->validate();

  session::allocation given_up{.blocks = {4, 2}};
  EXPECT_EQ(mine.to->allocate_some(given_up, 1).at, session::progress::more);
  mine.to->abandon(given_up);
  EXPECT_EQ(log.taken.size(), 4u);
  EXPECT_EQ(mine.to->allocate({4, 2}), status::ok);
  lent->validate();
}

TEST(Store, ASessionThatEndsDuringAnAllocationLeavesNothing) {
  heap_log log;
  const std::unique_ptr<store> lent = make_store(8);
  attachment mine = std::move(lent->open("default", 0, std::make_unique<heap_source>(log))).value();
  ASSERT_EQ(mine.to->allocate({0, 2}), status::ok);
  session::allocation work{.blocks = {2, 4}};
  EXPECT_EQ(mine.to->allocate_some(work, 3).at, session::progress::more);
  lent->end(*mine.to);
  EXPECT_TRUE(mine.is_fenced());
  const session::step last = mine.to->allocate_some(work, 9);
  EXPECT_EQ(last.result, status::not_allocated);
  EXPECT_EQ(mine.to->allocate({0, 1}), status::not_allocated);
  reclaim_all(*lent);
  EXPECT_EQ(mine.to->address_of(0), nullptr);
  EXPECT_TRUE(log.taken.empty());
  EXPECT_EQ(lent->report().held_blocks, 0u);
  EXPECT_TRUE(lent->report().tenants.empty());
  lent->validate();
}

TEST(Store, ASessionLivesForItsGracePeriodWithoutConnections) {
  const std::unique_ptr<store> lent = make_store(4);
  attachment first = open(*lent);
  const wire::session_id id = first.to->id();
  ASSERT_EQ(first.to->allocate({0, 2}), status::ok);
  std::memset(first.to->address_of(0), 0x77, 8);
  attachment second = std::move(lent->join("default", id, 1)).value();
  lent->leave(first, 0);
  lent->expire(100 * second_ns);
  EXPECT_EQ(lent->report().sessions, 1u) << "one connection is left";
  lent->leave(second, 100 * second_ns);
  lent->expire(110 * second_ns - 1);
  attachment again = std::move(lent->join("default", id, 0)).value();
  EXPECT_EQ(again.to->address_of(0)[7], std::byte{0x77});
  lent->leave(again, 200 * second_ns);
  lent->expire(210 * second_ns);
  EXPECT_FALSE(lent->join("default", id, 0).ok());
  reclaim_all(*lent);
  EXPECT_EQ(lent->report().held_blocks, 0u);
  EXPECT_EQ(lent->report().sessions_expired, 1u);
  lent->validate();
}

// Two clients are away, the first for longer, and a third one needs room.
class Leases : public testing::Test {
 protected:
  void open(std::uint64_t blocks, std::map<std::string, std::uint64_t> quota, const std::string& second_tenant) {
    lent_ = make_store(blocks, std::move(quota), 3600 * second_ns);
    for (std::size_t i = 0; i < away_.size(); ++i) {
      attachment client = server::open(*lent_, i == 0 ? "a" : second_tenant);
      away_[i] = client.to->id();
      ASSERT_EQ(client.to->allocate({0, 2}), status::ok);
      std::memset(client.to->address_of(0), 0x77, 8);
      lent_->leave(client, (1 + i) * second_ns);
    }
    present_ = server::open(*lent_, "a");
  }
  void TearDown() override {
    reclaim_all(*lent_);
    lent_->validate();
  }
  bool lives(std::size_t client, const std::string& tenant) {
    result<attachment> joined = lent_->join(tenant, away_[client], 0);
    if (!joined) return false;
    EXPECT_EQ(joined.value().to->address_of(0)[7], std::byte{0x77});
    lent_->leave(joined.value(), (1 + client) * second_ns);
    return true;
  }

  std::unique_ptr<store> lent_;
  std::array<wire::session_id, 2> away_{};
  attachment present_;
};

TEST_F(Leases, OutliveTheGracePeriodWhileNobodyNeedsTheMemory) {
  open(6, {}, "a");
  lent_->expire(3600 * second_ns);
  EXPECT_EQ(lent_->report().away_sessions, 2u);
  EXPECT_EQ(lent_->report().away_blocks, 4u);
  EXPECT_EQ(present_.to->allocate({0, 2}), status::ok) << "there is room without them";
  EXPECT_TRUE(lives(0, "a"));
  EXPECT_TRUE(lives(1, "a"));
  lent_->expire(3602 * second_ns);
  EXPECT_FALSE(lives(0, "a"));
  EXPECT_FALSE(lives(1, "a"));
  EXPECT_EQ(lent_->report().sessions_expired, 2u);
  EXPECT_EQ(lent_->report().sessions_ended_early, 0u);
}

TEST_F(Leases, EndEarlyForOthersTheLongestAwayFirst) {
  open(6, {}, "b");
  lent_->expire(20 * second_ns);
  EXPECT_EQ(present_.to->allocate({0, 3}), status::ok);
  EXPECT_FALSE(lives(0, "a"));
  EXPECT_TRUE(lives(1, "b")) << "one was enough";
  EXPECT_EQ(lent_->report().sessions_ended_early, 1u);
}

TEST_F(Leases, AreSafeDuringTheGracePeriod) {
  open(6, {}, "b");
  lent_->expire(10 * second_ns);
  EXPECT_EQ(present_.to->allocate({0, 3}), status::no_space);
  EXPECT_TRUE(lives(0, "a"));
  lent_->expire(11 * second_ns);
  EXPECT_EQ(present_.to->allocate({0, 3}), status::ok) << "the first is past it";
}

TEST_F(Leases, DoNotEndForWhatWouldFailAllTheSame) {
  open(6, {}, "b");
  lent_->expire(20 * second_ns);
  EXPECT_EQ(present_.to->allocate({0, 7}), status::no_space);
  EXPECT_TRUE(lives(0, "a"));
  EXPECT_TRUE(lives(1, "b"));
}

TEST_F(Leases, ATenantAtItsQuotaEndsItsOwn) {
  open(8, {{"a", 2 * block_bytes}}, "b");
  lent_->expire(20 * second_ns);
  EXPECT_EQ(present_.to->allocate({0, 1}), status::ok);
  EXPECT_FALSE(lives(0, "a"));
  EXPECT_EQ(present_.to->allocate({0, 3}), status::no_space);
  EXPECT_TRUE(lives(1, "b"));
}

TEST(Store, JoiningNeedsTheSameTenant) {
  const std::unique_ptr<store> lent = make_store(4);
  attachment mine = open(*lent, "a");
  EXPECT_TRUE(lent->join("a", mine.to->id(), 1).ok());
  const result<attachment> other = lent->join("b", mine.to->id(), 1);
  ASSERT_FALSE(other.ok());
  wire::session_id unknown = mine.to->id();
  unknown[3] ^= std::byte{1};
  EXPECT_EQ(other.error().message, lent->join("a", unknown, 1).error().message) << "nobody learns who exists";
}

TEST(Store, SessionIdsAreRandom) {
  const std::unique_ptr<store> lent = make_store(4);
  std::set<wire::session_id> ids;
  for (int i = 0; i < 16; ++i) ids.insert(open(*lent).to->id());
  EXPECT_EQ(ids.size(), 16u);
}

TEST(Store, ANewConnectionOfAChannelFencesTheOldOne) {
  const std::unique_ptr<store> lent = make_store(4);
  quiescent_states::reader loop(lent->readers());
  attachment old = open(*lent, "a", 3);
  loop.quiet();
  attachment fresh = std::move(lent->join("a", old.to->id(), 3)).value();
  EXPECT_TRUE(old.is_fenced());
  EXPECT_FALSE(fresh.is_fenced());
  EXPECT_NE(fresh.fence, 0u);
  EXPECT_FALSE(lent->readers().passed(fresh.fence)) << "the old one's loop may be in the middle of a write";
  loop.quiet();
  EXPECT_TRUE(lent->readers().passed(fresh.fence));
  lent->leave(old, 0);
  lent->expire(1000 * second_ns);
  EXPECT_EQ(lent->report().sessions, 1u) << "the new connection keeps the session alive";
}

TEST(Store, ADrainingStoreLendsNothingNew) {
  const std::unique_ptr<store> lent = make_store(4);
  attachment mine = open(*lent);
  ASSERT_EQ(mine.to->allocate({0, 1}), status::ok);
  lent->drain();
  EXPECT_EQ(mine.to->allocate({1, 1}), status::draining);
  EXPECT_FALSE(lent->open("default", 0).ok());
  EXPECT_TRUE(lent->join("default", mine.to->id(), 1).ok()) << "who has bytes here may still fetch them";
  EXPECT_NE(mine.to->address_of(0), nullptr);
  EXPECT_EQ(mine.to->free({0, 1}), status::ok);
}

TEST(Store, ATenantHasALimitedNumberOfSessions) {
  const std::unique_ptr<store> lent = make_store(4, {}, 3600 * second_ns);
  for (std::size_t i = 0; i < maximum_sessions_of_tenant; ++i) ASSERT_TRUE(lent->open("greedy", 0).ok());
  EXPECT_FALSE(lent->open("greedy", 0).ok());
  attachment gone = std::move(lent->open("modest", 0)).value();
  const result<attachment> first = lent->open("modest", 0);
  EXPECT_TRUE(first.ok());
  lent->leave(gone, 0);
  for (std::size_t i = 2; i < maximum_sessions_of_tenant; ++i) ASSERT_TRUE(lent->open("modest", 0).ok());
  lent->expire(9 * second_ns);
  EXPECT_FALSE(lent->open("modest", 0).ok());
  lent->expire(10 * second_ns);
  EXPECT_TRUE(lent->open("modest", 0).ok()) << "the one without a connection ends for it";
  EXPECT_EQ(lent->report().sessions_ended_early, 1u);
}

// A reader that looks up and checks bytes, beside a thread that frees and allocates the same blocks: at an address the
// reader sees the bytes of its block, never another's.
TEST(Store, ReadersNeverSeeABlockOfSomebodyElse) {
  const std::unique_ptr<store> lent = make_store(3);
  attachment mine = open(*lent, "mine");
  attachment other = open(*lent, "other");
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> seen{0};
  std::atomic<std::uint64_t> wrong{0};
  std::thread loop([&] {
    quiescent_states::reader reader(lent->readers());
    while (!stop.load()) {
      reader.quiet();
      const std::byte* const block = mine.to->address_of(0);
      if (block != nullptr) {
        const auto* const word = reinterpret_cast<const std::atomic<std::uint64_t>*>(block + block_bytes / 2);
        for (int i = 0; i < 50; ++i) {
          const std::uint64_t value = word->load(std::memory_order_relaxed);
          if (value != 0 && value != 1) ++wrong;
        }
        ++seen;
      }
      reader.offline();
    }
  });
  const auto write = [](session& to, std::uint64_t value) {
    std::byte* const block = to.address_of(0);
    reinterpret_cast<std::atomic<std::uint64_t>*>(block + block_bytes / 2)->store(value, std::memory_order_relaxed);
  };
  for (int round = 0; round < 300 || seen.load() == 0; ++round) {
    ASSERT_EQ(mine.to->allocate({0, 2}), status::ok);
    write(*mine.to, 1);
    ASSERT_EQ(mine.to->free({0, 2}), status::ok);
    ASSERT_EQ(other.to->allocate({0, 2}), status::ok);
    write(*other.to, 2);
    ASSERT_EQ(other.to->free({0, 2}), status::ok);
    ASSERT_LT(round, 100'000) << "the reader never saw a block";
  }
  stop.store(true);
  loop.join();
  EXPECT_EQ(wrong.load(), 0u);
  lent->validate();
}

TEST(Frames, AreFilledAndReused) {
  const std::unique_ptr<frames> all = std::move(frames::reserve(3, 0)).value();
  std::byte* const a = all->take();
  std::byte* const b = all->take();
  std::byte* const c = all->take();
  ASSERT_TRUE(a != nullptr && b != nullptr && c != nullptr);
  EXPECT_EQ(all->take(), nullptr);
  std::memset(b, 1, block_bytes);
  all->give_back(b);
  EXPECT_EQ(all->take(), b);
  EXPECT_TRUE(is_zero(b));
  for (std::byte* frame : {a, b, c}) all->give_back(frame);
}

TEST(Frames, ComeFromThePoolOfHugePagesFirst) {
  const std::uint64_t pool = frames::free_in_pool();
  if (pool == 0) GTEST_SKIP() << "this machine has no pool of huge pages (vm.nr_hugepages)";
  const std::unique_ptr<frames> all = std::move(frames::reserve(2, 1)).value();
  std::byte* const a = all->take();
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(frames::free_in_pool(), pool - 1);
  std::memset(a, 1, block_bytes);
  std::byte* const b = all->take();
  ASSERT_NE(b, nullptr);
  all->give_back(a);
  EXPECT_EQ(all->take(), a);
  EXPECT_TRUE(is_zero(a));
  all->give_back(a);
  all->give_back(b);
}

}  // namespace
}  // namespace far::server
