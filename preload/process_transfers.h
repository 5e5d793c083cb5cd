// process_vm_readv(2) and process_vm_writev(2) of far memory, in parts. The kernel reads the memory of the other
// process through the page tables and waits for nobody: a remote page there ends the transfer, with EFAULT if it is the
// first.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "platform/local_memory.h"
#include "preload/in_runtime.h"
#include "preload/program_memory.h"

namespace far::preload {

// Goes through the memory that an array of vectors names.
class vector_walk {
 public:
  explicit vector_walk(std::span<const iovec> vectors) : left_(vectors) { skip_empty(); }
  [[nodiscard]] bool done() const { return left_.empty(); }
  [[nodiscard]] std::byte* place() const { return static_cast<std::byte*>(left_.front().iov_base) + used_; }
  [[nodiscard]] std::size_t bytes() const { return left_.front().iov_len - used_; }
  // At most bytes().
  void advance(std::size_t bytes) {
    used_ += bytes;
    skip_empty();
  }
  void skip(std::size_t bytes) {
    while (bytes > 0 && !done()) {
      const std::size_t now = std::min(bytes, this->bytes());
      advance(now);
      bytes -= now;
    }
  }

 private:
  void skip_empty() {
    for (; !left_.empty() && used_ >= left_.front().iov_len; left_ = left_.subspan(1)) used_ = 0;
  }
  std::span<const iovec> left_;
  std::size_t used_ = 0;
};

// For vector_copy, outside of the guard of system calls.
inline long load_vectors(const iovec& to, const iovec& from) noexcept {
  return load_bytes(to.iov_base, from.iov_base, to.iov_len) ? static_cast<long>(to.iov_len) : -EFAULT;
}

// An array of vectors of the program, which may be at a bad address: then the kernel is to say so.
class vector_copy {
 public:
  // `read(to, from)` copies memory of this process as process_vm_readv does.
  template <typename Read>
  vector_copy(const iovec* given, std::size_t count, Read read) : count_(count) {
    const std::size_t bytes = count * sizeof(iovec);
    if (count > few_.size()) {
      vectors_ = in_runtime([bytes] { return static_cast<iovec*>(platform::allocate_local(bytes)); });
    }
    std::size_t done = 0;
    while (done < bytes) {
      const long now = read(iovec{reinterpret_cast<std::byte*>(vectors_) + done, bytes - done},
                            iovec{reinterpret_cast<std::byte*>(const_cast<iovec*>(given)) + done, bytes - done});
      if (now <= 0) break;
      done += static_cast<std::size_t>(now);
    }
    is_good_ = done == bytes;
  }
  ~vector_copy() {
    if (vectors_ == few_.data()) return;
    in_runtime([this] { platform::free_local(vectors_, count_ * sizeof(iovec)); });
  }
  vector_copy(const vector_copy&) = delete;
  vector_copy& operator=(const vector_copy&) = delete;

  [[nodiscard]] bool is_good() const { return is_good_; }
  [[nodiscard]] std::span<const iovec> all() const { return {vectors_, count_}; }

 private:
  std::array<iovec, 8> few_{};
  iovec* vectors_ = few_.data();
  std::size_t count_;
  bool is_good_;
};

struct process_transfer {
  bool writes = false;  // process_vm_writev
  pid_t process = 0;
  std::span<const iovec> local;
  std::span<const iovec> remote;
};

// Whether the kernel would accept the vectors, and move anything.
[[nodiscard]] bool is_sensible(std::span<const iovec> vectors) noexcept;

// Whether the number is that of a thread of this process, all of which have its memory.
[[nodiscard]] bool is_of_this_process(pid_t thread) noexcept;

// Asks another process to bring its far memory there in. False where it has none, or cannot answer: it is stopped, or
// traced, maybe by this process. At most control_brought_bytes.
[[nodiscard]] bool bring_in_of_other(const process_transfer& transfer, const std::byte* place,
                                     std::size_t bytes) noexcept;

// Makes what is left of a transfer after `done` bytes, in parts of at most `most_bytes`. `make(local, remote)` makes a
// part, and returns what the kernel does. Returns the result of the whole: all bytes, or -errno when there are none.
template <typename Make>
[[nodiscard]] long transfer_in_parts(const process_transfer& transfer, std::size_t done, std::size_t most_bytes,
                                     Make make) {
  vector_walk local(transfer.local);
  vector_walk remote(transfer.remote);
  local.skip(done);
  remote.skip(done);
  long last = 0;
  while (!local.done() && !remote.done()) {
    const std::size_t bytes = std::min({local.bytes(), remote.bytes(), most_bytes});
    last = make(iovec{local.place(), bytes}, iovec{remote.place(), bytes});
    if (last <= 0) break;
    local.advance(static_cast<std::size_t>(last));
    remote.advance(static_cast<std::size_t>(last));
    done += static_cast<std::size_t>(last);
  }
  return done > 0 ? static_cast<long>(done) : last;
}

// The same with another process, whose pages may leave again before the kernel gets to them.
template <typename Make>
[[nodiscard]] long transfer_with_other(const process_transfer& transfer, std::size_t done, std::size_t most_bytes,
                                       Make make) {
  constexpr int most_attempts = 20;
  return transfer_in_parts(transfer, done, most_bytes, [&](const iovec& local, const iovec& remote) {
    long result = make(local, remote);
    for (int i = 0; i < most_attempts && result == -EFAULT; ++i) {
      if (!bring_in_of_other(transfer, static_cast<const std::byte*>(remote.iov_base), remote.iov_len)) break;
      result = make(local, remote);
    }
    return result;
  });
}

}  // namespace far::preload
