// For random programs of containers (random_test.cc): elements whose constructors, comparisons and hashes fail at
// random, and that notice when they are used before they are made or after they are gone; and allocations that fail.
#pragma once

#include <gtest/gtest.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "far/relocatable.h"
#include "far/runtime.h"
#include "far/string.h"
#include "far/unique_ptr.h"
#include "tests/support/failing_new.h"

namespace far::random_program {

struct burnt : std::runtime_error {
  burnt() : std::runtime_error("the fuse has burnt") {}
};

// How many operations of elements there are to go before one fails; 0: none does. Allocations: failing_new.h.
inline int operations_to_go = 0;

inline void burn() {
  if (operations_to_go > 0 && --operations_to_go == 0) throw burnt();
}

// While it exists, nothing fails.
class undisturbed {
 public:
  undisturbed() = default;
  ~undisturbed() {
    operations_to_go = operations_;
    allocations_to_go = allocations_;
  }
  undisturbed(const undisturbed&) = delete;
  undisturbed& operator=(const undisturbed&) = delete;

 private:
  int operations_ = std::exchange(operations_to_go, 0);
  int allocations_ = std::exchange(allocations_to_go, 0);
};

inline long living = 0;
inline runtime* home = nullptr;

// A part of each element. Moved by its bytes, so it cannot know its address.
class life {
 public:
  life() noexcept { ++living; }
  life(const life& other) noexcept {
    other.check();
    ++living;
  }
  life& operator=(const life& other) noexcept {
    check();
    other.check();
    return *this;
  }
  ~life() {
    check();
    mark_ = gone;
    asm volatile("" : : "r"(this) : "memory");  // the store is to be seen
    --living;
  }
  void check() const noexcept { EXPECT_EQ(mark_, alive) << "an element is used while it does not live"; }

 private:
  static constexpr std::uint64_t alive = 0x6c69766573212121;
  static constexpr std::uint64_t gone = 0x676f6e6521212121;
  std::uint64_t mark_ = alive;
};

// Everything about it may throw.
class solid {
 public:
  static constexpr bool can_be_copied = true;

  solid() : solid(0) {}
  solid(std::uint64_t number) : number_(number) { burn(); }
  solid(const solid& other) : life_(other.life_), number_(other.number_) { burn(); }
  solid& operator=(const solid& other) {
    burn();
    life_ = other.life_;
    number_ = other.number_;
    return *this;
  }
  ~solid() = default;

  [[nodiscard]] std::uint64_t number() const {
    life_.check();
    return number_;
  }
  friend bool operator<(const solid& a, const solid& b) {
    burn();
    return a.number() < b.number();
  }

 private:
  life life_;
  std::uint64_t number_;
};

[[nodiscard]] inline std::string text_of(std::uint64_t number) {
  return std::to_string(number) + std::string(number % 7 * 8, static_cast<char>('a' + number % 26));
}

// Owns far objects. Moving it must not throw.
class linked {
 public:
  static constexpr bool can_be_copied = false;

  linked() : linked(0) {}
  linked(std::uint64_t number) : number_(number) {
    target_ = make_unique<std::uint64_t>(*home, number);
    burn();
    text_.assign(*home, text_of(number));
    burn();
  }
  linked(linked&& other) noexcept = default;
  linked& operator=(linked&& other) noexcept = default;
  ~linked() = default;

  // A number that no other has when what it owns is not what it made.
  [[nodiscard]] std::uint64_t number() const {
    const undisturbed test;
    life_.check();
    const bool is_whole = target_ && target_.read() == number_ && text_ == text_of(number_);
    EXPECT_TRUE(is_whole) << "an element has lost what it owns";
    return is_whole ? number_ : ~std::uint64_t{0};
  }
  friend bool operator<(const linked& a, const linked& b) {
    burn();
    return a.number() < b.number();
  }

 private:
  friend struct pointers_of<linked>;
  life life_;
  std::uint64_t number_;
  unique_ptr<std::uint64_t> target_;
  string text_;
};

// For keys that are texts. Not without state.
struct shaky_hash {
  using is_transparent = void;
  std::size_t salt = 1;
  [[nodiscard]] std::size_t operator()(std::string_view text) const {
    burn();
    return std::hash<std::string_view>()(text) % salt;
  }
  [[nodiscard]] std::size_t operator()(const string& text) const {
    burn();
    return text.hash() % salt;
  }
};
struct shaky_equal {
  using is_transparent = void;
  [[nodiscard]] bool operator()(const string& a, std::string_view b) const {
    burn();
    return a == b;
  }
  [[nodiscard]] bool operator()(const string& a, const string& b) const {
    burn();
    return a == b;
  }
};

}  // namespace far::random_program

template <>
inline constexpr bool far::is_relocatable<far::random_program::solid> = true;
template <>
struct far::pointers_of<far::random_program::linked> {
  static void visit(far::random_program::linked& in, auto&& pointer) {
    pointer(in.target_);
    pointer(in.text_);
  }
};
