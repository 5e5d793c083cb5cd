// The same work by several threads.
#pragma once

#include <thread>
#include <vector>

namespace psort {

// Calls work(0), ..., work(threads - 1), each on a thread of its own, and waits for all of them.
template <typename Work>
void in_parallel(unsigned threads, const Work& work) {
  std::vector<std::jthread> running;
  running.reserve(threads);
  for (unsigned i = 0; i < threads; ++i) running.emplace_back([&work, i] { work(i); });
}

}  // namespace psort
