// Slots that are being read without fetching the page (object_reader.h). While such a read is under way, the page may
// come in, be written, discarded or moved, without waiting for the read. Only the slot's bytes must not change. A slot
// is never written twice without being freed in between, so it is enough not to free it: a thread that releases a slot
// with a read under way leaves it to the read, which frees it at its end.
//
// This is the protocol of hazard pointers, for slots. The reader first publishes the slot, then checks that the page is
// still Remote there. A thread that takes the slot from its page first changes the page's word, then looks for readers.
// One of the two sees the other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "backend/backend.h"
#include "base/spin_lock.h"

namespace far::engine {

class slot_reads {
 public:
  // One read under way. Stays where it is from begin() to end().
  struct entry {
    backend::slot_id slot = backend::no_slot;
    bool owns = false;  // its page has given the slot up, and this read frees it
    entry* next = nullptr;
  };

  // From here to end() the slot is not freed, if it was not free already: look at the page's word again afterwards, by
  // residency::load_in_order().
  void begin(entry& one, backend::slot_id slot);
  // Returns whether the caller must free the slot now.
  [[nodiscard]] bool end(entry& one);

  // The page has given the slot up. Returns true when it is being read: then the read frees it.
  [[nodiscard]] bool leave_to_readers(backend::slot_id slot);

  // For validators: slots that no page has and that reads will free.
  [[nodiscard]] std::size_t owned_slots() const;

  // In the child of a fork: the reads stayed with the parent.
  void restart_in_child();

 private:
  static constexpr std::size_t bucket_count = 256;

  struct bucket {
    mutable spin_lock lock;
    std::atomic<entry*> first{nullptr};
  };

  [[nodiscard]] bucket& bucket_of(backend::slot_id slot) { return buckets_[slot % bucket_count]; }
  [[nodiscard]] static entry* find(const bucket& in, backend::slot_id slot);

  std::array<bucket, bucket_count> buckets_;
};

}  // namespace far::engine
