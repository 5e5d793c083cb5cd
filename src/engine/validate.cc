#include "engine/validate.h"

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace far::engine {
namespace {

using slot_list = std::vector<backend::slot_id, platform::local_allocator<backend::slot_id>>;

struct tally {
  std::uint64_t frames = 0;  // that should be charged
  slot_list slots;
};

// I1, I3: a page is in one state, and its newest bytes are in exactly one place.
void check_word(const core& shared, page_id page, tally* sum) {
  const page_word word = shared.pages.load(page);
  FAR_CHECK((shared.pages.state_bytes()[page] == residency::byte_of_resident) == (word.where() == state::resident),
            "I1: the state byte agrees");
  switch (word.where()) {
    case state::untouched:
      FAR_CHECK(!word.has_place() && !word.dirty(), "I3: an Untouched page has no bytes anywhere");
      return;
    case state::resident:
      FAR_CHECK(!word.dirty() || !word.has_place() || word.writes_expected() || !shared.writes_tracked ||
                    shared.filter != nullptr,
                "I3: a dirty page has a slot only while it is a suspect");
      FAR_CHECK(word.queued(), "a Resident page is in the policy's care");
      ++sum->frames;
      break;
    case state::evicting:
      FAR_CHECK(word.lifted(), "I3: between calls, an Evicting page is lifted");
      return;  // its frame and its slot are the batch's
    case state::remote:
      FAR_CHECK(word.has_place() && !word.dirty(), "I3: a Remote page has its bytes in its slot");
      break;
    case state::fetching:
      FAR_CHECK(word.has_place(), "I3: between calls, a Fetching page has its bytes in its slot");
      ++sum->frames;
      break;
    case state::lost: break;
    case state::foreign:
      FAR_CHECK(!word.has_place() && !word.dirty(), "I3: a Foreign page has no bytes of ours");
      return;
  }
  if (word.has_place()) sum->slots.push_back(word.place());
}

// Whether a slot is there twice.
bool has_equal(slot_list& slots) {
  if (slots.empty()) return false;
  // Their numbers are mostly dense; then a bit for each is cheaper than to sort them.
  const backend::slot_id greatest = *std::max_element(slots.begin(), slots.end());
  if (greatest / 64 > slots.size()) {
    std::sort(slots.begin(), slots.end());
    return std::adjacent_find(slots.begin(), slots.end()) != slots.end();
  }
  std::vector<bool, platform::local_allocator<bool>> seen(greatest + 1);
  return std::any_of(slots.begin(), slots.end(), [&](backend::slot_id slot) {
    const bool is_second = seen[slot];
    seen[slot] = true;
    return is_second;
  });
}

}  // namespace

// Recomputes frames and slots from the pages and from what is under way, and compares them with the counts.
void validate(const core& shared, const transfer_queues& transfers) {
  tally sum;
  shared.blocks.for_each_used([&](block_id id) {
    const block& used = shared.blocks.at(id);
    used.lock.assert_held();
    if (used.kind == block_kind::fresh) return;
    // I8: an open block is the kernel's; only its allocation is charged, and no page of it is in any other state.
    if (used.kind == block_kind::open) sum.frames += used.allocated_pages;
    const page_range range = pages_of(id);
    for (page_id page = range.first; page < range.end(); ++page) {
      const state where = shared.pages.load(page).where();
      FAR_CHECK(used.kind == block_kind::guarded || where == state::untouched || where == state::foreign,
                "I8: pages of an open block are Untouched, or not ours");
      check_word(shared, page, &sum);
    }
  });
  std::size_t unreferenced_slots = 0;
  for (const std::unique_ptr<evictor>& evictor : transfers.evictors()) {
    const evictor::holdings held = evictor->held();
    sum.frames += held.staged_frames;
    unreferenced_slots += held.unreferenced_slots;
  }
  FAR_CHECK(sum.frames == shared.local.charged_pages(), "I2: every frame is charged once");
  FAR_CHECK(shared.excess_allowed() || sum.frames <= shared.local.limit_pages() + batch_pages,
            "I2: frames fit the budget and one batch");
  // I7: a slot belongs to one page, one batch, or, when its page has given it up, to the reads that still need it; no
  // other slot is in use.
  unreferenced_slots += shared.reads.owned_slots();
  FAR_CHECK(!has_equal(sum.slots), "I7: no slot has two owners");
  const backend::capacity stored = shared.far.report();
  FAR_CHECK(sum.slots.size() + unreferenced_slots + stored.kept_slots == stored.used_slots, "I7: no slot is leaked");
}

}  // namespace far::engine
