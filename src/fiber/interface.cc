// The public classes of include/far that wrap those of this folder: they lie in room inside the user's objects.
#include <new>
#include <utility>

#include "base/thread_annotations.h"
#include "base/use_check.h"
#include "far/fiber.h"
#include "fiber/blocking.h"
#include "fiber/condition_variable.h"
#include "fiber/mutex.h"
#include "fiber/scheduler.h"
#include "fiber/semaphore.h"
#include "fiber/this_fiber.h"

namespace far {
namespace {

template <typename Part>
void make(std::byte* room, auto... how) noexcept {
  static_assert(sizeof(Part) <= detail::synchronisation_bytes && alignof(Part) <= 8);
  new (room) Part(how...);
}
template <typename Part>
[[nodiscard]] Part& part(std::byte* room) noexcept {
  return *std::launder(reinterpret_cast<Part*>(room));
}

// The form that the templates of this folder require.
struct erased_lock {
  detail::any_lock any;
  void lock() { any.lock(any.object); }
  void unlock() { any.unlock(any.object); }
};

}  // namespace

mutex::mutex() noexcept {
  make<fiber::mutex>(room_);
}
mutex::~mutex() {
  part<fiber::mutex>(room_).~mutex();
}
void mutex::lock() noexcept FAR_UNCHECKED_LOCKING {
  part<fiber::mutex>(room_).lock();
}
bool mutex::try_lock() noexcept FAR_UNCHECKED_LOCKING {
  return part<fiber::mutex>(room_).try_lock();
}
bool mutex::try_lock_until(detail::deadline at_most) noexcept FAR_UNCHECKED_LOCKING {
  return part<fiber::mutex>(room_).try_lock_until(at_most);
}
void mutex::unlock() noexcept FAR_UNCHECKED_LOCKING {
  part<fiber::mutex>(room_).unlock();
}

condition_variable::condition_variable() noexcept {
  make<fiber::condition_variable>(room_);
}
condition_variable::~condition_variable() {
  part<fiber::condition_variable>(room_).~condition_variable();
}
bool condition_variable::wait_with(detail::any_lock lock, detail::deadline at_most) {
  erased_lock erased{lock};
  return part<fiber::condition_variable>(room_).wait_until(erased, at_most);
}
void condition_variable::notify_one() noexcept {
  part<fiber::condition_variable>(room_).notify_one();
}
void condition_variable::notify_all() noexcept {
  part<fiber::condition_variable>(room_).notify_all();
}

counting_semaphore::counting_semaphore(std::uint64_t permits) noexcept {
  make<fiber::semaphore>(room_, permits);
}
counting_semaphore::~counting_semaphore() {
  part<fiber::semaphore>(room_).~semaphore();
}
bool counting_semaphore::try_acquire() noexcept {
  return part<fiber::semaphore>(room_).try_acquire();
}
bool counting_semaphore::try_acquire_until(detail::deadline at_most) noexcept {
  return part<fiber::semaphore>(room_).try_acquire_until(at_most);
}
void counting_semaphore::release(std::uint64_t permits) noexcept {
  part<fiber::semaphore>(room_).release(permits);
}

namespace this_fiber {

bool is_fiber() noexcept {
  return fiber::on_fiber();
}
void yield() noexcept {
  fiber::yield();
}
void sleep_until(detail::deadline when) noexcept {
  fiber::sleep_until(when);
}

}  // namespace this_fiber

namespace detail {

deadline deadline_after(std::chrono::nanoseconds from_now) noexcept {
  return fiber::after(from_now);
}

void run_blocking(void (*call)(void* context), void* context) {
  fiber::blocking([=] { call(context); });
}

bool running_fiber::join_until(deadline at_most) noexcept {
  FAR_CHECK_USE(fiber_ != nullptr, "a task is joined once");
  fiber::handle mine(*static_cast<fiber::control_block*>(fiber_));
  const bool ended = mine.join_until(at_most);
  fiber_ = mine.release();
  return ended;
}

}  // namespace detail
}  // namespace far
