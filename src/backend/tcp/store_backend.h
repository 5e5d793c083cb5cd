// The base of far tiers over a network: connections that are reopened whenever they break, and blocks of slots that are
// requested ahead of need.
//
// The first connection carries the writes, and asks for blocks; the others carry reads, so that a page that a thread
// waits for never stands behind a batch of evictions. With one connection, it does both. All writes use the same
// connection, so that writes that were given up cannot overtake later ones: the connection's successor fences them off
// first.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/tcp/block_table.h"
#include "backend/tcp/store_connection.h"
#include "base/result.h"
#include "platform/clock.h"
#include "wire/secret_in_file.h"
#include "wire/tls.h"

namespace far::backend {

// What a client shows to the store, and trusts of it: in files that an operator may replace while the program runs.
struct store_secrets {
  const char* name = "";  // for messages: "token"
  std::string file;       // empty: there is none
  wire::secret_in_file::reader read = nullptr;
  std::shared_ptr<wire::tls_context> tls;  // nullptr: no TLS
};

class store_backend : public backend {
 public:
  // ENOSPC also when the store has not been reached for longer than the timeout.
  [[nodiscard]] result<slot_id> allocate(std::size_t count) final;
  void free(slot_id first, std::size_t count) final;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) final;
  std::uint64_t tend() final;
  [[nodiscard]] bool retire() final;
  // False after the store has been away for longer than the timeout.
  [[nodiscard]] bool answers() const final;
  [[nodiscard]] std::uint64_t incarnation() const final { return session().epoch(); }
  [[nodiscard]] capacity report() const final;
  [[nodiscard]] speed expected_speed() const final;

 protected:
  // `server_program`: what runs there, for messages. Requires: `time` outlives the backend.
  store_backend(std::string peer, const char* server_program, std::uint64_t timeout_ns, store_secrets secrets,
                const platform::clock& time);

  [[nodiscard]] static const platform::clock& machine_clock();

  // In the order in which they are used. Requires: they outlive every call.
  void add_connection(store_connection& added) { connections_.push_back(&added); }

  // Connects all, and waits for the first blocks, for up to the timeout, or up to `patience_ns` when that is less.
  [[nodiscard]] result<void> connect(std::uint64_t patience_ns);
  // The store is not there now: tend() goes on trying.
  void connect_later();
  // From now on there are slots to allocate, as soon as the store grants blocks.
  void lend(std::uint64_t slots);
  [[nodiscard]] const block_table* blocks() const { return blocks_.get(); }

  // In the child of a fork, before its connections are restarted.
  void become_child();
  // Whether the connections are this process's own, and not those of a parent.
  [[nodiscard]] bool owns_connections() const;
  // A child of a fork knows that it is one.
  [[nodiscard]] bool is_child() const { return in_child_; }

  [[nodiscard]] const std::string& peer() const { return peer_; }
  [[nodiscard]] const platform::clock& time() const { return time_; }
  [[nodiscard]] std::uint64_t timeout_ns() const { return timeout_ns_; }

 private:
  // How many slots the store has for us, once a connection is ready.
  [[nodiscard]] virtual std::uint64_t usable_slots() const = 0;
  [[nodiscard]] virtual const session_epoch& session() const = 0;
  // Why there are none, and what to do.
  [[nodiscard]] virtual far::error has_no_room() const = 0;
  // Tells the store, by the first connection, that it will not hear from us again; false: it cannot be said now.
  [[nodiscard]] virtual bool say_farewell() { return true; }
  // Whatever else the protocol does in tend(), which returns after so many ns at most. By one thread at a time.
  [[nodiscard]] virtual std::uint64_t tend_more() { return std::numeric_limits<std::uint64_t>::max(); }

  void greet_late_store();
  void renew_secrets();
  [[nodiscard]] result<void> wait_until(const std::function<bool()>& reached, store_connection& connection,
                                        std::uint64_t until_ns);
  void measure_round_trip(std::uint64_t until_ns);
  [[nodiscard]] far::error cannot_open(const store_connection& failed) const FAR_REQUIRES(failed.lock);
  void nudge();

  const std::string peer_;
  const char* const server_program_;
  const std::uint64_t timeout_ns_;
  const platform::clock& time_;
  // Created when the store has said what it has room for; or before, for one that comes later.
  std::unique_ptr<block_table> blocks_;
  std::vector<store_connection*> connections_;
  const char* const secret_name_;
  const std::shared_ptr<wire::tls_context> tls_;
  std::atomic<std::uint64_t> renew_at_ns_{0};
  std::atomic<bool> renewing_{false};  // by one thread at a time, which the others do not wait for
  wire::secret_in_file secret_;        // of the thread that renews
  std::atomic<std::size_t> next_channel_{0};
  std::uint64_t round_trip_ns_ = 0;
  std::atomic<bool> was_reached_{true};  // false only of a store that was missing at the start
  pid_t owner_;                          // the process whose connections these are
  bool in_child_ = false;
};

}  // namespace far::backend
