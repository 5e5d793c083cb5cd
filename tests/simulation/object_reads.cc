#include "object_reads.h"

#include <mutex>

#include "simulated_pager.h"
#include "trace.h"

namespace far::simulation {

using engine::read_outcome;

watched_read::watched_read(model& with, page_id from, std::size_t part) : expected(with), bytes(page_bytes) {
  page = from;
  offset_bytes = static_cast<std::uint32_t>(part * model::part_bytes);
  length_bytes = static_cast<std::uint32_t>(model::part_bytes);
  buffer = bytes.data() + offset_bytes;
  seen.page = from;
  seen.part = part;
  finished = [](engine::object_read& one) noexcept { static_cast<watched_read&>(one).end(); };
}

void watched_read::begin() {
  const scheduler::uninterrupted body;
  is_watched = true;
  expected.begin_watch(seen);
}

void watched_read::end() {
  const scheduler::uninterrupted body;
  if (is_watched) expected.end_watch(seen);
  is_watched = false;
}

object_reads::object_reads(scheduler& threads, random_source& random, model& expected, engine::engine& engine)
    : threads_(threads), random_(random), expected_(expected), engine_(engine) {
  for (std::size_t i = 0; i < 2; ++i) readers_.push_back(engine_.transfers().add_object_reader().value());
}

void object_reads::wait_for(engine::object_reader& reader, watched_read& one) {
  const std::uint64_t since = threads_.slices();
  while (one.is_watched) {
    if (threads_.slices() - since > simulated_pager::longest_wait_slices) {
      fail("a read of page %llu never ends", static_cast<unsigned long long>(one.page));
    }
    {
      const scheduler::engine_call call(threads_);
      static_cast<void>(engine_.transfers().help());
    }
    // A read ends under the reader's lock: one that is seen to be under way with it has not ended yet.
    if (reader.lock.try_lock()) {
      const std::lock_guard guard(reader.lock, std::adopt_lock);
      if (one.is_watched) one.goes_on();
    }
    threads_.sleep(random_.between(1, 2000));
  }
}

void object_reads::read(page_id page, std::size_t part, bool holds_page) {
  watched_read one(expected_, page, part);
  engine::object_reader& reader = *readers_[random_.below(readers_.size())];
  threads_.switch_point();
  while (!reader.lock.try_lock()) threads_.yield();
  read_outcome reached = read_outcome::busy;
  {
    const std::lock_guard guard(reader.lock, std::adopt_lock);
    one.begin();
    const scheduler::engine_call call(threads_);
    reached = reader.start(one);
    if (reached != read_outcome::in_flight) one.end();
  }
  if (reached == read_outcome::in_flight) {
    wait_for(reader, one);
    reached = one.outcome.load();
    if (reached == read_outcome::not_remote) ++lost_races_;
  }
  if (reached != read_outcome::done) return;
  ++done_;
  if (holds_page) one.check();
}

}  // namespace far::simulation
