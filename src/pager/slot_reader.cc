#include "pager/slot_reader.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "base/check.h"
#include "base/lock_guard.h"
#include "platform/signal_shield.h"

namespace far::pager {
namespace {

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

// A read that a thread or a fiber waits for.
struct slot_reader::awaited_read : engine::object_read {
  miss_waiter* fibers = nullptr;
  miss_waiter::ticket ticket;

  static void tell(engine::object_read& one) noexcept {
    auto& mine = static_cast<awaited_read&>(one);
    mine.fibers->wake(mine.ticket);
  }
};

result<void> slot_reader::add_readers(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const result<engine::object_reader*> added = engine_.transfers().add_object_reader();
    if (!added) return added.error();
    readers_.push_back(added.value());
  }
  return {};
}

void slot_reader::prepare(awaited_read& one, const part& of, std::size_t bytes) const {
  one.page = heap_.page_at(of.address);
  one.offset_bytes = static_cast<std::uint32_t>(of.address - heap_.address_of(one.page));
  one.length_bytes = static_cast<std::uint32_t>(bytes);
  one.buffer = of.buffer;
}

void slot_reader::finish(part& of, const awaited_read& one) {
  of.outcome = to_slot_read(one.outcome.load(std::memory_order_acquire));
  of.version = one.version;
}

slot_read slot_reader::read(const std::byte* address, std::size_t bytes, std::byte* buffer) {
  part one{.address = address, .buffer = buffer, .outcome = slot_read::not_remote};
  read_part(one, bytes);
  return one.outcome;
}

// Without room for the others: the stack may be small.
void slot_reader::read_part(part& one, std::size_t bytes) {
  awaited_read mine;
  prepare(mine, one, bytes);
  read_all({&mine, 1});
  finish(one, mine);
}

void slot_reader::read_parts(std::span<part> parts, std::size_t bytes) {
  FAR_CHECK(parts.size() <= most_parts, "so many parts are read side by side");
  std::array<awaited_read, most_parts> reads;
  for (std::size_t i = 0; i < parts.size(); ++i) prepare(reads[i], parts[i], bytes);
  read_all({reads.data(), parts.size()});
  for (std::size_t i = 0; i < parts.size(); ++i) finish(parts[i], reads[i]);
}

void slot_reader::reduce(const reduction& how, std::span<slot_reduction> pages) {
  FAR_CHECK(pages.size() <= page_guard::most_reductions, "so many pages are reduced side by side");
  std::array<awaited_read, page_guard::most_reductions> reads;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    reads[i].page = heap_.page_at(pages[i].address);
    reads[i].offset_bytes = static_cast<std::uint32_t>(pages[i].address - heap_.address_of(reads[i].page));
    reads[i].length_bytes = static_cast<std::uint32_t>(pages[i].bytes);
    reads[i].buffer = pages[i].answer;
    reads[i].reduce = &how;
    reads[i].groups = pages[i].groups;
  }
  read_all({reads.data(), pages.size()});
  for (std::size_t i = 0; i < pages.size(); ++i) {
    pages[i].outcome = to_slot_read(reads[i].outcome.load(std::memory_order_acquire));
  }
}

void slot_reader::reduce_rows(const reduction& how, std::span<row_reduction> rows) {
  FAR_CHECK(rows.size() <= page_guard::most_reductions, "so many questions are asked side by side");
  std::array<awaited_read, page_guard::most_reductions> reads;
  std::array<std::array<engine::page_id, detail::most_row_pages>, page_guard::most_reductions> pages;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::ranges::transform(rows[i].pages, pages[i].begin(),
                           [&](const std::byte* address) { return heap_.page_at(address); });
    reads[i].page = pages[i][0];
    reads[i].pages = std::span<const engine::page_id>(pages[i]).first(rows[i].pages.size());
    reads[i].length_bytes = page_bytes;
    reads[i].buffer = rows[i].answer;
    reads[i].reduce = &how;
  }
  read_all({reads.data(), rows.size()});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].outcome = to_slot_read(reads[i].outcome.load(std::memory_order_acquire));
  }
}

void slot_reader::read_all(std::span<awaited_read> reads) {
  FAR_CHECK(!readers_.empty(), "read_slot() and reduce_slots() need options::object_readers");
  for (const awaited_read& one : reads) {
    FAR_CHECK(one.offset_bytes + one.length_bytes <= page_bytes, "a slot is read within one page");
  }
  if (host_.on_fiber()) return read_on_fiber(reads);
  read_on_thread(reads);
}

// Starts the read on the first reader that is not held and has room.
engine::read_outcome slot_reader::start(engine::object_read& one) noexcept {
  // Each thread has one of its own as far as there are enough: what it writes there stays in its cache.
  const std::size_t preferred = host_.preferred_fetcher();
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    engine::object_reader& reader = *readers_[(preferred + i) % readers_.size()];
    if (!reader.has_room() || !reader.lock.try_lock()) continue;
    const lock_guard guard(reader.lock, std::adopt_lock);
    const engine::read_outcome reached = reader.start(one);
    if (reached != engine::read_outcome::busy) return reached;
  }
  return engine::read_outcome::busy;
}

// One that start() has ended has its outcome from it.
void slot_reader::read_on_thread(std::span<awaited_read> reads) {
  const platform::signal_shield shield;
  for (awaited_read& one : reads) {
    backoff waiting;
    engine::read_outcome reached = engine::read_outcome::busy;
    while ((reached = start(one)) == engine::read_outcome::busy) {
      if (!engine::help(engine_, host_, engine::caller::of_program)) waiting.pause();
    }
    if (reached != engine::read_outcome::in_flight) one.outcome.store(reached, std::memory_order_relaxed);
  }
  for (const awaited_read& one : reads) {
    backoff arriving;
    while (one.outcome.load(std::memory_order_acquire) == engine::read_outcome::in_flight) {
      if (!engine::help(engine_, host_, engine::caller::of_program)) arriving.pause();
    }
  }
}

void slot_reader::read_on_fiber(std::span<awaited_read> reads) {
  std::uint64_t under_way = 0;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    awaited_read& one = reads[i];
    one.fibers = host_.fibers();
    one.finished = &awaited_read::tell;
    while (true) {
      one.fibers->open(one.ticket);
      const engine::read_outcome reached = start(one);
      if (reached == engine::read_outcome::in_flight) {
        under_way |= std::uint64_t{1} << i;
        break;
      }
      one.fibers->close(one.ticket);
      if (reached != engine::read_outcome::busy) {
        one.outcome.store(reached, std::memory_order_relaxed);
        break;
      }
      misses_.wait_for_turn();
    }
  }
  if (under_way == 0) return;
  host_.fibers()->poll_soon();
  // The wake that comes before the park is not lost.
  for (std::size_t i = 0; i < reads.size(); ++i) {
    if ((under_way >> i & 1) != 0) reads[i].fibers->park(reads[i].ticket, miss_waiter::place::call);
  }
}

}  // namespace far::pager
