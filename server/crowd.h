// Whom to send away when too many clients have not finished their handshake.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace far::server {

// The most of them; with more, one is sent away.
inline constexpr std::size_t most_strangers = 256;

// Strangers by where they come from. The place with the most of them loses one, the oldest, so that a flood from one
// place keeps nobody else out.
class crowd {
 public:
  // Requires: `place` outlives the crowd.
  void add(std::string_view place, std::size_t number, std::uint64_t since_ns) {
    strangers_[place].emplace_back(since_ns, number);
    ++size_;
  }
  [[nodiscard]] std::size_t size() const { return size_; }

  // The number of the one to send away. Requires: there are some.
  [[nodiscard]] std::size_t surplus() const {
    const auto largest = std::max_element(strangers_.begin(), strangers_.end(), [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();
    });
    return std::min_element(largest->second.begin(), largest->second.end())->second;
  }

 private:
  std::map<std::string_view, std::vector<std::pair<std::uint64_t, std::size_t>>> strangers_;
  std::size_t size_ = 0;
};

}  // namespace far::server
