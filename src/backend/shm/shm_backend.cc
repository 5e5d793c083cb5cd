#include "backend/shm/shm_backend.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "backend/shm/client_copy_channel.h"
#include "backend/shm/server_copy_channel.h"
#include "backend/uri.h"
#include "base/check.h"
#include "base/log.h"
#include "base/units.h"
#include "platform/clock.h"

namespace far::backend {
namespace {

using shm::block_map;
using wire::block_slots;

constexpr std::uint64_t millisecond_ns = 1'000'000;

constexpr std::uint64_t idle_ns = 100 * millisecond_ns;
constexpr std::uint64_t busy_ns = millisecond_ns;
constexpr std::uint64_t handshake_step_ns = 10 * millisecond_ns;
constexpr std::size_t largest_depth = 1 << 20;

std::uint64_t now_ns() {
  return platform::monotonic_clock().now_ns();
}

// Of a connection that opens a session.
shm::connection_options settings_of(const shm_options& chosen) {
  shm::connection_options options;
  options.name = chosen.name;
  options.shown.tenant = chosen.tenant;
  options.shown.token = chosen.token;
  return options;
}

constexpr std::uint64_t first_pause_ns = 50 * millisecond_ns;
constexpr std::uint64_t longest_pause_ns = 5'000 * millisecond_ns;

}  // namespace

result<shm_options> parse_shm(const uri& name) {
  if (result<void> known = name.allow_options({"token-file", "capacity", "tenant", "timeout", "copy"}); !known) {
    return known.error();
  }
  shm_options chosen;
  chosen.name = name.rest();
  const auto capacity_bytes = name.size_bytes("capacity");
  if (!capacity_bytes) return capacity_bytes.error();
  chosen.capacity_bytes = capacity_bytes.value().value_or(0);
  const auto timeout = name.duration_ns("timeout");
  if (!timeout) return timeout.error();
  chosen.timeout_ns = timeout.value().value_or(chosen.timeout_ns);
  chosen.tenant = name.text_of("tenant").value_or(chosen.tenant);
  if (!wire::is_tenant_name(chosen.tenant)) {
    return error{"far tier '" + name.text() + "': '" + chosen.tenant +
                     "' is not a valid tenant name; use letters, digits, '-', '_' and '.'",
                 EINVAL};
  }
  const std::string copy = name.text_of("copy").value_or("client");
  if (copy != "client" && copy != "server") {
    return error{"far tier '" + name.text() + "': option 'copy' is 'client' or 'server', not '" + copy + "'", EINVAL};
  }
  chosen.server_copies = copy == "server";
  if (const auto file = name.text_of("token-file")) {
    result<std::string> token = wire::read_token_file(*file);
    if (!token) return error{"far tier '" + name.text() + "': " + token.error().message, token.error().code};
    chosen.token = std::move(token).value();
  }
  return chosen;
}

result<std::unique_ptr<backend>> shm_backend::open(const uri& name) {
  const result<shm_options> chosen = parse_shm(name);
  if (!chosen) return chosen.error();
  return create(chosen.value());
}

result<std::unique_ptr<backend>> shm_backend::create(const shm_options& chosen) {
  const auto named = [&](const error& why) {
    return error{"far tier 'shm:" + chosen.name + "': " + why.message, why.code};
  };
  result<std::unique_ptr<shm::connection>> started = shm::connection::start(settings_of(chosen));
  if (!started) return started.error();
  std::unique_ptr<shm::connection> control = std::move(started).value();
  if (result<void> ready = control->finish(chosen.timeout_ns); !ready) return ready.error();
  const std::uint64_t most_blocks = chosen.capacity_bytes == 0 ? slot_allocator::maximum_capacity_slots / block_slots
                                                               : blocks_for(chosen.capacity_bytes / page_bytes);
  result<std::unique_ptr<block_map>> mapped = block_map::create(control->take_memory(), most_blocks);
  if (!mapped) return named(mapped.error());
  std::uint64_t capacity_slots = mapped.value()->blocks() * block_slots;
  if (chosen.capacity_bytes != 0) capacity_slots = std::min(capacity_slots, chosen.capacity_bytes / page_bytes);
  std::unique_ptr<shm_backend> created(
      new shm_backend(chosen, std::move(control), std::move(mapped).value(), capacity_slots));
  if (result<void> waited = created->wait_for_first_blocks(); !waited) return named(waited.error());
  return std::unique_ptr<backend>(std::move(created));
}

shm_backend::shm_backend(const shm_options& chosen, std::unique_ptr<shm::connection> control,
                         std::unique_ptr<block_map> blocks, std::uint64_t capacity_slots)
    : chosen_(chosen),
      blocks_(std::move(blocks)),
      base_(blocks_->base()),
      leases_(capacity_slots, blocks_for(capacity_slots)),
      current_(control.get()),
      control_(std::move(control)),
      exchange_(chosen.name, *blocks_, leases_) {}

shm_backend::~shm_backend() = default;

shm::connection_options shm_backend::connection_settings(bool joins) const {
  shm::connection_options settings = settings_of(chosen_);
  if (joins) settings.join = current_.load()->welcome().session;
  return settings;
}

// A far tier that is full, or whose server hangs, is noticed here, before the program starts.
result<void> shm_backend::wait_for_first_blocks() {
  control_lock_.assert_held();  // nobody else knows of this backend yet
  const std::uint64_t deadline_ns = now_ns() + chosen_.timeout_ns;
  exchange_.ask_ahead(*control_);
  while (exchange_.is_waiting()) {
    const std::uint64_t current_ns = now_ns();
    if (!control_->alive() || current_ns >= deadline_ns) {
      return error{"the server at " + control_->path() + " does not answer; is it stopped, or short of memory?",
                   ETIMEDOUT};
    }
    control_->wait(deadline_ns - current_ns);
    exchange_.take_replies(*control_);
  }
  populate_granted();
  if (leases_.slots().limit() > 0) return {};
  return error{"the server at " + control_->path() + " has no memory left for tenant '" + chosen_.tenant +
                   "'; raise its --memory or the tenant's --quota",
               ENOSPC};
}

result<slot_id> shm_backend::allocate(std::size_t count) {
  if (const std::optional<slot_id> first = leases_.slots().allocate(count)) return *first;
  if (in_child_.load(std::memory_order_relaxed)) return out_of_slots();
  const lock_guard guard(control_lock_);
  exchange_.take_replies(*control_);
  if (const std::optional<slot_id> first = leases_.slots().allocate(count)) return *first;
  if (count > 1 && leases_.slots().is_scattered()) return out_of_slots();
  return why_no_slot(count);
}

error shm_backend::why_no_slot(std::size_t count) {
  control_->check();
  if (!control_->alive()) {
    note_lost();
    return out_of_slots();
  }
  const std::uint64_t current_ns = now_ns();
  if (exchange_.is_waiting()) {
    if (current_ns - exchange_.waiting_since_ns() < chosen_.timeout_ns) return {"more on its way", EAGAIN};
    if (!std::exchange(hang_noted_, true)) {
      log_line(log_level::warning,
               "far tier 'shm:%s': the server has not answered for %llu ms; is it stopped? Nothing "
               "is lost, but it gives no new memory until it continues",
               chosen_.name.c_str(),
               static_cast<unsigned long long>((current_ns - exchange_.waiting_since_ns()) / millisecond_ns));
    }
    return out_of_slots();
  }
  if (current_ns < exchange_.refused_until_ns() || !exchange_.ask_for_run(*control_, count)) return out_of_slots();
  return {"more on its way", EAGAIN};
}

void shm_backend::free(slot_id first, std::size_t count) {
  leases_.slots().free(first, count);  // blocks that are free as a whole go back in tend()
}

result<std::unique_ptr<channel>> shm_backend::open_channel(std::size_t depth) {
  if (depth == 0 || depth > largest_depth) {
    return error{"a channel of 'shm:' holds between 1 and " + std::to_string(largest_depth) + " requests, not " +
                     std::to_string(depth),
                 EINVAL};
  }
  if (!chosen_.server_copies) return std::unique_ptr<channel>(std::make_unique<shm::client_copy_channel>(*this, depth));
  result<std::unique_ptr<shm::connection>> started = shm::connection::start(connection_settings(true));
  if (!started) return started.error();
  if (result<void> ready = started.value()->finish(chosen_.timeout_ns); !ready) return ready.error();
  return std::unique_ptr<channel>(std::make_unique<shm::server_copy_channel>(*this, std::move(started).value(), depth));
}

const std::byte* shm_backend::direct(slot_id slot) const {
  return chosen_.server_copies || revoked() ? nullptr : address_of(slot);
}

void shm_backend::after_fork_in_child() {
  // The parent's ring must have one user. Its socket, which we inherited, stays open: so the session, whose slots we
  // read, lives as long as we do.
  in_child_.store(true);
}

capacity shm_backend::report() const {
  return {leases_.capacity_slots(), leases_.used()};
}

speed shm_backend::expected_speed() const {
  // The time to copy 4 KiB from cold memory on an ordinary machine; with the server in between, a round trip more.
  if (chosen_.server_copies) return {3'000, 5'000'000'000};
  return {500, 7'000'000'000};
}

std::string shm_backend::describe() const {
  return "shm:" + chosen_.name;
}

std::uint64_t shm_backend::tend() {
  if (in_child_.load(std::memory_order_relaxed)) return no_tending;
  bool busy = false;
  bool alive = false;
  {
    const lock_guard guard(control_lock_);
    control_->check();
    alive = control_->alive();
    if (alive) {
      exchange_.take_replies(*control_);
      exchange_.ask_ahead(*control_);
      if (!exchange_.is_waiting()) hang_noted_ = false;
    } else {
      note_lost();
    }
  }
  // Before anything goes back, because the server ends clients that touch blocks which they no longer have.
  populate_granted();
  {
    const lock_guard guard(control_lock_);
    busy = exchange_.give_back_some(*control_) || exchange_.is_waiting();
  }
  if (alive) return busy ? busy_ns : idle_ns;
  if (revoked()) return no_tending;
  reconnect(now_ns());
  return handshake_step_ns;
}

void shm_backend::populate_granted() {
  shm::block_exchange::granted_ranges ranges;
  std::size_t count = 0;
  {
    const lock_guard guard(control_lock_);
    count = exchange_.take_granted(&ranges);
  }
  for (const shm::block_exchange::block_range& range : std::span(ranges).first(count))
    blocks_->populate(range.first, range.count);
}

// Blocks that are lost with their server are noted once. Their contents can still be read.
void shm_backend::note_lost() {
  if (std::exchange(lost_noted_, true)) return;
  exchange_.forget_questions();
  if (revoked()) {
    log_line(
        log_level::error,
        "far tier 'shm:%s': the server has ended the session and withdrawn its memory; see its log for the reason. "
        "The pages stored there are lost",
        chosen_.name.c_str());
    return;
  }
  log_line(
      log_level::warning,
      "far tier 'shm:%s': the server has exited. Its pages stay readable, but there is no new memory until a server "
      "listens there again: start farheapd --shm %s",
      chosen_.name.c_str(), chosen_.name.c_str());
}

void shm_backend::reconnect(std::uint64_t current_ns) {
  if (next_ == nullptr) {
    if (current_ns < next_attempt_ns_) return;
    pause_ns_ = std::clamp(pause_ns_ * 2, first_pause_ns, longest_pause_ns);
    next_attempt_ns_ = current_ns + pause_ns_;
    // The loss of the server was logged when it happened.
    result<std::unique_ptr<shm::connection>> started = shm::connection::start(connection_settings(false));
    if (!started) return;
    next_ = std::move(started).value();
    next_deadline_ns_ = current_ns + chosen_.timeout_ns;
  }
  const result<shm::connection::state> at = next_->step();
  if (!at) {
    log_line(log_level::warning, "%s; trying again", at.error().message.c_str());
    next_.reset();
  } else if (at.value() == shm::connection::state::ready) {
    adopt(std::move(next_));
  } else if (current_ns >= next_deadline_ns_) {
    next_.reset();
  }
}

void shm_backend::adopt(std::unique_ptr<shm::connection> next) {
  const int memory = next->take_memory();
  const lock_guard guard(control_lock_);
  // Blocks that nobody uses need not become orphans.
  for (std::uint64_t block = 0; block < blocks_for(leases_.slots().limit()); ++block) {
    if (blocks_->state_of(block) != block_map::state::granted) continue;
    if (leases_.take_out(block)) blocks_->discard_orphan(block);
  }
  const result<std::uint64_t> orphans = blocks_->adopt(memory);
  if (!orphans) {
    log_line(log_level::warning, "far tier 'shm:%s': a server is available again, but %s", chosen_.name.c_str(),
             orphans.error().message.c_str());
    return;
  }
  control_->hang_up();
  retired_.push_back(std::exchange(control_, std::move(next)));
  current_.store(control_.get(), std::memory_order_release);
  exchange_.reset();
  pause_ns_ = 0;
  lost_noted_ = false;
  log_line(log_level::info,
           "far tier 'shm:%s': a server is available again; %s lent by the one before stay in memory, uncounted, until "
           "they are freed",
           chosen_.name.c_str(), format_size(orphans.value() * shm::block_bytes).c_str());
}

}  // namespace far::backend
