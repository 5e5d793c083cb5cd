#include "engine/engine.h"

#include <utility>

#include "engine/validate.h"

namespace far::engine {

engine::engine(platform::address_space& space, backend::backend& far, const platform::clock& time,
               const options& chosen)
    : shared_(space, far, time,
              {chosen.heap_pages, chosen.first_number, chosen.budget_pages, chosen.tracks_writes, chosen.reads_parts,
               chosen.hash_seed, chosen.pace}),
      transfers_(shared_),
      view_(shared_.pages, shared_.evictions, shared_.checks),
      misses_(shared_, chosen.regions_come_whole),
      hints_(shared_.pages, shared_.blocks),
      eviction_(shared_, transfers_, chosen.where, chosen.measures_where),
      ranges_(shared_, transfers_),
      pins_(shared_),
      tending_(shared_),
      fork_(shared_, transfers_, eviction_, tending_) {}

result<std::unique_ptr<engine>> engine::create(platform::address_space& space, backend::backend& far,
                                               const platform::clock& time, const options& chosen) {
  if (const result<void> fits = check_pace(chosen.pace); !fits) return fits.error();
  std::unique_ptr<engine> created(new engine(space, far, time, chosen));
  core& shared = created->shared_;
  shared.filter = chosen.filter;
  shared.read_patience_ns = chosen.read_patience_ns;
  result<std::unique_ptr<policy>> order = make_policy(chosen.policy, shared.pages);
  if (!order) return order.error();
  shared.set_order(std::move(order).value());
  shared.map_buffers(transfer_queues::staging_pages);
  const result<void> opened = created->transfers_.open_evictors();
  if (!opened) return opened.error();
  return created;
}

void engine::validate() const {
  far::engine::validate(shared_, transfers_);
}

// Counters are read one by one, without a lock: their sums may be a moment apart.
statistics engine::snapshot() const {
  const counters& count = shared_.count;
  statistics now;
  const std::uint64_t aside_pages = shared_.local.aside_pages();
  now.budget_bytes = shared_.local.whole_pages() * page_bytes;
  // What is set aside is used once there is room for it.
  const std::uint64_t charged_pages = shared_.local.charged_pages();
  now.local_bytes =
      std::min(charged_pages + aside_pages, std::max(charged_pages, shared_.local.whole_pages())) * page_bytes;
  now.peak_local_bytes = std::max(shared_.local.peak_pages() * page_bytes, now.local_bytes);
  const backend::capacity far = shared_.far.report();
  now.far_bytes = far.used_slots * page_bytes;
  now.peak_far_bytes = count.peak_far_pages.get() * page_bytes;
  now.far_stored_bytes = far.occupied_bytes();
  now.peak_far_stored_bytes = std::max(count.peak_far_stored_bytes.get(), now.far_stored_bytes);
  now.scrubbed_pages = count.scrubbed_pages.get();
  now.damaged_copies = far.damaged_copies;
  now.servers = far.servers;
  now.away_servers = far.away_servers;
  now.lacking_copies = far.lacking_copies;
  now.repaired_copies = far.repaired_copies;
  now.degraded_ns = far.degraded_ns;
  now.misses = count.misses.get();
  now.waits = count.waits.get();
  now.rescues = count.rescues.get();
  now.zero_fills = count.zero_fills.get();
  now.write_faults = count.write_faults.get();
  now.hinted_misses = count.hinted_misses.get();
  now.wait_ns = count.wait_ns.get();
  now.prefetched_pages = count.prefetched_pages.get();
  now.prefetch_hits = count.prefetch_hits.get();
  now.around_pages = count.around_pages.get();
  now.sampled_pages = count.sampled_pages.get();
  now.wanted_samples = count.wanted_samples.get();
  now.fetched_pages = count.fetched_pages.get();
  now.evicted_pages = count.evicted_pages.get();
  now.clean_evictions = count.clean_evictions.get();
  now.written_pages = count.written_pages.get();
  now.direct_reclaims = count.direct_reclaims.get();
  now.backend_errors = count.backend_errors.get();
  now.over_budget_pages = count.over_budget_pages.get();
  now.lost_pages = count.lost_pages.get();
  return now;
}

}  // namespace far::engine
