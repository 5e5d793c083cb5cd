// The engine's counters. A snapshot; every figure counts from the start unless it says "now".
#pragma once

#include <cstdint>

namespace far::engine {

struct statistics {
  // Memory, in bytes.
  std::uint64_t budget_bytes = 0;  // now
  std::uint64_t local_bytes = 0;   // now: frames charged to the budget
  std::uint64_t peak_local_bytes = 0;
  std::uint64_t far_bytes = 0;  // now: slots in use
  std::uint64_t peak_far_bytes = 0;
  std::uint64_t far_stored_bytes = 0;  // now: memory of these slots, less where they are compressed
  std::uint64_t peak_far_stored_bytes = 0;

  // Misses: accesses to memory that was not resident.
  std::uint64_t misses = 0;         // a page had to be read from the far tier
  std::uint64_t waits = 0;          // a page was already on its way, in or out
  std::uint64_t rescues = 0;        // a page on its way out was taken back: its second chance
  std::uint64_t zero_fills = 0;     // a page touched for the first time under pressure
  std::uint64_t write_faults = 0;   // first write to a page that came back clean
  std::uint64_t hinted_misses = 0;  // of all of these, those that a hint found before the program did
  std::uint64_t wait_ns = 0;        // time that misses took, summed over the threads that waited

  // Prefetch, in pages.
  std::uint64_t prefetched_pages = 0;
  std::uint64_t prefetch_hits = 0;  // prefetched pages that their stream went on to walk over
  std::uint64_t around_pages = 0;   // of the prefetched pages, those that came with another one of their region
  // Pages that were left out to find out whether the others of their region would be wanted, and those of them that
  // were missed soon.
  std::uint64_t sampled_pages = 0;
  std::uint64_t wanted_samples = 0;

  // Traffic, in pages.
  std::uint64_t fetched_pages = 0;  // read from the far tier, prefetched ones included
  std::uint64_t evicted_pages = 0;
  std::uint64_t clean_evictions = 0;  // of those, pages whose slot still held the same bytes: nothing written
  std::uint64_t written_pages = 0;    // written to the far tier
  std::uint64_t direct_reclaims = 0;  // batches evicted by a missing thread because the evictor had fallen behind
  std::uint64_t scrubbed_pages = 0;   // all of whose copies were compared, though nobody needed them

  // Trouble.
  std::uint64_t backend_errors = 0;     // transfers that failed
  std::uint64_t over_budget_pages = 0;  // most pages ever held above the budget, because eviction could not go on
  std::uint64_t damaged_copies = 0;     // copies of pages that were wrong, or not returned, and are written again
  std::uint64_t lost_pages = 0;         // pages whose bytes the far tier could not return, and that somebody needed

  // Memory servers, and the redundancy on them (backend::capacity).
  std::uint64_t servers = 0;         // now
  std::uint64_t away_servers = 0;    // now
  std::uint64_t lacking_copies = 0;  // now
  std::uint64_t repaired_copies = 0;
  std::uint64_t degraded_ns = 0;
};

}  // namespace far::engine
