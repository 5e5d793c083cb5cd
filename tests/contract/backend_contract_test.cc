// The contract of src/backend/backend.h, checked on every backend. Content depends on its address, and every byte that
// comes back is compared.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backends_under_test.h"
#include "base/sanitizers.h"
#include "store_content.h"

namespace far::backend {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;

// Page-aligned memory.
class aligned_buffer {
 public:
  explicit aligned_buffer(std::size_t bytes) : bytes_(bytes), storage_(bytes + page_bytes) {}
  [[nodiscard]] std::byte* data() {
    return reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(storage_.data()), page_bytes));
  }
  [[nodiscard]] std::span<std::byte> span() { return {data(), bytes_}; }

 private:
  std::size_t bytes_;
  std::vector<std::byte> storage_;
};

std::unique_ptr<channel> open_channel(backend& tested, std::size_t depth) {
  result<std::unique_ptr<channel>> opened = tested.open_channel(depth);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return opened.ok() ? std::move(opened).value() : nullptr;
}

// Submits all of `batch` and polls all completions; returns how many failed.
int run(channel& queue, std::span<const request> batch) {
  int failed = 0;
  std::size_t completed = 0;
  std::size_t submitted = 0;
  std::array<completion, 16> done;
  while (completed < batch.size()) {
    submitted += queue.submit(batch.subspan(submitted));
    const std::size_t count = queue.poll(done);
    for (const completion& one : std::span(done).first(count)) failed += one.error_code != 0;
    completed += count;
    if (count == 0) queue.wait(second_ns);
  }
  return failed;
}

int transfer(channel& queue, operation op, slot_id slot, std::uint64_t offset_bytes, std::span<std::byte> bytes) {
  const request one{.op = op,
                    .slot = slot,
                    .offset_bytes = static_cast<std::uint32_t>(offset_bytes),
                    .length_bytes = static_cast<std::uint32_t>(bytes.size()),
                    .buffer = bytes.data()};
  return run(queue, std::span(&one, 1));
}

class backend_contract : public testing::TestWithParam<backend_under_test> {
 protected:
  void SetUp() override {
    if (!GetParam().missing.empty()) GTEST_SKIP() << GetParam().missing;
  }
  std::unique_ptr<backend> open(std::uint64_t capacity_slots) { return GetParam().open(capacity_slots); }
};

TEST_P(backend_contract, describes_itself) {
  EXPECT_FALSE(open(16)->describe().empty());
}

TEST_P(backend_contract, allocations_do_not_overlap_and_are_counted) {
  const auto tested = open(1000);
  std::vector<bool> taken(1000, false);
  std::uint64_t used = 0;
  for (const std::size_t count : {1u, 7u, 64u, 1u, 65u, 128u, 3u}) {
    const result<slot_id> first = tested->allocate(count);
    ASSERT_TRUE(first.ok()) << first.error().message;
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_LT(first.value() + i, 1000u);
      EXPECT_FALSE(taken[first.value() + i]);
      taken[first.value() + i] = true;
    }
    used += count;
    EXPECT_EQ(tested->report().used_slots, used);
    EXPECT_EQ(tested->report().total_slots, 1000u);
  }
}

TEST_P(backend_contract, a_full_backend_says_enospc_and_serves_what_is_freed) {
  constexpr std::uint64_t capacity = 300;
  const auto tested = open(capacity);
  for (std::uint64_t i = 0; i < capacity; ++i) ASSERT_TRUE(tested->allocate(1).ok()) << i;
  const result<slot_id> refused = tested->allocate(1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ENOSPC);
  EXPECT_EQ(tested->report().used_slots, capacity);

  tested->free(100, 3);
  tested->free(200, 2);
  EXPECT_EQ(tested->allocate(4).error().code, ENOSPC) << "no run of 4, although 5 slots are free";
  EXPECT_EQ(tested->allocate(3).value(), 100u);
  EXPECT_EQ(tested->allocate(2).value(), 200u);

  for (slot_id slot = 0; slot < capacity; ++slot) tested->free(slot, 1);
  EXPECT_EQ(tested->report().used_slots, 0u);
  EXPECT_TRUE(tested->allocate(capacity).ok()) << "single slots grow together again";
}

TEST_P(backend_contract, whole_pages_come_back) {
  constexpr std::size_t count = 64;
  const auto tested = open(256);
  const auto queue = open_channel(*tested, 32);
  const slot_id first = tested->allocate(count).value();
  aligned_buffer out(count * page_bytes);
  aligned_buffer in(count * page_bytes);
  fill(out.span(), first * page_bytes, 1);
  std::vector<request> writes;
  std::vector<request> reads;
  for (std::size_t i = 0; i < count; ++i) {
    // Buffers in reverse order for the reads: adjacent in the store, not in memory.
    writes.push_back({operation::write, first + i, 0, page_bytes, out.data() + i * page_bytes, i});
    reads.push_back({operation::read, first + i, 0, page_bytes, in.data() + (count - 1 - i) * page_bytes, i});
  }
  EXPECT_EQ(run(*queue, writes), 0);
  EXPECT_EQ(run(*queue, reads), 0);
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(std::memcmp(in.data() + (count - 1 - i) * page_bytes, out.data() + i * page_bytes, page_bytes), 0) << i;
  }
}

TEST_P(backend_contract, one_request_spans_many_slots) {
  constexpr std::size_t slots = 300;
  const auto tested = open(slots);
  const auto queue = open_channel(*tested, 4);
  const slot_id first = tested->allocate(slots).value();
  aligned_buffer model(slots * page_bytes);
  aligned_buffer in(slots * page_bytes);
  fill(model.span(), 0, 1);
  ASSERT_EQ(transfer(*queue, operation::write, first, 0, model.span()), 0);
  ASSERT_EQ(transfer(*queue, operation::read, first, 0, in.span()), 0);
  EXPECT_EQ(std::memcmp(in.data(), model.data(), slots * page_bytes), 0);

  // From an odd place, from an odd buffer, of an odd length; its neighbours keep their bytes.
  const std::size_t begin = 5 * page_bytes + 101;
  const std::size_t length = 200 * page_bytes + 333;
  std::vector<std::byte> odd(length + 3);
  fill(std::span(odd).subspan(3), begin, 2);
  ASSERT_EQ(transfer(*queue, operation::write, first + 5, 101, std::span(odd).subspan(3)), 0);
  std::memcpy(model.data() + begin, odd.data() + 3, length);
  ASSERT_EQ(transfer(*queue, operation::read, first, 0, in.span()), 0);
  EXPECT_EQ(std::memcmp(in.data(), model.data(), slots * page_bytes), 0);
  std::vector<std::byte> odd_read(length + 1);
  ASSERT_EQ(transfer(*queue, operation::read, first + 5, 101, std::span(odd_read).subspan(1)), 0);
  EXPECT_EQ(std::memcmp(odd_read.data() + 1, odd.data() + 3, length), 0);
}

TEST_P(backend_contract, an_empty_transfer_completes) {
  const auto tested = open(16);
  const auto queue = open_channel(*tested, 4);
  const slot_id slot = tested->allocate(1).value();
  EXPECT_EQ(transfer(*queue, operation::read, slot, 17, {}), 0);
}

TEST_P(backend_contract, a_slot_that_was_never_written_can_be_read) {
  const auto tested = open(16);
  const auto queue = open_channel(*tested, 4);
  const slot_id slot = tested->allocate(16).value();
  aligned_buffer in(16 * page_bytes);
  EXPECT_EQ(transfer(*queue, operation::read, slot, 0, in.span()), 0);
}

// A store computes the same from its pages as a program that has them.
TEST_P(backend_contract, questions_about_numbers_are_answered_where_they_are) {
  const auto tested = open(64);
  if (!tested->reduces()) GTEST_SKIP() << "this backend computes nothing";
  constexpr std::size_t count = 10;
  const slot_id first = tested->allocate(count).value();
  aligned_buffer pages(count * page_bytes);
  fill(pages.span(), 0, 1);
  const auto queue = open_channel(*tested, count);
  ASSERT_EQ(transfer(*queue, operation::write, first, 0, pages.span()), 0);
  const page_hasher hash(9);
  using detail::number_type;
  const std::array questions = {
      page_reduction{{number_type::int16, detail::bits_of<std::int16_t>(-9'000), 9'000}, &hash},
      page_reduction{{number_type::int8, 0, 100, reduction_kind::marks}, &hash},
      page_reduction{{number_type::uint64, 0, ~std::uint64_t{0} / 3, reduction_kind::counts, 60}, &hash},
      page_reduction{{number_type::int16, 5, 9'000, reduction_kind::values}, &hash},
      page_reduction{{number_type::uint8, 3, 100, reduction_kind::distinct}, &hash},
      page_reduction{{number_type::uint8, 3, 100, reduction_kind::matches, 1}, &hash}};
  // Several kinds, so that they do not all travel together; the last parts lie at the ends of their pages.
  std::array<std::array<std::byte, most_answer_bytes>, count> found{};
  std::vector<request> asked;
  for (std::size_t i = 0; i < count; ++i) {
    const auto offset = static_cast<std::uint32_t>(i * 8);
    asked.push_back({.op = operation::read,
                     .slot = first + i,
                     .offset_bytes = offset,
                     .length_bytes = i < 5 ? static_cast<std::uint32_t>(page_bytes) - offset : 8,
                     .buffer = found[i].data(),
                     .cookie = i,
                     .reduce = &questions[i % questions.size()]});
  }
  ASSERT_EQ(run(*queue, asked), 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* const page = pages.data() + i * page_bytes;
    std::array<std::byte, most_answer_bytes> expected{};
    answer(*asked[i].reduce, page, {page + asked[i].offset_bytes, asked[i].length_bytes}, expected.data());
    EXPECT_EQ(found[i], expected) << i;
  }
}

TEST_P(backend_contract, direct_addresses_show_what_was_written) {
  const auto tested = open(16);
  const auto queue = open_channel(*tested, 4);
  const slot_id first = tested->allocate(3).value();
  aligned_buffer out(3 * page_bytes);
  fill(out.span(), 0, 9);
  ASSERT_EQ(transfer(*queue, operation::write, first, 0, out.span()), 0);
  const std::byte* const address = tested->direct(first);
  if (address == nullptr) GTEST_SKIP() << "this backend has no direct addresses";
  EXPECT_EQ(tested->direct(first + 2), address + 2 * page_bytes);
  EXPECT_EQ(std::memcmp(address, out.data(), 3 * page_bytes), 0);
}

TEST_P(backend_contract, a_full_queue_takes_no_more_and_every_completion_comes_once) {
  constexpr std::size_t depth = 8;
  constexpr std::uint64_t requests = 100;
  const auto tested = open(requests);
  const auto queue = open_channel(*tested, depth);
  const slot_id first = tested->allocate(requests).value();
  aligned_buffer out(requests * page_bytes);
  std::vector<request> batch;
  for (std::uint64_t i = 0; i < requests; ++i) {
    batch.push_back({operation::write, first + i, 0, page_bytes, out.data() + i * page_bytes, i + 1000});
  }
  std::size_t submitted = 0;
  std::multiset<std::uint64_t> cookies;
  while (cookies.size() < requests) {
    submitted += queue->submit(std::span<const request>(batch).subspan(submitted));
    ASSERT_LE(queue->in_flight(), depth);
    ASSERT_EQ(queue->in_flight(), submitted - cookies.size());
    if (queue->in_flight() == depth) {
      EXPECT_EQ(queue->submit(std::span<const request>(batch).first(1)), 0u) << "the queue is full";
    }
    std::array<completion, 3> done;
    const std::size_t count = queue->poll(done);
    for (const completion& one : std::span(done).first(count)) {
      EXPECT_EQ(one.error_code, 0);
      cookies.insert(one.cookie);
    }
    if (count == 0) queue->wait(second_ns);
  }
  for (std::uint64_t i = 0; i < requests; ++i) EXPECT_EQ(cookies.count(i + 1000), 1u) << i;
  std::array<completion, 3> none;
  EXPECT_EQ(queue->poll(none), 0u);
  EXPECT_EQ(queue->in_flight(), 0u);
}

TEST_P(backend_contract, a_queue_without_room_for_a_request_is_refused) {
  EXPECT_FALSE(open(16)->open_channel(0).ok());
}

TEST_P(backend_contract, waiting_for_nothing_returns_at_once) {
  const auto tested = open(16);
  const auto queue = open_channel(*tested, 4);
  queue->wait(std::uint64_t{3600} * second_ns);
  const slot_id slot = tested->allocate(1).value();
  aligned_buffer out(page_bytes);
  ASSERT_EQ(transfer(*queue, operation::write, slot, 0, out.span()), 0);
  queue->wait(std::uint64_t{3600} * second_ns);
}

TEST_P(backend_contract, waiting_ends_at_its_deadline) {
  const auto tested = open(16);
  const auto queue = open_channel(*tested, 4);
  const slot_id slot = tested->allocate(1).value();
  aligned_buffer out(page_bytes);
  const request one{.op = operation::write, .slot = slot, .buffer = out.data()};
  while (queue->submit(std::span(&one, 1)) == 0) {
  }
  std::array<completion, 1> done;
  while (queue->poll(done) == 0) {
    queue->wait(0);
    queue->wait(1);
    queue->wait(10'000);
  }
  EXPECT_EQ(done[0].error_code, 0);
}

TEST_P(backend_contract, the_event_descriptor_tells_of_completions) {
  const auto tested = open(64);
  const auto queue = open_channel(*tested, 16);
  const int descriptor = queue->event_descriptor();
  if (descriptor < 0) GTEST_SKIP() << "this channel has no event descriptor";
  const slot_id first = tested->allocate(64).value();
  aligned_buffer out(64 * page_bytes);
  for (int round = 0; round < 20; ++round) {
    std::vector<request> batch;
    for (std::uint64_t i = 0; i < 16; ++i) {
      // Every third is unaligned, so that completions come in several steps.
      batch.push_back(
          {operation::write, first + i * 2, i % 3 == 0 ? 100u : 0u, page_bytes, out.data() + i * page_bytes, i});
    }
    ASSERT_EQ(queue->submit(batch), batch.size());
    while (queue->in_flight() > 0) {
      pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&watched, 1, 120'000), 1) << "no event although transfers are in flight";
      std::array<completion, 1> done;
      if (queue->poll(done) == 1) {
        EXPECT_EQ(done[0].error_code, 0);
      }
      queue->submit_left();
    }
    std::array<completion, 1> none;
    EXPECT_EQ(queue->poll(none), 0u);
    pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&watched, 1, 0), 0) << "nothing is in flight, but the descriptor is readable";
  }
}

TEST_P(backend_contract, the_event_descriptor_may_be_asked_for_late) {
  const auto tested = open(64);
  const auto queue = open_channel(*tested, 16);
  const slot_id slot = tested->allocate(1).value();
  aligned_buffer out(page_bytes);
  const request one{.op = operation::write, .slot = slot, .buffer = out.data()};
  while (queue->submit(std::span(&one, 1)) == 0) {
  }
  queue->wait(second_ns);
  const int descriptor = queue->event_descriptor();
  std::array<completion, 1> done;
  while (queue->in_flight() > 0) {
    pollfd watched{.fd = descriptor, .events = POLLIN, .revents = 0};
    if (descriptor >= 0) {
      ASSERT_EQ(::poll(&watched, 1, 120'000), 1);
    }
    static_cast<void>(queue->poll(done));
  }
}

TEST_P(backend_contract, a_channel_may_pass_from_a_thread_that_ends_to_another) {
  constexpr std::size_t count = 32;
  const auto tested = open(count * 3);
  const auto queue = open_channel(*tested, count);
  const slot_id first = tested->allocate(count * 2).value();
  aligned_buffer out(count * page_bytes);
  aligned_buffer in(count * page_bytes);
  fill(out.span(), 0, 4);
  for (const operation op : {operation::write, operation::read}) {
    std::thread([&] {
      std::vector<request> batch;
      for (std::size_t i = 0; i < count; ++i) {
        std::byte* const buffer = (op == operation::write ? out : in).data() + i * page_bytes;
        batch.push_back({op, first + i * 2, 0, page_bytes, buffer, i});
      }
      for (std::size_t taken = 0; taken < count;) {
        taken += queue->submit(std::span<const request>(batch).subspan(taken));
      }
    }).join();
    while (queue->in_flight() > 0) {
      std::array<completion, 8> done;
      const std::size_t polled = queue->poll(done);
      for (const completion& one : std::span(done).first(polled)) EXPECT_EQ(one.error_code, 0);
      if (polled == 0) queue->wait(second_ns);
    }
  }
  EXPECT_EQ(std::memcmp(in.data(), out.data(), count * page_bytes), 0);
}

// Random transfers of any byte range, many in flight at once, against a plain copy of the store. Transfers that overlap
// are never in flight together (unless both read), but they may well share a page.
class random_traffic {
 public:
  random_traffic(channel& queue, slot_id first, std::size_t slots, std::uint64_t seed)
      : queue_(queue), first_(first), random_(seed), model_(slots * page_bytes) {}

  // Only a test that failed leaves something in flight.
  ~random_traffic() {
    std::array<completion, 8> done;
    while (queue_.in_flight() > 0) {
      if (queue_.poll(done) == 0) queue_.wait(second_ns);
    }
  }

  void run(int transfers) {
    std::vector<std::byte> initial(model_.size());
    fill(initial, first_ * page_bytes, 0);
    ASSERT_EQ(transfer(queue_, operation::write, first_, 0, initial), 0);
    model_ = initial;
    for (int i = 0; i < transfers; ++i) {
      std::vector<request> batch;
      const std::size_t wanted = 1 + random_() % 12;
      while (batch.size() < wanted) batch.push_back(draw());
      submit(batch);
      if (testing::Test::HasFatalFailure()) return;
      i += static_cast<int>(batch.size());
    }
    while (queue_.in_flight() > 0) ASSERT_NO_FATAL_FAILURE(poll());
    std::vector<std::byte> last(model_.size());
    ASSERT_EQ(transfer(queue_, operation::read, first_, 0, last), 0);
    EXPECT_TRUE(last == model_);
  }

 private:
  struct running {
    operation op;
    std::uint64_t begin;
    std::uint64_t end;
    std::vector<std::byte> storage;
    std::byte* buffer;
    bool may_be_lent = false;
  };

  request draw() {
    while (true) {
      const bool whole_pages = random_() % 3 == 0;
      std::uint64_t begin = random_() % model_.size();
      std::uint64_t length = random_() % 8 == 0 ? random_() % 40'000 : 1 + random_() % 6000;
      if (whole_pages) {
        begin = round_down(begin, page_bytes);
        length = round_up(length, page_bytes);
      }
      if (begin + length > model_.size()) continue;
      const operation op = random_() % 2 == 0 ? operation::read : operation::write;
      const bool clashes = std::any_of(running_.begin(), running_.end(), [&](const auto& item) {
        const running& other = item.second;
        return begin < other.end && other.begin < begin + length &&
               (op == operation::write || other.op == operation::write);
      });
      // When nothing fits beside what is in flight, let some of it finish.
      if (clashes) {
        if (queue_.in_flight() > 0 && random_() % 4 == 0) poll();
        continue;
      }
      return start(op, begin, length, whole_pages);
    }
  }

  request start(operation op, std::uint64_t begin, std::uint64_t length, bool whole_pages) {
    running added{op, begin, begin + length, std::vector<std::byte>(length + 2 * page_bytes), nullptr, false};
    const std::uintptr_t address = round_up(reinterpret_cast<std::uintptr_t>(added.storage.data()), page_bytes);
    added.buffer = reinterpret_cast<std::byte*>(address) + (whole_pages ? 0 : random_() % 600);
    if (op == operation::write) fill({added.buffer, length}, first_ * page_bytes + begin, ++generation_);
    // The first slot may be any one that the range reaches from.
    const std::uint64_t slot_back = std::min<std::uint64_t>(begin / page_bytes, random_() % 3);
    const std::uint64_t slot = begin / page_bytes - slot_back;
    const std::uint64_t cookie = next_cookie_++;
    const request io{op,
                     first_ + slot,
                     static_cast<std::uint32_t>(begin - slot * page_bytes),
                     static_cast<std::uint32_t>(length),
                     added.buffer,
                     cookie,
                     op == operation::read && random_() % 2 == 0};
    added.may_be_lent = io.may_lend;
    running_.emplace(cookie, std::move(added));
    return io;
  }

  void submit(const std::vector<request>& batch) {
    for (std::size_t taken = 0; taken < batch.size();) {
      taken += queue_.submit(std::span<const request>(batch).subspan(taken));
      if (taken < batch.size() || random_() % 2 == 0) {
        ASSERT_NO_FATAL_FAILURE(poll());
      }
    }
  }

  void poll() {
    std::array<completion, 5> done;
    const std::size_t count = queue_.poll(std::span(done).first(1 + random_() % done.size()));
    if (count == 0) queue_.wait(random_() % 2 == 0 ? 1000 : second_ns);
    for (const completion& one : std::span(done).first(count)) {
      const auto found = running_.find(one.cookie);
      ASSERT_TRUE(found != running_.end()) << "a completion of nothing that is in flight";
      const running& ended = found->second;
      const std::uint64_t length = ended.end - ended.begin;
      ASSERT_EQ(one.error_code, 0);
      if (ended.op == operation::write) {
        std::memcpy(model_.data() + ended.begin, ended.buffer, length);
      } else {
        ASSERT_TRUE(one.lent == nullptr || ended.may_be_lent) << "lent to who did not ask for it";
        ASSERT_EQ(std::memcmp(model_.data() + ended.begin, one.lent != nullptr ? one.lent : ended.buffer, length), 0)
            << "bytes " << ended.begin << " to " << ended.end;
      }
      running_.erase(found);
    }
  }

  channel& queue_;
  slot_id first_;
  std::mt19937_64 random_;
  std::vector<std::byte> model_;
  std::map<std::uint64_t, running> running_;
  std::uint64_t next_cookie_ = 1;
  std::uint64_t generation_ = 0;
};

TEST_P(backend_contract, random_transfers_of_any_byte_range_agree_with_a_model) {
  constexpr std::uint64_t seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const auto tested = open(200);
  const auto queue = open_channel(*tested, 24);
  static_cast<void>(tested->allocate(3));
  const slot_id first = tested->allocate(150).value();
  random_traffic(*queue, first, 150, seed).run(has_address_sanitizer ? 2000 : 4000);
}

TEST_P(backend_contract, channels_of_several_threads_do_not_disturb_each_other) {
  constexpr std::size_t threads = 4;
  // However the runs of the others lie, there is a gap for the longest: 20 + 35 + 50 slots leave four at most.
  const auto tested = open(threads * 100);
  std::vector<std::thread> running;
  std::atomic<int> broken{0};
  for (std::size_t id = 0; id < threads; ++id) {
    running.emplace_back([&, id] {
      for (std::size_t round = 0; round < (has_address_sanitizer ? 3 : 5); ++round) {
        const auto queue = open_channel(*tested, 8 + id * 4);
        const std::size_t count = 20 + 15 * id;
        const result<slot_id> first = tested->allocate(count);
        broken += !first.ok();
        if (!first.ok()) return;
        random_traffic(*queue, first.value(), count, 100 * id + round).run(300);
        tested->free(first.value(), count);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(broken, 0);
  EXPECT_EQ(tested->report().used_slots, 0u);
}

// Each thread owns every fourth stretch of 100 bytes of the same few pages and writes it over and over.
TEST_P(backend_contract, threads_may_write_different_bytes_of_one_page) {
  constexpr std::size_t threads = 4;
  constexpr std::size_t stretch_bytes = 100;
  constexpr std::size_t pages = 3;
  const auto tested = open(16);
  const slot_id first = tested->allocate(pages).value();
  std::vector<std::thread> running;
  std::atomic<int> failed{0};
  for (std::size_t id = 0; id < threads; ++id) {
    running.emplace_back([&, id] {
      const auto queue = open_channel(*tested, 16);
      std::vector<std::byte> bytes(pages * page_bytes);
      for (std::uint64_t generation = 1; generation <= 5; ++generation) {
        std::vector<request> batch;
        for (std::size_t begin = id * stretch_bytes; begin + stretch_bytes <= bytes.size();
             begin += threads * stretch_bytes) {
          fill(std::span(bytes).subspan(begin, stretch_bytes), begin, generation * 10 + id);
          batch.push_back(
              {operation::write, first, static_cast<std::uint32_t>(begin), stretch_bytes, bytes.data() + begin, begin});
        }
        failed += run(*queue, batch);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(failed, 0);
  const auto queue = open_channel(*tested, 16);
  std::vector<std::byte> last(pages * page_bytes);
  ASSERT_EQ(transfer(*queue, operation::read, first, 0, last), 0);
  for (std::size_t begin = 0; begin + stretch_bytes <= last.size(); begin += stretch_bytes) {
    const std::size_t id = begin / stretch_bytes % threads;
    std::array<std::byte, stretch_bytes> expected;
    fill(expected, begin, 50 + id);
    ASSERT_TRUE(std::ranges::equal(std::span(last).subspan(begin, stretch_bytes), expected)) << "from byte " << begin;
  }
}

INSTANTIATE_TEST_SUITE_P(all, backend_contract, testing::ValuesIn(backends_under_test()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace far::backend
