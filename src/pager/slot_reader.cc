#include "pager/slot_reader.h"

#include <mutex>

#include "base/check.h"
#include "base/lock_guard.h"
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

slot_read to_slot_read(engine::read_outcome reached) {
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

result<void> slot_reader::add_readers(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const result<engine::object_reader*> added = engine_.transfers().add_object_reader();
    if (!added) return added.error();
    readers_.push_back(added.value());
  }
  return {};
}

slot_read slot_reader::read(const std::byte* address, std::size_t bytes, std::byte* buffer) {
  FAR_CHECK(!readers_.empty(), "read_slot() needs options::object_readers");
  const page_id page = heap_.page_at(address);
  const auto offset_bytes = static_cast<std::uint32_t>(address - heap_.address_of(page));
  FAR_CHECK(offset_bytes + bytes <= page_bytes, "read_slot() reads within one page");
  if (host_.on_fiber()) return read_on_fiber(page, offset_bytes, {buffer, bytes});
  return read_on_thread(page, offset_bytes, {buffer, bytes});
}

// Starts the read on the first reader that is not held and has room.
engine::read_outcome slot_reader::start(engine::object_read& one) noexcept {
  const std::size_t preferred = static_cast<std::size_t>(one.page);
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    engine::object_reader& reader = *readers_[(preferred + i) % readers_.size()];
    if (!reader.has_room() || !reader.lock.try_lock()) continue;
    const lock_guard guard(reader.lock, std::adopt_lock);
    const engine::read_outcome reached = reader.start(one);
    if (reached != engine::read_outcome::busy) return reached;
  }
  return engine::read_outcome::busy;
}

slot_read slot_reader::read_on_thread(page_id page, std::uint32_t offset_bytes, std::span<std::byte> into) {
  const platform::signal_shield shield;
  engine::object_read mine;
  describe(mine, page, offset_bytes, into);
  backoff waiting;
  engine::read_outcome reached = engine::read_outcome::busy;
  while ((reached = start(mine)) == engine::read_outcome::busy) {
    if (!engine::help(engine_, host_, engine::caller::of_program)) waiting.pause();
  }
  if (reached != engine::read_outcome::in_flight) return to_slot_read(reached);
  backoff arriving;
  while ((reached = mine.outcome.load(std::memory_order_acquire)) == engine::read_outcome::in_flight) {
    if (!engine::help(engine_, host_, engine::caller::of_program)) arriving.pause();
  }
  return to_slot_read(reached);
}

slot_read slot_reader::read_on_fiber(page_id page, std::uint32_t offset_bytes, std::span<std::byte> into) {
  awaited_read mine;
  describe(mine, page, offset_bytes, into);
  mine.fibers = host_.fibers();
  mine.finished = &awaited_read::tell;
  while (true) {
    mine.fibers->open(mine.ticket);
    const engine::read_outcome reached = start(mine);
    if (reached == engine::read_outcome::in_flight) break;
    mine.fibers->close(mine.ticket);
    if (reached != engine::read_outcome::busy) return to_slot_read(reached);
    misses_.wait_for_turn();
  }
  mine.fibers->poll_soon();
  mine.fibers->park(mine.ticket, miss_waiter::place::call);
  return to_slot_read(mine.outcome.load(std::memory_order_acquire));
}

}  // namespace far::pager
