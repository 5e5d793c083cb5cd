// Small objects all over 24 MiB, which threads read and change, one thread beside them drops, and a child goes on with:
// each value is the one that was written last (-ffar-objects).
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace {

struct object {
  object* next;
  std::uint64_t number;
  double half;
  std::uint32_t changes;
  std::int16_t negative;
  std::int8_t odd;
  char text[5];
};
static_assert(sizeof(object) == 40);

constexpr std::size_t count = 600'000;
constexpr std::size_t stripes = 64;
constexpr std::size_t dropped_bytes = std::size_t{2} << 20;

std::uint64_t mix(std::uint64_t value) {
  value = (value ^ value >> 31) * 0x9e3779b97f4a7c15;
  return value ^ value >> 29;
}

void set(object& one, std::size_t place, std::uint32_t changes) {
  one.number = mix(place + changes);
  one.half = static_cast<double>(place) / 2 + changes;
  one.changes = changes;
  one.negative = static_cast<std::int16_t>(-static_cast<int>(place % 1000));
  one.odd = static_cast<std::int8_t>(place | 1);
  std::snprintf(one.text, sizeof one.text, "%04zx", place % 0x10000);
}

bool is_right(const object& one, std::size_t place) {
  const std::uint32_t changes = one.changes;
  return one.number == mix(place + changes) && one.half == static_cast<double>(place) / 2 + changes &&
         one.negative == -static_cast<int>(place % 1000) && one.odd == static_cast<std::int8_t>(place | 1) &&
         one.next == nullptr && one.text[4] == 0;
}

// Each stripe has a lock; how often an object was changed is known outside, too.
struct striped {
  std::mutex lock;
  std::vector<std::uint8_t> changes = std::vector<std::uint8_t>(count / stripes + 1);
};

std::size_t work(std::vector<object*>& objects, std::vector<striped>& all, std::uint64_t seed, std::size_t steps) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    const std::uint64_t drawn = mix(seed + i * 977);
    const std::size_t place = (drawn % 8 == 0 ? drawn >> 8 : (drawn >> 8) % 2000 * 599) % count;
    striped& mine = all[place % stripes];
    const std::lock_guard held(mine.lock);
    object& one = *objects[place];
    if (!is_right(one, place) || one.changes != mine.changes[place / stripes]) ++wrong;
    if (drawn % 16 == 1) set(one, place, ++mine.changes[place / stripes]);
  }
  return wrong;
}

// Memory that is given back reads as zeros, and not as what was there.
std::size_t drop(unsigned rounds) {
  std::size_t wrong = 0;
  constexpr std::size_t numbers = dropped_bytes / sizeof(std::uint64_t);
  auto* const memory = static_cast<std::uint64_t*>(
      mmap(nullptr, dropped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < numbers; ++i) memory[i] = i + round;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const std::size_t place = mix(i) % numbers;
      if (memory[place] != place + round) ++wrong;
    }
    if (madvise(memory, dropped_bytes, MADV_DONTNEED) != 0) ++wrong;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      if (memory[mix(i) % numbers] != 0) ++wrong;
    }
  }
  return wrong;
}

}  // namespace

int main() {
  auto* const memory = static_cast<object*>(operator new(count * sizeof(object)));
  std::memset(memory, 0, count * sizeof(object));
  std::vector<object*> objects(count);
  std::vector<std::uint32_t> place_of(count);
  for (std::size_t i = 0; i < count; ++i) {
    objects[i] = &memory[i * 7919 % count];
    place_of[i * 7919 % count] = static_cast<std::uint32_t>(i);
  }
  for (std::size_t i = 0; i < count; ++i) set(memory[i], place_of[i], 0);
  std::vector<striped> all(stripes);
  std::size_t wrong[3] = {};
  std::thread other([&] { wrong[0] = work(objects, all, 1, 10'000); });
  std::thread dropper([&] { wrong[1] = drop(2); });
  wrong[2] = work(objects, all, 2'000'003, 10'000);
  other.join();
  dropper.join();
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(work(objects, all, 3, 2'000) == 0 ? 0 : 1);
  wrong[2] += work(objects, all, 4, 2'000);
  int status = 0;
  waitpid(child, &status, 0);
  const bool is_well = wrong[0] + wrong[1] + wrong[2] == 0 && status == 0;
  std::printf("%s\n", is_well ? "right" : "wrong");
  if (!is_well) std::printf("%zu %zu %zu, child %d\n", wrong[0], wrong[1], wrong[2], status);
  operator delete(memory);
  return is_well ? 0 : 1;
}
