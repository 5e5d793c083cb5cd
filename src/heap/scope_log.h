// Scopes that log the pages that they dereference, as all do for a while whose owner had one open for long: grace
// periods for pages do not wait for them (grace_periods.h), and evictor and evacuator read their logs instead.
// tests/model/grace_eviction_model_test.cc has the protocol.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "heap/scope_records.h"

namespace far::heap {

// A scope that is open for longer is long.
inline constexpr std::chrono::milliseconds longest_short_scope{1};

// How many scopes of an owner log after the last long one.
inline constexpr std::uint32_t scopes_logged_afterwards = 64;

// A scope that has dereferenced more goes on as one that does not log: logs are read for every batch that is evicted.
inline constexpr std::size_t most_logged_pages = 4096;

// Any thread may say that a scope of `owner` is open for long.
void note_long_scope(owner_record& owner) noexcept;

// The caller's open scope is about to dereference something in this page (address / page size). Look at the page's
// state after this, not before. Does nothing when the scope does not log, and ends its logging when the log is full.
void log_page(owner_record& caller, std::uint64_t page) noexcept;

}  // namespace far::heap
