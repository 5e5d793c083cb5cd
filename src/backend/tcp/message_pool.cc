#include "backend/tcp/message_pool.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

constexpr unsigned index_bits = 16;
constexpr std::uint64_t index_mask = (std::uint64_t{1} << index_bits) - 1;

}  // namespace

message_pool::message_pool() : all_(reinterpret_cast<message*>(platform::map_local(messages * sizeof(message)))) {
  reset();
}

message_pool::~message_pool() {
  platform::unmap_local(reinterpret_cast<std::byte*>(all_), messages * sizeof(message));
}

void message_pool::reset() {
  first_ = last_ = nullptr;
  used_ = 0;
  unused_count_ = 0;
  for (std::size_t i = messages - reserved; i > 0; --i) unused_[unused_count_++] = static_cast<std::uint32_t>(i - 1);
  // Fresh memory is all zeros, as an unused message is: only those that were used are written to.
  for (std::size_t i = 0; i < messages; ++i) {
    if (all_[i].in_use) all_[i].in_use = false;
  }
}

void message_pool::limit(std::size_t most) {
  limit_ = std::clamp<std::size_t>(most, 1, messages - reserved);
}

message& message_pool::start(message& taken) {
  FAR_CHECK(!taken.in_use, "a message is used once at a time");
  const auto index = static_cast<std::uint32_t>(&taken - all_);
  taken.in_use = true;
  taken.sent = taken.is_alone = false;
  taken.index = index;
  taken.previous = taken.next = nullptr;
  taken.part_count = taken.slot_count = taken.data_bytes = taken.group_bytes = taken.prefix_bytes = 0;
  taken.cookie = ++serial_ << index_bits | index;
  return taken;
}

message* message_pool::take() {
  if (used_ >= limit_) return nullptr;
  ++used_;
  return &start(all_[unused_[--unused_count_]]);
}

message& message_pool::take_reserved(std::size_t index) {
  return start(all_[messages - reserved + index]);
}

void message_pool::give_back(message& unused) {
  unused.in_use = false;
  if (unused.index >= messages - reserved) return;
  --used_;
  unused_[unused_count_++] = unused.index;
}

void message_pool::append(message& added) {
  added.previous = last_;
  added.next = nullptr;
  (last_ == nullptr ? first_ : last_->next) = &added;
  last_ = &added;
}

void message_pool::remove(message& removed) {
  (removed.previous == nullptr ? first_ : removed.previous->next) = removed.next;
  (removed.next == nullptr ? last_ : removed.next->previous) = removed.previous;
}

message* message_pool::find(std::uint64_t cookie) const {
  const std::uint64_t index = cookie & index_mask;
  if (index >= messages || !all_[index].in_use || all_[index].cookie != cookie) return nullptr;
  return &all_[index];
}

}  // namespace far::backend
