// Functions on numbers, which statistics.cc makes a plugin of and programs ask for with far::compute().
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

// The sum of squares of the numbers of an interval.
struct square_sum {
  static constexpr const char* plugin = "statistics";
  static constexpr const char* version = "1.0";
  static constexpr std::uint32_t number = 1;

  using element = double;
  struct arguments {
    double lowest = -INFINITY;
    double highest = INFINITY;
  };
  struct result {
    double sum = 0;
    std::uint64_t count = 0;
  };

  static result map(std::span<const double> part, const arguments& within) {
    result found;
    for (const double one : part) {
      if (one < within.lowest || !(one <= within.highest)) continue;
      found.sum += one * one;
      ++found.count;
    }
    return found;
  }
  static void combine(result& all, const result& next) {
    all.sum += next.sum;
    all.count += next.count;
  }
};

// How far neighbours are from each other at most. Neighbours may lie in two pages.
struct largest_step {
  static constexpr const char* plugin = square_sum::plugin;
  static constexpr const char* version = square_sum::version;
  static constexpr std::uint32_t number = 2;

  using element = double;
  struct arguments {};
  struct result {
    double step = 0;
    double first = 0;
    double last = 0;
    std::uint64_t count = 0;
  };

  static result map(std::span<const double> part, const arguments&) {
    if (part.empty()) return {};
    result found{0, part.front(), part.back(), part.size()};
    for (std::size_t i = 1; i < part.size(); ++i) found.step = std::fmax(found.step, std::fabs(part[i] - part[i - 1]));
    return found;
  }
  static void combine(result& all, const result& next) {
    if (next.count == 0) return;
    if (all.count == 0) {
      all = next;
      return;
    }
    all.step = std::fmax(std::fmax(all.step, next.step), std::fabs(next.first - all.last));
    all.last = next.last;
    all.count += next.count;
  }
};
