#include "engine/miss_list.h"

#include <algorithm>
#include <new>
#include <utility>

namespace far::engine {

miss_list::miss_list(engine& with, host& around, fetcher& own, std::function<bool(page_id)> lost)
    : engine_(with),
      host_(around),
      own_(own),
      lost_(std::move(lost)),
      streams_(new(platform::map_local(sizeof(*streams_))) std::array<read_ahead_state, read_ahead_states>) {}

miss_list::~miss_list() {
  platform::unmap_local(reinterpret_cast<std::byte*>(streams_), sizeof(*streams_));
}

void miss_list::add(page_id page, bool write, std::uint64_t thread) {
  pending_.push_back({miss(engine_, host_, {.page = page, .write = write}, caller::of_runtime), thread});
}

bool miss_list::serve() {
  own_.lock.assert_held();
  bool progress = false;
  {
    const engine_section inside(host_);
    progress = own_.poll(caller::of_runtime);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    if (!try_one(pending_[i])) pending_[kept++] = pending_[i];
  }
  progress |= kept < pending_.size();
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(kept), pending_.end());
  return progress;
}

bool miss_list::wants_another_look() const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [](const entry& waiting) { return waiting.one.now() != miss::state::arriving; });
}

// Returns whether the miss needs no more attention. The loop itself looks after transfers that it started. It always
// advances the miss, even if the page is there by now, because the engine then wakes the threads that wait for it.
bool miss_list::try_one(entry& waiting) {
  own_.lock.assert_held();
  if (waiting.one.look() == miss::state::arriving) return false;
  waiting.one.make_room();
  waiting.one.advance(own_, (*streams_)[waiting.thread % read_ahead_states]);
  switch (waiting.one.now()) {
    case miss::state::resolved: waiting.one.note_end(); return true;
    case miss::state::lost: return lost_(waiting.one.page());
    case miss::state::short_of_frames:
    case miss::state::taken: waiting.one.help(); return false;
    case miss::state::begun:
    case miss::state::arriving: return false;
  }
  return false;
}

}  // namespace far::engine
