#include "backend/zmem/zmem_backend.h"

#include <algorithm>
#include <cerrno>

#include "backend/uri.h"
#include "backend/zmem/zmem_channel.h"
#include "base/units.h"
#include "platform/local_memory.h"
#include "platform/system_memory.h"

namespace far::backend {
namespace {

// How many slots become available at a time, so that the slot map is filled as far as it is used.
constexpr std::uint64_t growth_slots = 64 * mib / page_bytes;

constexpr std::uint64_t smallest_capacity_bytes = mib;
constexpr std::uint64_t largest_capacity_bytes = 4 * tib;
constexpr std::uint64_t smallest_default_bytes = 256 * mib;
// Pages that are all the same take no room, so there may be more of them than would fit; yet the table has an end.
constexpr std::uint64_t slots_a_page = 32;
constexpr std::size_t largest_depth = 1 << 20;
constexpr std::uint64_t next_step_ns = 1'000'000;

// How often the machine's free memory is looked at, for `leave`: after so many new pages of its own, when half of what
// may be taken is taken, and at least once in a while.
constexpr std::uint64_t pages_between_looks = 4 * mib / page_bytes;
// What may be taken between two looks: a part of what is above the reserve, or of the reserve if that is less, and a
// small part of the reserve. So of the reserve something is left where 14 jobs do that at the same time.
constexpr std::uint64_t part_above = 8;
constexpr std::uint64_t part_of_reserve = 64;
constexpr std::uint64_t least_pages = 64;  // the engine evicts so many at a time
constexpr std::uint64_t look_ns = 1'000'000'000;
constexpr std::uint64_t look_when_short_ns = 100'000'000;

// The cost of a read.
constexpr speed lz4_speed{1500, 3'500'000'000};
constexpr speed zstd_speed{4500, 1'000'000'000};

const platform::monotonic_clock machine_clock;
std::atomic<shared_takings*> shared_by_all{nullptr};

std::uint64_t default_capacity_bytes() {
  const result<platform::system_memory> machine = platform::read_system_memory();
  return machine ? std::max(machine.value().usable_bytes() / 2, smallest_default_bytes) : smallest_default_bytes;
}

error wrong(const uri& name, const std::string& why) {
  return {"far tier '" + name.text() + "': " + why, EINVAL};
}

result<codec_choice> parse_codec(const uri& name) {
  codec_choice chosen;
  const std::string codec = name.text_value("codec").value_or("lz4");
  if (codec != "lz4" && codec != "zstd") return wrong(name, "option 'codec': '" + codec + "' is neither lz4 nor zstd");
  if (codec == "zstd") chosen.name = codec_name::zstd;
  const auto level = name.whole_number("level", 1, most_zstd_level);
  if (!level) return level.error();
  if (level.value() && codec != "zstd") return wrong(name, "option 'level' is for codec=zstd; lz4 has none");
  chosen.level = static_cast<int>(level.value().value_or(1));
  return chosen;
}

result<std::uint64_t> parse_capacity(const uri& name) {
  const auto option = name.size_bytes("capacity");
  if (!option) return option.error();
  if (name.rest().empty()) return option.value().value_or(0);
  const result<std::uint64_t> size = parse_size(name.rest());
  if (!size || option.value()) {
    return wrong(name, "what follows 'zmem:' is its capacity; write for example zmem:4G or zmem:?capacity=4G");
  }
  return size.value();
}

}  // namespace

std::optional<std::uint64_t> zmem_options::available_to_this_process() {
  const result<platform::system_memory> machine = platform::read_system_memory();
  if (!machine) return std::nullopt;
  return machine.value().available_bytes;
}

result<std::unique_ptr<backend>> zmem_backend::open(const uri& name) {
  if (result<void> known = name.allow_options({"capacity", "codec", "level", "leave"}); !known) return known.error();
  const result<codec_choice> codec = parse_codec(name);
  if (!codec) return codec.error();
  const result<std::uint64_t> capacity = parse_capacity(name);
  if (!capacity) return capacity.error();
  const bool is_given = capacity.value() != 0 || !name.rest().empty();
  if (is_given && (capacity.value() < smallest_capacity_bytes || capacity.value() > largest_capacity_bytes)) {
    return wrong(name, "its capacity is between " + format_size(smallest_capacity_bytes) + " and " +
                           format_size(largest_capacity_bytes) + "; write for example zmem:4G");
  }
  const auto leave = name.size_bytes("leave");
  if (!leave) return leave.error();
  return create({.capacity_bytes = capacity.value(), .codec = codec.value(), .leave_bytes = leave.value().value_or(0)});
}

result<std::unique_ptr<backend>> zmem_backend::create(const zmem_options& chosen) {
  const std::uint64_t bytes = chosen.capacity_bytes != 0 ? chosen.capacity_bytes : default_capacity_bytes();
  const std::uint64_t wanted = chosen.slots != 0 ? chosen.slots : bytes / page_bytes * slots_a_page;
  const std::uint64_t slots = std::min(wanted, page_store::most_slots);
  // Addresses for the zones, and the table.
  const std::uint64_t probe_bytes = bytes + slots * 2 * sizeof(std::uint64_t);
  std::byte* const probe = platform::try_map_local(probe_bytes);
  if (probe == nullptr) {
    return error{"far tier 'zmem:' cannot reserve " + format_size(probe_bytes) +
                     " of addresses; choose a smaller capacity (zmem:2G) or raise the limit (ulimit -d, ulimit -v)",
                 ENOMEM};
  }
  platform::unmap_local(probe, probe_bytes);
  zmem_options complete = chosen;
  complete.capacity_bytes = bytes;
  complete.slots = slots;
  if (complete.shared == nullptr) complete.shared = shared_by_all.load();
  return std::unique_ptr<backend>(std::make_unique<zmem_backend>(complete));
}

zmem_backend::zmem_backend(const zmem_options& chosen)
    : codec_(chosen.codec),
      leave_bytes_(chosen.leave_bytes),
      available_bytes_(chosen.available_bytes),
      time_(chosen.clock != nullptr ? *chosen.clock : machine_clock),
      shared_(chosen.shared != nullptr ? *chosen.shared : own_),
      may_take_(pages_between_looks),
      slots_(chosen.slots),
      store_(chosen.capacity_bytes, chosen.slots) {
  look_at_machine();
}

result<slot_id> zmem_backend::allocate(std::size_t count) {
  if (leave_bytes_ != 0 && !may_take(count)) return out_of_slots();
  if (!store_.promise(count)) return out_of_slots();
  result<slot_id> first = take_slots(count);
  if (!first) store_.take_back(count);
  return first;
}

result<slot_id> zmem_backend::take_slots(std::size_t count) {
  std::optional<slot_id> first = slots_.allocate(count);
  if (first) return *first;
  const lock_guard guard(growth_lock_);
  // Another thread may take what we add, so look again after each growth; growth ends at the capacity.
  while (!(first = slots_.allocate(count))) {
    const std::uint64_t limit = slots_.limit();
    const std::uint64_t missing = count - std::min<std::uint64_t>(count, slots_.free_at_end());
    if (missing > slots_.capacity() - limit || limit == slots_.capacity()) return out_of_slots();
    slots_.extend(std::min(slots_.capacity(), limit + std::max(missing, growth_slots)));
  }
  return *first;
}

void zmem_backend::free(slot_id first, std::size_t count) {
  for (slot_id slot = first; slot < first + count; ++slot) store_.free(slot);
  slots_.free(first, count);
}

result<std::unique_ptr<channel>> zmem_backend::open_channel(std::size_t depth) {
  if (depth == 0 || depth > largest_depth) {
    return error{"a channel of 'zmem:' holds between 1 and " + std::to_string(largest_depth) + " requests, not " +
                     std::to_string(depth),
                 EINVAL};
  }
  return std::unique_ptr<channel>(std::make_unique<zmem_channel>(store_, codec_, depth));
}

std::uint64_t zmem_backend::tend() {
  const std::uint64_t until_look_ns = look_at_machine();
  return std::min(store_.tend() ? next_step_ns : no_tending, until_look_ns);
}

// ---- what is left to others ----

void zmem_backend::count_together(shared_takings& shared) {
  shared_by_all.store(&shared);
}

bool zmem_backend::may_take(std::size_t count) {
  if (machine_is_short_.load(std::memory_order_relaxed)) return false;
  const std::uint64_t seen = seen_taken_.load(std::memory_order_acquire);  // before what may be taken after it
  const std::uint64_t most = may_take_.load(std::memory_order_relaxed);
  std::uint64_t taken = shared_.taken_pages.load(std::memory_order_relaxed);
  do {
    if (taken < seen || taken - seen + count > most) {
      wants_look_.store(true, std::memory_order_relaxed);
      return false;
    }
  } while (!shared_.taken_pages.compare_exchange_weak(taken, taken + count, std::memory_order_relaxed));
  const std::uint64_t own = own_since_look_.fetch_add(count, std::memory_order_relaxed) + count;
  if (own >= pages_between_looks || taken - seen + count > most / 2) wants_look_.store(true, std::memory_order_relaxed);
  return true;
}

// Returns when to look again. Where the system does not say, what was known before counts. While nothing is stored,
// there is nothing to take or to give back: programs that fit in their budget do without all but the first look.
std::uint64_t zmem_backend::look_at_machine() {
  if (leave_bytes_ == 0) return no_tending;
  const std::uint64_t now_ns = time_.now_ns();
  const bool is_known = look_at_ns_ != 0;
  if (is_known && !wants_look()) {
    if (slots_.used() == 0 && !machine_is_short_.load(std::memory_order_relaxed)) return look_ns;
    if (now_ns < look_at_ns_) return look_at_ns_ - now_ns;
  }
  wants_look_.store(false, std::memory_order_relaxed);
  own_since_look_.store(0, std::memory_order_relaxed);
  const std::uint64_t taken =
      shared_.taken_pages.load(std::memory_order_relaxed);  // before the look, which may not see all of it
  if (const std::optional<std::uint64_t> available = available_bytes_()) {
    const std::uint64_t others = leave_bytes_ + shared_.promised_bytes.load(std::memory_order_relaxed);
    const bool is_short = *available < others;
    const std::uint64_t above = std::min(is_short ? 0 : *available - others, leave_bytes_);
    const std::uint64_t most = (above / part_above + leave_bytes_ / part_of_reserve) / page_bytes;
    may_take_.store(std::max(most, least_pages), std::memory_order_relaxed);
    if (machine_is_short_.exchange(is_short, std::memory_order_relaxed) != is_short) store_.keep_frames(!is_short);
  }
  seen_taken_.store(taken, std::memory_order_release);
  const bool gives_back = machine_is_short_.load(std::memory_order_relaxed) && slots_.used() > 0;
  const std::uint64_t until_next_ns = gives_back ? look_when_short_ns : look_ns;
  look_at_ns_ = now_ns + until_next_ns;
  return until_next_ns;
}

void zmem_backend::after_fork_in_child() {
  store_.unlock_after_fork();
  growth_lock_.open_in_child();
  slots_.begin_again_in_child();
}

void zmem_backend::close_claims_in_child() {
  slots_.end_claims_in_child();
  store_.keep_in_child(slots_.limit(), [this](slot_id slot) { return slots_.all_allocated(slot, 1); });
}

// While the machine is short of memory, what is occupied is all that there may be: a stack moves a part of it on.
capacity zmem_backend::report() const {
  const std::uint64_t occupied = store_.occupied_bytes();
  const bool is_short = machine_is_short_.load(std::memory_order_relaxed);
  return {.total_slots = slots_.capacity(),
          .used_slots = slots_.used(),
          .stored_bytes = occupied,
          .most_stored_bytes = is_short ? std::min(occupied, store_.capacity_bytes()) : store_.capacity_bytes()};
}

speed zmem_backend::expected_speed() const {
  return codec_.name == codec_name::lz4 ? lz4_speed : zstd_speed;
}

std::string zmem_backend::describe() const {
  return std::string("zmem: (") + (codec_.name == codec_name::lz4 ? "lz4" : "zstd") + ", " +
         format_size(store_.capacity_bytes()) + ")";
}

}  // namespace far::backend
