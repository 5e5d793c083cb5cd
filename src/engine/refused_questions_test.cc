#include "engine/refused_questions.h"

#include <gtest/gtest.h>

namespace far::engine {
namespace {

class set_clock final : public platform::clock {
 public:
  [[nodiscard]] std::uint64_t now_ns() const override { return now; }
  std::uint64_t now = 1'000;
};

const reduction summaries{.kind = reduction_kind::summary};
const reduction marks{.kind = reduction_kind::marks};

TEST(refused_questions, are_asked_again_after_a_pause_one_at_a_time) {
  set_clock time;
  refused_questions refused(time);
  EXPECT_TRUE(refused.may_ask(summaries));
  EXPECT_TRUE(refused.note_refused(summaries)) << "the first time the user is told";
  EXPECT_FALSE(refused.may_ask(summaries));
  EXPECT_TRUE(refused.may_ask(marks)) << "others are asked all the time";
  time.now += refused_questions::pause_ns - 1;
  EXPECT_FALSE(refused.may_ask(summaries));
  time.now += 1;
  EXPECT_TRUE(refused.may_ask(summaries));
  refused.note_asked(summaries);
  EXPECT_FALSE(refused.may_ask(summaries)) << "one asks for all";
  EXPECT_FALSE(refused.note_refused(summaries)) << "the user has been told";
  time.now += refused_questions::pause_ns;
  EXPECT_TRUE(refused.may_ask(summaries));
  refused.note_asked(summaries);
  refused.note_answered(summaries);
  EXPECT_TRUE(refused.may_ask(summaries));
}

// What came in later releases is refused apart.
TEST(refused_questions, are_of_the_kinds_that_releases_brought) {
  set_clock time;
  refused_questions refused(time);
  detail::keyed_rows plain;
  detail::keyed_rows in_buckets{.buckets = 8};
  detail::keyed_rows listed{.buckets = 1, .listed = 8};
  const auto of_rows = [](const detail::keyed_rows& rows) {
    return reduction{.kind = reduction_kind::of_rows, .rows = &rows};
  };
  EXPECT_TRUE(refused.note_refused(of_rows(listed)));
  EXPECT_TRUE(refused.may_ask(of_rows(in_buckets)));
  EXPECT_TRUE(refused.note_refused(of_rows(in_buckets)));
  EXPECT_TRUE(refused.may_ask(of_rows(plain)));
  EXPECT_TRUE(refused.note_refused({.kind = reduction_kind::matches, .groups = 4}));
  EXPECT_TRUE(refused.may_ask({.kind = reduction_kind::matches}));
  EXPECT_STREQ(refused_questions::name_of(of_rows(listed)), "lists of rows");
}

}  // namespace
}  // namespace far::engine
