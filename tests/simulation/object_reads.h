// The object path's reads in the simulated program: parts of pages, out of their slots, while other threads fetch,
// write, discard, move and free the same pages. Or questions about them, and calls of functions, which the far tier
// answers where they are. What was read is kept as copies of lines, which are read as code of -ffar-objects does it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "engine/line_cache.h"
#include "model.h"
#include "random_source.h"
#include "scheduler.h"

namespace far::simulation {

// A read of one part, to where the part belongs in a copy of the page, and what the part held from its begin to its
// end.
struct watched_read : engine::object_read {
  watched_read(model& with, page_id from, std::size_t part);
  ~watched_read() { end(); }
  watched_read(const watched_read&) = delete;
  watched_read& operator=(const watched_read&) = delete;

  // Around the start of the read, and as long as it is seen to be under way, with the reader's lock held.
  void begin();
  void goes_on();
  // The reader calls it for a read that was under way, and the starter for one that has ended at once.
  void end();
  // Stops the run when the bytes are none that the page held while it was read. For a read that is done.
  void check() const { model::check(seen, bytes.data()); }

  model& expected;
  std::vector<std::byte> bytes;
  model::watch seen;
  std::vector<model::watch> also_seen;  // other parts that the question is about; filled before begin()
  bool is_watched = false;
};

class object_reads {
 public:
  object_reads(scheduler& threads, random_source& random, model& expected, engine::engine& engine);

  // One read, and the wait for it. `holds_page`: the caller keeps the page from being moved or freed, so what is read
  // can be compared with what it must hold.
  void read(page_id page, std::size_t part, bool holds_page);
  // Some bytes of it, a few times, from a copy if there is one; else the copies are made.
  void read_copies(page_id page, std::size_t part, bool holds_page);
  void restart_in_child();
  // One question about it. It may stay without an answer; a wrong one stops the run.
  void ask(page_id page, std::size_t part, bool holds_page);

  // The same about rows, of which one page has the keys, and another one the numbers.
  void ask_about_rows(page_id keys, page_id numbers, bool holds_pages);

  [[nodiscard]] std::uint64_t done() const { return done_; }
  [[nodiscard]] std::uint64_t copies_found() const { return copies_found_; }
  [[nodiscard]] std::uint64_t answers() const { return answers_; }
  [[nodiscard]] std::uint64_t answers_about_rows() const { return answers_about_rows_; }
  [[nodiscard]] std::uint64_t function_calls() const { return function_calls_; }
  [[nodiscard]] std::uint64_t function_results() const { return function_results_; }
  [[nodiscard]] std::uint64_t lost_races() const { return lost_races_; }

 private:
  void read_copy(page_id page, std::size_t part, bool holds_page);
  void resize_copies();
  [[nodiscard]] engine::read_outcome run(watched_read& one);
  void wait_for(engine::object_reader& reader, watched_read& one);

  scheduler& threads_;
  random_source& random_;
  model& expected_;
  engine::engine& engine_;
  std::vector<engine::object_reader*> readers_;
  engine::line_cache copies_;
  bool is_resizing_ = false;
  std::uint64_t done_ = 0;
  std::uint64_t copies_found_ = 0;
  std::uint64_t answers_ = 0;
  std::uint64_t answers_about_rows_ = 0;
  std::uint64_t function_calls_ = 0;
  std::uint64_t function_results_ = 0;  // that were answered
  std::uint64_t lost_races_ = 0;
};

}  // namespace far::simulation
