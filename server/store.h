// The store: the memory that a server lends, in blocks of 2 MiB, to sessions of tenants.
//
//     store --------- counts every block of every kind against --memory
//       tenants ----- a name, a quota, what its sessions hold
//         sessions -- a table of blocks: block number -> memory; lives as long as its lease
//
// Data path (session::address_of): lock-free, no allocation, between two quiescent states (quiescent_states.h). Control
// path (everything else): one mutex, never held while memory is filled or given back, nor while anything is looked for
// among all sessions or all blocks of a session.
//
// A session whose last connection has ended is away. It keeps its blocks for the grace period in any case, and until
// its lease is over unless somebody needs the memory. Then sessions past their grace period end early, the longest away
// first, as many as necessary. A tenant at its quota ends its own sessions; when the server's memory runs out,
// anybody's end.
//
// The table of a session takes a page for each block at most, less when block numbers are close together. Limits count
// these pages, too, rounded down to whole blocks.
//
// With a spill file (spiller.h) the coldest blocks are on disk. Limits and quotas count blocks wherever they are.
//
// Equations that validate() recomputes:
//     a tenant's blocks = what its sessions hold or are allocating, their room for other things, and freed blocks not
//     yet reclaimed
//     a tenant's pages = the pages of its sessions' tables that have entries
//     the store's = the sum over tenants, in whole blocks <= memory_blocks
//
// Time is passed in, as monotonic nanoseconds.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/thread_mutex.h"
#include "base/units.h"
#include "server/frames.h"
#include "server/quiescent_states.h"
#include "server/spiller.h"
#include "server/tenant_rates.h"
#include "wire/handshake.h"
#include "wire/message.h"

namespace far::server {

inline constexpr std::size_t block_bytes = wire::block_slots * page_bytes;

// The highest number of blocks that a session can name: 8 TiB.
inline constexpr std::uint64_t maximum_session_blocks = std::uint64_t{1} << 22;

inline constexpr std::size_t maximum_sessions_of_tenant = 1024;
inline constexpr std::size_t maximum_channels_of_session = 1024;

class session;
class store;

// The source of a session's blocks: frames of the server (TCP), or a file in memory that the client maps, too (shared
// memory). Called from any thread, for one block by one thread at a time. A number is not taken again before it was
// given back.
class block_source {
 public:
  virtual ~block_source() = default;
  // Zeroed memory for block `number`, aligned to 64 bytes or more. It is filled, so that using it later cannot fail.
  // nullptr when the machine has no more.
  [[nodiscard]] virtual std::byte* take(std::uint64_t number) = 0;
  // Gives the block's frames back; its bytes are gone. Requires: nobody uses the block any more.
  virtual void give_back(std::uint64_t number, std::byte* block) = 0;
  // Whether clients keep their blocks when the server ends, so that it need not wait until they have copied them.
  [[nodiscard]] virtual bool outlives_server() const { return false; }
};

// Memory that is lent: blocks, and pages of the tables that name them.
struct lent_memory {
  std::uint64_t blocks = 0;
  std::uint64_t table_pages = 0;

  // As limits count it.
  [[nodiscard]] std::uint64_t whole_blocks() const { return blocks + table_pages / (block_bytes / page_bytes); }
  lent_memory& operator+=(const lent_memory& more) {
    blocks += more.blocks;
    table_pages += more.table_pages;
    return *this;
  }
  lent_memory& operator-=(const lent_memory& less) {
    blocks -= less.blocks;
    table_pages -= less.table_pages;
    return *this;
  }
  [[nodiscard]] friend lent_memory operator+(lent_memory a, const lent_memory& b) { return a += b; }
  [[nodiscard]] friend lent_memory operator-(lent_memory a, const lent_memory& b) { return a -= b; }
};

// Sessions by a time.
using sessions_in_time = std::set<std::pair<std::uint64_t, session*>>;

// Counted under the store's mutex.
struct tenant {
  std::string name;
  std::atomic<std::uint64_t> quota_blocks{0};  // read without the mutex, too
  lent_memory held;
  std::uint64_t promised_pages = 0;  // that allocations under way may add to tables
  std::size_t sessions = 0;
  std::size_t connections = 0;
  std::size_t devices = 0;
  std::uint64_t most_blocks = 0;  // its quota, or what it held when the quota was lowered below that
  sessions_in_time away;          // without a connection: since when each may end early
  tenant_limits limits;
  tenant_rates rates;  // used without the mutex

  [[nodiscard]] bool has_room_for(const lent_memory& wanted) const {
    return (held + wanted + lent_memory{0, promised_pages}).whole_blocks() <= quota_blocks;
  }
};

// Whatever a session has beside its blocks, and loses with them.
class session_burden {
 public:
  virtual ~session_burden() = default;
  // The session has ended. Neither waits, nor calls the store or the session, whose mutex is held.
  virtual void end() noexcept = 0;
};

class session : public std::enable_shared_from_this<session> {
 public:
  // An allocation that is done in steps, so that a large one does not hold up an event loop.
  struct allocation {
    wire::block_range blocks{};
    std::uint64_t next = 0;     // blocks of the range before this one are done
    std::uint64_t charged = 0;  // blocks counted for it, not yet taken
    lent_memory promised{};     // all that was counted for it; by the store's mutex
    bool begun = false;
  };
  enum class progress : std::uint8_t {
    done,  // `result` says how it ended
    more,  // call again, after other work
    wait,  // call again later: freed blocks are on their way back, or another allocation of the session is under way
  };
  struct step {
    progress at = progress::done;
    wire::status result = wire::status::ok;
  };

  ~session();
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  [[nodiscard]] const wire::session_id& id() const { return id_; }
  [[nodiscard]] const std::string& tenant_name() const { return tenant_->name; }
  [[nodiscard]] std::uint64_t quota_blocks() const { return tenant_->quota_blocks; }
  [[nodiscard]] block_source& source() { return *source_; }
  [[nodiscard]] tenant_rates& rates() { return tenant_->rates; }

  // The slot's bytes, which extend to the end of its block; nullptr when the session has not allocated the block, or it
  // is on disk. Valid until the caller's next quiescent state.
  [[nodiscard]] std::byte* address_of(std::uint64_t slot) const {
    const std::uint64_t number = slot / wire::block_slots;
    if (number >= maximum_session_blocks) return nullptr;
    const std::uintptr_t entry = blocks_[number].load();
    if (entry == 0 || (entry & unavailable) != 0) return nullptr;
    if ((entry & touched) == 0) mark_touched(number, entry);
    return address_in(entry) + slot % wire::block_slots * page_bytes;
  }

  // Where the slot's block is. One that is on disk begins to come back; ask again later.
  enum class whereabouts : std::uint8_t {
    nowhere,     // the session has not allocated it
    here,        // address_of() has it
    coming,      // it was on disk, or is moving
    unreadable,  // the disk did not return it; another call tries again
  };
  [[nodiscard]] whereabouts bring_in(std::uint64_t slot);

  // Whether the range is not empty, and all its numbers are below maximum_session_blocks.
  [[nodiscard]] static bool can_name(wire::block_range blocks) {
    return blocks.count > 0 && blocks.count <= maximum_session_blocks &&
           blocks.first <= maximum_session_blocks - blocks.count;
  }

  // Handles at most `most_blocks` of the allocation. At its end all of its blocks are allocated, or none. Blocks that
  // the session holds already stay. Result: ok, no_space, draining, or not_allocated when the session has ended.
  // Requires: can_name(), and the allocation is continued until it is done, or abandoned.
  [[nodiscard]] step allocate_some(allocation& work, std::uint64_t most_blocks);
  void abandon(allocation& work);

  // The whole allocation at once; sleeps up to a second while freed blocks are on their way back. Requires: the caller
  // is no reader of quiescent states, or offline.
  [[nodiscard]] wire::status allocate(wire::block_range blocks);

  // Frees those blocks of the range that the session holds, so that a client may repeat a request whose reply was lost.
  // Others can use the memory once store::reclaim() has taken it back. Returns not_allocated, and does nothing, when
  // the session has ended or is allocating some of them. Requires: can_name().
  [[nodiscard]] wire::status free(wire::block_range blocks);
  // For clients that never repeat a request: frees all of them, or none with not_allocated when the session does not
  // hold all. Otherwise as free().
  [[nodiscard]] wire::status free_held(wire::block_range blocks);

  [[nodiscard]] wire::capacity_report report() const;

  // Memory of a device, which quota and store count as so many blocks: it is somewhere else in the server's machine.
  // The end of the session gives it back.
  enum class room : std::uint8_t {
    granted,
    wait,      // try again later: other blocks are on their way back
    none,      // the quota or the memory is used up, the server is draining, or the session has ended
    too_many,  // the tenant has as many devices as its limit permits
  };
  // `may_end_others`: sessions past their grace period make way, for memory as for blocks, and those of the tenant
  // where its limit of devices is reached.
  [[nodiscard]] room take_room(std::uint64_t blocks, bool may_end_others);
  // Of so many devices together.
  void give_back_room(std::uint64_t blocks, std::size_t devices);

  // What it has beside its blocks; nullptr: nothing.
  [[nodiscard]] std::shared_ptr<session_burden> burden() const;
  // Returns the one that it has from now on: the first that was given. nullptr: the session has ended.
  std::shared_ptr<session_burden> load(std::shared_ptr<session_burden> added);

 private:
  friend class store;
  friend class spiller;

  // An entry of the table is 0 (nothing), an address (allocated), or an address with some of these. Without an address
  // it has the number of a place on disk.
  static constexpr std::uintptr_t being_allocated = 1;
  static constexpr std::uintptr_t being_freed = 2;
  static constexpr std::uintptr_t touched = 4;      // since the spiller's hand came by
  static constexpr std::uintptr_t moving = 8;       // the spiller is writing or reading it
  static constexpr std::uintptr_t on_disk = 16;     // or nowhere, and all zeros
  static constexpr std::uintptr_t unreadable = 32;  // the last try to read it failed
  static constexpr std::uintptr_t unavailable = being_allocated | being_freed | moving | on_disk;
  static constexpr std::uintptr_t flags = unavailable | touched | unreadable;
  static constexpr unsigned place_shift = 8;
  static constexpr std::size_t entries_a_page = page_bytes / sizeof(std::uintptr_t);
  // The table: the entries, then a counter for each page of them.
  static constexpr std::size_t entries_bytes = maximum_session_blocks * sizeof(std::atomic<std::uintptr_t>);
  static constexpr std::size_t table_bytes = entries_bytes + entries_bytes / page_bytes * sizeof(std::uint16_t);
  [[nodiscard]] static std::byte* address_in(std::uintptr_t entry) {
    return reinterpret_cast<std::byte*>(entry & ~flags);
  }
  [[nodiscard]] static std::uint64_t place_in(std::uintptr_t entry) { return entry >> place_shift; }
  [[nodiscard]] static std::uintptr_t entry_on_disk(std::uint64_t place) { return place << place_shift | on_disk; }
  // Whether a client may use the block, here or after it has come back.
  [[nodiscard]] static bool is_held(std::uintptr_t entry) {
    return entry != 0 && (entry & (being_allocated | being_freed)) == 0;
  }
  // A mark that is lost to another change of the entry costs nothing but a look later on.
  void mark_touched(std::uint64_t number, std::uintptr_t entry) const {
    blocks_[number].compare_exchange_strong(entry, entry | touched);
  }

  session(store& owner, std::shared_ptr<tenant> whose, wire::session_id id, std::unique_ptr<block_source> source,
          std::atomic<std::uintptr_t>* blocks);
  [[nodiscard]] std::optional<step> begin(allocation& work);
  [[nodiscard]] step finish(allocation& work, wire::status result);
  void end_allocation(const allocation& work) FAR_REQUIRES(lock_);
  [[nodiscard]] bool overlaps_allocation(wire::block_range blocks) const FAR_REQUIRES(lock_);
  [[nodiscard]] bool holds_all(wire::block_range blocks) const FAR_REQUIRES(lock_);
  [[nodiscard]] wire::status free_locked(wire::block_range blocks) FAR_REQUIRES(lock_);
  // What a new block holds: memory, or nothing yet when it may come to be on disk. 0: there is none.
  [[nodiscard]] std::uintptr_t take_contents(std::uint64_t number);
  // The two halves of giving it back: memory, and then the counts.
  void give_back(std::uint64_t number, std::uintptr_t entry);
  void discharge(std::uintptr_t entry) FAR_REQUIRES(lock_);
  // Entries of the table: before one is set, and where one is reset. Pages without entries go back to the machine, so
  // that a table takes no more than a page for each block that is held, whatever numbers a client chooses.
  void note_entry(std::uint64_t number) FAR_REQUIRES(lock_);
  void reset_entry(std::uint64_t number) FAR_REQUIRES(lock_);
  // The next block at or after `number` that the session held when it ended, after a few looks; highest_: there is
  // none.
  struct search {
    std::uint64_t number = 0;
    bool is_found = false;
  };
  [[nodiscard]] search look_for_held(std::uint64_t number) const FAR_REQUIRES(lock_);
  // Calls visit(number, entry) for each block of the range that it holds, and passes by pages of the table without
  // entries: a client may name all blocks in each request.
  template <typename Visit>
  void for_each_held(wire::block_range blocks, Visit visit) const FAR_REQUIRES(lock_);

  store& store_;
  std::shared_ptr<tenant> tenant_;
  wire::session_id id_;
  std::unique_ptr<block_source> source_;
  std::atomic<std::uintptr_t>* blocks_;   // maximum_session_blocks of them
  std::uint16_t* const entries_of_page_;  // by the lock; behind them: how many entries of each page are set

  thread_mutex& lock_;                                   // the store's
  std::uint64_t highest_ FAR_GUARDED_BY(lock_) = 0;      // no entry from here on was ever used
  std::uint64_t held_blocks_ FAR_GUARDED_BY(lock_) = 0;  // allocated, or being allocated
  std::uint64_t room_blocks_ FAR_GUARDED_BY(lock_) = 0;  // of these, for devices: they have no entries
  std::size_t devices_ FAR_GUARDED_BY(lock_) = 0;        // that have room
  std::uint64_t table_pages_ FAR_GUARDED_BY(lock_) = 0;  // that have entries
  std::shared_ptr<session_burden> burden_ FAR_GUARDED_BY(lock_);
  allocation* under_way_ FAR_GUARDED_BY(lock_) = nullptr;
  bool ended_ FAR_GUARDED_BY(lock_) = false;
  std::map<std::uint32_t, std::shared_ptr<std::atomic<bool>>> channels_
      FAR_GUARDED_BY(lock_);  // the fence of the connection with a number
  // While there is no connection: since when, and when it may end early and ends in any case; its places in the store.
  std::uint64_t away_since_ns_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t ends_early_at_ns_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t expires_at_ns_ FAR_GUARDED_BY(lock_) = 0;
  bool has_lease_ = true;  // beyond the grace period
  bool spills_ = false;    // its blocks may be on disk
  bool is_leaving_ FAR_GUARDED_BY(lock_) = false;
  std::size_t most_channels_ FAR_GUARDED_BY(lock_) = 0;  // that it has had at the same time
};

// One connection's share in a session: made by store::open and join, ended by store::leave.
struct attachment {
  std::shared_ptr<session> to;
  std::uint32_t channel = 0;
  // Set when a newer connection has taken the channel, or the session has ended. Look at it at least once between two
  // quiescent states, and then do nothing more in the session.
  std::shared_ptr<std::atomic<bool>> fenced;
  // When this ticket has passed, an older connection of the channel can do nothing more; 0: there was none.
  quiescent_states::ticket fence = 0;

  [[nodiscard]] bool is_fenced() const { return fenced->load(std::memory_order_relaxed); }
};

inline constexpr const char* every_tenant = "*";

struct store_settings {
  std::uint64_t memory_bytes = 0;                    // rounded down to whole blocks
  std::uint64_t most_memory_bytes = 0;               // that set_memory() may choose; 0: not more than now
  std::uint64_t grace_ns = 0;                        // how long a session lives without a connection, in any case
  std::uint64_t lease_ns = 0;                        // the same while nobody needs its memory; at least grace_ns
  std::map<std::string, std::uint64_t> quota_bytes;  // of single tenants; the others may use all of the memory
  std::map<std::string, tenant_limits> limits = {};  // of single tenants, and of all others by the name every_tenant
  // Session ids; a simulation passes its own.
  void (*random)(std::span<std::byte>) = wire::fill_random;
  // Blocks of sessions opened without a source of their own; empty: frames of the server.
  std::function<std::unique_ptr<block_source>()> make_source;
  std::shared_ptr<spill_area> spill = nullptr;  // lends its places beyond memory_bytes; nullptr: no disk
};

struct store_report {
  struct tenant_line {
    std::string name;
    std::uint64_t quota_blocks = 0;
    std::uint64_t held_blocks = 0;  // with tables, as the quota counts them
    std::uint64_t table_bytes = 0;
    std::size_t sessions = 0;
    std::size_t connections = 0;
    std::size_t devices = 0;
    tenant_limits limits;
    std::uint64_t delays = 0;  // of connections, for the sake of the limits
  };
  std::uint64_t memory_blocks = 0;  // what may be lent, with those on disk
  std::uint64_t held_blocks = 0;    // with tables, and with those that are not yet reclaimed
  std::uint64_t table_bytes = 0;
  std::uint64_t unreclaimed_blocks = 0;
  std::size_t sessions = 0;
  std::size_t connections = 0;    // of all sessions
  std::size_t away_sessions = 0;  // without a connection
  std::uint64_t away_blocks = 0;  // the blocks of these
  // Of sessions with a connection, or that may come back within their grace, and lose them when the server ends.
  std::uint64_t needed_blocks = 0;
  std::uint64_t sessions_expired = 0;      // since the start: at the end of their lease
  std::uint64_t sessions_ended_early = 0;  // before that, because memory was needed
  bool draining = false;
  std::optional<spill_report> spill;  // nothing: no disk
  std::vector<tenant_line> tenants;
};

// Thread-safe.
class store {
 public:
  // Errors: memory_bytes below one block, no address space.
  [[nodiscard]] static result<std::unique_ptr<store>> create(store_settings settings);
  ~store();
  store(const store&) = delete;
  store& operator=(const store&) = delete;

  // A new session of the tenant, with its first connection. `source` nullptr: as in the settings. Errors, worded for
  // the client: draining, too many sessions.
  [[nodiscard]] result<attachment> open(const std::string& tenant_name, std::uint32_t channel,
                                        std::unique_ptr<block_source> source = nullptr);
  // Whether there is such a session of this tenant.
  [[nodiscard]] bool knows(const std::string& tenant_name, const wire::session_id& id);
  // One more connection of a session. Errors: no such session of this tenant, too many channels.
  [[nodiscard]] result<attachment> join(const std::string& tenant_name, const wire::session_id& id,
                                        std::uint32_t channel);
  // The message to a connection of the session at the end of its handshake, without the proof.
  [[nodiscard]] wire::welcome welcome_to(const session& joined, std::uint32_t maximum_outstanding) const;
  // The connection is gone; after the last one the grace period and the lease begin.
  void leave(attachment& connection, std::uint64_t now_ns);
  // The client's process is about to end: the session is kept for leaving_ns after its last connection, or for the
  // grace period when that is shorter. Until then it serves, and may be joined.
  void note_leaving(session& client);
  static constexpr std::uint64_t leaving_ns = 10'000'000'000;
  // Ends the session now and for all its connections, and frees its blocks.
  void end(session& client);

  // Ends the sessions whose lease is over, a few at a time. Call it often: it also tells the store the time.
  void expire(std::uint64_t now_ns);
  [[nodiscard]] std::uint64_t sessions_ended_early() const;
  // Gives freed blocks back whose quiescent state has passed; returns how many are left to reclaim. Call it often.
  std::uint64_t reclaim();

  // Replaces the quotas. A tenant that holds more than its new quota keeps that, but gets nothing more.
  void set_quotas(std::map<std::string, std::uint64_t> quota_bytes);
  // Replaces the limits. A tenant with more connections than it may have keeps those.
  void set_limits(std::map<std::string, tenant_limits> limits);

  // Lends more from now on, or less, which takes nothing away from clients that are there: nobody gets anything before
  // it fits. Sessions past their grace period end for it. Requires: at least a block, and no more than
  // most_memory_bytes.
  void set_memory(std::uint64_t memory_bytes);

  // No new blocks and no new sessions from now on.
  void drain();
  [[nodiscard]] bool draining() const { return draining_.load(std::memory_order_relaxed); }

  [[nodiscard]] quiescent_states& readers() { return readers_; }
  [[nodiscard]] store_report report() const;
  // A part of it that is cheap, however many sessions there are.
  struct usage {
    std::uint64_t held_blocks = 0;     // with tables
    std::uint64_t spilled_blocks = 0;  // of these, on disk
  };
  [[nodiscard]] usage used() const;

  // Recomputes every count; stops the process when one is wrong. For tests: no allocation may be between two steps.
  void validate() const;

 private:
  friend class session;
  friend class spiller;

  // A block that its session has freed and that a loop may still be reading.
  struct freed {
    std::shared_ptr<session> owner;
    std::uint64_t number = 0;
    quiescent_states::ticket unused_after = 0;
  };
  // A session that has ended, and whose blocks a loop may still be reading.
  struct ended {
    std::shared_ptr<session> owner;
    quiescent_states::ticket unused_after = 0;
    std::uint64_t next = 0;    // blocks before this one have been taken
    std::uint64_t blocks = 0;  // that are left to take
  };

  explicit store(store_settings settings);
  [[nodiscard]] std::shared_ptr<tenant> tenant_named(const std::string& name) FAR_REQUIRES(lock_);
  [[nodiscard]] result<attachment> attach(const std::shared_ptr<session>& to, std::uint32_t channel)
      FAR_REQUIRES(lock_);
  void end_locked(session& client) FAR_REQUIRES(lock_);
  void uncharge(tenant& whose, std::uint64_t blocks) FAR_REQUIRES(lock_);
  [[nodiscard]] static bool has_too_many_connections(const tenant& whose);
  [[nodiscard]] static lent_memory recount(const session& client);
  struct places_count {
    std::uint64_t resident_blocks = 0;
    std::uint64_t places_used = 0;

    places_count& operator+=(const places_count& more) {
      resident_blocks += more.resident_blocks;
      places_used += more.places_used;
      return *this;
    }
  };
  [[nodiscard]] static places_count count_places(const session& client);
  void note_away(session& client, std::uint64_t now_ns) FAR_REQUIRES(lock_);
  void note_return(session& client) FAR_REQUIRES(lock_);
  [[nodiscard]] bool has_room_for(const lent_memory& wanted) const FAR_REQUIRES(lock_) {
    return (held_ + wanted + lent_memory{0, promised_pages_}).whole_blocks() <= memory_blocks_;
  }
  [[nodiscard]] bool is_reclaiming() const FAR_REQUIRES(lock_) { return unreclaimed() > 0; }
  [[nodiscard]] std::uint64_t unreclaimed() const FAR_REQUIRES(lock_) {
    return freed_.size() + ended_blocks_ + being_reclaimed_;
  }
  // How long it is kept without a connection in any case.
  [[nodiscard]] std::uint64_t grace_of(const session& client) const FAR_REQUIRES(lock_);
  // Whether the sessions that may end early hold so much that `wanted` fits when they have ended.
  template <typename Fits>
  [[nodiscard]] bool would_fit(const sessions_in_time& away, Fits fits) const FAR_REQUIRES(lock_);
  // Ends the session that is longest away; false: there is none.
  bool end_longest_away(const sessions_in_time& away) FAR_REQUIRES(lock_);
  // Whether so much fits, or would when all those have ended.
  [[nodiscard]] bool may_fit(const tenant& whose, const lent_memory& wanted) const FAR_REQUIRES(lock_);
  [[nodiscard]] bool give_way(const tenant& whose, const lent_memory& wanted) FAR_REQUIRES(lock_);
  // Ends as many sessions of the tenant with devices as one more device needs. False: all that may end early are not
  // enough, and none ends.
  [[nodiscard]] bool make_way_for_device(const tenant& whose) FAR_REQUIRES(lock_);
  bool give_way_to_machine();
  void forget_if_unused(const std::string& name) FAR_REQUIRES(lock_);
  [[nodiscard]] bool take_freed(std::vector<freed>* batch) FAR_REQUIRES(reclaiming_);
  void take_ended(std::vector<freed>* batch) FAR_REQUIRES(lock_);
  // What may be lent with so much memory.
  [[nodiscard]] std::uint64_t lendable_blocks(std::uint64_t memory_bytes) const;
  [[nodiscard]] std::uint64_t quota_of(const std::string& name) const FAR_REQUIRES(lock_);
  void apply_quotas() FAR_REQUIRES(lock_);
  [[nodiscard]] tenant_limits limits_of(const std::string& name) const FAR_REQUIRES(lock_);
  [[nodiscard]] std::uint64_t free_blocks() const FAR_REQUIRES(lock_) {
    return memory_blocks_ - std::min(memory_blocks_.load(), held_.whole_blocks());
  }

  store_settings settings_;
  std::atomic<std::uint64_t> memory_blocks_;  // what may be lent, with those on disk
  std::unique_ptr<frames> frames_;
  quiescent_states readers_;
  std::atomic<bool> draining_{false};

  thread_mutex reclaiming_;  // one thread at a time reclaims; before lock_
  mutable thread_mutex lock_;
  std::map<std::string, std::uint64_t> quota_bytes_ FAR_GUARDED_BY(lock_);
  std::map<std::string, tenant_limits> limits_ FAR_GUARDED_BY(lock_);
  lent_memory held_ FAR_GUARDED_BY(lock_);
  std::uint64_t promised_pages_ FAR_GUARDED_BY(lock_) = 0;  // the sum over tenants
  std::uint64_t most_blocks_ FAR_GUARDED_BY(lock_);  // the limit, or what was held when it was lowered below that
  std::uint64_t now_ns_ FAR_GUARDED_BY(lock_) = 0;   // the time that the store was told last
  std::uint64_t sessions_expired_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t sessions_ended_early_ FAR_GUARDED_BY(lock_) = 0;
  std::uint64_t being_reclaimed_ FAR_GUARDED_BY(lock_) = 0;  // taken from freed_, not yet uncharged
  std::deque<freed> freed_ FAR_GUARDED_BY(lock_);            // oldest first
  std::deque<ended> ended_ FAR_GUARDED_BY(lock_);            // oldest first
  std::uint64_t ended_blocks_ FAR_GUARDED_BY(lock_) = 0;     // of all of these
  sessions_in_time away_ FAR_GUARDED_BY(lock_);              // those of all tenants
  sessions_in_time expiring_ FAR_GUARDED_BY(lock_);          // the same by the end of their lease
  std::map<std::string, std::shared_ptr<tenant>> tenants_ FAR_GUARDED_BY(lock_);  // those that have sessions
  std::map<wire::session_id, std::shared_ptr<session>> sessions_ FAR_GUARDED_BY(lock_);
  std::unique_ptr<spiller> spiller_;  // its thread uses everything above
};

}  // namespace far::server
