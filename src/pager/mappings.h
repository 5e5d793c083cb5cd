// The far heap for programs that map memory: the replacements of mmap and its relatives, with their semantics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"

namespace far::pager {

class mappings {
 public:
  // How many bytes of a range, from its beginning on, lie in one piece of the far heap (`*inside`), or outside of it.
  [[nodiscard]] virtual std::size_t uniform_bytes(const void* address, std::size_t bytes, bool* inside) const = 0;

  // Like mmap(MAP_PRIVATE | MAP_ANONYMOUS): zeroed pages with protection `protection` (PROT_*), aligned to
  // `alignment_bytes` (a power of two, at least a page). Fails with ENOMEM when the far heap's addresses run out.
  [[nodiscard]] virtual result<std::byte*> map(std::size_t bytes, int protection, std::size_t alignment_bytes) = 0;

  // The same at this very place of the far heap. Mappings that it overlaps are replaced (MAP_FIXED), or refused with
  // EEXIST (MAP_FIXED_NOREPLACE).
  enum class overlap : std::uint8_t { replace, refuse };
  [[nodiscard]] virtual result<void> map_at(std::byte* address, std::size_t bytes, int protection, overlap how) = 0;

  // Gives this place to a mapping of the kernel's: `place` makes the mapping in one step, and returns 0 or an errno
  // value. The old bytes are dropped before. The range belongs to the kernel until it is unmapped. If `place` fails,
  // nothing is mapped there any more.
  [[nodiscard]] virtual result<void> hand_over(std::byte* address, std::size_t bytes, overlap how,
                                               const std::function<int()>& place) = 0;
  // The same for a range that belongs to the kernel as a whole: only keeps `place` apart from other calls. False: some
  // of it is far, and nothing was done. If `place` fails, the kernel decides what is mapped there.
  [[nodiscard]] virtual result<bool> replace_foreign(std::byte* address, std::size_t bytes,
                                                     const std::function<int()>& place) = 0;
  // The kernel has moved away (mremap) what was mapped at a place that was handed over. Far memory there stays.
  [[nodiscard]] virtual result<void> take_back(std::byte* address, std::size_t bytes) = 0;

  // The owner of the mappings that fill the range: the far heap, or the kernel. EFAULT for both, or for a hole.
  enum class origin : std::uint8_t { far, foreign };
  [[nodiscard]] virtual result<origin> origin_of(const std::byte* address, std::size_t bytes) const = 0;

  // Whether all of a range of the far heap is mapped, as far memory or by the kernel.
  [[nodiscard]] virtual bool is_mapped(const std::byte* address, std::size_t bytes) const = 0;

  // How much is mapped in the far heap, reservations and mappings of the kernel's included.
  [[nodiscard]] virtual std::uint64_t mapped_bytes() const = 0;

  // Whether any of a range of the far heap was sealed, far memory or the kernel's.
  [[nodiscard]] virtual bool is_sealed(const std::byte* address, std::size_t bytes) const = 0;

  // The kind of memory at `address`, and how many bytes from there on are alike, of `bytes` at most; EFAULT where no
  // far memory is mapped.
  struct mapping {
    int protection = 0;            // PROT_*
    bool reserved = false;         // nobody could touch it so far, so it is empty
    bool guarded = false;          // MADV_GUARD_INSTALL: inaccessible, whatever the protection
    bool locked = false;           // mlock
    unsigned lock_flags = 0;       // of mlock2
    bool absent_in_child = false;  // MADV_DONTFORK
    bool empty_in_child = false;   // MADV_WIPEONFORK
    bool sealed = false;           // mseal
    bool undumped = false;         // MADV_DONTDUMP
    int huge_pages = 0;            // MADV_HUGEPAGE or MADV_NOHUGEPAGE; 0 if neither was advised
    int key = 0;                   // pkey_mprotect
    std::size_t bytes = 0;
  };
  [[nodiscard]] virtual result<mapping> mapping_at(const std::byte* address, std::size_t bytes) const = 0;

  // What is mapped at `address` in the far heap, and how many bytes from there on are one mapping to the kernel, of
  // `bytes` at most: far memory that mremap moves as one, mappings of the kernel's own, or a hole (no origin).
  struct piece {
    std::optional<origin> owner;
    std::size_t bytes = 0;
  };
  [[nodiscard]] virtual piece piece_at(const std::byte* address, std::size_t bytes) const = 0;

  // Like madvise, for any advice that the kernel knows; docs/run.md lists the effects.
  [[nodiscard]] virtual result<void> advise(std::byte* address, std::size_t bytes, int advice) = 0;

  // Like pkey_mprotect; with the key -1 like mprotect.
  [[nodiscard]] virtual result<void> protect_with_key(std::byte* address, std::size_t bytes, int protection,
                                                      int key) = 0;
  [[nodiscard]] result<void> protect(std::byte* address, std::size_t bytes, int protection) {
    return protect_with_key(address, bytes, protection, -1);
  }
  // Like mseal, but a range with a hole is sealed up to it.
  [[nodiscard]] virtual result<void> seal(std::byte* address, std::size_t bytes) = 0;

  // Calls `call(part, part_bytes)`, which returns 0 or an errno value, for each part of a range that is the kernel's,
  // in order. Of far memory it does nothing. The first error ends it; a hole means ENOMEM, after the rest.
  [[nodiscard]] virtual result<void> for_each_foreign(
      std::byte* address, std::size_t bytes, const std::function<int(std::byte*, std::size_t)>& call) const = 0;

  // Like mlock2 and munlock.
  [[nodiscard]] virtual result<void> lock(std::byte* address, std::size_t bytes, unsigned flags) = 0;
  [[nodiscard]] virtual result<void> unlock(std::byte* address, std::size_t bytes) = 0;
  // What lock() without flags does after all of the range is locked: fills what still is.
  [[nodiscard]] virtual result<void> fill_locked(std::byte* address, std::size_t bytes) = 0;
  virtual void unlock_all() = 0;

  // Like mremap of private memory. Remote pages only change their address: nothing is fetched.
  struct remapping {
    bool may_move = false;        // MREMAP_MAYMOVE
    bool keep_source = false;     // MREMAP_DONTUNMAP
    std::byte* target = nullptr;  // MREMAP_FIXED, to a place within the far heap that does not overlap the old one
  };
  [[nodiscard]] virtual result<std::byte*> remap(std::byte* address, std::size_t old_bytes, std::size_t new_bytes,
                                                 const remapping& how) = 0;

  // Makes the range resident and keeps it so until unpin(), for buffers of system calls in fault_mode::in_line.
  virtual void pin(const std::byte* address, std::size_t bytes) = 0;
  virtual void unpin(const std::byte* address, std::size_t bytes) = 0;

 protected:
  ~mappings() = default;
};

}  // namespace far::pager
