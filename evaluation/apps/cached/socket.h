// A file descriptor, and the socket that the server listens on.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace cached {

class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int number) : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~descriptor();

  [[nodiscard]] int get() const { return number_; }

 private:
  int number_ = -1;
};

// Listens, without blocking, at a numeric address. Port 0: any; the port is set to the one taken. Throws
// std::runtime_error with a message for the user.
[[nodiscard]] descriptor listen_at(const std::string& address, std::uint16_t& port);

}  // namespace cached
