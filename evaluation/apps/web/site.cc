#include "site.h"

#include <cstdio>

namespace web {
namespace {

// Ranks are scattered over the keys by a prime above any number of keys, so that hot keys are not neighbours.
constexpr std::uint64_t scatter = 4'294'967'291;

}  // namespace

key name_of(std::uint64_t number) {
  char text[13];
  std::snprintf(text, sizeof text, "%012llu", static_cast<unsigned long long>(number));
  key name;
  std::memcpy(name.data(), text, name.size());
  return name;
}

std::uint64_t site::answer(std::uint64_t number, std::uint64_t seed, encoder& with) const {
  apps::random_words random(apps::mix(seed) + number);
  request_keys names;
  for (key& name : names) name = name_of(ranks_.draw(random) * scatter % keys_);
  return apps::mix(number) ^ serve(names, with);
}

}  // namespace web
