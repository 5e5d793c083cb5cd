// The engine's surroundings in a process: its threads, and its fibers where it has any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/host.h"
#include "engine/miss_waiter.h"
#include "pager/reclaimer.h"

namespace far::pager {

class process_host final : public engine::host {
 public:
  // `fibers`: how fibers wait, or null where there are none.
  explicit process_host(engine::miss_waiter* fibers) : fibers_(fibers) {}

  // Before the first miss, and in the child of a fork: the thread of the background.
  void set_background(reclaimer& background) { background_ = &background; }

  [[nodiscard]] engine::miss_waiter* fibers() const { return fibers_; }
  // Whether the caller is a fiber.
  [[nodiscard]] bool on_fiber() const { return fibers_ != nullptr && fibers_->on_fiber(); }

  void enter() noexcept override;
  void leave() noexcept override;
  void rest(std::uint64_t nanoseconds) noexcept override;
  void wake_background() noexcept override { background_->wake(); }
  [[nodiscard]] bool has_pollers() const noexcept override { return fibers_ != nullptr; }
  void poll_soon() noexcept override { fibers_->poll_soon(); }
  [[nodiscard]] std::size_t preferred_fetcher() const noexcept override;

 private:
  engine::miss_waiter* fibers_;
  reclaimer* background_ = nullptr;
};

}  // namespace far::pager
