// How `farheap top`, `farheap resize PID SIZE`, `farheap add-server PID HOST:PORT`, `farheap remove-server PID
// HOST:PORT` and `farheap stats PID` reach the runtime inside a running program.
//
// The program listens on the abstract unix socket "\0farheap-PID" (SOCK_SEQPACKET), or where that is taken on
// "\0farheap-PID.1", ".2", and so on. One connection carries one request and one reply, a line of text each:
//
//     farheap/1 resize BYTES\n      ->  farheap/1 ok\n
//     farheap/1 add-server NAME\n   ->  farheap/1 ok\n
//     farheap/1 remove-server NAME\n -> farheap/1 ok BYTES\n, that are still to be moved: 0 when the server is not used
//                                       any more
//     farheap/1 removal NAME\n      ->  the same, of a removal that has begun; to be asked again until it is 0. A
//                                       server of that name that was added meanwhile stays
//     farheap/1 stats\n             ->  farheap/1 ok {"budget_bytes": ..., ...}\n, of this process alone;
//                                       "in_job" with 1 at the end where it has a job
//     farheap/1 job\n               ->  farheap/1 ok\n, and a descriptor of the job's file (preload/job_region.h)
//     farheap/1 bring ADDRESS BYTES read\n -> farheap/1 ok\n: the far memory there is local now, for a process that
//                                       reads it by process_vm_readv; "write" for one that writes. farheap/1 again\n:
//                                       too many others ask for theirs
//     anything else                 ->  farheap/1 error MESSAGE\n
//
// Only the same user and root are answered; "job SECRET" with the job's own secret is always answered: a process of the
// job that has given up its rights. No behaviour of a peer, nor of a far tier, delays the runtime for longer than
// control_deadline_ms; connecting to a new server may.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/removal.h"
#include "base/result.h"
#include "engine/statistics.h"

namespace far::control {

inline constexpr int control_deadline_ms = 500;            // for one peer, from its connection to its reply
inline constexpr std::size_t control_request_bytes = 512;  // longer requests are refused
inline constexpr std::size_t control_reply_bytes = 16384;

// The requests that the runtime serves. Called by the thread that calls control_server::step(), but bring: by a thread
// of its own, as the far tier may take its time.
struct control_callbacks {
  void* context = nullptr;
  result<void> (*resize)(void* context, std::uint64_t budget_bytes) = nullptr;
  engine::statistics (*stats)(void* context) = nullptr;
  result<void> (*add_server)(void* context, std::string_view server) = nullptr;
  // Returns how many bytes are still to be moved.
  result<std::uint64_t> (*remove_server)(void* context, std::string_view server, removal step) = nullptr;
  // Of a process that is part of a job (preload/job.h): a descriptor of the job's file, and the secret of its name.
  // Null: it is on its own.
  int (*job_file)(void* context) = nullptr;
  std::string (*job_secret)(void* context) = nullptr;
  // Of a program with far memory: brings a part of it in. Null: what another process could read is not far.
  result<void> (*bring)(void* context, std::uintptr_t address, std::size_t bytes, bool to_write) = nullptr;
};

// The longest range of one request for memory.
inline constexpr std::size_t control_brought_bytes = std::size_t{64} << 10;

class crew;

class control_server {
 public:
  // Starts to listen as the calling process. Where that is impossible (all its names are taken, sockets are forbidden)
  // it warns, and serves no peer. Requires: all callbacks are set, those of a job both or neither.
  [[nodiscard]] static std::unique_ptr<control_server> open(const control_callbacks& callbacks);

  // Whether peers can connect.
  [[nodiscard]] bool listens() const { return listener_ >= 0; }

  // In the child of a fork: releases the parent's name, so that the parent's next program can take it after exec.
  void settle_in_child() noexcept;

  // Closes the descriptors without a message to anybody, so it is also right in the child of a fork.
  ~control_server();
  control_server(const control_server&) = delete;
  control_server& operator=(const control_server&) = delete;

  // Waits up to `timeout_ms` (-1: without end) for a peer or for wake(), and serves at most one peer. Returns false
  // after wake(), for good. One thread at a time.
  [[nodiscard]] bool step(int timeout_ms);

  // Ends the step() under way and every later one, where there was a descriptor for that. Any thread; safe inside a
  // signal handler.
  void wake() noexcept;

 private:
  control_server(const control_callbacks& callbacks, int listener, int waker);

  [[nodiscard]] bool serve(int peer);
  [[nodiscard]] std::size_t answer(std::string_view request, char* reply);
  [[nodiscard]] std::size_t answer_stats(char* reply);
  [[nodiscard]] std::size_t answer_removal(std::string_view server, removal step, char* reply);
  [[nodiscard]] bool is_secret(std::string_view request) const;
  void send_job(int peer) const;
  [[nodiscard]] result<void> obey(std::string_view request);

  void stop_listening() noexcept;

  control_callbacks callbacks_;
  int listener_;
  int waker_;
  std::unique_ptr<crew> bringers_;  // for each request its own, as a far tier may take its time
};

// The other side, for the command line: sends `request` ("stats", "resize 1073741824") to the runtime in process `pid`
// and returns the text after "ok". Errors: no process listens, the listener is another process, no reply in five
// seconds ("add-server": thirty), or the reply is an error; each says what to do.
[[nodiscard]] result<std::string> send_control_request(pid_t pid, std::string_view request);

// The same to all of them at once: the reply of processes[i] is the i-th. Nobody keeps the others waiting: those that
// have not replied after `timeout_ms` are errors. So are some of more than 256 processes when the caller has too few
// descriptors.
[[nodiscard]] std::vector<result<std::string>> send_control_requests(std::span<const pid_t> processes,
                                                                     std::string_view request, int timeout_ms);

// Whether a runtime in process `pid` listens.
[[nodiscard]] bool is_answered(pid_t pid);

// Asks the runtime in process `pid` for the file of its job: a descriptor, the caller's to close. `secret` is that of
// the job's name, or empty for the same user and root. Errors: as above, or the process is on its own.
[[nodiscard]] result<int> request_job(pid_t pid, std::string_view secret);

// Makes the runtime in process `pid` read its new share of the job's budget at once. Does not wait.
void nudge(pid_t pid) noexcept;

}  // namespace far::control
