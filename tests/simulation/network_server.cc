#include "network_server.h"

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "base/xxh3.h"
#include "platform/local_memory.h"
#include "trace.h"

namespace far::simulation {
namespace {

// How often a loop looks around when nothing arrives.
constexpr std::uint64_t longest_sleep_slices = 300;

void flip(std::byte* page, std::size_t bit) {
  page[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
}

}  // namespace

// The memory of one session. It tells validators which blocks the session holds.
class network_server::block_shelf final : public server::block_source {
 public:
  explicit block_shelf(network_server& owner) : owner_(owner) { owner_.shelves_.push_back(this); }
  ~block_shelf() override {
    // Blocks that were freed and not reclaimed when the server crashed.
    for (const auto& [number, block] : blocks_) {
      owner_.forget_damage(block);
      platform::unmap_local(block, server::block_bytes);
    }
    std::erase(owner_.shelves_, this);
  }

  std::byte* take(std::uint64_t number) override {
    std::byte* const block = platform::map_local(server::block_bytes);
    blocks_[number] = block;
    return block;
  }
  void give_back(std::uint64_t number, std::byte* block) override {
    blocks_.erase(number);
    owner_.forget_damage(block);
    platform::unmap_local(block, server::block_bytes);
  }
  [[nodiscard]] const std::map<std::uint64_t, std::byte*>& blocks() const { return blocks_; }
  [[nodiscard]] std::byte* find(std::uint64_t number) const {
    const auto found = blocks_.find(number);
    return found == blocks_.end() ? nullptr : found->second;
  }

 private:
  network_server& owner_;
  std::map<std::uint64_t, std::byte*> blocks_;
};

network_server::network_server(scheduler& threads, random_source& random, const simulated_clock& time, network& joined,
                               network_server_options chosen)
    : threads_(threads),
      random_(random),
      time_(time),
      network_(joined),
      chosen_(std::move(chosen)),
      devices_(random, chosen_.devices),
      loops_(chosen_.loops) {
  if (!chosen_.tokens.empty()) book_ = std::move(server::token_book::parse(chosen_.tokens, "simulated")).value();
  settings_ = {.lent = nullptr,
               .tokens = &book_,
               .patience_ns = chosen_.patience_ns,
               .silence_ns = chosen_.silence_ns,
               .random = network::random_bytes,
               .devices = devices_.host()};
  start();
}

network_server::~network_server() {
  crash();
}

void network_server::start_threads() {
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    const std::string name = chosen_.name + " loop " + std::to_string(i);
    loops_[i].thread = threads_.spawn_elsewhere(name, [this, i] { run_loop(i); });
  }
  network_.on_arrival(chosen_.number, [this] {
    for (const event_loop& loop : loops_) threads_.wake(loop.thread);
  });
}

void network_server::stop() {
  stopping_ = true;
  for (const event_loop& loop : loops_) threads_.wake(loop.thread);
}

void network_server::start() {
  if (lent_ != nullptr) return;
  server::store_settings wanted;
  wanted.memory_bytes = chosen_.memory_blocks * server::block_bytes;
  wanted.grace_ns = chosen_.grace_ns;
  wanted.lease_ns = chosen_.lease_ns;
  wanted.random = network::random_bytes;
  wanted.make_source = [this] { return std::make_unique<block_shelf>(*this); };
  lent_ = std::move(server::store::create(std::move(wanted))).value();
  settings_.lent = lent_.get();
  network::random_bytes(settings_.identity);
  for (event_loop& loop : loops_) loop.reader.emplace(lent_->readers());
  network_.road_to(chosen_.number).is_up = true;
}

void network_server::crash() {
  network_.road_to(chosen_.number).is_up = false;
  if (lent_ == nullptr) return;
  for (event_loop& loop : loops_) {
    for (peer& client : loop.peers) {
      client.talk->messages().leave(time_.now_ns());
      network_.close_by_server(*client.way);
    }
    loop.peers.clear();
    loop.reader.reset();
  }
  settings_.lent = nullptr;
  lent_ = nullptr;
}

void network_server::drain() {
  if (lent_ == nullptr) return;
  lent_->drain();
  for (event_loop& loop : loops_) {
    for (peer& client : loop.peers) client.talk->messages().drain();
  }
}

void network_server::damage(std::uint64_t per_mille) {
  for (const block_shelf* shelf : shelves_) {
    for (const auto& [number, block] : shelf->blocks()) {
      for (std::byte* page = block; page < block + server::block_bytes; page += page_bytes) {
        if (!random_.chance(per_mille)) continue;
        const std::size_t bit = random_.below(page_bytes * 8);
        flip(page, bit);
        damaged_[page] = {.bit = bit, .hash = fastest_xxh3().hash_64(page, page_bytes)};
      }
    }
  }
}

void network_server::undo_damage() {
  for (const auto& [page, spoilt] : damaged_) {
    if (fastest_xxh3().hash_64(page, page_bytes) == spoilt.hash) flip(page, spoilt.bit);
  }
  damaged_.clear();
}

void network_server::forget_damage(std::byte* block) {
  damaged_.erase(damaged_.lower_bound(block), damaged_.lower_bound(block + server::block_bytes));
}

// The block has one owner: a session that lost it has given it back before the next one may ask for it.
const std::byte* network_server::bytes(backend::slot_id slot) const {
  const scheduler::uninterrupted body;
  for (auto shelf = shelves_.rbegin(); shelf != shelves_.rend(); ++shelf) {
    std::byte* const found = (*shelf)->find(slot / wire::block_slots);
    if (found == nullptr) continue;
    std::byte* const page = found + slot % wire::block_slots * page_bytes;
    return damaged_.contains(page) ? nullptr : page;
  }
  return nullptr;
}

void network_server::run_loop(std::size_t number) {
  event_loop& own = loops_[number];
  while (!stopping_) {
    turn(own);
    const std::uint64_t now_ns = time_.now_ns();
    const std::uint64_t longest_ns = longest_sleep_slices * chosen_.slice_ns;
    const std::uint64_t due_ns = std::clamp(next_turn_ns(own), now_ns + 1, now_ns + longest_ns);
    threads_.block(due_ns - now_ns + random_.below(3 * chosen_.slice_ns));
  }
}

void network_server::pump() {
  for (event_loop& loop : loops_) turn(loop);
}

void network_server::turn(event_loop& loop) {
  if (lent_ == nullptr || paused_ || random_.chance(chosen_.stuck_per_mille)) return;
  loop.reader->quiet();
  if (&loop == &loops_.front()) {
    accept_all();
    keep_house();
  }
  for (peer& client : loop.peers) serve(client);
  std::erase_if(loop.peers, [this](peer& client) { return close_if_over(client); });
  // A loop that goes on at once does not sleep.
  if (random_.chance(700)) loop.reader->offline();
}

void network_server::accept_all() {
  while (const std::shared_ptr<link> arrived = network_.accept(chosen_.number)) {
    peer fresh{arrived,
               std::move(server::connection::create(settings_, counters_, nullptr, time_.now_ns(), "client")).value(),
               false};
    loops_[random_.below(loops_.size())].peers.push_back(std::move(fresh));
  }
}

// The work of a turn of the real loop for one connection (server/event_loop.cc).
void network_server::serve(peer& client) {
  const std::uint64_t now_ns = time_.now_ns();
  server::connection& talk = *client.talk;
  const std::span<std::byte> space = talk.receive_space();
  if (!space.empty()) {
    const iovec into{space.data(), space.size()};
    const std::ptrdiff_t received = network_.receive(*client.way, true, {&into, 1});
    if (received < 0) talk.messages().end(server::close_reason::peer_gone);
    if (received > 0) talk.received(static_cast<std::size_t>(received), now_ns);
    client.is_due |= received > 0;
  }
  // Another connection has the loop's attention between the arrival of bytes and their handling.
  if (random_.chance(50)) return;
  client.is_due = false;
  talk.work(now_ns);
  network_.note_serving(*client.way, talk.messages().is_serving() && !talk.messages().is_over());
  const std::span<const std::byte> out = talk.to_send();
  if (out.empty()) return;
  const iovec chunk{const_cast<std::byte*>(out.data()), out.size()};
  const std::ptrdiff_t sent = network_.send(*client.way, false, {&chunk, 1});
  if (sent < 0) talk.messages().end(server::close_reason::peer_gone);
  if (sent > 0) talk.sent(static_cast<std::size_t>(sent), now_ns);
  // There is room for the next replies.
  client.is_due = sent > 0;
}

bool network_server::close_if_over(peer& client) {
  const std::uint64_t now_ns = time_.now_ns();
  if (!client.talk->is_done(now_ns)) return false;
  if (tracing()) {
    trace("%8llu %s ends a connection of %s: %s", static_cast<unsigned long long>(threads_.slices()),
          chosen_.name.c_str(), client.talk->messages().describe().c_str(), name_of(client.talk->messages().reason()));
  }
  client.talk->messages().leave(now_ns);
  client.way->is_serving = false;
  network_.close_by_server(*client.way);
  return true;
}

void network_server::keep_house() {
  const std::uint64_t expired_before = lent_->report().sessions_expired;
  lent_->expire(time_.now_ns());
  settings_.devices->look_after(time_.now_ns());
  std::uint64_t left = lent_->reclaim();
  const std::uint64_t expired = lent_->report().sessions_expired - expired_before;
  sessions_expired_ += expired;
  if (expired == 0) return;
  // Validators are to see at once that the bytes are gone, so no loop is at work on anything of theirs now.
  for (event_loop& loop : loops_) loop.reader->quiet();
  while (left > 0) left = lent_->reclaim();
}

std::uint64_t network_server::next_turn_ns(const event_loop& loop) const {
  if (lent_ == nullptr || paused_) return network::never;
  std::uint64_t next = network_.next_arrival_ns(chosen_.number);
  for (const peer& client : loop.peers) {
    next = std::min(next, client.talk->next_work_ns());
    const bool has_more = client.is_due || !client.talk->to_send().empty() || client.talk->messages().is_over();
    if (has_more) next = std::min(next, time_.now_ns() + 5 * chosen_.slice_ns);
  }
  return next;
}

}  // namespace far::simulation
