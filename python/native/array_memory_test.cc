// Arrays that threads make, move, hand to one another and drop, while spares are given back.
#include "array_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "pager/pager.h"
#include "platform/kernel_features.h"

namespace far::python {
namespace {

using content = array_memory::content;

constexpr std::uint64_t budget = 64 * mib;

class array_memory_test : public testing::Test {
 protected:
  void SetUp() override {
    if (!platform::probe_kernel().userfaultfd) {
      GTEST_SKIP() << "no userfaultfd: " << std::strerror(platform::probe_kernel().userfaultfd_error_code);
    }
    result<std::unique_ptr<pager::pager>> created =
        pager::pager::create({.budget_bytes = budget, .far_uri = "memory:"});
    ASSERT_TRUE(created.ok()) << created.error().message;
    far_ = std::move(created).value();
    arrays_ = std::make_unique<array_memory>(*far_);
  }

  [[nodiscard]] std::uint64_t held_bytes() const {
    const engine::statistics counted = far_->snapshot();
    return counted.local_bytes + counted.far_bytes;
  }

  std::unique_ptr<pager::pager> far_;
  std::unique_ptr<array_memory> arrays_;
};

TEST_F(array_memory_test, one_that_has_become_small_is_no_spare) {
  void* const taken = arrays_->take(64 * kib, content::zeros);
  void* const small = arrays_->resize(taken, page_bytes);
  ASSERT_NE(small, nullptr);
  std::memset(small, 1, page_bytes);
  arrays_->release(small);
  EXPECT_EQ(held_bytes(), 0u);
}

struct array {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

void put(std::byte* place, std::uintptr_t word) {
  std::memcpy(place, &word, sizeof word);
}
std::uintptr_t word_at(const std::byte* place) {
  std::uintptr_t word = 0;
  std::memcpy(&word, place, sizeof word);
  return word;
}

// A word in each page, which depends on the array and the place.
void fill(const array& one) {
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= one.bytes; at += page_bytes)
    put(one.data + at, one.bytes * 31 + at);
}
bool is_intact(const array& one, std::size_t bytes) {
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes; at += page_bytes) {
    if (word_at(one.data + at) != one.bytes * 31 + at) return false;
  }
  return true;
}
bool is_zero(const array& one) {
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= one.bytes; at += page_bytes) {
    if (word_at(one.data + at) != 0) return false;
  }
  return true;
}

TEST_F(array_memory_test, a_freed_array_serves_the_next_one_of_its_size) {
  for (const std::size_t bytes : {64 * kib, 256 * kib, std::size_t{3 * mib}}) {
    void* const first = arrays_->take(bytes, content::any);
    arrays_->release(first);
    EXPECT_EQ(arrays_->take(bytes, content::zeros), first) << bytes;
    void* const second = arrays_->take(bytes, content::any);
    EXPECT_NE(second, first) << bytes;
    arrays_->release(first);
    void* const smaller = arrays_->take(bytes / 2, content::any);
    EXPECT_NE(smaller, first) << "half of it would be wasted";
    arrays_->release(smaller);
    arrays_->release(second);
    arrays_->drop_spares();
  }
}

TEST_F(array_memory_test, few_spares_are_kept_and_all_are_given_back) {
  std::vector<void*> taken;
  for (int i = 0; i < 300; ++i) {
    const array made{static_cast<std::byte*>(arrays_->take((64 + i % 3 * 32) * kib, content::any)),
                     (64 + static_cast<std::size_t>(i % 3) * 32) * kib};
    ASSERT_NE(made.data, nullptr);
    fill(made);
    taken.push_back(made.data);
  }
  EXPECT_GT(held_bytes(), 20 * mib);
  for (void* const one : taken) arrays_->release(one);
  EXPECT_LE(held_bytes(), budget / 8 + budget / 8 / 4);
  EXPECT_GT(held_bytes(), 0u);
  arrays_->drop_spares();
  EXPECT_EQ(held_bytes(), 0u);
}

// What a thread does: makes arrays, verifies them, and leaves some for others.
class worker {
 public:
  worker(array_memory& arrays, std::array<std::atomic<array*>, 4>& shared, unsigned seed)
      : arrays_(arrays), shared_(shared), chance_(seed) {}

  // Returns how many arrays had other bytes than were written to them.
  [[nodiscard]] int work(int steps) {
    for (int i = 0; i < steps; ++i) step();
    for (array& one : own_) drop(one);
    return wrong_;
  }

 private:
  [[nodiscard]] std::size_t draw_bytes() { return 64 * kib + chance_() % 8 * 48 * kib + chance_() % 5000; }

  void step() {
    array& one = own_[chance_() % own_.size()];
    if (one.data == nullptr) {
      const content wanted = chance_() % 2 == 0 ? content::any : content::zeros;
      const std::size_t bytes = draw_bytes();
      one = {static_cast<std::byte*>(arrays_.take(bytes, wanted)), bytes};
      wrong_ += wanted == content::zeros && !is_zero(one) ? 1 : 0;
      return fill(one);
    }
    switch (chance_() % 4) {
      case 0: {
        const array before = one;
        const std::size_t bytes = draw_bytes();
        one.data = static_cast<std::byte*>(arrays_.resize(one.data, bytes));
        wrong_ += is_intact({one.data, before.bytes}, std::min(before.bytes, bytes)) ? 0 : 1;
        one.bytes = bytes;
        return fill(one);
      }
      case 1: {
        array* const given = shared_[chance_() % shared_.size()].exchange(new array(one));
        one = given == nullptr ? array{} : *given;
        delete given;
        return;
      }
      default: return drop(one);
    }
  }

  void drop(array& one) {
    if (one.data == nullptr) return;
    wrong_ += is_intact(one, one.bytes) ? 0 : 1;
    std::memset(one.data, 0xee, sizeof(std::uintptr_t));
    arrays_.release(one.data);
    one = {};
  }

  array_memory& arrays_;
  std::array<std::atomic<array*>, 4>& shared_;
  std::minstd_rand chance_;
  std::array<array, 6> own_{};
  int wrong_ = 0;
};

TEST_F(array_memory_test, threads_have_arrays_of_their_own) {
  std::array<std::atomic<array*>, 4> shared{};
  std::atomic<int> wrong{0};
  std::atomic<bool> is_over{false};
  std::thread dropper([&] {
    while (!is_over.load()) {
      arrays_->drop_spares();
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&, seed] { wrong += worker(*arrays_, shared, seed).work(800); });
  }
  for (std::thread& one : threads) one.join();
  is_over.store(true);
  dropper.join();
  EXPECT_EQ(wrong.load(), 0);
  for (std::atomic<array*>& place : shared) {
    const std::unique_ptr<array> left(place.load());
    if (left == nullptr) continue;
    EXPECT_TRUE(is_intact(*left, left->bytes));
    arrays_->release(left->data);
  }
  arrays_->drop_spares();
  EXPECT_EQ(held_bytes(), 0u);
}

// Short-lived ones of one size, so that threads meet at the same spares.
TEST_F(array_memory_test, nobody_gets_an_array_that_another_thread_has) {
  constexpr std::size_t bytes = 64 * kib;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::uintptr_t number = 1; number <= 4; ++number) {
    threads.emplace_back([&, number] {
      for (int i = 0; i < 600'000; ++i) {
        auto* const taken = static_cast<std::uintptr_t*>(arrays_->take(bytes, content::any));
        const std::atomic_ref<std::uintptr_t> owner(*taken);
        wrong += owner.exchange(number) != 0 ? 1 : 0;
        wrong += owner.exchange(0) != number ? 1 : 0;
        arrays_->release(taken);
      }
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace far::python
