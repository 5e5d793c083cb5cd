#include "backend/zmem/zones.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

// A class may have holes of an eighth of its objects, and of two zones.
constexpr std::uint64_t hole_share = 8;
constexpr std::uint64_t hole_zones = 2;

template <typename T>
T* map_array(std::uint64_t count) {
  return reinterpret_cast<T*>(platform::map_local(count * sizeof(T)));
}

template <typename T>
void unmap_array(T* array, std::uint64_t count) {
  platform::unmap_local(reinterpret_cast<std::byte*>(array), count * sizeof(T));
}

}  // namespace

// Zones that were never used are free, whatever their bytes say.
zones::zones(std::uint64_t capacity_bytes)
    : zone_count_(std::max<std::uint64_t>(capacity_bytes / zone_bytes, 2)),
      memory_(platform::map_local(zone_count_ * zone_bytes)),
      zones_(map_array<zone>(zone_count_)),
      page_owners_(map_array<std::uint32_t>(zone_count_ * pages_a_zone)) {
  FAR_CHECK(zone_count_ < none, "more zones than can be numbered");
  // Huge pages would hold frames of zones that have been given back.
  static_cast<void>(madvise(memory_, zone_count_ * zone_bytes, MADV_NOHUGEPAGE));
}

zones::~zones() {
  unmap_array(page_owners_, zone_count_ * pages_a_zone);
  unmap_array(zones_, zone_count_);
  platform::unmap_local(memory_, zone_count_ * zone_bytes);
}

// ---- lists ----

void zones::push(list* into, std::uint32_t number) {
  zones_[number].previous = none;
  zones_[number].next = into->first;
  if (into->first != none) zones_[into->first].previous = number;
  into->first = number;
  ++into->count;
}

void zones::remove(list* from, std::uint32_t number) {
  const zone& removed = zones_[number];
  if (removed.next != none) zones_[removed.next].previous = removed.previous;
  (removed.previous != none ? zones_[removed.previous].next : from->first) = removed.next;
  --from->count;
}

std::size_t zones::group_of(const zone& one) {
  return one.used * fullness_groups / objects_a_zone(one.size_class);
}

// Puts a zone with objects, that is in no list, where it belongs.
void zones::file(std::uint32_t number) {
  zone& filed = zones_[number];
  if (filed.used == objects_a_zone(filed.size_class)) {
    filed.state = use::full;
    return;
  }
  filed.state = use::partial;
  push(&classes_[filed.size_class].partial[group_of(filed)], number);
}

void zones::unfile(std::uint32_t number) {
  zone& filed = zones_[number];
  if (filed.state == use::partial) remove(&classes_[filed.size_class].partial[group_of(filed)], number);
}

// ---- room ----

std::uint64_t zones::holes_of(std::size_t class_index) const {
  return classes_[class_index].zone_count * objects_a_zone(class_index) - classes_[class_index].used;
}

std::uint64_t zones::room_in_pages() const {
  return (zone_count_ - used_zones_) * pages_a_zone + holes_of(page_class) - withheld_pages_;
}

bool zones::promise(std::uint64_t pages) {
  if (room_in_pages() < promised_pages_ + pages) return false;
  promised_pages_ += pages;
  return true;
}

std::uint32_t zones::fullest_partial(std::size_t class_index) const {
  for (std::size_t group = fullness_groups; group-- > 0;) {
    const list& candidates = classes_[class_index].partial[group];
    if (candidates.first != none) return candidates.first;
  }
  return none;
}

std::uint32_t zones::open_zone(std::size_t class_index) {
  std::uint32_t opened = none;
  for (list* from : {&ready_, &released_}) {
    if (opened != none || from->first == none) continue;
    opened = from->first;
    remove(from, opened);
  }
  if (opened == none && untouched_ < zone_count_) opened = static_cast<std::uint32_t>(untouched_++);
  if (opened == none) return none;
  zones_[opened] = {};
  zones_[opened].size_class = static_cast<std::uint8_t>(class_index);
  ++used_zones_;
  ++classes_[class_index].zone_count;
  file(opened);
  return opened;
}

// ---- objects ----

std::size_t zones::class_of(std::size_t length) {
  if (length == page_bytes) return page_class;
  FAR_CHECK(length <= most_packed_bytes, "an object of a size that no class has");
  const std::size_t bytes = length + sizeof(std::uint32_t);
  constexpr std::size_t small_bytes = small_classes * small_step;
  if (bytes <= small_bytes) return (bytes + small_step - 1) / small_step - 1;
  return small_classes + (bytes - small_bytes + large_step - 1) / large_step - 1;
}

std::byte* zones::object_at(object_place place) const {
  return address_of(place.zone) + place.index * bytes_of_class(zones_[place.zone].size_class);
}

std::byte* zones::bytes_of(object_place place) const {
  const bool is_page = zones_[place.zone].size_class == page_class;
  return object_at(place) + (is_page ? 0 : sizeof(std::uint32_t));
}

std::uint32_t zones::owner_of(object_place place) const {
  if (zones_[place.zone].size_class == page_class) {
    return page_owners_[std::uint64_t{place.zone} * pages_a_zone + place.index];
  }
  std::uint32_t owner = 0;
  std::memcpy(&owner, object_at(place), sizeof owner);
  return owner;
}

// Free objects of a zone are chained by their indices, which stand where the bytes were.
object_place zones::take_object(std::uint32_t from, std::uint32_t owner) {
  zone& source = zones_[from];
  unfile(from);
  object_place taken{from, 0};
  if (source.used == source.fresh) {
    taken.index = source.fresh++;
  } else {
    taken.index = source.first_free;
    std::memcpy(&source.first_free, bytes_of(taken), sizeof source.first_free);
  }
  ++source.used;
  ++classes_[source.size_class].used;
  file(from);
  if (source.size_class == page_class) {
    page_owners_[std::uint64_t{from} * pages_a_zone + taken.index] = owner;
  } else {
    std::memcpy(object_at(taken), &owner, sizeof owner);
  }
  return taken;
}

bool zones::allocate(std::size_t length, std::uint32_t owner, bool promised, object_place* into) {
  if (promised) {
    --promised_pages_;
  } else if (room_in_pages() <= promised_pages_) {
    return false;
  }
  const std::size_t wanted = class_of(length);
  for (std::size_t class_index = wanted; class_index < class_count; ++class_index) {
    std::uint32_t from = fullest_partial(class_index);
    const bool may_open = class_index == page_class || (class_index == wanted && used_zones_ < zone_count_ &&
                                                        room_in_pages() >= promised_pages_ + pages_a_zone);
    if (from == none && may_open) from = open_zone(class_index);
    if (from == none) continue;
    *into = take_object(from, owner);
    return true;
  }
  FAR_CHECK(!promised, "room that was promised is there");
  return false;
}

void zones::free(object_place place) {
  zone& holder = zones_[place.zone];
  FAR_CHECK(holder.used > 0 && place.index < holder.fresh, "an object that is not in use was freed");
  unfile(place.zone);
  std::memcpy(bytes_of(place), &holder.first_free, sizeof holder.first_free);
  holder.first_free = static_cast<std::uint16_t>(place.index);
  --holder.used;
  --classes_[holder.size_class].used;
  if (holder.state != use::compacting) settle(place.zone);
}

// ---- compaction ----

bool zones::has_holes_in_excess(std::size_t class_index) const {
  const std::uint64_t holes = holes_of(class_index);
  return holes > hole_zones * objects_a_zone(class_index) && holes > classes_[class_index].used / hole_share;
}

bool zones::wants_compaction() const {
  for (std::size_t class_index = 0; class_index < class_count; ++class_index) {
    if (has_holes_in_excess(class_index)) return true;
  }
  return false;
}

// Its objects must find holes in other zones of the class.
std::uint32_t zones::begin_compaction(bool when_full) {
  for (std::size_t class_index = 0; class_index < class_count; ++class_index) {
    if (!has_holes_in_excess(class_index) && !(when_full && holes_of(class_index) >= objects_a_zone(class_index)))
      continue;
    std::uint32_t victim = none;
    for (const list& candidates : classes_[class_index].partial) {
      if (victim == none) victim = candidates.first;
    }
    if (victim == none) continue;
    const std::uint64_t victim_holes = objects_a_zone(class_index) - zones_[victim].used;
    if (holes_of(class_index) - victim_holes < zones_[victim].used) continue;
    if (class_index == page_class && room_in_pages() < promised_pages_ + pages_a_zone) continue;
    unfile(victim);
    if (class_index == page_class) withheld_pages_ += pages_a_zone;
    zones_[victim].state = use::compacting;
    return victim;
  }
  return none;
}

bool zones::allocate_like(object_place moved, std::uint32_t owner, object_place* into) {
  const std::uint32_t from = fullest_partial(zones_[moved.zone].size_class);
  if (from == none) return false;
  *into = take_object(from, owner);
  return true;
}

void zones::end_compaction(std::uint32_t number) {
  if (zones_[number].size_class == page_class) withheld_pages_ -= pages_a_zone;
  settle(number);
}

// A zone that is in no list: it has objects, or is free.
void zones::settle(std::uint32_t number) {
  zone& ended = zones_[number];
  if (ended.used > 0) return file(number);
  --classes_[ended.size_class].zone_count;
  --used_zones_;
  ended.state = use::free;
  push(&ready_, number);
}

// ---- frames ----

std::uint32_t zones::begin_release() {
  if (!wants_release() || room_in_pages() < promised_pages_ + pages_a_zone) return none;
  const std::uint32_t released = ready_.first;
  remove(&ready_, released);
  ++used_zones_;
  return released;
}

void zones::end_release(std::uint32_t number) {
  --used_zones_;
  push(&released_, number);
}

void zones::validate() const {
  std::array<std::uint64_t, class_count> used{};
  std::array<std::uint64_t, class_count> counted{};
  std::uint64_t in_use = 0;
  for (std::uint64_t number = 0; number < untouched_; ++number) {
    const zone& checked = zones_[number];
    if (checked.state == use::free) continue;
    ++in_use;
    ++counted[checked.size_class];
    used[checked.size_class] += checked.used;
    FAR_CHECK(checked.used > 0 && checked.used <= checked.fresh && checked.fresh <= objects_a_zone(checked.size_class),
              "a zone has as many objects as fit");
    FAR_CHECK((checked.state == use::full) == (checked.used == objects_a_zone(checked.size_class)),
              "a zone that is full");
  }
  FAR_CHECK(in_use == used_zones_, "zones that are in use do not add up");
  FAR_CHECK(ready_.count + released_.count + in_use == untouched_, "free zones do not add up");
  for (std::size_t class_index = 0; class_index < class_count; ++class_index) {
    FAR_CHECK(
        used[class_index] == classes_[class_index].used && counted[class_index] == classes_[class_index].zone_count,
        "objects of a class do not add up");
  }
  FAR_CHECK(room_in_pages() >= promised_pages_, "more room is promised than there is");
}

}  // namespace far::backend
