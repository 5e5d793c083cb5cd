// The things that a program may contain besides loops: exceptions, setjmp, variable arguments, atomics, volatile,
// inline assembly, bit-fields, vectors, threads, a container. It prints what it computed, however it was compiled the
// same.
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>

namespace {

constexpr unsigned long prime = 1099511628211ul;
unsigned long size;

struct row {
  unsigned key : 20;
  unsigned kind : 12;
  volatile unsigned seen;
  unsigned long value;
};

unsigned long mix(unsigned long hash, unsigned long value) {
  return (hash ^ value) * prime;
}

// Leaves a loop that walks memory in the middle of a chunk, by an exception.
unsigned long sum_until(const row* rows, unsigned long limit, unsigned long bad) {
  unsigned long total = 0;
  for (unsigned long i = 0; i < limit; ++i) {
    if (rows[i].value == bad) throw std::runtime_error(std::to_string(i));
    total += rows[i].value;
  }
  return total;
}

std::jmp_buf escape;
[[gnu::noinline]] void check(unsigned long value, unsigned long bad) {
  if (value == bad) std::longjmp(escape, 1);
}

unsigned long jump(const row* rows, unsigned long limit, unsigned long bad) {
  volatile unsigned long passed = 0;
  if (setjmp(escape) != 0) return passed;
  for (unsigned long i = 0; i < limit; ++i) {
    check(rows[i].value, bad);
    passed = passed + 1;
  }
  return 0;
}

unsigned long gather(const row* rows, int count, ...) {
  std::va_list list;
  va_start(list, count);
  unsigned long total = 0;
  for (int i = 0; i < count; ++i) total = mix(total, rows[va_arg(list, unsigned long)].value);
  va_end(list);
  return total;
}

using vector [[gnu::vector_size(16)]] = unsigned;
unsigned long vectors(const vector* all, unsigned long count) {
  vector total{};
  for (unsigned long i = 0; i < count; ++i) total += all[i] * 3 ^ all[(i * 7919) % count];
  unsigned long hash = 0;
  for (int i = 0; i < 4; ++i) hash = mix(hash, total[i]);
  return hash;
}

unsigned long swap_in(row* rows, unsigned long count) {
  unsigned long total = 0;
  for (unsigned long i = 0; i < count; ++i) {
    unsigned long value = i;
    unsigned long& place = rows[(i * 40503) % count].value;
    asm volatile("xchg %0, %1" : "+r"(value), "+m"(place));
    total = mix(total, value);
    rows[i].key = static_cast<unsigned>(i) & 0xfffff;
    rows[(i * 31) % count].kind = i & 0xfff;
    rows[i].seen = rows[i].seen + 1;
  }
  return total;
}

void add_up(unsigned long* counters, const row* rows, unsigned long from, unsigned long to) {
  for (unsigned long i = from; i < to; ++i) {
    __atomic_fetch_add(&counters[rows[i].value % size], i, __ATOMIC_RELAXED);
  }
}

}  // namespace

int main(int, char** arguments) {
  size = std::strtoul(arguments[1], nullptr, 10);
  row* const rows = new row[size]();
  for (unsigned long i = 0; i < size; ++i) rows[i].value = i * 0x9e3779b97f4a7c15ul;
  unsigned long hash = 0;
  for (const unsigned long at : {size / 3, size - 1, size}) {
    const unsigned long bad = at < size ? rows[at].value : 1;
    try {
      hash = mix(hash, sum_until(rows, size, bad));
    } catch (const std::runtime_error& found) {
      hash = mix(hash, std::strtoul(found.what(), nullptr, 10));
    }
    hash = mix(hash, jump(rows, size, bad));
  }
  hash = mix(hash, gather(rows, 3, size / 2, 7ul, size - 1));
  vector* const all = new vector[size / 4];
  for (unsigned long i = 0; i < size / 4; ++i) all[i] = vector{} + static_cast<unsigned>(i);
  hash = mix(hash, vectors(all, size / 4));
  hash = mix(hash, swap_in(rows, size));
  unsigned long* const counters = new unsigned long[size]();
  std::thread other(add_up, counters, rows, 0, size / 2);
  add_up(counters, rows, size / 2, size);
  other.join();
  std::unordered_map<unsigned long, unsigned long> map;
  for (unsigned long i = 0; i < size / 4; ++i) map[rows[i].value] += counters[i];
  for (unsigned long i = 0; i < size; ++i) {
    hash = mix(hash, rows[i].key + rows[i].kind + rows[i].seen + counters[i]);
    if (const auto found = map.find(rows[i].value); found != map.end()) hash = mix(hash, found->second);
  }
  std::printf("%lx\n", hash);
  delete[] rows;
  delete[] all;
  delete[] counters;
  return 0;
}
