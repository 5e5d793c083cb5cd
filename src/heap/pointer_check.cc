#include "heap/pointer_check.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "heap/heap.h"

namespace far::heap {

namespace word = detail::word;

namespace {

// The compiler's words are "... [with T = NAME]" or "... [T = NAME]".
std::string name_of(const detail::type_of_object& type) {
  std::string_view name = type.described;
  constexpr std::string_view before = "T = ";
  if (const std::size_t at = name.find(before); at != std::string_view::npos) name.remove_prefix(at + before.size());
  if (name.ends_with(']')) name.remove_suffix(1);
  return std::string(name);
}

[[noreturn]] void stop(const detail::type_of_object& type, std::size_t offset, const char* wrong, const char* do_next) {
  log_line(log_level::error, "far::pointers_of<%s>::visit() %s, %zu bytes into a far object; %s", name_of(type).c_str(),
           wrong, offset, do_next);
  std::abort();
}

// Whether there is a far pointer whose object's header names this word as its owner.
bool is_an_owner(detail::object_heap& in, hazard_log& work, const owner_word& one) {
  const std::uint64_t value = one.load(std::memory_order_acquire);
  if (word::is_huge(value)) return false;
  const std::uintptr_t target = word::address(value);
  const detail::object_heap* const of_target = in.heap_with(target);
  if (of_target == nullptr || !of_target->pages.is_live(target)) return false;
  work.hold(target >> page_shift);
  return of_target->memory.is_resident(target) && header::owner(header::at(target).load()) == &one;
}

void check_named(const detail::type_of_object& type, std::uintptr_t object, std::size_t bytes,
                 const std::vector<std::uintptr_t>& named) {
  for (std::size_t i = 0; i < named.size(); ++i) {
    const std::size_t offset = named[i] - object;
    if (offset >= bytes) {
      stop(type, offset, "names a far pointer outside the object",
           "name the members of the object that it is given, not copies of them or what they point to");
    }
    if (i > 0 && named[i] == named[i - 1]) {
      stop(type, offset, "names a far pointer twice", "call pointer() once for each member");
    }
  }
}

}  // namespace

void check_pointers(detail::object_heap& in, hazard_log& work, std::uintptr_t object) {
  const std::size_t held_before = work.held();
  work.hold(object >> page_shift);
  const bool is_here = in.pages.is_live(object) && in.memory.is_resident(object);
  const std::uint64_t described = is_here ? header::at(object).load() : 0;
  if (const object_kind kind = header::kind(described); has_pointers(kind)) {
    const std::size_t bytes = header::payload_bytes(described);
    const detail::type_of_object& type =
        type_of(kind, reinterpret_cast<const std::byte*>(object) + header::bytes(described));
    std::vector<std::uintptr_t> named;
    type.for_each_word(
        reinterpret_cast<std::byte*>(object), bytes,
        [](owner_word& one, void* to) {
          static_cast<std::vector<std::uintptr_t>*>(to)->push_back(reinterpret_cast<std::uintptr_t>(&one));
        },
        &named);
    std::sort(named.begin(), named.end());
    check_named(type, object, bytes, named);
    for (std::uintptr_t at = object; at + sizeof(owner_word) <= object + bytes; at += sizeof(owner_word)) {
      if (std::binary_search(named.begin(), named.end(), at)) continue;
      if (is_an_owner(in, work, *reinterpret_cast<const owner_word*>(at))) {
        stop(type, at - object, "leaves out a far pointer", "call pointer() for each member that is or has one");
      }
    }
  }
  work.cut_back(held_before);
}

}  // namespace far::heap
