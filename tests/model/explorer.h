// An exhaustive interleaving checker for small models of our protocols. A model is a state and some actors; each actor
// is a function that does one atomic step on the state. The explorer visits every state that any order of steps leads
// to, and reports the first one that breaks a promise, with the steps that lead there.
//
// Compared with a model checker off the shelf: the models are C++ beside the code that they mirror, run in ctest, and
// know the store buffers of x86 (tso.h), on which the asymmetric fences of scopes depend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

namespace far::model {

// Thrown by a step that finds a promise broken.
struct broken_promise {
  const char* text;
};

inline void require(bool holds, const char* promise) {
  if (!holds) throw broken_promise{promise};
}

template <typename State>
struct actor {
  const char* name;
  // Does one atomic step and says what it did, or returns null when it cannot go on now: then the explorer forgets the
  // changes.
  std::function<const char*(State&)> step;
  std::function<bool(const State&)> has_ended;
};

struct verdict {
  bool holds = true;
  std::size_t states = 0;
  std::string trace;  // of the first violation: a line for each step, the broken promise last

  [[nodiscard]] bool breaks(const char* promise) const { return !holds && trace.find(promise) != std::string::npos; }
};

// Requires: a state's bytes are all there is to it (no padding, no pointers to anything that changes).
template <typename State>
class explorer {
  static_assert(std::has_unique_object_representations_v<State>, "states are compared by their bytes");

 public:
  // `at_end` is asked of each state in which every actor has ended; it throws broken_promise.
  explorer(std::vector<actor<State>> actors, std::function<void(const State&)> at_end)
      : actors_(std::move(actors)), at_end_(std::move(at_end)) {}

  // Depth first, without recursion. Gives up, and says so as a violation, after `most_states`.
  [[nodiscard]] verdict explore(const State& initial, std::size_t most_states = 4'000'000) {
    verdict found;
    visited_.insert(initial);
    path_.push_back({initial, 0, 0, nullptr});
    while (!path_.empty() && found.holds) {
      frame& here = path_.back();
      if (here.next_actor == 0 && here.moves == 0) look_at(here.at, found);
      if (!found.holds) break;
      if (here.next_actor == actors_.size()) {
        if (here.moves == 0 && !all_ended(here.at)) report("deadlock: nobody can go on", found);
        if (found.holds) path_.pop_back();
        continue;
      }
      take_step(here, found);
      if (visited_.size() > most_states) report("the model is too large to be explored", found);
    }
    found.states = visited_.size();
    return found;
  }

 private:
  struct frame {
    State at;
    std::size_t next_actor;
    std::size_t moves;
    const char* arrived_by;  // the step that led here
  };
  struct hash {
    std::size_t operator()(const State& one) const {
      return std::hash<std::string_view>()({reinterpret_cast<const char*>(&one), sizeof one});
    }
  };
  struct same {
    bool operator()(const State& a, const State& b) const { return std::memcmp(&a, &b, sizeof a) == 0; }
  };

  [[nodiscard]] bool all_ended(const State& at) const {
    for (const actor<State>& actor : actors_) {
      if (!actor.has_ended(at)) return false;
    }
    return true;
  }

  void look_at(const State& at, verdict& found) {
    if (!all_ended(at)) return;
    try {
      at_end_(at);
    } catch (const broken_promise& promise) {
      report(promise.text, found);
    }
  }

  void take_step(frame& here, verdict& found) {
    const actor<State>& mover = actors_[here.next_actor++];
    State next = here.at;
    try {
      const char* const did = mover.step(next);
      if (did == nullptr) return;
      ++here.moves;
      // `here` is not valid after this.
      if (visited_.insert(next).second) path_.push_back({next, 0, 0, did});
    } catch (const broken_promise& promise) {
      report((std::string(mover.name) + " breaks: " + promise.text).c_str(), found);
    }
  }

  void report(const char* text, verdict& found) {
    found.holds = false;
    for (std::size_t i = 1; i < path_.size(); ++i) {
      const std::size_t actor = path_[i - 1].next_actor - 1;
      found.trace += "  " + std::string(actors_[actor].name) + " " + path_[i].arrived_by + "\n";
    }
    found.trace += "  " + std::string(text) + "\n";
  }

  std::vector<actor<State>> actors_;
  std::function<void(const State&)> at_end_;
  std::unordered_set<State, hash, same> visited_;
  std::vector<frame> path_;
};

}  // namespace far::model
