// Access to elements by their index: the common part of far::vector and far::array.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <ranges>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "far/detail/answers.h"
#include "far/detail/bounds.h"
#include "far/detail/chunk_store.h"
#include "far/detail/sequence.h"
#include "far/scope.h"
#include "far/summary.h"

namespace far::detail {

// An element that is copied to another index: the one, and where it was.
struct scattered {
  std::size_t index, position;
  auto operator<=>(const scattered&) const = default;
};

// A number of elements and their storage. Functions that take a scope return references, which are valid until it ends;
// the others return copies.
template <typename T, std::size_t Elements>
class elements {
  static_assert(std::has_single_bit(Elements), "a far object of a container has a power of two of elements");

 public:
  using value_type = T;
  using size_type = std::size_t;
  using difference_type = std::ptrdiff_t;
  using reference = T&;
  using const_reference = const T&;
  using store = element_store<chunk_store<T, Elements>>;
  using iterator = element_iterator<store, T>;
  using const_iterator = element_iterator<store, const T>;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] static constexpr std::size_t max_size() noexcept { return (std::size_t{1} << 46) / sizeof(T); }
  // The runtime or tag that the container was constructed with.
  [[nodiscard]] const tag& home() const noexcept { return chunks_.home(); }

  // One element. Requires: index < size(); checked in checked builds.
  [[nodiscard]] const T& deref(const scope& in, std::size_t index) const { return *place(in, index, false); }
  [[nodiscard]] T& deref_mut(const scope& in, std::size_t index) { return *place(in, index, true); }
  // An element that is used once: it does not displace what is used often. The same of ranges and chunks, below.
  [[nodiscard]] const T& deref(const scope& in, std::size_t index, non_temporal_t /*how*/) const {
    return *place(in, index, false, false);
  }
  [[nodiscard]] T& deref_mut(const scope& in, std::size_t index, non_temporal_t /*how*/) {
    return *place(in, index, true, false);
  }
  // Throw std::out_of_range when there is no such element.
  [[nodiscard]] const T& at(const scope& in, std::size_t index) const {
    if (index >= size_) throw_out_of_range(index, size_);
    return *place(in, index, false);
  }
  [[nodiscard]] T& at_mut(const scope& in, std::size_t index) {
    if (index >= size_) throw_out_of_range(index, size_);
    return *place(in, index, true);
  }
  // Require: !empty().
  [[nodiscard]] const T& front(const scope& in) const { return deref(in, 0); }
  [[nodiscard]] T& front_mut(const scope& in) { return deref_mut(in, 0); }
  [[nodiscard]] const T& back(const scope& in) const { return deref(in, size_ - 1); }
  [[nodiscard]] T& back_mut(const scope& in) { return deref_mut(in, size_ - 1); }

  // Copy one element out, or as many as `into` has, from `first` on. Throw std::out_of_range.
  [[nodiscard]] T read(std::size_t index) const
    requires std::copy_constructible<T>
  {
    const scope here(home().home());
    return at(here, index);
  }
  void read(std::size_t first, std::span<T> into) const
    requires std::is_copy_assignable_v<T>
  {
    require(first, into.size());
    for_stretches(first, into.size(), [&](const scope& here, std::size_t from, std::size_t count) {
      std::ranges::copy(chunks_.places(here, from, count, false), into.begin() + signed_of(from - first));
    });
  }
  // The same of elements that are used once: those that are not here are copied from where they are, and stay there.
  void read(std::size_t first, std::span<T> into, non_temporal_t /*how*/) const
    requires(std::is_trivially_copyable_v<T> && !has_far_pointers<T> && page_bytes_of_chunks % sizeof(T) == 0)
  {
    require(first, into.size());
    for (std::size_t now = 0; !into.empty(); first += now, into = into.subspan(now)) {
      now = std::min(into.size(), store::window - first % store::window);
      const scope here(home().home());
      chunks_.copy(here, first, now, into.data());
    }
  }
  // Copy elements in.
  void write(std::size_t index, T value) {
    const scope here(home().home());
    at_mut(here, index) = std::move(value);
  }
  void write(std::size_t first, std::span<const T> from)
    requires std::is_copy_assignable_v<T>
  {
    require(first, from.size());
    for_stretches(first, from.size(), [&](const scope& here, std::size_t to, std::size_t count) {
      std::ranges::copy(from.subspan(to - first, count), chunks_.places(here, to, count, true).begin());
    });
  }
  // All elements, or `count` of them, become `value`. Pages that are remote, and of which nothing else is left, are not
  // fetched; where the value is zeros, they take no memory afterwards, here or there. Throws std::out_of_range.
  void fill(const T& value)
    requires std::is_copy_assignable_v<T>
  {
    fill(0, size_, value);
  }
  void fill(std::size_t first, std::size_t count, const T& value)
    requires std::is_copy_assignable_v<T>
  {
    require(first, count);
    if constexpr (is_plain) {
      const T copy = value;  // it may be one of them
      const bool is_zero = is_zeros(copy);
      for_stretches(first, count, [&](const scope& here, std::size_t at, std::size_t now) {
        chunks_.forget(here, at, now, is_zero);
        if (!is_zero) std::ranges::fill(chunks_.places(here, at, now, true), copy);
      });
    } else {
      for_stretches(first, count, [&](const scope& here, std::size_t at, std::size_t now) {
        std::ranges::fill(chunks_.places(here, at, now, true), value);
      });
    }
  }

  // All elements as a random-access range. Each iterator keeps a stretch of elements local, a longer one the longer it
  // walks in one direction, and prefetches those ahead. For writing, all elements of the stretch count as changed.
  [[nodiscard]] auto range(const scope& in) const {
    return std::ranges::subrange(const_iterator(chunks_, in, 0, size_), const_iterator(chunks_, in, size_, size_));
  }
  [[nodiscard]] auto range_mut(const scope& in) {
    return std::ranges::subrange(iterator(chunks_, in, 0, size_), iterator(chunks_, in, size_, size_));
  }
  [[nodiscard]] auto range(const scope& in, non_temporal_t /*how*/) const {
    using passing = element_iterator<store, const T, false>;
    return std::ranges::subrange(passing(chunks_, in, 0, size_), passing(chunks_, in, size_, size_));
  }
  [[nodiscard]] auto range_mut(const scope& in, non_temporal_t /*how*/) {
    using passing = element_iterator<store, T, false>;
    return std::ranges::subrange(passing(chunks_, in, 0, size_), passing(chunks_, in, size_, size_));
  }

  // All elements as a range of spans of plain memory, each at most 64 KiB or a far object: one check for each.
  [[nodiscard]] auto chunks(const scope& in) const { return chunk_view<store, const T>(chunks_, in, 0, size_, true); }
  [[nodiscard]] auto chunks_mut(const scope& in) { return chunk_view<store, T>(chunks_, in, 0, size_, true); }
  [[nodiscard]] auto chunks(const scope& in, non_temporal_t /*how*/) const {
    return chunk_view<store, const T>(chunks_, in, 0, size_, false);
  }
  [[nodiscard]] auto chunks_mut(const scope& in, non_temporal_t /*how*/) {
    return chunk_view<store, T>(chunks_, in, 0, size_, false);
  }
  // The elements from `first` on, up to the end of their chunk, and at most so many. A call that continues where the
  // last one ended counts as a walk, and prefetches the elements ahead. Requires: first < size().
  [[nodiscard]] std::span<const T> chunk(const scope& in, std::size_t first, std::size_t at_most = SIZE_MAX) const {
    return chunk_at(in, first, at_most, false);
  }
  [[nodiscard]] std::span<T> chunk_mut(const scope& in, std::size_t first, std::size_t at_most = SIZE_MAX) {
    return chunk_at(in, first, at_most, true);
  }
  [[nodiscard]] std::span<const T> chunk(const scope& in, std::size_t first, std::size_t at_most,
                                         non_temporal_t /*how*/) const {
    return chunk_at(in, first, at_most, false, false);
  }
  [[nodiscard]] std::span<T> chunk_mut(const scope& in, std::size_t first, std::size_t at_most,
                                       non_temporal_t /*how*/) {
    return chunk_at(in, first, at_most, true, false);
  }

  // Calls visit(span, index of its first element) for all chunks, on several fibers at a time, in any order, and waits.
  // An exception from `visit` is thrown here, and no more chunks begin. Call it from a fiber or an OS thread.
  template <std::invocable<std::span<const T>, std::size_t> Visit>
  void for_each_chunk(Visit visit) const {
    visit_pieces(*this, [&](std::size_t first, std::size_t count) {
      const scope here(home().home());
      visit(std::span<const T>(chunks_.places(here, first, count, false)), first);
    });
  }
  template <std::invocable<std::span<T>, std::size_t> Visit>
  void for_each_chunk_mut(Visit visit) {
    visit_pieces(*this, [&](std::size_t first, std::size_t count) {
      const scope here(home().home());
      visit(chunks_.places(here, first, count, true), first);
    });
  }

  // How many numbers of the interval there are, their sum, minimum and maximum. Those that are remote are not fetched,
  // unless the far tier cannot reduce them, or `where` says so (docs/containers.md). Several fibers do it; from a fiber
  // or an OS thread.
  template <reducible Number = T>
    requires std::same_as<Number, T>
  [[nodiscard]] summary<Number> summarize(const interval<Number>& within = {}, work where = work::there) const {
    const reduction how{number_type_of<T>(), bits_of(within.lowest), bits_of(within.highest)};
    constexpr std::size_t piece = std::max(Elements, elements_per_object<T>);
    std::vector<reduced_numbers> found((size_ + piece - 1) / piece);
    visit_on_fibers(home().home(), found.size(), [&](std::size_t number) {
      const std::size_t first = number * piece;
      if (where == work::here) prefetch_after(first, piece);
      for_stretches(first, std::min(piece, size_ - first), [&](const scope& here, std::size_t at, std::size_t count) {
        if (where == work::here) static_cast<void>(chunks_.places(here, at, count, false));
        add_reduced(how, chunks_.reduce(here, at, count, how), found[number]);
      });
    });
    reduced_numbers all;
    for (const reduced_numbers& part : found) add_reduced(how, part, all);
    return summary<T>(all);
  }

  // Asks about all numbers, and calls visit(index of the first, how many, answer as detail::reduction_kind says) for
  // each page of them, in order. For far/query.h, and as summarize(). Requires: see detail::reduction.
  template <std::invocable<std::size_t, std::size_t, const std::byte*> Visit>
  void visit_answers(const reduction& how, Visit visit, work where = work::there) const
    requires reducible<T>
  {
    visit_part_answers(0, size_, nullptr, how, answer_visitor(visit), where);
  }
  // The same of `count` numbers from `first` on. Throws std::out_of_range.
  template <std::invocable<std::size_t, std::size_t, const std::byte*> Visit>
    requires reducible<T>
  void visit_answers(std::size_t first, std::size_t count, const reduction& how, Visit visit,
                     work where = work::there) const {
    require(first, count);
    visit_part_answers(first, first + count, nullptr, how, answer_visitor(visit), where);
  }
  // The same of the numbers from `first` on, as many as groups, which they belong to. Throws std::out_of_range.
  // Requires: the question has groups.
  template <std::invocable<std::size_t, std::size_t, const std::byte*> Visit>
  void visit_group_answers(std::size_t first, std::span<const std::uint8_t> groups, const reduction& how, Visit visit,
                           work where) const
    requires reducible<T>
  {
    require(first, groups.size());
    visit_part_answers(first, first + groups.size(), groups.data(), how, answer_visitor(visit), where);
  }

  // The page that the element begins, without an access to it; null if there are no whole pages of elements. For
  // questions about rows. Requires: it begins one.
  [[nodiscard]] const std::byte* page_of(std::size_t index) const { return chunks_.page_of(index); }

  // Has the function look at `count` elements from `first` on, and calls visit(index of the first, how many, result)
  // for each part of a page, in order. For far/compute.h. Throws std::out_of_range.
  template <std::invocable<std::size_t, std::size_t, const std::byte*> Visit>
  void visit_function_results(std::size_t first, std::size_t count, const page_function& function, work where,
                              Visit visit) const
    requires std::is_trivially_copyable_v<T>
  {
    require(first, count);
    const reduction how{.kind = reduction_kind::computed, .function = &function};
    visit_part_answers(first, first + count, nullptr, how, answer_visitor(visit), where);
  }

  // Copies elements out by their indices; into[i] is that of indices[i]. Remote elements are read alone, 512 bytes
  // around each, and their pages stay where they are; those that lie in one page, one after the other, are read at
  // once. Several fibers do it. Before anything is copied, throws std::out_of_range, and std::invalid_argument unless
  // into.size() == indices.size().
  void gather(std::span<const std::size_t> indices, std::span<T> into) const
    requires std::is_trivially_copyable_v<T>
  {
    require_equal("gather()", indices.size(), into.size());
    for (const std::size_t index : indices) require(index, 1);
    constexpr std::size_t piece = 256;
    visit_on_fibers(home().home(), (indices.size() + piece - 1) / piece, [&](std::size_t number) {
      const std::size_t end = std::min(indices.size(), (number + 1) * piece);
      for (std::size_t at = number * piece; at < end;) at = gather_run(indices, into, at, end);
    });
  }

  // Copies elements in by their indices: that of indices[i] becomes from[i]. Pages come in side by side, and each once,
  // whatever the order of the indices; of equal ones, the last counts. Several fibers do it, and it takes 16 bytes of
  // local memory for an index. Before anything is copied, throws std::out_of_range, and std::invalid_argument unless
  // from.size() == indices.size().
  void scatter(std::span<const std::size_t> indices, std::span<const T> from)
    requires std::is_trivially_copyable_v<T>
  {
    require_equal("scatter()", indices.size(), from.size());
    std::vector<scattered> order;
    order.reserve(indices.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
      require(indices[i], 1);
      order.push_back({indices[i], i});
    }
    std::sort(order.begin(), order.end());
    // No two pieces have elements of one page.
    constexpr std::size_t piece = 256;
    std::vector<std::size_t> begins;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const bool is_in_next_page = i == 0 || order[i].index / store::window != order[i - 1].index / store::window;
      if (is_in_next_page && (begins.empty() || i - begins.back() >= piece)) begins.push_back(i);
    }
    visit_on_fibers(home().home(), begins.size(), [&](std::size_t number) {
      const std::size_t end = number + 1 < begins.size() ? begins[number + 1] : order.size();
      for (std::size_t i = begins[number]; i < end; ++i) {
        const scope here(home().home());
        *place(here, order[i].index, true) = from[order[i].position];
      }
    });
  }

  // Copies `count` elements of `from`, from `first` on, to those from `to` on. Remote pages of `from` stay where they
  // are, and pages that are overwritten as a whole are not fetched. Several fibers do it. Throws std::out_of_range, and
  // std::invalid_argument when `from` is this container and the ranges overlap. Requires: nobody writes to `from`.
  void copy_from(const elements& from, std::size_t first, std::size_t count, std::size_t to)
    requires std::is_trivially_copyable_v<T>
  {
    from.require(first, count);
    require(to, count);
    if (this == &from && first < to + count && to < first + count) {
      throw std::invalid_argument("far containers: copy_from() of ranges that overlap");
    }
    constexpr std::size_t piece = std::max(Elements, elements_per_object<T>);
    const std::size_t skipped = to % piece;
    visit_on_fibers(home().home(), (skipped + count + piece - 1) / piece, [&](std::size_t number) {
      const std::size_t begin = std::max(to, to - skipped + number * piece);
      const std::size_t end = std::min(to + count, to - skipped + (number + 1) * piece);
      for_stretches(begin, end - begin,
                    [&](const scope& here, std::size_t at, std::size_t now) { chunks_.forget(here, at, now, false); });
      for (std::size_t at = begin; at < end;) at += copy_window(from, first + (at - to), at, end - at);
    });
  }

  // Starts to bring elements in, without waiting. Throws std::out_of_range.
  void prefetch(std::size_t first, std::size_t count) const {
    require(first, count);
    chunks_.prefetch(first, count);
  }
  // Plugs in a prefetcher, which moves along with the elements; an empty one gives the container's own back. Requires:
  // nobody uses the container meanwhile.
  void prefetch_by(prefetcher own) {
    chunks_.own_prefetcher = own ? std::make_unique<prefetcher>(std::move(own)) : nullptr;
  }

  template <typename... How>
  const T& deref(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  T& deref_mut(const scope&& the_scope_must_be_a_local_variable, How...) = delete;
  template <typename... How>
  const T& at(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  T& at_mut(const scope&& the_scope_must_be_a_local_variable, How...) = delete;
  void front(const scope&& the_scope_must_be_a_local_variable) const = delete;
  void front_mut(const scope&& the_scope_must_be_a_local_variable) = delete;
  void back(const scope&& the_scope_must_be_a_local_variable) const = delete;
  void back_mut(const scope&& the_scope_must_be_a_local_variable) = delete;
  template <typename... How>
  void range(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  void range_mut(const scope&& the_scope_must_be_a_local_variable, How...) = delete;
  template <typename... How>
  void chunks(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  void chunks_mut(const scope&& the_scope_must_be_a_local_variable, How...) = delete;
  template <typename... How>
  void chunk(const scope&& the_scope_must_be_a_local_variable, How...) const = delete;
  template <typename... How>
  void chunk_mut(const scope&& the_scope_must_be_a_local_variable, How...) = delete;

 protected:
  explicit elements(const tag& in) : chunks_(in) { require_relocatable<T>(); }
  elements(elements&& other) noexcept
      : chunks_(std::move(other.chunks_)), size_(std::exchange(other.size_, 0)), used_(std::exchange(other.used_, 0)) {}
  elements& operator=(elements&& other) noexcept {
    if (this == &other) return *this;
    truncate(0);
    chunks_ = std::move(other.chunks_);
    size_ = std::exchange(other.size_, 0);
    used_ = std::exchange(other.used_, 0);
    return *this;
  }
  ~elements() { truncate(0); }

  void grow(std::size_t wanted) {
    if (wanted > max_size()) throw_too_long();
    chunks_.grow(wanted, size_);
  }

  // Adds `count` elements, all or none. make(raw memory, count) constructs a stretch of them, or none when it throws.
  template <typename Make>
  void append_stretches(std::size_t count, Make make) {
    if (count > max_size() - size_) throw_too_long();
    const std::size_t before = size_;
    grow(before + count);
    try {
      for_stretches(before, count, [&](const scope& here, std::size_t first, std::size_t now) {
        used_ = std::max(used_, first + now);
        make(chunks_.places(here, first, now, true).data(), now);
        size_ = first + now;
      });
    } catch (...) {
      truncate(before);
      throw;
    }
  }

  // Adds value-initialised elements. Room that was never used is zeros already, and is not touched.
  void append_values(std::size_t count) {
    if (count > max_size() - size_) throw_too_long();
    if (!starts_as_zeros<T>()) {
      return append_stretches(count,
                              [](T* first, std::size_t now) { std::uninitialized_value_construct_n(first, now); });
    }
    const std::size_t end = size_ + count;
    grow(end);
    const std::size_t dirty = std::min(end, used_);
    if (dirty > size_) {
      for_stretches(size_, dirty - size_, [&](const scope& here, std::size_t first, std::size_t now) {
        std::uninitialized_value_construct_n(chunks_.places(here, first, now, true).data(), now);
      });
    }
    size_ = end;
    used_ = std::max(used_, size_);
  }

  // Destroys the elements from `count` on, but for those that are lost.
  void truncate(std::size_t count) noexcept {
    if constexpr (!std::is_trivially_destructible_v<T>) {
      if (size_ > count) {
        for_stretches(count, size_ - count, [&](const scope& here, std::size_t first, std::size_t now) {
          if (unless_lost([&] { destroy_elements(chunks_.places(here, first, now, true).data(), now); })) return;
          for (std::size_t i = first; i < first + now; ++i) {
            static_cast<void>(unless_lost([&] { destroy_elements(chunks_.places(here, i, 1, true).data(), 1); }));
          }
        });
      }
    }
    size_ = std::min(size_, count);
  }

  [[nodiscard]] T* place(const scope& in, std::size_t index, bool write, bool lasting = true) const {
#if defined(FARHEAP_CHECKED)
    if (index >= size_) throw_out_of_range(index, size_);
#endif
    if (T* const at = chunks_.place_in_window(in, index, write)) [[likely]]
      return at;
    return place_further(in, index, write, lasting);
  }
  [[nodiscard, gnu::noinline]] T* place_further(const scope& in, std::size_t index, bool write, bool lasting) const {
    if (chunks_.own_prefetcher != nullptr) chunks_.ask_own(in, index, size_);
    return chunks_.place(in, index, write, lasting);
  }

  template <typename Visit>
  void for_stretches(std::size_t first, std::size_t count, Visit visit) const {
    for (std::size_t now = 0; count > 0; first += now, count -= now) {
      now = store::stretch(first, count);
      const scope here(home().home());
      visit(here, first, now);
    }
  }

  store chunks_;
  std::size_t size_ = 0;
  std::size_t used_ = 0;  // how many ever were since the room was zeros; at least size_

 private:
  // The numbers from `from` up to `to`. `groups`: of them, or null.
  void visit_part_answers(std::size_t from, std::size_t to, const std::uint8_t* groups, const reduction& how,
                          const answer_visitor& visit, work where) const {
    constexpr std::size_t piece = std::max(Elements, elements_per_object<T>);
    // So many pieces at a time, because the answers of all might be many.
    std::vector<answers> found(std::min<std::size_t>((to - from + piece - 1) / piece, 128));
    for (std::size_t begin = from; begin < to; begin += found.size() * piece) {
      const std::size_t pieces = std::min(found.size(), (to - begin + piece - 1) / piece);
      visit_on_fibers(home().home(), pieces, [&](std::size_t number) {
        const std::size_t first = begin + number * piece;
        found[number].restart(how);
        const bool is_here =
            where == work::here || (how.function != nullptr && how.function->refused->load(std::memory_order_relaxed));
        if (is_here) prefetch_after(first, piece);
        for_stretches(first, std::min(piece, to - first), [&](const scope& here, std::size_t at, std::size_t count) {
          if (is_here) static_cast<void>(chunks_.places(here, at, count, false));
          chunks_.answer(here, at, count, how, found[number].sink(),
                         groups == nullptr ? nullptr : groups + (at - from));
        });
      });
      for (std::size_t number = 0; number < pieces; ++number) {
        found[number].visit(begin + number * piece, sizeof(T), visit);
      }
    }
  }
  [[nodiscard]] std::span<T> chunk_at(const scope& in, std::size_t first, std::size_t at_most, bool write,
                                      bool lasting = true) const {
    const std::size_t count = store::stretch(first, std::min(at_most, size_ - first));
    const std::size_t next = first + count;
    if (chunks_.own_prefetcher != nullptr) {
      chunks_.ask_own(in, first, size_);
      return chunks_.places(in, first, count, write, lasting);
    }
    std::atomic_ref<std::size_t> walk(walk_at_);
    std::atomic_ref<std::size_t> asked(walk_asked_);
    if (first == 0 || walk.load(std::memory_order_relaxed) != first) {
      asked.store(next, std::memory_order_relaxed);
    } else {
      const std::size_t from = std::max(next, asked.load(std::memory_order_relaxed));
      const std::size_t until = std::min(size_, next + elements_ahead<T>);
      // Several pieces at a time when they are small.
      if (from < until && (until == size_ || until - from >= elements_ahead<T> / 4)) {
        asked.store(until, std::memory_order_relaxed);
        chunks_.look_ahead(in, from, until - from);
      }
    }
    walk.store(next, std::memory_order_relaxed);
    return chunks_.places(in, first, count, write, lasting);
  }

  // Where the last call of chunk() ended, and how far ahead elements were requested: guesses where threads share it.
  alignas(std::atomic_ref<std::size_t>::required_alignment) mutable std::size_t walk_at_ = 0;
  alignas(std::atomic_ref<std::size_t>::required_alignment) mutable std::size_t walk_asked_ = 0;

  // For the fiber that takes the next piece.
  void prefetch_after(std::size_t first, std::size_t piece) const {
    if (size_ - first > piece) chunks_.prefetch(first + piece, std::min(piece, size_ - first - piece));
  }

  // Those from `at` on that lie in one page, in ascending order. Returns where the next run begins.
  std::size_t gather_run(std::span<const std::size_t> indices, std::span<T> into, std::size_t at,
                         std::size_t end) const {
    const scope here(home().home());
    const std::size_t first = indices[at];
    if constexpr (page_bytes_of_chunks % sizeof(T) != 0) {
      into[at] = *place(here, first, false);
      return at + 1;
    } else {
      constexpr std::size_t window = store::window;
      std::size_t behind = at + 1;
      while (behind < end && indices[behind] >= indices[behind - 1] && indices[behind] / window == first / window) {
        ++behind;
      }
      const std::size_t count = indices[behind - 1] - first + 1;
      alignas(std::max(alignof(T), std::size_t{8})) std::array<std::byte, window * sizeof(T)> room;
      T* const copy = reinterpret_cast<T*>(room.data());
      chunks_.copy(here, first, count, copy);
      for (; at < behind; ++at) into[at] = copy[indices[at] - first];
      return behind;
    }
  }

  // Up to `most` elements that lie in one page of both containers. Returns how many.
  std::size_t copy_window(const elements& from, std::size_t first, std::size_t to, std::size_t most) {
    constexpr std::size_t window = store::window;
    const std::size_t count = std::min({most, window - first % window, window - to % window});
    const scope there(from.home().home());
    const scope here(home().home());
    if constexpr (page_bytes_of_chunks % sizeof(T) != 0) {
      for (std::size_t i = 0; i < count; ++i) *place(here, to + i, true) = *from.place(there, first + i, false);
    } else {
      alignas(std::max(alignof(T), std::size_t{8})) std::array<std::byte, window * sizeof(T)> room;
      T* const copy = reinterpret_cast<T*>(room.data());
      from.chunks_.copy(there, first, count, copy);
      std::memcpy(static_cast<void*>(chunks_.places(here, to, count, true).data()), copy, count * sizeof(T));
    }
    return count;
  }

  // Whose bytes are all that there is to it.
  static constexpr bool is_plain = std::is_trivially_copyable_v<T> && !has_far_pointers<T>;
  [[nodiscard]] static bool is_zeros(const T& value) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(std::addressof(value));
    return std::all_of(bytes, bytes + sizeof(T), [](std::byte one) { return one == std::byte{0}; });
  }

  static std::ptrdiff_t signed_of(std::size_t value) { return static_cast<std::ptrdiff_t>(value); }

  void require(std::size_t first, std::size_t count) const { require_range(first, count, size_); }

  // Pieces that are large enough for a fiber each, and small enough for a scope to hold.
  template <typename Visit>
  static void visit_pieces(const elements& all, const Visit& visit) {
    constexpr std::size_t piece = std::max(Elements, elements_per_object<T>);
    visit_on_fibers(all.home().home(), (all.size_ + piece - 1) / piece, [&](std::size_t number) {
      const std::size_t end = std::min(all.size_, (number + 1) * piece);
      all.prefetch_after(number * piece, piece);
      for (std::size_t first = number * piece; first < end;) {
        const std::size_t count = store::stretch(first, end - first);
        visit(first, count);
        first += count;
      }
    });
  }
};

}  // namespace far::detail
