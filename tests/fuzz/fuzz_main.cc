// libFuzzer has a main() of its own; this is what it calls first: it writes the seeds where run.py wants them.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerInitialize(int* /*argument_count*/, char*** /*arguments*/) {
  const char* const folder = std::getenv("FARHEAP_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  std::size_t number = 0;
  for (const far::fuzz::byte_string& seed : far::fuzz::seeds()) {
    const std::string path = std::string(folder) + "/seed-" + std::to_string(number++);
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    const bool written = file != nullptr && std::fwrite(seed.data(), 1, seed.size(), file) == seed.size();
    if (!written || std::fclose(file) != 0) {
      std::fprintf(stderr, "fuzz: cannot write the seed %s\n", path.c_str());
      std::exit(1);
    }
  }
  return 0;
}
