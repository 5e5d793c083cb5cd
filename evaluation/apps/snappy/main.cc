// snappy: compresses files that are held in memory, and decompresses them again (AIFM, section 8.2.2). Everything is
// read and written once, in order. evaluation/apps/README.md says how to run it.
#include <fmt/format.h>
#include <snappy-sinksource.h>
#include <snappy.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "apps/program.h"
#include "apps/random.h"

namespace {

using byte_vector = memory::vector<char>;

// As much as a scope should hold, and Snappy compresses at a time.
constexpr std::size_t block_bytes = std::size_t{64} << 10;

// The part [first, last) of a file, for Snappy to read where it lies.
class part_source final : public snappy::Source {
 public:
  part_source(const byte_vector& bytes, const memory::scope& in, std::size_t first, std::size_t last)
      : bytes_(bytes), in_(in), at_(first), last_(last) {}

  [[nodiscard]] std::size_t Available() const override { return last_ - at_; }
  const char* Peek(std::size_t* length) override {
    if (at_ == last_) {
      *length = 0;
      return nullptr;
    }
    const auto here = bytes_.chunk(in_, at_, last_ - at_);
    *length = here.size();
    return here.data();
  }
  void Skip(std::size_t count) override { at_ += count; }

 private:
  const byte_vector& bytes_;
  const memory::scope& in_;
  std::size_t at_;
  std::size_t last_;
};

struct file {
  explicit file(memory::runtime& in) : contents(in), compressed(in), restored(in) {}

  byte_vector contents;
  byte_vector compressed;
  std::vector<std::uint32_t> block_sizes;  // of the compressed blocks
  byte_vector restored;
};

// Words of a small language, which Snappy makes about half as long.
void generate(file& into, std::size_t size, std::uint64_t seed) {
  apps::random_words random(seed);
  std::vector<char> block;
  while (into.contents.size() < size) {
    block.clear();
    while (block.size() < std::min(block_bytes, size - into.contents.size())) {
      const std::uint64_t word = random.next();
      fmt::format_to(std::back_inserter(block), "{:x}, ", apps::mix(word & 0xff) >> (word >> 10 & 31));
    }
    block.resize(std::min(block.size(), size - into.contents.size()));
    into.contents.append(block);
  }
}

void compress(file& one) {
  std::vector<char> block(snappy::MaxCompressedLength(block_bytes));
  for (std::size_t first = 0; first < one.contents.size(); first += block_bytes) {
    std::size_t size = 0;
    {
      const memory::scope here(one.contents.home().home());
      part_source from(one.contents, here, first, std::min(first + block_bytes, one.contents.size()));
      snappy::UncheckedByteArraySink to(block.data());
      size = snappy::Compress(&from, &to);
    }
    one.compressed.append(std::span(block).first(size));
    one.block_sizes.push_back(static_cast<std::uint32_t>(size));
  }
}

void decompress(file& one) {
  std::vector<char> block(block_bytes);
  std::size_t first = 0;
  for (const std::uint32_t size : one.block_sizes) {
    std::size_t length = 0;
    {
      const memory::scope here(one.compressed.home().home());
      part_source head(one.compressed, here, first, first + size);
      std::uint32_t restored_bytes = 0;
      part_source body(one.compressed, here, first, first + size);
      if (!snappy::GetUncompressedLength(&head, &restored_bytes) || restored_bytes > block.size() ||
          !snappy::RawUncompress(&body, block.data())) {
        throw std::runtime_error("a compressed block is damaged");
      }
      length = restored_bytes;
    }
    one.restored.append(std::span(block).first(length));
    first += size;
  }
}

// Compares what came back, and returns a hash of both forms.
std::uint64_t verify(const file& one) {
  if (one.restored.size() != one.contents.size()) throw std::runtime_error("a file came back with another length");
  std::uint64_t hash = one.compressed.size();
  const auto add = [&](std::string_view text) { hash = apps::mix(hash ^ std::hash<std::string_view>()(text)); };
  for (std::size_t first = 0; first < one.contents.size(); first += block_bytes) {
    const memory::scope here(one.contents.home().home());
    const auto before = one.contents.chunk(here, first, block_bytes);
    if (!std::ranges::equal(before, one.restored.chunk(here, first, block_bytes))) {
      throw std::runtime_error(
          fmt::format("a file came back changed, between bytes {} and {}", first, first + before.size()));
    }
    add({before.data(), before.size()});
  }
  for (std::size_t first = 0; first < one.compressed.size(); first += block_bytes) {
    const memory::scope here(one.compressed.home().home());
    const auto part = one.compressed.chunk(here, first, block_bytes);
    add({part.data(), part.size()});
  }
  return hash;
}

struct options {
  std::size_t files = 8;
  std::size_t file_bytes = std::size_t{16} << 20;
  std::uint64_t seed = 1;
};

evaluation::json run(const options& chosen, memory::runtime& memory, apps::phases& timed) {
  std::vector<file> files;
  for (std::size_t i = 0; i < chosen.files; ++i) files.emplace_back(memory);
  const auto all = [&](const char* phase, const auto& work) {
    timed.run(phase, [&] {
      apps::in_parallel(memory, files.size(), 1, [&](std::size_t i, std::size_t /*last*/) { work(files[i], i); });
    });
  };
  all("generate", [&](file& one, std::size_t i) { generate(one, chosen.file_bytes, apps::mix(chosen.seed) + i); });
  all("compress", [](file& one, std::size_t /*i*/) { compress(one); });
  all("decompress", [](file& one, std::size_t /*i*/) { decompress(one); });
  std::vector<std::uint64_t> hashes(files.size());
  all("verify", [&](const file& one, std::size_t i) { hashes[i] = verify(one); });
  std::size_t compressed = 0;
  std::uint64_t checksum = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    compressed += files[i].compressed.size();
    checksum = apps::mix(checksum ^ hashes[i]);
  }
  const std::size_t bytes = chosen.files * chosen.file_bytes;
  return {{"bytes", bytes},
          {"compressed_bytes", compressed},
          {"working_set_bytes", 2 * bytes + compressed},
          {"checksum", fmt::format("{:016x}", checksum)}};
}

}  // namespace

int main(int count, char** arguments) {
  options chosen;
  apps::program program("snappy", "Compresses files in memory with Snappy, and decompresses them again.");
  program.options().add_number("--files", chosen.files, "how many, several at a time", 1u, 1u << 16);
  program.options().add_size("--file-bytes", chosen.file_bytes,
                             "size of each, such as 16M; about 2.5 times that is held", std::size_t{1} << 40);
  program.options().add_seed(chosen.seed, "the contents are a function of it");
  return program.run(count, arguments,
                     [&](memory::runtime& memory, apps::phases& timed) { return run(chosen, memory, timed); });
}
