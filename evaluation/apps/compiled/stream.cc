// stream: copy, scale, add and triad over three arrays, in the manner of STREAM (J. McCalpin, 1995).
#include <cstddef>
#include <vector>

#include "kernel.h"

namespace {

struct arrays {
  std::vector<double> a;
  std::vector<double> b;
  std::vector<double> c;
};

// The arrays do not overlap.
void copy(const double* __restrict from, double* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
}

void scale(const double* __restrict from, double* __restrict to, std::size_t count, double factor) {
  for (std::size_t i = 0; i < count; ++i) to[i] = factor * from[i];
}

void add(const double* __restrict one, const double* __restrict other, double* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = one[i] + other[i];
}

void triad(const double* __restrict one, const double* __restrict other, double* __restrict to, std::size_t count,
           double factor) {
  for (std::size_t i = 0; i < count; ++i) to[i] = one[i] + factor * other[i];
}

kernels::outcome work(kernels::size asked) {
  const std::size_t count = asked.bytes / sizeof(double) / 3;
  arrays on{std::vector<double>(count), std::vector<double>(count), std::vector<double>(count)};
  for (std::size_t i = 0; i < count; ++i) on.a[i] = static_cast<double>(i % 1021) / 1024;
  const kernels::stopwatch timed;
  for (unsigned round = 0; round < asked.rounds; ++round) {
    copy(on.a.data(), on.c.data(), count);
    scale(on.c.data(), on.b.data(), count, 0.5);
    add(on.a.data(), on.b.data(), on.c.data(), count);
    triad(on.b.data(), on.c.data(), on.a.data(), count, 0.25);
  }
  const double seconds = timed.seconds();
  kernels::checksum found;
  found.add(on.a);
  found.add(on.b);
  found.add(on.c);
  return {seconds, found.value()};
}

}  // namespace

int main(int count, char** arguments) {
  return kernels::run(count, arguments, work);
}
