#include "engine/two_queues.h"

#include <algorithm>

#include "platform/local_memory.h"

namespace far::engine {
namespace {

constexpr unsigned rounds_shift = 56;

// So many pages go round for a victim at most, on average over a call: where all have rounds left, a call would pass
// through the whole queue, with a lock held for which misses wait.
constexpr std::size_t most_rounds_a_victim = 16;

page_id entry_of(page_id page, unsigned rounds) {
  return page | page_id{rounds} << rounds_shift;
}
page_id page_of(page_id entry) {
  return entry & ((page_id{1} << rounds_shift) - 1);
}

// The share of newcomers changes by one step at a time, so many times in the time in which all pages leave.
constexpr double step = 1.15;
constexpr std::size_t steps_a_turnover = 8;
// What one step keeps of the older figures.
constexpr double memory = 0.75;
// The share changes only if one queue's pages are missed again more often than the other's by this factor.
constexpr double least_difference = 1.2;
constexpr double least_departures = 16;

}  // namespace

two_queues::two_queues(residency& pages, double newcomers, bool follows)
    : pages_(pages),
      newcomers_share_(newcomers),
      share_follows_(follows),
      histories_(reinterpret_cast<std::uint8_t*>(platform::map_local(pages.pages()))) {}

two_queues::~two_queues() {
  platform::unmap_local(reinterpret_cast<std::byte*>(histories_), pages_.pages());
}

void two_queues::admit(page_id page, temperature how) {
  if (how == temperature::cold) return newcomers_.push_front(page);
  bool was_accessed = false;
  pages_.update(page, [&was_accessed](page_word word) {
    was_accessed = word.accessed();
    return word.with_accessed(false);
  });
  // Pages that cannot leave now must not stand among the newcomers: when all of them were like that, nothing else would
  // ever be offered.
  if (how == temperature::hot) return proven_.push_back(page);
  if (how == temperature::passing) {
    histories_[page] = 0;
    (is_turn(passed_) ? newcomers_ : passing_).push_back(page);
    // They came while there was room.
    if (passing_.size() > 2 * room_of_walks()) newcomers_.push_back(passing_.pop_front());
    return;
  }
  const unsigned returns = note_return(page, was_accessed, how == temperature::returned);
  if (returns == 0) return newcomers_.push_back(page);
  proven_.push_back(entry_of(page, returns - 1));
}

std::size_t two_queues::select(std::span<page_id> victims) {
  std::size_t found = 0;
  std::size_t may_go_round = victims.size() * most_rounds_a_victim;
  for (std::size_t looked_at = size(); looked_at > 0 && found < victims.size(); --looked_at) {
    const queue from = next();
    page_queue& source = from == queue::newcomers ? newcomers_ : from == queue::proven ? proven_ : passing_;
    const page_id entry = source.pop_front();
    const page_id page = page_of(entry);
    const auto rounds = static_cast<unsigned>(entry >> rounds_shift);
    if (rounds > 0 && may_go_round > 0 && pages_.load(page).where() == state::resident) {
      --may_go_round;
      proven_.push_back(entry_of(page, rounds - 1));
    } else if (spare_if_used(pages_, page)) {
      proven_.push_back(page);
    } else {
      note_departure(page, from);
      victims[found++] = page;
    }
  }
  return found;
}

bool two_queues::is_turn(unsigned& count) {
  return count++ / in_a_row % one_in_few == one_in_few - 1;
}

std::size_t two_queues::share_of_all(double share) const {
  return static_cast<std::size_t>(static_cast<double>(size()) * share);
}

// For what a walk has announced, and is not at yet: as much as newcomers have usually, and more if pages that have just
// left are missed.
std::size_t two_queues::room_of_walks() const {
  return share_of_all(std::max(newcomers_share_, usual_newcomers));
}

// Where the next victim comes from. Requires: there is a page.
two_queues::queue two_queues::next() {
  const bool is_other = is_turn(victims_);
  const bool is_walk = passing_.size() > room_of_walks();
  const bool others = !newcomers_.empty() || !proven_.empty();
  if (!others || (!passing_.empty() && is_walk != is_other)) return queue::passing;
  if (proven_.empty()) return queue::newcomers;
  return newcomers_.size() > share_of_all(newcomers_share_) ? queue::newcomers : queue::proven;
}

// Returns how often it has been missed again soon, this time included; 0 if this time was not soon. A page that is only
// a little late comes as a newcomer, but what is known of it counts again when it is soon the next time: popular pages
// are late now and then.
unsigned two_queues::note_return(page_id page, bool is_soon, bool is_little_late) {
  std::uint8_t& history = histories_[page];
  if (is_soon) left_[history >> left_shift].returned += 1;
  const std::uint8_t before = history & returns_mask;
  if (is_soon) return history = std::min<std::uint8_t>(before + 1, most_returns);
  history = is_little_late ? before : std::uint8_t{0};
  return 0;
}

void two_queues::note_departure(page_id page, queue from) {
  std::uint8_t& history = histories_[page];
  const auto left = static_cast<unsigned>(from);
  history = static_cast<std::uint8_t>((history & returns_mask) | left << left_shift);
  left_[left].pages += 1;
  if (++left_since_adapting_ < size() / steps_a_turnover) return;
  left_since_adapting_ = 0;
  if (share_follows_) adapt();
}

void two_queues::adapt() {
  const auto& [from_newcomers, from_proven, from_passing] = left_;
  if (from_newcomers.pages >= least_departures && from_proven.pages >= least_departures) {
    const double newcomers_return = from_newcomers.returned / from_newcomers.pages;
    const double proven_return = from_proven.returned / from_proven.pages;
    if (newcomers_return > proven_return * least_difference) {
      newcomers_share_ = std::min(most_newcomers, newcomers_share_ * step);
    } else if (proven_return > newcomers_return * least_difference) {
      newcomers_share_ = std::max(least_newcomers, newcomers_share_ / step);
    }
  }
  for (departures& known : left_) known = {known.pages * memory, known.returned * memory};
}

}  // namespace far::engine
