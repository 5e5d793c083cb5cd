// A program that knows every byte of its memory: threads allocate, resize, move, drop, protect and hand over blocks,
// and check all of their contents again and again. It does not know Farheap; tests run it natively and under `farheap
// run` and expect the same last line.
//
// Everything is decided by the seed: threads share nothing but mailboxes that they empty between two barriers, so that
// the checksum, taken over every byte ever checked, does not depend on timing. That is how it can be compared with a
// native run. With --until-input-ends the operations go on until then; the last line says how many they were, so that
// a native run of as many follows.
#include <malloc.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t smallest_bytes = 16;

struct options {
  std::uint64_t seed = 1;
  std::size_t threads = 4;
  std::size_t operations = 1000;                    // of each thread, at least
  bool until_input_ends = false;                    // do more of them, until standard input is closed
  std::size_t live_bytes = std::size_t{256} << 20;  // of all threads together, about
  std::size_t largest_bytes = std::size_t{64} << 20;
  bool kernel_access = true;  // let system calls read and write blocks
  bool break_one = false;     // flip one byte before the last check, which must notice
};

[[noreturn]] void die(const char* message) {
  std::fprintf(stderr, "verifier: %s: %s\n", message, std::strerror(errno));
  std::_Exit(2);
}

void require(bool condition, const char* message) {
  if (!condition) die(message);
}

constexpr std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

class generator {
 public:
  explicit generator(std::uint64_t seed) : state_(mix(seed)) {}
  std::uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15u); }
  // In [0, bound). Requires bound > 0.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

 private:
  std::uint64_t state_;
};

// The content of a page of a mapping. Heap blocks have one entry for the whole block, always `filled`.
enum class content : std::uint8_t {
  filled,  // the pattern of the block
  zero,
  either,  // MADV_FREE: the pattern until the kernel takes the page, zeros from then on
  hole,    // unmapped
};

struct block {
  std::uint64_t id = 0;  // decides the pattern; a new one at every rewrite, so that stale bytes show
  char* address = nullptr;
  std::size_t bytes = 0;
  bool mapping = false;
  bool patched = false;  // made of several mappings, which mremap takes no longer
  std::vector<content> pages;
};

// The eight bytes that a block holds at `offset`, a multiple of eight.
constexpr std::uint64_t pattern(std::uint64_t id, std::size_t offset) {
  return mix(id * 0x9e3779b97f4a7c15u + offset + 1);
}

void fill(const block& target, std::size_t begin, std::size_t end) {
  for (std::size_t offset = begin; offset < end; offset += 8) {
    const std::uint64_t word = pattern(target.id, offset);
    std::memcpy(target.address + offset, &word, std::min<std::size_t>(8, end - offset));
  }
}

[[noreturn]] void report(const block& found, std::size_t offset, std::uint64_t expected, std::uint64_t actual) {
  std::printf(
      "verifier: corrupt: block %016llx at %p, %zu bytes, offset %zu (page %zu): expected %016llx, found %016llx\n",
      static_cast<unsigned long long>(found.id), static_cast<void*>(found.address), found.bytes, offset,
      offset / page_bytes, static_cast<unsigned long long>(expected), static_cast<unsigned long long>(actual));
  std::fflush(stdout);
  std::_Exit(1);
}

// Checks [begin, end) against the pattern, or against zeros. Returns a digest of the bytes read.
std::uint64_t check_range(const block& checked, std::size_t begin, std::size_t end, bool zeros) {
  std::uint64_t digest = 0;
  for (std::size_t offset = begin; offset < end; offset += 8) {
    const std::size_t count = std::min<std::size_t>(8, end - offset);
    std::uint64_t expected = zeros ? 0 : pattern(checked.id, offset);
    if (count < 8) expected &= (std::uint64_t{1} << (8 * count)) - 1;
    std::uint64_t actual = 0;
    std::memcpy(&actual, checked.address + offset, count);
    if (actual != expected) report(checked, offset, expected, actual);
    digest = std::rotl(digest, 5) + actual;
  }
  return digest;
}

// Checks every byte of a block. Pages that may be either leave the digest alone.
std::uint64_t check(const block& checked) {
  if (!checked.mapping) return check_range(checked, 0, checked.bytes, false);
  std::uint64_t digest = 0;
  for (std::size_t page = 0; page < checked.pages.size(); ++page) {
    const std::size_t begin = page * page_bytes;
    const content holds = checked.pages[page];
    if (holds == content::hole) continue;
    if (holds == content::either) {
      std::uint64_t first = 0;
      std::memcpy(&first, checked.address + begin, sizeof first);
      check_range(checked, begin, begin + page_bytes, first == 0);
    } else {
      digest += check_range(checked, begin, begin + page_bytes, holds == content::zero);
    }
  }
  return digest;
}

char* map_pages(std::size_t bytes, int protection, int flags) {
  void* address = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  require(address != MAP_FAILED, "mmap");
  return static_cast<char*>(address);
}

// As numerical libraries do it for their arrays. The kernel may have no huge page to give, or know none.
void ask_for_huge_pages(char* address, std::size_t bytes) {
  char* const begin = address + (page_bytes - reinterpret_cast<std::uintptr_t>(address) % page_bytes) % page_bytes;
  static_cast<void>(::madvise(begin, (bytes - (begin - address)) & ~(page_bytes - 1), MADV_HUGEPAGE));
}

class worker {
 public:
  worker(const options& wanted, std::size_t index) : options_(wanted), random_(mix(wanted.seed) + index) {
    require(::pipe(pipe_) == 0, "pipe");
  }
  ~worker() {
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;

  // One random operation on a random block.
  void step();
  // Gives away a quarter of the blocks.
  std::vector<block> give();
  void take(std::vector<block> blocks);
  // Checks and frees everything.
  void finish();
  void flip_one_byte();
  [[nodiscard]] std::uint64_t digest() const { return digest_; }

 private:
  struct page_range {
    std::size_t first, count;
  };

  void allocate();
  void allocate_heap(block& allocated);
  void allocate_mapping(block& allocated);
  void release(std::size_t index);
  void verify(const block& checked) { digest_ = std::rotl(digest_, 7) + check(checked); }
  void rewrite(block& changed);
  void reallocate(block& changed);
  void remap(block& changed);
  void move_to_fixed_place(block& changed);
  void drop(block& changed, int advice);
  void map_over(block& changed);
  void punch(block& changed);
  void protect(block& changed);
  void pass_through_pipe(block& changed);
  void step_mapping(block& chosen, std::size_t index);
  page_range random_range(const block& chosen);
  std::size_t random_bytes();

  const options& options_;
  generator random_;
  std::vector<block> blocks_;
  std::size_t live_bytes_ = 0;
  std::uint64_t digest_ = 0;
  int pipe_[2] = {-1, -1};
};

// Sizes are spread evenly over the powers of two.
std::size_t worker::random_bytes() {
  const auto octaves = static_cast<std::size_t>(std::bit_width(options_.largest_bytes / smallest_bytes) - 1);
  const std::size_t base = smallest_bytes << random_.below(octaves);
  return base + random_.below(base + 1);
}

void worker::allocate_heap(block& allocated) {
  const std::size_t alignment = std::size_t{16} << random_.below(9);  // up to a page
  void* address = nullptr;
  switch (random_.below(4)) {
    case 0:
      address = std::calloc(allocated.bytes, 1);
      require(address != nullptr, "calloc");
      allocated.address = static_cast<char*>(address);
      check_range(allocated, 0, allocated.bytes, true);
      break;
    case 1:
      address = std::aligned_alloc(alignment, (allocated.bytes + alignment - 1) & ~(alignment - 1));
      require(reinterpret_cast<std::uintptr_t>(address) % alignment == 0, "aligned_alloc: alignment");
      break;
    case 2:
      require(::posix_memalign(&address, alignment, allocated.bytes) == 0, "posix_memalign");
      require(reinterpret_cast<std::uintptr_t>(address) % alignment == 0, "posix_memalign: alignment");
      break;
    default: address = std::malloc(allocated.bytes); break;
  }
  require(address != nullptr && ::malloc_usable_size(address) >= allocated.bytes, "malloc");
  allocated.address = static_cast<char*>(address);
}

void worker::allocate_mapping(block& allocated) {
  allocated.bytes = (allocated.bytes + page_bytes - 1) & ~(page_bytes - 1);
  allocated.address = map_pages(allocated.bytes, PROT_READ | PROT_WRITE, random_.below(4) == 0 ? MAP_NORESERVE : 0);
  allocated.pages.assign(allocated.bytes / page_bytes, content::zero);
  if (random_.below(4) == 0) verify(allocated);
}

void worker::allocate() {
  block allocated;
  allocated.id = random_.next();
  allocated.bytes = random_bytes();
  allocated.mapping = allocated.bytes >= page_bytes && random_.below(2) == 0;
  if (allocated.mapping) {
    allocate_mapping(allocated);
  } else {
    allocate_heap(allocated);
  }
  if (allocated.bytes >= huge_page_bytes && random_.below(2) == 0)
    ask_for_huge_pages(allocated.address, allocated.bytes);
  fill(allocated, 0, allocated.bytes);
  std::fill(allocated.pages.begin(), allocated.pages.end(), content::filled);
  live_bytes_ += allocated.bytes;
  blocks_.push_back(std::move(allocated));
}

void worker::release(std::size_t index) {
  std::swap(blocks_[index], blocks_.back());
  block& last = blocks_.back();
  live_bytes_ -= last.bytes;
  if (last.mapping) {
    require(::munmap(last.address, last.bytes) == 0, "munmap");
  } else {
    std::free(last.address);
  }
  blocks_.pop_back();
}

// Writes a new pattern everywhere.
void worker::rewrite(block& changed) {
  changed.id = random_.next();
  if (!changed.mapping) return fill(changed, 0, changed.bytes);
  for (std::size_t page = 0; page < changed.pages.size(); ++page) {
    if (changed.pages[page] == content::hole) continue;
    fill(changed, page * page_bytes, (page + 1) * page_bytes);
    changed.pages[page] = content::filled;
  }
}

void worker::reallocate(block& changed) {
  const std::size_t old_bytes = changed.bytes;
  const std::size_t new_bytes = random_bytes();
  void* address = std::realloc(changed.address, new_bytes);
  require(address != nullptr, "realloc");
  changed.address = static_cast<char*>(address);
  changed.bytes = new_bytes;
  live_bytes_ += new_bytes - old_bytes;
  const std::size_t kept = std::min(old_bytes, new_bytes);
  digest_ += check_range(changed, 0, kept, false);
  if (new_bytes > old_bytes) fill(changed, old_bytes & ~std::size_t{7}, new_bytes);
}

void worker::remap(block& changed) {
  const std::size_t old_bytes = changed.bytes;
  const std::size_t new_bytes = std::max(page_bytes, random_bytes() & ~(page_bytes - 1));
  void* address = ::mremap(changed.address, old_bytes, new_bytes, MREMAP_MAYMOVE);
  require(address != MAP_FAILED, "mremap");
  changed.address = static_cast<char*>(address);
  changed.bytes = new_bytes;
  live_bytes_ += new_bytes - old_bytes;
  changed.pages.resize(new_bytes / page_bytes, content::zero);
  verify(changed);
}

// Onto a place that is reserved already, which mremap replaces.
void worker::move_to_fixed_place(block& changed) {
  char* place = map_pages(changed.bytes, PROT_NONE, MAP_NORESERVE);
  void* address = ::mremap(changed.address, changed.bytes, changed.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  require(address == place, "mremap to a fixed address");
  changed.address = place;
  verify(changed);
}

worker::page_range worker::random_range(const block& chosen) {
  const std::size_t first = random_.below(chosen.pages.size());
  return {first, 1 + random_.below(chosen.pages.size() - first)};
}

void worker::drop(block& changed, int advice) {
  const auto [first, count] = random_range(changed);
  for (std::size_t page = first; page < first + count; ++page) {
    content& holds = changed.pages[page];
    if (holds == content::hole) return;  // would give ENOMEM
  }
  require(::madvise(changed.address + first * page_bytes, count * page_bytes, advice) == 0, "madvise");
  for (std::size_t page = first; page < first + count; ++page) {
    content& holds = changed.pages[page];
    holds = advice == MADV_DONTNEED || holds == content::zero ? content::zero : content::either;
  }
  verify(changed);
}

// A new mapping on top of a part of the old: zeros, also where there was a hole.
void worker::map_over(block& changed) {
  const auto [first, count] = random_range(changed);
  char* place = changed.address + first * page_bytes;
  void* address =
      ::mmap(place, count * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  require(address == place, "mmap at a fixed address");
  changed.patched = true;
  std::fill_n(changed.pages.begin() + static_cast<std::ptrdiff_t>(first), count, content::zero);
  verify(changed);
}

// Unmaps a part and reserves its addresses again, so that no other block can move in there.
void worker::punch(block& changed) {
  const auto [first, count] = random_range(changed);
  char* place = changed.address + first * page_bytes;
  // Straight over the old pages: between munmap and mmap another thread could be given the place.
  void* address = ::mmap(place, count * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  require(address == place, "mmap of a hole");
  changed.patched = true;
  std::fill_n(changed.pages.begin() + static_cast<std::ptrdiff_t>(first), count, content::hole);
  // The block's last pages are nobody's to reserve: given back for good.
  while (changed.pages.size() > 1 && changed.pages.back() == content::hole) {
    changed.pages.pop_back();
    changed.bytes -= page_bytes;
    live_bytes_ -= page_bytes;
    require(::munmap(changed.address + changed.bytes, page_bytes) == 0, "munmap of a part");
  }
  verify(changed);
}

void worker::protect(block& changed) {
  const int readable = random_.below(3) == 0 ? PROT_NONE : PROT_READ;
  require(::mprotect(changed.address, changed.bytes, readable) == 0, "mprotect");
  if (readable == PROT_READ) verify(changed);
  require(::mprotect(changed.address, changed.bytes, PROT_READ | PROT_WRITE) == 0, "mprotect back");
  if (readable == PROT_NONE) verify(changed);
  rewrite(changed);
}

// The kernel reads and writes the block: these faults are not the program's own.
void worker::pass_through_pipe(block& changed) {
  const std::size_t count = std::min<std::size_t>(changed.bytes, 1 + random_.below(std::size_t{32} << 10));
  const std::size_t offset = random_.below(changed.bytes - count + 1);
  char* place = changed.address + offset;
  require(::write(pipe_[1], place, count) == static_cast<ssize_t>(count), "write from a block");
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = ::read(pipe_[0], place + done, count - done);
    require(got > 0, "read into a block");
    done += static_cast<std::size_t>(got);
  }
}

void worker::step_mapping(block& chosen, std::size_t index) {
  const bool whole = std::find(chosen.pages.begin(), chosen.pages.end(), content::hole) == chosen.pages.end();
  switch (random_.below(8)) {
    case 0: drop(chosen, MADV_DONTNEED); break;
    case 1: drop(chosen, MADV_FREE); break;
    case 2: map_over(chosen); break;
    case 3: punch(chosen); break;
    case 4: whole ? protect(chosen) : release(index); break;
    case 5: chosen.patched ? release(index) : move_to_fixed_place(chosen); break;
    default: chosen.patched ? release(index) : remap(chosen); break;
  }
}

void worker::step() {
  const std::size_t limit = options_.live_bytes / options_.threads;
  if (blocks_.empty() || live_bytes_ < limit / 2) return allocate();
  const std::size_t index = random_.below(blocks_.size());
  block& chosen = blocks_[index];
  if (live_bytes_ > limit) {
    verify(chosen);
    return release(index);
  }
  switch (random_.below(8)) {
    case 0: return verify(chosen);
    case 1: return rewrite(chosen);
    case 2: return allocate();
    case 3: verify(chosen); return release(index);
    case 4:
      if (options_.kernel_access && !chosen.mapping) return pass_through_pipe(chosen);
      return verify(chosen);
    default: return chosen.mapping ? step_mapping(chosen, index) : reallocate(chosen);
  }
}

std::vector<block> worker::give() {
  std::vector<block> given;
  for (std::size_t count = blocks_.size() / 4; count > 0; --count) {
    std::swap(blocks_[random_.below(blocks_.size())], blocks_.back());
    live_bytes_ -= blocks_.back().bytes;
    given.push_back(std::move(blocks_.back()));
    blocks_.pop_back();
  }
  return given;
}

void worker::take(std::vector<block> blocks) {
  for (block& taken : blocks) {
    live_bytes_ += taken.bytes;
    blocks_.push_back(std::move(taken));
  }
}

void worker::finish() {
  for (const block& checked : blocks_) verify(checked);
  while (!blocks_.empty()) release(blocks_.size() - 1);
}

void worker::flip_one_byte() {
  while (blocks_.empty()) allocate();
  for (block& chosen : blocks_) {
    if (chosen.mapping) continue;
    chosen.address[random_.below(chosen.bytes)] ^= 1;
    return;
  }
  allocate();
  flip_one_byte();
}

bool has_input_ended() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return poll(&input, 1, 0) > 0;
}

struct outcome {
  std::uint64_t digest = 0;
  std::size_t operations = 0;  // of each thread
};

outcome run(const options& wanted) {
  constexpr std::size_t steps_between_gifts = 25;
  std::vector<std::vector<block>> mailboxes(wanted.threads);
  std::barrier barrier(static_cast<std::ptrdiff_t>(wanted.threads));
  std::atomic<std::uint64_t> digest = 0;
  std::atomic<std::size_t> operations = wanted.operations;
  auto work = [&](std::size_t index) {
    worker own(wanted, index);
    for (std::size_t done = 1; done <= operations.load(); ++done) {
      own.step();
      if (done % steps_between_gifts != 0) continue;
      mailboxes[(index + 1) % wanted.threads] = own.give();
      // The others read it after both barriers, and so all alike.
      const bool go_on = index == 0 && wanted.until_input_ends && done + steps_between_gifts > operations.load();
      if (go_on && !has_input_ended()) operations = done + steps_between_gifts;
      barrier.arrive_and_wait();
      own.take(std::exchange(mailboxes[index], {}));
      barrier.arrive_and_wait();
    }
    if (wanted.break_one && index == 0) own.flip_one_byte();
    own.finish();
    digest += own.digest() * (2 * index + 1);
  };
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < wanted.threads; ++index) threads.emplace_back(work, index);
  for (std::thread& thread : threads) thread.join();
  return {digest, operations};
}

[[noreturn]] void usage() {
  std::fputs(
      "usage: verifier [--seed N] [--threads N] [--operations N] [--live-mib N] [--largest-mib N]"
      " [--until-input-ends] [--no-kernel-access] [--break]\n",
      stderr);
  std::exit(2);
}

std::size_t number(const char* text) {
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  if (end == text || *end != '\0' || value == 0) usage();
  return static_cast<std::size_t>(value);
}

options parse(int count, char** arguments) {
  options parsed;
  for (int index = 1; index < count; ++index) {
    const std::string_view name = arguments[index];
    if (name == "--break") {
      parsed.break_one = true;
    } else if (name == "--until-input-ends") {
      parsed.until_input_ends = true;
    } else if (name == "--no-kernel-access") {
      parsed.kernel_access = false;
    } else if (index + 1 == count) {
      usage();
    } else if (const std::size_t value = number(arguments[++index]); name == "--seed") {
      parsed.seed = value;
    } else if (name == "--threads") {
      parsed.threads = value;
    } else if (name == "--operations") {
      parsed.operations = value;
    } else if (name == "--live-mib") {
      parsed.live_bytes = value << 20;
    } else if (name == "--largest-mib") {
      parsed.largest_bytes = value << 20;
    } else {
      usage();
    }
  }
  return parsed;
}

}  // namespace

int main(int count, char** arguments) {
  const options wanted = parse(count, arguments);
  const outcome reached = run(wanted);
  std::printf("verifier: checksum %016llx after %zu operations\n", static_cast<unsigned long long>(reached.digest),
              reached.operations);
  return 0;
}
