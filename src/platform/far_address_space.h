// The address space of the engine on a real kernel: the far heap's reserved range, driven through userfaultfd.
#pragma once

#include <cstdint>

#include "platform/address_space.h"
#include "platform/heap_layout.h"
#include "platform/userfaultfd.h"

namespace far::platform {

class far_address_space final : public address_space {
 public:
  // Reserves `heap_bytes` of inaccessible address space (a multiple of 2 MiB, aligned to it).
  [[nodiscard]] static result<std::byte*> reserve(std::uint64_t heap_bytes);
  static void release(std::byte* base, std::uint64_t heap_bytes);

  far_address_space(const heap_layout& heap, userfaultfd& faults, const kernel_features& features);
  ~far_address_space() override;

  // In the child of a fork: the descriptors that name this very process name the parent.
  void reopen_after_fork();

  [[nodiscard]] std::size_t install(page_range range, const std::byte* source, mapping how, int* error_code) override;
  [[nodiscard]] std::size_t lift(page_range range, std::byte* staging) override;
  [[nodiscard]] std::size_t lift_unused(std::span<const page_range> ranges, std::byte* copies) override;
  [[nodiscard]] const std::byte* unused_bytes(page_id page) override { return address_of(page); }
  [[nodiscard]] std::size_t relocate(page_range range, page_id to) override;
  [[nodiscard]] std::size_t drop(std::span<const page_range> ranges) override;
  void allow_write(page_range range) override;
  void wake(page_range range) override;
  [[nodiscard]] result<void> guard(page_range range) override;
  [[nodiscard]] bool unguard(page_range range) override;
  void query_filled(page_range range, std::span<bool> filled) override;
  [[nodiscard]] int populate(page_range range, bool write) override;
  [[nodiscard]] std::byte* map_staging(std::size_t pages) override;
  void unmap_staging(std::byte* staging, std::size_t pages) override;
  void empty_staging(std::byte* staging, std::size_t pages) override;
  [[nodiscard]] result<void> renew_staging(std::byte* staging, std::size_t pages) override;

  [[nodiscard]] std::byte* address_of(page_id page) const { return heap_.address_of(page); }

  // Whether pages leave by a move. A fork may end that: see open_self().
  [[nodiscard]] bool moves_pages() const { return features_.move; }

 private:
  [[nodiscard]] int register_pages(page_range range);
  void open_self();
  void close_self();
  [[nodiscard]] std::uintptr_t start_of(page_range range) const {
    return reinterpret_cast<std::uintptr_t>(address_of(range.first));
  }
  void query_filled(std::uintptr_t start, std::span<bool> filled);
  void query_without_pagemap(std::uintptr_t start, std::span<bool> filled);
  [[nodiscard]] std::size_t count_moved(page_range from, std::uintptr_t to);
  [[nodiscard]] std::size_t move_out(page_range range, std::uintptr_t to, int* error_code);
  [[nodiscard]] std::size_t lift_by_move(page_range range, std::byte* staging);
  [[nodiscard]] std::size_t count_filled(page_range range);
  [[nodiscard]] std::size_t copy_out(page_range range, std::byte* staging);
  [[nodiscard]] std::size_t read_by_force(page_range range, std::byte* into) const;
  [[nodiscard]] std::size_t lift_by_copy(page_range range, std::byte* staging);
  [[nodiscard]] bool own_exclusively(page_id page);
  void unlock_and_drop(page_range page);

  heap_layout heap_;
  userfaultfd& faults_;
  kernel_features features_;
  int proc_descriptor_ = -1;     // /proc as it was at the start, for reopen_after_fork()
  int self_descriptor_ = -1;     // pidfd of this process, for process_madvise
  int pagemap_descriptor_ = -1;  // /proc/self/pagemap; -1 where it may not be read
  int memory_descriptor_ = -1;   // /proc/self/mem, which reads what the program itself may not; -1: there is none
};

}  // namespace far::platform
