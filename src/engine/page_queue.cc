#include "engine/page_queue.h"

#include <new>

#include "base/check.h"
#include "platform/local_memory.h"

namespace far::engine {

page_queue::~page_queue() {
  while (head_ != nullptr) {
    chunk* const next = head_->next;
    platform::free_local(head_, sizeof(chunk));
    head_ = next;
  }
  if (spare_ != nullptr) platform::free_local(spare_, sizeof(chunk));
}

page_queue::chunk* page_queue::new_chunk(std::size_t position) {
  void* const memory = spare_ != nullptr ? spare_ : platform::allocate_local(sizeof(chunk));
  spare_ = nullptr;
  chunk* const fresh = new (memory) chunk;
  fresh->begin = position;
  fresh->end = position;
  return fresh;
}

void page_queue::free_chunk(chunk* freed) {
  if (spare_ == nullptr) {
    spare_ = freed;
  } else {
    platform::free_local(freed, sizeof(chunk));
  }
}

void page_queue::push_back(platform::page_id page) {
  if (tail_ == nullptr || tail_->end == chunk_pages) {
    chunk* const fresh = new_chunk(0);
    fresh->previous = tail_;
    (tail_ == nullptr ? head_ : tail_->next) = fresh;
    tail_ = fresh;
  }
  tail_->pages[tail_->end++] = page;
  ++size_;
}

void page_queue::push_front(platform::page_id page) {
  if (head_ == nullptr || head_->begin == 0) {
    chunk* const fresh = new_chunk(chunk_pages);
    fresh->next = head_;
    (head_ == nullptr ? tail_ : head_->previous) = fresh;
    head_ = fresh;
  }
  head_->pages[--head_->begin] = page;
  ++size_;
}

platform::page_id page_queue::pop_front() {
  FAR_CHECK(size_ > 0, "pop of an empty queue");
  const platform::page_id page = head_->pages[head_->begin++];
  --size_;
  if (head_->begin == head_->end) {
    chunk* const empty = head_;
    head_ = empty->next;
    (head_ == nullptr ? tail_ : head_->previous) = nullptr;
    free_chunk(empty);
  }
  return page;
}

void page_queue::take_to_front(page_queue& other) {
  if (other.empty()) return;
  other.tail_->next = head_;
  (head_ == nullptr ? tail_ : head_->previous) = other.tail_;
  head_ = other.head_;
  size_ += other.size_;
  other.head_ = nullptr;
  other.tail_ = nullptr;
  other.size_ = 0;
}

}  // namespace far::engine
