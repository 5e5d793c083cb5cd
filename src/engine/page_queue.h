// A double-ended queue of pages for policies: chunks of local memory, no copying when it grows, none held when empty.
#pragma once

#include <cstddef>

#include "platform/address_space.h"

namespace far::engine {

class page_queue {
 public:
  page_queue() = default;
  ~page_queue();
  page_queue(const page_queue&) = delete;
  page_queue& operator=(const page_queue&) = delete;

  void push_back(platform::page_id page);
  void push_front(platform::page_id page);
  // Requires: not empty.
  [[nodiscard]] platform::page_id pop_front();

  // Takes all pages of another queue to its front, in their order; a step, however many there are.
  void take_to_front(page_queue& other);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  static constexpr std::size_t chunk_pages = 1020;  // a chunk is 8 KiB
  struct chunk {
    chunk* previous = nullptr;
    chunk* next = nullptr;
    std::size_t begin = 0;  // entries [begin, end) are in use
    std::size_t end = 0;
    platform::page_id pages[chunk_pages];
  };

  chunk* new_chunk(std::size_t position);
  void free_chunk(chunk* freed);

  chunk* head_ = nullptr;
  chunk* tail_ = nullptr;
  chunk* spare_ = nullptr;  // keeps a queue that hovers around a chunk's edge from allocating
  std::size_t size_ = 0;
};

}  // namespace far::engine
