// `zmem:[?capacity=4G&codec=lz4|zstd&level=N]`, or `zmem:4G`: pages are compressed into memory of this process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/slot_allocator.h"
#include "backend/zmem/page_store.h"
#include "base/spin_lock.h"

namespace far::backend {

class uri;

struct zmem_options {
  std::uint64_t capacity_bytes = 0;  // of compressed bytes; 0: half of the memory that the process may use
  codec_choice codec{};
  // The most slots; 0: as many as could be wanted.
  std::uint64_t slots = 0;
};

class zmem_backend final : public backend {
 public:
  [[nodiscard]] static result<std::unique_ptr<backend>> open(const uri& name);
  [[nodiscard]] static result<std::unique_ptr<backend>> create(const zmem_options& chosen);

  zmem_backend(codec_choice codec, std::uint64_t capacity_bytes, std::uint64_t slots);

  // ENOSPC also where there is no room for so many pages that do not compress; so a slot's first write finds room.
  [[nodiscard]] result<slot_id> allocate(std::size_t count) override;
  void free(slot_id first, std::size_t count) override;
  [[nodiscard]] result<std::unique_ptr<channel>> open_channel(std::size_t depth) override;
  std::uint64_t tend() override;
  [[nodiscard]] bool wants_tending() const override { return store_.wants_tending(); }

  // Not checked: the lock is taken by one and given back by the other two.
  void prepare_fork() override FAR_UNCHECKED_LOCKING { store_.lock_for_fork(); }
  void after_fork_in_parent() override FAR_UNCHECKED_LOCKING { store_.unlock_after_fork(); }
  void after_fork_in_child() override FAR_UNCHECKED_LOCKING;
  void claim_in_child(slot_id slot) override { slots_.claim_in_child(slot); }
  void close_claims_in_child() override;
  [[nodiscard]] bool is_copied_by_fork() const override { return true; }

  [[nodiscard]] capacity report() const override;
  [[nodiscard]] speed expected_speed() const override;
  [[nodiscard]] std::string describe() const override;

 private:
  [[nodiscard]] result<slot_id> take_slots(std::size_t count);

  const codec_choice codec_;
  slot_allocator slots_;
  spin_lock growth_lock_;
  page_store store_;
};

}  // namespace far::backend
