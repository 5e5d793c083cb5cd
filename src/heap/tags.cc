#include "heap/tags.h"

namespace far::heap {

std::optional<unsigned> tag_table::take(phase from) {
  const lock_guard guard(lock_);
  for (unsigned number = 1; number < most_tags; ++number) {
    if (phases_[number] != from) continue;
    phases_[number] = phase::prepared;
    return number;
  }
  return std::nullopt;
}

std::optional<unsigned> tag_table::take_unused() {
  return take(phase::unused);
}

std::optional<unsigned> tag_table::take_given_back() {
  return take(phase::given_back);
}

tag_key tag_table::begin(unsigned number, tag_replacement how) {
  const lock_guard guard(lock_);
  phases_[number] = phase::in_use;
  tag_state& one = of_[number];
  one.how.store(how, std::memory_order_relaxed);
  // The first tag of a number is the number itself. After some hundred million others it comes again.
  const std::uint32_t before = one.state.load(std::memory_order_relaxed);
  const tag_key tag = (before == 0 ? number : before + most_tags) & ~in_use;
  one.state.store(tag | in_use, std::memory_order_seq_cst);
  return tag;
}

void tag_table::cancel(unsigned number) {
  const lock_guard guard(lock_);
  phases_[number] = phase::given_back;
}

bool tag_table::end(tag_key tag) {
  const lock_guard guard(lock_);
  const unsigned number = number_of(tag);
  tag_state& one = of_[number];
  if (phases_[number] != phase::in_use || one.state.load(std::memory_order_relaxed) != (tag | in_use)) return false;
  phases_[number] = phase::ending;
  one.state.store(tag, std::memory_order_seq_cst);
  one.how.store(tag_replacement{}, std::memory_order_relaxed);
  return true;
}

void tag_table::ended(unsigned number) {
  const lock_guard guard(lock_);
  phases_[number] = phase::given_back;
}

}  // namespace far::heap
