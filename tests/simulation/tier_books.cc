#include "tier_books.h"

#include <cstdio>
#include <cstring>
#include <mutex>
#include <span>

#include "backend/striped/galois.h"
#include "model.h"
#include "trace.h"

namespace far::simulation {
namespace {

constexpr std::size_t part_of(std::uint64_t turn) {
  return turn % model::parts_a_page * model::part_bytes;
}

class copies_books final : public tier_books {
 public:
  explicit copies_books(backend::replicated_backend& tier) : tier_(tier) {}

  const backend::layer& members() const override { return tier_.books(); }
  bool is_whole() const override { return tier_.is_whole(); }
  result<void> add_member(std::unique_ptr<backend::backend> store, std::string name) override {
    return tier_.add_member(std::move(store), std::move(name));
  }
  bool are_known(const stored_bytes& bytes) const override;
  void check(const stored_bytes& bytes, const settled& is_settled, std::uint64_t turn) const override;
  bool may_be_copied_from(std::size_t server) const override;
  void describe() const override;
  void describe_slot(backend::slot_id slot, const stored_bytes& bytes, const right_bytes& fits) const override;
  std::vector<server_count> counted() const override;

 private:
  backend::replicated_backend& tier_;
};

bool copies_books::are_known(const stored_bytes& bytes) const {
  const backend::layer& books = tier_.books();
  for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
    for (const backend::copy& held : books.group_at(number).copies) {
      if (held.present && bytes(held.member, held.first) == nullptr) return false;
    }
  }
  return true;
}

// Whole pages are written, of which every part tells from its first bytes which write it is of (model.h). This is done
// often, so one part is looked at, each time another one.
void copies_books::check(const stored_bytes& bytes, const settled& is_settled, std::uint64_t turn) const {
  tier_.validate();
  const backend::layer& books = tier_.books();
  for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
    const backend::group& seen = books.group_at(number);
    for (std::size_t slot = seen.owned.next(0); slot < backend::group_slots; slot = seen.owned.next(slot + 1)) {
      const auto shown = static_cast<unsigned long long>(number * backend::group_slots + slot);
      if (!is_settled(shown)) continue;
      const std::byte* first = nullptr;
      for (const backend::copy& held : seen.copies) {
        if (!held.present || held.missing.contains(slot)) continue;
        const std::byte* const stored = bytes(held.member, held.first + slot);
        if (stored == nullptr) continue;
        if (first == nullptr) first = stored;
        const std::size_t at = part_of(turn + slot);
        if (std::memcmp(first + at, stored + at, sizeof(std::uint64_t)) != 0)
          fail("the copies of slot %llu differ, and both are current", shown);
      }
      if (first == nullptr) fail("nobody has the bytes of slot %llu", shown);
    }
  }
}

// A group that somebody has locked is in the middle of a change.
bool copies_books::may_be_copied_from(std::size_t server) const {
  const backend::layer& books = tier_.books();
  for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
    backend::group& seen = books.group_at(number);
    if (!seen.lock.try_lock()) continue;
    const lock_guard guard(seen.lock, std::adopt_lock);
    backend::slot_set held_here;
    backend::slot_set lacking;
    for (std::size_t place = 0; place < seen.copies.size(); ++place) {
      const backend::copy& held = seen.copies[place];
      if (!held.present || held.leaving) continue;
      if (held.member == server) {
        held_here |= ~held.missing;
      } else {
        lacking |= seen.stale(place);
      }
    }
    if (!(held_here & lacking).empty()) return true;
  }
  return false;
}

void copies_books::describe_slot(backend::slot_id slot, const stored_bytes& bytes, const right_bytes& fits) const {
  const backend::layer& books = tier_.books();
  const backend::group& seen = books.group_at(slot / backend::group_slots);
  const std::size_t place = slot % backend::group_slots;
  std::fprintf(stderr, "slot %llu: %s", static_cast<unsigned long long>(slot),
               seen.owned.contains(place) ? "owned" : "nobody's");
  for (const backend::copy& held : seen.copies) {
    if (!held.present) continue;
    const std::byte* const stored = bytes(held.member, held.first + place);
    std::fprintf(stderr, "; on %d (%s): %s%s%s", held.member, backend::name_of(books.at(held.member).state()),
                 stored == nullptr ? "forgotten"
                 : fits(stored)    ? "the right bytes"
                                   : "other bytes",
                 held.missing.contains(place) ? ", missing" : "", held.leaving ? ", leaving" : "");
  }
  std::fprintf(stderr, "\n");
}

void copies_books::describe() const {
  std::fprintf(stderr, "%s\n", tier_.describe().c_str());
  const backend::layer& books = tier_.books();
  for (std::uint64_t number = 0; number < books.groups_end.load(); ++number) {
    const backend::group& seen = books.group_at(number);
    std::fprintf(stderr, "group %llu: placed %d, available %d, owned %zu", static_cast<unsigned long long>(number),
                 seen.placed, seen.available, seen.owned.size());
    for (std::size_t place = 0; place < seen.copies.size(); ++place) {
      const backend::copy& held = seen.copies[place];
      if (!held.present) continue;
      std::fprintf(stderr, "; on %d: stale %zu%s", held.member, seen.stale(place).size(),
                   held.leaving ? ", leaving" : "");
    }
    std::fprintf(stderr, "\n");
  }
}

std::vector<server_count> copies_books::counted() const {
  const backend::repair_counts repaired = tier_.repaired();
  return {{"repaired slots", repaired.repaired_slots},
          {"raced slots", repaired.raced_slots, true},
          {"placed copies", repaired.placed_copies},
          {"moved groups", repaired.moved_groups},
          {"removed copies", repaired.removed_copies}};
}

class parity_books final : public tier_books {
 public:
  explicit parity_books(backend::striped_backend& tier) : tier_(tier) {}

  const backend::layer& members() const override { return tier_.books().members; }
  bool is_whole() const override { return tier_.is_whole() && !tier_.is_moving(); }
  result<void> add_member(std::unique_ptr<backend::backend> store, std::string name) override {
    return tier_.add_member(std::move(store), std::move(name));
  }
  bool are_known(const stored_bytes& bytes) const override;
  void check(const stored_bytes& bytes, const settled& is_settled, std::uint64_t turn) const override;
  // Servers under parity never lie.
  bool may_be_copied_from(std::size_t /*server*/) const override { return false; }
  void describe() const override;
  void describe_slot(backend::slot_id, const stored_bytes&, const right_bytes&) const override { describe(); }
  void make_work() override { tier_.make_room(); }
  std::vector<server_count> counted() const override;

 private:
  void check_row(const stored_bytes& bytes, std::uint64_t number, std::size_t row, std::uint64_t turn) const;

  backend::striped_backend& tier_;
};

// The validators look while nobody else is at work, or at work on this.
bool parity_books::are_known(const stored_bytes& bytes) const {
  const backend::stripe_table& table = tier_.books().table;
  table.lock.assert_held();
  for (std::uint64_t number = 0; number < table.groups_end(); ++number) {
    for (const backend::holder& held : table.group_at(number).holders) {
      if (held.present && bytes(held.member, held.first) == nullptr) return false;
    }
  }
  return true;
}

void parity_books::check(const stored_bytes& bytes, const settled& /*is_settled*/, std::uint64_t turn) const {
  tier_.validate();
  const backend::stripe_table& table = tier_.books().table;
  table.lock.assert_held();
  for (std::uint64_t number = 0; number < table.groups_end(); ++number) {
    const backend::slot_set& sealed = table.group_at(number).sealed;
    for (std::size_t row = sealed.next(0); row < backend::group_slots; row = sealed.next(row + 1)) {
      check_row(bytes, number, row, turn);
    }
  }
}

// As many pages as there are of data must be there, and all others be what those make of them.
void parity_books::check_row(const stored_bytes& bytes, std::uint64_t number, std::size_t row,
                             std::uint64_t turn) const {
  constexpr std::array<std::byte, sizeof(std::uint64_t)> zeros{};
  const backend::stripe_table& table = tier_.books().table;
  table.lock.assert_held();
  const backend::stripe_group& seen = table.group_at(number);
  const std::size_t data = table.shape().data;
  std::array<std::uint8_t, backend::most_data> sources{};
  std::array<const std::byte*, backend::most_data> known{};
  std::size_t count = 0;
  for (std::size_t index = 0; index < backend::most_holders; ++index) {
    const backend::holder& held = seen.holders[index];
    const std::size_t place = seen.place_of(index);
    if (place >= table.shape().places()) continue;
    const std::byte* stored = zeros.data();
    if (table.is_filled(number, row, place)) {
      if (!held.present || held.missing.contains(row)) continue;
      const std::byte* const page = bytes(held.member, held.first + row);
      if (page == nullptr) continue;
      stored = page + part_of(turn + row);
    }
    if (count < data && std::find(sources.begin(), sources.begin() + count, place) == sources.begin() + count) {
      sources[count] = static_cast<std::uint8_t>(place);
      known[count++] = stored;
      continue;
    }
    if (count < data) continue;
    std::array<std::byte, sizeof(std::uint64_t)> expected{};
    const auto end = sources.begin() + static_cast<std::ptrdiff_t>(data);
    const auto same = std::find(sources.begin(), end, place);
    if (same != end) {
      std::memcpy(expected.data(), known[same - sources.begin()], sizeof expected);
    } else {
      const backend::parity_code::factors factors = tier_.books().code.recover({sources.data(), data}, place);
      for (std::size_t i = 0; i < data; ++i) {
        backend::galois::add_multiple(expected.data(), known[i], factors[i], sizeof expected);
      }
    }
    if (std::memcmp(expected.data(), stored, sizeof expected) != 0) {
      fail("page %zu of row %zu in group %llu is current, and is not what the others make of it", place, row,
           static_cast<unsigned long long>(number));
    }
  }
  if (count < data) {
    fail("row %zu of group %llu has %zu pages that are current, and needs %zu", row,
         static_cast<unsigned long long>(number), count, data);
  }
}

void parity_books::describe() const {
  std::fprintf(stderr, "%s\n", tier_.describe().c_str());
  const backend::stripe_table& table = tier_.books().table;
  table.lock.assert_held();
  for (std::uint64_t number = 0; number < table.groups_end(); ++number) {
    const backend::stripe_group& seen = table.group_at(number);
    std::fprintf(stderr, "group %llu: placed %d, %u pages, in flight %u and %u%s",
                 static_cast<unsigned long long>(number), seen.placed, seen.live_pages, seen.in_flight[0],
                 seen.in_flight[1], seen.leaving.present ? ", an extent leaves" : "");
    for (std::size_t index = 0; index < backend::most_holders; ++index) {
      if (!seen.holders[index].present) continue;
      std::fprintf(stderr, "; %zu on %d: stale %zu", seen.place_of(index), seen.holders[index].member,
                   seen.stale(index).size());
    }
    std::fprintf(stderr, "\n");
  }
}

std::vector<server_count> parity_books::counted() const {
  const backend::striped_backend::counts seen = tier_.counted();
  return {{"decoded pages", seen.decoded_pages},
          {"mended rows", seen.mended.mended_rows},
          {"spares", seen.mended.spares},
          {"moved extents", seen.mended.moved_extents, true},
          {"moved pages", seen.moved_pages}};
}

}  // namespace

std::unique_ptr<tier_books> books_of(backend::replicated_backend& tier) {
  return std::make_unique<copies_books>(tier);
}

std::unique_ptr<tier_books> books_of(backend::striped_backend& tier) {
  return std::make_unique<parity_books>(tier);
}

}  // namespace far::simulation
