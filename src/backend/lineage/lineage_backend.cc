#include "backend/lineage/lineage_backend.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "backend/slot_allocator.h"
#include "base/check.h"
#include "base/log.h"
#include "platform/own_descriptors.h"

namespace far::backend {
namespace {

constexpr std::uint64_t millisecond_ns = 1'000'000;
constexpr std::uint64_t watch_children_ns = 100 * millisecond_ns;
constexpr std::uint64_t idle_ns = 1000 * millisecond_ns;
constexpr std::uint64_t first_pause_ns = 1000 * millisecond_ns;
constexpr std::uint64_t longest_pause_ns = 60'000 * millisecond_ns;
// How many kept slots tend() looks at in one step, which a fork may have to wait for: a millisecond or two.
constexpr std::size_t slots_a_step = 65'536;

}  // namespace

lineage_backend::lineage_backend(std::unique_ptr<backend> root, tier_opener open_own, const platform::clock& time)
    : root_name_(root->describe()), open_own_(std::move(open_own)), time_(time), own_(root.release()) {}

lineage_backend::~lineage_backend() {
  for (const child& entry : children_) {
    if (entry.pipe >= 0) close(entry.pipe);
  }
  for (const int lifeline : lifelines_) close(lifeline);
  delete own_.load();
}

// ---- slots ----

result<slot_id> lineage_backend::allocate_near(affinity with, std::size_t count) {
  backend* const own = own_.load(std::memory_order_acquire);
  if (own == nullptr) {
    wants_own_.store(true);
    if (cannot_open_own_.load()) return error{"no tier", ENODEV};
    return error{"not open yet", EAGAIN};
  }
  const result<slot_id> first = own->allocate_near(with, count);
  if (!first) return first;
  const slot_id end = own_base_ + first.value() + count;
  slot_id before = own_end_.load(std::memory_order_relaxed);
  while (end > before && !own_end_.compare_exchange_weak(before, end)) {
  }
  return own_base_ + first.value();
}

// The caller that frees a slot has changed the word of its page before. So a child that is forked after this has looked
// for children does not refer to the slot.
void lineage_backend::free(slot_id first, std::size_t count) {
  for (slot_id slot = first; slot < first + count; ++slot) {
    if (child_count_.load() > 0) {
      const lock_guard guard(children_lock_);
      if (a_child_holds(slot)) {
        kept_.push_back(slot);
        (slot < own_base_ ? kept_inherited_ : kept_own_).fetch_add(1);
        continue;
      }
    }
    release(slot);
  }
}

void lineage_backend::release(slot_id slot) {
  if (slot >= own_base_) return own_.load()->free(slot - own_base_, 1);
  from_parent_.release(slot);
  held_.fetch_sub(1);
}

bool lineage_backend::a_child_holds(slot_id slot) const {
  return std::any_of(children_.begin(), children_.end(),
                     [slot](const child& entry) { return entry.share.holds(slot); });
}

const std::byte* lineage_backend::direct(slot_id slot) const {
  if (slot >= own_base_) return own_.load(std::memory_order_acquire)->direct(slot - own_base_);
  for (const inherited_tier& tier : inherited_) {
    if (slot >= tier.base && slot < tier.end) return tier.store->direct(slot - tier.base);
  }
  return nullptr;
}

// The counts of inherited tiers are not known here, and their locks cannot be trusted after a fork.
capacity lineage_backend::report() const {
  const backend* const own = own_.load(std::memory_order_acquire);
  capacity sum = own != nullptr ? own->report() : capacity{};
  if (sum.stored_bytes != capacity::no_bytes) sum.stored_bytes += held_.load() * page_bytes;
  sum.used_slots += held_.load();
  sum.kept_slots = kept_own_.load() + kept_inherited_.load();
  return sum;
}

std::string lineage_backend::describe() const {
  const backend* const own = own_.load(std::memory_order_acquire);
  return own != nullptr ? own->describe() : root_name_;
}

result<void> lineage_backend::add_server(std::string_view server) {
  backend* const own = own_.load(std::memory_order_acquire);
  return own != nullptr ? own->add_server(server) : backend::add_server(server);
}

result<std::uint64_t> lineage_backend::remove_server(std::string_view server, removal step) {
  backend* const own = own_.load(std::memory_order_acquire);
  return own != nullptr ? own->remove_server(server, step) : backend::remove_server(server, step);
}

void lineage_backend::prepare_exit() {
  backend* const own = own_.load(std::memory_order_acquire);
  if (own != nullptr && child_count_.load() == 0) own->prepare_exit();
}

// ---- channels ----

result<std::unique_ptr<channel>> lineage_backend::open_channel(std::size_t depth) {
  const lock_guard guard(channels_lock_);
  backend* const own = own_.load();
  if (own != nullptr && own_base_ == 0) return own->open_channel(depth);
  lineage_channel::part_list parts;
  for (const inherited_tier& tier : inherited_) {
    result<std::unique_ptr<channel>> queue = tier.store->open_channel(depth);
    if (!queue) return queue.error();
    parts.push_back({tier.base, tier.end, std::move(queue).value()});
  }
  auto created = std::make_unique<lineage_channel>(*this, std::move(parts), depth);
  if (own != nullptr) {
    result<std::unique_ptr<channel>> queue = own->open_channel(depth);
    if (!queue) return queue.error();
    created->give_own(own_base_, std::move(queue).value());
  }
  channels_.push_back(created.get());
  return std::unique_ptr<channel>(std::move(created));
}

void lineage_backend::forget(lineage_channel& closed) {
  const lock_guard guard(channels_lock_);
  std::erase(channels_, &closed);
}

// ---- behind the transfers ----

// The set of inherited tiers changes only in the next fork.
bool lineage_backend::reduces() const {
  const backend* const own = own_.load(std::memory_order_acquire);
  return own != nullptr && own->reduces() &&
         std::ranges::all_of(inherited_, [](const inherited_tier& tier) { return tier.store->reduces(); });
}

// In a child of a fork, some pages of a row may be inherited, and others not.
bool lineage_backend::reduces_rows() const {
  const backend* const own = own_.load(std::memory_order_acquire);
  return own != nullptr && own_base_ == 0 && own->reduces_rows();
}

std::uint64_t lineage_backend::read_patience_ns() const {
  const backend* const own = own_.load();
  std::uint64_t longest_ns = own != nullptr ? own->read_patience_ns() : 0;
  for (const inherited_tier& tier : inherited_) longest_ns = std::max(longest_ns, tier.store->read_patience_ns());
  return longest_ns;
}

std::uint64_t lineage_backend::away_since_ns(slot_id slot) const {
  if (slot >= own_base_) return own_.load(std::memory_order_acquire)->away_since_ns(slot - own_base_);
  for (const inherited_tier& tier : inherited_) {
    if (slot >= tier.base && slot < tier.end) return tier.store->away_since_ns(slot - tier.base);
  }
  return 0;
}

bool lineage_backend::wants_tending() const {
  return wants_own_.load(std::memory_order_relaxed) && own_.load(std::memory_order_relaxed) == nullptr &&
         time_.now_ns() >= open_at_ns_.load(std::memory_order_relaxed);
}

std::uint64_t lineage_backend::tend() {
  if (wants_tending()) try_to_open_own();
  std::uint64_t next_ns = look_after_children() ? watch_children_ns : idle_ns;
  free_some_kept();
  if (!unsorted_.empty()) return 0;
  if (backend* const own = own_.load()) next_ns = std::min(next_ns, own->tend());
  for (const inherited_tier& tier : inherited_) next_ns = std::min(next_ns, tier.store->tend());
  return next_ns;
}

// The end of its pipe is reached when every process that held the other end has ended or called exec.
bool lineage_backend::is_over(const child& one) {
  if (one.share.is_empty()) return true;
  if (one.pipe < 0) return one.share.owner_has_ended();
  char nothing = 0;
  return ::read(one.pipe, &nothing, 1) == 0;
}

// Returns whether there are any.
bool lineage_backend::look_after_children() {
  bool changed = false;
  for (std::size_t i = 0; i < children_.size();) {
    child& current = children_[i];
    const std::uint64_t released = current.share.released();
    changed |= std::exchange(current.released_before, released) != released;
    if (!is_over(current)) {
      ++i;
      continue;
    }
    changed = true;
    child gone;
    {
      const lock_guard guard(children_lock_);
      gone = std::move(current);
      children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (gone.pipe >= 0) close(gone.pipe);
    if (child_count_.fetch_sub(1) == 1 && own_.load() != nullptr) own_.load()->keep_in_place(false);
  }
  unsorted_again_ |= changed;
  return !children_.empty();
}

void lineage_backend::free_some_kept() {
  if (unsorted_.empty() && std::exchange(unsorted_again_, false)) {
    const lock_guard guard(children_lock_);
    std::swap(unsorted_, kept_);
  }
  for (std::size_t looks = 0; looks < slots_a_step && !unsorted_.empty(); ++looks) {
    const slot_id slot = unsorted_.back();
    unsorted_.pop_back();
    {
      const lock_guard guard(children_lock_);
      if (a_child_holds(slot)) {
        kept_.push_back(slot);
        continue;
      }
    }
    (slot < own_base_ ? kept_inherited_ : kept_own_).fetch_sub(1);
    release(slot);
  }
  if (unsorted_.empty()) unsorted_.shrink_to_fit();
}

void lineage_backend::try_to_open_own() {
  const result<void> opened = open_own();
  if (opened) {
    wants_own_.store(false);
    cannot_open_own_.store(false);
    if (std::exchange(announcement_due_, false))
      log_line(log_level::info, "the child of fork has a far tier of its own now");
    return;
  }
  open_pause_ns_ = std::clamp(2 * open_pause_ns_, first_pause_ns, longest_pause_ns);
  open_at_ns_.store(time_.now_ns() + open_pause_ns_);
  cannot_open_own_.store(true);
  if (std::exchange(announcement_due_, true)) return;
  log_line(log_level::warning,
           "a child of fork (process %d) cannot open a far tier of its own, so it evicts nothing and its local memory "
           "may exceed the budget; it keeps trying: %s",
           static_cast<int>(getpid()), opened.error().message.c_str());
}

// Every channel gets its queue there before the tier gives out the first slot.
result<void> lineage_backend::open_own() {
  result<std::unique_ptr<backend>> opened = open_own_();
  if (!opened) return opened.error();
  const lock_guard guard(channels_lock_);
  list<std::unique_ptr<channel>> queues;
  for (const lineage_channel* client : channels_) {
    result<std::unique_ptr<channel>> queue = opened.value()->open_channel(client->depth());
    if (!queue) return queue.error();
    queues.push_back(std::move(queue).value());
  }
  for (std::size_t i = 0; i < queues.size(); ++i) channels_[i]->give_own(own_base_, std::move(queues[i]));
  own_.store(std::move(opened).value().release(), std::memory_order_release);
  return {};
}

// ---- forks ----

// The program's allocator holds its locks from here to after_fork_in_parent(): local memory only.
void lineage_backend::prepare_fork() {
  children_lock_.lock();
  from_parent_.note_heirs();
  const capacity now = report();
  if (now.used_slots == now.kept_slots) return;  // a child could refer to nothing
  child born;
  born.share = slot_share::make(own_end_.load());
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    log_line(log_level::verbose, "a child is watched by its number, because no pipe can be made (%s)",
             std::strerror(errno));
  } else {
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  born.pipe = ends[0];
  lifeline_ = ends[1];
  if (backend* const own = own_.load()) own->keep_in_place(true);
  children_.push_back(std::move(born));
  child_count_.fetch_add(1);
  is_forking_ = true;
}

void lineage_backend::after_fork_in_parent() {
  const lock_guard guard(children_lock_, std::adopt_lock);
  if (!std::exchange(is_forking_, false)) return;
  child& born = children_.back();
  if (lifeline_ >= 0) close(lifeline_);
  lifeline_ = -1;
  born.pipe = platform::own_descriptor(born.pipe);
}

void lineage_backend::after_fork_in_child() {
  children_lock_.open_in_child();
  channels_lock_.open_in_child();
  children_lock_.assert_held();  // the child has one thread
  channels_lock_.assert_held();
  channels_.clear();  // the parent's
  from_parent_ = {};
  if (std::exchange(is_forking_, false)) from_parent_ = std::move(children_.back().share);
  for (const child& entry : children_) {
    if (entry.pipe >= 0) close(entry.pipe);
  }
  children_.clear();
  child_count_.store(0);
  // It stays open, which tells the parent that we live.
  if (lifeline_ >= 0) lifelines_.push_back(platform::own_descriptor(lifeline_));
  lifeline_ = -1;
  kept_.clear();
  unsorted_.clear();
  unsorted_again_ = false;
  kept_own_.store(0);
  kept_inherited_.store(0);
  held_.store(0);
  for (inherited_tier& tier : inherited_) {
    tier.claims = 0;
    tier.store->after_fork_in_child();
  }
  const slot_id end = own_end_.load();
  if (std::unique_ptr<backend> own{own_.exchange(nullptr)}) {
    own->after_fork_in_child();
    inherited_.push_back({own_base_, end, std::move(own), 0});
  }
  own_base_ = end + 1;
  own_end_.store(own_base_);
  wants_own_.store(false);
  cannot_open_own_.store(false);
  announcement_due_ = false;
  open_at_ns_.store(0);
  open_pause_ns_ = 0;
}

void lineage_backend::claim_in_child(slot_id slot) {
  const auto found = std::find_if(inherited_.begin(), inherited_.end(),
                                  [slot](const inherited_tier& tier) { return slot >= tier.base && slot < tier.end; });
  FAR_CHECK(found != inherited_.end(), "a child refers to slots of its forebears'");
  ++found->claims;
  held_.fetch_add(1);
  from_parent_.claim(slot);
}

void lineage_backend::close_claims_in_child() {
  from_parent_.close_claims();
  std::erase_if(inherited_, [](const inherited_tier& tier) { return tier.claims == 0; });
  if (!inherited_.empty()) return;
  from_parent_ = {};
  for (const int lifeline : lifelines_) close(lifeline);
  lifelines_.clear();
}

}  // namespace far::backend
