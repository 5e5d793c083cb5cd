#include "heap/object_types.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/lock_guard.h"
#include "base/spin_lock.h"

namespace far::heap {
namespace {

using detail::type_of_object;

constexpr unsigned first_number = 2 * alignments;
constexpr unsigned end_of_numbers = 1u << kind_bits;

// Of `type_of_object::number`, which is 0 at first.
constexpr std::uint8_t no_number = 1;
static_assert(no_number < first_number);

struct numbered_type {
  std::atomic<const type_of_object*> type{nullptr};
  std::atomic<std::size_t> alignment{0};
};

struct numbering {
  spin_lock lock;
  unsigned next FAR_GUARDED_BY(lock) = first_number;
  // Read without the lock by those who know a number: they learned it from a header, or from the type.
  std::array<numbered_type, end_of_numbers - first_number> all;
};

constinit numbering numbers;

numbered_type& numbered(unsigned number) {
  return numbers.all[number - first_number];
}

std::uint8_t give_number(const type_of_object& type, std::size_t alignment) {
  const lock_guard guard(numbers.lock);
  std::uint8_t number = type.number.load(std::memory_order_relaxed);
  if (number != 0) return number;  // another thread was faster
  number = numbers.next < end_of_numbers ? static_cast<std::uint8_t>(numbers.next++) : no_number;
  if (number != no_number) {
    numbered(number).type.store(&type, std::memory_order_relaxed);
    numbered(number).alignment.store(alignment, std::memory_order_relaxed);
  }
  type.number.store(number, std::memory_order_release);
  return number;
}

}  // namespace

object_kind kind_of(const type_of_object* type, std::size_t alignment) {
  const auto exponent = static_cast<unsigned>(std::countr_zero(alignment / detail::unit_bytes));
  if (type == nullptr) return static_cast<object_kind>(exponent);
  std::uint8_t number = type->number.load(std::memory_order_acquire);
  if (number == 0) number = give_number(*type, alignment);
  // Where the library is in the process more than once, with a table each, they share the description of the type, and
  // the number may be of another's table.
  const bool is_number = number >= first_number && number < end_of_numbers;
  if (is_number && numbered(number).type.load(std::memory_order_relaxed) == type && alignment_of(number) == alignment) {
    return number;
  }
  return static_cast<object_kind>(alignments + exponent);
}

std::size_t alignment_of(object_kind kind) noexcept {
  if (kind < first_number) return detail::unit_bytes << kind % alignments;
  return numbered(kind).alignment.load(std::memory_order_relaxed);
}

const type_of_object& type_of(object_kind kind, const std::byte* end) noexcept {
  if (kind >= first_number) return *numbered(kind).type.load(std::memory_order_relaxed);
  const type_of_object* type = nullptr;
  std::memcpy(&type, end - sizeof type, sizeof type);
  return *type;
}

}  // namespace far::heap
