// The sessions of the store: tables of blocks, and allocations in steps.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "platform/local_memory.h"
#include "server/store.h"

namespace far::server {

session::session(store& owner, std::shared_ptr<tenant> whose, wire::session_id id, std::unique_ptr<block_source> source,
                 std::atomic<std::uintptr_t>* blocks)
    : store_(owner),
      tenant_(std::move(whose)),
      id_(id),
      source_(std::move(source)),
      blocks_(blocks),
      entries_of_page_(reinterpret_cast<std::uint16_t*>(reinterpret_cast<std::byte*>(blocks) + entries_bytes)),
      lock_(owner.lock_) {}

// A session that has ended holds nothing any more; others end with the store.
session::~session() {
  for (std::uint64_t number = 0; number < highest_ && !ended_; ++number) {
    const std::uintptr_t entry = blocks_[number].load();
    if (entry != 0) give_back(number, entry);
  }
  platform::unmap_local(reinterpret_cast<std::byte*>(blocks_), table_bytes);
}

void session::note_entry(std::uint64_t number) {
  store_.lock_.assert_held();  // the same one
  if (++entries_of_page_[number / entries_a_page] > 1) return;
  ++table_pages_;
  ++tenant_->held.table_pages;
  ++store_.held_.table_pages;
}

// Loops that read the page meanwhile find zeros, which is what it holds.
void session::reset_entry(std::uint64_t number) {
  blocks_[number].store(0);
  const std::uint64_t page = number / entries_a_page;
  if (--entries_of_page_[page] > 0) return;
  store_.lock_.assert_held();  // the same one
  --table_pages_;
  --tenant_->held.table_pages;
  --store_.held_.table_pages;
  FAR_CHECK(madvise(reinterpret_cast<std::byte*>(blocks_) + page * page_bytes, page_bytes, MADV_DONTNEED) == 0,
            "a page of our own can be given back");
}

template <typename Visit>
void session::for_each_held(wire::block_range blocks, Visit visit) const {
  const std::uint64_t end = std::min(blocks.first + blocks.count, highest_);
  for (std::uint64_t number = blocks.first; number < end;) {
    const std::uint64_t page_end = (number / entries_a_page + 1) * entries_a_page;
    if (entries_of_page_[number / entries_a_page] == 0) {
      number = page_end;
      continue;
    }
    for (; number < std::min(page_end, end); ++number) {
      const std::uintptr_t entry = blocks_[number].load();
      if (is_held(entry)) visit(number, entry);
    }
  }
}

session::search session::look_for_held(std::uint64_t number) const {
  constexpr unsigned most_looks = 1024;
  for (unsigned looks = 0; number < highest_ && looks < most_looks; ++looks) {
    const std::uint64_t page = number / entries_a_page;
    if (entries_of_page_[page] == 0) {
      number = (page + 1) * entries_a_page;
      continue;
    }
    const std::uintptr_t entry = blocks_[number].load();
    if (is_held(entry)) return {number, true};
    ++number;
  }
  return {std::min(number, highest_), false};
}

// Charges the whole allocation at once, under the lock, so that two sessions cannot both be promised the last blocks.
// Filling the blocks comes later, without the lock.
std::optional<session::step> session::begin(allocation& work) {
  const lock_guard guard(lock_);
  store_.lock_.assert_held();  // the same one
  if (ended_) return step{progress::done, wire::status::not_allocated};
  if (store_.draining()) return step{progress::done, wire::status::draining};
  if (under_way_ != nullptr) return step{progress::wait, wire::status::ok};
  // What it lacks for certain may be more than it could ever get: then its table is not looked at.
  if (work.blocks.count > held_blocks_ && work.blocks.count - held_blocks_ > tenant_->quota_blocks) {
    return step{progress::done, wire::status::no_space};
  }
  std::uint64_t missing = work.blocks.count;
  for_each_held(work.blocks, [&](std::uint64_t /*number*/, std::uintptr_t /*entry*/) { --missing; });
  const std::uint64_t last = work.blocks.first + work.blocks.count - 1;
  const std::uint64_t pages = last / entries_a_page - work.blocks.first / entries_a_page + 1;
  const lent_memory wanted{missing, std::min(missing, pages)};
  if (missing > 0 && !(tenant_->has_room_for(wanted) && store_.has_room_for(wanted))) {
    const bool comes_back =
        wanted.whole_blocks() <= tenant_->quota_blocks && (store_.is_reclaiming() || store_.give_way(*tenant_, wanted));
    return step{comes_back ? progress::wait : progress::done, wire::status::no_space};
  }
  tenant_->held.blocks += missing;
  store_.held_.blocks += missing;
  tenant_->promised_pages += wanted.table_pages;
  store_.promised_pages_ += wanted.table_pages;
  held_blocks_ += missing;
  work.charged = missing;
  work.promised = wanted;
  work.next = 0;
  work.begun = true;
  under_way_ = &work;
  highest_ = std::max(highest_, work.blocks.first + work.blocks.count);
  return std::nullopt;
}

std::uintptr_t session::take_contents(std::uint64_t number) {
  const auto entry_of = [](const std::byte* block) {
    const auto address = reinterpret_cast<std::uintptr_t>(block);
    FAR_CHECK((address & flags) == 0, "a block that is not aligned");
    return address | touched;
  };
  if (!spills_) {
    std::byte* const block = source_->take(number);
    return block == nullptr ? 0 : entry_of(block);
  }
  {
    const lock_guard guard(lock_);
    const bool has_frame = store_.spiller_->charge_frame();
    if (!has_frame) return store_.spiller_->may_overflow() ? entry_on_disk(spill_area::nowhere) : 0;
  }
  std::byte* const block = source_->take(number);
  if (block != nullptr) return entry_of(block);
  const lock_guard guard(lock_);
  store_.spiller_->release_frame();
  return store_.spiller_->may_overflow() ? entry_on_disk(spill_area::nowhere) : 0;
}

void session::give_back(std::uint64_t number, std::uintptr_t entry) {
  if ((entry & on_disk) == 0) source_->give_back(number, address_in(entry));
}

void session::discharge(std::uintptr_t entry) {
  if (!spills_) return;
  if ((entry & on_disk) != 0) {
    store_.spiller_->release_place(place_in(entry));
  } else {
    store_.spiller_->release_frame();
  }
}

session::whereabouts session::bring_in(std::uint64_t slot) {
  const std::uint64_t number = slot / wire::block_slots;
  if (number >= maximum_session_blocks) return whereabouts::nowhere;
  const lock_guard guard(lock_);
  const std::uintptr_t entry = blocks_[number].load();
  if (ended_ || !is_held(entry)) return whereabouts::nowhere;
  if ((entry & moving) != 0) return whereabouts::coming;
  if ((entry & on_disk) == 0) return whereabouts::here;
  if ((entry & unreadable) != 0) {
    blocks_[number].store(entry & ~unreadable);
    return whereabouts::unreadable;
  }
  blocks_[number].store(entry | moving);
  store_.spiller_->ask_for(shared_from_this(), number);
  return whereabouts::coming;
}

// Filling a block with zeros takes about half a millisecond, so an allocation is cut into steps, between which other
// connections are served. A block becomes visible to the client only in finish().
session::step session::allocate_some(allocation& work, std::uint64_t most_blocks) {
  FAR_CHECK(can_name(work.blocks), "an allocation of blocks without a number");
  if (!work.begun) {
    std::optional<step> ended = begin(work);
    if (ended && ended->at == progress::wait) static_cast<void>(store_.reclaim());
    if (ended) return *ended;
  }
  for (std::uint64_t dealt_with = 0; work.next < work.blocks.count; ++dealt_with) {
    // Blocks that are there already cost only a look, so they count little.
    if (work.charged == 0) break;
    if (dealt_with >= most_blocks) return {progress::more, wire::status::ok};
    const std::uint64_t number = work.blocks.first + work.next;
    const std::uintptr_t entry = blocks_[number].load();
    if ((entry & being_freed) != 0) {
      static_cast<void>(store_.reclaim());
      return {progress::wait, wire::status::ok};
    }
    if (entry == 0) {
      const std::uintptr_t contents = take_contents(number);
      if (contents == 0 && store_.give_way_to_machine()) return {progress::wait, wire::status::ok};
      if (contents == 0) return finish(work, wire::status::no_space);
      {
        const lock_guard guard(lock_);
        note_entry(number);
      }
      blocks_[number].store(contents | being_allocated);
      --work.charged;
    }
    ++work.next;
  }
  return finish(work, wire::status::ok);
}

// Shows all blocks of an allocation at once, or none: a client that was refused must not find half of them.
session::step session::finish(allocation& work, wire::status result) {
  {
    const lock_guard guard(lock_);
    if (ended_) result = wire::status::not_allocated;
    if (result == wire::status::ok) {
      for (std::uint64_t i = 0; i < work.next; ++i) {
        std::atomic<std::uintptr_t>& entry = blocks_[work.blocks.first + i];
        const std::uintptr_t value = entry.load();
        if ((value & being_allocated) != 0) entry.store(value & ~being_allocated);
      }
      end_allocation(work);
      return {progress::done, result};
    }
  }
  // These blocks were never visible, so nobody uses them. Their numbers stay ours until under_way_ is reset.
  std::uint64_t unused = work.charged;
  for (std::uint64_t i = 0; i < work.next; ++i) {
    const std::uintptr_t value = blocks_[work.blocks.first + i].load();
    if ((value & being_allocated) == 0) continue;
    give_back(work.blocks.first + i, value);
    const lock_guard guard(lock_);
    discharge(value);
    reset_entry(work.blocks.first + i);
    ++unused;
  }
  const lock_guard guard(lock_);
  store_.lock_.assert_held();  // the same one
  held_blocks_ -= unused;
  end_allocation(work);
  store_.uncharge(*tenant_, unused);
  return {progress::done, result};
}

void session::end_allocation(const allocation& work) {
  store_.lock_.assert_held();  // the same one
  tenant_->promised_pages -= work.promised.table_pages;
  store_.promised_pages_ -= work.promised.table_pages;
  under_way_ = nullptr;
}

void session::abandon(allocation& work) {
  if (work.begun) static_cast<void>(finish(work, wire::status::no_space));
}

wire::status session::allocate(wire::block_range blocks) {
  allocation work{.blocks = blocks};
  for (unsigned waits = 0; waits < 1000; ++waits) {
    const step got = allocate_some(work, maximum_session_blocks);
    if (got.at == progress::done) return got.result;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  abandon(work);
  return wire::status::no_space;
}

bool session::overlaps_allocation(wire::block_range blocks) const {
  if (under_way_ == nullptr) return false;
  const wire::block_range& other = under_way_->blocks;
  return blocks.first < other.first + other.count && other.first < blocks.first + blocks.count;
}

bool session::holds_all(wire::block_range blocks) const {
  if (blocks.count > held_blocks_) return false;
  std::uint64_t missing = blocks.count;
  for_each_held(blocks, [&](std::uint64_t /*number*/, std::uintptr_t /*entry*/) { --missing; });
  return missing == 0;
}

wire::status session::free(wire::block_range blocks) {
  const lock_guard guard(lock_);
  return free_locked(blocks);
}

wire::status session::free_held(wire::block_range blocks) {
  const lock_guard guard(lock_);
  return holds_all(blocks) ? free_locked(blocks) : wire::status::not_allocated;
}

wire::status session::free_locked(wire::block_range blocks) {
  FAR_CHECK(can_name(blocks), "freeing of blocks without a number");
  store_.lock_.assert_held();  // the same one
  if (ended_ || overlaps_allocation(blocks)) return wire::status::not_allocated;
  std::vector<std::uint64_t> numbers;
  // Blocks that it does not hold are free already: the reply to an earlier request may have been lost.
  for_each_held(blocks, [&](std::uint64_t number, std::uintptr_t entry) {
    blocks_[number].store(entry | being_freed);
    numbers.push_back(number);
  });
  const quiescent_states::ticket unused_after = store_.readers_.draw();
  for (const std::uint64_t number : numbers) store_.freed_.push_back({shared_from_this(), number, unused_after});
  held_blocks_ -= numbers.size();
  return wire::status::ok;
}

wire::capacity_report session::report() const {
  const lock_guard guard(lock_);
  store_.lock_.assert_held();  // the same one
  return {.quota_slots = tenant_->quota_blocks * wire::block_slots,
          .tenant_slots = tenant_->held.whole_blocks() * wire::block_slots,
          .server_free_slots = store_.free_blocks() * wire::block_slots,
          .session_slots = held_blocks_ * wire::block_slots};
}

}  // namespace far::server
