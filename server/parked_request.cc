#include "server/parked_request.h"

#include <algorithm>
#include <cstring>

namespace far::server {
namespace {

// How many blocks are asked for at a time.
constexpr unsigned most_asked = 4;

// Calls `use` with the slot, the position within the batch, and the offset and length within the slot's block, for each
// part of a block, in order. Stops at the first call that returns false.
template <typename Use>
void for_each_part(const wire::batch& wanted, Use use) {
  std::size_t position = 0;
  for (const wire::range& range : wanted.all()) {
    std::uint64_t slot = range.slot;
    std::uint64_t offset_bytes = range.offset_bytes;
    for (std::uint64_t left_bytes = range.length_bytes; left_bytes > 0;) {
      const std::uint64_t in_block = slot % wire::block_slots;
      const std::uint64_t length = std::min(left_bytes, block_bytes - in_block * page_bytes - offset_bytes);
      if (!use(slot, position, offset_bytes, length)) return;
      position += length;
      left_bytes -= length;
      slot += wire::block_slots - in_block;
      offset_bytes = 0;
    }
  }
}

parked_request::step step_for(session::whereabouts where) {
  switch (where) {
    case session::whereabouts::nowhere: return parked_request::step::not_allocated;
    case session::whereabouts::unreadable: return parked_request::step::unreadable;
    case session::whereabouts::here:
    case session::whereabouts::coming: return parked_request::step::wait;
  }
  return parked_request::step::wait;
}

}  // namespace

// Parts are used in order, as far as their blocks are here. Of the others a few are asked for, so that they come while
// this request waits for the first.
template <typename Use>
parked_request::step parked_request::advance(session& client, const wire::batch& wanted, Use use) {
  step reached = step::done;
  unsigned asked = 0;
  for_each_part(wanted, [&](std::uint64_t slot, std::size_t position, std::uint64_t offset, std::uint64_t length) {
    if (position < done_bytes_) return true;
    std::byte* const block = client.address_of(slot);
    if (block != nullptr) {
      if (reached != step::done) return true;
      use(std::span<std::byte>(block + offset, length), position);
      done_bytes_ = position + length;
      return true;
    }
    reached = step_for(client.bring_in(slot));
    return reached == step::wait && ++asked < most_asked;
  });
  return reached;
}

parked_request::step parked_request::finish(step reached, std::uint64_t now_ns) {
  if (reached == step::wait) {
    if (since_ns_ == 0) since_ns_ = std::max<std::uint64_t>(now_ns, 1);
  } else {
    since_ns_ = 0;
    done_bytes_ = 0;
  }
  return reached;
}

parked_request::step parked_request::read(session& client, const wire::batch& wanted, std::uint64_t now_ns) {
  bytes_.resize(wanted.total_bytes);
  return finish(advance(client, wanted,
                        [&](std::span<const std::byte> part, std::size_t position) {
                          std::memcpy(bytes_.data() + position, part.data(), part.size());
                        }),
                now_ns);
}

parked_request::step parked_request::write(session& client, const wire::batch& wanted, std::uint64_t now_ns) {
  return finish(advance(client, wanted,
                        [&](std::span<std::byte> part, std::size_t position) {
                          std::memcpy(part.data(), wanted.bytes.data() + position, part.size());
                        }),
                now_ns);
}

parked_request::step parked_request::bring_all(session& client, const wire::batch& wanted, std::uint64_t now_ns) {
  done_bytes_ = 0;
  return finish(advance(client, wanted, [](std::span<std::byte>, std::size_t) {}), now_ns);
}

void parked_request::reset() {
  since_ns_ = 0;
  done_bytes_ = 0;
  bytes_ = {};
}

}  // namespace far::server
