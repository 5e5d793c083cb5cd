// The pager's part in the object path: reading objects out of remote pages.
#include <array>
#include <mutex>

#include "base/check.h"
#include "pager/far_pager.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

// A read that a fiber waits for.
struct awaited_read : engine::object_read {
  miss_waiter* fibers = nullptr;
  miss_waiter::ticket ticket;

  static void tell(engine::object_read& one) noexcept {
    auto& mine = static_cast<awaited_read&>(one);
    mine.fibers->wake(mine.ticket);
  }
};

void describe(engine::object_read& one, engine::page_id page, std::uint32_t offset_bytes, std::span<std::byte> into) {
  one.page = page;
  one.offset_bytes = offset_bytes;
  one.length_bytes = static_cast<std::uint32_t>(into.size());
  one.buffer = into.data();
}

slot_read told(engine::read_outcome reached) {
  switch (reached) {
    case engine::read_outcome::done: return slot_read::done;
    case engine::read_outcome::failed: return slot_read::failed;
    case engine::read_outcome::not_remote: return slot_read::not_remote;
    case engine::read_outcome::in_flight:
    case engine::read_outcome::busy: break;
  }
  FAR_CHECK(false, "a read has ended");
}

}  // namespace

slot_read far_pager::read_slot(const std::byte* address, std::size_t bytes, std::byte* buffer) {
  FAR_CHECK(!readers_.empty(), "read_slot() needs options::object_readers");
  const page_id page = page_at(address);
  const auto offset_bytes = static_cast<std::uint32_t>(address - address_of(page));
  FAR_CHECK(offset_bytes + bytes <= page_bytes, "read_slot() reads within one page");
  if (on_fiber()) return read_slot_on_fiber(page, offset_bytes, {buffer, bytes});
  return read_slot_on_thread(page, offset_bytes, {buffer, bytes});
}

// With the first reader that is not held and has room.
engine::read_outcome far_pager::start_read(engine::object_read& one) noexcept {
  const std::size_t preferred = static_cast<std::size_t>(one.page);
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    engine::object_reader& by = *readers_[(preferred + i) % readers_.size()];
    if (!by.has_room() || !by.lock.try_lock()) continue;
    const std::lock_guard guard(by.lock, std::adopt_lock);
    const engine::read_outcome reached = by.start(one);
    if (reached != engine::read_outcome::busy) return reached;
  }
  return engine::read_outcome::busy;
}

slot_read far_pager::read_slot_on_thread(page_id page, std::uint32_t offset_bytes, std::span<std::byte> into) {
  const platform::signal_shield shield;
  engine::object_read mine;
  describe(mine, page, offset_bytes, into);
  backoff waiting;
  engine::read_outcome reached = engine::read_outcome::busy;
  while ((reached = start_read(mine)) == engine::read_outcome::busy) {
    if (!engine::help(*engine_, *this, engine::caller::of_program)) waiting.pause();
  }
  if (reached != engine::read_outcome::in_flight) return told(reached);
  backoff arriving;
  while ((reached = mine.outcome.load(std::memory_order_acquire)) == engine::read_outcome::in_flight) {
    if (!engine::help(*engine_, *this, engine::caller::of_program)) arriving.pause();
  }
  return told(reached);
}

slot_read far_pager::read_slot_on_fiber(page_id page, std::uint32_t offset_bytes, std::span<std::byte> into) {
  awaited_read mine;
  describe(mine, page, offset_bytes, into);
  mine.fibers = chosen_.fibers;
  mine.finished = &awaited_read::tell;
  while (true) {
    mine.fibers->open(mine.ticket);
    const engine::read_outcome reached = start_read(mine);
    if (reached == engine::read_outcome::in_flight) break;
    mine.fibers->close(mine.ticket);
    if (reached != engine::read_outcome::busy) return told(reached);
    parked_->wait_for_turn(miss_waiter::place::call);
  }
  mine.fibers->poll_soon();
  mine.fibers->park(mine.ticket, miss_waiter::place::call);
  return told(mine.outcome.load(std::memory_order_acquire));
}

}  // namespace far::pager
