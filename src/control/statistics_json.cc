#include "control/statistics_json.h"

#include <array>

namespace far::control {
namespace {

using engine::statistics;

constexpr std::array<statistic_field, 34> fields{{
    {"budget_bytes", &statistics::budget_bytes},
    {"local_bytes", &statistics::local_bytes},
    {"peak_local_bytes", &statistics::peak_local_bytes},
    {"far_bytes", &statistics::far_bytes},
    {"peak_far_bytes", &statistics::peak_far_bytes},
    {"far_stored_bytes", &statistics::far_stored_bytes},
    {"peak_far_stored_bytes", &statistics::peak_far_stored_bytes},
    {"misses", &statistics::misses},
    {"waits", &statistics::waits},
    {"rescues", &statistics::rescues},
    {"zero_fills", &statistics::zero_fills},
    {"write_faults", &statistics::write_faults},
    {"hinted_misses", &statistics::hinted_misses},
    {"wait_ns", &statistics::wait_ns},
    {"prefetched_pages", &statistics::prefetched_pages},
    {"prefetch_hits", &statistics::prefetch_hits},
    {"around_pages", &statistics::around_pages},
    {"sampled_pages", &statistics::sampled_pages},
    {"wanted_samples", &statistics::wanted_samples},
    {"fetched_pages", &statistics::fetched_pages},
    {"evicted_pages", &statistics::evicted_pages},
    {"clean_evictions", &statistics::clean_evictions},
    {"written_pages", &statistics::written_pages},
    {"direct_reclaims", &statistics::direct_reclaims},
    {"scrubbed_pages", &statistics::scrubbed_pages},
    {"backend_errors", &statistics::backend_errors},
    {"over_budget_pages", &statistics::over_budget_pages},
    {"damaged_copies", &statistics::damaged_copies},
    {"lost_pages", &statistics::lost_pages},
    {"servers", &statistics::servers},
    {"away_servers", &statistics::away_servers},
    {"lacking_copies", &statistics::lacking_copies},
    {"repaired_copies", &statistics::repaired_copies},
    {"degraded_ns", &statistics::degraded_ns},
}};
static_assert(sizeof(statistics) == fields.size() * sizeof(std::uint64_t), "a statistic has no entry here");
// A key, 20 digits, and the punctuation.
static_assert(fields.size() * 64 <= statistics_json_bytes);

}  // namespace

std::span<const statistic_field> statistic_fields() noexcept {
  return fields;
}

void add_statistics(engine::statistics& sum, const engine::statistics& one) noexcept {
  for (const statistic_field& field : fields) sum.*field.member += one.*field.member;
}

void forget_what_is_held(statistics& counted) noexcept {
  counted.budget_bytes = counted.local_bytes = counted.far_bytes = counted.far_stored_bytes = 0;
  counted.servers = counted.away_servers = counted.lacking_copies = 0;
}

void put_statistics(json_object& object, const engine::statistics& counted) noexcept {
  for (const statistic_field& field : fields) object.number(field.name, counted.*field.member);
}

std::size_t format_statistics_json(const engine::statistics& counted, std::span<char> text) noexcept {
  json_object object(text);
  put_statistics(object, counted);
  return object.finish("");
}

}  // namespace far::control
