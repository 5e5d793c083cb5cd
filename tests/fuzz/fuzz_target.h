// The interface of every fuzz target: libFuzzer feeds it (build/fuzz), and replay_test.cc replays its seeds in every
// build.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

namespace far::fuzz {

using byte_string = std::vector<std::byte>;

// Inputs to start from: they reach the code that random bytes would take long to find. Each target defines it.
[[nodiscard]] std::vector<byte_string> seeds();

// Holds in every build; libFuzzer keeps the input that broke it.
#define FUZZ_EXPECT(condition) FAR_CHECK(condition, "the fuzz target expects it")

// A copy whose end is the end of its heap block, so that the address sanitizer sees every byte read beyond it.
class tight_copy {
 public:
  explicit tight_copy(std::span<const std::byte> from) : bytes_(new std::byte[from.size()]), size_(from.size()) {
    if (!from.empty()) std::memcpy(bytes_.get(), from.data(), from.size());
  }
  [[nodiscard]] std::span<const std::byte> all() const { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

// Reads an input as a list of choices. Zeros follow its end, so every input means something.
class choices {
 public:
  explicit choices(std::span<const std::byte> from) : rest_(from) {}

  [[nodiscard]] bool empty() const { return rest_.empty(); }

  template <typename T>
  [[nodiscard]] T number() {
    T value = 0;
    const std::size_t bytes = std::min(sizeof value, rest_.size());
    if (bytes > 0) std::memcpy(&value, rest_.data(), bytes);
    rest_ = rest_.subspan(bytes);
    return value;
  }
  // At most `most` bytes of the input.
  [[nodiscard]] std::span<const std::byte> take(std::size_t most) {
    const std::span<const std::byte> taken = rest_.first(std::min(most, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const std::byte> rest_;
};

// Writes what `choices` reads.
class recipe {
 public:
  template <typename T>
  recipe& number(T value) {
    return append(std::as_bytes(std::span(&value, 1)));
  }
  recipe& append(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  recipe& text(std::string_view letters) { return append(std::as_bytes(std::span(letters))); }
  [[nodiscard]] byte_string bytes() const { return bytes_; }

 private:
  byte_string bytes_;
};

// A seed of single bytes.
[[nodiscard]] inline byte_string seed_of(std::initializer_list<unsigned> numbers) {
  recipe made;
  for (const unsigned number : numbers) made.number(static_cast<std::uint8_t>(number));
  return made.bytes();
}

}  // namespace far::fuzz
