// io_uring without its library: reads into the memory, and writes from it, also through registered buffers.
#include <linux/io_uring.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "world.h"

namespace memory_calls {
namespace {

constexpr unsigned depth = 8;

struct ring {
  int descriptor;
  std::byte* memory;
  io_uring_sqe* entries;
  io_uring_params parameters;
};

// Whether there is one: the kernel, or a sandbox, may forbid it.
bool open_ring(world& w, ring& opened) {
  if (w.own.ring == -2) return false;
  if (w.own.ring == -1) {
    io_uring_params parameters = {};
    const outcome set_up = kernel_call(SYS_io_uring_setup, depth, &parameters);
    if (!set_up.ok()) {
      w.own.ring = -2;
      return false;
    }
    w.own.ring = static_cast<int>(set_up.value);
    const std::size_t of_requests = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
    const std::size_t of_answers = parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe);
    w.own.ring_bytes = std::max(of_requests, of_answers);
    const outcome memory = kernel_call(SYS_mmap, 0, w.own.ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                                       w.own.ring, IORING_OFF_SQ_RING);
    const outcome entries = kernel_call(SYS_mmap, 0, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                                        w.own.ring, IORING_OFF_SQES);
    if (!memory.ok() || !entries.ok()) fail(w, "the ring cannot be mapped: errno %d", memory.error + entries.error);
    something_was_mapped(w);
    w.own.ring_memory = memory.address();
    w.own.ring_entries = entries.address();
    w.own.ring_parameters = raw_memory(page_bytes);
    std::memcpy(w.own.ring_parameters, &parameters, sizeof parameters);
  }
  opened = {w.own.ring, static_cast<std::byte*>(w.own.ring_memory), static_cast<io_uring_sqe*>(w.own.ring_entries),
            *static_cast<io_uring_params*>(w.own.ring_parameters)};
  return true;
}

std::atomic_ref<unsigned> word(const ring& r, unsigned offset) {
  return std::atomic_ref<unsigned>(*reinterpret_cast<unsigned*>(r.memory + offset));
}

// One request, and the wait for its answer.
outcome submit(world& w, const ring& r, const io_uring_sqe& request) {
  const auto& requests = r.parameters.sq_off;
  const unsigned tail = word(r, requests.tail).load();
  const unsigned slot = tail & word(r, requests.ring_mask).load();
  r.entries[slot] = request;
  word(r, requests.array + slot * static_cast<unsigned>(sizeof(unsigned))).store(slot);
  word(r, requests.tail).store(tail + 1);
  unsigned submitted = 0;
  while (true) {
    const outcome entered =
        kernel_call(SYS_io_uring_enter, r.descriptor, submitted == 0 ? 1 : 0, 1, IORING_ENTER_GETEVENTS, 0, 0);
    if (entered.ok() && entered.value == 1) submitted = 1;
    if (!entered.ok() && entered.error != EINTR) fail(w, "io_uring_enter ends with errno %d", entered.error);
    const auto& answers = r.parameters.cq_off;
    const unsigned head = word(r, answers.head).load();
    if (head == word(r, answers.tail).load()) continue;
    auto* const list = reinterpret_cast<io_uring_cqe*>(r.memory + answers.cqes);
    const int result = list[head & word(r, answers.ring_mask).load()].res;
    word(r, answers.head).store(head + 1);
    return result < 0 ? outcome{-1, -result} : outcome{result, 0};
  }
}

io_uring_sqe request_for(unsigned char code, int file, void* address, std::size_t bytes, long offset) {
  io_uring_sqe request;
  std::memset(&request, 0, sizeof request);
  request.opcode = code;
  request.fd = file;
  request.addr = reinterpret_cast<std::uintptr_t>(address);
  request.len = static_cast<unsigned>(bytes);
  request.off = static_cast<std::uint64_t>(offset);
  return request;
}

}  // namespace

void use_ring(world& w) {
  range pages;
  ring r;
  if (!pick_writable_range(w, pages) || !open_ring(w, r)) return;
  constexpr std::size_t most_pages = 256;
  pages.count = std::min(pages.count, most_pages);
  const bool direct = constants().direct >= 0 && w.random.one_in(2);
  const bool registered = allowed(w, "ring-fixed") && w.random.one_in(2);
  const int file = direct ? constants().direct : constants().descriptor;
  say(w, "%zu pages at %p%s%s", pages.count, static_cast<void*>(pages.main()), direct ? ", direct" : "",
      registered ? ", registered" : "");
  if (registered) {
    const iovec memory = {pages.main(), pages.bytes()};
    const outcome done = kernel_call(SYS_io_uring_register, r.descriptor, IORING_REGISTER_BUFFERS, &memory, 1);
    if (!done.ok()) fail(w, "registering a buffer ends with errno %d", done.error);
    if (w.random.one_in(2) && allowed(w, "ring-write-between")) {  // the ring has the frames, whatever happens
      write_range(w, pages);
      for (std::uint64_t step = w.random.below(3); step > 0; --step) write(w);
    }
  }
  const unsigned char code = registered ? IORING_OP_READ_FIXED : IORING_OP_READ;
  std::size_t done = 0;
  while (done < pages.bytes()) {
    const outcome read =
        submit(w, r, request_for(code, file, pages.main() + done, pages.bytes() - done, static_cast<long>(done)));
    if (!read.ok() && (read.error == EINTR || read.error == EAGAIN)) continue;
    if (!read.ok() || read.value == 0) fail(w, "a read through io_uring ends with errno %d", read.error);
    done += static_cast<std::size_t>(read.value);
  }
  kernel_call(SYS_pread64, constants().descriptor, pages.twin(), pages.bytes(), 0);
  verify_range(w, pages);
  if (registered) kernel_call(SYS_io_uring_register, r.descriptor, IORING_UNREGISTER_BUFFERS, 0, 0);
}

}  // namespace memory_calls
