#include "world.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace memory_calls {
namespace {

// Far from where the kernel places what may lie anywhere.
constexpr std::uintptr_t twin_areas = 0x100000000000;
constexpr std::uintptr_t twin_blocks = 0x200000000000;
constexpr std::uintptr_t raw_places = 0x300000000000;
constexpr std::uintptr_t twin_spacing = std::uintptr_t{1} << 30;
constexpr std::uintptr_t twins_of_a_world = 64;

constant_file the_constants;

std::byte* twin_place(std::uintptr_t base, int world_index, int slot) {
  return reinterpret_cast<std::byte*>(
      base +
      (static_cast<std::uintptr_t>(world_index) * twins_of_a_world + static_cast<std::uintptr_t>(slot)) * twin_spacing);
}

bool in_list(const char* list, const char* name) {
  const std::size_t length = std::strlen(name);
  for (const char* at = list; at != nullptr && *at != '\0';) {
    const char* const comma = std::strchr(at, ',');
    const std::size_t part = comma != nullptr ? static_cast<std::size_t>(comma - at) : std::strlen(at);
    if (part == length && std::memcmp(at, name, part) == 0) return true;
    at = comma != nullptr ? comma + 1 : nullptr;
  }
  return false;
}

}  // namespace

std::uint64_t random_numbers::spread(std::uint64_t limit) {
  int bits = 0;
  while (bits < 63 && (limit >> bits) != 0) ++bits;
  const std::uint64_t wide = std::uint64_t{1} << below(static_cast<std::uint64_t>(bits) + 1);
  return 1 + below(std::min(wide, limit));
}

const constant_file& constants() {
  return the_constants;
}

int make_file(const char* name) {
  const char* const folder = std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/var/tmp";
  const int descriptor = ::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    std::fprintf(stderr, "memory_calls: no file for %s can be made in %s: %s\n", name, folder, std::strerror(errno));
    std::exit(2);
  }
  return descriptor;
}

void make_constants() {
  const int file = make_file("constant bytes");
  std::byte* const bytes = raw_memory(constant_file::bytes);
  random_numbers random(7);
  for (std::size_t at = 0; at < constant_file::bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes + at, &word, sizeof word);
  }
  if (::pwrite(file, bytes, constant_file::bytes, 0) != static_cast<ssize_t>(constant_file::bytes) ||
      ::fdatasync(file) != 0) {
    std::fprintf(stderr, "memory_calls: the constant file cannot be written: %s\n", std::strerror(errno));
    std::exit(2);
  }
  kernel_call(SYS_munmap, bytes, constant_file::bytes);
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  the_constants = {file, ::open(path, O_RDWR | O_DIRECT | O_CLOEXEC), ::open(path, O_RDONLY | O_CLOEXEC)};
}

std::byte* raw_memory(std::size_t bytes) {
  // At places of its own, so that it never comes to lie in a hole that the program still thinks empty.
  static std::atomic<std::uintptr_t> next_place = raw_places;
  const std::uintptr_t place = next_place.fetch_add((bytes + 2 * page_bytes - 1) & ~(page_bytes - 1));
  const outcome mapped = kernel_call(SYS_mmap, place, bytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (!mapped.ok()) {
    std::fprintf(stderr, "memory_calls: no memory for the model: %s\n", std::strerror(mapped.error));
    std::exit(2);
  }
  return mapped.address();
}

world* make_world(const options& chosen, int index, std::uint64_t seed) {
  auto* const created = new (raw_memory(sizeof(world))) world;
  created->chosen = &chosen;
  created->index = index;
  created->random = random_numbers(seed);
  for (int slot = 0; slot < area_count; ++slot) {
    created->areas[slot].twin = twin_place(twin_areas, index, slot);
    created->areas[slot].records = reinterpret_cast<page_record*>(raw_memory(area_pages_limit * sizeof(page_record)));
  }
  for (int slot = 0; slot < block_count; ++slot) created->blocks[slot].twin = twin_place(twin_blocks, index, slot);
  for (int pair = 0; pair < 2; ++pair) {
    for (int& file : created->shared_files[pair]) {
      file = pair == 0 ? make_file("shared bytes") : static_cast<int>(::memfd_create("shared", MFD_CLOEXEC));
      if (file < 0 || ::ftruncate(file, constant_file::bytes) != 0) fail(*created, "no file to share: errno %d", errno);
    }
  }
  return created;
}

void drop_world(world& w) {
  for (area& area : w.areas) kernel_call(SYS_munmap, area.records, area_pages_limit * sizeof(page_record));
  for (auto& pair : w.shared_files) {
    for (const int file : pair) ::close(file);
  }
  for (const int descriptor : {w.own.pipe[0], w.own.pipe[1], w.own.scratch[0], w.own.scratch[1], w.own.ring}) {
    if (descriptor >= 0) ::close(descriptor);
  }
  if (w.own.ring_memory != nullptr) kernel_call(SYS_munmap, w.own.ring_memory, w.own.ring_bytes);
  if (w.own.ring_parameters != nullptr) kernel_call(SYS_munmap, w.own.ring_parameters, page_bytes);
  if (w.own.ring_entries != nullptr) kernel_call(SYS_munmap, w.own.ring_entries, page_bytes);
  kernel_call(SYS_munmap, &w, sizeof w);
}

bool allowed(const world& w, const char* name) {
  return !in_list(w.chosen->without, name);
}

void say(const world& w, const char* format, ...) {
  if (!w.chosen->verbose) return;
  char line[512];
  int length = std::snprintf(line, sizeof line, "[%d.%d.%d] %llu %s: ", static_cast<int>(::getpid()), w.depth, w.index,
                             static_cast<unsigned long long>(w.operation), w.name);
  va_list arguments;
  va_start(arguments, format);
  length += std::vsnprintf(line + length, sizeof line - static_cast<std::size_t>(length) - 1, format, arguments);
  va_end(arguments);
  length = std::min<int>(length, sizeof line - 2);
  line[length++] = '\n';
  kernel_call(SYS_write, STDERR_FILENO, line, length);
}

void fail(const world& w, const char* format, ...) {
  char line[1536];
  int length =
      std::snprintf(line, sizeof line, "memory_calls: seed %llu, operation %llu (%s%s), process %d deep, world %d: ",
                    static_cast<unsigned long long>(w.chosen->seed), static_cast<unsigned long long>(w.operation),
                    w.raw ? "raw " : "", w.name, w.depth, w.index);
  va_list arguments;
  va_start(arguments, format);
  length += std::vsnprintf(line + length, sizeof line / 2, format, arguments);
  va_end(arguments);
  length += std::snprintf(
      line + length, sizeof line - static_cast<std::size_t>(length),
      "\nrepeat: memory_calls --seed %llu --operations %llu --working-set %zu%s%s%s%s%s --verbose\n",
      static_cast<unsigned long long>(w.chosen->seed),
      static_cast<unsigned long long>(w.depth == 0 && w.index == 0 ? w.operation + 1 : w.chosen->operations),
      w.chosen->working_set_bytes >> 20, w.chosen->only != nullptr ? " --only " : "",
      w.chosen->only != nullptr ? w.chosen->only : "", w.chosen->without != nullptr ? " --without " : "",
      w.chosen->without != nullptr ? w.chosen->without : "", w.chosen->timer ? " --timer" : "");
  kernel_call(SYS_write, STDERR_FILENO, line, length);
  ::_exit(1);
}

area* free_area(world& w) {
  for (area& area : w.areas) {
    if (area.pages == 0) return &area;
  }
  return nullptr;
}

void begin_area(world& w, area& where, std::byte* main, std::size_t count) {
  const std::byte* const end = main + count * page_bytes;
  for (area& other : w.areas) {
    if (other.pages == 0 || &other == &where) continue;
    const std::byte* const other_end = other.main + other.pages * page_bytes;
    if (end <= other.main || main >= other_end) continue;
    for (std::size_t page = 0; page < other.pages; ++page) {
      const std::byte* const at = other.main + page * page_bytes;
      if (at < main || at >= end) continue;
      if (other.records[page].state == page_state::owned)
        fail(w, "a new mapping lies over memory in use, at %p", static_cast<const void*>(at));
      other.records[page].state = page_state::gone;
    }
  }
  where.main = main;
  where.pages = count;
  w.last_area = static_cast<int>(&where - w.areas);
}

void forget_if_unused(area& where) {
  for (std::size_t page = 0; page < where.pages; ++page) {
    if (where.records[page].state == page_state::owned) return;
  }
  where.pages = 0;
}

std::size_t mapped_bytes(const world& w) {
  std::size_t bytes = 0;
  for (const area& area : w.areas) bytes += area.pages * page_bytes;
  for (const block& block : w.blocks) bytes += block.bytes;
  return bytes;
}

bool usable(const world& w, const page_record& record) {
  if (record.state == page_state::owned) return true;
  return record.state == page_state::hole && w.holes_are_safe && record.epoch == w.epoch;
}

bool pick_range(world& w, range& picked) {
  area* where = &w.areas[w.last_area];
  if (where->pages == 0 || w.random.one_in(2)) {
    where = nullptr;
    const std::uint64_t start = w.random.below(area_count);
    for (std::uint64_t step = 0; step < area_count && where == nullptr; ++step) {
      area& candidate = w.areas[(start + step) % area_count];
      if (candidate.pages != 0) where = &candidate;
    }
    if (where == nullptr) return false;
  }
  w.last_area = static_cast<int>(where - w.areas);
  const std::size_t block_pages = 512;
  std::size_t first = w.random.one_in(4) ? 0 : w.random.below(where->pages);
  if (w.random.one_in(4) && first > block_pages) first -= first % block_pages;
  while (first < where->pages && !usable(w, where->records[first])) ++first;
  if (first == where->pages) return false;
  std::size_t limit = w.random.one_in(4) ? where->pages - first : w.random.spread(where->pages - first);
  std::size_t count = 0;
  while (count < limit && usable(w, where->records[first + count])) ++count;
  picked = {where, first, count};
  return true;
}

bool pick_writable_range(world& w, range& picked) {
  if (!pick_range(w, picked)) return false;
  constexpr int wanted = PROT_READ | PROT_WRITE;
  std::size_t good = 0;
  while (good < picked.count) {
    const page_record& record = picked.records()[good];
    const bool frozen = record.shared && w.frozen;
    if (record.state != page_state::owned || (record.protection & wanted) != wanted || frozen || record.maybe_free ||
        record.guarded || record.special) {
      break;
    }
    ++good;
  }
  picked.count = good;
  return good != 0;
}

bool any_shared(const range& pages) {
  return std::any_of(pages.records(), pages.records() + pages.count,
                     [](const page_record& record) { return record.shared; });
}

bool any_maybe_free(const range& pages) {
  return std::any_of(pages.records(), pages.records() + pages.count,
                     [](const page_record& record) { return record.maybe_free; });
}

bool any_hole(const range& pages) {
  return std::any_of(pages.records(), pages.records() + pages.count,
                     [](const page_record& record) { return record.state != page_state::owned; });
}

void mark_owned(const range& pages, int protection, bool shared, bool special) {
  for (std::size_t page = 0; page < pages.count; ++page) {
    page_record& record = pages.records()[page];
    record = {};
    record.state = page_state::owned;
    record.protection = static_cast<std::uint8_t>(protection);
    record.shared = shared;
    record.special = special;
  }
}

void mark_hole(world& w, const range& pages) {
  for (std::size_t page = 0; page < pages.count; ++page) {
    pages.records()[page] = {};
    pages.records()[page].state = pages.where->plain ? page_state::hole : page_state::gone;
    pages.records()[page].epoch = w.epoch;
  }
}

void something_was_mapped(world& w) {
  ++w.epoch;
}

outcome main_mmap(world& w, void* address, std::size_t bytes, int protection, int flags, int descriptor, long offset) {
  if (w.raw) return kernel_call(SYS_mmap, address, bytes, protection, flags, descriptor, offset);
  return library_call([&] { return ::mmap(address, bytes, protection, flags, descriptor, offset); });
}
outcome main_munmap(world& w, void* address, std::size_t bytes) {
  if (w.raw) return kernel_call(SYS_munmap, address, bytes);
  return library_call([&] { return ::munmap(address, bytes); });
}
outcome main_mprotect(world& w, void* address, std::size_t bytes, int protection) {
  if (w.raw) return kernel_call(SYS_mprotect, address, bytes, protection);
  return library_call([&] { return ::mprotect(address, bytes, protection); });
}
outcome main_madvise(world& w, void* address, std::size_t bytes, int advice) {
  if (w.raw) return kernel_call(SYS_madvise, address, bytes, advice);
  return library_call([&] { return ::madvise(address, bytes, advice); });
}
outcome main_mremap(world& w, void* address, std::size_t old_bytes, std::size_t new_bytes, int flags, void* target) {
  if (w.raw) return kernel_call(SYS_mremap, address, old_bytes, new_bytes, flags, target);
  return library_call([&] { return ::mremap(address, old_bytes, new_bytes, flags, target); });
}
outcome main_mlock(world& w, void* address, std::size_t bytes) {
  if (w.raw) return kernel_call(SYS_mlock, address, bytes);
  return library_call([&] { return ::mlock(address, bytes); });
}
outcome main_munlock(world& w, void* address, std::size_t bytes) {
  if (w.raw) return kernel_call(SYS_munlock, address, bytes);
  return library_call([&] { return ::munlock(address, bytes); });
}

void must_agree(const world& w, const char* name, const outcome& main, const outcome& twin) {
  if (main.error == twin.error) return;
  fail(w, "%s ends with errno %d (%s) where Linux ends it with %d (%s)", name, main.error, std::strerror(main.error),
       twin.error, std::strerror(twin.error));
}

}  // namespace memory_calls
