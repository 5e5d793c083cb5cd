#include "pager/memory_calls.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/check.h"
#include "pager/limit_on_data.h"
#include "pager/memory_results.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

constexpr std::size_t huge_page_bytes = 2 * mib;

mapping_traits traits_of(int protection, bool guarded) {
  mapping_traits traits(protection);
  traits.reserved = protection == PROT_NONE && !guarded;
  return traits;
}

}  // namespace

// ---- mmap ----

result<std::byte*> memory_calls::map_guarded(std::size_t bytes, std::size_t alignment_bytes) {
  return map_somewhere(bytes, PROT_READ | PROT_WRITE, alignment_bytes, true);
}

result<std::byte*> memory_calls::map_somewhere(std::size_t bytes, int protection, std::size_t alignment_bytes,
                                               bool guarded) {
  if (bytes == 0) return error{"a mapping of no bytes", EINVAL};
  // Tables of memory that may be touched are written at once, of all of it: so much at a time is not worth it.
  static const std::uint64_t most_accessible_bytes = default_heap_bytes();
  const bool reserves = protection == PROT_NONE && !guarded;
  if (bytes > heap_.bytes() || (!reserves && bytes > most_accessible_bytes)) return no_room(bytes);
  const std::size_t natural = bytes >= huge_page_bytes ? huge_page_bytes : page_bytes;
  const std::uint64_t alignment_pages = std::max(alignment_bytes, natural) >> page_shift;
  page_id first = 0;
  const int failure =
      parts_.inside([&] { return take_somewhere(pages_for(bytes), alignment_pages, protection, guarded, &first); });
  if (failure == 0) return parts_.address_of(first);
  return failure == ERANGE ? no_room(bytes) : failed("mmap", failure);
}

// ERANGE: no addresses are left.
int memory_calls::take_somewhere(std::uint64_t count, std::uint64_t alignment_pages, int protection, bool guarded,
                                 page_id* first) {
  const mapping_traits traits = traits_of(protection, guarded);
  const std::optional<page_id> found = parts_.addresses().take(count, alignment_pages, traits);
  if (!found) return ERANGE;
  *first = *found;
  return parts_.open_or_put_back({*found, static_cast<std::size_t>(count)}, traits, guarded);
}

result<void> memory_calls::map_at(std::byte* address, std::size_t bytes, int protection, overlap how) {
  if (!parts_.holds_whole(address, bytes)) return no_room(bytes);
  return outcome("mmap", parts_.inside([&] { return map_at(parts_.pages_in(address, bytes), protection, how); }));
}

int memory_calls::map_at(page_range range, int protection, overlap how) {
  const mapping_traits traits = traits_of(protection, false);
  if (how == overlap::refuse) {
    if (!parts_.addresses().take_at(range, traits)) return EEXIST;
  } else {
    if (parts_.any_sealed(range)) return EPERM;
    const address_map::parts parts = parts_.take(range);
    if (!traits.reserved && may_map_in_place(range, parts)) return map_in_place(range, parts, traits);
    const int refused = parts_.empty(range, parts, false, protection);
    if (refused != 0) return refused;
    parts_.addresses().use(range, traits);
  }
  return parts_.open_or_put_back(range, traits, false);
}

// Whether a range that was taken over is ordinary memory of ours, without holes: then new memory in its place is the
// same memory without its bytes, and needs no further room. Whole blocks are given back all the same, since newly
// allocated ones cost no misses until they are evicted.
bool memory_calls::may_map_in_place(page_range range, const address_map::parts& parts) {
  std::uint64_t known = 0;
  for (const address_map::part& part : parts) {
    if (part.traits.protection == PROT_NONE || part.traits != mapping_traits(part.traits.protection)) return false;
    known += part.range.count;
  }
  return known == range.count && range.count < engine::block_pages;
}

int memory_calls::map_in_place(page_range range, const address_map::parts& parts, const mapping_traits& traits) {
  const int refused = parts_.protect_all(parts, traits.protection);
  if (refused != 0) return parts_.give_back(range, parts, 0), refused;
  ranges_.discard(range);
  parts_.addresses().use(range, traits);
  return 0;
}

// ---- what is the kernel's ----

result<void> memory_calls::hand_over(std::byte* address, std::size_t bytes, overlap how,
                                     const std::function<int()>& place) {
  if (!parts_.holds_whole(address, bytes)) return no_room(bytes);
  return outcome("mmap", parts_.inside([&] { return hand_over(parts_.pages_in(address, bytes), how, place); }));
}

// The engine forgets the pages before the kernel's mapping comes. When the kernel then refuses, the range is reserved
// again, so that no other mapping can take it.
int memory_calls::hand_over(page_range range, overlap how, const std::function<int()>& place) {
  mapping_traits traits;
  traits.foreign = true;
  if (how == overlap::refuse) {
    if (!parts_.addresses().take_out_at(range)) return EEXIST;
  } else {
    if (parts_.any_sealed(range)) return EPERM;
    const int refused = parts_.empty(range, parts_.take(range), true, PROT_NONE);
    if (refused != 0) return refused;
  }
  ranges_.hand_over(range);
  const int failure = place();
  if (failure == 0) {
    parts_.addresses().use(range, traits);
  } else {
    // The kernel, too, may have unmapped what was there before it found that it cannot go on.
    const int kept = reserve_again(parts_.address_of(range), parts_.bytes_of(range), MAP_FIXED);
    if (kept == 0) {
      parts_.addresses().put_back(range);
    } else {
      parts_.addresses().use(range, traits);
    }
  }
  return failure;
}

result<bool> memory_calls::replace_foreign(std::byte* address, std::size_t bytes, const std::function<int()>& place) {
  if (!parts_.holds_whole(address, bytes)) return no_room(bytes);
  bool replaced = false;
  const int failure = parts_.inside([&] {
    const page_range range = parts_.pages_in(address, bytes);
    const address_map::parts parts = parts_.take(range);
    std::uint64_t foreign = 0;
    for (const address_map::part& part : parts) foreign += part.traits.foreign ? part.range.count : 0;
    replaced = foreign == range.count;
    const int refused = replaced ? place() : 0;
    parts_.give_back(range, parts, 0);
    return refused;
  });
  if (failure != 0) return failed("mmap", failure);
  return replaced;
}

result<void> memory_calls::take_back(std::byte* address, std::size_t bytes) {
  parts_.inside([&] {
    for (const address_map::part& part : parts_.addresses().remove(parts_.pages_in(address, bytes))) {
      // Another thread may have been given the place by the kernel meanwhile, or have mapped far memory there: then it
      // stays what it is.
      const bool is_empty = part.traits.foreign && reserve_again(parts_.address_of(part.range),
                                                                 parts_.bytes_of(part.range), MAP_FIXED_NOREPLACE) == 0;
      if (is_empty) {
        parts_.addresses().put_back(part.range);
      } else {
        parts_.addresses().use(part.range, part.traits);
      }
    }
  });
  return {};
}

result<mappings::origin> memory_calls::origin_of(const std::byte* address, std::size_t bytes) const {
  if (!parts_.holds_whole(address, bytes)) return failed("a range", EFAULT);
  bool any_far = false;
  bool any_foreign = false;
  const int failure = parts_.inside([&] {
    return parts_.for_each(parts_.pages_in(address, bytes), mapped_parts::at_hole::stop,
                           [&](const address_map::part& part) {
                             (part.traits.foreign ? any_foreign : any_far) = true;
                             return 0;
                           });
  });
  if (failure != 0 || any_far == any_foreign) return failed("a range", EFAULT);
  return any_far ? origin::far : origin::foreign;
}

bool memory_calls::is_mapped(const std::byte* address, std::size_t bytes) const {
  const auto any = [](const address_map::part& /*part*/) { return 0; };
  return parts_.inside(
      [&] { return parts_.for_each(parts_.pages_in(address, bytes), mapped_parts::at_hole::stop, any) == 0; });
}

std::uint64_t memory_calls::mapped_bytes() const {
  const platform::signal_shield shield;
  return parts_.addresses().pages_in_use() << page_shift;
}

bool memory_calls::is_sealed(const std::byte* address, std::size_t bytes) const {
  return parts_.inside([&] { return parts_.any_sealed(parts_.pages_in(address, bytes)); });
}

result<mappings::mapping> memory_calls::mapping_at(const std::byte* address, std::size_t bytes) const {
  const platform::signal_shield shield;
  const page_range range = parts_.pages_in(address, bytes);
  const address_map::parts holders = parts_.look(range);
  const address_map::part* const holder = holders.empty() ? nullptr : &holders.front();
  if (holder == nullptr || holder->traits.foreign || holder->range.first != range.first) {
    return error{"nothing of ours is mapped there", EFAULT};
  }
  const mapping_traits& traits = holder->traits;
  return mapping{.protection = traits.protection,
                 .reserved = traits.reserved,
                 .guarded = traits.fenced,
                 .locked = traits.locked,
                 .lock_flags = memory_locks::flags_of(traits),
                 .absent_in_child = traits.absent_in_child,
                 .empty_in_child = traits.empty_in_child,
                 .sealed = traits.sealed,
                 .undumped = traits.undumped,
                 .huge_pages = traits.huge_pages,
                 .key = std::max<int>(traits.key, 0),
                 .bytes = holder->range.count << page_shift};
}

mappings::piece memory_calls::piece_at(const std::byte* address, std::size_t bytes) const {
  const page_range range = parts_.pages_in(address, bytes);
  const address_map::parts found = parts_.inside([&] { return parts_.look(range); });
  if (found.empty()) return {.owner = std::nullopt, .bytes = bytes};
  const address_map::part& first = found.front();
  if (first.range.first != range.first) {
    return {.owner = std::nullopt, .bytes = (first.range.first - range.first) << page_shift};
  }
  page_id end = range.first;
  for (const address_map::part& part : found) {
    if (part.range.first != end || !part.traits.is_one_mapping_with(first.traits)) break;
    end = part.range.end();
  }
  return {.owner = first.traits.foreign ? origin::foreign : origin::far, .bytes = (end - range.first) << page_shift};
}

// ---- munmap, mprotect ----

result<void> memory_calls::unmap(std::byte* address, std::size_t bytes) {
  const page_range range = parts_.pages_in(address, bytes);
  return outcome("munmap", parts_.inside([&] { return parts_.any_sealed(range) ? EPERM : parts_.unmap(range); }));
}

result<void> memory_calls::protect_with_key(std::byte* address, std::size_t bytes, int protection, int key) {
  return outcome("mprotect", parts_.inside([&] {
    return parts_.for_each(parts_.pages_in(address, bytes), mapped_parts::at_hole::stop,
                           [&](const address_map::part& part) {
                             return part.traits.sealed ? EPERM : parts_.protect(part, protection, key);
                           });
  }));
}

// The kernel is not told of far memory, or the pages could not leave: it would refuse to drop those that the program
// cannot write to. Seals of its own mappings are noted, too: calls must find them before they change what lies beside.
result<void> memory_calls::seal(std::byte* address, std::size_t bytes) {
  return outcome("mseal", parts_.inside([&] {
    return parts_.for_each(
        parts_.pages_in(address, bytes), mapped_parts::at_hole::stop, [&](const address_map::part& part) {
          return parts_.alter(part.range, [&](address_map::part& one) {
            const int refused =
                one.traits.foreign ? seal_in_kernel(parts_.address_of(one.range), parts_.bytes_of(one.range)) : 0;
            one.traits.sealed = one.traits.sealed || refused == 0;
            return refused;
          });
        });
  }));
}

result<void> memory_calls::for_each_foreign(std::byte* address, std::size_t bytes,
                                            const std::function<int(std::byte*, std::size_t)>& call) const {
  return outcome("a range", parts_.inside([&] {
    return parts_.for_each(
        parts_.pages_in(address, bytes), mapped_parts::at_hole::go_on, [&](const address_map::part& part) {
          return part.traits.foreign ? call(parts_.address_of(part.range), parts_.bytes_of(part.range)) : 0;
        });
  }));
}

}  // namespace far::pager
