// Replays the seeds of a fuzz target, and the inputs that once broke it (corpus/TARGET), in builds without libFuzzer.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "tests/support/today.h"

namespace far::fuzz {
namespace {

void replay(const std::string& name, std::span<const std::byte> bytes) {
  SCOPED_TRACE(name);
  const tight_copy input(bytes);
  EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.all().data()), bytes.size()), 0);
}

TEST(replay, nothing) {
  replay("no bytes", {});
}

TEST(replay, seeds) {
  const std::vector<byte_string> all = seeds();
  EXPECT_FALSE(all.empty());
  for (std::size_t i = 0; i < all.size(); ++i) replay("seed " + std::to_string(i), all[i]);
}

// Every seed, cut short at every place and with every byte changed, as a fuzzer begins. A day has a quarter of the
// places.
TEST(replay, damaged_seeds) {
  constexpr std::size_t days = 4;
  const std::vector<byte_string> all = seeds();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const byte_string& seed = all[i];
    const std::size_t step = std::max<std::size_t>(1, seed.size() / 200);
    for (std::size_t at = 0; at < seed.size(); at += step) {
      if (!testing_support::is_of_today(i + at / step, days)) continue;
      const std::string where = " of seed " + std::to_string(i) + " at byte " + std::to_string(at);
      replay("cut" + where, std::span(seed).first(at));
      byte_string damaged = seed;
      damaged[at] ^= static_cast<std::byte>(1 << (at % 8));
      replay("damaged" + where, damaged);
    }
  }
}

TEST(replay, corpus) {
  std::vector<std::filesystem::path> paths;
  const std::filesystem::path folder = FAR_FUZZ_CORPUS;  // there once an input has broken the target
  if (!std::filesystem::exists(folder)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::ranges::sort(paths);
  for (const std::filesystem::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), {}};
    replay(path, std::as_bytes(std::span(content)));
  }
}

}  // namespace
}  // namespace far::fuzz
