#include "network.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/xxh3.h"
#include "trace.h"

namespace far::simulation {
namespace {

// The source of random_bytes(), a global because the code under test takes a plain function.
random_source* nonces = nullptr;

std::size_t total_of(std::span<const iovec> chunks) {
  std::size_t sum = 0;
  for (const iovec& chunk : chunks) sum += chunk.iov_len;
  return sum;
}

}  // namespace

std::uint64_t pipe::next_ns() const {
  return segments_.empty() ? network::never : segments_.front().due_ns;
}

// The client's end of one connection after the other.
class network::network_stream final : public backend::byte_stream {
 public:
  network_stream(network& owner, std::size_t server, bool is_of_device)
      : owner_(owner), server_(server), is_of_device_(is_of_device) {
    if (!is_of_device) owner_.streams_[server].push_back(this);
  }
  ~network_stream() override {
    close();
    std::erase(owner_.streams_[server_], this);
  }

  int connect() override {
    const scheduler::uninterrupted body;
    if (link_ != nullptr) fail("a stream is connected twice");
    link_ = owner_.connect(server_, is_of_device_);
    return 0;
  }

  int finish_connecting() override {
    const scheduler::uninterrupted body;
    if (link_ == nullptr) return ENOTCONN;
    if (owner_.time_.now_ns() < link_->answered_at_ns || link_->is_forgotten) return EINPROGRESS;
    if (link_->is_refused) return ECONNREFUSED;
    if (link_->is_broken) return ECONNRESET;
    // Its answer is on the road, too.
    return owner_.road_to(server_).is_cut ? EINPROGRESS : 0;
  }

  std::ptrdiff_t try_send(std::span<const iovec> chunks) override {
    const scheduler::uninterrupted body;
    if (link_ == nullptr) return -ENOTCONN;
    const std::ptrdiff_t sent = owner_.send(*link_, true, chunks);
    return sent < 0 ? -ECONNRESET : sent;
  }

  std::ptrdiff_t try_receive(std::span<const iovec> into) override {
    const scheduler::uninterrupted body;
    if (link_ == nullptr) return -ENOTCONN;
    const std::ptrdiff_t received = owner_.receive(*link_, false, into);
    if (received >= 0) return received;
    return link_->is_broken ? -ECONNRESET : -EPIPE;
  }

  void close() override {
    const scheduler::uninterrupted body;
    if (link_ == nullptr) return;
    link_->client_closed = true;
    link_->up.ended_ = true;
    // Bytes that nobody has read make the end an abrupt one, as with TCP; and now and then it is one anyway.
    if (link_->down.held_bytes() > 0 || owner_.random_.chance(100)) {
      if (owner_.random_.chance(500)) owner_.break_off(*link_);
    }
    link_ = nullptr;
    owner_.callbacks_[server_]();
    owner_.forget_closed();
  }

  // The link stays the parent's, from which nothing is heard any more.
  void abandon() override { link_ = nullptr; }
  int descriptor() const override { return -1; }

  void wait(std::uint64_t timeout_ns) override {
    const scheduler::uninterrupted body;
    const std::uint64_t longest_ns = std::max<std::uint64_t>(1, std::min(timeout_ns, 50 * owner_.chosen_.slice_ns));
    if (!owner_.threads_.inside_thread()) owner_.pump_();
    owner_.threads_.sleep(1 + owner_.random_.below(longest_ns));
  }

  [[nodiscard]] bool uses(const link& connection) const { return link_.get() == &connection; }
  [[nodiscard]] bool is_connected() const {
    return link_ != nullptr && link_->is_serving && !link_->is_broken && !link_->is_forgotten && !link_->server_closed;
  }

 private:
  network& owner_;
  const std::size_t server_;
  const bool is_of_device_;
  std::shared_ptr<link> link_;
};

network::network(scheduler& threads, random_source& random, const simulated_clock& time, std::size_t servers,
                 const network_options& chosen)
    : threads_(threads),
      random_(random),
      nonces_(random.next()),
      time_(time),
      chosen_(chosen),
      roads_(servers),
      connected_at_ns_(servers),
      callbacks_(servers, [] {}),
      pump_([] {}),
      streams_(servers) {
  nonces = &nonces_;
}

network::~network() {
  nonces = nullptr;
}

void network::random_bytes(std::span<std::byte> to) {
  for (std::byte& value : to) value = static_cast<std::byte>(nonces->next() & 0xff);
}

std::unique_ptr<backend::byte_stream> network::make_stream(std::size_t server) {
  return std::make_unique<network_stream>(*this, server, false);
}

std::unique_ptr<backend::byte_stream> network::make_device_stream(std::size_t server) {
  ++counts_.device_streams;
  return std::make_unique<network_stream>(*this, server, true);
}

std::uint64_t network::delay_to(std::size_t server) {
  return random_.below(chosen_.maximum_delay_ns * roads_[server].delay_factor + 1);
}

std::shared_ptr<link> network::connect(std::size_t server, bool is_of_device) {
  auto created = std::make_shared<link>();
  created->is_of_device = is_of_device;
  created->server = server;
  created->arrives_at_ns = time_.now_ns() + delay_to(server);
  created->answered_at_ns = created->arrives_at_ns + delay_to(server);
  created->is_refused = !roads_[server].is_up;
  ++(is_of_device ? counts_.device_connections : counts_.connections);
  counts_.refused_connections += created->is_refused;
  links_.push_back(created);
  callbacks_[server]();
  return created;
}

std::shared_ptr<link> network::accept(std::size_t server) {
  for (const std::shared_ptr<link>& connection : links_) {
    const bool waits = connection->server == server && !connection->is_accepted && !connection->is_refused &&
                       !connection->is_forgotten;
    if (!waits || roads_[server].is_cut || time_.now_ns() < connection->arrives_at_ns) continue;
    connection->is_accepted = true;
    return connection;
  }
  return nullptr;
}

void network::close_by_server(link& closed) {
  closed.server_closed = true;
  closed.down.ended_ = true;
  // The bytes that it has not read are gone, and so is the connection.
  if (closed.up.held_bytes() > 0) break_off(closed);
  forget_closed();
}

void network::break_off(link& broken) {
  if (broken.is_broken) return;
  ++counts_.resets;
  broken.is_broken = true;
  for (pipe* direction : {&broken.up, &broken.down}) {
    direction->segments_.clear();
    direction->held_bytes_ = 0;
  }
}

void network::forget_closed() {
  std::erase_if(links_, [](const std::shared_ptr<link>& connection) {
    const bool has_server = connection->is_accepted && !connection->server_closed;
    const bool may_be_accepted =
        !connection->is_accepted && !connection->is_refused && !connection->is_broken && !connection->is_forgotten;
    return connection->client_closed && !has_server && !may_be_accepted;
  });
}

void network::put_segment(link& over, pipe& into, std::vector<std::byte> bytes) {
  const road& way = roads_[over.server];
  pipe::segment part;
  part.due_ns = time_.now_ns() + delay_to(over.server);
  if (!into.segments_.empty()) part.due_ns = std::max(part.due_ns, into.segments_.back().due_ns);
  if (random_.chance(way.damages_per_mille)) {
    const std::uint64_t bit = random_.below(bytes.size() * 8);
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    ++counts_.damaged_segments;
  }
  part.breaks = random_.chance(way.resets_per_mille);
  if (part.breaks) bytes.resize(random_.below(bytes.size() + 1));
  part.bytes = std::move(bytes);
  into.held_bytes_ += part.bytes.size();
  into.segments_.push_back(std::move(part));
}

std::ptrdiff_t network::send(link& over, bool upwards, std::span<const iovec> chunks) {
  if (over.is_broken) return -1;
  pipe& into = upwards ? over.up : over.down;
  const std::size_t room = chosen_.window_bytes - std::min<std::size_t>(chosen_.window_bytes, into.held_bytes_);
  std::size_t left = std::min(room, total_of(chunks));
  if (left == 0) return 0;
  if (random_.chance(100)) left = random_.between(1, left);
  const std::size_t sent = left;
  std::vector<std::byte> all;
  all.reserve(sent);
  for (const iovec& chunk : chunks) {
    const std::byte* const begin = static_cast<const std::byte*>(chunk.iov_base);
    const std::size_t taken = std::min(chunk.iov_len, sent - all.size());
    all.insert(all.end(), begin, begin + taken);
  }
  threads_.note(fastest_xxh3().hash_64(all.data(), all.size()));
  counts_.bytes += sent;
  for (auto from = all.begin(); left > 0;) {
    const std::size_t longest = random_.chance(200) ? 60 : chosen_.longest_segment_bytes;
    const std::size_t step = std::min<std::size_t>(left, random_.between(1, longest));
    put_segment(over, into, {from, from + static_cast<std::ptrdiff_t>(step)});
    from += static_cast<std::ptrdiff_t>(step);
    left -= step;
  }
  if (upwards) callbacks_[over.server]();
  return static_cast<std::ptrdiff_t>(sent);
}

std::ptrdiff_t network::receive(link& over, bool upwards, std::span<const iovec> into) {
  if (over.is_broken) return -1;
  if (over.is_forgotten || roads_[over.server].is_cut) return 0;
  pipe& from = upwards ? over.up : over.down;
  if (from.ended()) return -1;
  std::size_t room = total_of(into);
  if (random_.chance(100) && room > 0) room = random_.between(1, room);
  std::size_t received = 0;
  auto at = into.begin();
  std::size_t filled = 0;  // of *at
  while (received < room && !from.segments_.empty() && from.segments_.front().due_ns <= time_.now_ns()) {
    pipe::segment& first = from.segments_.front();
    while (at != into.end() && filled == at->iov_len) ++at, filled = 0;
    const std::size_t left = first.bytes.size() - first.taken;
    if (left == 0) {
      const bool breaks = first.breaks;
      from.segments_.pop_front();
      if (!breaks) continue;
      break_off(over);
      break;
    }
    const std::size_t step = std::min({left, room - received, at->iov_len - filled});
    std::memcpy(static_cast<std::byte*>(at->iov_base) + filled, first.bytes.data() + first.taken, step);
    first.taken += step;
    filled += step;
    received += step;
    from.held_bytes_ -= step;
  }
  if (received > 0 || !over.is_broken) return static_cast<std::ptrdiff_t>(received);
  return -1;
}

std::uint64_t network::next_arrival_ns(std::size_t server) const {
  if (roads_[server].is_cut) return never;
  std::uint64_t next = never;
  for (const std::shared_ptr<link>& connection : links_) {
    if (connection->server != server || connection->is_forgotten || connection->server_closed || connection->is_refused)
      continue;
    next = std::min(next, connection->is_accepted ? connection->up.next_ns() : connection->arrives_at_ns);
    if (connection->is_broken || connection->up.ended()) next = 0;
  }
  return next;
}

bool network::all_connected(std::size_t server) const {
  return std::all_of(streams_[server].begin(), streams_[server].end(),
                     [](const network_stream* stream) { return stream->is_connected(); });
}

bool network::connected_for(std::size_t server, std::uint64_t duration_ns) const {
  return all_connected(server) && time_.now_ns() - connected_at_ns_[server] >= duration_ns;
}

void network::note_serving(link& over, bool is_serving) {
  if (is_serving && !over.is_serving && !over.is_of_device) connected_at_ns_[over.server] = time_.now_ns();
  over.is_serving = is_serving;
}

void network::mend(std::size_t server) {
  roads_[server] = {.is_up = roads_[server].is_up};
  const std::uint64_t latest_ns = time_.now_ns() + chosen_.maximum_delay_ns;
  for (const std::shared_ptr<link>& connection : links_) {
    if (connection->server != server) continue;
    connection->arrives_at_ns = std::min(connection->arrives_at_ns, latest_ns);
    connection->answered_at_ns = std::min(connection->answered_at_ns, latest_ns);
    for (pipe* direction : {&connection->up, &connection->down}) {
      for (pipe::segment& one : direction->segments_) one.due_ns = std::min(one.due_ns, latest_ns);
    }
  }
  callbacks_[server]();
}

void network::break_all(std::size_t server) {
  for (const std::shared_ptr<link>& connection : links_) {
    if (connection->server == server) break_off(*connection);
  }
}

void network::break_others(std::size_t server) {
  for (const std::shared_ptr<link>& connection : links_) {
    const bool is_ours = std::any_of(streams_[server].begin(), streams_[server].end(),
                                     [&](const network_stream* stream) { return stream->uses(*connection); });
    if (connection->server == server && !is_ours) break_off(*connection);
  }
}

void network::forget_all(std::size_t server) {
  for (const std::shared_ptr<link>& connection : links_) {
    if (connection->server == server) connection->is_forgotten = true;
  }
}

}  // namespace far::simulation
