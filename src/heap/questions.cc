// Questions about the numbers of huge objects, which the far tier answers where their pages are.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "base/check.h"
#include "base/lock_guard.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/thread_mutex.h"
#include "far/compute.h"
#include "heap/grace_periods.h"
#include "heap/heap.h"
#include "wire/function.h"

namespace far::detail {
namespace {

constexpr std::uint64_t slots_of_block = 512;

}  // namespace

// Pages that are not here are asked about where they are, and the others here; those that come or leave meanwhile are
// brought in. The order of the answers is always the same.
void object_heap::answer_part(std::uint64_t value, std::size_t offset, std::size_t bytes, const reduction& how,
                              const detail::answer_sink& to, const std::uint8_t* groups) {
  constexpr std::size_t room = std::size_t{4} << 10;
  static_assert(room >= most_answer_bytes);
  alignas(8) std::array<std::byte, room> answers;
  const std::size_t one_answer = answer_bytes(how);
  const std::size_t most = std::min(pager::page_guard::most_reductions, room / one_answer);
  const std::uintptr_t first = word::address(value) + offset;
  const std::uintptr_t end = first + bytes;
  for (std::uintptr_t at = first; at < end;) {
    std::array<pager::slot_reduction, pager::page_guard::most_reductions> parts;
    std::array<pager::slot_reduction, pager::page_guard::most_reductions> away;
    std::size_t part_count = 0;
    std::size_t away_count = 0;
    for (; at < end && part_count < most; at += parts[part_count++].bytes) {
      pager::slot_reduction& part = parts[part_count];
      part.address = reinterpret_cast<const std::byte*>(at);
      part.bytes = std::min<std::size_t>(end - at, page_bytes - at % page_bytes);
      part.answer = answers.data() + part_count * one_answer;
      part.groups = groups == nullptr ? nullptr : groups + (at - first) / number_bytes(how.type);
      if (!memory.is_resident(at)) away[away_count++] = part;
    }
    if (away_count > 0) memory.reduce_remote(how, {away.data(), away_count});
    if (how.function != nullptr) ask_why(how, std::span<const pager::slot_reduction>(away).first(away_count));
    for (std::size_t i = 0, next = 0; i < part_count; ++i) {
      const pager::slot_reduction& part = parts[i];
      const bool was_away = next < away_count && away[next].address == part.address;
      if (was_away && away[next++].outcome == pager::slot_read::done) {
        heap::counters::add(count.reduced_pages);
      } else {
        const auto page = reinterpret_cast<std::uintptr_t>(part.address);
        bring_in_huge(page - page % page_bytes, page + 1, false, false);
        find(how, {part.address, part.bytes}, part.answer, part.groups);
      }
      to.take(to.context, part.bytes, part.answer);
    }
  }
}

// A server that was reached, and has refused, says why: once for all who use the function.
void object_heap::ask_why(const reduction& how, std::span<const pager::slot_reduction> asked) {
  const page_function& refused = *how.function;
  if (refused.why == nullptr || !refused.refused->load(std::memory_order_relaxed)) return;
  if (refused.why->is_of_far_tier.load(std::memory_order_relaxed)) return;
  const auto failed = std::ranges::find(asked, pager::slot_read::failed, &pager::slot_reduction::outcome);
  if (failed == asked.end() || refused.why->is_asked_for.exchange(true, std::memory_order_relaxed)) return;
  std::atomic<bool> says_nothing{false};
  page_function why = refused;
  why.number = wire::why_number;
  why.result_bytes = most_refusal_bytes;
  why.argument_bytes = 0;
  why.refused = &says_nothing;
  why.why = nullptr;
  alignas(8) std::array<std::byte, most_refusal_bytes + sizeof(std::uint64_t)> answer{};
  pager::slot_reduction one = *failed;
  one.answer = answer.data();
  memory.reduce_remote({.kind = reduction_kind::computed, .function = &why}, {&one, 1});
  if (one.outcome == pager::slot_read::done) std::memcpy(refused.why->text.data(), answer.data(), most_refusal_bytes);
}

// Pages of keys tend to be here although those of the numbers are not, because they are few and used more often. A few
// of a question's pages are pushed out, so that the far tier can answer; clean ones leave without being sent. Where
// more are here, the program had better read the others. Where servers often lack a page, it needs the keys, and they
// stay.
void object_heap::ask_about_rows(const reduction& how, std::span<detail::question_about_rows> asked) {
  FAR_CHECK(is_valid(how), "a question about rows makes sense");
  const std::size_t pages_of_question = pages_of_rows(how);
  const bool has_keys = how.rows->keys > 0;
  const std::size_t most_here = has_keys && may_push_out(asked.size()) ? pages_of_question / 3 : 0;
  std::array<pager::row_reduction, pager::page_guard::most_reductions> away;
  std::array<detail::question_about_rows*, pager::page_guard::most_reductions> questions{};
  std::array<std::uintptr_t, pager::page_guard::most_reductions * detail::most_row_pages> here{};
  for (std::size_t next = 0; next < asked.size();) {
    std::size_t away_count = 0;
    std::size_t here_count = 0;
    for (; next < asked.size() && away_count < away.size(); ++next) {
      const auto all = std::span<const std::byte* const>(asked[next].pages).first(pages_of_question);
      std::size_t of_question = 0;
      for (const std::byte* const page : all) {
        const auto address = reinterpret_cast<std::uintptr_t>(page);
        if (page != nullptr && memory.is_resident(address)) here[here_count + of_question++] = address;
      }
      if (of_question > most_here || std::ranges::find(all, nullptr) != all.end()) continue;
      here_count += of_question;
      questions[away_count] = &asked[next];
      away[away_count++] = {.pages = all, .answer = asked[next].answer.data()};
    }
    if (here_count > 0) push_out(std::span(here).first(here_count));
    if (away_count > 0) memory.reduce_remote_rows(how, std::span(away).first(away_count));
    for (std::size_t i = 0; i < away_count; ++i) {
      if (has_keys && how.rows->wants_numbers()) note_row_answer(away[i].outcome);
      if (away[i].outcome != pager::slot_read::done) continue;
      questions[i]->is_answered = true;
      heap::counters::add(count.reduced_pages, pages_of_question);
    }
  }
}

// Slots are lent in blocks, each by one server.
void object_heap::note_places(std::span<const std::byte* const> asked, std::span<std::uint64_t> places) const {
  FAR_CHECK(asked.size() == places.size(), "each page has a place");
  std::ranges::transform(asked, places.begin(), [&](const std::byte* page) -> std::uint64_t {
    if (page == nullptr) return 0;
    const std::optional<std::uint64_t> slot = memory.slot_of(reinterpret_cast<std::uintptr_t>(page));
    return slot ? *slot / slots_of_block + 1 : 0;
  });
}

void object_heap::note_row_answer(pager::slot_read outcome) {
  if (outcome == pager::slot_read::not_remote) return;
  const int change = outcome == pager::slot_read::done ? 1 : -4;
  const int before = row_answers_.load(std::memory_order_relaxed);
  row_answers_.store(std::clamp(before + change, -most_row_answers, most_row_answers), std::memory_order_relaxed);
}

bool object_heap::may_push_out(std::size_t questions) {
  const std::size_t resting = questions_without_push_out_.load(std::memory_order_relaxed);
  if (resting > 0) questions_without_push_out_.store(resting - std::min(resting, questions), std::memory_order_relaxed);
  return resting == 0 && row_answers_.load(std::memory_order_relaxed) >= 0;
}

// What others use stays, and so does what the far tier has no room for now, which takes a while to find out: then
// nothing more is tried, also for some of the questions that follow, whatever they are about and how they end.
void object_heap::push_out(std::span<std::uintptr_t> addresses) {
  // Scopes are short.
  constexpr std::chrono::milliseconds patience{1};
  std::ranges::sort(addresses);
  // Neighbours leave together.
  const auto for_each_run = [&](const auto& use) {
    for (std::size_t i = 0, next = 0; i < addresses.size(); i = next) {
      for (next = i + 1; next < addresses.size() && addresses[next] <= addresses[next - 1] + page_bytes;) ++next;
      if (!use(addresses[i], addresses[next - 1] + page_bytes - addresses[i])) return;
    }
  };
  heap::grace_number number = 0;
  for_each_run([&](std::uintptr_t address, std::size_t bytes) {
    if (const heap::grace_number of_run = condemn(address, bytes); of_run != 0) number = of_run;
    return true;
  });
  if (number != 0) static_cast<void>(heap::scopes_without_log.wait_until_over(number, patience));
  for_each_run([&](std::uintptr_t address, std::size_t bytes) {
    memory.evict(address, bytes);
    if (!memory.is_resident(address)) return true;
    questions_without_push_out_.store(rest_of_push_outs, std::memory_order_relaxed);
    return false;
  });
}

std::string text_of_refusal(const page_function& refused) {
  const auto& text = refused.why->text;
  const std::string said(text.data(), strnlen(text.data(), text.size()));
  if (!said.empty()) return printable(said, said.size());
  return refused.why->is_of_far_tier.load()
             ? "the far tier calls no functions"
             : "the far tier refuses the call, and does not say why: it has no plugins, or its log says more";
}

void report_refusal(const page_function& refused) {
  constexpr std::chrono::minutes rest{1};
  static thread_mutex lock;
  static std::string last;
  static std::chrono::steady_clock::time_point when;
  const std::string text = text_of_refusal(refused);
  const auto now = std::chrono::steady_clock::now();
  {
    const lock_guard guard(lock);
    if (text == last && now - when < rest) return;
    last = text;
    when = now;
  }
  log_line(log_level::warning,
           "far::compute: function %u of plugin '%s' %s is called in this program, on pages that are fetched: %s",
           refused.number, refused.plugin.data(), refused.version.data(), text.c_str());
}

}  // namespace far::detail
