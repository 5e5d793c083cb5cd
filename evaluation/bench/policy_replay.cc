#include "policy_replay.h"

#include <algorithm>
#include <array>
#include <list>
#include <memory>
#include <queue>

#include "base/check.h"
#include "engine/policy.h"

namespace far::bench {
namespace {

using engine::page_word;
using engine::state;

constexpr std::uint32_t epochs_a_budget = 8;  // as engine::core counts them
constexpr std::uint64_t never = ~std::uint64_t{0};

// The part of the engine that a policy meets: pages come in one by one, and leave one by one.
class replayed_engine {
 public:
  replayed_engine(std::unique_ptr<engine::policy> order, engine::residency& pages, std::uint32_t frames)
      : order_(std::move(order)), pages_(pages), frames_(frames) {}

  void access(std::uint32_t page) {
    if (pages_.load(page).where() == state::resident) return;
    ++misses_;
    if (resident_ == frames_) evict_one();
    ++resident_;
    const page_word before = pages_.load(page);
    const bool left_before = before.where() == state::remote;
    const unsigned epochs_away = (epoch() - before.epoch()) % page_word::epochs;
    const bool hot = left_before && epochs_away < order_->remembered_epochs();
    const bool has_returned = left_before && epochs_away < order_->recalled_epochs();
    change(page, [](page_word word) { return word.with_state(state::fetching); });
    change(page,
           [hot](page_word word) { return word.with_state(state::resident).with_accessed(hot).with_queued(true); });
    order_->admit(page, has_returned ? engine::temperature::returned : engine::temperature::warm);
  }
  [[nodiscard]] std::uint64_t misses() const { return misses_; }

 private:
  [[nodiscard]] unsigned epoch() const {
    return static_cast<unsigned>(evicted_ / std::max(1u, frames_ / epochs_a_budget) % page_word::epochs);
  }

  void evict_one() {
    std::array<engine::page_id, 1> victim{};
    while (order_->select(victim) == 0) FAR_CHECK(order_->size() > 0, "resident pages are in the policy's care");
    change(victim[0], [](page_word word) { return word.with_state(state::evicting); });
    const unsigned now = epoch();
    change(victim[0],
           [now](page_word word) { return word.with_state(state::remote).with_accessed(false).with_epoch(now); });
    ++evicted_;
    --resident_;
  }

  template <typename Change>
  void change(engine::page_id page, const Change& apply) {
    pages_.update(page, apply);
  }

  std::unique_ptr<engine::policy> order_;
  engine::residency& pages_;
  std::uint32_t frames_;
  std::uint32_t resident_ = 0;
  std::uint64_t evicted_ = 0;
  std::uint64_t misses_ = 0;
};

}  // namespace

std::uint32_t distinct_pages(const page_stream& stream) {
  return stream.empty() ? 0 : *std::max_element(stream.begin(), stream.end()) + 1;
}

result<std::uint64_t> misses_under(std::string_view policy, const page_stream& stream, std::uint32_t frames) {
  engine::residency pages(distinct_pages(stream));
  result<std::unique_ptr<engine::policy>> order = engine::make_policy(policy, pages);
  if (!order) return order.error();
  replayed_engine replayed(std::move(order).value(), pages, frames);
  for (const std::uint32_t page : stream) replayed.access(page);
  return replayed.misses();
}

std::uint64_t misses_under_lru(const page_stream& stream, std::uint32_t frames) {
  std::list<std::uint32_t> by_use;  // the latest at the end
  std::vector<std::list<std::uint32_t>::iterator> places(distinct_pages(stream), by_use.end());
  std::uint64_t misses = 0;
  for (const std::uint32_t page : stream) {
    if (places[page] != by_use.end()) {
      by_use.splice(by_use.end(), by_use, places[page]);
      continue;
    }
    ++misses;
    if (by_use.size() == frames) {
      places[by_use.front()] = by_use.end();
      by_use.pop_front();
    }
    places[page] = by_use.insert(by_use.end(), page);
  }
  return misses;
}

std::uint64_t least_misses(const page_stream& stream, std::uint32_t frames) {
  std::vector<std::uint64_t> next_use(stream.size());
  std::vector<std::uint64_t> latest(distinct_pages(stream), never);
  for (std::size_t i = stream.size(); i-- > 0;) {
    next_use[i] = latest[stream[i]];
    latest[stream[i]] = i;
  }
  // Entries of a page but its last one are out of date, and passed over.
  std::priority_queue<std::pair<std::uint64_t, std::uint32_t>> by_next_use;
  std::vector<std::uint64_t> next_of(distinct_pages(stream), 0);
  std::vector<bool> is_resident(distinct_pages(stream), false);
  std::uint32_t resident = 0;
  std::uint64_t misses = 0;
  for (std::size_t i = 0; i < stream.size(); ++i) {
    const std::uint32_t page = stream[i];
    if (!is_resident[page]) {
      ++misses;
      while (resident == frames) {
        const auto [when, candidate] = by_next_use.top();
        by_next_use.pop();
        if (!is_resident[candidate] || next_of[candidate] != when) continue;
        is_resident[candidate] = false;
        --resident;
      }
      is_resident[page] = true;
      ++resident;
    }
    next_of[page] = next_use[i];
    by_next_use.emplace(next_use[i], page);
  }
  return misses;
}

}  // namespace far::bench
