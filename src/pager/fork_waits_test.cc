// What a fork waits for, on the real kernel. Every miss and memory call stands still for as long: the locks that a fork
// holds are theirs. Needs permission for userfaultfd.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "pager/pager.h"
#include "platform/advice.h"
#include "platform/kernel_features.h"

namespace far::pager {
namespace {

constexpr std::size_t bytes = 8 * mib;

// With a far tier where everything takes long.
class fork_waits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!platform::probe_kernel().userfaultfd) GTEST_SKIP() << "no userfaultfd";
    result<std::unique_ptr<pager>> created =
        pager::create({.budget_bytes = 16 * mib, .far_uri = "memory:?latency=200ms"});
    ASSERT_TRUE(created.ok()) << created.error().message;
    pager_ = std::move(created).value();
    block_ = pager_->map(bytes, PROT_READ | PROT_WRITE, 2 * mib).value();
    for (std::size_t at = 0; at < bytes; at += page_bytes) block_[at] = std::byte{1};
  }

  // Whether a fork that comes as soon as `begun()` waits for another thread's `call()` to end.
  bool waits_for(const std::function<void()>& call, const std::function<bool()>& begun) {
    std::atomic<bool> ended{false};
    std::thread calling([&] {
      call();
      ended.store(true);
    });
    while (!begun() && !ended.load()) std::this_thread::yield();
    pager_->prepare_fork();
    const bool waited = ended.load();
    pager_->after_fork_in_parent();
    calling.join();
    return waited;
  }

  // The same for a call that brings all of the memory.
  bool waits_until_it_is_here(const std::function<result<void>()>& call) {
    while (pager_->snapshot().local_bytes > 0) pager_->evict(block_, bytes);
    result<void> outcome;
    const std::uint64_t fetched = pager_->snapshot().fetched_pages;
    const bool waited =
        waits_for([&] { outcome = call(); }, [&] { return pager_->snapshot().fetched_pages > fetched; });
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    for (std::size_t at = 0; at < bytes; at += page_bytes) EXPECT_EQ(block_[at], std::byte{1}) << at;
    return waited;
  }

  std::unique_ptr<pager> pager_;
  std::byte* block_ = nullptr;
};

TEST_F(fork_waits, not_for_pages_that_a_thread_pushes_out) {
  EXPECT_FALSE(
      waits_for([this] { pager_->evict(block_, bytes); }, [this] { return pager_->snapshot().far_bytes > 0; }));
}

TEST_F(fork_waits, not_for_all_pages_that_are_populated) {
  EXPECT_FALSE(waits_until_it_is_here([this] { return pager_->advise(block_, bytes, MADV_POPULATE_WRITE); }));
}

TEST_F(fork_waits, not_for_all_pages_that_are_locked) {
  if (!pager_->lock(block_, bytes, 0).ok()) GTEST_SKIP() << "no permission for mlock";
  ASSERT_TRUE(pager_->unlock(block_, bytes).ok());
  EXPECT_FALSE(waits_until_it_is_here([this] { return pager_->lock(block_, bytes, 0); }));
  EXPECT_TRUE(pager_->mapping_at(block_, bytes).value().locked);
}

}  // namespace
}  // namespace far::pager
