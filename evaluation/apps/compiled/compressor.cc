// compressor: text is compressed and decompressed by references to what came before (J. Ziv and A. Lempel, "A universal
// algorithm for sequential data compression", 1977), found by a table of hashes.
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernel.h"

namespace {

constexpr std::size_t shortest_match = 4;
constexpr std::size_t farthest = 65535;
constexpr unsigned table_log2 = 14;

// Words, of which some are frequent, in sentences.
std::vector<char> make_text(std::size_t bytes) {
  apps::random_words random(1);
  std::vector<std::string> words(4096);
  for (std::string& word : words) {
    for (std::size_t letters = 2 + random.next() % 9; letters > 0; --letters) {
      word += static_cast<char>('a' + random.next() % 26);
    }
  }
  std::vector<char> made;
  made.reserve(bytes + 16);
  while (made.size() < bytes) {
    const double draw = random.next_unit();
    const std::string& word = words[static_cast<std::size_t>(draw * draw * draw * static_cast<double>(words.size()))];
    made.insert(made.end(), word.begin(), word.end());
    made.push_back(random.next() % 12 == 0 ? '.' : ' ');
  }
  made.resize(bytes);
  return made;
}

std::uint32_t four_bytes(const char* at) {
  std::uint32_t read = 0;
  std::memcpy(&read, at, sizeof read);
  return read;
}

// Numbers of seven bits a byte, the lowest first; the high bit says that more follow.
char* put_number(char* to, std::size_t number) {
  for (; number >= 128; number >>= 7) *to++ = static_cast<char>(number | 128);
  *to++ = static_cast<char>(number);
  return to;
}

std::size_t get_number(const char*& from) {
  std::size_t number = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(*from++);
    number |= static_cast<std::size_t>(byte & 127) << shift;
    if (byte < 128) return number;
  }
}

char* put_bytes(char* to, const char* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
  return to + count;
}

// The number of literal bytes, these, the length of a match and its distance, and so on; a length of 0 is the end.
// Requires: room for `count` bytes, a quarter of it, and 64 more. Returns the size.
std::size_t compress(const char* text, std::size_t count, char* to) {
  std::array<std::uint32_t, std::size_t{1} << table_log2> table{};
  char* const start = to;
  std::size_t literals_from = 0;
  for (std::size_t at = 1; at + shortest_match <= count;) {
    const std::uint32_t here = four_bytes(text + at);
    std::uint32_t& known = table[(here * 2654435761u) >> (32 - table_log2)];
    const std::size_t before = known;
    known = static_cast<std::uint32_t>(at);
    if (at - before > farthest || four_bytes(text + before) != here) {
      ++at;
      continue;
    }
    std::size_t length = shortest_match;
    while (at + length < count && text[before + length] == text[at + length]) ++length;
    to = put_number(to, at - literals_from);
    to = put_bytes(to, text + literals_from, at - literals_from);
    to = put_number(to, length);
    to = put_number(to, at - before);
    at += length;
    literals_from = at;
  }
  to = put_number(to, count - literals_from);
  to = put_bytes(to, text + literals_from, count - literals_from);
  to = put_number(to, 0);
  return static_cast<std::size_t>(to - start);
}

// Returns the size. Requires: room for the text that was compressed.
std::size_t decompress(const char* from, char* to) {
  char* const start = to;
  while (true) {
    const std::size_t literals = get_number(from);
    to = put_bytes(to, from, literals);
    from += literals;
    const std::size_t length = get_number(from);
    if (length == 0) return static_cast<std::size_t>(to - start);
    const char* const match = to - get_number(from);
    // Byte by byte: a match may overlap what it makes.
    for (std::size_t i = 0; i < length; ++i) to[i] = match[i];
    to += length;
  }
}

kernels::outcome work(kernels::size asked) {
  const std::vector<char> text = make_text(asked.bytes * 2 / 5);
  // Only what is written of it takes memory.
  const auto compressed = std::make_unique_for_overwrite<char[]>(text.size() + text.size() / 4 + 64);
  std::vector<char> again(text.size());
  kernels::checksum found;
  const kernels::stopwatch timed;
  for (unsigned round = 0; round < asked.rounds; ++round) {
    found.add(std::uint64_t{compress(text.data(), text.size(), compressed.get())});
    found.add(std::uint64_t{decompress(compressed.get(), again.data())});
  }
  const double seconds = timed.seconds();
  if (again != text) throw std::runtime_error("the text is another one after compression and decompression");
  return {seconds, found.value()};
}

}  // namespace

int main(int count, char** arguments) {
  return kernels::run(count, arguments, work);
}
