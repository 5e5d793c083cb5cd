// The common parts of tests of containers: a runtime, and element types: numbers, elements that say how many live and
// throw when told to, and elements with far pointers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "far/runtime.h"
#include "far/unique_ptr.h"
#include "tests/support/real_pager.h"

namespace far::test {

// Throws from the constructor that brings `fuse` to 0, and counts those that live.
struct fragile {
  static inline int living = 0;
  static inline int fuse = -1;

  std::uint64_t number = 0;
  std::uint64_t copy_of_number = 0;

  fragile() : fragile(0) {}
  fragile(std::uint64_t value) : number(value), copy_of_number(value) {
    burn();
    ++living;
  }
  fragile(const fragile& other) : number(other.number), copy_of_number(other.copy_of_number) {
    burn();
    ++living;
  }
  fragile& operator=(const fragile& other) {
    burn();
    number = other.number;
    copy_of_number = other.copy_of_number;
    return *this;
  }
  ~fragile() { --living; }
  friend bool operator==(const fragile& a, const fragile& b) {
    return a.number == b.number && a.copy_of_number == b.copy_of_number;
  }
  friend bool operator<(const fragile& a, const fragile& b) { return a.number < b.number; }

 private:
  static void burn() {
    if (fuse > 0 && --fuse == 0) throw std::runtime_error("the fuse has burnt");
  }
};

// 20 bytes, so that some lie in two pages.
struct odd_size {
  std::uint32_t words[5] = {};
  odd_size() = default;
  odd_size(std::uint64_t value) {
    for (unsigned i = 0; i < 5; ++i) words[i] = static_cast<std::uint32_t>(value + i);
  }
  friend bool operator==(const odd_size&, const odd_size&) = default;
  friend bool operator<(const odd_size& a, const odd_size& b) { return a.words[0] < b.words[0]; }
};

// Larger than a page.
struct wide {
  std::uint64_t words[700] = {};
  wide() = default;
  wide(std::uint64_t value) {
    for (std::uint64_t& one : words) one = value++;
  }
  friend bool operator==(const wide&, const wide&) = default;
  friend bool operator<(const wide& a, const wide& b) { return a.words[0] < b.words[0]; }
};

// A far pointer and a number. Made with test::home.
inline runtime* home = nullptr;
struct linked {
  unique_ptr<std::uint64_t> target;
  std::uint64_t number = 0;
  linked() = default;
  linked(std::uint64_t value) : target(make_unique<std::uint64_t>(*home, value)), number(value) {}
  friend bool operator==(const linked& a, const linked& b) {
    return a.number == b.number && static_cast<bool>(a.target) == static_cast<bool>(b.target) &&
           (!a.target || (a.target.read() == a.number && b.target.read() == b.number));
  }
  friend bool operator<(const linked& a, const linked& b) { return a.number < b.number; }
};

// A runtime of 16 MiB, whose invariants hold in the end, and no element of which is left.
class containers_test : public heap::real_pager_test<> {
 protected:
  void SetUp() override {
    real_pager_test::SetUp();
    if (IsSkipped()) return;
    runtime_options chosen = heap::small_runtime();
    chosen.evacuate_garbage_share = 0.5;
    farheap_ = std::make_unique<runtime>(chosen);
    home = farheap_.get();
  }
  void TearDown() override {
    if (farheap_ != nullptr) farheap_->validate();
    farheap_.reset();
    EXPECT_EQ(fragile::living, 0);
  }

  std::unique_ptr<runtime> farheap_;
};

}  // namespace far::test

template <>
inline constexpr bool far::is_relocatable<far::test::fragile> = true;
template <>
struct far::pointers_of<far::test::linked> {
  static void visit(far::test::linked& in, auto&& pointer) { pointer(in.target); }
};
