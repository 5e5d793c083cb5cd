// mmap, munmap, mprotect.
#include <fcntl.h>

#include <cstring>

#include "world.h"

namespace memory_calls {
namespace {

// The mapping to make: the same for both copies, but for the descriptor.
struct mapping {
  int protection = PROT_READ | PROT_WRITE;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  int main_file = -1;
  int twin_file = -1;
  long offset = 0;
  bool plain = true;  // memory of no special kind

  [[nodiscard]] bool shared() const { return (flags & MAP_SHARED) != 0; }
};

int any_protection(world& w) {
  switch (w.random.below(12)) {
    case 0: return PROT_NONE;
    case 1: return PROT_READ;
    case 2: return allowed(w, "write-only") ? PROT_WRITE : PROT_READ | PROT_WRITE;
    case 3: return allowed(w, "executable") ? PROT_READ | PROT_EXEC : PROT_READ;
    default: return PROT_READ | PROT_WRITE;
  }
}

void choose_file(world& w, mapping& chosen) {
  chosen.flags &= ~MAP_ANONYMOUS;
  chosen.plain = false;
  chosen.offset = static_cast<long>(w.random.below(constant_file::bytes / page_bytes) * page_bytes);
  if (!chosen.shared()) {
    chosen.main_file = chosen.twin_file = constants().descriptor;
    return;
  }
  const int* const pair = w.shared_files[w.random.below(2)];
  chosen.main_file = pair[0];
  chosen.twin_file = pair[1];
}

mapping any_mapping(world& w) {
  mapping chosen;
  chosen.protection = any_protection(w);
  static constexpr int special[] = {MAP_STACK, MAP_LOCKED, MAP_32BIT, MAP_STACK | MAP_NORESERVE};
  switch (w.random.below(16)) {
    case 0: chosen.flags |= MAP_NORESERVE; break;
    case 1:
      if (allowed(w, "populate")) chosen.flags |= MAP_POPULATE;
      break;
    case 2:
    case 3:
      if (!allowed(w, "special")) break;
      chosen.flags |= special[w.random.below(4)];
      if ((chosen.flags & MAP_LOCKED) != 0 && !allowed(w, "lock")) chosen.flags &= ~MAP_LOCKED;
      chosen.plain = (chosen.flags & (MAP_STACK | MAP_LOCKED | MAP_32BIT)) == 0;
      break;
    case 4:
      if (!allowed(w, "shared")) break;
      chosen.flags = MAP_SHARED | MAP_ANONYMOUS;
      chosen.plain = false;
      break;
    case 5:
      if (allowed(w, "file")) choose_file(w, chosen);
      break;
    case 6:
      if (!allowed(w, "file") || !allowed(w, "shared")) break;
      chosen.flags = MAP_SHARED;
      choose_file(w, chosen);
      break;
    default: break;
  }
  if ((chosen.protection & PROT_EXEC) != 0) chosen.plain = false;
  return chosen;
}

outcome map_twin(const mapping& chosen, void* place, std::size_t bytes, int placing) {
  const int flags = (chosen.flags & ~MAP_32BIT) | placing;
  return kernel_call(SYS_mmap, place, bytes, chosen.protection, flags, chosen.twin_file, chosen.offset);
}

}  // namespace

void map_area(world& w) {
  area* const where = free_area(w);
  if (where == nullptr) return;
  const std::size_t pages = w.random.spread(w.random.one_in(6) ? area_pages_limit : 4096);
  if (mapped_bytes(w) + pages * page_bytes > w.chosen->working_set_bytes) return;
  const mapping chosen = any_mapping(w);
  void* hint = nullptr;
  if (w.random.one_in(8) && w.areas[w.last_area].pages != 0) hint = w.areas[w.last_area].main;
  const outcome main =
      main_mmap(w, hint, pages * page_bytes, chosen.protection, chosen.flags, chosen.main_file, chosen.offset);
  const outcome twin = map_twin(chosen, where->twin, pages * page_bytes, MAP_FIXED_NOREPLACE);
  say(w, "%zu pages at %p, protection %d, flags %#x", pages, static_cast<void*>(main.address()), chosen.protection,
      chosen.flags);
  must_agree(w, "mmap", main, twin);
  if (!main.ok()) return;
  begin_area(w, *where, main.address(), pages);
  where->plain = chosen.plain && !w.raw;
  const range all{where, 0, pages};
  mark_owned(all, chosen.protection, chosen.shared(), !chosen.plain);
  if (w.random.one_in(2) && (chosen.protection & PROT_WRITE) != 0) write_range(w, all);
}

void map_fixed(world& w) {
  range pages;
  if (!pick_range(w, pages)) return;
  const mapping chosen = any_mapping(w);
  if (!chosen.plain && !allowed(w, "foreign")) return;
  if (any_hole(pages) && !allowed(w, "refill")) return;
  const bool replace = !w.random.one_in(8) || !allowed(w, "noreplace");
  if (!replace && any_hole(pages) && !allowed(w, "noreplace-hole")) return;
  const int placing = replace ? MAP_FIXED : MAP_FIXED_NOREPLACE;
  say(w, "%zu pages at %p, protection %d, flags %#x", pages.count, static_cast<void*>(pages.main()), chosen.protection,
      chosen.flags | placing);
  const int flags = (chosen.flags & ~MAP_32BIT) | placing;
  const outcome main =
      main_mmap(w, pages.main(), pages.bytes(), chosen.protection, flags, chosen.main_file, chosen.offset);
  const outcome twin = map_twin(chosen, pages.twin(), pages.bytes(), placing);
  must_agree(w, replace ? "mmap with MAP_FIXED" : "mmap with MAP_FIXED_NOREPLACE", main, twin);
  if (!main.ok()) return;
  if (main.address() != pages.main()) fail(w, "MAP_FIXED maps at %p", static_cast<void*>(main.address()));
  mark_owned(pages, chosen.protection, chosen.shared(), !chosen.plain);
  if (w.random.one_in(2) && (chosen.protection & PROT_WRITE) != 0) write_range(w, pages);
}

void unmap(world& w) {
  range pages;
  if (!pick_range(w, pages)) return;
  if (w.random.one_in(3)) {  // all of it, as most programs do
    for (pages = {pages.where, 0, 0}; pages.count < pages.where->pages; ++pages.count) {
      if (!usable(w, pages.where->records[pages.count])) break;
    }
    if (pages.count == 0) return;
  }
  if (any_hole(pages) && !allowed(w, "holes")) return;
  say(w, "%zu pages at %p", pages.count, static_cast<void*>(pages.main()));
  const outcome main = main_munmap(w, pages.main(), pages.bytes());
  const outcome twin = kernel_call(SYS_munmap, pages.twin(), pages.bytes());
  must_agree(w, "munmap", main, twin);
  mark_hole(w, pages);
  if (w.random.one_in(4) && usable(w, pages.records()[0])) verify_range(w, pages);
  forget_if_unused(*pages.where);
}

// A hole, and at once what programs do with one: other calls over it, and a mapping in it.
void unmap_and_refill(world& w) {
  range pages;
  if (!pick_range(w, pages) || !pages.where->plain || !w.holes_are_safe) return;
  const outcome main = main_munmap(w, pages.main(), pages.bytes());
  const outcome twin = kernel_call(SYS_munmap, pages.twin(), pages.bytes());
  must_agree(w, "munmap", main, twin);
  mark_hole(w, pages);
  say(w, "%zu pages at %p", pages.count, static_cast<void*>(pages.main()));
  const std::uint64_t steps = w.random.below(4);
  for (std::uint64_t step = 0; step < steps; ++step) {
    w.last_area = static_cast<int>(pages.where - w.areas);
    switch (w.random.below(5)) {
      case 0:
        if (allowed(w, "holes")) protect(w);
        break;
      case 1:
        if (allowed(w, "holes")) advise(w);
        break;
      case 2:
        if (allowed(w, "holes")) unmap(w);
        break;
      default: map_fixed(w); break;
    }
    if (pages.where->pages == 0) return;
  }
  forget_if_unused(*pages.where);
}

void protect(world& w) {
  range pages;
  if (!pick_range(w, pages)) return;
  const bool holes = any_hole(pages);
  if (holes && !allowed(w, "holes")) return;
  int protection = any_protection(w);
  if ((protection & PROT_EXEC) != 0 && !allowed(w, "protect-executable")) protection = PROT_READ;
  say(w, "%zu pages at %p, protection %d%s", pages.count, static_cast<void*>(pages.main()), protection,
      holes ? ", over holes" : "");
  const outcome main = main_mprotect(w, pages.main(), pages.bytes(), protection);
  const outcome twin = kernel_call(SYS_mprotect, pages.twin(), pages.bytes(), protection);
  must_agree(w, "mprotect", main, twin);
  // After a failure the pages before what failed have the new protection: readers must take neither for granted.
  for (std::size_t page = 0; page < pages.count; ++page) {
    pages.records()[page].protection = static_cast<std::uint8_t>(main.ok() ? protection : PROT_NONE);
  }
  if (w.random.one_in(4)) verify_range(w, pages);
}

}  // namespace memory_calls
