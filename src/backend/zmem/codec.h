// Compressing pages. LZ4 is fast; zstd makes them smaller and takes several times as long.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace far::backend {

enum class codec_name : std::uint8_t { lz4, zstd };

struct codec_choice {
  codec_name name = codec_name::lz4;
  int level = 1;  // of zstd
};

inline constexpr int most_zstd_level = 19;

// The working memory of one codec, for one thread at a time. Local, and filled when it is first used.
class codec {
 public:
  explicit codec(codec_choice chosen);
  ~codec();
  codec(const codec&) = delete;
  codec& operator=(const codec&) = delete;

  // Compresses a page into at most `most_bytes`; returns the length, or 0 when it does not fit.
  [[nodiscard]] std::size_t compress(const std::byte* page, std::byte* into, std::size_t most_bytes);

  // Returns whether `length` bytes at `from` were a page.
  [[nodiscard]] bool decompress(const std::byte* from, std::size_t length, std::byte* page);

 private:
  const codec_choice chosen_;
  const std::size_t compression_bytes_;
  const std::size_t decompression_bytes_;
  std::byte* const compression_;
  std::byte* const decompression_;
  void* compressor_ = nullptr;  // of zstd, in the memory above
  void* decompressor_ = nullptr;
};

// Whether every 8-byte word of the page is the same.
[[nodiscard]] bool is_same_filled(const std::byte* page);

}  // namespace far::backend
