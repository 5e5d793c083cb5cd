// The reads of a striped channel.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "backend/striped/galois.h"
#include "backend/striped/striped_channel.h"
#include "base/check.h"

namespace far::backend {
namespace {

constexpr std::uint64_t pack(std::uint32_t part, std::size_t source) {
  return std::uint64_t{part} << 8 | source;
}

constexpr std::uint64_t bit(std::size_t member) {
  return std::uint64_t{1} << member;
}

alignas(page_bytes) constexpr std::array<std::byte, page_bytes> zero_page{};

}  // namespace

void striped_channel::start_reads() {
  while (!unread_.empty() && !free_parts_.empty()) {
    const std::uint32_t index = unread_.front();
    start_read(index);
    if (requests_[index].next_byte < requests_[index].end_byte) return;
    unread_.erase(unread_.begin());
    --requests_[index].parts;
    end_if_done(index);
  }
}

// Begins as many parts as there is room for. While they begin, none of them ends the request.
void striped_channel::start_read(std::uint32_t index) {
  taken_request& whole = requests_[index];
  if (whole.parts == 0) ++whole.parts;
  while (whole.next_byte < whole.end_byte && !free_parts_.empty()) {
    const std::uint32_t begun = free_parts_.back();
    free_parts_.pop_back();
    parts_[begun] = {.request = index, .begin = whole.next_byte, .end = whole.end_byte, .buffer = whole.buffer};
    ++whole.parts;
    attempt(begun);
    // What its first transfer does not bring is left to other parts.
    read_part& part = parts_[begun];
    std::uint64_t reached = whole.end_byte;
    if (part.request == index && part.now != read_part::state::idle) {
      reached = part.now != read_part::state::parked ? part.begin + part.planned_bytes
                                                     : std::min(part.end, (part.begin / page_bytes + 1) * page_bytes);
      part.end = reached;
    }
    whole.buffer += reached - whole.next_byte;
    whole.next_byte = reached;
  }
}

void striped_channel::attempt(std::uint32_t index) {
  read_part& part = parts_[index];
  part.now = read_part::state::idle;
  const layer& members = shared_.members;
  const bool of_request = part.request != none;
  const std::uint64_t avoid = of_request ? requests_[part.request].avoid : 0;
  std::uint64_t shunned_choices = avoid >> (first_decoded_source - 1);
  // Where nobody waits for the bytes, one choice is enough: with all of them, each page would be read many times.
  if (shunned_choices != 0 && of_request && !requests_[part.request].is_needed) shunned_choices = ~std::uint64_t{0};
  for (std::size_t i = 0; members.detached() && i < members.member_count(); ++i) {
    if (!members.still_valid(i)) shared_.members.note_error(i, ESTALE);
  }
  while (part.begin < part.end) {
    const slot_id slot = part.begin / page_bytes;
    const std::size_t pages = (part.end - 1) / page_bytes - slot + 1;
    const std::size_t decoded_at_once = of_request && requests_[part.request].reduce != nullptr ? 1 : rows_together;
    {
      const lock_guard guard(shared_.table.lock);
      read_limits limits{
          .shunned = part.failed | avoid, .shunned_choices = shunned_choices, .any_state = members.detached()};
      part.plan = shared_.table.plan_read(members.view(), slot, pages, decoded_at_once, limits);
      const bool is_useless = part.plan.how != read_plan::outcome::zeros && !part.plan.is_served();
      const bool may_ask_again = part.failed == 0 || (of_request && !requests_[part.request].is_needed);
      if (avoid != 0 && is_useless && may_ask_again) {
        // The same bytes once more: they may have been damaged on the way. And who scrubs learns with them who has
        // refused.
        limits.shunned = part.failed;
        limits.shunned_choices = 0;
        part.plan = shared_.table.plan_read(members.view(), slot, pages, decoded_at_once, limits);
      }
    }
    part.planned_bytes = std::min(part.end, (slot + part.plan.pages) * page_bytes) - part.begin;
    const bool is_made_here =
        part.plan.how == read_plan::outcome::zeros || part.plan.how == read_plan::outcome::decoded;
    if (is_made_here && of_request && requests_[part.request].reduce != nullptr &&
        !is_built_in(requests_[part.request].reduce->how)) {
      return refuse(index);
    }
    switch (part.plan.how) {
      case read_plan::outcome::zeros: read_zeros(part, part.planned_bytes); continue;
      case read_plan::outcome::direct:
      case read_plan::outcome::decoded: return send_read(index);
      case read_plan::outcome::waits: return park(index);
      case read_plan::outcome::away: return end_part(index, ETIMEDOUT);
      case read_plan::outcome::gone:
        return end_part(index, part.failed != 0 && part.error_code != 0 ? part.error_code : ESTALE);
    }
  }
  end_part(index, 0);
}

// The page is not in one server, and what is asked about it is not answered here.
void striped_channel::refuse(std::uint32_t index) {
  read_part& part = parts_[index];
  if (part.plan.how == read_plan::outcome::decoded) {
    const lock_guard guard(shared_.table.lock);
    shared_.table.end(part.plan.group, part.plan.phase);
  }
  end_part(index, EIO);
}

void striped_channel::read_zeros(read_part& part, std::uint64_t bytes) {
  const page_reduction* const reduce = part.request != none ? requests_[part.request].reduce : nullptr;
  if (reduce != nullptr) {
    answer(*reduce, zero_page.data(), std::span(zero_page).subspan(part.begin % page_bytes, bytes), part.buffer);
  } else {
    std::memset(part.buffer, 0, bytes);
  }
  part.buffer += bytes;
  part.begin += bytes;
}

// After an error the caller learns of it at once; it asks again if it wants to wait.
void striped_channel::park(std::uint32_t index) {
  read_part& part = parts_[index];
  if (part.failed != 0) {
    return end_part(index, part.error_code == 0 || part.error_code == ESTALE ? ETIMEDOUT : part.error_code);
  }
  const std::uint64_t now_ns = shared_.members.time.now_ns();
  if (part.parked_at_ns == 0) part.parked_at_ns = now_ns;
  if (now_ns - part.parked_at_ns >= shared_.members.lost_after_ns) return end_part(index, ETIMEDOUT);
  part.now = read_part::state::parked;
  ++waiting_;
}

void striped_channel::send_read(std::uint32_t index) {
  read_part& part = parts_[index];
  const page_reduction* const reduce = part.request != none ? requests_[part.request].reduce : nullptr;
  const bool is_decoded = part.plan.how == read_plan::outcome::decoded;
  if (is_decoded && free_lanes_.empty()) {
    const lock_guard guard(shared_.table.lock);
    shared_.table.end(part.plan.group, part.plan.phase);
    part.now = read_part::state::needs_lane;
    ++waiting_;
    return;
  }
  part.now = read_part::state::reading;
  part.has_failed = false;
  part.started_ns = shared_.members.time.now_ns();
  request transfer{.op = operation::read,
                   .offset_bytes = static_cast<std::uint32_t>(part.begin % page_bytes),
                   .length_bytes = static_cast<std::uint32_t>(part.planned_bytes),
                   .buffer = part.buffer};
  if (!is_decoded) {
    transfer.slot = part.plan.sources[0].first;
    transfer.cookie = pack(index, 0);
    transfer.reduce = reduce;
    part.outstanding = 1;
    return queues_.push(part.plan.sources[0].member, transfer);
  }
  part.lane = free_lanes_.back();
  free_lanes_.pop_back();
  if (reduce != nullptr) {
    transfer.offset_bytes = 0;
    transfer.length_bytes = page_bytes;
  }
  for (std::size_t i = 0; i < shape().data; ++i) {
    const read_plan::source& source = part.plan.sources[i];
    if (source.is_zero) continue;
    ++part.outstanding;
    transfer.slot = source.first;
    transfer.buffer = lane_bytes(part.lane, i);
    transfer.cookie = pack(index, i);
    queues_.push(source.member, transfer);
  }
  // All others are zeros, so the page is.
  if (part.outstanding == 0) end_attempt(index);
}

void striped_channel::on_read(std::size_t member, const completion& ended) {
  const auto index = static_cast<std::uint32_t>(ended.cookie >> 8);
  read_part& part = parts_[index];
  int code = ended.error_code;
  if (code == 0 && !shared_.members.still_valid(member)) code = ESTALE;
  if (code != 0 && !is_unanswered(code)) shared_.members.note_error(member, code);
  part.has_failed |= code != 0;
  if (code != 0) part.failed |= bit(member);
  if (is_refusal(code) && part.plan.how == read_plan::outcome::direct) {
    part.refused_by = static_cast<std::uint8_t>(member + 1);
  }
  // That one page is gone does not say so of others that could not be read.
  if (code != 0 && !(code == ESTALE && part.error_code != 0)) part.error_code = code;
  if (code == 0) shared_.members.at(member).note_read(shared_.members.time.now_ns() - part.started_ns);
  if (--part.outstanding == 0) end_attempt(index);
}

void striped_channel::end_attempt(std::uint32_t index) {
  read_part& part = parts_[index];
  {
    const lock_guard guard(shared_.table.lock);
    shared_.table.end(part.plan.group, part.plan.phase);
  }
  if (part.lane != none) {
    if (!part.has_failed) decode(part);
    free_lanes_.push_back(part.lane);
    part.lane = none;
    next_retry_ns_ = 0;
  }
  if (part.has_failed) return is_unanswered(part.error_code) ? end_part(index, part.error_code) : attempt(index);
  if (part.request != none) {
    taken_request& whole = requests_[part.request];
    const std::uint8_t source = part.plan.how == read_plan::outcome::decoded
                                    ? static_cast<std::uint8_t>(first_decoded_source + part.plan.choice)
                                    : static_cast<std::uint8_t>(part.plan.sources[0].member + 1);
    whole.is_mixed |= whole.source != 0 && (whole.source != source || whole.refused_by != part.refused_by);
    whole.source = source;
    whole.refused_by = part.refused_by;
  }
  part.failed = 0;
  part.refused_by = 0;
  part.error_code = 0;
  part.parked_at_ns = 0;
  part.buffer += part.planned_bytes;
  part.begin += part.planned_bytes;
  attempt(index);
}

void striped_channel::decode(read_part& part) {
  std::array<std::uint8_t, most_data> places{};
  for (std::size_t i = 0; i < shape().data; ++i) places[i] = part.plan.sources[i].place;
  const parity_code::factors factors = shared_.code.recover({places.data(), shape().data}, part.plan.place);
  const page_reduction* const reduce = part.request != none ? requests_[part.request].reduce : nullptr;
  std::byte* const into = reduce != nullptr ? lane_bytes(part.lane, shape().data) : part.buffer;
  const std::size_t bytes = reduce != nullptr ? page_bytes : part.planned_bytes;
  std::memset(into, 0, bytes);
  for (std::size_t i = 0; i < shape().data; ++i) {
    if (part.plan.sources[i].is_zero) continue;
    galois::add_multiple(into, lane_bytes(part.lane, i), factors[i], bytes);
  }
  shared_.decoded_pages.fetch_add(part.plan.pages, std::memory_order_relaxed);
  if (reduce == nullptr) return;
  answer(*reduce, into, {into + part.begin % page_bytes, part.planned_bytes}, part.buffer);
}

void striped_channel::end_part(std::uint32_t index, int error_code) {
  const read_part part = parts_[index];
  parts_[index].now = read_part::state::idle;
  parts_[index].request = none;
  free_parts_.push_back(index);
  if (part.rewrite != none) {
    rewrite& changed = rewrites_[part.rewrite];
    if (error_code != 0) {
      return end_page({.request = changed.request, .rewrite = part.rewrite, .slot = changed.slot}, error_code);
    }
    std::memcpy(rewrite_bytes(part.rewrite) + changed.offset, changed.bytes, changed.length);
    gathered_.push_back({.request = changed.request,
                         .rewrite = part.rewrite,
                         .slot = changed.slot,
                         .bytes = rewrite_bytes(part.rewrite)});
    return;
  }
  taken_request& whole = requests_[part.request];
  if (error_code != 0) whole.error_code = error_code;
  if (error_code == ESTALE && whole.is_needed) shared_.report_unreadable(part.plan.group);
  if (error_code != 0 && error_code != ESTALE && !part.plan.is_served() && whole.is_needed) {
    shared_.report_waiting(part.plan.group);
  }
  --whole.parts;
  end_if_done(part.request);
}

}  // namespace far::backend
