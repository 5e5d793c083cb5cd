#include "backend/replicated/replicated_channel.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <string>
#include <utility>

#include "base/check.h"

namespace far::backend {
namespace {

// Parts beyond one for each request: for requests that span several groups.
constexpr std::size_t spare_parts = 8;

// A read that waits for a suspect member asks again so often.
constexpr std::uint64_t retry_interval_ns = 200'000;

// One in so many reads goes to the second best copy.
constexpr std::uint64_t reads_between_explorations = 128;

constexpr std::uint64_t group_bytes = group_slots * page_bytes;

constexpr std::uint64_t pack(std::uint32_t part, std::uint8_t place) {
  return std::uint64_t{part} << 8 | place;
}

constexpr place_mask bit(std::uint8_t place) {
  return static_cast<place_mask>(1u << place);
}

}  // namespace

result<std::unique_ptr<channel>> replicated_channel::open(layer& shared, std::size_t depth) {
  constexpr std::size_t largest_depth = 1 << 15;
  if (depth == 0 || depth > largest_depth) {
    return error{
        "a channel holds between 1 and " + std::to_string(largest_depth) + " requests, not " + std::to_string(depth),
        EINVAL};
  }
  std::unique_ptr<replicated_channel> opened(new replicated_channel(shared, depth));
  if (result<void> joined = shared.join(opened->queues_); !joined) return joined.error();
  return std::unique_ptr<channel>(std::move(opened));
}

replicated_channel::replicated_channel(layer& shared, std::size_t depth)
    : shared_(shared),
      requests_(depth),
      parts_(depth + spare_parts),
      rows_(reinterpret_cast<rows_read*>(platform::map_local(parts_.size() * sizeof(rows_read)))),
      queues_(depth + spare_parts) {
  for (std::size_t i = depth; i-- > 0;) free_requests_.push_back(static_cast<std::uint32_t>(i));
  for (std::size_t i = parts_.size(); i-- > 0;) free_parts_.push_back(static_cast<std::uint32_t>(i));
  unfinished_.reserve(depth);
  ended_.reserve(depth);
  // Of a member that is not known here yet.
  costs_.fill(std::numeric_limits<std::uint64_t>::max() / 2);
}

replicated_channel::~replicated_channel() {
  FAR_CHECK(in_flight_ == 0, "a channel was destroyed with transfers in flight");
  shared_.leave(queues_);
  platform::unmap_local(reinterpret_cast<std::byte*>(rows_), parts_.size() * sizeof(rows_read));
}

std::size_t replicated_channel::submit(std::span<const request> batch) {
  std::size_t taken = 0;
  while (taken < batch.size() && !free_requests_.empty()) {
    const request& io = batch[taken++];
    const std::uint32_t index = free_requests_.back();
    free_requests_.pop_back();
    ++in_flight_;
    const std::uint64_t begin = io.slot * page_bytes + io.offset_bytes;
    requests_[index] = {io.op, io.cookie, begin, begin + io.length_bytes, io.buffer, 0, 0, io.avoid};
    requests_[index].is_needed = io.is_needed;
    requests_[index].reduce = io.reduce;
    if (io.length_bytes == 0) {
      end_request(index);
    } else if (unfinished_.empty()) {
      start_parts(index);
    } else {
      unfinished_.push_back(index);
    }
  }
  queues_.flush();
  queues_.announce(!ended_.empty());
  return taken;
}

// Begins as many parts as there is room for. While they begin, none of the request's parts ends it.
void replicated_channel::start_parts(std::uint32_t index) {
  taken_request& entry = requests_[index];
  ++entry.parts;
  while (entry.next_byte < entry.end_byte && has_room()) {
    const std::uint64_t number = entry.next_byte / group_bytes;
    const std::uint64_t end = std::min(entry.end_byte, (number + 1) * group_bytes);
    const std::uint32_t begun = free_parts_.back();
    free_parts_.pop_back();
    part fresh;
    fresh.request = index;
    fresh.op = entry.op;
    fresh.group = number;
    fresh.bytes = {static_cast<std::uint32_t>(entry.next_byte - number * group_bytes),
                   static_cast<std::uint32_t>(end - number * group_bytes)};
    fresh.buffer = entry.buffer;
    parts_[begun] = fresh;
    entry.buffer += end - entry.next_byte;
    entry.next_byte = end;
    ++entry.parts;
    start(begun);
  }
  if (entry.next_byte < entry.end_byte &&
      std::find(unfinished_.begin(), unfinished_.end(), index) == unfinished_.end()) {
    unfinished_.push_back(index);
  }
  if (--entry.parts == 0 && entry.next_byte == entry.end_byte) end_request(index);
}

void replicated_channel::start_unfinished() {
  while (!unfinished_.empty() && has_room()) {
    const std::uint32_t index = unfinished_.front();
    start_parts(index);
    if (requests_[index].next_byte < requests_[index].end_byte) return;
    unfinished_.erase(unfinished_.begin());
  }
}

void replicated_channel::start(std::uint32_t index) {
  if (parts_[index].op == operation::read) {
    start_read(index);
  } else {
    start_write(index);
  }
}

// The cost of a read at each member: its time there, multiplied by the number of reads before it.
read_choice replicated_channel::choice_for(const part& reading) {
  for (std::size_t i = 0; i < queues_.count(); ++i) {
    costs_[i] = (shared_.at(i).read_latency_ns() + 1) * (reads_under_way_[i] + 1);
    if (!shared_.still_valid(i)) shared_.note_error(i, ESTALE);
  }
  return {.tried = reading.tried,
          .avoid = requests_[reading.request].avoid,
          .any_state = shared_.detached(),
          .explore = ++reads_ % reads_between_explorations == 0,
          .costs = costs_};
}

void replicated_channel::start_read(std::uint32_t index) {
  part& reading = parts_[index];
  read_choice choice = choice_for(reading);
  group& holder = shared_.group_at(reading.group);
  {
    const lock_guard guard(holder.lock);
    reading.read = holder.begin_read(shared_.view(), reading.bytes, choice);
    const bool may_ask_again = reading.tried == 0 || !requests_[reading.request].is_needed;
    if (reading.read.how == started_read::outcome::gone && choice.avoid != 0 && may_ask_again) {
      // The same bytes once more: they may have been damaged on the way. And who scrubs learns with them who has
      // refused.
      choice.avoid = 0;
      reading.read = holder.begin_read(shared_.view(), reading.bytes, choice);
    }
  }
  const std::uint64_t now_ns = shared_.time.now_ns();
  switch (reading.read.how) {
    case started_read::outcome::served:
      if (is_about_rows(reading) && !begin_rows(index)) {
        reading.error_code = EXDEV;
        return end_read(index, EXDEV);
      }
      reading.started_ns = now_ns;
      ++reads_under_way_[reading.read.member];
      return push(reading.read.member, index, reading.read.place, reading.read.first,
                  {reading.bytes.begin, reading.read.end});
    case started_read::outcome::waits:
      // Who asks about rows has another way.
      if (is_about_rows(reading)) return fail_read(index, ETIMEDOUT);
      // After an error the caller learns of it at once; it asks again if it wants to wait.
      if (reading.tried != 0) return fail_read(index, reading.error_code == ESTALE ? ETIMEDOUT : reading.error_code);
      if (!reading.parked) {
        reading.parked = true;
        reading.parked_at_ns = now_ns;
        ++parked_;
      }
      if (now_ns - reading.parked_at_ns < shared_.lost_after_ns) return;
      return fail_read(index, ETIMEDOUT);
    case started_read::outcome::away:
      // A channel that held reads for that long could not be closed before.
      return fail_read(index, ETIMEDOUT);
    case started_read::outcome::gone:
      // Copies that were tried and failed may still be there.
      return fail_read(index, reading.tried != 0 ? reading.error_code : ESTALE);
  }
}

bool replicated_channel::is_about_rows(const part& reading) const {
  const page_reduction* const asked = requests_[reading.request].reduce;
  return asked != nullptr && asked->how.kind == reduction_kind::of_rows;
}

// The member that has the first slot must have all others, too.
bool replicated_channel::begin_rows(std::uint32_t index) {
  const part& reading = parts_[index];
  const page_reduction& asked = *requests_[reading.request].reduce;
  rows_read& rows = *new (&rows_[index]) rows_read;
  rows.slots[0] = reading.read.first + reading.bytes.first_slot();
  for (std::size_t i = 1; i < asked.slots.size(); ++i) {
    const std::uint64_t number = asked.slots[i] / group_slots;
    const std::size_t slot = asked.slots[i] % group_slots;
    group& holder = shared_.group_at(number);
    const lock_guard guard(holder.lock);
    const started_read begun = holder.begin_read_from(reading.read.member, shared_.view(), slot, shared_.detached());
    if (begun.how != started_read::outcome::served) break;
    rows.slots[i] = begun.first + slot;
    rows.groups[rows.count] = number;
    rows.phases[rows.count++] = begun.phase;
  }
  rows.asked = asked;
  rows.asked.slots = std::span<const slot_id>(rows.slots).first(asked.slots.size());
  if (rows.count + 1 == asked.slots.size()) return true;
  end_rows(index);
  return false;
}

void replicated_channel::end_rows(std::uint32_t index) {
  rows_read& rows = rows_[index];
  for (; rows.count > 0; --rows.count) {
    group& holder = shared_.group_at(rows.groups[rows.count - 1]);
    const lock_guard guard(holder.lock);
    holder.end(rows.phases[rows.count - 1]);
  }
}

void replicated_channel::fail_read(std::uint32_t index, int error_code) {
  if (!requests_[parts_[index].request].is_needed) {
    // Another copy may be as good as ever.
  } else if (error_code == ESTALE) {
    shared_.report_unreadable(parts_[index].group);
  } else if (parts_[index].read.how != started_read::outcome::served) {
    shared_.report_waiting(parts_[index].group);
  }
  if (parts_[index].parked) --parked_;
  parts_[index].parked = false;
  parts_[index].error_code = error_code;
  end_part(index);
}

void replicated_channel::start_write(std::uint32_t index) {
  part& writing = parts_[index];
  group& holder = shared_.group_at(writing.group);
  FAR_CHECK(!shared_.detached(), "a child of fork only reads the far tier");
  {
    const lock_guard guard(holder.lock);
    writing.write = holder.begin_write(shared_.view(), writing.bytes, shared_.least_copies);
  }
  if (writing.parked != writing.write.waits) {
    writing.parked = writing.write.waits;
    parked_ += writing.parked ? 1 : std::size_t(-1);
  }
  if (writing.write.waits) return;
  writing.outstanding = writing.write.places;
  if (writing.outstanding == 0) {
    writing.error_code = EIO;
    return end_part(index);
  }
  for (std::uint8_t place = 0; place < maximum_places; ++place) {
    if ((writing.write.places & bit(place)) == 0) continue;
    push(writing.write.members[place], index, place, writing.write.firsts[place], writing.bytes);
  }
}

void replicated_channel::push(std::size_t member, std::uint32_t index, std::uint8_t place, slot_id first,
                              byte_range bytes) {
  const part& moving = parts_[index];
  const bool is_of_rows = moving.op == operation::read && is_about_rows(moving);
  queues_.push(member, {.op = moving.op,
                        .slot = first + bytes.first_slot(),
                        .offset_bytes = static_cast<std::uint32_t>(bytes.begin % page_bytes),
                        .length_bytes = bytes.end - bytes.begin,
                        .buffer = moving.buffer,
                        .cookie = pack(index, place),
                        .reduce = is_of_rows ? &rows_[index].asked : requests_[moving.request].reduce});
}

std::size_t replicated_channel::poll(std::span<completion> done) {
  if (in_flight_ == 0) return 0;
  if (parked_ > 0) retry_parked();
  while (true) {
    start_unfinished();
    if (ended_.size() >= done.size()) break;
    // A member's queue is polled for no more than can be passed on, so that its descriptor stays readable for the rest.
    const member_queues::taken taken = queues_.take(done.size() - ended_.size());
    if (taken.count == 0) break;
    for (const completion& ended : std::span(taken.completions).first(taken.count)) on_transfer(taken.member, ended);
  }
  queues_.flush();
  const std::size_t count = std::min(done.size(), ended_.size());
  std::copy_n(ended_.begin(), count, done.begin());
  ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count));
  in_flight_ -= count;
  queues_.announce(!ended_.empty());
  return count;
}

void replicated_channel::on_transfer(std::size_t member, completion ended) {
  const auto index = static_cast<std::uint32_t>(ended.cookie >> 8);
  const auto place = static_cast<std::uint8_t>(ended.cookie & 0xff);
  part& moved = parts_[index];
  int code = ended.error_code;
  if (code == 0 && !shared_.still_valid(member)) code = ESTALE;
  if (code != 0 && !is_unanswered(code)) shared_.note_error(member, code);
  // One copy is gone. Another one, which could not be read, may still be there.
  const bool is_less = code == ESTALE && moved.op == operation::read && moved.error_code != 0;
  if (code != 0 && !is_less) moved.error_code = code;
  if (moved.op == operation::read) {
    --reads_under_way_[member];
    if (code == 0) shared_.at(member).note_read(shared_.time.now_ns() - moved.started_ns);
    if (is_refusal(code)) moved.refused_by = static_cast<std::uint8_t>(member + 1);
    return end_read(index, code);
  }
  moved.outstanding &= static_cast<place_mask>(~bit(place));
  if (code == 0) moved.succeeded |= bit(place);
  if (moved.outstanding != 0) return;
  group& holder = shared_.group_at(moved.group);
  ended_write outcome;
  {
    const lock_guard guard(holder.lock);
    outcome = holder.end_write(shared_.view(), moved.write, moved.bytes, moved.succeeded, shared_.least_copies);
  }
  if (outcome.leaves_stale) shared_.call_for_attention();
  moved.error_code = outcome.is_safe ? 0 : EIO;
  end_part(index);
}

void replicated_channel::end_read(std::uint32_t index, int error_code) {
  part& reading = parts_[index];
  {
    group& holder = shared_.group_at(reading.group);
    const lock_guard guard(holder.lock);
    holder.end(reading.read.phase);
  }
  if (is_about_rows(reading)) end_rows(index);
  if (reading.parked) --parked_;
  reading.parked = false;
  if (error_code != 0) {
    reading.tried |= bit(reading.read.place);
    return start_read(index);
  }
  note_source(reading);
  reading.error_code = 0;
  reading.tried = 0;
  reading.refused_by = 0;
  reading.buffer += reading.read.end - reading.bytes.begin;
  reading.bytes.begin = reading.read.end;
  if (reading.bytes.begin < reading.bytes.end) return start_read(index);
  end_part(index);
}

void replicated_channel::note_source(const part& reading) {
  taken_request& whole = requests_[reading.request];
  const auto source = static_cast<std::uint8_t>(reading.read.member + 1);
  whole.is_mixed |= whole.source != 0 && (whole.source != source || whole.refused_by != reading.refused_by);
  whole.source = source;
  whole.refused_by = reading.refused_by;
}

void replicated_channel::end_part(std::uint32_t index) {
  taken_request& whole = requests_[parts_[index].request];
  if (parts_[index].error_code != 0) whole.error_code = parts_[index].error_code;
  free_parts_.push_back(index);
  if (--whole.parts == 0 && whole.next_byte == whole.end_byte) end_request(parts_[index].request);
}

void replicated_channel::end_request(std::uint32_t index) {
  const int code = requests_[index].error_code;
  const bool is_passed_on = code == ESTALE || code == ETIMEDOUT || is_unanswered(code) || code == EXDEV;
  ended_.push_back({.cookie = requests_[index].cookie,
                    .error_code = code != 0 && !(is_passed_on && requests_[index].op == operation::read) ? EIO : code,
                    .source = requests_[index].is_mixed ? std::uint8_t{0} : requests_[index].source,
                    .refused_by = requests_[index].is_mixed ? std::uint8_t{0} : requests_[index].refused_by});
  free_requests_.push_back(index);
}

void replicated_channel::retry_parked() {
  const std::uint64_t now_ns = shared_.time.now_ns();
  if (now_ns < next_retry_ns_) return;
  next_retry_ns_ = now_ns + retry_interval_ns;
  for (std::size_t i = 0; i < parts_.size() && parked_ > 0; ++i) {
    // A read that has been sent keeps the mark until it ends, so that its wait is counted once.
    if (!parts_[i].parked) continue;
    const bool is_read = parts_[i].op == operation::read;
    if (is_read ? parts_[i].read.how == started_read::outcome::waits : parts_[i].write.waits) {
      start(static_cast<std::uint32_t>(i));
    }
  }
}

void replicated_channel::wait(std::uint64_t timeout_ns) {
  if (in_flight_ == 0 || !ended_.empty()) return;
  queues_.wait(parked_ > 0 ? std::min(timeout_ns, retry_interval_ns) : timeout_ns);
}

}  // namespace far::backend
