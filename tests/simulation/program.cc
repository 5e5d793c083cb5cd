#include "program.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/check.h"
#include "engine/block_guards.h"
#include "trace.h"

namespace far::simulation {

program::program(scheduler& threads, random_source& random, simulated_kernel& kernel, simulated_pager& pager,
                 model& expected, engine::engine& engine, const program_options& chosen)
    : threads_(threads),
      random_(random),
      kernel_(kernel),
      pager_(pager),
      expected_(expected),
      engine_(engine),
      objects_(threads, random, expected, engine),
      chosen_(chosen),
      taken_(chosen.heap_pages) {}

void program::run_thread() {
  engine::read_ahead_state streams;
  for (std::uint64_t i = 0; i < chosen_.operations_a_thread; ++i) {
    do_something(streams);
    ++operations_;
    threads_.yield();
  }
}

void program::do_something(engine::read_ahead_state& streams) {
  if (forks_ < chosen_.most_forks && random_.chance(10)) return fork_one();
  const std::uint64_t drawn = random_.below(100);
  if (allocated_pages_ < chosen_.target_pages && drawn < 25) return allocate(streams);
  if (drawn < 45) return access_at_random(streams);
  if (drawn < 60) return scan(streams);
  if (drawn < 64) return discard_some();
  if (drawn < 65) return chosen_.drops_behind ? drop_behind_some() : discard_some();
  if (drawn < 69) return release_some();
  if (drawn < 73) return move_some();
  if (drawn < 82) return evict_some(streams);
  if (drawn < 88) return read_objects();
  if (drawn < 95) return pin_some(streams);
  if (drawn < 97) return lock_some();
  if (drawn < 98) return random_.chance(600) ? hint_some(streams) : overwrite_some(streams);
  if (drawn < 99) return random_.chance(500) ? populate_some(streams) : advise_about_child();
  return allocate(streams);
}

// One access of 1 KiB, tried again until it goes through.
void program::access(engine::read_ahead_state& streams, page_id page, std::size_t part, bool write) {
  ++accesses_;
  threads_.switch_point();
  while (true) {
    if (expected_.is_lost(page)) return;
    if (kernel_.touch(page, write) == simulated_kernel::fault::none) break;
    if (!pager_.resolve(streams, page, write)) return;
  }
  if (write) {
    expected_.write(page, part, kernel_.bytes(page));
  } else {
    expected_.check(page, part, kernel_.bytes(page));
  }
}

void program::access_at_random(engine::read_ahead_state& streams) {
  allocation* const used = pick_shared();
  if (used == nullptr) return;
  const usage mark(*used);
  const page_range range = hot_or_any(used->range, used->range.count);
  for (std::uint64_t left = random_.between(1, 40); left > 0; --left) {
    access(streams, range.first + random_.below(range.count), random_.below(model::parts_a_page),
           random_.chance(chosen_.write_per_mille));
  }
}

void program::scan(engine::read_ahead_state& streams) {
  allocation* const used = pick_shared();
  if (used == nullptr) return;
  const usage mark(*used);
  const page_range range = part_of(used->range, random_.chance(100) ? used->range.count : 60);
  const auto stride = random_.one_of<std::uint64_t>({1, 1, 1, 2, 3, 7});
  const bool backward = random_.chance(250);
  const bool write = random_.chance(chosen_.write_per_mille);
  for (std::uint64_t at = 0; at < range.count; at += stride) {
    const page_id page = backward ? range.end() - 1 - at : range.first + at;
    access(streams, page, random_.below(model::parts_a_page), write);
  }
}

void program::fill(engine::read_ahead_state& streams, page_range range) {
  for (page_id page = range.first; page < range.end(); ++page) {
    access(streams, page, random_.below(model::parts_a_page), true);
  }
}

void program::allocate(engine::read_ahead_state& streams) {
  const std::uint64_t pages = random_.chance(100) ? random_.between(200, 700) : random_.between(1, 60);
  page_range range;
  if (allocated_pages_ + pages > chosen_.heap_pages * 9 / 10 || !find_free(pages, pages >= 512, &range)) return;
  set_taken(range, true);
  bool done = false;
  {
    const scheduler::engine_call call(threads_);
    done = engine_.ranges().allocate(range).ok();
  }
  if (!done) return set_taken(range, false);
  expected_.forget(range);
  allocations_.push_back(std::make_unique<allocation>());
  allocations_.back()->range = range;
  const usage mark(*allocations_.back());
  if (random_.chance(600)) fill(streams, range);
}

// Frees an allocation, or a part of it.
void program::release_some() {
  allocation* const leaving = pick_exclusive();
  if (leaving == nullptr) return;
  leaving->is_exclusive = true;
  const page_range whole = leaving->range;
  const page_range gone = random_.chance(500) ? whole : part_of(whole, whole.count);
  if (leaving->has_locks) kernel_.set_locked(whole, false);
  release(gone);
  for (const page_range rest : {page_range{whole.first, static_cast<std::size_t>(gone.first - whole.first)},
                                page_range{gone.end(), static_cast<std::size_t>(whole.end() - gone.end())}}) {
    if (rest.count == 0) continue;
    allocations_.push_back(std::make_unique<allocation>());
    allocations_.back()->range = rest;
    allocations_.back()->child = leaving->child;
  }
  remove(leaving);
}

void program::release(page_range range) {
  {
    const scheduler::engine_call call(threads_);
    engine_.ranges().release(range);
  }
  expected_.forget(range);
  set_taken(range, false);
}

void program::discard_some() {
  allocation* const used = pick_shared();
  if (used == nullptr || used->is_changing || used->pins > 0) return;
  const usage mark(*used);
  used->is_changing = true;
  const page_range range = hot_or_any(used->range, 100);
  bool has_locks = false;
  for (page_id page = range.first; page < range.end(); ++page) has_locks |= kernel_.is_locked(page);
  expected_.begin_discard(range);
  {
    const scheduler::engine_call call(threads_);
    engine_.ranges().discard(range);
  }
  expected_.end_discard(range, has_locks);
  used->is_changing = false;
}

// By a system call of its own, past everybody: a raw madvise(MADV_DONTNEED).
void program::drop_behind_some() {
  const allocation* const used = pick_shared();
  if (used == nullptr || used->is_changing || used->pins > 0) return;
  const page_range range = hot_or_any(used->range, 20);
  for (page_id page = range.first; page < range.end(); ++page) {
    if (!kernel_.drop_behind(page)) continue;
    expected_.drop_behind(page);
    ++drops_behind_;
  }
}

void program::move_some() {
  allocation* const moved = pick_exclusive();
  if (moved == nullptr) return;
  page_range to;
  if (!find_free(moved->range.count + random_.below(20), true, &to)) return;
  moved->is_exclusive = true;
  set_taken(to, true);
  if (moved->has_locks) kernel_.set_locked(moved->range, false);
  moved->has_locks = false;
  bool allocated = false;
  bool done = false;
  {
    const scheduler::engine_call call(threads_);
    allocated = engine_.ranges().allocate_guarded(to).ok();
  }
  if (!allocated) {
    set_taken(to, false);
    moved->is_exclusive = false;
    return;
  }
  expected_.forget(to);
  {
    const scheduler::engine_call call(threads_);
    done = engine_.ranges().guard_source(moved->range).ok();
    if (done) engine_.ranges().move(moved->range, to.first);
  }
  if (done) {
    ++moves_;
    expected_.move(moved->range, to.first);
    std::swap(moved->range, to);
  }
  release(to);
  moved->is_exclusive = false;
}

void program::evict_some(engine::read_ahead_state& streams) {
  allocation* const used = pick_shared();
  if (used == nullptr) return;
  const usage mark(*used);
  const page_range range = hot_or_any(used->range, 100);
  {
    const scheduler::engine_call call(threads_);
    engine_.eviction().evict(range);
  }
  if (random_.chance(400)) return;
  if (random_.chance(500)) return use_in_disorder(streams, range);
  // Written pages come back clean, and their next write is a first one.
  for (page_id page = range.first; page < range.end(); ++page) {
    access(streams, page, random_.below(model::parts_a_page), random_.chance(200));
  }
}

// All of it, but nowhere two neighbours one after the other: each miss but the first ones finds pages around it that
// have come back, and no walk.
void program::use_in_disorder(engine::read_ahead_state& streams, page_range range) {
  constexpr std::uint64_t step = 7;
  for (std::uint64_t first = 0; first < step; ++first) {
    for (std::uint64_t page = first; page < range.count; page += step) {
      access(streams, range.first + page * 5 % range.count, random_.below(model::parts_a_page), random_.chance(200));
    }
  }
}

// Some of them out of pages that others may free or move meanwhile.
void program::read_objects() {
  allocation* const used = pick_shared();
  if (used == nullptr) return;
  const page_range range = hot_or_any(used->range, 100);
  if (random_.chance(500)) {
    const usage mark(*used);
    const scheduler::engine_call call(threads_);
    engine_.eviction().evict(range);
  }
  const auto read_one = [this, range](bool holds_page) {
    const page_id page = range.first + random_.below(range.count);
    const std::size_t part = random_.below(model::parts_a_page);
    if (random_.chance(100)) {
      return objects_.ask_about_rows(page, range.first + random_.below(range.count), holds_page);
    }
    if (random_.chance(300)) return objects_.ask(page, part, holds_page);
    if (random_.chance(500)) return objects_.read_copies(page, part, holds_page);
    objects_.read(page, part, holds_page);
  };
  if (random_.chance(300)) return read_one(false);
  const usage mark(*used);
  for (std::uint64_t left = random_.between(1, 60); left > 0; --left) read_one(true);
}

void program::pin_some(engine::read_ahead_state& streams) {
  allocation* const used = pick_shared();
  if (used == nullptr || used->is_changing) return;
  const usage mark(*used);
  ++used->pins;
  const page_range range = hot_or_any(used->range, 12);
  std::size_t pinned = 0;
  while (pinned < range.count && !expected_.is_lost(range.first + pinned) &&
         pager_.pin(streams, range.first + pinned)) {
    ++pinned;
  }
  for (std::uint64_t uses = random_.below(10); uses > 0; --uses) use_pinned({range.first, pinned});
  for (std::size_t i = 0; i < pinned; ++i) pager_.unpin(range.first + i);
  --used->pins;
}

// A system call on pinned pages: it must find every page in place, for reading and for writing.
void program::use_pinned(page_range range) {
  for (page_id page = range.first; page < range.end(); ++page) {
    threads_.switch_point();
    // That a page is there is what the engine knows; to ask the kernel at each pin would cost a system call.
    if (kernel_.was_ever_dropped_behind(page)) continue;
    if (kernel_.touch(page, true) != simulated_kernel::fault::none) {
      fail("page %llu is pinned, and an access to it faults", static_cast<unsigned long long>(page));
    }
    const std::size_t part = random_.below(model::parts_a_page);
    expected_.check(page, part, kernel_.bytes(page));
    if (random_.chance(500)) expected_.write(page, part, kernel_.bytes(page));
  }
}

// Some are right, some late, some about memory that was never allocated.
void program::hint_some(engine::read_ahead_state& streams) {
  const allocation* const used = random_.chance(700) ? pick_shared() : nullptr;
  const page_range range = used != nullptr ? used->range : page_range{0, chosen_.heap_pages};
  const bool write = random_.chance(chosen_.write_per_mille);
  for (std::uint64_t left = random_.between(1, 40); left > 0; --left) {
    const engine::hint about{.write = write,
                             .sequential = random_.chance(300),
                             .prefetch = random_.chance(300),
                             .read_ahead_pages = static_cast<int>(random_.one_of<std::uint64_t>({0, 0, 3, 20})),
                             .eviction_priority = static_cast<unsigned>(random_.below(4))};
    // A compiled loop's statements are about ranges.
    pager_.hint(streams, part_of(range, random_.chance(300) ? 100 : 1), about);
  }
}

// As a compiled loop does that writes all of it before anybody reads there.
void program::overwrite_some(engine::read_ahead_state& streams) {
  allocation* const used = pick_shared();
  if (used == nullptr || used->is_changing) return;
  const usage mark(*used);
  used->is_changing = true;
  const page_range range = hot_or_any(used->range, 100);
  expected_.begin_overwrite(range);
  overwrites_ += pager_.bring_empty(streams, range);
  expected_.end_overwrite(range);
  for (page_id page = range.first; page < range.end(); ++page) {
    for (std::size_t part = 0; part < model::parts_a_page; ++part) access(streams, page, part, true);
  }
  used->is_changing = false;
}

// As memory_advice does for MADV_POPULATE_WRITE: the kernel fills what is open, and of the rest each page is fetched.
void program::populate_some(engine::read_ahead_state& streams) {
  allocation* const used = pick_shared();
  if (used == nullptr) return;
  const usage mark(*used);
  ++populates_;
  engine::for_each_block(hot_or_any(used->range, 60), [&](engine::block_id, page_range part) {
    int refused = 0;  // the kernel may fill nothing, as it does not have to
    {
      const scheduler::engine_call call(threads_);
      if (engine_.ranges().populate_open(part, true, &refused)) return;
    }
    for (page_id page = part.first; page < part.end(); ++page) {
      access(streams, page, random_.below(model::parts_a_page), false);
    }
  });
}

// MADV_WIPEONFORK, MADV_DONTFORK, and back.
void program::advise_about_child() {
  allocation* const used = pick_shared();
  if (used != nullptr) used->child = random_.one_of({in_child::same, in_child::empty, in_child::absent});
}

void program::lock_some() {
  allocation* const used = pick_shared();
  if (used == nullptr || used->is_changing) return;
  const bool lock = !used->has_locks;
  // Unlocking takes the whole; a locked part is small, so that the budget can be kept.
  kernel_.set_locked(lock ? part_of(used->range, 6) : used->range, lock);
  used->has_locks = lock;
}

// A fork of the simulation itself: the child has a copy of everything, the far tier included, and of the threads only
// this one. It is done before its parent goes on, so that the parent's run depends on the seed alone.
void program::fork_one() {
  if (is_forking_ || is_child_) return;
  is_forking_ = true;
  ++forks_;
  const scheduler::engine_call call(threads_);
  engine_.fork().lock();
  std::fflush(nullptr);
  const pid_t child = fork();
  FAR_CHECK(child >= 0, "a process can be forked");
  if (child == 0) {
    // Where somebody looks whether the parent lives, it does not.
    if (begin_child_) be_forgotten_parent();
    be_child();
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) FAR_CHECK(errno == EINTR, "a child can be waited for");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail("the child of a fork has failed, as it says above");
  engine_.fork().unlock();
  is_forking_ = false;
}

// Returns in a child that is not the process's own.
void program::be_forgotten_parent() {
  const pid_t child = fork();
  FAR_CHECK(child >= 0, "a process can be forked");
  if (child == 0) return;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) FAR_CHECK(errno == EINTR, "a child can be waited for");
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

// Memory that other threads were just freeing or moving is lost to the child; everything else must be as it was.
void program::be_child() {
  constexpr unsigned longest_run_seconds = 300;
  constexpr std::uint64_t operations = 20;
  alarm(longest_run_seconds);
  trace("the child of a fork");
  is_child_ = true;
  threads_.keep_only_current();
  kernel_.become_child();
  kernel_.set_faults({});  // where the kernel refuses to guard again, a child is stopped
  pager_.become_child();
  std::erase_if(allocations_, [](const std::unique_ptr<allocation>& owned) { return owned->is_exclusive; });
  for (const std::unique_ptr<allocation>& owned : allocations_) owned->has_locks = false;
  objects_.restart_in_child();
  {
    const scheduler::engine_call call(threads_);
    if (!engine_.fork().resume_in_child().ok()) fail("a child of a fork cannot go on");
    // The parent's slots are counted by the tier that outlives forks, which is not part of the worlds with servers.
    if (!begin_child_) engine_.validate();
  }
  settle_advices_in_child();
  engine::read_ahead_state streams;
  if (begin_child_) be_reader(streams);
  verify_all();
  for (std::uint64_t i = 0; i < operations && !begin_child_; ++i) do_something(streams);
  verify_all();
  if (begin_child_ && expected_.lost_pages() > 0) fail("the child of a fork has lost what its parent stored");
  trace("the child ends");
  std::fflush(nullptr);
  _exit(0);
}

// Every other page before its parent ends, the others afterwards. There is room for all of them, and for what eviction
// keeps free: nothing leaves.
void program::be_reader(engine::read_ahead_state& streams) {
  begin_child_();
  {
    const scheduler::engine_call call(threads_);
    engine_.eviction().resize(2 * chosen_.heap_pages);
  }
  for (const std::unique_ptr<allocation>& owned : allocations_) {
    for (page_id page = owned->range.first; page < owned->range.end(); page += 2) access(streams, page, 0, false);
  }
  half_way_();
}

// As memory_advice does before the program goes on in the child.
void program::settle_advices_in_child() {
  for (const std::unique_ptr<allocation>& owned : allocations_) {
    if (owned->child == in_child::absent) release(owned->range);
    if (owned->child != in_child::empty) continue;
    {
      const scheduler::engine_call call(threads_);
      engine_.ranges().discard(owned->range);
    }
    expected_.forget(owned->range);
  }
  std::erase_if(allocations_,
                [](const std::unique_ptr<allocation>& owned) { return owned->child == in_child::absent; });
}

void program::verify_all() {
  engine::read_ahead_state streams;
  for (std::size_t i = 0; i < allocations_.size(); ++i) {
    const page_range range = allocations_[i]->range;
    for (page_id page = range.first; page < range.end(); ++page) {
      for (std::size_t part = 0; part < model::parts_a_page; ++part) access(streams, page, part, false);
    }
  }
}

bool program::read_remote() {
  engine::read_ahead_state streams;
  for (const std::unique_ptr<allocation>& owned : allocations_) {
    for (page_id page = owned->range.first; page < owned->range.end(); ++page) {
      if (engine_.state_for_tests().pages.load(page).where() != engine::state::remote) continue;
      access(streams, page, 0, false);
      return true;
    }
  }
  return false;
}

void program::evict_all() {
  for (std::size_t i = 0; i < allocations_.size(); ++i) {
    const scheduler::engine_call call(threads_);
    engine_.eviction().evict(allocations_[i]->range);
  }
}

void program::release_all() {
  for (const std::unique_ptr<allocation>& owned : allocations_) {
    if (owned->has_locks) kernel_.set_locked(owned->range, false);
    release(owned->range);
  }
  allocations_.clear();
}

program::allocation* program::pick_shared() {
  if (allocations_.empty()) return nullptr;
  allocation* const picked = allocations_[random_.chance(600) ? 0 : random_.below(allocations_.size())].get();
  return picked->is_exclusive ? nullptr : picked;
}

program::allocation* program::pick_exclusive() {
  allocation* const picked = pick_shared();
  return picked != nullptr && picked->users == 0 ? picked : nullptr;
}

// Threads meet at a few pages of each allocation, so that each state of a page is met by somebody.
page_range program::hot_or_any(page_range range, std::uint64_t most) {
  constexpr std::size_t hot_pages = 4;
  if (random_.chance(600)) return {range.first, std::min(range.count, hot_pages)};
  return part_of(range, most);
}

void program::remove(allocation* removed) {
  std::erase_if(allocations_, [removed](const std::unique_ptr<allocation>& owned) { return owned.get() == removed; });
}

page_range program::part_of(page_range range, std::uint64_t most) {
  const std::uint64_t count = random_.between(1, std::min<std::uint64_t>(most, range.count));
  return {range.first + random_.below(range.count - count + 1), count};
}

// First fit, from a place drawn at random.
bool program::find_free(std::uint64_t pages, bool at_block_start, page_range* found) {
  const std::uint64_t step = at_block_start ? engine::block_pages : 1;
  const std::uint64_t places = chosen_.heap_pages / step;
  const std::uint64_t start = random_.below(places);
  std::uint64_t free_pages = 0;
  for (std::uint64_t i = 0; i < places; ++i) {
    const page_id first = (start + i) % places * step;
    if (first + pages > chosen_.heap_pages) continue;
    for (free_pages = 0; free_pages < pages && !taken_[first + free_pages]; ++free_pages) {
    }
    if (free_pages < pages) continue;
    *found = {first, pages};
    return true;
  }
  return false;
}

void program::set_taken(page_range range, bool taken) {
  for (page_id page = range.first; page < range.end(); ++page) taken_[page] = taken;
  if (taken) {
    allocated_pages_ += range.count;
  } else {
    allocated_pages_ -= range.count;
  }
}

}  // namespace far::simulation
