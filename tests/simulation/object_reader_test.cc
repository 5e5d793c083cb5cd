// Reads of objects out of remote pages, one situation at a time, on the simulated kernel and far tier: the fate of a
// read, and of its slot, when the page comes in or goes meanwhile. The far tier checks that no slot is freed under a
// transfer.
#include "engine/object_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/page_hash.h"
#include "engine/engine.h"
#include "model.h"
#include "object_reads.h"
#include "simulated_backend.h"
#include "stepped_engine.h"

namespace far::simulation {
namespace {

using engine::object_read;
using engine::read_outcome;
using engine::state;

constexpr page_range pages{0, 64};
constexpr std::uint64_t hash_seed = 5;

// Two numbers with which a piece of a page, otherwise zeros, has the same hash of 32 bits.
std::pair<std::uint64_t, std::uint64_t> numbers_with_equal_hashes() {
  const page_hasher hash(hash_seed);
  std::array<std::uint64_t, hashed_piece_bytes / sizeof(std::uint64_t)> piece{};
  std::unordered_map<std::uint32_t, std::uint64_t> seen;
  for (std::uint64_t number = 1;; ++number) {
    piece[0] = number;
    const auto of_piece =
        static_cast<std::uint32_t>(hash(reinterpret_cast<const std::byte*>(piece.data()), sizeof piece));
    const auto [before, is_new] = seen.emplace(of_piece, number);
    if (!is_new) return {before->second, number};
  }
}

// With a far tier that takes its time, and with one whose bytes are a memory access away, where reads end at once.
class object_reader_test : public stepped_engine, public testing::TestWithParam<bool> {
 protected:
  object_reader_test()
      : stepped_engine(1024),
        far_(keep(std::make_unique<simulated_backend>(threads_, random_, clock_, tier(GetParam())))) {
    start({.budget_pages = 600, .reads_parts = true, .hash_seed = hash_seed});
    reader_ = engine_->transfers().add_object_reader().value();
    EXPECT_TRUE(engine_->ranges().allocate_guarded(pages).ok());
    write(pages);
    make_remote();
  }
  // When everything is freed, nothing may be left.
  ~object_reader_test() override {
    settle();
    engine_->ranges().release(pages);
    settle();
    EXPECT_EQ(far_.report().used_slots, 0u);
  }

  static far_tier tier(bool is_direct) {
    far_tier chosen;
    chosen.slots = 4096;
    chosen.maximum_delay_ns = 1'000'000;
    chosen.is_direct = is_direct;
    return chosen;
  }

  void make_remote() {
    engine_->eviction().evict(pages);
    settle();
    ASSERT_EQ(state_of(3), state::remote);
  }

  // A part of a page, read to where it belongs in a copy of the page.
  struct one_part : object_read {
    std::array<std::byte, page_bytes> copy{};
    explicit one_part(page_id wanted_page, std::size_t part = 1) {
      page = wanted_page;
      offset_bytes = static_cast<std::uint32_t>(part * model::part_bytes);
      length_bytes = model::part_bytes;
      buffer = copy.data() + offset_bytes;
    }
  };

  // Of some of a page's numbers.
  struct one_reduction : object_read {
    reduction how{detail::number_type::uint32, 0, ~std::uint32_t{0} / 2};
    reduced_page found;
    explicit one_reduction(page_id wanted_page) {
      page = wanted_page;
      offset_bytes = 1024;
      length_bytes = 2048;
      buffer = reinterpret_cast<std::byte*>(&found);
      reduce = &how;
    }
  };

  struct one_question_about_rows;

  // Page 5 is claimed for a write, and then the read ends.
  void claim_before_the_end_of(object_read& read) {
    {
      const far::lock_guard guard(fetcher_->lock);
      ASSERT_EQ(engine_->misses().handle(*fetcher_, streams_, 5, true), engine::outcome::in_flight);
    }
    const far::lock_guard guard(reader_->lock);
    while (read.outcome.load() == read_outcome::in_flight) {
      clock_.advance_to(clock_.now_ns() + 10'000);
      static_cast<void>(reader_->poll(engine::caller::of_program));
    }
  }

  using stepped_engine::start;
  [[nodiscard]] read_outcome start(object_read& one) {
    const far::lock_guard guard(reader_->lock);
    return reader_->start(one);
  }
  [[nodiscard]] read_outcome end(object_read& one, read_outcome started) {
    if (started != read_outcome::in_flight) return started;
    settle();
    return one.outcome.load();
  }

  simulated_backend& far_;
  engine::object_reader* reader_ = nullptr;
};

TEST_P(object_reader_test, any_part_of_a_remote_page_is_read_and_the_page_stays_remote) {
  for (std::size_t part = 0; part < model::parts_a_page; ++part) {
    one_part read(5, part);
    ASSERT_EQ(end(read, start(read)), read_outcome::done);
    expected_.check(5, part, read.copy.data());
  }
  std::array<std::byte, 7> few{};
  object_read odd;
  odd.page = 5;
  odd.offset_bytes = 1021;
  odd.length_bytes = few.size();
  odd.buffer = few.data();
  ASSERT_EQ(end(odd, start(odd)), read_outcome::done);
  EXPECT_EQ(state_of(5), state::remote);
  resolve(5, false);
  EXPECT_EQ(std::memcmp(few.data(), kernel_.bytes(5) + 1021, few.size()), 0);
}

// A copy of a part is found by the version, so it must be that of the bytes that were read, and not one that the page
// had before, or has had again since.
TEST_P(object_reader_test, a_part_comes_with_the_version_that_the_page_had_with_it) {
  const auto version = [this] { return engine_->view().version(5).value(); };
  const std::uint64_t first = version();
  resolve(5, false);
  std::array<std::byte, page_bytes> first_bytes;
  std::memcpy(first_bytes.data(), kernel_.bytes(5), page_bytes);
  make_remote();
  EXPECT_EQ(version(), first) << "it was only read";
  write({5, 1});
  make_remote();
  const std::uint64_t second = version();
  EXPECT_NE(second, first);
  one_part read(5);
  ASSERT_EQ(end(read, start(read)), read_outcome::done);
  resolve(5, true);
  std::memcpy(kernel_.bytes(5), first_bytes.data(), page_bytes);
  make_remote();
  EXPECT_EQ(version(), first) << "it has the same bytes again";
  EXPECT_EQ(read.version, second);
}

TEST_P(object_reader_test, pages_have_other_versions_where_hashes_of_their_pieces_collide) {
  const auto [one_number, other_number] = numbers_with_equal_hashes();
  const auto version_with = [this](std::uint64_t number) {
    resolve(5, true);
    std::memset(kernel_.bytes(5), 0, page_bytes);
    std::memcpy(kernel_.bytes(5), &number, sizeof number);
    make_remote();
    return engine_->view().version(5).value();
  };
  EXPECT_NE(version_with(one_number), version_with(other_number));
}

TEST_P(object_reader_test, a_page_that_is_not_remote_is_not_read) {
  resolve(5, false);
  one_part read(5);
  EXPECT_EQ(start(read), read_outcome::not_remote);
  one_part untouched(900);
  EXPECT_EQ(start(untouched), read_outcome::not_remote);
}

TEST_P(object_reader_test, a_page_that_is_discarded_meanwhile_leaves_its_slot_to_the_read) {
  one_part read(5);
  one_part other(5, 2);
  const read_outcome started = start(read);
  const read_outcome also_started = start(other);
  const std::uint64_t used = far_.report().used_slots;
  engine_->ranges().discard({5, 1});
  engine_->validate();
  if (started == read_outcome::in_flight) {
    EXPECT_EQ(far_.report().used_slots, used) << "the slot is still being read";
    EXPECT_EQ(end(read, started), read_outcome::not_remote);
    EXPECT_EQ(end(other, also_started), read_outcome::not_remote);
  }
  EXPECT_EQ(far_.report().used_slots, used - 1) << "the last read frees it";
}

TEST_P(object_reader_test, a_page_that_is_fetched_and_written_meanwhile_makes_the_read_worthless) {
  one_part read(5);
  const read_outcome started = start(read);
  write({5, 1});
  engine_->validate();
  if (started == read_outcome::in_flight) {
    // Fetching it has taken its time; the read may have ended before the page came.
    const read_outcome reached = end(read, started);
    EXPECT_TRUE(reached == read_outcome::not_remote || reached == read_outcome::done);
  }
  make_remote();
  one_part again(5);
  ASSERT_EQ(end(again, start(again)), read_outcome::done);
  expected_.check(5, 1, again.copy.data());
}

// The slot that a page leaves may be the next that it gets: where a page is does not tell what it held when a read of
// it ended.
TEST_P(object_reader_test, a_read_is_judged_by_what_the_page_held_meanwhile) {
  watched_read read(expected_, 5, 1);
  const std::uint64_t slot = engine_->view().words().load(5).place();
  read.begin();
  const read_outcome started = start(read);
  if (started != read_outcome::in_flight) read.end();
  ASSERT_EQ(end(read, started), read_outcome::done);
  EXPECT_FALSE(read.is_watched);
  for (int evictions = 0; evictions == 0 || engine_->view().words().load(5).place() != slot; ++evictions) {
    ASSERT_LT(evictions, 10'000);
    write({5, 1});
    make_remote();
  }
  read.check();
  EXPECT_DEATH(expected_.check(5, 1, read.bytes.data()), "other bytes of the program");
}

TEST_P(object_reader_test, what_a_page_held_before_a_read_was_seen_under_way_is_none_of_its_bytes) {
  resolve(5, true);
  watched_read read(expected_, 5, 1);
  std::memcpy(read.bytes.data(), kernel_.bytes(5), page_bytes);
  read.begin();
  write({5, 1});
  read.check();
  read.goes_on();
  EXPECT_DEATH(read.check(), "other bytes of the program");
  std::memcpy(read.bytes.data(), kernel_.bytes(5), page_bytes);
  read.check();
  read.end();
  write({5, 1});
  read.check();
  std::memcpy(read.bytes.data(), kernel_.bytes(5), page_bytes);
  EXPECT_DEATH(read.check(), "other bytes of the program");
}

// By hand: between start() and the completion the page is taken in and written, without any time passing.
TEST_P(object_reader_test, a_read_that_ends_after_the_page_was_claimed_says_so) {
  one_part read(5);
  const read_outcome started = start(read);
  if (started != read_outcome::in_flight) GTEST_SKIP() << "reads end at once here";
  claim_before_the_end_of(read);
  EXPECT_EQ(read.outcome.load(), read_outcome::not_remote);
}

TEST_P(object_reader_test, a_far_tier_that_keeps_failing_is_reported_and_the_page_stays_remote) {
  far_.faults().set_failing_reads_per_million(1'000'000);
  one_part read(5);
  const read_outcome started = start(read);
  if (started != read_outcome::in_flight) GTEST_SKIP() << "reads end at once here";
  EXPECT_EQ(end(read, started), read_outcome::failed);
  EXPECT_EQ(engine_->snapshot().backend_errors, 3u);
  EXPECT_EQ(state_of(5), state::remote);
  far_.faults().set_failing_reads_per_million(0);
  one_part again(5);
  EXPECT_EQ(end(again, start(again)), read_outcome::done);
}

TEST_P(object_reader_test, wrong_bytes_are_never_handed_out) {
  far_.faults().set_lying_reads_per_million(1'000'000);
  one_part read(5);
  const read_outcome started = start(read);
  if (started == read_outcome::in_flight) {
    EXPECT_EQ(end(read, started), read_outcome::failed);
    EXPECT_EQ(far_.lies(), 3u);
  } else {
    auto* const bytes = const_cast<std::byte*>(far_.direct(engine_->state_for_tests().pages.load(6).place()));
    bytes[model::part_bytes + 3] ^= std::byte{16};
    one_part wrong(6);
    EXPECT_EQ(start(wrong), read_outcome::failed);
    bytes[model::part_bytes + 3] ^= std::byte{16};
  }
  EXPECT_EQ(state_of(5), state::remote);
  far_.faults().set_lying_reads_per_million(0);
  one_part again(5);
  EXPECT_EQ(end(again, start(again)), read_outcome::done);
  expected_.check(5, 1, again.copy.data());
}

TEST_P(object_reader_test, numbers_are_reduced_where_they_are_and_the_page_stays_remote) {
  one_reduction asked(5);
  ASSERT_EQ(end(asked, start(asked)), read_outcome::done);
  EXPECT_EQ(state_of(5), state::remote);
  resolve(5, false);
  EXPECT_EQ(asked.found.numbers, reduce(asked.how, {kernel_.bytes(5) + 1024, 2048}));
  one_reduction late(5);
  EXPECT_EQ(start(late), read_outcome::not_remote);
}

TEST_P(object_reader_test, questions_of_all_kinds_are_answered_where_the_numbers_are) {
  constexpr std::array kinds = {reduction_kind::marks,       reduction_kind::counts,  reduction_kind::values,
                                reduction_kind::distinct,    reduction_kind::matches, reduction_kind::group_sums,
                                reduction_kind::group_bounds};
  using room = std::array<std::uint64_t, most_answer_bytes / sizeof(std::uint64_t)>;
  std::array<room, kinds.size()> found{};
  const auto how_of = [](reduction_kind kind) {
    const unsigned shift = kind == reduction_kind::counts ? 24 : 0;
    if (kind == reduction_kind::matches) return reduction{detail::number_type::uint8, 0, 0, kind, 2};
    if (detail::has_groups(kind)) return reduction{detail::number_type::uint16, 0, 0xffff, kind, 0, 30};
    return reduction{detail::number_type::uint32, 0, ~std::uint32_t{0} / 2, kind, static_cast<std::uint8_t>(shift)};
  };
  std::array<std::uint8_t, 1024> groups{};
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<std::uint8_t>(i * 7 % 33);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    one_reduction asked(5);
    asked.how = how_of(kinds[i]);
    asked.buffer = reinterpret_cast<std::byte*>(found[i].data());
    asked.groups = groups.data();
    ASSERT_EQ(end(asked, start(asked)), read_outcome::done);
    EXPECT_EQ(state_of(5), state::remote);
  }
  resolve(5, false);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    room expected{};
    answer(how_of(kinds[i]), engine_->state_for_tests().checks.hasher(), groups.data(), kernel_.bytes(5),
           {kernel_.bytes(5) + 1024, 2048}, reinterpret_cast<std::byte*>(expected.data()));
    EXPECT_EQ(found[i], expected) << i;
  }
}

// Keys of 2 bytes, and numbers of 4.
struct object_reader_test::one_question_about_rows : object_read {
  detail::keyed_rows rows{.rows = 2048, .keys = 1, .wants_sums = true};
  reduction how{.type = detail::number_type::uint32,
                .highest = ~std::uint32_t{0},
                .kind = reduction_kind::of_rows,
                .groups = 40,
                .rows = &rows};
  std::array<page_id, 3> all{6, 3, 5};
  std::array<std::uint64_t, most_answer_bytes / sizeof(std::uint64_t)> found{};
  one_question_about_rows() {
    rows.key[0] = {0, 40, detail::number_type::uint16};
    page = all[0];
    pages = all;
    length_bytes = page_bytes;
    buffer = reinterpret_cast<std::byte*>(found.data());
    reduce = &how;
  }
};

TEST_P(object_reader_test, questions_about_rows_are_answered_from_several_pages) {
  one_question_about_rows asked;
  ASSERT_TRUE(is_valid(asked.how));
  ASSERT_EQ(end(asked, start(asked)), read_outcome::done);
  std::vector<const std::byte*> bytes;
  for (const page_id page : asked.all) {
    EXPECT_EQ(state_of(page), state::remote);
    resolve(page, false);
    bytes.push_back(kernel_.bytes(page));
  }
  one_question_about_rows expected;
  answer_about_rows({.how = expected.how, .hash = &engine_->state_for_tests().checks.hasher()}, bytes, expected.buffer);
  EXPECT_EQ(asked.found, expected.found);
}

TEST_P(object_reader_test, questions_about_rows_need_all_pages_in_the_far_tier) {
  resolve(5, false);
  one_question_about_rows asked;
  EXPECT_EQ(start(asked), read_outcome::not_remote);
}

TEST_P(object_reader_test, what_was_found_of_rows_while_one_of_their_pages_was_written_is_worthless) {
  one_question_about_rows asked;
  const read_outcome started = start(asked);
  if (started != read_outcome::in_flight) GTEST_SKIP() << "reads end at once here";
  claim_before_the_end_of(asked);
  EXPECT_EQ(asked.outcome.load(), read_outcome::not_remote);
}

TEST_P(object_reader_test, what_was_found_of_rows_with_wrong_bytes_is_never_handed_out) {
  far_.faults().set_lying_reads_per_million(1'000'000);
  one_question_about_rows asked;
  const read_outcome started = start(asked);
  if (started == read_outcome::in_flight) {
    EXPECT_EQ(end(asked, started), read_outcome::failed);
    // In several ways.
    for (int i = 0; i < 20; ++i) {
      one_question_about_rows more;
      EXPECT_EQ(end(more, start(more)), read_outcome::failed);
    }
  } else {
    for (const page_id page : asked.all) {
      auto* const bytes = const_cast<std::byte*>(far_.direct(engine_->state_for_tests().pages.load(page).place()));
      bytes[4'000] ^= std::byte{16};
      one_question_about_rows wrong;
      EXPECT_EQ(start(wrong), read_outcome::failed) << page;
      bytes[4'000] ^= std::byte{16};
    }
  }
  far_.faults().set_lying_reads_per_million(0);
  one_question_about_rows again;
  EXPECT_EQ(end(again, start(again)), read_outcome::done);
}

TEST_P(object_reader_test, what_was_reduced_while_the_page_was_written_is_worthless) {
  one_reduction asked(5);
  const read_outcome started = start(asked);
  if (started != read_outcome::in_flight) GTEST_SKIP() << "reads end at once here";
  claim_before_the_end_of(asked);
  EXPECT_EQ(asked.outcome.load(), read_outcome::not_remote);
}

// It is asked once, and no error is counted: the page can be fetched.
TEST_P(object_reader_test, what_was_computed_of_wrong_bytes_is_never_handed_out) {
  far_.faults().set_lying_reads_per_million(1'000'000);
  one_reduction asked(5);
  const read_outcome started = start(asked);
  if (started == read_outcome::in_flight) {
    EXPECT_EQ(end(asked, started), read_outcome::failed);
    EXPECT_EQ(far_.lies(), 1u);
    EXPECT_EQ(engine_->snapshot().backend_errors, 0u);
  } else {
    auto* const bytes = const_cast<std::byte*>(far_.direct(engine_->state_for_tests().pages.load(6).place()));
    bytes[4'000] ^= std::byte{16};
    one_reduction wrong(6);
    EXPECT_EQ(start(wrong), read_outcome::failed) << "also where other numbers of the page are wrong";
    bytes[4'000] ^= std::byte{16};
  }
  far_.faults().set_lying_reads_per_million(0);
  one_reduction again(5);
  EXPECT_EQ(end(again, start(again)), read_outcome::done);
}

TEST_P(object_reader_test, whoever_waits_is_told_once_the_outcome_is_known) {
  struct notified_part : one_part {
    using one_part::one_part;
    unsigned count = 0;
    static void tell(object_read& one) noexcept {
      EXPECT_NE(one.outcome.load(), read_outcome::in_flight);
      ++static_cast<notified_part&>(one).count;
    }
  } read(5);
  read.finished = &notified_part::tell;
  const read_outcome started = start(read);
  EXPECT_EQ(end(read, started), read_outcome::done);
  EXPECT_EQ(read.count, started == read_outcome::in_flight ? 1u : 0u);
}

TEST_P(object_reader_test, a_full_reader_says_so_and_goes_on_later) {
  std::vector<std::unique_ptr<one_part>> all;
  read_outcome reached = read_outcome::done;
  while (all.size() < 1000) {
    all.push_back(std::make_unique<one_part>(all.size() % pages.count));
    reached = start(*all.back());
    if (reached != read_outcome::in_flight) break;
  }
  if (reached == read_outcome::done) GTEST_SKIP() << "reads end at once here";
  ASSERT_EQ(reached, read_outcome::busy);
  EXPECT_EQ(all.size(), 257u);
  settle();
  EXPECT_EQ(end(*all.back(), start(*all.back())), read_outcome::done);
  for (const auto& part : all) {
    EXPECT_EQ(part->outcome.load(), read_outcome::done);
    expected_.check(part->page, 1, part->copy.data());
  }
}

// It came back writable, because it was written to the last time, so only its hash says whether it was written to
// again.
TEST_P(object_reader_test, a_write_to_a_page_that_came_back_writable_is_kept_whatever_the_hash_of_its_piece) {
  const auto [before, after] = numbers_with_equal_hashes();
  const auto write_number = [&](std::uint64_t number) { std::memcpy(kernel_.bytes(5), &number, sizeof number); };
  ASSERT_EQ(resolve(5, true), engine::outcome::resolved);
  std::memset(kernel_.bytes(5), 0, page_bytes);
  write_number(before);
  make_remote();
  ASSERT_EQ(resolve(5, false), engine::outcome::resolved);
  ASSERT_TRUE(word_of(5).dirty() && word_of(5).has_place());
  write_number(after);
  make_remote();
  ASSERT_EQ(resolve(5, false), engine::outcome::resolved);
  std::uint64_t found = 0;
  std::memcpy(&found, kernel_.bytes(5), sizeof found);
  EXPECT_EQ(found, after);

  make_remote();  // as it came: its parts can be read all the same
  one_part read(5, 0);
  ASSERT_EQ(end(read, start(read)), read_outcome::done);
  std::memcpy(&found, read.copy.data(), sizeof found);
  EXPECT_EQ(found, after);
}

INSTANTIATE_TEST_SUITE_P(far_tiers, object_reader_test, testing::Bool(),
                         [](const auto& chosen) { return std::string(chosen.param ? "direct" : "slow"); });

}  // namespace
}  // namespace far::simulation
