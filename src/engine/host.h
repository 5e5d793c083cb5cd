// The surroundings of the engine's misses: the threads of a process (pager), or simulated ones (tests/simulation). Only
// this interface differs between them.
//
// Waits for a spin lock use backoff::pause() (base/backoff.h), which the simulation replaces. Waits for a transfer use
// the channel of the backend.
#pragma once

#include <cstddef>
#include <cstdint>

namespace far::engine {

class host {
 public:
  // Around calls of the engine: between them, no lock of it is held.
  virtual void enter() noexcept = 0;
  virtual void leave() noexcept = 0;

  // The calling thread has nothing to do for so long.
  virtual void rest(std::uint64_t nanoseconds) noexcept = 0;

  // background::step() is to be called soon.
  virtual void wake_background() noexcept = 0;

  // Whether other threads than the background poll transfers; if so, poll_soon() tells them that there are some.
  [[nodiscard]] virtual bool has_pollers() const noexcept = 0;
  virtual void poll_soon() noexcept = 0;

  // Where the calling thread begins to look for a fetcher: threads with different values compete less.
  [[nodiscard]] virtual std::size_t preferred_fetcher() const noexcept = 0;

 protected:
  ~host() = default;
};

// While one exists, the calling thread is inside the engine.
class engine_section {
 public:
  explicit engine_section(host& around) noexcept : around_(around) { around_.enter(); }
  ~engine_section() { around_.leave(); }
  engine_section(const engine_section&) = delete;
  engine_section& operator=(const engine_section&) = delete;

 private:
  host& around_;
};

}  // namespace far::engine
