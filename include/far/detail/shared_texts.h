// The dictionary of a column of texts (far/column.h), shared until it changes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace far::detail {

// Different texts, each with a code: its index. Copies share them until one of the copies adds a text, which takes
// texts of its own first: what others read is never written. Codes that copies had stay the same in all of them. Copies
// may be used at a time from many threads, and the const functions of one. One that was moved from can only be
// destroyed, or assigned to.
class shared_texts {
 public:
  shared_texts() : held_(std::make_unique<content>().release()) {}
  shared_texts(const shared_texts& other) noexcept : held_(other.held_) {
    held_->users.fetch_add(1, std::memory_order_relaxed);
  }
  shared_texts(shared_texts&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  shared_texts& operator=(shared_texts other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  ~shared_texts() {
    if (held_ != nullptr && held_->users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete held_;
  }

  [[nodiscard]] const std::vector<std::string>& all() const { return held_->all; }
  // -1: it is none of them.
  [[nodiscard]] std::int32_t find(std::string_view text) const {
    const auto found = held_->code_of.find(std::string(text));
    return found == held_->code_of.end() ? -1 : found->second;
  }
  // The code of a text, which is one of them from now on.
  std::int32_t add(const std::string& text) {
    const auto found = held_->code_of.find(text);
    if (found != held_->code_of.end()) return found->second;
    // Only this one can make it more than one user again. What the last other one read, it read before this is written.
    if (held_->users.load(std::memory_order_acquire) != 1) *this = own_copy();
    const auto code = static_cast<std::int32_t>(held_->all.size());
    held_->all.push_back(text);
    try {
      held_->code_of.emplace(text, code);
    } catch (...) {
      held_->all.pop_back();
      throw;
    }
    return code;
  }

 private:
  struct content {
    std::vector<std::string> all;
    std::unordered_map<std::string, std::int32_t> code_of;
    std::atomic<std::size_t> users{1};
  };

  [[nodiscard]] shared_texts own_copy() const {
    shared_texts copy;
    copy.held_->all = held_->all;
    copy.held_->code_of = held_->code_of;
    return copy;
  }

  content* held_;
};

}  // namespace far::detail
