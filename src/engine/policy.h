// Policies: which pages leave first.
//
// A policy sees pages come in and names victims; it never changes residency beyond the accessed and queued flags of a
// page's word, and the marks of use. To add one: write a class like second_chance, add it to the table in policy.cc;
// the contract test runs over all of them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/residency.h"

namespace far::engine {

// `cold` pages are wanted as the next victims, `warm` ones have just been used, `returned` ones as well, and they left
// not long ago (policy::recalled_epochs()). `hot` ones could not leave because they are in use, or were taken back on
// their way out. `passing` ones are as warm, but a walk that announced them has come back too late: the time in which
// as many pages leave as there is room for was over.
enum class temperature : std::uint8_t { cold, warm, returned, hot, passing };

class policy {
 public:
  // Of tables by page that one may have: address space, of which only the touched part takes memory.
  static constexpr std::size_t most_bytes_a_page = 1;

  virtual ~policy() = default;

  // A page has become resident, or has escaped eviction. The caller has just set the queued flag of its word, so a page
  // is never held twice.
  virtual void admit(page_id page, temperature how) = 0;

  // Takes up to `victims.size()` pages out, the coldest first, and clears their queued flags. They need not be resident
  // any more: the engine checks. Returns fewer than asked only when it has no more to offer for now.
  [[nodiscard]] virtual std::size_t select(std::span<page_id> victims) = 0;

  // A page missed again before so many epochs have passed since it left (eviction_clock: an eighth of the budget
  // evicted) comes in marked as accessed.
  [[nodiscard]] virtual unsigned remembered_epochs() const { return 8; }
  // A page missed again before so many have passed comes in as `returned`. 0: none does.
  [[nodiscard]] virtual unsigned recalled_epochs() const { return 0; }

  // How many pages it holds.
  [[nodiscard]] virtual std::size_t size() const = 0;
};

// For policies that give another chance to pages used since their last look: takes the page's marks of use, or else its
// queued flag. Returns whether it was used, and stays in the policy's care.
[[nodiscard]] bool spare_if_used(residency& pages, page_id page);

// For options and messages: "2q, second-chance, fifo".
[[nodiscard]] std::string policy_names();

// Valid names: one of these, or lru:N with 2 to 32 lists. Errors list them.
[[nodiscard]] result<void> check_policy(std::string_view name);

[[nodiscard]] result<std::unique_ptr<policy>> make_policy(std::string_view name, residency& pages);

}  // namespace far::engine
