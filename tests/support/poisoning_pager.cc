#include "tests/support/poisoning_pager.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "fiber/this_fiber.h"

namespace far::heap {
namespace {

using engine::page_word;
using engine::state;

constexpr std::size_t segment_alignment = std::size_t{256} << 10;
constexpr std::size_t batch_pages = 64;

std::byte* reserve(std::size_t bytes) {
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  FAR_CHECK(at != MAP_FAILED, "the simulated far heap has addresses");
  return static_cast<std::byte*>(at);
}

std::byte* align_up(std::byte* address, std::size_t alignment) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return address + ((at + alignment - 1) / alignment * alignment - at);
}

// Now and then lets others run, so that races get a chance on few CPUs. Where a fiber may be suspended: yields it.
void stumble() {
  thread_local std::minstd_rand random(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(&random) >> 6));
  if (random() % 16 == 0) std::this_thread::yield();
}
void stumble_of_fiber() {
  fiber::yield();
}

// By a function that the sanitizers know, because a loop over all pages is slow under them.
bool is_all_poison(const std::byte* page) {
  return *page == poisoning_pager::poison && std::memcmp(page, page + 1, page_bytes - 1) == 0;
}

}  // namespace

poisoning_pager::poisoning_pager(const far::pager::options& chosen)
    : filter_(chosen.filter),
      in_order_(chosen.policy == "fifo"),
      reserved_(reserve(heap_pages * page_bytes_ + segment_alignment)),
      base_(align_up(reserved_, segment_alignment)),
      slots_(reserve(heap_pages * page_bytes_)),
      words_(heap_pages),
      budget_pages_(chosen.budget_bytes / page_bytes_),
      left_after_(in_order_ ? heap_pages : 0) {
  if (in_order_) return;
  for (std::size_t i = 0; i < evictors; ++i) threads_[i] = std::thread([this, i] { evict_at_random(i); });
}

poisoning_pager::~poisoning_pager() {
  stopping_.store(true);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  munmap(reserved_, heap_pages * page_bytes_ + segment_alignment);
  munmap(slots_, heap_pages * page_bytes_);
}

bool poisoning_pager::contains(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  return at >= base_ && at < base_ + heap_pages * page_bytes_;
}

poisoning_pager::page_id poisoning_pager::page_of(const std::byte* address) const {
  FAR_CHECK(contains(address), "an address of the far heap");
  return static_cast<page_id>(address - base_) / page_bytes_;
}

result<std::byte*> poisoning_pager::map_guarded(std::size_t bytes, std::size_t alignment_bytes) {
  std::uint64_t mapped = mapped_pages_.load();
  while (true) {
    const std::uint64_t alignment = std::max<std::uint64_t>(alignment_bytes / page_bytes_, 1);
    const std::uint64_t first = (mapped + alignment - 1) / alignment * alignment;
    const std::uint64_t end = first + pages_for(bytes);
    if (end > heap_pages) return error{"the simulated far heap is full", ENOMEM};
    if (mapped_pages_.compare_exchange_weak(mapped, end)) return bytes_of(first);
  }
}

// ---- arriving ----

bool poisoning_pager::fetch(const std::byte* address, std::size_t bytes, bool /*write*/) {
  paused_.store(false, std::memory_order_relaxed);
  const page_id first = page_of(address);
  const page_id last = page_of(address + bytes - 1);
  for (page_id page = first; page <= last; ++page) {
    while (words_.load(page).where() != state::resident) {
      stumble_of_fiber();
      bring(page);
    }
  }
  if (in_order_) evict_in_order();
  return true;
}

bool poisoning_pager::expect_use(const std::byte* address, std::size_t bytes, const far::pager::hint& about) noexcept {
  static_cast<void>(fetch(address, std::max<std::size_t>(bytes, 1), about.write));
  return true;
}

// One try. The thread that makes the page Fetching does not suspend its fiber before it is Resident: discard() waits
// for it without letting fibers run.
void poisoning_pager::bring(page_id page) {
  page_word word = words_.load(page);
  const bool has_bytes = word.where() == state::remote;
  if (!has_bytes && word.where() != state::untouched) return;
  if (!words_.transition(page, word, word.with_state(state::fetching))) return;
  stumble();
  std::byte* const to = bytes_of(page);
  if (has_bytes) {
    FAR_CHECK(is_all_poison(to), "nobody writes to a page that is not resident");
    const std::lock_guard guard(slot_lock(page));
    std::memcpy(to, slots_ + page * page_bytes_, page_bytes_);
    fetched_.fetch_add(1, std::memory_order_relaxed);
  }
  stumble();
  resident_pages_.fetch_add(1, std::memory_order_relaxed);
  words_.update(page, [has_bytes](page_word before) {
    return before.with_state(state::resident).with_fetched(has_bytes).with_place(page_word::no_place);
  });
  if (in_order_) queue_.push_back(page);
}

// In order, as engine::eviction_clock tells it.
bool poisoning_pager::left_just_now(const std::byte* address) const {
  const page_id page = page_of(address);
  return in_order_ ? evicted_.load() - left_after_[page] < budget_pages_.load() * 3 / 16 : page % 2 == 0;
}

bool poisoning_pager::takes_object_path(const std::byte* address) const {
  const page_word word = words_.load(page_of(address));
  return word.where() == state::remote && word.object_path();
}

bool poisoning_pager::is_away(const std::byte* address) const {
  const state where = words_.load_in_order(page_of(address)).where();
  return where == state::remote || where == state::untouched || where == state::lost;
}

far::pager::slot_read poisoning_pager::read_slot(const std::byte* address, std::size_t bytes, std::byte* buffer) {
  const page_id page = page_of(address);
  const page_word before = words_.load(page);
  if (before.where() != state::remote) return far::pager::slot_read::not_remote;
  stumble_of_fiber();
  {
    const std::lock_guard guard(slot_lock(page));
    std::memcpy(buffer, slots_ + page * page_bytes_ + static_cast<std::size_t>(address - bytes_of(page)), bytes);
  }
  stumble_of_fiber();
  const page_word after = words_.load_in_order(page);
  const bool same = after.where() == state::remote && after.place() == before.place();
  return same ? far::pager::slot_read::done : far::pager::slot_read::not_remote;
}

void poisoning_pager::reduce_slots(const reduction& how, std::span<far::pager::slot_reduction> pages) {
  for (far::pager::slot_reduction& one : pages) {
    alignas(8) std::array<std::byte, page_bytes> numbers;
    one.outcome = read_slot(one.address, one.bytes, numbers.data());
    if (one.outcome == far::pager::slot_read::done) {
      find(how, std::span(numbers).first(one.bytes), one.answer, one.groups);
    }
  }
}

void poisoning_pager::reduce_rows(const reduction& how, std::span<far::pager::row_reduction> rows) {
  for (far::pager::row_reduction& one : rows) {
    std::vector<std::byte> copies(one.pages.size() * page_bytes);
    std::array<const std::byte*, detail::most_row_pages> pages{};
    one.outcome = far::pager::slot_read::done;
    for (std::size_t i = 0; i < one.pages.size() && one.outcome == far::pager::slot_read::done; ++i) {
      one.outcome = read_slot(one.pages[i], page_bytes, copies.data() + i * page_bytes);
      pages[i] = copies.data() + i * page_bytes;
    }
    if (one.outcome == far::pager::slot_read::done) {
      find_of_rows(how, std::span(pages).first(one.pages.size()), one.answer);
    }
  }
}

// ---- leaving ----

void poisoning_pager::evict_at_random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<page_id> victims;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const std::uint64_t mapped = mapped_pages_.load();
    const bool gives_way = paused_.load(std::memory_order_relaxed) || callers_.load(std::memory_order_relaxed) > 0;
    if (mapped == 0 || gives_way || (!under_pressure() && random() % 4 != 0)) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      continue;
    }
    const std::lock_guard guard(batch_);
    victims.clear();
    const auto name = [&](page_id page) {
      if (page >= mapped || words_.load(page).where() != state::resident) return;
      if (std::find(victims.begin(), victims.end(), page) == victims.end()) victims.push_back(page);
    };
    // Some that had to ripen, neighbours, and pages from anywhere.
    page_id tried = 0;
    for (; tried < batch_pages / 2 && !ripening_.empty(); ++tried) {
      name(ripening_.back());
      ripening_.pop_back();
    }
    for (const page_id first = random() % mapped; tried < batch_pages; ++tried) {
      name(tried % 2 == 0 ? first + tried / 2 : random() % mapped);
    }
    if (!paused_.load(std::memory_order_relaxed)) evict_batch(victims);
  }
}

std::unique_lock<std::mutex> poisoning_pager::stop_evictors() const {
  callers_.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock guard(batch_);
  callers_.fetch_sub(1, std::memory_order_relaxed);
  return guard;
}

// Keeps a batch free. Pages that ripen are named first the next time: then the scope in which the caller is has ended.
void poisoning_pager::evict_in_order() {
  const std::uint64_t budget = budget_pages_.load();
  if (resident_pages_.load() + batch_pages <= budget) return;
  const std::unique_lock guard = stop_evictors();
  std::vector<page_id> ripening = std::exchange(ripening_, {});
  for (std::size_t looked_at = 0; resident_pages_.load() + 2 * batch_pages > budget && looked_at < 2 * budget;) {
    std::vector<page_id> victims;
    while (victims.size() < batch_pages && !(ripening.empty() && queue_.empty())) {
      const page_id next = ripening.empty() ? queue_.front() : ripening.back();
      ripening.empty() ? queue_.pop_front() : ripening.pop_back();
      if (words_.load(next).where() == state::resident) victims.push_back(next);
    }
    looked_at += batch_pages;
    evict_batch(victims);
    for (const page_id page : victims) {
      const bool ripens = std::find(ripening_.begin(), ripening_.end(), page) != ripening_.end();
      if (!ripens && words_.load(page).where() == state::resident) queue_.push_back(page);
    }
  }
  ripening_.insert(ripening_.end(), ripening.begin(), ripening.end());
}

void poisoning_pager::evict(std::byte* address, std::size_t bytes) {
  if (bytes == 0) return;
  const std::unique_lock guard = stop_evictors();
  std::vector<page_id> victims;
  for (page_id page = page_of(address); page <= page_of(address + bytes - 1); ++page) {
    victims.push_back(page);
    if (victims.size() < batch_pages) continue;
    evict_batch(victims);
    victims.clear();
  }
  evict_batch(victims);
}

// As evictor::step().
void poisoning_pager::evict_batch(std::span<const page_id> victims) {
  std::array<page_id, batch_pages> claimed;
  std::size_t count = 0;
  engine::eviction_look seen;
  if (filter_ != nullptr && !victims.empty()) seen = filter_->look(candidates(victims), false);
  for (std::size_t i = 0; i < victims.size(); ++i) {
    if ((seen.ripens >> i & 1) != 0) ripening_.push_back(victims[i]);
    if (((seen.warm | seen.ripens) >> i & 1) == 0 && claim(victims[i])) claimed[count++] = victims[i];
  }
  if (count == 0) return;
  stumble();
  engine::eviction_verdict said;
  if (filter_ != nullptr) said = filter_->decide(candidates({claimed.data(), count}), false);
  for (std::size_t i = 0; i < count; ++i) {
    stumble();
    if ((said.stay >> i & 1) != 0) {
      words_.update(claimed[i], [](page_word word) { return word.with_state(state::resident); });
    } else {
      take_away(claimed[i], (said.object_path >> i & 1) != 0);
    }
  }
}

engine::eviction_candidates poisoning_pager::candidates(std::span<const page_id> pages) const {
  engine::eviction_candidates asked{pages};
  asked.dirty = ~std::uint64_t{0};
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (words_.load(pages[i]).fetched()) asked.fetched |= std::uint64_t{1} << i;
  }
  return asked;
}

bool poisoning_pager::claim(page_id page) {
  page_word word = words_.load(page);
  while (word.where() == state::resident) {
    if (words_.transition(page, word, word.with_state(state::evicting))) return true;
  }
  return false;
}

void poisoning_pager::take_away(page_id page, bool object_path) {
  std::byte* const from = bytes_of(page);
  {
    const std::lock_guard guard(slot_lock(page));
    std::memcpy(slots_ + page * page_bytes_, from, page_bytes_);
  }
  std::memset(from, static_cast<int>(poison), page_bytes_);
  resident_pages_.fetch_sub(1, std::memory_order_relaxed);
  const std::uint64_t evicted_before = evicted_.fetch_add(1, std::memory_order_relaxed);
  if (in_order_) left_after_[page] = evicted_before;
  const std::uint64_t slot = next_slot_.fetch_add(1, std::memory_order_relaxed);
  words_.update(page, [=](page_word word) {
    return word.with_state(state::remote).with_object_path(object_path).with_place(slot);
  });
}

result<void> poisoning_pager::discard(std::byte* address, std::size_t bytes) {
  for (page_id page = page_of(address); page <= page_of(address + bytes - 1); ++page) drop(page);
  return {};
}

void poisoning_pager::drop(page_id page) {
  backoff waiting;
  while (true) {
    page_word word = words_.load(page);
    if (word.where() == state::untouched) return;
    const bool is_here = word.where() == state::resident;
    const state through = is_here ? state::evicting : state::fetching;
    if ((is_here || word.where() == state::remote) && words_.transition(page, word, word.with_state(through))) {
      // Not by stores: to the sanitizers, the kernel does this.
      madvise(bytes_of(page), page_bytes_, MADV_DONTNEED);
      if (is_here) resident_pages_.fetch_sub(1, std::memory_order_relaxed);
      words_.update(page, [](page_word before) {
        return before.with_state(state::untouched).with_place(page_word::no_place).with_object_path(false);
      });
      return;
    }
    waiting.pause();
  }
}

// ---- the rest ----

bool poisoning_pager::under_pressure() const {
  return resident_pages_.load(std::memory_order_relaxed) > budget_pages_.load(std::memory_order_relaxed);
}

result<void> poisoning_pager::resize(std::uint64_t budget_bytes) {
  budget_pages_.store(budget_bytes / page_bytes_, std::memory_order_relaxed);
  return {};
}

engine::statistics poisoning_pager::snapshot() const {
  engine::statistics now;
  now.budget_bytes = budget_pages_.load() * page_bytes_;
  now.local_bytes = resident_pages_.load() * page_bytes_;
  now.fetched_pages = fetched_.load();
  now.evicted_pages = evicted_.load();
  return now;
}

void poisoning_pager::validate() const {
  paused_.store(true);
  const std::unique_lock guard = stop_evictors();
  for (page_id page = 0; page < mapped_pages_.load(); ++page) {
    const page_word word = words_.load(page);
    const bool is_resident = word.where() == state::resident;
    FAR_CHECK(is_resident == (words_.state_bytes()[page] == engine::residency::byte_of_resident),
              "byte and word of a settled page agree");
    if (word.where() != state::remote) continue;
    FAR_CHECK(is_all_poison(bytes_of(page)), "nobody writes to a page that is not resident");
  }
}

result<void> poisoning_pager::add_server(std::string_view /*server*/) {
  return error{"the simulated pager has no servers; use the real one", ENOSYS};
}

result<std::uint64_t> poisoning_pager::remove_server(std::string_view server, removal /*step*/) {
  return add_server(server).error();
}

}  // namespace far::heap

namespace far::pager {

// In the place of far_pager.cc's, which the linker then leaves out.
result<std::unique_ptr<page_guard>> create_page_guard(const options& chosen) {
  return std::unique_ptr<page_guard>(std::make_unique<heap::poisoning_pager>(chosen));
}

}  // namespace far::pager
