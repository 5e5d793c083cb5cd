#include "object_reads.h"

#include <array>
#include <cstring>
#include <mutex>
#include <span>

#include "base/page_reduction.h"
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
}

void watched_read::end() {
  const scheduler::uninterrupted body;
  if (is_watched) expected.end_watch(seen);
  is_watched = false;
}

object_reads::object_reads(scheduler& threads, random_source& random, model& expected, engine::engine& engine)
    : threads_(threads), random_(random), expected_(expected), engine_(engine) {
  for (std::size_t i = 0; i < 2; ++i) readers_.push_back(engine_.transfers().add_object_reader().value());
}

void object_reads::wait_for(engine::object_reader& reader, watched_read& one) {
  const std::uint64_t since = threads_.slices();
  while (one.is_watched) {
    if (threads_.slices() - since > simulated_pager::longest_wait_slices) {
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

}  // namespace far::simulation
