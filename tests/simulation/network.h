// A simulated TCP network between one client and its servers: bytes on their way, one connection at a time.
//
//     network_stream (byte_stream) --> pipe --> server's loop (network_server.h)
//                                  <-- pipe <--
//
// As TCP does, a connection delivers bytes in order and once, but cuts them into segments and joins them as it likes,
// takes its time, has room for so many, and ends whenever it likes: with what was sent before, in the middle of a
// message, or without a word. And as no checksum of TCP's is perfect, a bit may arrive changed.
//
// A bit changes at the place that the seed says, and the nonces and session ids come from the seed, too: the same seed
// gives the same bytes.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/tcp/byte_stream.h"
#include "random_source.h"
#include "scheduler.h"

namespace far::simulation {

// Troubles on the way to one server, in both directions.
struct road {
  bool is_up = false;   // somebody listens at its end
  bool is_cut = false;  // segments stay where they are, and new connections are not answered
  std::uint64_t delay_factor = 1;
  std::uint64_t resets_per_mille = 0;   // of segments: the connection breaks in the middle of one
  std::uint64_t damages_per_mille = 0;  // of segments: a bit of one changes
};

struct network_options {
  std::uint64_t maximum_delay_ns = 0;  // of a segment, on a good day
  std::uint64_t window_bytes = 0;      // how much may be on its way
  std::uint64_t longest_segment_bytes = 0;
  std::uint64_t slice_ns = 0;
};

// Counts of what a run came across.
struct network_counts {
  std::uint64_t connections = 0;  // of the far tier
  std::uint64_t device_streams = 0;
  std::uint64_t device_connections = 0;
  std::uint64_t resets = 0;
  std::uint64_t damaged_segments = 0;
  std::uint64_t refused_connections = 0;
  std::uint64_t bytes = 0;
};

// One direction.
class pipe {
 public:
  [[nodiscard]] bool ended() const { return ended_ && segments_.empty(); }
  [[nodiscard]] std::uint64_t held_bytes() const { return held_bytes_; }
  // When the next bytes arrive; never when there are none.
  [[nodiscard]] std::uint64_t next_ns() const;

 private:
  friend class network;
  struct segment {
    std::vector<std::byte> bytes;
    std::size_t taken = 0;
    std::uint64_t due_ns = 0;
    bool breaks = false;  // the connection, behind these bytes
  };

  std::deque<segment> segments_;
  std::uint64_t held_bytes_ = 0;
  bool ended_ = false;
};

// A connection, from the client's connect() until both sides have closed it.
struct link {
  std::size_t server = 0;
  std::uint64_t answered_at_ns = 0;  // to the client's connect()
  std::uint64_t arrives_at_ns = 0;   // at the server
  bool is_refused = false;
  bool is_accepted = false;
  bool is_broken = false;     // both sides find out when they next look
  bool is_forgotten = false;  // by something between them: nothing arrives any more, and nobody is told
  bool client_closed = false;
  bool server_closed = false;
  bool is_serving = false;  // its handshake has ended well
  bool is_of_device = false;
  pipe up;  // to the server
  pipe down;
};

class network {
 public:
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  network(scheduler& threads, random_source& random, const simulated_clock& time, std::size_t servers,
          const network_options& chosen);
  ~network();
  network(const network&) = delete;
  network& operator=(const network&) = delete;

  [[nodiscard]] road& road_to(std::size_t server) { return roads_[server]; }
  [[nodiscard]] const road& road_to(std::size_t server) const { return roads_[server]; }

  // The client's end of connections to a server. Requires: destroyed before the network.
  [[nodiscard]] std::unique_ptr<backend::byte_stream> make_stream(std::size_t server);
  // The same for a device, which comes and goes: whether it is connected tells nothing about the far tier.
  [[nodiscard]] std::unique_ptr<backend::byte_stream> make_device_stream(std::size_t server);

  // The function to call when something is on its way to the server, and the one that runs the servers while no thread
  // runs.
  void on_arrival(std::size_t server, std::function<void()> callback) { callbacks_[server] = std::move(callback); }
  void on_wait(std::function<void()> pump) { pump_ = std::move(pump); }

  // The server's side.
  [[nodiscard]] std::shared_ptr<link> accept(std::size_t server);
  void close_by_server(link& closed);
  // Each returns how many bytes it moved, or -1: the connection is broken, or, for receive, the other side has closed
  // it.
  [[nodiscard]] std::ptrdiff_t send(link& over, bool upwards, std::span<const iovec> chunks);
  [[nodiscard]] std::ptrdiff_t receive(link& over, bool upwards, std::span<const iovec> into);
  // When something arrives at the server next.
  [[nodiscard]] std::uint64_t next_arrival_ns(std::size_t server) const;

  // Whether each of the server's streams but those of devices has a connection whose handshake has ended well.
  [[nodiscard]] bool all_connected(std::size_t server) const;
  // Whether that has been so for a time. Requests from before may still fail by their own deadlines, although their
  // connection is there again.
  [[nodiscard]] bool connected_for(std::size_t server, std::uint64_t duration_ns) const;
  void note_serving(link& over, bool is_serving);
  // Every connection to the server ends, with a word or without.
  void break_all(std::size_t server);
  // All is well with the road again, also for what is on it.
  void mend(std::size_t server);
  void forget_all(std::size_t server);
  // In the child of a fork: its parent ends. Requires: the child has connected since.
  void break_others(std::size_t server);

  [[nodiscard]] const network_options& options() const { return chosen_; }
  [[nodiscard]] const network_counts& counted() const { return counts_; }

  // Random bytes of the seed: for nonces and session ids. Requires: a network exists.
  static void random_bytes(std::span<std::byte> to);

 private:
  class network_stream;

  [[nodiscard]] std::shared_ptr<link> connect(std::size_t server, bool is_of_device);
  void break_off(link& broken);
  void forget_closed();
  void put_segment(link& over, pipe& into, std::vector<std::byte> bytes);
  [[nodiscard]] std::uint64_t delay_to(std::size_t server);

  scheduler& threads_;
  random_source& random_;
  random_source nonces_;
  const simulated_clock& time_;
  const network_options chosen_;
  std::vector<road> roads_;
  std::vector<std::uint64_t> connected_at_ns_;  // to each server: when a handshake last ended well
  std::vector<std::function<void()>> callbacks_;
  std::function<void()> pump_;
  std::vector<std::vector<network_stream*>> streams_;  // by server
  std::vector<std::shared_ptr<link>> links_;           // that are not closed by both sides
  network_counts counts_;
};

}  // namespace far::simulation
