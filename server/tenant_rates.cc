#include "server/tenant_rates.h"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/units.h"

namespace far::server {
namespace {

// Below these no program works: it waits so long for its pages that it takes the server for dead.
constexpr std::uint64_t least_requests = 100;
constexpr std::uint64_t least_bytes = mib;

// What one request may carry, as clients make them: a batch of evicted pages.
constexpr std::uint64_t usual_request_bytes = 64 * page_bytes;

// The share of a second that the outstanding requests of one connection may take.
constexpr std::uint64_t outstanding_share = 16;

error wrong(const std::string& why) {
  return error{why + "; write for example connections:64,requests:20000,bandwidth:200M", EINVAL};
}

result<std::uint64_t> parse_count(const std::string& text) {
  std::uint64_t count = 0;
  const auto [rest, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failure != std::errc{} || rest != text.data() + text.size()) return wrong("'" + text + "' is not a number");
  return count;
}

}  // namespace

result<tenant_limits> parse_tenant_limits(const std::string& text) {
  tenant_limits parsed;
  std::string left = text;
  while (true) {
    const std::size_t comma = left.find(',');
    const std::string part = left.substr(0, comma);
    const std::size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    const std::string number = colon == part.npos ? "" : part.substr(colon + 1);
    const bool is_size = name == "bandwidth";
    std::uint64_t* const field = name == "connections" ? &parsed.connections
                                 : name == "devices"   ? &parsed.devices
                                 : name == "requests"  ? &parsed.requests
                                 : is_size             ? &parsed.bytes
                                                       : nullptr;
    if (field == nullptr) return wrong("'" + name + "' is not connections, devices, requests or bandwidth");
    if (*field != 0) return wrong("'" + name + "' is there twice");
    const result<std::uint64_t> value = is_size ? parse_size(number) : parse_count(number);
    if (!value) return wrong(value.error().message);
    const std::uint64_t least = is_size ? least_bytes : name == "requests" ? least_requests : 1;
    if (value.value() < least) {
      return wrong("'" + part + "' is too little for any program, which needs at least " +
                   (is_size ? format_size(least) : std::to_string(least)));
    }
    *field = value.value();
    if (comma == left.npos) return parsed;
    left.erase(0, comma + 1);
  }
}

void rate_limit::set(std::uint64_t units_a_second, std::uint64_t now_ns) {
  if (units_a_second_.exchange(units_a_second) == units_a_second) return;
  paid_until_ns_.store(now_ns + burst_ns);
}

std::uint64_t rate_limit::free_at_ns() const {
  if (units_a_second() == 0) return 0;
  const std::uint64_t paid_until_ns = paid_until_ns_.load(std::memory_order_relaxed);
  return paid_until_ns - std::min(paid_until_ns, burst_ns);
}

void rate_limit::charge(std::uint64_t units, std::uint64_t now_ns) {
  const std::uint64_t rate = units_a_second();
  if (rate == 0) return;
  const std::uint64_t cost_ns = units * 1'000'000'000 / rate;
  std::uint64_t before = paid_until_ns_.load(std::memory_order_relaxed);
  while (!paid_until_ns_.compare_exchange_weak(before, std::max(before, now_ns) + cost_ns, std::memory_order_relaxed)) {
  }
}

void tenant_rates::set(const tenant_limits& limits, std::uint64_t now_ns) {
  requests_.set(limits.requests, now_ns);
  bytes_.set(limits.bytes, now_ns);
}

std::uint64_t tenant_rates::wait_until_ns(std::uint64_t now_ns) {
  const std::uint64_t free_at_ns = std::max(requests_.free_at_ns(), bytes_.free_at_ns());
  if (free_at_ns <= now_ns) return 0;
  delays_.fetch_add(1, std::memory_order_relaxed);
  return std::max(free_at_ns, now_ns + pause_ns);
}

void tenant_rates::charge(std::uint64_t bytes, std::uint64_t now_ns) {
  requests_.charge(1, now_ns);
  bytes_.charge(bytes, now_ns);
}

std::uint32_t tenant_rates::outstanding(std::uint32_t usual) const {
  std::uint64_t most = usual;
  if (requests_.units_a_second() != 0) most = std::min(most, requests_.units_a_second() / outstanding_share);
  if (bytes_.units_a_second() != 0) {
    most = std::min(most, bytes_.units_a_second() / outstanding_share / usual_request_bytes);
  }
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(most, 1));
}

}  // namespace far::server
