// The simulated program: threads that allocate, read, write, scan, discard, move, pin, fork and free, and check every
// byte.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine.h"
#include "model.h"
#include "object_reads.h"
#include "random_source.h"
#include "scheduler.h"
#include "simulated_kernel.h"
#include "simulated_pager.h"

namespace far::simulation {

struct program_options {
  std::uint64_t heap_pages = 0;
  std::uint64_t target_pages = 0;         // about how much it keeps allocated
  std::uint64_t operations_a_thread = 0;  // then it ends
  std::uint64_t write_per_mille = 400;
  std::uint64_t most_forks = 0;
  bool drops_behind = false;  // now and then it drops pages by a system call that nobody sees
};

class program {
 public:
  program(scheduler& threads, random_source& random, simulated_kernel& kernel, simulated_pager& pager, model& expected,
          engine::engine& engine, const program_options& chosen);

  // The body of one thread of the program.
  void run_thread();

  // For the end, when no thread of the program is left: reads everything, and frees everything.
  void be_forgotten_parent();
  void be_reader(engine::read_ahead_state& streams);
  void verify_all();
  // Reads a page that is Remote, if there is one, until it is there or lost. Returns whether there was one.
  bool read_remote();
  void release_all();
  void evict_all();

  // Whether this is the child of a fork (a process of its own), of which no invariant is checked but what it reads.
  [[nodiscard]] bool is_child() const { return is_child_; }
  [[nodiscard]] std::uint64_t forks() const { return forks_; }
  // In the worlds with servers a child has no far tier of its own: it reads what its parent has stored, and these are
  // called before, and between its first and its second half.
  void on_fork(std::function<void()> begin, std::function<void()> half_way) {
    begin_child_ = std::move(begin);
    half_way_ = std::move(half_way);
  }
  [[nodiscard]] std::uint64_t drops_behind() const { return drops_behind_; }

  // Grows as long as the program's threads get anywhere.
  [[nodiscard]] std::uint64_t progress() const { return accesses_ + operations_; }
  [[nodiscard]] std::uint64_t operations() const { return operations_; }
  [[nodiscard]] std::uint64_t accesses() const { return accesses_; }
  [[nodiscard]] std::uint64_t moves() const { return moves_; }
  [[nodiscard]] std::uint64_t populates() const { return populates_; }
  // Statements that pages are overwritten, for which some came without their bytes.
  [[nodiscard]] std::uint64_t overwrites() const { return overwrites_; }
  [[nodiscard]] const object_reads& objects() const { return objects_; }

 private:
  // The state in which a child of fork finds an allocation of its parent.
  enum class in_child { same, empty, absent };

  // A mapping of the program. The thread that frees or moves it has it alone.
  struct allocation {
    page_range range;
    unsigned users = 0;
    unsigned pins = 0;
    bool is_changing = false;  // a discard or a change of locks is under way
    bool is_exclusive = false;
    bool has_locks = false;
    in_child child = in_child::same;
  };
  using allocation_list = std::vector<std::unique_ptr<allocation>>;

  // Makes an allocation's counters right at the end of a scope.
  class usage {
   public:
    explicit usage(allocation& used) : used_(used) { ++used_.users; }
    ~usage() { --used_.users; }
    usage(const usage&) = delete;
    usage& operator=(const usage&) = delete;

   private:
    allocation& used_;
  };

  void do_something(engine::read_ahead_state& streams);
  void access_at_random(engine::read_ahead_state& streams);
  void scan(engine::read_ahead_state& streams);
  void allocate(engine::read_ahead_state& streams);
  void release_some();
  void discard_some();
  void move_some();
  void evict_some(engine::read_ahead_state& streams);
  void use_in_disorder(engine::read_ahead_state& streams, page_range range);
  void read_objects();
  void pin_some(engine::read_ahead_state& streams);
  void hint_some(engine::read_ahead_state& streams);
  void overwrite_some(engine::read_ahead_state& streams);
  void populate_some(engine::read_ahead_state& streams);
  void advise_about_child();
  void drop_behind_some();
  void fork_one();
  [[noreturn]] void be_child();
  void settle_advices_in_child();
  void lock_some();

  void fill(engine::read_ahead_state& streams, page_range range);
  void access(engine::read_ahead_state& streams, page_id page, std::size_t part, bool write);
  void use_pinned(page_range range);
  void release(page_range range);
  [[nodiscard]] allocation* pick_shared();
  [[nodiscard]] page_range hot_or_any(page_range range, std::uint64_t most);
  [[nodiscard]] allocation* pick_exclusive();
  void remove(allocation* removed);
  [[nodiscard]] page_range part_of(page_range range, std::uint64_t most);
  [[nodiscard]] bool find_free(std::uint64_t pages, bool at_block_start, page_range* found);
  void set_taken(page_range range, bool taken);

  scheduler& threads_;
  random_source& random_;
  simulated_kernel& kernel_;
  simulated_pager& pager_;
  model& expected_;
  engine::engine& engine_;
  object_reads objects_;
  const program_options chosen_;
  allocation_list allocations_;
  std::vector<bool> taken_;
  std::uint64_t allocated_pages_ = 0;
  std::uint64_t operations_ = 0;
  std::uint64_t accesses_ = 0;
  std::uint64_t moves_ = 0;
  std::uint64_t populates_ = 0;
  std::uint64_t overwrites_ = 0;
  std::uint64_t forks_ = 0;
  std::uint64_t drops_behind_ = 0;
  bool is_forking_ = false;
  bool is_child_ = false;
  std::function<void()> begin_child_;
  std::function<void()> half_way_;
};

}  // namespace far::simulation
