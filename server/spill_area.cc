#include "server/spill_area.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "platform/local_memory.h"
#include "server/store.h"
#include "wire/message.h"

namespace far::server {
namespace {

constexpr int zstd_level = 1;

std::uint64_t position_of(std::uint64_t place) {
  return (place - 1) * block_bytes;
}

}  // namespace

std::optional<spill_codec> spill_codec_named(std::string_view name) {
  if (name == "lz4") return spill_codec::lz4;
  if (name == "zstd") return spill_codec::zstd;
  return std::nullopt;
}

spill_area::spill_area(std::unique_ptr<spill_disk> disk, std::uint64_t places, spill_codec codec)
    : disk_(std::move(disk)), codec_(codec), facts_(places + 1) {
  free_.reserve(places);
  for (std::uint64_t place = places; place > 0; --place) free_.push_back(place);
  if (codec_ == spill_codec::none) return;
  const std::size_t most = std::max(ZSTD_compressBound(block_bytes),
                                    static_cast<std::size_t>(LZ4_compressBound(static_cast<int>(block_bytes))));
  buffer_bytes_ = round_up(most, page_bytes);
  buffer_ = platform::map_local(buffer_bytes_);
}

spill_area::~spill_area() {
  if (buffer_ != nullptr) platform::unmap_local(buffer_, buffer_bytes_);
}

std::optional<std::uint64_t> spill_area::take() {
  if (free_.empty()) return std::nullopt;
  const std::uint64_t place = free_.back();
  free_.pop_back();
  return place;
}

void spill_area::release(std::uint64_t place) {
  if (place == nowhere) return;
  FAR_CHECK(free_.size() < places(), "more places of a spill file come back than it has");
  free_.push_back(place);
}

// Returns the length in the buffer; 0: it is not worth it.
std::size_t spill_area::compress(std::span<const std::byte> block) {
  std::size_t length = 0;
  if (codec_ == spill_codec::lz4) {
    length = static_cast<std::size_t>(
        LZ4_compress_default(reinterpret_cast<const char*>(block.data()), reinterpret_cast<char*>(buffer_),
                             static_cast<int>(block.size()), static_cast<int>(buffer_bytes_)));
  } else if (codec_ == spill_codec::zstd) {
    const std::size_t got = ZSTD_compress(buffer_, buffer_bytes_, block.data(), block.size(), zstd_level);
    length = ZSTD_isError(got) != 0 ? 0 : got;
  }
  return round_up(length, page_bytes) < block.size() ? length : 0;
}

bool spill_area::decompress(std::size_t length, std::span<std::byte> block) const {
  if (codec_ == spill_codec::lz4) {
    const int got = LZ4_decompress_safe(reinterpret_cast<const char*>(buffer_), reinterpret_cast<char*>(block.data()),
                                        static_cast<int>(length), static_cast<int>(block.size()));
    return got == static_cast<int>(block.size());
  }
  return ZSTD_decompress(block.data(), block.size(), buffer_, length) == block.size();
}

result<void> spill_area::write(std::uint64_t place, std::span<const std::byte> block) {
  facts& where = facts_.at(place);
  const std::size_t length = compress(block);
  const std::size_t taken_bytes = length == 0 ? block.size() : round_up(length, page_bytes);
  const std::span<const std::byte> bytes = length == 0 ? block : std::span<const std::byte>(buffer_, taken_bytes);
  if (result<void> done = disk_->write(position_of(place), bytes); !done) return done;
  if (where.taken_bytes > taken_bytes) {
    disk_->discard(position_of(place) + taken_bytes, where.taken_bytes - taken_bytes);
  }
  disk_bytes_.fetch_add(taken_bytes - where.taken_bytes, std::memory_order_relaxed);
  where = {.hash = wire::checksum(block),
           .length = static_cast<std::uint32_t>(length == 0 ? block.size() : length),
           .taken_bytes = static_cast<std::uint32_t>(taken_bytes)};
  return {};
}

result<void> spill_area::read(std::uint64_t place, std::span<std::byte> block) {
  const facts& where = facts_.at(place);
  const bool is_plain = where.length == block.size();
  const std::span<std::byte> into = is_plain ? block : std::span<std::byte>(buffer_, where.taken_bytes);
  if (result<void> done = disk_->read(position_of(place), into); !done) return done;
  const bool is_whole = is_plain || decompress(where.length, block);
  if (!is_whole || wire::checksum(block) != where.hash) {
    return error{"other bytes come back from the spill file than were written", EBADMSG};
  }
  return {};
}

}  // namespace far::server
