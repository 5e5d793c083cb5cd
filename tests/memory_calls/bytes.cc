// Writing and verifying bytes, with faults caught: whether an access is refused is compared, too.
#include <algorithm>
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "world.h"

namespace memory_calls {
namespace {

thread_local sigjmp_buf* volatile catcher = nullptr;
thread_local volatile int caught = 0;

void on_fault(int number, siginfo_t* info, void*) {
  if (catcher != nullptr) {
    caught = number;
    siglongjmp(*catcher, 1);
  }
  char line[128];
  const int length =
      std::snprintf(line, sizeof line, "memory_calls: signal %d at %p, outside of any check\n", number, info->si_addr);
  kernel_call(SYS_write, STDERR_FILENO, line, length);
  static_cast<void>(std::signal(number, SIG_DFL));
}

// The signal that ended an access, 0 for none.
template <typename Access>
int guarded(Access access) {
  sigjmp_buf place;
  sigjmp_buf* const outer = catcher;
  if (sigsetjmp(place, 0) != 0) {
    catcher = outer;
    return caught;
  }
  catcher = &place;
  // The handler reads what the compiler would otherwise see no reader of.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  access();
  std::atomic_signal_fence(std::memory_order_seq_cst);
  catcher = outer;
  return 0;
}

std::uint64_t pattern(const std::byte* address, std::uint64_t write) {
  std::uint64_t mixed = (reinterpret_cast<std::uintptr_t>(address) ^ (write << 48)) * 0x9e3779b97f4a7c15u + write;
  mixed ^= mixed >> 29;
  return mixed * 0xbf58476d1ce4e5b9u;
}

// One byte range within a page. The bytes depend on the main copy's address and the number of the write.
void fill(std::byte* to, const std::byte* main, std::size_t bytes, std::uint64_t write) {
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = pattern(main + at, write);
    std::memcpy(to + at, &word, sizeof word);
  }
  for (; at < bytes; ++at) to[at] = static_cast<std::byte>(pattern(main + at, write));
}

bool all_zero(const std::byte* bytes) {
  for (std::size_t at = 0; at < page_bytes; ++at) {
    if (bytes[at] != std::byte{0}) return false;
  }
  return true;
}

std::uint64_t word_at(const std::byte* bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

[[noreturn]] void tell_difference(const world& w, const char* name, const std::byte* address, const std::byte* found,
                                  const std::byte* expected, std::size_t bytes) {
  std::size_t at = 0;
  while (at < bytes && found[at] == expected[at]) ++at;
  std::size_t wrong = 0;
  for (std::size_t i = at; i < bytes; ++i) wrong += found[i] != expected[i] ? 1 : 0;
  if (wrong == 0)
    fail(w, "%s at %p: wrong bytes, which were right when they were read again", name,
         static_cast<const void*>(address));
  const std::size_t word = at + sizeof(std::uint64_t) <= bytes ? at : bytes - std::min(bytes, sizeof(std::uint64_t));
  fail(w, "%s at %p, byte %zu: wrong data (%zu of %zu bytes): found %016llx, expected %016llx", name,
       static_cast<const void*>(address), at, wrong, bytes, static_cast<unsigned long long>(word_at(found + word)),
       static_cast<unsigned long long>(word_at(expected + word)));
}

// A page of which reads may be refused, or which MADV_FREE may have emptied.
void verify_page(world& w, const std::byte* main, const std::byte* twin, page_record& record) {
  std::byte found[page_bytes];
  std::byte expected[page_bytes];
  const int of_main = guarded([&] { std::memcpy(found, main, page_bytes); });
  const int of_twin = guarded([&] { std::memcpy(expected, twin, page_bytes); });
  if (of_main != of_twin) {
    fail(w, "a read at %p ends in signal %d, where Linux has signal %d (0: none; protection %d, state %d%s)",
         static_cast<const void*>(main), of_main, of_twin, record.protection, static_cast<int>(record.state),
         record.special ? ", special" : "");
  }
  if (of_main != 0 || std::memcmp(found, expected, page_bytes) == 0) return;
  if (record.maybe_free && (all_zero(found) || all_zero(expected))) return;
  char name[64];
  std::snprintf(name, sizeof name, "page (protection %d%s%s)", record.protection, record.special ? ", special" : "",
                record.shared ? ", shared" : "");
  tell_difference(w, name, main, found, expected, page_bytes);
}

}  // namespace

void install_fault_handlers() {
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

void write_both(world& w, std::byte* main, std::byte* twin, std::size_t bytes) {
  const std::uint64_t write = ++w.writes;
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t to_boundary = page_bytes - (reinterpret_cast<std::uintptr_t>(main + at) & (page_bytes - 1));
    const std::size_t part = std::min(bytes - at, to_boundary);
    const int of_main = guarded([&] { fill(main + at, main + at, part, write); });
    const int of_twin = guarded([&] { fill(twin + at, main + at, part, write); });
    if (of_main != of_twin) {
      fail(w, "a write at %p ends in signal %d, where Linux has signal %d (0: none)",
           static_cast<const void*>(main + at), of_main, of_twin);
    }
    at += part;
  }
}

void write_range(world& w, const range& pages) {
  if (w.frozen && any_shared(pages)) return;
  write_both(w, pages.main(), pages.twin(), pages.bytes());
  for (std::size_t page = 0; page < pages.count; ++page) {
    page_record& record = pages.records()[page];
    if ((record.protection & PROT_WRITE) != 0) record.maybe_free = false;
  }
}

void verify_range(world& w, const range& pages) {
  constexpr std::size_t step_pages = 512;
  for (std::size_t page = 0; page < pages.count; page += step_pages) {
    const std::size_t count = std::min(step_pages, pages.count - page);
    const std::byte* const main = pages.main() + page * page_bytes;
    const std::byte* const twin = pages.twin() + page * page_bytes;
    volatile bool same = false;
    const int signal = guarded([&] { same = std::memcmp(main, twin, count * page_bytes) == 0; });
    if (signal == 0 && same) continue;
    for (std::size_t i = 0; i < count; ++i) {
      page_record& record = pages.records()[page + i];
      if (usable(w, record)) verify_page(w, main + i * page_bytes, twin + i * page_bytes, record);
    }
  }
}

void verify_block(world& w, const block& memory) {
  if (std::memcmp(memory.main, memory.twin, memory.bytes) == 0) return;
  tell_difference(w, "block", memory.main, memory.main, memory.twin, memory.bytes);
}

void verify_copy(const world& w, const char* name, const std::byte* found, const std::byte* expected,
                 std::size_t bytes) {
  if (std::memcmp(found, expected, bytes) != 0) tell_difference(w, name, found, found, expected, bytes);
}

void verify_all(world& w) {
  for (area& area : w.areas) {
    for (std::size_t page = 0; page < area.pages;) {
      std::size_t count = 0;
      while (page + count < area.pages && area.records[page + count].state == page_state::owned) ++count;
      if (count != 0) verify_range(w, {&area, page, count});
      page += count + 1;
    }
  }
  for (const block& block : w.blocks) {
    if (block.main != nullptr) verify_block(w, block);
  }
}

}  // namespace memory_calls
