#include "site.h"

#include <cstdio>
#include <semaphore>
#include <thread>

namespace web {
namespace {

// Ranks are scattered over the keys by a prime above any number of keys, so that hot keys are not neighbours.
constexpr std::uint64_t scatter = 4'294'967'291;

class thread_gate final : public gate {
 public:
  void wait() override { passes_.acquire(); }
  void let_pass(unsigned count) override { passes_.release(count); }

 private:
  std::counting_semaphore<> passes_{0};
};

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

void site::run_workers(std::size_t count, const std::function<void(std::size_t)>& body,
                       const std::function<void()>& beside) const {
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  beside();
}

std::unique_ptr<gate> site::make_gate() const {
  return std::make_unique<thread_gate>();
}

}  // namespace web
