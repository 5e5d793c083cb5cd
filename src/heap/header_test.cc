#include "heap/header.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace far::heap {
namespace {

class header_test : public testing::Test {
 protected:
  [[nodiscard]] std::uintptr_t object() const { return reinterpret_cast<std::uintptr_t>(&room_[1]); }
  [[nodiscard]] header of_object() const { return header::at(object()); }
  [[nodiscard]] static std::uint64_t owned_by(const owner_word& owner) {
    return header::make(owner, 48, kind_of(nullptr, 16));
  }

  owner_word first_{0};
  owner_word second_{0};

 private:
  alignas(16) std::array<std::uint64_t, 8> room_{};
};

TEST_F(header_test, knows_owner_size_and_kind) {
  for (unsigned kind = 0; kind < 1u << kind_bits; ++kind) {
    const std::uint64_t value = header::make(first_, largest_small_bytes, static_cast<object_kind>(kind));
    EXPECT_EQ(header::owner(value), &first_);
    EXPECT_EQ(header::bytes(value), largest_small_bytes);
    EXPECT_EQ(header::kind(value), kind);
    EXPECT_EQ(value & header::locked, 0u);
  }
}

TEST_F(header_test, a_lock_keeps_its_value) {
  of_object().store(owned_by(first_));
  const std::uint64_t locked = of_object().lock();
  EXPECT_EQ(locked, owned_by(first_));
  EXPECT_NE(of_object().load() & header::locked, 0u);
  of_object().unlock(owned_by(second_));
  EXPECT_EQ(of_object().load(), owned_by(second_));
}

}  // namespace
}  // namespace far::heap
