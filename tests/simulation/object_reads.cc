#include "object_reads.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "base/page_reduction.h"
#include "base/units.h"
#include "far/compute.h"
#include "ledger.h"
#include "part_digest.h"
#include "simulated_pager.h"
#include "trace.h"

namespace far::simulation {

using engine::read_outcome;

namespace {

// One of any kind, or a call of a function, which fails at times.
struct question {
  explicit question(random_source& random);
  // As the program itself would answer it.
  [[nodiscard]] std::vector<std::byte> answer_about(std::span<const std::byte> part) const;

  reduction how;
  detail::page_function function;
  std::atomic<bool> is_refused{false};
  bool must_fail = false;
  std::array<std::uint8_t, model::part_bytes> groups{};
};

question::question(random_source& random) {
  how.type = detail::number_type::uint16;
  how.highest = 0xffff;
  how.kind = static_cast<reduction_kind>(random.below(static_cast<std::uint64_t>(detail::last_kind_of_page) + 1));
  if (random.chance(300)) how.kind = reduction_kind::computed;
  if (how.kind == reduction_kind::counts) how.shift = 8;
  if (how.kind == reduction_kind::matches) how = {detail::number_type::uint8, random.below(256), 0, how.kind, 1};
  if (detail::has_groups(how.kind)) {
    how.groups = static_cast<std::uint8_t>(random.between(1, 63));
    for (std::uint8_t& one : groups) one = static_cast<std::uint8_t>(random.below(how.groups + 1u));
  }
  if (how.kind != reduction_kind::computed) return;
  const part_digest::arguments with{random.next()};
  function = {.plugin = detail::name_field(part_digest::plugin),
              .version = detail::name_field(part_digest::version),
              .number = part_digest::number,
              .element_bytes = sizeof(part_digest::element),
              .result_bytes = plugin::detail::result_bytes_of<part_digest>,
              .argument_bytes = sizeof with,
              .arguments = {},
              .call_here = nullptr,
              .refused = &is_refused};
  std::memcpy(function.arguments.data(), &with, sizeof with);
  how.function = &function;
  must_fail = random.chance(15);
  if (!must_fail) return;
  function.number = random.one_of<std::uint32_t>({part_digest::number, ledger_refuse, ledger_crash, ledger_hang});
  if (function.number == part_digest::number) function.version = detail::name_field("another one");
}

std::vector<std::byte> question::answer_about(std::span<const std::byte> part) const {
  std::vector<std::byte> found(found_bytes(how));
  if (how.kind == reduction_kind::computed) {
    part_digest::arguments with;
    std::memcpy(&with, function.arguments.data(), sizeof with);
    plugin::detail::map_part<part_digest>(part.data(), part.size(), with, found.data());
  } else {
    find(how, part, found.data(), groups.data());
  }
  return found;
}

}  // namespace

watched_read::watched_read(model& with, page_id from, std::size_t part) : expected(with), bytes(page_bytes) {
  page = from;
  offset_bytes = static_cast<std::uint32_t>(part * model::part_bytes);
  length_bytes = static_cast<std::uint32_t>(model::part_bytes);
  buffer = bytes.data() + offset_bytes;
  seen.page = from;
  seen.part = part;
  finished = [](engine::object_read& one) noexcept { static_cast<watched_read&>(one).end(); };
}

void watched_read::begin() {
  const scheduler::uninterrupted body;
  is_watched = true;
  expected.begin_watch(seen);
  for (model::watch& one : also_seen) expected.begin_watch(one);
}

void watched_read::goes_on() {
  expected.renew_watch(seen);
  for (model::watch& one : also_seen) expected.renew_watch(one);
}

void watched_read::end() {
  const scheduler::uninterrupted body;
  if (!is_watched) return;
  expected.end_watch(seen);
  for (model::watch& one : also_seen) expected.end_watch(one);
  is_watched = false;
}

namespace {

constexpr std::size_t line_bytes = engine::line_cache::most_line_bytes;
constexpr std::size_t lines_a_part = model::part_bytes / line_bytes;
constexpr std::size_t most_copied_bytes = 16 * kib;

// Of the first line of a part.
std::uint64_t line_number(page_id page, std::size_t part) {
  return (page * model::parts_a_page + part) * lines_a_part + 1;
}

}  // namespace

object_reads::object_reads(scheduler& threads, random_source& random, model& expected, engine::engine& engine)
    : threads_(threads), random_(random), expected_(expected), engine_(engine), copies_(line_bytes, most_copied_bytes) {
  static_cast<void>(copies_.fit(most_copied_bytes));
  for (std::size_t i = 0; i < 2; ++i) readers_.push_back(engine_.transfers().add_object_reader().value());
}

void object_reads::wait_for(engine::object_reader& reader, watched_read& one) {
  const std::uint64_t since = threads_.slices();
  while (one.is_watched) {
    if (threads_.is_stuck_since(since)) {
      fail("a read of page %llu never ends", static_cast<unsigned long long>(one.page));
    }
    {
      const scheduler::engine_call call(threads_);
      static_cast<void>(engine_.transfers().help());
    }
    // A read ends under the reader's lock: one that is seen to be under way with it has not ended yet.
    if (reader.lock.try_lock()) {
      const std::lock_guard guard(reader.lock, std::adopt_lock);
      if (one.is_watched) one.goes_on();
    }
    threads_.sleep(random_.between(1, 2000));
  }
}

read_outcome object_reads::run(watched_read& one) {
  engine::object_reader& reader = *readers_[random_.below(readers_.size())];
  threads_.switch_point();
  while (!reader.lock.try_lock()) threads_.yield();
  read_outcome reached = read_outcome::busy;
  {
    const std::lock_guard guard(reader.lock, std::adopt_lock);
    one.begin();
    const scheduler::engine_call call(threads_);
    reached = reader.start(one);
    if (reached != read_outcome::in_flight) one.end();
  }
  if (reached == read_outcome::in_flight) {
    wait_for(reader, one);
    reached = one.outcome.load();
    if (reached == read_outcome::not_remote) ++lost_races_;
  }
  return reached;
}

void object_reads::read(page_id page, std::size_t part, bool holds_page) {
  watched_read one(expected_, page, part);
  if (run(one) != read_outcome::done) return;
  ++done_;
  if (holds_page) one.check();
}

void object_reads::restart_in_child() {
  copies_.restart_in_child();
  is_resizing_ = false;
}

void object_reads::resize_copies() {
  if (is_resizing_) return;
  is_resizing_ = true;
  {
    const scheduler::engine_call call(threads_);
    static_cast<void>(copies_.fit(random_.between(4 * kib, most_copied_bytes)));
  }
  is_resizing_ = false;
}

void object_reads::read_copies(page_id page, std::size_t part, bool holds_page) {
  for (std::uint64_t left = random_.between(2, 6); left > 0; --left) {
    read_copy(page, part, holds_page);
    threads_.sleep(random_.between(1, 2000));
  }
}

void object_reads::read_copy(page_id page, std::size_t part, bool holds_page) {
  const std::uint64_t first = line_number(page, part);
  const std::size_t line = random_.below(lines_a_part);
  const std::size_t offset = random_.below(line_bytes - sizeof(std::uint64_t) + 1);
  watched_read one(expected_, page, part);
  std::uint64_t found = 0;
  bool is_found = false;
  one.begin();
  {
    const scheduler::engine_call call(threads_);
    const std::optional<std::uint64_t> version = engine_.view().version(page);
    is_found =
        version && copies_.read({first + line, *version}, offset, sizeof found, reinterpret_cast<std::byte*>(&found));
  }
  one.end();
  if (is_found) {
    ++copies_found_;
    if (!holds_page) return;
    return model::check_answer(one.seen, [&](std::span<const std::byte> held) {
      return std::memcmp(held.data() + line * line_bytes + offset, &found, sizeof found) == 0;
    });
  }
  if (random_.chance(50)) resize_copies();
  if (run(one) != read_outcome::done) return;
  const scheduler::engine_call call(threads_);
  for (std::size_t i = 0; i < lines_a_part; ++i) copies_.put({first + i, one.version}, one.buffer + i * line_bytes);
}

void object_reads::ask(page_id page, std::size_t part, bool holds_page) {
  watched_read one(expected_, page, part);
  question asked(random_);
  one.reduce = &asked.how;
  one.groups = asked.groups.data();
  const bool is_call = asked.how.kind == reduction_kind::computed;
  function_calls_ += is_call;
  if (run(one) != read_outcome::done) return;
  ++answers_;
  function_results_ += is_call;
  if (asked.must_fail) fail("a function that always fails has a result");
  if (!holds_page) return;
  model::check_answer(one.seen, [&](std::span<const std::byte> held) {
    return asked.answer_about(held) == std::vector(one.buffer, one.buffer + found_bytes(asked.how));
  });
}

namespace {

// The sums of the numbers of groups 0 to 29, of some rows.
using sums_of_groups = std::array<std::uint64_t, 30>;

sums_of_groups sums_of(const model::bytes_of_part& keys, const model::bytes_of_part& numbers, std::uint8_t least) {
  sums_of_groups sums{};
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto group = static_cast<std::uint8_t>(std::to_integer<std::uint8_t>(keys[i]) - least);
    if (group < sums.size()) sums[group] += std::to_integer<std::uint8_t>(numbers[i]);
  }
  return sums;
}

// Whether the sums are those of some contents of each part: the first watches are about keys, and as many about
// numbers.
bool are_possible(std::span<const model::watch> parts, std::uint8_t least, const sums_of_groups& sums) {
  const std::size_t half = parts.size() / 2;
  if (half == 0) return sums == sums_of_groups{};
  std::vector<model::watch> rest(parts.begin() + 1, parts.begin() + static_cast<std::ptrdiff_t>(half));
  rest.insert(rest.end(), parts.begin() + static_cast<std::ptrdiff_t>(half) + 1, parts.end());
  for (const model::bytes_of_part& keys : model::contents_of(parts[0])) {
    for (const model::bytes_of_part& numbers : model::contents_of(parts[half])) {
      const sums_of_groups of_part = sums_of(keys, numbers, least);
      sums_of_groups left{};
      bool fits = true;
      for (std::size_t i = 0; i < left.size(); ++i) {
        fits &= of_part[i] <= sums[i];
        left[i] = sums[i] - of_part[i];
      }
      if (fits && are_possible(rest, least, left)) return true;
    }
  }
  return false;
}

}  // namespace

void object_reads::ask_about_rows(page_id keys, page_id numbers, bool holds_pages) {
  watched_read one(expected_, keys, 0);
  const std::array<page_id, 2> both{keys, numbers};
  for (std::size_t part = 1; part < 2 * model::parts_a_page; ++part) {
    model::watch watched;
    watched.page = both[part / model::parts_a_page];
    watched.part = part % model::parts_a_page;
    one.also_seen.push_back(watched);
  }
  const auto least = static_cast<std::uint8_t>(random_.below(256));
  detail::keyed_rows rows{.rows = page_bytes, .keys = 1, .wants_sums = true};
  rows.key[0] = {least, std::tuple_size_v<sums_of_groups>, detail::number_type::uint8};
  const reduction how{.type = detail::number_type::uint8,
                      .highest = 0xff,
                      .kind = reduction_kind::of_rows,
                      .groups = std::tuple_size_v<sums_of_groups>,
                      .rows = &rows};
  one.offset_bytes = 0;
  one.length_bytes = page_bytes;
  one.buffer = one.bytes.data();
  one.pages = both;
  one.reduce = &how;
  if (run(one) != read_outcome::done) return;
  ++answers_about_rows_;
  if (!holds_pages) return;
  std::vector<model::watch> all{one.seen};
  all.insert(all.end(), one.also_seen.begin(), one.also_seen.end());
  if (std::ranges::any_of(all, &model::watch::is_void)) return;
  sums_of_groups found{};
  std::memcpy(found.data(), one.buffer, sizeof found);
  if (are_possible(all, least, found)) return;
  fail("the answer about the rows of pages %llu and %llu fits none of their contents",
       static_cast<unsigned long long>(keys), static_cast<unsigned long long>(numbers));
}

}  // namespace far::simulation
