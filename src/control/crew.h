// Threads that answer requests which may take their time, each one request at a time.
//
// A thread stays when it has answered, and waits for the next request. To detach it, or to join it, would call the
// program's pthread_detach() or pthread_join(), and those of a sanitizer end the program for a thread that they have
// not seen start.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>

namespace far::control {

class crew {
 public:
  static constexpr std::size_t most_threads = 8;
  static constexpr std::size_t most_request_bytes = 512;

  // A request in the hands of a thread.
  class task {
   public:
    [[nodiscard]] int peer() const { return peer_; }
    // Until end().
    [[nodiscard]] std::string_view request() const { return {request_.data(), request_bytes_}; }
    // The thread may be given its next request, which then waits until `work` has returned.
    void end() {
      std::uint32_t busy = state_busy;
      state_.compare_exchange_strong(busy, state_idle);
    }

   private:
    friend class crew;
    // Who finds it idle (give()), or asked (the thread), owns the rest.
    static constexpr std::uint32_t state_idle = 0;
    static constexpr std::uint32_t state_asked = 1;
    static constexpr std::uint32_t state_busy = 2;
    static constexpr std::uint32_t state_over = 3;

    std::atomic<std::uint32_t> state_{state_idle};
    int peer_ = -1;
    std::array<char, most_request_bytes> request_{};
    std::size_t request_bytes_ = 0;
    std::thread thread_;
  };

  // `work` answers the request, calls task::end() once, and closes the peer. `name`: of the threads; a literal.
  crew(const char* name, std::function<void(task&)> work);
  // Waits for the requests under way.
  ~crew();
  crew(const crew&) = delete;
  crew& operator=(const crew&) = delete;

  // In the child of a fork: the threads are the parent's, and so are the requests that they have.
  void forget_threads() noexcept;

  // Whether a thread goes on with the request, and closes the peer. Never waits. Requires: one thread at a time calls
  // it, and the request has at most most_request_bytes.
  enum class taken : std::uint8_t {
    yes,
    all_busy,
    no_thread,  // the system starts none
  };
  [[nodiscard]] taken give(int peer, std::string_view request);

 private:
  [[nodiscard]] bool start(task& mine);
  void run(task& mine) const;

  const char* const name_;
  const std::function<void(task&)> work_;
  std::array<task, most_threads> all_;
};

}  // namespace far::control
