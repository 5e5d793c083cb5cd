#include "kernel_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>

#include "base/check.h"
#include "platform/kernel_features.h"

namespace far::bench {

namespace {

// Larger than the last-level caches of the machines of today, so that every page read from it is cold.
constexpr std::size_t far_memory_bytes = 256 * mib;

kernel_stage* stage_of_handler = nullptr;

std::byte* map_pages(std::size_t bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FAR_CHECK(mapped != MAP_FAILED, "no memory for the benchmark; use a machine with 1 GiB free");
  madvise(mapped, bytes, MADV_NOHUGEPAGE);  // single pages are what is measured
  return static_cast<std::byte*>(mapped);
}

// No two neighbours in a row: the kernel could treat them as a run.
std::vector<std::uint32_t> scattered_order(std::size_t pages) {
  std::vector<std::uint32_t> order(pages);
  for (std::size_t i = 0; i < pages; ++i) order[i] = static_cast<std::uint32_t>(i);
  std::mt19937 random(7);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

}  // namespace

result<std::unique_ptr<kernel_stage>> kernel_stage::open(std::size_t pages) {
  const platform::kernel_features& features = platform::probe_kernel();
  if (!features.userfaultfd || !features.move || !features.write_protect || !features.sigbus ||
      !features.vectored_discard) {
    return error{
        "the primitives need userfaultfd with MOVE, write-protection and SIGBUS, and process_madvise on "
        "oneself (Linux 6.13); see which of them is missing with: farheap doctor",
        ENOTSUP};
  }
  auto inline_guard = platform::userfaultfd::open(features, true);
  if (!inline_guard) return inline_guard.error();
  auto thread_guard = platform::userfaultfd::open(features, false);
  if (!thread_guard) return thread_guard.error();
  return std::unique_ptr<kernel_stage>(
      new kernel_stage(pages, std::move(inline_guard).value(), std::move(thread_guard).value()));
}

kernel_stage::kernel_stage(std::size_t pages, platform::userfaultfd inline_guard, platform::userfaultfd thread_guard)
    : pages_(pages),
      inline_guard_(std::move(inline_guard)),
      thread_guard_(std::move(thread_guard)),
      far_pages_(far_memory_bytes / page_bytes),
      scattered_(scattered_order(pages)) {
  FAR_CHECK(pages % batch_pages == 0, "pages come in whole batches");
  heap_ = map_pages(pages * page_bytes);
  staging_ = map_pages(pages * page_bytes);
  copies_ = map_pages(batch_pages * page_bytes);
  far_ = map_pages(far_memory_bytes);
  std::mt19937_64 random(11);
  for (std::size_t i = 0; i < far_memory_bytes / sizeof(std::uint64_t); ++i) {
    reinterpret_cast<std::uint64_t*>(far_)[i] = random();
  }
  self_descriptor_ = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  pagemap_descriptor_ = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  stop_descriptor_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  FAR_CHECK(self_descriptor_ >= 0 && pagemap_descriptor_ >= 0 && stop_descriptor_ >= 0, "cannot open descriptors");
  stage_of_handler = this;
  struct sigaction action{};
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  action.sa_sigaction = [](int signal, siginfo_t* information, void* context) {
    on_sigbus(signal, information, context);
  };
  FAR_CHECK(sigaction(SIGBUS, &action, nullptr) == 0, "cannot handle SIGBUS");
  FAR_CHECK(inline_guard_.register_range(reinterpret_cast<std::uintptr_t>(heap_), pages_ * page_bytes, true) == 0,
            "cannot guard the heap");
  // UFFDIO_MOVE asks that its destination be registered, whichever way frames move.
  FAR_CHECK(inline_guard_.register_range(reinterpret_cast<std::uintptr_t>(staging_), pages_ * page_bytes, false) == 0,
            "cannot register the staging area");
}

kernel_stage::~kernel_stage() {
  stop_server();
  signal(SIGBUS, SIG_DFL);
  stage_of_handler = nullptr;
  munmap(heap_, pages_ * page_bytes);
  munmap(staging_, pages_ * page_bytes);
  munmap(copies_, batch_pages * page_bytes);
  munmap(far_, far_memory_bytes);
  close(self_descriptor_);
  close(pagemap_descriptor_);
  close(stop_descriptor_);
}

std::byte* kernel_stage::next_far_run(std::size_t run_pages) {
  if (far_cursor_ + run_pages > far_pages_) far_cursor_ = 0;
  std::byte* run = far_ + far_cursor_ * page_bytes;
  far_cursor_ += run_pages;
  return run;
}

void kernel_stage::fill_heap(bool write_protected) {
  empty_heap();
  for (std::size_t i = 0; i < pages_; i += batch_pages) copy_in(heap_page(i), batch_pages, write_protected);
}

void kernel_stage::empty_heap() {
  FAR_CHECK(madvise(heap_, pages_ * page_bytes, MADV_DONTNEED) == 0, "cannot empty the heap");
}

void kernel_stage::empty_staging() {
  FAR_CHECK(madvise(staging_, pages_ * page_bytes, MADV_DONTNEED) == 0, "cannot empty the staging area");
}

const platform::userfaultfd& kernel_stage::current_guard() const {
  return guard_ == guard::in_line ? inline_guard_ : thread_guard_;
}

const platform::userfaultfd& kernel_stage::guard_of(const std::byte* page) const {
  const bool in_heap = page >= heap_ && page < heap_ + pages_ * page_bytes;
  return in_heap ? current_guard() : inline_guard_;
}

void kernel_stage::copy_in(std::byte* page, std::size_t count, bool write_protected) {
  int error_code = 0;
  const std::size_t done = guard_of(page).copy(reinterpret_cast<std::uintptr_t>(page), next_far_run(count),
                                               count * page_bytes, write_protected, &error_code);
  FAR_CHECK(done == count * page_bytes, "UFFDIO_COPY was refused");
}

void kernel_stage::copy_out(std::byte* staging_page, const std::byte* page) {
  int error_code = 0;
  const std::size_t done =
      inline_guard_.copy(reinterpret_cast<std::uintptr_t>(staging_page), page, page_bytes, false, &error_code);
  FAR_CHECK(done == page_bytes, "UFFDIO_COPY was refused");
}

void kernel_stage::read_out(const std::vector<std::byte*>& pages) {
  std::array<iovec, batch_pages> from;
  FAR_CHECK(pages.size() <= from.size(), "more ranges than a batch");
  for (std::size_t i = 0; i < pages.size(); ++i) from[i] = {pages[i], page_bytes};
  const iovec to{copies_, pages.size() * page_bytes};
  const long done = syscall(SYS_process_vm_readv, getpid(), &to, 1L, from.data(), pages.size(), 0L);
  FAR_CHECK(done == static_cast<long>(to.iov_len), "process_vm_readv was refused");
}

void kernel_stage::move(std::byte* to, std::byte* from, std::size_t count) {
  int error_code = 0;
  const std::size_t done = inline_guard_.move(reinterpret_cast<std::uintptr_t>(to),
                                              reinterpret_cast<std::uintptr_t>(from), count * page_bytes, &error_code);
  FAR_CHECK(done == count * page_bytes, "UFFDIO_MOVE was refused");
}

void kernel_stage::write_protect(std::byte* page, std::size_t count, bool protect) {
  FAR_CHECK(current_guard().write_protect(reinterpret_cast<std::uintptr_t>(page), count * page_bytes, protect) == 0,
            "UFFDIO_WRITEPROTECT was refused");
}

void kernel_stage::drop(const std::vector<std::byte*>& pages, std::size_t run_pages) {
  std::array<iovec, batch_pages> ranges;
  FAR_CHECK(pages.size() <= ranges.size(), "more ranges than a batch");
  for (std::size_t i = 0; i < pages.size(); ++i) ranges[i] = {pages[i], run_pages * page_bytes};
  const long done = syscall(SYS_process_madvise, self_descriptor_, ranges.data(), pages.size(), MADV_DONTNEED, 0);
  FAR_CHECK(done == static_cast<long>(pages.size() * run_pages * page_bytes), "process_madvise was refused");
}

void kernel_stage::drop_one(std::byte* page) {
  FAR_CHECK(madvise(page, page_bytes, MADV_DONTNEED) == 0, "madvise was refused");
}

std::uint64_t kernel_stage::read_pagemap(const std::byte* first, std::size_t count) {
  std::array<std::uint64_t, 512> entries;
  FAR_CHECK(count <= entries.size(), "more pagemap entries than a block has");
  const auto offset = reinterpret_cast<std::uintptr_t>(first) / page_bytes * sizeof(std::uint64_t);
  const ssize_t got =
      pread(pagemap_descriptor_, entries.data(), count * sizeof(std::uint64_t), static_cast<off_t>(offset));
  FAR_CHECK(got == static_cast<ssize_t>(count * sizeof(std::uint64_t)), "cannot read /proc/self/pagemap");
  return entries[count - 1];
}

void kernel_stage::choose_guard(guard chosen, resolution how) {
  stop_server();
  const auto start = reinterpret_cast<std::uintptr_t>(heap_);
  FAR_CHECK(current_guard().unregister_range(start, pages_ * page_bytes) == 0, "cannot stop guarding the heap");
  guard_ = chosen;
  resolution_ = how;
  FAR_CHECK(current_guard().register_range(start, pages_ * page_bytes, true) == 0, "cannot guard the heap");
  if (chosen == guard::in_line) return;
  stop_server_ = false;
  server_ = std::thread([this, chosen] { serve_faults(chosen == guard::spinning_thread); });
}

void kernel_stage::resolve(std::byte* page) {
  if (resolution_.load(std::memory_order_relaxed) == resolution::allow_write) {
    write_protect(page, 1, false);
  } else {
    copy_in(page, 1, false);
  }
}

void kernel_stage::on_sigbus(int signal, void* information, void* /*context*/) {
  kernel_stage* stage = stage_of_handler;
  auto* address = static_cast<std::byte*>(static_cast<siginfo_t*>(information)->si_addr);
  if (stage == nullptr || address < stage->heap_ || address >= stage->heap_ + stage->pages_ * page_bytes) {
    ::signal(signal, SIG_DFL);  // not ours: the access faults again and ends the process
    return;
  }
  stage->resolve(stage->heap_ + round_down(static_cast<std::uint64_t>(address - stage->heap_), page_bytes));
}

void kernel_stage::serve_faults(bool spin) {
  std::array<pollfd, 2> waited = {pollfd{thread_guard_.descriptor(), POLLIN, 0}, pollfd{stop_descriptor_, POLLIN, 0}};
  std::array<platform::fault, 16> faults;
  while (!stop_server_.load(std::memory_order_relaxed)) {
    if (!spin && ::poll(waited.data(), waited.size(), 1000) <= 0) continue;
    const std::size_t count = thread_guard_.read(faults);
    for (std::size_t i = 0; i < count; ++i) {
      resolve(reinterpret_cast<std::byte*>(round_down(faults[i].address, page_bytes)));
    }
  }
}

void kernel_stage::stop_server() {
  if (!server_.joinable()) return;
  stop_server_ = true;
  std::uint64_t one = 1;
  FAR_CHECK(write(stop_descriptor_, &one, sizeof one) == sizeof one, "cannot wake the fault server");
  server_.join();
  FAR_CHECK(read(stop_descriptor_, &one, sizeof one) == sizeof one, "cannot reset the stop event");
}

neighbour::neighbour() {
  FAR_CHECK(sched_getaffinity(0, sizeof before_, &before_) == 0 && CPU_COUNT(&before_) >= 2, "two processors needed");
  std::array<cpu_set_t, 2> places{};
  int processor = 0;
  for (cpu_set_t& place : places) {
    while (!CPU_ISSET(processor, &before_)) ++processor;
    CPU_SET(processor++, &place);
  }
  thread_ = std::thread([this] {
    running_ = true;
    // Real arithmetic: a loop of pause instructions would leave a virtual machine and make interrupting it dearer.
    std::uint64_t value = 1;
    while (!stop_.load(std::memory_order_relaxed)) {
      for (int i = 0; i < 1000; ++i) value = value * 6364136223846793005u + 1442695040888963407u;
      sink_.store(value, std::memory_order_relaxed);
    }
  });
  FAR_CHECK(sched_setaffinity(0, sizeof places[0], &places[0]) == 0, "cannot bind a thread to a processor");
  FAR_CHECK(pthread_setaffinity_np(thread_.native_handle(), sizeof places[1], &places[1]) == 0,
            "cannot bind a thread to a processor");
  while (!running_.load()) std::this_thread::yield();
}

neighbour::~neighbour() {
  stop_ = true;
  thread_.join();
  FAR_CHECK(sched_setaffinity(0, sizeof before_, &before_) == 0, "cannot let a thread run anywhere again");
}

std::uint64_t neighbour::cpu_ns() {
  clockid_t clock = 0;
  FAR_CHECK(pthread_getcpuclockid(thread_.native_handle(), &clock) == 0, "a thread without a clock");
  timespec used{};
  clock_gettime(clock, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(used.tv_nsec);
}

}  // namespace far::bench
