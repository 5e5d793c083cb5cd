// The transfers of a connection that wait for a message to travel in.
#pragma once

#include <cerrno>
#include <cstdint>

#include "backend/tcp/transfer.h"

namespace far::backend {

// First in, first out, but for those that are put back. The front may already have parts under way.
class transfer_queue {
 public:
  [[nodiscard]] bool empty() const { return first_ == nullptr; }
  // Requires: not empty.
  [[nodiscard]] transfer& front() const { return *first_; }

  void push(transfer& added) {
    added.next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = &added;
    last_ = &added;
  }

  // Takes one that was under way already, before those whose deadlines are later.
  void put_back(transfer& added) {
    transfer* before = nullptr;
    for (transfer* one = first_; one != nullptr && one->deadline_ns <= added.deadline_ns; one = one->next) before = one;
    added.next = before == nullptr ? first_ : before->next;
    (before == nullptr ? first_ : before->next) = &added;
    if (last_ == before) last_ = &added;
  }

  // Requires: not empty.
  void pop() {
    first_ = first_->next;
    if (first_ == nullptr) last_ = nullptr;
  }

  // Takes out transfers at the front that have failed, or belong to another epoch. Returns whether one is left.
  [[nodiscard]] bool drop_failed(std::uint32_t epoch, const completion_sink* sink) {
    while (first_ != nullptr) {
      if (first_->error_code == 0 && first_->epoch == epoch) return true;
      if (first_->error_code == 0) first_->error_code = ESTALE;
      pop_failed(sink);
    }
    return false;
  }

  // Takes out all but those of `kept_epoch`, which fail with `code`.
  void fail_all_but(std::uint32_t kept_epoch, int code, const completion_sink* sink) {
    transfer* current = first_;
    first_ = last_ = nullptr;
    while (current != nullptr) {
      transfer& taken = *current;
      current = taken.next;
      if (taken.epoch == kept_epoch) {
        push(taken);
        continue;
      }
      taken.error_code = code;
      end_failed(taken, sink);
    }
  }

  // Transfers at the front whose deadline has passed fail.
  void expire(std::uint64_t now_ns, const completion_sink* sink) {
    while (first_ != nullptr && now_ns >= first_->deadline_ns) {
      first_->error_code = ETIMEDOUT;
      pop_failed(sink);
    }
  }

  // Forgets them: they belong to the parent of this process.
  void clear() { first_ = last_ = nullptr; }

 private:
  void pop_failed(const completion_sink* sink) {
    transfer& failed = *first_;
    pop();
    end_failed(failed, sink);
  }

  // It ends as soon as no message with a part of it is on its way any more.
  static void end_failed(transfer& failed, const completion_sink* sink) {
    failed.placed_bytes = failed.io.length_bytes;
    if (failed.outstanding == 0) failed.owner->complete(failed, sink);
  }

  transfer* first_ = nullptr;
  transfer* last_ = nullptr;
};

}  // namespace far::backend
