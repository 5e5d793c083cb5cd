// The part of redis_connection that finds the node with our strings, in a Redis Cluster.
//
// A connection asks the node that it reaches who owns the hash slot, and goes there. It goes on with what is stored
// there in one case only: when the process that held it has said itself that the slot is another node's now, and that
// node was never a replica of it, or of a node to which the slot was moving. Then the strings were migrated, each as a
// whole. Whoever else owns the slot is a replica that has taken over, and may lack writes that were acknowledged: the
// session is lost there (docs/decisions/0049-redis-cluster.md).
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string_view>

#include "backend/redis/command_writer.h"
#include "backend/redis/redis_connection.h"
#include "base/log.h"

namespace far::backend {
namespace {

constexpr std::string_view asking = "*1\r\n$6\r\nASKING\r\n";

// Of "MOVED 3999 127.0.0.1:6381" and "ASK 3999 127.0.0.1:6381". A node that does not know the host of the other one
// means its own.
node_address address_in(std::string_view redirection, const node_address& sender) {
  node_address found = node_address::parse(redirection.substr(redirection.rfind(' ') + 1));
  if (found.host[0] == '\0') found.host = sender.host;
  return found;
}

// A command of the detour, as its home sends it.
command without_asking(const command& asked) {
  command plain = asked;
  plain.text_bytes -= static_cast<std::uint32_t>(asking.size());
  std::memcpy(plain.text.data(), asked.text.data() + asking.size(), plain.text_bytes);
  plain.has_permission = false;
  return plain;
}

}  // namespace

// One attempt goes to the owner, the next to any other node, which knows if there is another owner.
store_connection::joining redis_connection::join_cluster(const redis_session::view& joined) {
  if (settings_.asks) {
    if (commands_.empty()) return joining::later;
  } else {
    if (!joined.run_id.is_known() && !settings_.writes) return joining::later;
    node_ = session_.target();
    const bool is_elsewhere = attempts_++ % 2 != 0;
    const node_address other = is_elsewhere ? settings_.cluster->any_node() : node_address{};
    if (other.is_known()) node_ = other;
  }
  stream().use_server(node_.host.data(), node_.port, node_.name.data());
  return joining::now;
}

// This node does not own our hash slot.
void redis_connection::leave_for_owner(const server_facts& facts) {
  session_.note(facts);
  session_.note_departure(facts.run_id);
  if (!owner_.owner.is_known()) return break_off(EHOSTDOWN, "no node of the cluster owns its hash slot");
  const bool is_news = session_.retarget(owner_.owner);
  // The one that had our strings may tell what another connection has heard from it before.
  if (!is_news && process_ != facts.run_id) {
    std::array<char, 448> why{};
    static_cast<void>(std::snprintf(why.data(), why.size(),
                                    "the node that owns its hash slot cannot be used (%.300s), and "
                                    "no replica has taken over",
                                    explanation()));
    return break_off(EHOSTDOWN, why.data());
  }
  attempts_ = 0;
  redirect();
}

// The failure in `reply_` may say who has the string that the front command is about. Returns whether it does, and the
// command has been taken care of.
bool redis_connection::is_redirected() {
  command& front = commands_.at(0);
  const std::string_view text = reply_.text;
  const bool is_moved = text.starts_with("MOVED ");
  if (!is_moved && !text.starts_with("ASK ")) return false;
  if (settings_.asks) {
    hand_back_front();
  } else if (is_moved) {
    follow();
  } else if (front.is == command::kind::ping) {
    commands_.pop();
    pinging_ = false;
  } else {
    const lock_guard guard(detour_->lock);
    detour_->adopt(front, address_in(text, node_));
    commands_.pop();
  }
  return true;
}

// The node is asked once more, who owns the hash slot and what histories its data have had. One that does not answer
// any more has said enough: another node tells where the owner is.
void redis_connection::follow() {
  session_.note_departure(process_);
  attempts_ = 0;
  redirect();
}

// The server, or the owner of the hash slot, asked now and then, and then also the node that the slot is moving to.
// Returns false when our strings are lost.
bool redis_connection::take_later_facts(const completion_sink* sink) {
  const server_facts facts = reply_.is == redis_reply::kind::text ? server_facts::parse(reply_.text) : server_facts{};
  if (settings_.asks) {
    session_.note_asked(facts);
    return true;
  }
  if (has_other_data(facts, sink)) return false;
  session_.note(facts);
  strings_.take_policy(reply_.is == redis_reply::kind::text ? &facts : nullptr);
  if (detour_ == nullptr) return true;
  const lock_guard guard(detour_->lock);
  if (detour_->now() == phase::ready && detour_->commands_.has_room()) {
    detour_->adopt(commands_.at(0), detour_->node_);
  }
  return true;
}

std::size_t redis_connection::detoured() const {
  if (detour_ == nullptr) return 0;
  const lock_guard guard(detour_->lock);
  return detour_->commands_.size();
}

// The detour has work only while a hash slot moves.
void redis_connection::advance_others(const completion_sink* sink) {
  detour_next_ns_ = std::numeric_limits<std::uint64_t>::max();
  if (detour_ == nullptr) return;
  {
    const lock_guard guard(detour_->lock);
    const phase seen = detour_->now();
    if (detour_->commands_.empty() && (seen == phase::idle || seen == phase::broken)) return;
    detour_next_ns_ = detour_->advance(sink);
    if (detour_->commands_.empty()) detour_next_ns_ = std::numeric_limits<std::uint64_t>::max();
  }
  // It may have found that our strings are lost, and it may have handed commands back.
  if (session_.epoch() != epoch()) enter_epoch(sink);
  if (now() == phase::ready && has_unsent()) send();
}

// The owner of our hash slot has been reached. If that is the node that the detour has used, its connection is
// succeeded by this one, like an earlier one of our own (last_writers): a write that was given up may lie in it.
void redis_connection::end_detour(const redis_run_id& owner) {
  const lock_guard guard(detour_->lock);
  if (detour_->asked_ != owner) return;
  if (detour_->now() != phase::idle && detour_->now() != phase::broken) detour_->redirect();
  detour_->commands_.rewind();
  detour_->commands_.remove_if([this](const command& left) {
    lock.assert_held();
    commands_.add(without_asking(left));
    return true;
  });
  detour_->asked_ = {};
}

void redis_connection::adopt(const command& asked, const node_address& node) {
  if (session_.epoch() != epoch()) enter_epoch(nullptr);
  if (!(node == node_)) {
    if (now() != phase::idle && now() != phase::broken) redirect();
    node_ = node;
  }
  command& added = commands_.add(asked);
  added.has_permission = false;
  std::memmove(added.text.data() + asking.size(), asked.text.data(), asked.text_bytes);
  std::memcpy(added.text.data(), asking.data(), asking.size());
  added.text_bytes += static_cast<std::uint32_t>(asking.size());
}

// As with an owner, another process at this address, or a replica that has taken over, may lack writes.
void redis_connection::take_facts_of_asked(const server_facts& facts, const completion_sink* sink) {
  const bool is_other = asked_.is_known() && asked_ != facts.run_id;
  if (is_other && (session_.is_successor(facts) || asked_node_ == node_)) {
    return lose_session("the node that its hash slot was moving to was restarted, or a replica has taken over", sink);
  }
  session_.note_asked(facts);
  asked_ = facts.run_id;
  asked_node_ = node_;
}

void redis_connection::retire_others() {
  if (detour_ == nullptr) return;
  const lock_guard guard(detour_->lock);
  detour_->retire();
}

// The node that was asked does not have the string: its owner is asked again.
void redis_connection::hand_back_front() {
  home_->lock.assert_held();  // a detour is advanced by its home
  home_->commands_.add(without_asking(commands_.at(0)));
  commands_.pop();
}

}  // namespace far::backend
