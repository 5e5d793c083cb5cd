#include "backend/zmem/codec.h"

#define ZSTD_STATIC_LINKING_ONLY  // contexts in memory of ours
#include <lz4.h>
#include <zstd.h>

#include <cstring>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::backend {
namespace {

constexpr int lz4_acceleration = 1;

std::size_t compression_bytes_of(codec_choice chosen) {
  if (chosen.name == codec_name::lz4) return static_cast<std::size_t>(LZ4_sizeofState());
  return ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(chosen.level, page_bytes, 0));
}

std::size_t decompression_bytes_of(codec_choice chosen) {
  return chosen.name == codec_name::lz4 ? 0 : ZSTD_estimateDCtxSize();
}

}  // namespace

codec::codec(codec_choice chosen)
    : chosen_(chosen),
      compression_bytes_(compression_bytes_of(chosen)),
      decompression_bytes_(decompression_bytes_of(chosen)),
      compression_(static_cast<std::byte*>(platform::allocate_local(compression_bytes_))),
      decompression_(decompression_bytes_ == 0
                         ? nullptr
                         : static_cast<std::byte*>(platform::allocate_local(decompression_bytes_))) {}

codec::~codec() {
  platform::free_local(compression_, compression_bytes_);
  if (decompression_ != nullptr) platform::free_local(decompression_, decompression_bytes_);
}

std::size_t codec::compress(const std::byte* page, std::byte* into, std::size_t most_bytes) {
  if (chosen_.name == codec_name::lz4) {
    const int length =
        LZ4_compress_fast_extState(compression_, reinterpret_cast<const char*>(page), reinterpret_cast<char*>(into),
                                   static_cast<int>(page_bytes), static_cast<int>(most_bytes), lz4_acceleration);
    return static_cast<std::size_t>(length);
  }
  if (compressor_ == nullptr) compressor_ = ZSTD_initStaticCCtx(compression_, compression_bytes_);
  FAR_CHECK(compressor_ != nullptr, "zstd has the memory that it asks for");
  const std::size_t length =
      ZSTD_compressCCtx(static_cast<ZSTD_CCtx*>(compressor_), into, most_bytes, page, page_bytes, chosen_.level);
  return ZSTD_isError(length) != 0 ? 0 : length;
}

bool codec::decompress(const std::byte* from, std::size_t length, std::byte* page) {
  if (chosen_.name == codec_name::lz4) {
    return LZ4_decompress_safe(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(page),
                               static_cast<int>(length), static_cast<int>(page_bytes)) == static_cast<int>(page_bytes);
  }
  if (decompressor_ == nullptr) decompressor_ = ZSTD_initStaticDCtx(decompression_, decompression_bytes_);
  FAR_CHECK(decompressor_ != nullptr, "zstd has the memory that it asks for");
  return ZSTD_decompressDCtx(static_cast<ZSTD_DCtx*>(decompressor_), page, page_bytes, from, length) == page_bytes;
}

bool is_same_filled(const std::byte* page) {
  return std::memcmp(page, page + sizeof(std::uint64_t), page_bytes - sizeof(std::uint64_t)) == 0;
}

}  // namespace far::backend
