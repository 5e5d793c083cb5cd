// Three servers under a replicated far tier with two copies, four under one with three copies or with parity, and their
// weather: something is wrong with one of them at a time, with three copies also with two, and with the next only when
// every copy is whole again and whatever began before that has ended; besides, the client may be away from all of them
// (network_cluster.h). So no byte may ever be lost. With one copy nothing goes wrong that loses bytes: a server ends
// only when it has said so before, and holds nothing any more.
//
// The kind of servers is left to derived classes: the layer of copies over clients that misbehave by themselves
// (simulated_cluster.h), or over the client, the wire and the server of `tcp:` (network_cluster.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/replicated/replicated_backend.h"
#include "backend/striped/striped_backend.h"
#include "random_source.h"
#include "scheduler.h"
#include "simulated_backend.h"
#include "tier_books.h"

namespace far::simulation {

struct cluster_options {
  std::uint64_t slots = 0;  // that the engine may need
  std::uint64_t maximum_delay_ns = 0;
  std::uint64_t slice_ns = 0;
  std::uint64_t code_slices = 0;  // in which the code of a transfer is run, beside everybody else's
  std::size_t copies = 2;
  bool is_untroubled = false;  // nothing goes wrong with any server before the end
  bool is_calm = false;        // threads are never frozen, so nobody is late for long
  bool has_parity = false;     // rows of two pages and their parity, on four servers
};

class cluster {
 public:
  static constexpr std::size_t most_servers = 4;

  cluster(scheduler& threads, random_source& random, const cluster_options& chosen);
  virtual ~cluster();
  cluster(const cluster&) = delete;
  cluster& operator=(const cluster&) = delete;

  [[nodiscard]] std::size_t server_count() const { return chosen_.has_parity || chosen_.copies == 3 ? 4 : 3; }
  // The far tier; to be taken once, and to outlive this object's users but not this object.
  [[nodiscard]] std::unique_ptr<backend::backend> take_tier() { return std::move(tier_); }
  // The backend that writes to it; before start().
  void serve(const simulated_backend& user) { user_ = &user; }

  // Starts its threads. They end after stop().
  virtual void start();
  virtual void stop() { stopping_ = true; }

  // From now on all is well.
  void clear_weather();
  // Whether every server is well, every copy is whole, and nothing that is under way can still change that. It takes
  // two looks at least.
  [[nodiscard]] bool is_whole();
  // Something will go wrong: earlier observations do not count any more.
  void note_trouble_ahead() { well_since_.reset(); }
  // Waits until it is.
  void wait_until_whole();
  // In the child of a fork of the simulation: all is well from now on, and the parent is stopped; and later, the parent
  // ends. The second returns for how long the child should outlive it, to show what its end has changed.
  virtual void be_in_child() {}
  [[nodiscard]] virtual std::uint64_t end_parent() { return 0; }
  // In some runs, once the program has ended: the memory of a server is damaged, `read` reads everything that is remote
  // and makes it remote again, and whoever noticed has mended it. Requires: every copy is whole.
  virtual void outlive_damage(const std::function<void()>& /*read*/) {}
  // In some runs, once the program has ended: the client is stopped for longer than any server keeps what it has stored
  // there. Returns whether it was; what has not come back before is lost then. Requires: every copy is whole.
  [[nodiscard]] virtual bool outlive_leases() { return false; }
  // In other runs, at that time: the client is cut off for longer than the patience that was set for its reads. `read`
  // is to read what is remote, and to return once that is lost, or false: nothing is. Requires: every copy is whole.
  virtual void outlive_patience(const std::function<bool()>& /*read*/) {}
  // Whether one of these has begun: bytes may be lost, and no copy needs to be there.
  [[nodiscard]] bool may_lose() const { return may_lose_; }
  // Takes a server away for good, with all it holds.
  void lose_one() { take_away(random_.below(server_count())); }

  // Every settled slot has the same bytes in all copies that are current, and there is one. Requires quiescence.
  void check_copies() const;

  // For people, on standard error: who has the bytes of a slot, of which `fits` says whether they are right.
  void describe_slot(backend::slot_id slot, const tier_books::right_bytes& fits) const;

  // Counts of what a run came across, for people, and to see that it did come across everything.
  using count = far::simulation::server_count;
  [[nodiscard]] virtual std::vector<count> counted() const;

 protected:
  // To be called by the constructors of derived classes.
  void make_tier(std::vector<std::unique_ptr<backend::backend>> members, const backend::striped_options& options);

  // One of the things that may go wrong with a server, and the end of all of them.
  virtual void make_trouble(std::size_t server) = 0;
  virtual void after_trouble(std::size_t server) = 0;
  virtual void heal(std::size_t server) = 0;
  virtual void take_away(std::size_t server) = 0;
  // Once all is well for good: whoever uses the servers beside the far tier comes to an end.
  virtual void end_users() {}
  [[nodiscard]] virtual bool all_well() const = 0;
  // Whether the layer knows of all that went wrong before. As long as it does not, nobody is at work on second copies.
  [[nodiscard]] virtual bool all_known() const { return true; }
  // For people, on standard error, when a run is stuck.
  virtual void describe_servers() const = 0;
  // Where the bytes of a server's slot are, or nullptr when it has forgotten them.
  [[nodiscard]] virtual const std::byte* bytes(std::size_t server, backend::slot_id slot) const = 0;
  // Fails when somebody took a server for one that is not well, although all of them are.
  virtual void check_untroubled() const {}
  // How long a trouble lasts: mostly up to `usual_`, now and then up to `longest_`.
  struct duration {
    std::uint64_t usual_slices = 300;
    std::uint64_t longest_slices = 3000;
  };

  // Whether the layer may copy something from it at any moment. Only the writer of a page can tell wrong bytes, so
  // wrong ones would spread.
  [[nodiscard]] bool may_be_copied_from(std::size_t server) const { return books_->may_be_copied_from(server); }
  // How many groups the far tier has a copy of on it.
  [[nodiscard]] std::uint64_t groups_on(std::size_t server) const;
  [[nodiscard]] bool is_ending() const { return calm_ || stopping_; }
  // Whether every copy was whole before the trouble that is being made.
  [[nodiscard]] bool is_first_trouble() const { return is_first_trouble_; }
  // Whether two servers are in trouble, or may be soon.
  [[nodiscard]] bool is_pair_in_trouble() const { return is_pair_; }
  // It has been enough for this time.
  void end_troubles() { are_troubles_over_ = true; }

  // Whether it is the last one, and not part of the far tier yet: nobody connects to it.
  [[nodiscard]] bool is_late(std::size_t server) const { return late_ != nullptr && server + 1 == server_count(); }
  // Whether there was or is one. Its groups are copied from any of their copies.
  [[nodiscard]] bool has_late() const { return has_late_; }
  // Copies that were found to hold other bytes than were written.
  [[nodiscard]] std::uint64_t damaged_slots() const { return books_->members().damaged_slots(); }
  [[nodiscard]] std::uint64_t damaged_slots(std::size_t server) const;
  // To be called by destructors of those whose members refer to what they own.
  void drop_members() {
    late_ = nullptr;
    tier_ = nullptr;
  }
  void note_trouble(std::uint64_t kind, const std::string& server);
  void note_crash() { ++crashes_; }
  void begin_losing() { may_lose_ = true; }

  scheduler& threads_;
  random_source& random_;
  const cluster_options chosen_;
  duration trouble_lasts_;

 private:
  void run_weather();
  void add_late_member();
  // The state that is_whole() saw when everything was well for the first time since something was wrong.
  struct first_look {
    std::uint64_t calls_begun = 0;
    std::uint64_t errors = 0;
  };
  [[nodiscard]] bool looks_whole();
  [[nodiscard]] std::uint64_t errors() const;

  std::unique_ptr<backend::backend> tier_;
  std::unique_ptr<tier_books> books_;
  const simulated_backend* user_ = nullptr;
  std::optional<first_look> well_since_;
  std::unique_ptr<backend::backend> late_;  // of some runs: a member that is added while the program runs
  std::string late_name_;
  bool has_late_ = false;
  bool is_first_trouble_ = false;
  bool is_pair_ = false;
  bool are_troubles_over_ = false;
  bool may_lose_ = false;
  bool stopping_ = false;
  bool calm_ = false;
  bool weather_ended_ = false;
  std::uint64_t troubles_ = 0;
  std::uint64_t crashes_ = 0;
  std::uint64_t pairs_ = 0;  // of servers that were in trouble at the same time
};

}  // namespace far::simulation
