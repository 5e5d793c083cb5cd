#include "object_reads.h"

#include <mutex>

#include "trace.h"

namespace far::simulation {

using engine::read_outcome;

object_reads::object_reads(scheduler& threads, random_source& random, model& expected, engine::engine& engine)
    : threads_(threads), random_(random), expected_(expected), engine_(engine) {
  for (std::size_t i = 0; i < 2; ++i) readers_.push_back(engine_.add_object_reader().value());
}

read_outcome object_reads::start(engine::object_read& one) {
  engine::object_reader& by = *readers_[random_.below(readers_.size())];
  while (!by.lock.try_lock()) threads_.yield();
  const std::lock_guard guard(by.lock, std::adopt_lock);
  const scheduler::engine_call call(threads_);
  return by.start(one);
}

void object_reads::wait_for(const engine::object_read& one) {
  const std::uint64_t since = threads_.slices();
  while (one.outcome.load() == read_outcome::in_flight) {
    if (threads_.slices() - since > 1'000'000) {
      fail("a read of page %llu never ends", static_cast<unsigned long long>(one.page));
    }
    {
      const scheduler::engine_call call(threads_);
      static_cast<void>(engine_.help());
    }
    threads_.sleep(random_.between(1, 2000));
  }
}

void object_reads::read(page_id page, std::size_t part, bool holds_page) {
  std::vector<std::byte> bytes(page_bytes);  // like the page, so that the model finds the part where it belongs
  engine::object_read one;
  one.page = page;
  one.offset_bytes = static_cast<std::uint32_t>(part * model::part_bytes);
  one.length_bytes = static_cast<std::uint32_t>(model::part_bytes);
  one.buffer = bytes.data() + one.offset_bytes;
  threads_.switch_point();
  read_outcome reached = start(one);
  if (reached == read_outcome::in_flight) {
    wait_for(one);
    reached = one.outcome.load();
    if (reached == read_outcome::not_remote) ++lost_races_;
  }
  if (reached != read_outcome::done) return;
  ++done_;
  if (holds_page) check(one, part, bytes.data());
}

// The read was right when it ended. The model is asked only if the page is still as it was then: a thread may have been
// held up in between.
void object_reads::check(const engine::object_read& one, std::size_t part, const std::byte* page_start) {
  const engine::page_word word = engine_.state_for_tests().pages.load(one.page);
  if (word.where() != engine::state::remote || word.place() != one.held.slot) return;
  if (!expected_.is_lost(one.page)) expected_.check(one.page, part, page_start);
}

}  // namespace far::simulation
