// far::string: text in far memory; short texts are kept inline (docs/containers.md).
//
//     far::string name(farheap, "a text that is too long for the string itself");
//     const far::scope here(farheap);
//     std::string_view text = name.view(here);  // good until the scope ends
//     if (name == "something") ...              // without a copy, and often without a miss
#pragma once

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "far/detail/pointer.h"
#include "far/scope.h"
#include "far/tag.h"

namespace far {

// 24 bytes. Up to 15 characters lie in it; of a longer text it has the first 7 characters and the length, and owns all
// of it in the far heap. So most comparisons of unequal texts need no miss. It may be an element, key or value of far
// containers and a member of far objects, or lie anywhere else.
//
// Move-only. Functions that make the text longer take the runtime or a tag first, which says where the text lives. The
// text has no terminator. Const operations may run from many fibers and threads at a time.
class string {
 public:
  using value_type = char;
  using size_type = std::size_t;

  // How many characters need no far object.
  static constexpr std::size_t inline_capacity = 15;

  string() noexcept = default;
  // Throws std::length_error and std::bad_alloc; waits for the evictor when local memory is short.
  string(const tag& in, std::string_view text) { append(in, text); }
  string(string&& other) noexcept { take(other); }
  string& operator=(string&& other) noexcept {
    string taken(std::move(other));
    clear();
    take(taken);
    return *this;
  }
  ~string() { clear(); }

  [[nodiscard]] string clone(const tag& in) const {
    string copy;
    copy.reserve(in, size());
    copy.append_to_room(*this);
    return copy;
  }

  [[nodiscard]] std::size_t size() const noexcept { return is_inline() ? inline_size() : far_size(); }
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  [[nodiscard]] static constexpr std::size_t max_size() noexcept { return std::size_t{1} << 46; }
  // Whether the text lies in the string itself, so that no access waits.
  [[nodiscard]] bool is_inline() const noexcept { return room_[last] != far_mark; }

  // The text, until the scope ends or the string changes. Of one above 64 KiB only the beginning is fetched; the rest
  // comes in when it is touched. Requires: `in` is as for a far pointer; if the string is part of a far object, that is
  // dereferenced in it.
  [[nodiscard]] std::string_view view(const scope& in) const {
    if (is_inline()) return {room_, inline_size()};
    return {reinterpret_cast<const char*>(in.reach(word_, false, true)), far_size()};
  }
  [[nodiscard]] std::string_view view(const scope& in, non_temporal_t /*how*/) const {
    if (is_inline()) return {room_, inline_size()};
    return {reinterpret_cast<const char*>(in.reach(word_, false, false)), far_size()};
  }
  template <typename... How>
  std::string_view view(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;

  // A copy.
  [[nodiscard]] std::string str() const {
    std::string copy(size(), '\0');
    copy.resize(this->copy(0, copy));
    return copy;
  }
  // Copies characters from `first` on, as many as there are and fit. Of a long text, only the pages with these
  // characters are fetched. Returns how many. Throws std::out_of_range when first > size().
  std::size_t copy(std::size_t first, std::span<char> into) const {
    const std::size_t all = size();
    if (first > all) throw std::out_of_range("far::string::copy begins beyond the end of the text");
    const std::size_t count = std::min(into.size(), all - first);
    if (count == 0) return 0;
    if (is_inline()) {
      std::memcpy(into.data(), room_ + first, count);
      return count;
    }
    for (std::size_t done = 0; done < count;) {
      const std::size_t now = std::min(count - done, most_held);
      const scope here(detail::runtime_of(word_));
      std::memcpy(into.data() + done, here.reach_part(word_, first + done, now, false, true), now);
      done += now;
    }
    return count;
  }

  // Replace the text. Strong exception guarantee; `text` may be a part of this one, viewed in a scope that is open.
  void assign(const tag& in, std::string_view text) {
    string fresh(in, text);
    swap(fresh);
  }
  // Amortised O(text.size()). Strong exception guarantee; as for assign().
  void append(const tag& in, std::string_view text) {
    if (text.empty()) return;
    const std::size_t before = size();
    if (text.size() > max_size() - before)
      throw std::length_error("a far::string of more text than there are addresses");
    if (before + text.size() <= capacity()) return append_to_room(text);
    string larger;
    larger.reserve(in, before == 0 ? text.size() : std::max(before + text.size(), 2 * before));
    larger.append_to_room(*this);
    larger.append_to_room(text);
    swap(larger);
  }
  // Makes room for so many characters in all.
  void reserve(const tag& in, std::size_t characters) {
    if (characters > max_size()) throw std::length_error("a far::string of more text than there are addresses");
    if (characters <= capacity()) return;
    string larger;
    larger.make_room(in, characters);
    larger.append_to_room(*this);
    swap(larger);
  }
  // Gives a far object back.
  void clear() noexcept {
    if (!is_inline()) detail::release(word_, false);
    std::memset(room_, 0, sizeof room_);
  }

  void swap(string& other) noexcept {
    string taken;
    taken.take(other);
    other.take(*this);
    take(taken);
  }
  friend void swap(string& a, string& b) noexcept { a.swap(b); }

  // Compare characters as unsigned, as std::string does. Read the far text only if the lengths (==) or the first
  // characters do not decide.
  [[nodiscard]] friend bool operator==(const string& a, std::string_view b) {
    return a.size() == b.size() && a.begins_like(b) && a.compare(b) == 0;
  }
  [[nodiscard]] friend bool operator==(const string& a, const string& b) {
    return a.size() == b.size() && a.begins_like(b.beginning()) && a.compare(b) == 0;
  }
  [[nodiscard]] friend std::strong_ordering operator<=>(const string& a, std::string_view b) {
    return a.compare(b) <=> 0;
  }
  [[nodiscard]] friend std::strong_ordering operator<=>(const string& a, const string& b) { return a.compare(b) <=> 0; }
  // Below, equal to or above 0.
  [[nodiscard]] int compare(std::string_view other) const {
    if (is_inline()) return std::string_view(room_, inline_size()).compare(other);
    const std::string_view begins = beginning();
    if (const int first = begins.compare(other.substr(0, begins.size())); first != 0) return first;
    const scope here(detail::runtime_of(word_));
    return view(here).compare(other);
  }
  [[nodiscard]] int compare(const string& other) const {
    if (other.is_inline()) return compare(std::string_view(other.room_, other.inline_size()));
    const std::string_view begins = other.beginning();
    if (const int first = beginning().substr(0, begins.size()).compare(begins); first != 0) return first;
    const scope here(detail::runtime_of(other.word_));
    return compare(other.view(here));
  }

  // That of std::hash<std::string_view>.
  [[nodiscard]] std::size_t hash() const {
    if (is_inline()) return std::hash<std::string_view>()({room_, inline_size()});
    const scope here(detail::runtime_of(word_));
    return std::hash<std::string_view>()(view(here));
  }

  // How many bytes of far memory it owns: none when it is inline.
  [[nodiscard]] std::size_t owned_bytes() const noexcept { return is_inline() ? 0 : far_size(); }

  // Starts to fetch the text, without waiting; as far::unique_ptr::prefetch().
  bool prefetch() const { return is_inline() || detail::prefetch(word_); }

  // For pointers_of.
  void visit_word(detail::type_of_object::word_visitor visit, void* context) { visit(word_, context); }

 private:
  // The room beside the word of the far object. Inline: text, and its length last; so zeros are an empty string.
  // Otherwise the length, the first characters, and a mark last.
  static constexpr std::size_t prefix_at = sizeof(std::uint64_t);
  static constexpr std::size_t last = inline_capacity;
  static constexpr char far_mark = 0x7f;
  static constexpr std::size_t most_held = std::size_t{64} << 10;

  [[nodiscard]] std::size_t inline_size() const noexcept { return static_cast<unsigned char>(room_[last]); }
  [[nodiscard]] std::size_t far_size() const noexcept {
    std::uint64_t count = 0;
    std::memcpy(&count, room_, sizeof count);
    return count;
  }
  void set_far_size(std::uint64_t count) noexcept { std::memcpy(room_, &count, sizeof count); }

  // The part of the text that the string itself has.
  [[nodiscard]] std::string_view beginning() const noexcept {
    if (is_inline()) return {room_, inline_size()};
    return {room_ + prefix_at, std::min(far_size(), last - prefix_at)};
  }
  // Requires: both have the same length.
  [[nodiscard]] bool begins_like(std::string_view other) const noexcept {
    const std::string_view mine = beginning();
    const std::size_t count = std::min(mine.size(), other.size());
    return mine.substr(0, count) == other.substr(0, count);
  }

  // The number of characters that there is room for. If there is a far object, this fetches the page with its size,
  // unless it is large.
  [[nodiscard]] std::size_t capacity() const {
    if (is_inline()) return inline_capacity;
    if (detail::word::is_huge(word_.load(std::memory_order_relaxed))) return detail::bytes_of(word_);
    const scope here(detail::runtime_of(word_));
    static_cast<void>(here.reach(word_, false, true));
    return detail::bytes_of(word_);
  }

  // Requires: it is empty and inline; characters > inline_capacity.
  void make_room(const tag& in, std::size_t characters) {
    detail::owner_word fresh{0};
    if (characters > largest_shared) {
      detail::allocate_pages(in, fresh, characters);
    } else {
      detail::give_way(in);
      const scope here(in.home());
      static_cast<void>(detail::allocate(in, fresh, characters, nullptr));
    }
    detail::move_owner(fresh, word_);
    set_far_size(0);
    room_[last] = far_mark;
  }

  // Requires: there is room.
  void append_to_room(std::string_view text) {
    if (text.empty()) return;
    const std::size_t before = size();
    if (is_inline()) {
      std::memmove(room_ + before, text.data(), text.size());
      room_[last] = static_cast<char>(before + text.size());
      return;
    }
    for (std::size_t done = 0; done < text.size();) {
      const std::size_t now = std::min(text.size() - done, most_held);
      const scope here(detail::runtime_of(word_));
      std::memcpy(here.reach_part(word_, before + done, now, true, true), text.data() + done, now);
      done += now;
    }
    if (before < last - prefix_at) {
      std::memcpy(room_ + prefix_at + before, text.data(), std::min(text.size(), last - prefix_at - before));
    }
    set_far_size(before + text.size());
  }
  // The text of a string that may live in another runtime.
  void append_to_room(const string& other) {
    if (other.is_inline()) return append_to_room({other.room_, other.inline_size()});
    const scope there(detail::runtime_of(other.word_));
    append_to_room(other.view(there));
  }

  // Requires: it is empty and inline.
  void take(string& other) noexcept {
    if (!other.is_inline()) detail::move_owner(other.word_, word_);
    std::memcpy(room_, other.room_, sizeof room_);
    std::memset(other.room_, 0, sizeof other.room_);
  }

  static constexpr std::size_t largest_shared = 4080;

  // Nothing but a word, or 0, is ever here: the evacuator looks at it while the program changes the text.
  mutable detail::owner_word word_{0};
  char room_[inline_capacity + 1] = {};
};

template <>
struct pointers_of<string> {
  static void visit(string& in, auto&& pointer) { pointer(in); }
};

template <>
inline constexpr bool detail::is_zero_at_first<string> = true;

// Hashes far::string, std::string and std::string_view alike, so that a map with far keys can be searched by any of
// them.
struct string_hash {
  using is_transparent = void;
  [[nodiscard]] std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>()(text);
  }
  [[nodiscard]] std::size_t operator()(const string& text) const { return text.hash(); }
};

}  // namespace far

template <>
struct std::hash<far::string> {
  [[nodiscard]] std::size_t operator()(const far::string& text) const { return text.hash(); }
};
