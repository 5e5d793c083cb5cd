#include "backend/redis/redis_strings.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "backend/redis/command_writer.h"
#include "backend/redis/key_layout.h"
#include "backend/redis/server_facts.h"
#include "base/log.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

// Filling a string with zeros takes the server a fraction of a millisecond, in which it serves nobody.
constexpr unsigned most_makes_under_way = 4;
constexpr unsigned most_others_under_way = 24;

// A lease is renewed this often before it would run out.
constexpr std::uint64_t renewals_per_lease = 4;

constexpr std::uint64_t longest_pause_between_questions_ns = 10'000'000'000;

// Before a renewal that has failed is repeated.
constexpr std::uint64_t longest_pause_after_failure_ns = 1'000'000'000;

constexpr std::byte exists{1};

// The most blocks that a block_table numbers.
constexpr std::size_t most_blocks = std::size_t{1} << 22;

}  // namespace

redis_strings::redis_strings(const redis_settings& settings, const redis_greeting& greeting, redis_session& session,
                             command_ring& commands)
    : settings_(settings),
      greeting_(greeting),
      session_(session),
      commands_(commands),
      lease_ns_(settings.lease_ns),
      existing_(platform::map_local(most_blocks)) {}

redis_strings::~redis_strings() {
  platform::unmap_local(existing_, most_blocks);
}

void redis_strings::build(std::uint32_t epoch, std::uint64_t now_ns) {
  if (!blocks_.active) begin_blocks(epoch, now_ns);
  if (!renewal_.active && now_ns >= renew_at_ns_) begin_renewal(now_ns);
  if (now_ns >= ask_at_ns_) ask(now_ns);
  if (blocks_.active) {
    const bool makes = asked_.op == wire::opcode::allocate && !undoing_;
    build_task(blocks_, makes ? command::kind::make : command::kind::remove,
               makes ? most_makes_under_way : most_others_under_way, epoch, now_ns);
  }
  if (renewal_.active) build_task(renewal_, command::kind::renew, most_others_under_way, epoch, now_ns);
}

void redis_strings::begin_blocks(std::uint32_t epoch, std::uint64_t now_ns) {
  if (control_ == nullptr || !control_->next(epoch, now_ns, &asked_)) return;
  const wire::block_range blocks = asked_.blocks;
  blocks_ = {.active = true,
             .next = blocks.first * strings_per_block,
             .end = (blocks.first + blocks.count) * strings_per_block};
  undoing_ = false;
  blocks_failed_ = 0;
  if (asked_.op == wire::opcode::free) mark_existing(blocks, false);
}

// Also checks whether the server may now evict keys. The child of a fork does not know what its parent has deleted
// since.
void redis_strings::begin_renewal(std::uint64_t now_ns) {
  renew_at_ns_ = now_ns + lease_ns_ / renewals_per_lease;
  renewal_ = {.active = existing_end_ > 0, .next = 0, .end = existing_end_ * strings_per_block};
  ask_for_facts(now_ns);
}

void redis_strings::ask_for_facts(std::uint64_t now_ns) {
  if (asking_for_facts_ || !commands_.has_room()) return;
  asking_for_facts_ = true;
  command& facts = commands_.add(command::kind::facts, now_ns + settings_.timeout_ns);
  command_writer writer(facts.text);
  writer.begin(1);
  writer.text("INFO");
  facts.text_bytes = static_cast<std::uint32_t>(writer.size());
}

// The server may have become a replica. Masters may have joined the cluster, and the first replica of our node begins a
// new history of its data.
void redis_strings::ask(std::uint64_t now_ns) {
  ask_at_ns_ = now_ns + std::min(settings_.timeout_ns, longest_pause_between_questions_ns);
  ask_for_facts(now_ns);
  if (settings_.cluster == nullptr || asking_for_nodes_ || !commands_.has_room()) return;
  asking_for_nodes_ = true;
  command& nodes = commands_.add(command::kind::nodes, now_ns + settings_.timeout_ns);
  command_writer writer(nodes.text);
  writer.begin(2);
  writer.text("CLUSTER");
  writer.text("NODES");
  nodes.text_bytes = static_cast<std::uint32_t>(writer.size());
}

void redis_strings::take_policy(const server_facts* facts) {
  asking_for_facts_ = false;
  if (facts == nullptr || !session_.note_refusal(facts->may_evict) || !facts->may_evict) return;
  log_line(
      log_level::error,
      "far tier %s may evict what this program stores there, and then it is lost: its maxmemory-policy is '%s' now. "
      "Set it back at once: CONFIG SET maxmemory-policy noeviction",
      settings_.peer.c_str(), facts->policy.data());
}

void redis_strings::build_task(string_task& task, command::kind is, unsigned most, std::uint32_t epoch,
                               std::uint64_t now_ns) {
  while (task.next < task.end && task.outstanding < most && commands_.has_room()) {
    const std::uint64_t string = task.next++;
    if (is == command::kind::renew && existing_[string / strings_per_block] != exists) continue;
    ++task.outstanding;
    add_command(is, string, epoch, now_ns);
  }
  if (!task.is_done()) return;
  if (&task == &blocks_) return end_blocks(epoch, now_ns);
  task.active = false;
}

void redis_strings::add_command(command::kind is, std::uint64_t string, std::uint32_t epoch, std::uint64_t now_ns) {
  command& added = commands_.add(is, now_ns + settings_.timeout_ns);
  added.string = string;
  std::array<char, most_key_bytes> room;
  const std::string_view key = write_key(session_.stem(), epoch, string, room);
  command_writer writer(added.text);
  const std::uint64_t lease_ms = lease_ns_ / 1'000'000;
  if (is == command::kind::make) {
    writer.begin(6);
    writer.text("EVALSHA");
    writer.text(greeting_.make_script());
    writer.text("1");
    writer.text(key);
    writer.number(bytes_of_string(string));
    writer.number(lease_ms);
  } else if (is == command::kind::renew) {
    writer.begin(3);
    writer.text("PEXPIRE");
    writer.text(key);
    writer.number(lease_ms);
  } else {
    writer.begin(2);
    writer.text("UNLINK");
    writer.text(key);
  }
  added.text_bytes = static_cast<std::uint32_t>(writer.size());
}

void redis_strings::finish(command::kind is, int code, std::uint32_t epoch, std::uint64_t now_ns) {
  if (is == command::kind::renew) {
    --renewal_.outstanding;
    // All are renewed again, soon: what refuses it now (NOREPLICAS, MISCONF) may be over long before the lease is.
    if (code != 0) {
      const std::uint64_t pause_ns = lease_ns_ / renewals_per_lease / renewals_per_lease;
      renew_at_ns_ = std::min(renew_at_ns_, now_ns + std::min(pause_ns, longest_pause_after_failure_ns));
    }
    if (renewal_.is_done()) renewal_.active = false;
    return;
  }
  --blocks_.outstanding;
  if (code != 0 && is == command::kind::make) {
    blocks_failed_ = code;
    blocks_.end = blocks_.next;
  }
  if (blocks_.is_done()) end_blocks(epoch, now_ns);
}

// Blocks are created all or none: those before the one that failed are deleted again.
void redis_strings::end_blocks(std::uint32_t epoch, std::uint64_t now_ns) {
  if (blocks_failed_ != 0 && !undoing_) {
    undoing_ = true;
    blocks_.next = asked_.blocks.first * strings_per_block;
    return;
  }
  blocks_.active = false;
  const bool created = asked_.op == wire::opcode::allocate && blocks_failed_ == 0;
  if (created) mark_existing(asked_.blocks, true);
  if (control_ == nullptr) return;
  control_->done(asked_, epoch, blocks_failed_ == 0 ? wire::status::ok : wire::status::no_space, now_ns);
}

void redis_strings::mark_existing(wire::block_range blocks, bool exist) {
  std::fill_n(existing_ + blocks.first, blocks.count, exist ? exists : std::byte{});
  if (exist) existing_end_ = std::max(existing_end_, blocks.first + blocks.count);
}

void redis_strings::drop() {
  blocks_ = renewal_ = {};
  undoing_ = asking_for_facts_ = asking_for_nodes_ = false;
  std::fill_n(existing_, existing_end_, std::byte{});
  existing_end_ = 0;
}

void redis_strings::restart_in_child() {
  control_ = nullptr;
  blocks_ = renewal_ = {};
  asking_for_facts_ = asking_for_nodes_ = false;
}

void redis_strings::shorten_leases(std::uint64_t lease_ns) {
  if (lease_ns_ <= lease_ns) return;
  lease_ns_ = lease_ns;
  renewal_.next = 0;  // those that are under way are told again
  renew_at_ns_ = renewal_.active ? renew_at_ns_ : 0;
}

bool redis_strings::begin_removal(std::uint64_t until_ns) {
  control_ = nullptr;
  renew_at_ns_ = until_ns + lease_ns_;
  if (removing_ || blocks_.active) return removing_;
  removing_ = true;
  renewal_.end = renewal_.next;
  asked_ = {wire::opcode::free, {0, existing_end_}};
  blocks_failed_ = 0;
  blocks_ = {.active = existing_end_ > 0, .next = 0, .end = existing_end_ * strings_per_block};
  return true;
}

}  // namespace far::backend
