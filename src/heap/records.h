// All records of scopes in this process, whichever runtime their pages belong to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "far/detail/record.h"

namespace far::heap {

using detail::record;

// Makes every thread of the process pass a full memory fence: what they stored before is visible to the caller
// afterwards, and they see what the caller stored before (membarrier(2); asymmetric, so that scopes need no fence of
// their own).
void fence_all_threads() noexcept;

// Calls `seen` with every record that has ever been in use; none is destroyed before the process ends. The lock of the
// registry is not held meanwhile.
void for_each_record(void (*seen)(const record& one, void* context), void* context) noexcept;

template <typename Seen>
void for_each_record(Seen seen) {
  for_each_record([](const record& one, void* context) { (*static_cast<Seen*>(context))(one); }, &seen);
}

// A page that one record holds is held by another from now on, too, and the first may let go of it. Called by the
// second's owner after it holds the page: whoever walks over the records meanwhile walks once more.
void note_handed_over() noexcept;
[[nodiscard]] std::uint64_t count_handed_over() noexcept;

// A record for a stretch of work of the runtime's own, beside that of the fiber or thread that does it. Its pages stay.
class borrowed_record {
 public:
  borrowed_record();
  ~borrowed_record();
  borrowed_record(const borrowed_record&) = delete;
  borrowed_record& operator=(const borrowed_record&) = delete;
  record& operator*() { return *one_; }
  record* operator->() { return one_; }

 private:
  record* one_;
};

}  // namespace far::heap
