// A cache of strings: the table is local, keys and values are far. Several threads use it. Entries that are not asked
// for go to the far tier by themselves, and come back alone or with their pages, as they are used.
//
//     build/bin/examples/cache [FAR-TIER]
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "far/runtime.h"
#include "far/unique_ptr.h"

namespace {

class cache {
 public:
  explicit cache(far::runtime& farheap) : farheap_(farheap) {}

  void put(std::string_view key, std::string_view value) {
    far::unique_ptr<char[]> stored = far::make_unique<char[]>(farheap_, value.size());
    stored.write(0, value);
    shard& in = shard_of(key);
    const std::lock_guard guard(in.lock);
    in.values[std::hash<std::string_view>{}(key)] = std::move(stored);
  }

  [[nodiscard]] std::optional<std::string> get(std::string_view key) {
    shard& in = shard_of(key);
    const std::lock_guard guard(in.lock);
    const auto found = in.values.find(std::hash<std::string_view>{}(key));
    if (found == in.values.end()) return std::nullopt;
    const far::scope here(farheap_);
    const std::span<const char> value = found->second.deref(here);
    return std::string(value.begin(), value.end());
  }

 private:
  struct shard {
    std::mutex lock;
    std::unordered_map<std::size_t, far::unique_ptr<char[]>> values;  // by the key's hash
  };

  [[nodiscard]] shard& shard_of(std::string_view key) { return shards_[std::hash<std::string_view>{}(key) % 16]; }

  far::runtime& farheap_;
  shard shards_[16];
};

std::string value_of(std::uint64_t number) {
  return "value " + std::to_string(number) + std::string(number % 300, '.');
}

}  // namespace

int main(int count_of_arguments, char** arguments) try {
  far::runtime farheap(
      {.local_bytes = std::size_t{16} << 20, .far = count_of_arguments > 1 ? arguments[1] : "memory:"});
  cache values(farheap);
  constexpr std::uint64_t keys = 300'000;
  for (std::uint64_t i = 0; i < keys; ++i) values.put("key " + std::to_string(i), value_of(i));

  std::vector<std::thread> clients;
  std::vector<std::uint64_t> wrong(2);
  for (std::size_t client = 0; client < wrong.size(); ++client) {
    clients.emplace_back([&, client] {
      std::mt19937_64 random(client);
      for (unsigned i = 0; i < 50'000; ++i) {
        const std::uint64_t number = random() % keys;
        wrong[client] += values.get("key " + std::to_string(number)) != value_of(number);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const far::runtime_statistics now = farheap.statistics();
  std::printf("%llu wrong values; %llu objects came alone, %llu pages came whole\n",
              static_cast<unsigned long long>(wrong[0] + wrong[1]), static_cast<unsigned long long>(now.object_fetches),
              static_cast<unsigned long long>(now.page_fetches));
  return wrong[0] + wrong[1] == 0 ? 0 : 1;
} catch (const std::exception& refused) {
  // The far tier, or permission for userfaultfd, is missing: the message says what to do.
  std::fprintf(stderr, "%s\n", refused.what());
  return 1;
}
