#include "network.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/xxh3.h"
#include "trace.h"

namespace far::simulation {
namespace {

// The source of random_bytes(): what is handed to the code under test is a plain function.
random_source* nonces = nullptr;

std::size_t total_of(std::span<const iovec> pieces) {
  std::size_t sum = 0;
  for (const iovec& each : pieces) sum += each.iov_len;
  return sum;
}

}  // namespace

std::uint64_t pipe::next_ns() const {
  return segments_.empty() ? network::never : segments_.front().due_ns;
}

// The client's end of one connection after the other.
class network::network_stream final : public backend::byte_stream {
 public:
  network_stream(network& owner, std::size_t server) : owner_(owner), server_(server) {
    owner_.streams_[server].push_back(this);
  }
  ~network_stream() override {
    close();
    std::erase(owner_.streams_[server_], this);
  }

  int connect() override {
    const scheduler::uninterrupted body;
    if (link_ != nullptr) fail("a stream is connected twice");
    link_ = owner_.connect(server_);
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

  std::ptrdiff_t try_send(std::span<const iovec> pieces) override {
    const scheduler::uninterrupted body;
    if (link_ == nullptr) return -ENOTCONN;
    const std::ptrdiff_t sent = owner_.send(*link_, true, pieces);
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
    // What nobody has read makes the end an abrupt one, as with TCP; and now and then it is one anyway.
    if (link_->down.held_bytes() > 0 || owner_.random_.chance(100)) {
      if (owner_.random_.chance(500)) owner_.break_off(*link_);
    }
    link_ = nullptr;
    owner_.told_[server_]();
    owner_.forget_closed();
  }

  void abandon() override { fail("the simulation does not fork"); }
  int descriptor() const override { return -1; }

  void wait(std::uint64_t timeout_ns) override {
    const scheduler::uninterrupted body;
    const std::uint64_t longest_ns = std::max<std::uint64_t>(1, std::min(timeout_ns, 50 * owner_.chosen_.slice_ns));
    if (!owner_.threads_.inside_thread()) owner_.pump_();
    owner_.threads_.sleep(1 + owner_.random_.below(longest_ns));
  }

  [[nodiscard]] bool is_connected() const {
    return link_ != nullptr && link_->is_serving && !link_->is_broken && !link_->is_forgotten && !link_->server_closed;
  }

 private:
  network& owner_;
  const std::size_t server_;
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
      told_(servers, [] {}),
      pump_([] {}),
      streams_(servers) {
  nonces = &nonces_;
}

network::~network() {
  nonces = nullptr;
}

void network::random_bytes(std::span<std::byte> to) {
  for (std::byte& each : to) each = static_cast<std::byte>(nonces->next() & 0xff);
}

std::unique_ptr<backend::byte_stream> network::make_stream(std::size_t server) {
  return std::make_unique<network_stream>(*this, server);
}

std::uint64_t network::delay_to(std::size_t server) {
  return random_.below(chosen_.maximum_delay_ns * roads_[server].delay_factor + 1);
}

std::shared_ptr<link> network::connect(std::size_t server) {
  auto made = std::make_shared<link>();
  made->server = server;
  made->arrives_at_ns = time_.now_ns() + delay_to(server);
  made->answered_at_ns = made->arrives_at_ns + delay_to(server);
  made->is_refused = !roads_[server].is_up;
  ++counts_.connections;
  counts_.refused_connections += made->is_refused;
  links_.push_back(made);
  told_[server]();
  return made;
}

std::shared_ptr<link> network::accept(std::size_t server) {
  for (const std::shared_ptr<link>& each : links_) {
    const bool waits = each->server == server && !each->is_accepted && !each->is_refused && !each->is_forgotten;
    if (!waits || roads_[server].is_cut || time_.now_ns() < each->arrives_at_ns) continue;
    each->is_accepted = true;
    return each;
  }
  return nullptr;
}

void network::close_by_server(link& closed) {
  closed.server_closed = true;
  closed.down.ended_ = true;
  // What it has not read is gone, and so is the connection.
  if (closed.up.held_bytes() > 0) break_off(closed);
  forget_closed();
}

void network::break_off(link& broken) {
  if (broken.is_broken) return;
  ++counts_.resets;
  broken.is_broken = true;
  for (pipe* each : {&broken.up, &broken.down}) {
    each->segments_.clear();
    each->held_bytes_ = 0;
  }
}

void network::forget_closed() {
  std::erase_if(links_, [](const std::shared_ptr<link>& each) {
    const bool has_server = each->is_accepted && !each->server_closed;
    const bool may_be_accepted = !each->is_accepted && !each->is_refused && !each->is_broken && !each->is_forgotten;
    return each->client_closed && !has_server && !may_be_accepted;
  });
}

void network::put_segment(link& over, pipe& into, std::vector<std::byte> bytes) {
  const road& way = roads_[over.server];
  pipe::segment made;
  made.due_ns = time_.now_ns() + delay_to(over.server);
  if (!into.segments_.empty()) made.due_ns = std::max(made.due_ns, into.segments_.back().due_ns);
  if (random_.chance(way.damages_per_mille)) {
    const std::uint64_t bit = random_.below(bytes.size() * 8);
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    ++counts_.damaged_segments;
  }
  made.breaks = random_.chance(way.resets_per_mille);
  if (made.breaks) bytes.resize(random_.below(bytes.size() + 1));
  made.bytes = std::move(bytes);
  into.held_bytes_ += made.bytes.size();
  into.segments_.push_back(std::move(made));
}

std::ptrdiff_t network::send(link& over, bool upwards, std::span<const iovec> pieces) {
  if (over.is_broken) return -1;
  pipe& into = upwards ? over.up : over.down;
  const std::size_t room = chosen_.window_bytes - std::min<std::size_t>(chosen_.window_bytes, into.held_bytes_);
  std::size_t left = std::min(room, total_of(pieces));
  if (left == 0) return 0;
  if (random_.chance(100)) left = random_.between(1, left);
  const std::size_t sent = left;
  std::vector<std::byte> all;
  all.reserve(sent);
  for (const iovec& each : pieces) {
    const std::byte* const begin = static_cast<const std::byte*>(each.iov_base);
    const std::size_t taken = std::min(each.iov_len, sent - all.size());
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
  if (upwards) told_[over.server]();
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
  for (const std::shared_ptr<link>& each : links_) {
    if (each->server != server || each->is_forgotten || each->server_closed || each->is_refused) continue;
    next = std::min(next, each->is_accepted ? each->up.next_ns() : each->arrives_at_ns);
    if (each->is_broken || each->up.ended()) next = 0;
  }
  return next;
}

bool network::all_connected(std::size_t server) const {
  return std::all_of(streams_[server].begin(), streams_[server].end(),
                     [](const network_stream* each) { return each->is_connected(); });
}

bool network::connected_for(std::size_t server, std::uint64_t duration_ns) const {
  return all_connected(server) && time_.now_ns() - connected_at_ns_[server] >= duration_ns;
}

void network::note_serving(link& over, bool is_serving) {
  if (is_serving && !over.is_serving) connected_at_ns_[over.server] = time_.now_ns();
  over.is_serving = is_serving;
}

void network::mend(std::size_t server) {
  roads_[server] = {.is_up = roads_[server].is_up};
  const std::uint64_t latest_ns = time_.now_ns() + chosen_.maximum_delay_ns;
  for (const std::shared_ptr<link>& each : links_) {
    if (each->server != server) continue;
    each->arrives_at_ns = std::min(each->arrives_at_ns, latest_ns);
    each->answered_at_ns = std::min(each->answered_at_ns, latest_ns);
    for (pipe* direction : {&each->up, &each->down}) {
      for (pipe::segment& one : direction->segments_) one.due_ns = std::min(one.due_ns, latest_ns);
    }
  }
  told_[server]();
}

void network::break_all(std::size_t server) {
  for (const std::shared_ptr<link>& each : links_) {
    if (each->server == server) break_off(*each);
  }
}

void network::forget_all(std::size_t server) {
  for (const std::shared_ptr<link>& each : links_) {
    if (each->server == server) each->is_forgotten = true;
  }
}

}  // namespace far::simulation
