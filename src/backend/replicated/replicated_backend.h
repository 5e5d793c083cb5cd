// One layer above backends: striping over several of them, copies, and repair. Written once for all kinds of members.
//
// Virtual slots are cut into groups of 512 (2 MiB). A group is placed on `copies` members when it is first needed: on
// those with the highest rendezvous weight that serve and have room (placement.h). With copies=1 that is plain
// striping.
//
// - Writes go to every serving copy and end when all of them have; one success that leaves every slot current somewhere
//   is needed, otherwise the write fails and the caller keeps the bytes. Copies that did not get the bytes are marked
//   before the write is reported (group.h).
// - Reads go to the copy that will answer first, and to another one when it fails. When only a suspect member has the
//   bytes they wait for it; when nobody has them they fail with EIO, and a line in the log names who had them.
// - tend() probes members that do not answer (member.h), copies what a copy misses, places copies anew where a member
//   is lost (repairer.h), and takes groups that nobody can write to out of use.
// - A member may be added at any time, also to a single one. Groups for which it is among the best move to it.
// - A member may leave at any time, because its server is about to stop or the user removes it. Its copies, also single
//   ones, are replaced by others before they are given up.
//
// Slots of one affinity lie in groups whose members were chosen by it in place of their number: so these groups are on
// the same members, move together to a member that is added, and from one that leaves. Where no such group can be
// placed, any other serves.
//
// Otherwise placement never moves back: a member that returns takes part in groups that are placed from then on. Moving
// would cost a transfer of everything for no gain in safety, and eviction, which always writes to fresh slots, evens
// the load out by itself.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/replicated/layer.h"
#include "backend/replicated/redundancy.h"
#include "backend/replicated/repairer.h"
#include "backend/slot_allocator.h"
#include "base/spin_lock.h"
#include "platform/local_memory.h"

namespace far::backend {

struct named_backend {
  std::unique_ptr<backend> store;
  std::string name;
  std::string zone = {};  // as replicated_options::zones
};

struct replicated_options {
  std::size_t copies = 1;  // 1 to maximum_copies, and at most one for each member
  // How many of them must have a page before it counts as written, 1 to `copies`. While fewer members serve, writes
  // fail.
  std::size_t least_copies = 1;
  // The members' names in messages and in placement. Across restarts they must stay the same only if the members keep
  // their contents. Empty: the members' describe().
  std::vector<std::string> names;
  // The failure domain of each member, a rack for example: members of one zone hold one copy of a page at most. Empty,
  // or an empty name: a member is a zone of its own.
  std::vector<std::string> zones;
  // The most slots that may be allocated; 0: as many as the members have room for.
  std::uint64_t capacity_slots = 0;
  // A member that has not answered for so long counts as lost.
  std::uint64_t lost_after_ns = 10'000'000'000;
  // How long reads wait for members that do not answer; 0: as long as the longest lease that a member has granted, and
  // at least 30 s.
  std::uint64_t patience_ns = 0;
  std::uint64_t scrubbed_pages_per_second = 0;
  std::uint64_t probe_interval_ns = 50'000'000;
  const platform::clock* clock = nullptr;  // nullptr: the machine's; otherwise outlives the backend
  // Connects to one more server, for add_server(); returns it with its name. Empty: there are no others. Errors are for
  // the user.
  std::function<result<named_backend>(std::string_view server)> connect;
  // A server that the members have told of and that shall take part, if there is one; it connects by itself. Called by
  // tend(), does not block. Empty: members are only those that the user names.
  std::function<std::optional<named_backend>()> find_server;
};

class replicated_backend final : public backend, private placement {
 public:
  // A member that does not answer() begins as lost. Errors: no members, too many, or fewer than copies.
  [[nodiscard]] static result<std::unique_ptr<replicated_backend>> create(std::vector<std::unique_ptr<backend>> members,
                                                                          const replicated_options& chosen);
  ~replicated_backend() override;

  [[nodiscard]] result<slot_id> allocate(std::size_t count) override { return allocate_near(no_affinity, count); }
  [[nodiscard]] result<slot_id> allocate_near(affinity with, std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  [[nodiscard]] result<void> add_server(std::string_view server) override;
  [[nodiscard]] result<std::uint64_t> remove_server(std::string_view server, removal step) override;
  void prepare_exit() override;
  void keep_in_place(bool wanted) override { shared_.keep_in_place(wanted); }
  void report_damage(slot_id slot, std::uint8_t bad, std::uint8_t right, damage kind) override;
  [[nodiscard]] bool reduces() const override { return reduces_; }
  [[nodiscard]] bool reduces_rows() const override { return reduces_rows_; }
  [[nodiscard]] std::uint64_t scrubbed_pages_per_second() const override { return scrubbed_pages_per_second_; }
  [[nodiscard]] std::uint64_t read_patience_ns() const override { return shared_.read_patience_ns(); }
  [[nodiscard]] std::uint64_t away_since_ns(slot_id slot) const override { return shared_.away_since_ns(slot); }
  std::uint64_t tend() override;
  void after_fork_in_child() override;
  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

  // Adds a member while calls and transfers are under way; groups move to it. Errors: those of layer::add().
  [[nodiscard]] result<void> add_member(std::unique_ptr<backend> store, std::string name, std::string zone = {});

  // For status reports and tests.
  struct member_status {
    std::string name;
    member_state state;
    std::uint64_t groups;
    std::uint64_t read_latency_ns;
  };
  [[nodiscard]] std::vector<member_status> members() const;
  // Whether every group has all its copies, on members that serve, and none of them misses anything.
  [[nodiscard]] bool is_whole() const;
  [[nodiscard]] repair_counts repaired() const { return repairer_->counts(); }
  // For validators.
  [[nodiscard]] const layer& books() const { return shared_; }

  // Recomputes counts and checks every group's record; requires that no call is under way. Stops the process when
  // something is wrong.
  void validate() const;

 private:
  replicated_backend(std::vector<std::unique_ptr<member>> members, const replicated_options& chosen,
                     const platform::clock& time, std::uint64_t most_slots);

  [[nodiscard]] std::uint64_t keep_as_child();

  // placement: for the repairer.
  [[nodiscard]] int place_copy(std::uint64_t number, bool better) override;
  [[nodiscard]] member_order order_of(std::uint64_t number) const override;
  void remove_copy(std::uint64_t number, std::size_t place) override;
  void set_available(std::uint64_t number, bool available) override;
  [[nodiscard]] bool let_go(std::size_t index) override;

  [[nodiscard]] int place_group(std::uint64_t number) FAR_REQUIRES(placement_lock_);
  [[nodiscard]] std::uint64_t missing_copies() const FAR_REQUIRES(placement_lock_);
  [[nodiscard]] bool can_spare(std::uint64_t extents) const FAR_REQUIRES(placement_lock_);
  [[nodiscard]] int place_next_group(affinity with) FAR_REQUIRES(placement_lock_);
  [[nodiscard]] bool may_grow_for(affinity with, std::size_t count) const FAR_REQUIRES(placement_lock_) {
    const bool shorter_will_do = with == no_affinity && count > 1 && slots_.is_scattered();
    return !shorter_will_do && used_slots_.load() + count <= total_slots_.load();
  }
  [[nodiscard]] std::optional<slot_id> take_slots(affinity with, std::size_t count) FAR_REQUIRES(placement_lock_);
  [[nodiscard]] std::optional<slot_id> take_slots_of(std::uint64_t number, std::size_t count)
      FAR_REQUIRES(placement_lock_);
  [[nodiscard]] bool lacks_copies(std::uint64_t number) const;
  [[nodiscard]] int take_extent(std::size_t index, slot_id* first) FAR_REQUIRES(placement_lock_);
  [[nodiscard]] int ask_for_extent(std::size_t index, slot_id* first) FAR_REQUIRES(placement_lock_);
  void take_in(slot_id first, std::size_t count) FAR_REQUIRES(placement_lock_);
  bool give_up(std::uint64_t number) FAR_REQUIRES(placement_lock_);
  void update_capacity() FAR_REQUIRES(tending_);
  [[nodiscard]] std::uint64_t lacking_copies(std::uint64_t number) const;
  void take_in_found_server() FAR_REQUIRES(tending_);

  const std::uint64_t capacity_limit_;
  const std::uint64_t scrubbed_pages_per_second_;
  const bool reduces_;  // all of its servers do: they are of one kind
  const bool reduces_rows_;
  pid_t process_ = getpid();
  pid_t parent_ = 0;  // in the child of a fork
  const std::function<result<named_backend>(std::string_view)> connect_;
  const std::function<std::optional<named_backend>()> find_server_;
  mutable layer shared_;
  slot_allocator slots_;
  std::unique_ptr<repairer> repairer_;
  redundancy redundancy_;

  // Guards which slots are whose: `slots_`, and of groups `placed`, `available` and `owned` (these also by the group's
  // lock). Taken before a group's lock.
  mutable spin_lock placement_lock_;
  std::uint64_t placed_groups_ FAR_GUARDED_BY(placement_lock_) = 0;
  std::uint64_t free_groups_ FAR_GUARDED_BY(placement_lock_) = 0;     // available, and no slot of theirs is owned
  std::uint64_t first_unplaced_ FAR_GUARDED_BY(placement_lock_) = 0;  // no group below is unplaced
  // The placed groups of each affinity, and which of them is tried first.
  struct groups_of_affinity {
    std::vector<std::uint64_t, platform::local_allocator<std::uint64_t>> numbers;
    std::size_t next = 0;
  };
  std::array<groups_of_affinity, affinities + 1> near_ FAR_GUARDED_BY(placement_lock_);
  std::array<std::uint64_t, maximum_members> asked_since_ns_
      FAR_GUARDED_BY(placement_lock_){};  // the member's server is being asked for room
  std::atomic<std::uint64_t> used_slots_{0};
  std::atomic<std::uint64_t> total_slots_{0};
  std::uint64_t next_capacity_ns_ FAR_GUARDED_BY(tending_) = 0;
  spin_lock tending_;
};

}  // namespace far::backend
