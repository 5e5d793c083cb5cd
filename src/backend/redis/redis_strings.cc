// The strings of a session: made and deleted block by block as a block_table asks for it, and renewed before their
// lease runs out.
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "backend/redis/command_writer.h"
#include "backend/redis/key_layout.h"
#include "backend/redis/redis_connection.h"
#include "base/check.h"
#include "base/log.h"

namespace far::backend {
namespace {

// To fill a string with zeros takes the server a fraction of a millisecond, in which it serves nobody.
constexpr unsigned most_makes_under_way = 4;
constexpr unsigned most_others_under_way = 24;

// A lease is renewed this often before it would run out.
constexpr std::uint64_t renewals_per_lease = 4;

constexpr std::byte is_made{1};

}  // namespace

void redis_connection::build_tasks(std::uint64_t now_ns) {
  if (!blocks_.active) begin_blocks(now_ns);
  if (!renewal_.active && now_ns >= renew_at_ns_) begin_renewal(now_ns);
  if (blocks_.active) {
    const bool makes = asked_.op == wire::opcode::allocate && !undoing_;
    build_task(blocks_, makes ? command::kind::make : command::kind::remove,
               makes ? most_makes_under_way : most_others_under_way, now_ns);
  }
  if (renewal_.active) build_task(renewal_, command::kind::renew, most_others_under_way, now_ns);
}

void redis_connection::begin_blocks(std::uint64_t now_ns) {
  if (control_ == nullptr || !control_->next(epoch_, now_ns, &asked_)) return;
  const wire::block_range blocks = asked_.blocks;
  blocks_ = {.active = true,
             .next = blocks.first * strings_per_block,
             .end = (blocks.first + blocks.count) * strings_per_block};
  undoing_ = false;
  blocks_failed_ = 0;
  if (asked_.op == wire::opcode::free) mark_made(blocks, false);
}

// Also looks whether the server may evict by now. The child of a fork does not know what its parent has deleted since.
void redis_connection::begin_renewal(std::uint64_t now_ns) {
  renew_at_ns_ = now_ns + settings_.lease_ns / renewals_per_lease;
  renewal_ = {.active = made_end_ > 0, .next = 0, .end = made_end_ * strings_per_block};
  if (checking_policy_ || !commands_.has_room()) return;
  checking_policy_ = true;
  command& facts = add(command::kind::facts, now_ns + settings_.timeout_ns);
  command_writer writer(facts.text);
  writer.begin(2);
  writer.text("INFO");
  writer.text("memory");
  facts.text_bytes = static_cast<std::uint32_t>(writer.size());
}

void redis_connection::check_policy() {
  checking_policy_ = false;
  if (reply_.is != redis_reply::kind::text) return;  // its user may not ask; it could at the beginning
  const server_facts facts = server_facts::parse(reply_.text);
  if (!session_.note_refusal(facts.may_evict) || !facts.may_evict) return;
  log_line(
      log_level::error,
      "far tier %s may evict what this program stores there, and then it is lost: its maxmemory-policy is '%s' now. "
      "Set it back at once: CONFIG SET maxmemory-policy noeviction",
      settings_.peer.c_str(), facts.policy.data());
}

void redis_connection::build_task(string_task& task, command::kind is, unsigned most, std::uint64_t now_ns) {
  while (task.next < task.end && task.outstanding < most && commands_.has_room()) {
    const std::uint64_t string = task.next++;
    if (is == command::kind::renew && made_[string / strings_per_block] != is_made) continue;
    ++task.outstanding;
    add_string_command(is, string, now_ns);
  }
  if (!task.is_done()) return;
  if (&task == &blocks_) return end_blocks(now_ns);
  task.active = false;
}

void redis_connection::add_string_command(command::kind is, std::uint64_t string, std::uint64_t now_ns) {
  command& added = add(is, now_ns + settings_.timeout_ns);
  added.string = string;
  command_writer writer(added.text);
  const std::uint64_t lease_ms = settings_.lease_ns / 1'000'000;
  if (is == command::kind::make) {
    writer.begin(6);
    writer.text("EVALSHA");
    writer.text(make_script_.data());
    writer.text("1");
    writer.text(key_of(string));
    writer.number(bytes_of_string(string));
    writer.number(lease_ms);
  } else if (is == command::kind::renew) {
    writer.begin(3);
    writer.text("PEXPIRE");
    writer.text(key_of(string));
    writer.number(lease_ms);
  } else {
    writer.begin(2);
    writer.text("UNLINK");
    writer.text(key_of(string));
  }
  added.text_bytes = static_cast<std::uint32_t>(writer.size());
}

void redis_connection::finish_string_command(command::kind is, int code, std::uint64_t now_ns) {
  if (is == command::kind::renew) {
    --renewal_.outstanding;
    if (renewal_.is_done()) renewal_.active = false;
    return;
  }
  --blocks_.outstanding;
  if (code != 0 && is == command::kind::make) {
    blocks_failed_ = code;
    blocks_.end = blocks_.next;
  }
  if (blocks_.is_done()) end_blocks(now_ns);
}

// Blocks are made all or none: those before the one that failed are deleted again.
void redis_connection::end_blocks(std::uint64_t now_ns) {
  if (blocks_failed_ != 0 && !undoing_) {
    undoing_ = true;
    blocks_.next = asked_.blocks.first * strings_per_block;
    return;
  }
  blocks_.active = false;
  const bool made = asked_.op == wire::opcode::allocate && blocks_failed_ == 0;
  if (made) mark_made(asked_.blocks, true);
  if (control_ == nullptr) return;
  control_->done(asked_, epoch_, blocks_failed_ == 0 ? wire::status::ok : wire::status::no_space, now_ns);
}

void redis_connection::mark_made(wire::block_range blocks, bool made) {
  std::fill_n(made_ + blocks.first, blocks.count, made ? is_made : std::byte{});
  if (made) made_end_ = std::max(made_end_, blocks.first + blocks.count);
}

// There is a new epoch, whose table begins anew, too.
void redis_connection::drop_tasks() {
  blocks_ = renewal_ = {};
  undoing_ = checking_policy_ = false;
  std::fill_n(made_, made_end_, std::byte{});
  made_end_ = 0;
}

bool redis_connection::shorten_leases(std::uint64_t lease_ns) {
  if (settings_.lease_ns > lease_ns) {
    settings_.lease_ns = lease_ns;
    renewal_.next = 0;  // those that are under way are told again
    renew_at_ns_ = renewal_.active ? renew_at_ns_ : 0;
  }
  advance(nullptr);
  return phase_ != phase::ready || (!renewal_.active && renew_at_ns_ != 0);
}

void redis_connection::end_session(std::uint64_t patience_ns) {
  const std::uint64_t until_ns = time_.now_ns() + patience_ns;
  control_ = nullptr;
  const std::uint32_t epoch = epoch_;
  bool removing = false;
  while (phase_ == phase::ready && epoch_ == epoch) {
    renew_at_ns_ = until_ns + settings_.lease_ns;
    if (!removing && !blocks_.active) {
      removing = true;
      renewal_.end = renewal_.next;
      asked_ = {wire::opcode::free, {0, made_end_}};
      blocks_failed_ = 0;
      blocks_ = {.active = made_end_ > 0, .next = 0, .end = made_end_ * strings_per_block};
    }
    advance(nullptr);
    const std::uint64_t now_ns = time_.now_ns();
    if ((removing && !blocks_.active) || now_ns >= until_ns) return;
    const std::uint64_t pause_ns = std::min<std::uint64_t>(until_ns - now_ns, 10'000'000);
    const timespec pause{0, static_cast<long>(pause_ns)};
    pollfd watched{.fd = stream_->descriptor(), .events = POLLIN, .revents = 0};
    ppoll(&watched, 1, &pause, nullptr);
  }
}

}  // namespace far::backend
