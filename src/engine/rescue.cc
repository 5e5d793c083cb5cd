#include "engine/rescue.h"

#include <cerrno>

#include "base/check.h"

namespace far::engine {

bool rescue(core_for_misses& shared, page_id page, page_word word) {
  FAR_DCHECK(word.where() == state::evicting && word.lifted(), "only a lifted page can be rescued");
  const std::size_t staging_page = word.place();
  // One frame more until the batch is retired. I2 allows for one batch of them; later rescuers wait.
  if (!shared.local.try_charge_above(batch_pages) && !shared.charge_for_miss()) return false;
  if (!shared.pages.transition(page, word, word.with_state(state::fetching))) {
    shared.local.release(1);
    return false;
  }
  bring_back(shared, page, staging_page);
  shared.count.rescues.add();
  return true;
}

void bring_back(core_for_misses& shared, page_id page, std::size_t staging_page) {
  const std::byte* const bytes = shared.staged(staging_page);
  backoff waiting;
  int failure = 0;
  while (shared.space.install({page, 1}, bytes, platform::mapping::writable, &failure) != 1) {
    wait_for_kernel_memory(failure, &waiting);
  }
  shared.pages.update(page, [](page_word word) {
    return word.with_state(state::resident)
        .with_lifted(false)
        .with_place(page_word::no_place)
        .with_dirty(true)
        .with_accessed(true);
  });
  shared.rescued[staging_page].store(1, std::memory_order_release);
  shared.admit(page, temperature::hot);
}

}  // namespace far::engine
