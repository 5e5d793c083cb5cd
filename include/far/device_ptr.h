// Far pointers to the objects of a remote device (AIFM, sections 4.1 and 4.2.4): an object that a memory server has
// already is fetched when it is dereferenced, stays in the far heap as a copy, and goes back when the copy leaves.
//
//     far::device words("tcp://cache1:7070", "sorted");
//     far::device_objects<word> all(farheap, words);
//     const far::device_ptr<word> seventh = all.at(7);  // no call yet
//     const far::scope here(farheap);
//     seventh.deref_mut(here).uses += 1;
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "far/detail/grace.h"
#include "far/detail/leaving_notes.h"
#include "far/detail/own_tag.h"
#include "far/detail/pointer.h"
#include "far/detail/retired.h"
#include "far/device.h"
#include "far/fiber.h"
#include "far/page_lost.h"
#include "far/scope.h"
#include "far/tag.h"

namespace far {

template <typename T>
class device_objects;

// Names an object of a device, wherever it is. A value to copy, also into far objects; it owns nothing. All pointers to
// one object share one copy. Requires of all calls but the comparisons: it is not null, and its device_objects lives.
template <typename T>
class device_ptr {
 public:
  device_ptr() = default;
  device_ptr(std::nullptr_t) {}

  [[nodiscard]] std::uint64_t object() const { return object_; }
  [[nodiscard]] explicit operator bool() const { return home_ != nullptr; }
  [[nodiscard]] bool operator==(const device_ptr&) const = default;

  // The object, for as long as the scope lasts. Without a copy here, asks the device; on a fiber, others run meanwhile.
  // Throws device_error: `no_object`, `refused` when the object has another size, and what a device's read() throws.
  [[nodiscard]] const T& deref(const scope& in) const { return *home_->reach(in, object_, false); }
  [[nodiscard]] T& deref_mut(const scope& in) const { return *home_->reach(in, object_, true); }
  const T& deref(const scope&& the_scope_must_be_a_local_variable) const = delete;
  T& deref_mut(const scope&& the_scope_must_be_a_local_variable) const = delete;

  // Copy the object out or in, without a scope. write() makes it if there is none, and asks the device for nothing.
  [[nodiscard]] T read() const { return home_->read(object_); }
  void write(const T& value) const { home_->write(object_, value); }
  // Erases it at the device at once, and the copy. Throws device_error `no_object` if there was none anywhere.
  void erase() const { home_->erase(object_); }

 private:
  friend class device_objects<T>;
  device_ptr(device_objects<T>& home, std::uint64_t object) : home_(&home), object_(object) {}

  device_objects<T>* home_ = nullptr;
  std::uint64_t object_ = 0;
};

// What was done with the objects of a device, since the start.
struct device_objects_statistics {
  std::uint64_t copies = 0;              // that are here now, in local memory or in the far tier
  std::uint64_t fetched = 0;             // objects
  std::uint64_t written_back = 0;        // objects
  std::uint64_t failed_write_backs = 0;  // their copies are kept
};

// The copies of a device's objects in a far heap. A copy that leaves local memory is given up: once no scope can hold
// it, its bytes go back to the device if they were changed, and it is dropped. A thread does this. If the device does
// not take the bytes, the copy is kept, changed as it is, and tried again every second. Copies may also stay in the far
// tier: when more than 16384 leave at a time, or memory is so short that pages leave under open scopes.
//
// Each copy takes almost 200 bytes of local memory besides. T's bytes are the object's: at most 4064. Takes a tag of
// the runtime until it is destroyed (far/tag.h).
//
// Thread-safe, for fibers, too, but not inside far::blocking(). Holders of references synchronise as for any object.
// Requires: nobody else changes objects of which there are copies here. Around operations of the device that read or
// change objects, use flush() or drop().
template <typename T>
class device_objects {
  static_assert(std::is_trivially_copyable_v<T>, "the device and the program share nothing but bytes");

  struct copy {
    std::uint64_t object;
    T value;
  };
  static_assert(sizeof(copy) <= 4080, "a handler for leaving objects takes none above a page (far/tag.h)");

 public:
  // Requires: the runtime and the device outlive it, and the device is not moved. Throws what far::tag does.
  device_objects(runtime& home, device& at, replacement how = {})
      : home_(home),
        device_(at),
        tag_(tag(home, how, before_leaving<copy>([notes = notes_](const copy& one) { notes->add(one.object); }))),
        thread_([this] { look_after_copies(); }) {}
  // Writes back what it can. Call flush() before, to learn what it cannot. Requires: no scope holds a copy.
  ~device_objects() {
    notes_->end();
    thread_.join();
    try {
      flush();
    } catch (...) {  // as documented
    }
  }
  device_objects(const device_objects&) = delete;
  device_objects& operator=(const device_objects&) = delete;

  // A pointer to an object of the device; whether it is there shows at its first use. Asks nobody.
  [[nodiscard]] device_ptr<T> at(std::uint64_t object) { return {*this, object}; }

  // Writes all changed copies back, and keeps them. Waits until no scope holds one that it has changed, so others must
  // not change them all the time. Throws device_error or page_lost when an object cannot be written back; its copy is
  // kept as it is. Requires: the caller is in no scope.
  void flush() { settle_all(false); }
  // The same, and drops all copies, so that their next use asks the device. Waits until no scope holds any.
  void drop() { settle_all(true); }

  [[nodiscard]] device_objects_statistics statistics() const {
    device_objects_statistics now;
    now.copies = copies_.load(std::memory_order_relaxed);
    now.fetched = fetched_.load(std::memory_order_relaxed);
    now.written_back = written_back_.load(std::memory_order_relaxed);
    now.failed_write_backs = failed_.load(std::memory_order_relaxed);
    return now;
  }

 private:
  friend class device_ptr<T>;
  using clock = std::chrono::steady_clock;

  static constexpr std::chrono::milliseconds nothing_to_do{10'000};
  static constexpr std::chrono::milliseconds pause{5};
  static constexpr std::chrono::seconds before_another_try{1};

  // An object's entry in the index. All but `object` is under the lock, which is also held while the device is called
  // about the object: whoever needs the object waits for that anyway.
  //
  // A copy that is to be written or dropped is marked, and `since` numbers the scopes that may hold it. A dereference
  // takes the mark away, so when these scopes have ended and the mark is still there, nobody holds the copy.
  struct slot {
    enum class mark : std::uint8_t {
      none,
      unchanging,  // nobody changes it: dereferences for reading leave the mark
      leaving,     // nobody uses it
    };
    explicit slot(std::uint64_t number) : object(number) {}
    ~slot() { detail::destroy<copy>(word); }
    slot(const slot&) = delete;
    slot& operator=(const slot&) = delete;

    const std::uint64_t object;
    mutex lock;
    detail::owner_word word{0};  // the copy; 0: none
    mark marked = mark::none;
    bool is_changed = false;
    bool is_gone = false;      // from the index: look again
    bool is_followed = false;  // by the thread
    std::uint32_t since = 0;
  };
  using slot_pointer = std::shared_ptr<slot>;
  using mark = typename slot::mark;

  // ---- use ----

  // Calls use(slot&) with the object's slot locked. A slot that has no copy afterwards is dropped.
  template <typename Use>
  auto with_slot(std::uint64_t object, Use use) {
    for (;;) {
      const slot_pointer found = slot_of(object);
      const std::lock_guard guard(found->lock);
      if (found->is_gone) continue;
      const tidy_end end{*this, *found};
      return use(*found);
    }
  }
  struct tidy_end {
    device_objects& all;
    slot& one;
    ~tidy_end() {
      if (one.word.load(std::memory_order_relaxed) == 0) all.take_out(one);
    }
  };
  [[nodiscard]] slot_pointer slot_of(std::uint64_t object) {
    const std::lock_guard guard(index_lock_);
    slot_pointer& found = index_[object];
    if (found == nullptr) found = std::make_shared<slot>(object);
    return found;
  }
  // Requires: the slot is locked.
  void take_out(slot& one) {
    one.is_gone = true;
    const std::lock_guard guard(index_lock_);
    index_.erase(one.object);
  }

  [[nodiscard]] T* reach(const scope& in, std::uint64_t object, bool write) {
    return with_slot(object, [&](slot& one) {
      copy* const here = is_empty(one) ? nullptr : reach_copy(in, one, write);
      copy* const used = here != nullptr ? here : fetch(in, one, write);
      note_use(one, write);
      return &used->value;
    });
  }
  // A copy that was lost with its far tier is no loss unless it was changed: nullptr.
  [[nodiscard]] copy* reach_copy(const scope& in, slot& one, bool write) {
    try {
      return at_address(in.reach(one.word, write, true));
    } catch (const page_lost&) {
      if (one.is_changed) throw;
      retire(one);
      return nullptr;
    }
  }
  [[nodiscard]] copy* fetch(const scope& in, slot& one, bool write) {
    const std::vector<std::byte> bytes = blocking([&] { return device_.read(one.object); });
    std::array<std::byte, sizeof(T)> room;
    if (bytes.size() != room.size()) {
      throw device_error(device_error::reason::refused, "the object " + std::to_string(one.object) + " has " +
                                                            std::to_string(bytes.size()) +
                                                            " bytes, and its type here " + std::to_string(room.size()));
    }
    std::memcpy(room.data(), bytes.data(), room.size());
    make_copy(one, std::bit_cast<T>(room));
    fetched_.fetch_add(1, std::memory_order_relaxed);
    return at_address(in.reach(one.word, write, true));
  }
  static void note_use(slot& one, bool write) {
    if (write || one.marked == mark::leaving) one.marked = mark::none;
    one.is_changed |= write;
  }

  [[nodiscard]] T read(std::uint64_t object) {
    detail::give_way(tag_.get());
    const scope here(home_);
    return *reach(here, object, false);
  }
  void write(std::uint64_t object, const T& value) {
    detail::give_way(tag_.get());
    const scope here(home_);
    with_slot(object, [&](slot& one) {
      const bool is_there =
          !is_empty(one) && detail::unless_lost([&] { at_address(here.reach(one.word, true, true))->value = value; });
      if (!is_there) {
        retire(one);
        make_copy(one, value);
      }
      note_use(one, true);
    });
  }
  void erase(std::uint64_t object) {
    with_slot(object, [&](slot& one) {
      try {
        blocking([&] { device_.erase(object); });
      } catch (const device_error& why) {
        // It may have been here only.
        if (why.why() != device_error::reason::no_object || !one.is_changed) throw;
      }
      retire(one);
    });
  }

  [[nodiscard]] static bool is_empty(const slot& one) { return one.word.load(std::memory_order_relaxed) == 0; }
  [[nodiscard]] static copy* at_address(std::byte* address) { return std::launder(reinterpret_cast<copy*>(address)); }
  void make_copy(slot& one, const T& value) {
    detail::make_object<copy>(tag_.get(), one.word, copy{one.object, value});
    copies_.fetch_add(1, std::memory_order_relaxed);
  }
  // Takes the copy away; scopes that hold it keep it until they end.
  void retire(slot& one) {
    if (is_empty(one)) return;
    auto old = std::make_unique<detail::retired_list::node>();
    old->end = [](detail::retired_list::node& self) noexcept { detail::destroy<copy>(self.word); };
    detail::move_owner(one.word, old->word);
    retired_.add(std::move(old));
    forget(one);
  }
  void forget(slot& one) {
    one.marked = mark::none;
    one.is_changed = false;
    copies_.fetch_sub(1, std::memory_order_relaxed);
  }

  // ---- write-back ---- Requires of all: the slot is locked.

  static void begin(slot& one, mark wanted) {
    if (one.marked < wanted) one.marked = wanted;
    one.since = detail::note_out_of_reach();
  }
  // Writes a marked copy back, and drops it if it leaves. Returns false when a scope may hold it. When it throws, the
  // slot is as before.
  [[nodiscard]] bool settle(slot& one) {
    if (!detail::have_scopes_ended(one.since)) return false;
    if (one.is_changed) write_back(one);
    if (std::exchange(one.marked, mark::none) == mark::leaving) {
      detail::destroy<copy>(one.word);
      forget(one);
      take_out(one);
    }
    return true;
  }
  void write_back(slot& one) {
    try {
      std::array<std::byte, sizeof(T)> bytes;
      {
        const scope here(home_);
        std::memcpy(bytes.data(), &at_address(here.reach(one.word, false, false))->value, bytes.size());
      }
      blocking([&] { device_.write(one.object, bytes); });
    } catch (...) {
      failed_.fetch_add(1, std::memory_order_relaxed);
      throw;
    }
    one.is_changed = false;
    written_back_.fetch_add(1, std::memory_order_relaxed);
  }

  void settle_all(bool drops) {
    std::vector<slot_pointer> left;
    {
      const std::lock_guard guard(index_lock_);
      for (const auto& [object, one] : index_) left.push_back(one);
    }
    std::exception_ptr first_failure;
    while (!left.empty()) {
      std::erase_if(left, [&](const slot_pointer& one) {
        try {
          return settle_for_caller(*one, drops);
        } catch (const device_error& why) {
          // Others would fail as well, each after a while.
          if (why.why() != device_error::reason::refused && why.why() != device_error::reason::no_object) throw;
          if (first_failure == nullptr) first_failure = std::current_exception();
        } catch (const page_lost&) {
          if (first_failure == nullptr) first_failure = std::current_exception();
        }
        return true;
      });
      if (!left.empty()) this_fiber::sleep_for(pause);
    }
    if (first_failure != nullptr) std::rethrow_exception(first_failure);
  }
  // Returns whether there is nothing left to do. Marks again what was used meanwhile.
  [[nodiscard]] bool settle_for_caller(slot& one, bool drops) {
    const std::lock_guard guard(one.lock);
    if (one.is_gone || (!one.is_changed && !drops)) return true;
    const mark wanted = drops ? mark::leaving : mark::unchanging;
    if (one.marked >= wanted) return settle(one);
    begin(one, wanted);
    return false;
  }

  // ---- the thread ----

  enum class progress : std::uint8_t { none, failed, done };

  void look_after_copies() {
    std::vector<std::uint64_t> noted;
    noted.reserve(detail::leaving_notes::most);
    std::vector<slot_pointer> followed;
    clock::time_point next_try{};
    while (notes_->take(followed.empty() ? nothing_to_do : pause, noted)) {
      for (const std::uint64_t object : noted) follow(object, followed);
      noted.clear();
      std::vector<slot_pointer> failed;
      std::erase_if(followed, [&](const slot_pointer& one) {
        const progress got = settle_for_thread(*one, next_try);
        if (got == progress::failed) failed.push_back(one);
        return got != progress::none;
      });
      // Behind the others, so that one that the device refuses keeps nobody waiting.
      followed.insert(followed.end(), failed.begin(), failed.end());
      retired_.look_after();
    }
  }
  void follow(std::uint64_t object, std::vector<slot_pointer>& into) {
    slot_pointer found;
    {
      const std::lock_guard guard(index_lock_);
      const auto entry = index_.find(object);
      if (entry == index_.end()) return;
      found = entry->second;
    }
    const std::lock_guard guard(found->lock);
    if (found->is_gone || is_empty(*found)) return;
    begin(*found, mark::leaving);
    if (!std::exchange(found->is_followed, true)) into.push_back(std::move(found));
  }
  [[nodiscard]] progress settle_for_thread(slot& one, clock::time_point& next_try) {
    const std::lock_guard guard(one.lock);
    if (!one.is_gone && one.marked == mark::leaving) {
      if (one.is_changed && clock::now() < next_try) return progress::none;
      try {
        if (!settle(one)) return progress::none;
      } catch (const std::exception&) {  // counted; flush() says what it was
        next_try = clock::now() + before_another_try;
        return progress::failed;
      }
    }
    one.is_followed = false;
    return progress::done;
  }

  runtime& home_;
  device& device_;
  const std::shared_ptr<detail::leaving_notes> notes_ = std::make_shared<detail::leaving_notes>();
  const detail::own_tag tag_;
  detail::retired_list retired_{1};
  mutex index_lock_;  // after a slot's
  std::unordered_map<std::uint64_t, slot_pointer> index_;
  std::atomic<std::uint64_t> copies_{0};
  std::atomic<std::uint64_t> fetched_{0};
  std::atomic<std::uint64_t> written_back_{0};
  std::atomic<std::uint64_t> failed_{0};
  std::thread thread_;  // the last, so that it finds the others
};

}  // namespace far
