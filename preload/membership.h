// How a process joins its job.
#pragma once

#include <cstdint>
#include <memory>

#include "preload/job.h"
#include "preload/settings.h"

namespace far::preload {

// Joins the job that the environment names. A process that cannot open the job's file, because it has changed its user
// or its root, gets it from its parent or from the main process. Null where there is no job, and, after one line of
// warning, where it cannot be joined: then this process has a budget of its own.
[[nodiscard]] std::unique_ptr<job> join_job(const settings& chosen);

// Says that this process does not take part in dividing the budget, and why.
void warn_of_own_budget(const error& why, std::uint64_t budget_bytes) noexcept;

// In a child of fork that lives on. Where it cannot join, one line of warning says so, and it keeps the budget that it
// has.
void join_as_child(job& member, const engine::statistics& since_fork, const process_usage& used);

// The budget to start with. `member` null: all of it. Otherwise the free part, and the part that others release within
// 50 ms.
[[nodiscard]] std::uint64_t first_budget(job* member, std::uint64_t whole_bytes) noexcept;

}  // namespace far::preload
