// Everything that a random program of memory calls owns. All its memory exists twice: the *main* copy is used as any
// program would, by the C library (or by raw system calls, where a seed says so), and the *twin* lives where only raw
// system calls reach. Every operation is done to both, and results, errors and bytes must be the same. So the kernel
// itself is the model, also of what a child of fork sees.
//
// Everything in here lies in memory from raw calls, and survives whatever happens to the main copies.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "kernel.h"

namespace memory_calls {

inline constexpr int area_count = 40;
inline constexpr int block_count = 48;
inline constexpr int child_count = 3;
inline constexpr std::size_t area_pages_limit = std::size_t{64} << 8;  // 64 MiB
inline constexpr std::size_t block_bytes_limit = std::size_t{64} << 20;

struct options {
  std::uint64_t seed = 1;
  std::uint64_t seeds = 1;
  std::uint64_t operations = 300;
  std::uint64_t skip_before = 0;  // operations below this one are left out
  double seconds = 0;             // 0: as many seeds as `seeds` says
  std::size_t working_set_bytes = std::size_t{96} << 20;
  const char* only = nullptr;     // names, joined by commas: nothing else is done
  const char* without = nullptr;  // names, joined by commas: never done
  bool verbose = false;
  bool timer = false;           // a timer's handler runs beside everything; such a run does not repeat exactly
  const char* quiet = nullptr;  // a FIFO: at quiet points wait for a byte from it
};

// Numbers that depend on the seed and the operation alone: an operation that is left out changes no other.
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed = 0) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t limit) { return limit == 0 ? 0 : next() % limit; }
  bool one_in(std::uint64_t times) { return below(times) == 0; }
  // From 1 to limit; small numbers as likely as large ones.
  std::uint64_t spread(std::uint64_t limit);

 private:
  std::uint64_t state_;
};

// `hole`: the program unmapped it, and may use it again by MAP_FIXED as long as nothing else can have been put there.
// `gone`: somebody else's, or perhaps.
enum class page_state : std::uint8_t { owned, hole, gone };

struct page_record {
  page_state state = page_state::gone;
  std::uint8_t protection = 0;
  bool maybe_free = false;  // MADV_FREE: the old bytes or zeros, until it is written again
  bool shared = false;      // with children, and other mappings of the file
  bool dont_fork = false;
  bool guarded = false;     // MADV_GUARD_INSTALL
  bool special = false;     // not plain anonymous private memory
  std::uint32_t epoch = 0;  // of a hole: see world::epoch
};

struct area {
  std::byte* main = nullptr;
  std::byte* twin = nullptr;
  std::size_t pages = 0;  // 0: not in use
  bool plain = false;     // began as plain private anonymous memory, so that holes in it are the program's own
  page_record* records = nullptr;
};

struct block {
  std::byte* main = nullptr;
  std::byte* twin = nullptr;
  std::size_t bytes = 0;
};

struct range {
  area* where = nullptr;
  std::size_t first = 0;
  std::size_t count = 0;

  [[nodiscard]] std::byte* main() const { return where->main + first * page_bytes; }
  [[nodiscard]] std::byte* twin() const { return where->twin + first * page_bytes; }
  [[nodiscard]] std::size_t bytes() const { return count * page_bytes; }
  [[nodiscard]] page_record* records() const { return where->records + first; }
};

// Descriptors that this process made for itself; a child makes its own. -1: not there yet.
struct descriptors {
  int pipe[2] = {-1, -1};
  int scratch[2] = {-1, -1};  // a file to write to, the second one for the twin
  int ring = -1;
  void* ring_memory = nullptr;
  std::size_t ring_bytes = 0;
  void* ring_entries = nullptr;
  void* ring_parameters = nullptr;
};

struct world {
  const options* chosen = nullptr;
  int index = 0;               // chooses the places of the twins; 0 is the main program's, others are threads'
  int depth = 0;               // of a process: how many forks from the first
  bool frozen = false;         // shared memory must not change: another process may look at it
  bool holes_are_safe = true;  // no other thread maps memory
  bool all_locked = false;
  bool raw = false;         // this operation makes raw calls on the main copies
  std::uint32_t epoch = 1;  // grows whenever something unknown may have been mapped
  std::uint64_t operation = 0;
  const char* name = "start";
  std::uint64_t writes = 0;
  int last_area = 0;
  random_numbers random;
  area areas[area_count];
  block blocks[block_count];
  pid_t children[child_count] = {};
  int shared_files[2][2] = {{-1, -1}, {-1, -1}};  // pairs: for the main copy, for the twin
  descriptors own;
};

// Files that no operation changes. Private mappings and reads begin with their contents.
struct constant_file {
  static constexpr std::size_t bytes = std::size_t{4} << 20;
  int descriptor = -1;
  int direct = -1;     // opened with O_DIRECT; -1 where the file system cannot
  int read_only = -1;  // opened for reading alone
};
const constant_file& constants();
void make_constants();
int make_file(const char* name);  // an unlinked file, in TMPDIR or /var/tmp

world* make_world(const options& chosen, int index, std::uint64_t seed);
void drop_world(world& w);  // all memory and blocks must be given back before

// Memory that only raw calls know.
std::byte* raw_memory(std::size_t bytes);

// Whether options let this name be done.
bool allowed(const world& w, const char* name);

// Tells what is wrong, how to repeat it, and ends the process with exit code 1.
[[noreturn]] void fail(const world& w, const char* format, ...) __attribute__((format(printf, 2, 3)));
void say(const world& w, const char* format, ...) __attribute__((format(printf, 2, 3)));  // with --verbose

// ---- areas ----
area* free_area(world& w);
// Fills an area's fields: `count` pages at `main`, owned. Anything else that was thought to be at that place is gone.
void begin_area(world& w, area& where, std::byte* main, std::size_t count);
void forget_if_unused(area& where);
std::size_t mapped_bytes(const world& w);
bool usable(const world& w, const page_record& record);
bool pick_range(world& w, range& picked);           // false: there is none
bool pick_writable_range(world& w, range& picked);  // readable and writable, and not frozen, as far as is known
bool any_shared(const range& pages);
bool any_maybe_free(const range& pages);
bool any_hole(const range& pages);
void mark_owned(const range& pages, int protection, bool shared, bool special);
void mark_hole(world& w, const range& pages);
void something_was_mapped(world& w);

// ---- calls on the main copies ----
outcome main_mmap(world& w, void* address, std::size_t bytes, int protection, int flags, int descriptor, long offset);
outcome main_munmap(world& w, void* address, std::size_t bytes);
outcome main_mprotect(world& w, void* address, std::size_t bytes, int protection);
outcome main_madvise(world& w, void* address, std::size_t bytes, int advice);
outcome main_mremap(world& w, void* address, std::size_t old_bytes, std::size_t new_bytes, int flags, void* target);
outcome main_mlock(world& w, void* address, std::size_t bytes);
outcome main_munlock(world& w, void* address, std::size_t bytes);

// Fails unless both ended alike: with success, or with the same errno.
void must_agree(const world& w, const char* name, const outcome& main, const outcome& twin);

// ---- bytes ----
// Writes new bytes to both copies, and checks that both allow or refuse it alike, page by page.
void write_both(world& w, std::byte* main, std::byte* twin, std::size_t bytes);
void write_range(world& w, const range& pages);
void verify_range(world& w, const range& pages);
void verify_block(world& w, const block& memory);
void verify_all(world& w);
// Compares bytes that were read by other means with what they should be.
void verify_copy(const world& w, const char* name, const std::byte* found, const std::byte* expected,
                 std::size_t bytes);
void install_fault_handlers();

// ---- programs ----
struct operation {
  const char* name;
  int weight;
  void (*run)(world& w);
};
const operation* operations(std::size_t& count);
void run_operations(world& w, std::uint64_t seed, std::uint64_t count, std::uint64_t skip_before = 0);
void release_everything(world& w);
void wait_for_children(world& w);

// The operations, by file.
void map_area(world& w);
void map_fixed(world& w);
void unmap(world& w);
void unmap_and_refill(world& w);
void protect(world& w);
void remap(world& w);
void reserve_much(world& w);
void call_badly(world& w);
void advise(world& w);
void lock(world& w);
void lock_all(world& w);
void write(world& w);
void verify(world& w);
void read_file(world& w);
void write_file(world& w);
void transfer_vectors(world& w);
void pass_through_pipe(world& w);
void transfer_directly(world& w);
void use_ring(world& w);
void read_own_process(world& w);
void allocate(world& w);
void reallocate(world& w);
void release_block(world& w);
void allocate_badly(world& w);
void fork_child(world& w);
void vfork_child(world& w);
void run_threads(world& w);
void share_world(world& w);
void jump_from_handler(world& w);
void start_timer();
void stop_timer();

}  // namespace memory_calls
