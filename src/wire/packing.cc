#include "wire/packing.h"

#define ZSTD_STATIC_LINKING_ONLY  // contexts in memory of ours
#include <zstd.h>

#include <algorithm>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::wire {
namespace {

constexpr int level = 1;

// Less is hardly worth the time, and frames of zstd have a header, too.
constexpr std::size_t least_bytes = 128;

std::byte* take_memory(std::size_t bytes) {
  return static_cast<std::byte*>(platform::allocate_local(bytes));
}

}  // namespace

packer::~packer() {
  if (memory_ != nullptr) platform::free_local(memory_, memory_bytes_);
}

std::size_t packer::pack(std::span<const std::byte> from, std::span<std::byte> into) {
  if (from.size() < least_bytes || from.size() > most_unpacked_bytes) return 0;
  if (memory_ == nullptr) {
    memory_bytes_ = ZSTD_estimateCCtxSize(level);
    memory_ = take_memory(memory_bytes_);
    context_ = ZSTD_initStaticCCtx(memory_, memory_bytes_);
    FAR_CHECK(context_ != nullptr, "zstd has the memory that it asks for");
  }
  const std::size_t room = std::min({into.size(), from.size() - from.size() / 16, most_packed_bytes});
  const std::size_t length =
      ZSTD_compressCCtx(static_cast<ZSTD_CCtx*>(context_), into.data(), room, from.data(), from.size(), level);
  return ZSTD_isError(length) != 0 ? 0 : length;
}

unpacker::~unpacker() {
  if (memory_ != nullptr) platform::free_local(memory_, memory_bytes_);
}

std::span<const std::byte> unpacker::unpack(std::span<const std::byte> packed, std::size_t bytes) {
  FAR_CHECK(bytes > 0 && bytes <= most_unpacked_bytes, "there is room for what is unpacked");
  const std::size_t of_zstd = ZSTD_estimateDCtxSize();
  if (memory_ == nullptr) {
    memory_bytes_ = of_zstd + most_unpacked_bytes;
    memory_ = take_memory(memory_bytes_);
    context_ = ZSTD_initStaticDCtx(memory_, of_zstd);
    FAR_CHECK(context_ != nullptr, "zstd has the memory that it asks for");
  }
  std::byte* const into = memory_ + of_zstd;
  const std::size_t length =
      ZSTD_decompressDCtx(static_cast<ZSTD_DCtx*>(context_), into, bytes, packed.data(), packed.size());
  if (length != bytes) return {};  // also codes of errors: they are greater than any length
  return {into, bytes};
}

}  // namespace far::wire
