#include "backend/lineage/slot_share.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"

namespace far::backend {

// Straight to the kernel: the program's mmap may be the preload library's own.
slot_share slot_share::make(slot_id end) {
  slot_share share;
  share.end_ = end;
  const std::size_t bytes =
      round_up(sizeof(header) + (end + word_bits - 1) / word_bits * sizeof(std::uint64_t), page_bytes);
  const long mapped =
      syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
  if (mapped == -1) return share;
  // Zero bytes are a table without claims.
  share.shared_ = reinterpret_cast<header*>(mapped);
  share.bytes_ = bytes;
  return share;
}

void slot_share::close() noexcept {
  if (shared_ == nullptr) return;
  const long failed = syscall(SYS_munmap, shared_, bytes_);
  FAR_CHECK(failed == 0, "a table of slots can be unmapped");
  shared_ = nullptr;
}

bool slot_share::holds(slot_id slot) const {
  if (slot >= end_) return false;
  if (shared_ == nullptr || !shared_->claimed.load(std::memory_order_acquire)) return true;
  return (word_of(slot).load(std::memory_order_acquire) & bit_of(slot)) != 0;
}

bool slot_share::is_empty() const {
  return end_ == 0 || (shared_ != nullptr && shared_->claimed.load(std::memory_order_acquire) &&
                       shared_->held.load(std::memory_order_acquire) == 0);
}

std::uint64_t slot_share::released() const {
  return shared_ == nullptr ? 0 : shared_->released.load(std::memory_order_acquire);
}

void slot_share::note_heirs() {
  if (shared_ != nullptr) shared_->has_heirs.store(true, std::memory_order_release);
}

bool slot_share::owner_has_ended() const {
  if (shared_ == nullptr) return false;
  const pid_t owner = shared_->owner.load(std::memory_order_acquire);
  if (owner == 0 || shared_->has_heirs.load(std::memory_order_acquire)) return false;
  return kill(owner, 0) != 0 && errno == ESRCH;
}

void slot_share::claim(slot_id slot) {
  FAR_CHECK(slot < end_, "a child refers to slots of its parent's");
  if (shared_ == nullptr) return;
  const std::uint64_t before = word_of(slot).fetch_or(bit_of(slot), std::memory_order_relaxed);
  if ((before & bit_of(slot)) == 0) shared_->held.fetch_add(1, std::memory_order_relaxed);
}

void slot_share::close_claims() {
  if (shared_ == nullptr) return;
  shared_->owner.store(getpid(), std::memory_order_relaxed);
  shared_->claimed.store(true, std::memory_order_release);
  // The parent has kept slots that it freed meanwhile, and examines them again.
  shared_->released.fetch_add(1, std::memory_order_release);
}

void slot_share::release(slot_id slot) {
  if (shared_ == nullptr) return;
  const std::uint64_t before = word_of(slot).fetch_and(~bit_of(slot), std::memory_order_acq_rel);
  FAR_CHECK((before & bit_of(slot)) != 0, "a child lets go of a slot once");
  shared_->held.fetch_sub(1, std::memory_order_acq_rel);
  shared_->released.fetch_add(1, std::memory_order_release);
}

}  // namespace far::backend
