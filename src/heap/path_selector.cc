#include "heap/path_selector.h"

namespace far::heap {

bool path_selector::takes_object_path(const page_use& used, unsigned tag, bool fetched) {
  const unsigned least = dense_units_.load(std::memory_order_relaxed);
  // A page that was read ahead and never used proves nothing, so its path stays the same.
  if (fetched && used == page_use{} && least <= units_a_page) return false;
  // Nothing of it was worth its room for long, so the room does not count.
  const bool passed_by = fetched && !used.again && used.objects >= worth_a_fetch && least <= units_a_page;
  const bool worth_it = used.units >= least || passed_by;
  if (fetched) page_fetches_[tag].note(worth_it);
  if (!worth_it) return true;
  if (fetched || page_fetches_[tag].is_right()) return false;
  return tries_.fetch_add(1, std::memory_order_relaxed) % tried_one_in != 0;
}

}  // namespace far::heap
