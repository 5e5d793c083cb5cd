#include "far/runtime.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "base/use_check.h"
#include "far/detail/api.h"
#include "far/detail/pointer.h"
#include "far/memory_resource.h"
#include "far/tag.h"
#include "fiber/blocking.h"
#include "fiber/scheduler.h"
#include "heap/evacuator.h"
#include "heap/fiber_misses.h"
#include "heap/heap.h"
#include "heap/living_runtimes.h"
#include "heap/process_control.h"
#include "heap/scope_filter.h"
#include "pager/hints.h"
#include "pager/pager.h"
#include "platform/kernel_features.h"

namespace far {

namespace {

constexpr std::chrono::microseconds pause_under_pressure{20};

// Asks the program whether to continue with zeros.
class loss_handler final : public pager::lost_access_handler {
 public:
  explicit loss_handler(std::function<bool(const void*)> goes_on) : goes_on_(std::move(goes_on)) {}

  // Before the pager starts to ask about pages of the heap.
  void attach(const detail::object_heap& objects) { objects_.store(&objects, std::memory_order_release); }

  // Headers and pointers of small objects are never zeros.
  [[nodiscard]] bool goes_on_with_zeros(const std::byte* page) noexcept override {
    const detail::object_heap* const objects = objects_.load(std::memory_order_acquire);
    if (goes_on_ == nullptr || objects == nullptr) return false;
    const auto address = reinterpret_cast<std::uintptr_t>(page);
    return !objects->segments.holds_small_objects(address) && goes_on_(page);
  }

 private:
  std::function<bool(const void*)> goes_on_;
  std::atomic<const detail::object_heap*> objects_{nullptr};
};

struct not_the_first : std::runtime_error {
  not_the_first() : std::runtime_error("there is a process-wide far::runtime already") {}
};

}  // namespace

// In the order in which they depend on each other; destroyed from the last.
struct runtime::parts {
  fiber::scheduler workers;
  heap::fiber_misses misses;
  heap::scope_filter filter;
  loss_handler losses;
  std::unique_ptr<pager::page_guard> far;
  std::unique_ptr<detail::object_heap> objects;
  std::unique_ptr<heap::evacuator> compactor;

  unsigned pressure_watch = 0;  // the poller's number
  bool watches = false;
  bool answers = false;

  explicit parts(const runtime_options& chosen)
      : workers({.workers = chosen.workers}), misses(workers), losses(chosen.goes_on_without) {}

  // While frames run out, running fibers yield at their next guard (AIFM, section 5.4).
  void watch_pressure() {
    pressure_watch = workers.add_poller([this] {
      if (far->under_pressure()) {
        workers.request_yield();
        return std::chrono::nanoseconds(pause_under_pressure);
      }
      workers.withdraw_yield_request();
      return std::chrono::nanoseconds::max();  // until pages leave
    });
    watches = true;
    filter.attach(
        *objects,
        [](void* self) {
          auto& mine = *static_cast<parts*>(self);
          mine.workers.poll_soon(mine.pressure_watch);
        },
        this);
  }

  // Pointers into the far heap are found, commands and hints are answered, and runtime::process() may return it. Throws
  // what refuses that, and then nothing of it is so.
  void publish(runtime& self, const runtime_options& chosen) {
    heap::living.add(self, *objects);
    try {
      if (chosen.answers_commands) {
        heap::answer_for(*far);
        answers = true;
      }
      pager::serve_hints(*far);
      // At last: others use it from now on.
      if (chosen.process_wide && !heap::living.make_process_wide(self)) throw not_the_first();
    } catch (...) {
      withdraw(self);
      throw;
    }
  }
  void withdraw(runtime& self) noexcept {
    if (std::exchange(answers, false)) heap::stop_answering_for(*far);
    pager::stop_serving_hints(*far);
    heap::living.remove(self);
  }

  ~parts() {
    if (objects != nullptr) objects->finish_prefetches();
    compactor.reset();
    misses.stop();
    if (watches) workers.remove_poller(pressure_watch);
    if (objects != nullptr) objects->stop_allocating();
    far.reset();  // evicts until here, and asks about pages of `objects`
    objects.reset();
  }
};

namespace {

// Each has a stack, and looks at the queues of all others. No machine that we know of has as many CPUs.
constexpr unsigned most_workers = 1024;

void check_share(const char* name, double share) {
  if (share >= 0) return;
  throw std::runtime_error("far::runtime: " + std::string(name) + " is " + std::to_string(share) +
                           "; it is a share, from 0 on, and above 1 for never");
}

// What the pager does not look at.
const runtime_options& checked(const runtime_options& chosen) {
  if (chosen.workers > most_workers) {
    throw std::runtime_error("far::runtime cannot start: workers is " + std::to_string(chosen.workers) + "; at most " +
                             std::to_string(most_workers) + " are possible, and 0 is one for each CPU");
  }
  check_share("page_path_share", chosen.page_path_share);
  check_share("evacuate_garbage_share", chosen.evacuate_garbage_share);
  return chosen;
}

pager::options pager_options(const runtime_options& chosen) {
  pager::options wanted;
  wanted.budget_bytes = chosen.local_bytes;
  wanted.far_uri = chosen.far;
  wanted.heap_bytes = chosen.address_bytes;
  wanted.mode =
      chosen.hardware_guard == runtime_options::guard::in_line ? pager::fault_mode::in_line : pager::fault_mode::thread;
  wanted.policy = chosen.policy;
  wanted.pace = {.free_share = chosen.free_ahead_share, .pages_a_batch = chosen.eviction_batch};
  wanted.object_readers = 8;
  return wanted;
}

runtime_options options_of_environment() {
  runtime_options chosen;
  if (const char* const bytes = std::getenv("FARHEAP_LOCAL"); bytes != nullptr) {
    const result<std::uint64_t> parsed = parse_size(bytes);
    if (!parsed) throw std::runtime_error("FARHEAP_LOCAL: " + parsed.error().message);
    chosen.local_bytes = parsed.value();
  }
  if (const char* const uri = std::getenv("FARHEAP_FAR"); uri != nullptr) chosen.far = uri;
  chosen.process_wide = true;
  return chosen;
}

}  // namespace

runtime::runtime(const runtime_options& chosen) : parts_(new parts(checked(chosen))) {
  std::unique_ptr<parts> unless_started(parts_);
  if (!platform::probe_kernel().membarrier) {
    throw std::runtime_error("far::runtime needs membarrier(2); use a kernel from 4.14 on, and allow the call");
  }
  pager::options wanted = pager_options(chosen);
  wanted.fibers = &parts_->misses;
  wanted.filter = &parts_->filter;
  wanted.lost_access = &parts_->losses;
  result<std::unique_ptr<pager::page_guard>> guard = pager::create_page_guard(wanted);
  if (!guard) throw std::runtime_error("far::runtime cannot start: " + guard.error().message);
  parts_->far = std::move(guard).value();
  parts_->misses.serve(*parts_->far);
  parts_->objects = std::make_unique<detail::object_heap>(*parts_->far, parts_->workers);
  parts_->losses.attach(*parts_->objects);
  parts_->objects->paths.set_share(chosen.page_path_share);
  parts_->watch_pressure();
  parts_->compactor = std::make_unique<heap::evacuator>(*parts_->objects, chosen.evacuate_garbage_share);
  view_ = parts_->objects->view();
  slow_view_ = parts_->objects->slow_view();
  parts_->publish(*this, chosen);
  static_cast<void>(unless_started.release());
}

// Everything that its fibers use is there until the last of them has ended. On one of them, which is waiting here, this
// is exit(), of a process that has the runtime in a static variable: then all stays for those that run on, and the
// kernel takes it back.
runtime::~runtime() {
  heap::check_outside_handlers();
  if (parts_->workers.is_running_caller()) {
    log_line(log_level::warning,
             "a far::runtime was destroyed on one of its own fibers, as exit() there does; its threads and memory stay "
             "until the process ends");
    return;
  }
  // On a fiber of another runtime: those that this one's fibers and threads wait for may need its worker.
  fiber::blocking([this] {
    const std::unique_ptr<parts> ends_last(parts_);
    parts_->workers.wait_for_all();
    parts_->withdraw(*this);
  });
}

runtime& runtime::process() {
  while (true) {
    if (runtime* const set = heap::living.process_wide(); set != nullptr) return *set;
    try {
      // Never destroyed: far pointers in static variables may outlive everything else.
      static runtime* const from_environment = new runtime(options_of_environment());
      return *from_environment;
    } catch (const not_the_first&) {
      // Another thread was faster, with a process-wide runtime of its own; or that has just ended, and there is room.
    } catch (const std::runtime_error&) {
      // For want of what another thread's has, perhaps.
      if (runtime* const set = heap::living.process_wide(); set != nullptr) return *set;
      throw;
    }
  }
}

fiber::scheduler& runtime::fibers() noexcept {
  return parts_->workers;
}

void runtime::resize(std::size_t local_bytes) {
  const result<void> done = heap::choose_budget(*parts_->far, local_bytes);
  if (!done) throw std::runtime_error(done.error().message);
}

void runtime::add_server(std::string_view server) {
  const result<void> done = parts_->far->add_server(server);
  if (!done) throw std::runtime_error(done.error().message);
}

std::uint64_t runtime::remove_server(std::string_view server) {
  const result<std::uint64_t> left = parts_->far->remove_server(server, removal::begin);
  if (!left) throw std::runtime_error(left.error().message);
  return left.value();
}

std::uint64_t runtime::removal_left(std::string_view server) {
  const result<std::uint64_t> left = parts_->far->remove_server(server, removal::go_on);
  if (!left) throw std::runtime_error(left.error().message);
  return left.value();
}

std::size_t runtime::evacuate(double garbage_share) {
  return parts_->compactor->run_round(garbage_share);
}

void runtime::evict_all() {
  detail::object_heap& objects = *parts_->objects;
  // Scopes that others have open end soon, unless their threads are kept from running for long.
  constexpr std::chrono::seconds patience{1};
  objects.evict(objects.memory.base(), objects.memory.end_of_mapped() - objects.memory.base(), patience);
}

void runtime::set_page_path_share(double share) {
  check_share("page_path_share", share);
  parts_->objects->paths.set_share(share);
}

runtime_statistics runtime::statistics() const {
  const heap::counters& count = parts_->objects->count;
  const engine::statistics pages = parts_->far->snapshot();
  return {.budget_bytes = pages.budget_bytes,
          .local_bytes = pages.local_bytes,
          .far_bytes = pages.far_bytes,
          .object_fetches = count.object_fetches.load(),
          .object_fetch_bytes = count.object_fetch_bytes.load(),
          .page_fetches = count.page_fetches.load(),
          .fetched_pages = pages.fetched_pages,
          .evicted_pages = pages.evicted_pages,
          .object_path_pages = count.object_path_pages.load(),
          .page_path_pages = count.page_path_pages.load(),
          .held_pages = count.kept_pages.load(),
          .forced_pages = count.forced_pages.load(),
          .evacuated_objects = count.evacuated_objects.load(),
          .evacuated_segments = count.evacuated_segments.load(),
          .lost_races = count.lost_races.load(),
          .reduced_pages = count.reduced_pages.load(),
          .handled_objects = count.handled_objects.load(),
          .backend_errors = pages.backend_errors,
          .lost_pages = pages.lost_pages,
          .abandoned_objects = count.abandoned_objects.load()};
}

void runtime::validate() const {
  parts_->objects->finish_prefetches();
  const std::unique_lock nothing_moves = parts_->compactor->stop_rounds();
  parts_->far->validate();
  parts_->objects->validate();
}

tag::tag(runtime& home, replacement how) : tag(home, how, nullptr) {}

tag::tag(runtime& home, replacement how, leaving_handler handler) : runtime_(&home) {
  if (how.hotness_bits > heap::heat_bits) {
    throw std::invalid_argument("far::replacement: hotness_bits is " + std::to_string(how.hotness_bits) +
                                "; 0 to 3 are possible");
  }
  if (how.priority >= heap::priorities) {
    throw std::invalid_argument("far::replacement: priority is " + std::to_string(how.priority) +
                                "; 0 to 3 are possible");
  }
  const std::optional<heap::tag_key> key =
      detail::heap_of(home).add_tag({.most_heat = static_cast<std::uint16_t>((1u << how.hotness_bits) - 1),
                                     .by_recency = how.order == replacement_order::lru,
                                     .priority = static_cast<std::uint8_t>(how.priority)},
                                    std::move(handler));
  if (!key) {
    throw std::runtime_error(
        "a far::runtime has at most 15 tags; give back those that are not needed any more, outside scopes, or share "
        "one "
        "among data structures of a kind");
  }
  key_ = *key;
}

void tag::give_back() const {
  heap::check_outside_handlers();
  if (key_ != 0) detail::heap_of(*runtime_).give_back(key_);
}

namespace detail {

void* start_fiber(runtime& on, const spawn_options& how, void (*body)(void* state) noexcept, void* state) {
  return on.fibers().spawn([=] { body(state); }, {.stack_bytes = how.stack_bytes, .name = how.name}).release();
}

object_heap& heap_of(runtime& home) noexcept {
  return *home.parts_->objects;
}

runtime& runtime_of(const owner_word& owner) {
  const std::uintptr_t address = word::address(owner.load(std::memory_order_relaxed));
  FAR_CHECK_USE(address != 0, "a far pointer that is read or written points to an object, and this one is null");
  runtime* const home = heap::living.find(address);
  FAR_CHECK_USE(home != nullptr, "far pointers are gone before their far::runtime is, and this one was left");
  return *home;
}

std::byte* touch(runtime& in, std::atomic<std::uint64_t>& owner, bool write, bool lasting) {
  heap::check_outside_handlers();
  return heap_of(in).touch(owner, write, lasting);
}

std::byte* touch_part(runtime& in, std::uint64_t value, std::size_t offset, std::size_t bytes, bool write,
                      bool lasting) {
  heap::check_outside_handlers();
  return heap_of(in).touch_part(value, offset, bytes, write, lasting);
}

void* allocate_plain(runtime& in, std::uint32_t tag, std::size_t bytes, std::size_t alignment) {
  heap::check_outside_handlers();
  return heap_of(in).allocate_plain(bytes, alignment, tag);
}

void release_plain(runtime& in, void* memory, std::size_t bytes, std::size_t alignment) noexcept {
  heap::check_outside_handlers();
  heap_of(in).plain.release(reinterpret_cast<std::uintptr_t>(memory), bytes, alignment);
}

void give_way(const tag& in) {
  heap::check_outside_handlers();
  heap_of(in.home()).give_way();
}

std::byte* allocate(const tag& in, owner_word& owner, std::size_t bytes, const type_of_object* type,
                    std::size_t alignment, bool lasting) {
  heap::check_outside_handlers();
  const heap::segment_kind where = lasting ? heap::segment_kind::lasting : heap::segment_kind::passing;
  return heap_of(in.home()).allocate(owner, bytes, alignment, type, where, in.key());
}

void allocate_pages(const tag& in, owner_word& owner, std::size_t bytes, std::uint32_t stripe) {
  heap::check_outside_handlers();
  // Neighbouring stripes go to different servers, if there are enough of them.
  const auto beside =
      stripe == 0 ? backend::no_affinity : static_cast<backend::affinity>(1 + stripe % backend::affinities);
  heap_of(in.home()).allocate_pages(owner, bytes, in.key(), beside);
}

void move_owner(owner_word& from, owner_word& to) {
  heap::check_outside_handlers();
  if (from.load(std::memory_order_relaxed) == 0) {
    to.store(0, std::memory_order_relaxed);
  } else {
    heap_of(runtime_of(from)).move_owner(from, to);
  }
}

void release(owner_word& owner, bool owns_others) {
  heap::check_outside_handlers();
  if (owner.load(std::memory_order_relaxed) != 0) heap_of(runtime_of(owner)).release(owner, owns_others);
}

std::size_t bytes_of(const owner_word& owner) {
  return heap_of(runtime_of(owner)).bytes_of(owner.load(std::memory_order_relaxed));
}

bool is_any_lost(const owner_word& owner) {
  return heap_of(runtime_of(owner)).is_any_lost(owner.load(std::memory_order_relaxed));
}

void answer_part(const owner_word& owner, std::size_t offset, std::size_t bytes, const reduction& how,
                 const answer_sink& to, const std::uint8_t* groups) {
  heap::check_outside_handlers();
  heap_of(runtime_of(owner)).answer_part(owner.load(std::memory_order_relaxed), offset, bytes, how, to, groups);
}

void ask_about_rows(const tag& in, const reduction& how, std::span<question_about_rows> asked) {
  heap::check_outside_handlers();
  heap_of(in.home()).ask_about_rows(how, asked);
}

void note_places(const tag& in, std::span<const std::byte* const> pages, std::span<std::uint64_t> places) {
  heap_of(in.home()).note_places(pages, places);
}

bool is_question(const reduction& about_rows) {
  return is_valid(about_rows);
}

void answer_local(const std::byte* bytes, std::size_t count, const reduction& how, const answer_sink& to,
                  const std::uint8_t* groups) {
  alignas(8) std::array<std::byte, most_answer_bytes> found;
  for (std::size_t done = 0; done < count;) {
    const std::size_t now = std::min(count - done, page_bytes);
    find(how, {bytes + done, now}, found.data(), groups == nullptr ? nullptr : groups + done / number_bytes(how.type));
    to.take(to.context, now, found.data());
    done += now;
  }
}

void copy_part(const owner_word& owner, std::size_t offset, std::size_t bytes, std::byte* to) {
  heap::check_outside_handlers();
  heap_of(runtime_of(owner)).copy_part(owner.load(std::memory_order_relaxed), offset, bytes, to);
}

void forget_part(const owner_word& owner, std::size_t offset, std::size_t bytes, bool here_too) {
  heap::check_outside_handlers();
  heap_of(runtime_of(owner)).forget_part(owner.load(std::memory_order_relaxed), offset, bytes, here_too);
}

reduced_numbers reduce_part(const owner_word& owner, std::size_t offset, std::size_t bytes, const reduction& how) {
  struct all_parts {
    const reduction& how;
    reduced_numbers found;
  } all{how, {}};
  const auto take = [](void* context, std::size_t /*bytes*/, const std::byte* answer) {
    auto& to = *static_cast<all_parts*>(context);
    reduced_numbers found;
    std::memcpy(&found, answer, sizeof found);
    add(to.how, found, to.found);
  };
  answer_part(owner, offset, bytes, how, {take, &all}, nullptr);
  return all.found;
}

std::size_t bytes_of_answer(const reduction& how) {
  return found_bytes(how);
}

reduced_numbers reduce_bytes(const std::byte* bytes, std::size_t count, const reduction& how) {
  return reduce(how, {bytes, count});
}

void add_reduced(const reduction& how, const reduced_numbers& found, reduced_numbers& to) {
  add(how, found, to);
}

void prefetch_part(owner_word& owner, std::size_t offset, std::size_t bytes) {
  heap::check_outside_handlers();
  heap_of(runtime_of(owner)).prefetch_part(owner.load(std::memory_order_relaxed), offset, bytes);
}

bool is_local(const owner_word& owner) {
  return heap_of(runtime_of(owner)).is_local(owner);
}

bool prefetch(owner_word& owner) {
  heap::check_outside_handlers();
  return owner.load(std::memory_order_relaxed) == 0 || heap_of(runtime_of(owner)).prefetch(owner);
}

}  // namespace detail
}  // namespace far

// The symbol that far/hint.h looks for; in the same file as the runtime, so that linking one brings the other.
extern "C" FAR_API const far_hint_view* far_hint_find_view() {
  return &far::pager::hint_view();
}
