// A program whose signal handlers do what handlers may do: `jumper jump` leaves memory calls by siglongjmp, a thousand
// times a second, and `jumper work` maps, drops and unmaps memory in the handler. Then both fill more memory than the
// budget and read it back. A runtime that takes a handler for a part of itself loses count of its memory, or its bytes.
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr std::size_t dropped_pages = 8192;
constexpr int wanted_signals = 300;

sigjmp_buf back;
volatile bool jumps = false;
volatile int seen = 0;
char* volatile piece = nullptr;  // mapped by the loop, and not unmapped yet
unsigned char* dropped = nullptr;
volatile int wrong = 0;

void* map(std::size_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::abort();
  return mapped;
}

void on_signal(int) {
  seen = seen + 1;
  if (jumps) siglongjmp(back, 1);
  // Twenty pages a signal: their bytes are elsewhere by now, and must read as zeros afterwards.
  const auto first = static_cast<std::size_t>(seen) * 20 % (dropped_pages - 20);
  unsigned char* const mine = dropped + first * page;
  if (madvise(mine, 20 * page, MADV_DONTNEED) != 0) wrong = wrong + 1;
  for (std::size_t i = 0; i < 20; ++i) {
    if (mine[i * page] != 0) wrong = wrong + 1;
  }
  auto* const own = static_cast<char*>(map(piece_bytes));
  std::memset(own, 1, piece_bytes);
  if (munmap(own, piece_bytes) != 0) wrong = wrong + 1;
}

void interrupt_memory_calls() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval each_ms{{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &each_ms, nullptr);
  static_cast<void>(sigsetjmp(back, 1));
  const time_t deadline = time(nullptr) + 200;
  while (seen < wanted_signals && time(nullptr) < deadline) {
    if (char* const left = piece) {
      piece = nullptr;
      munmap(left, piece_bytes);
    }
    char* const mapped = static_cast<char*>(map(piece_bytes));
    piece = mapped;
    for (std::size_t at = 0; at < piece_bytes; at += page) mapped[at] = 1;
    piece = nullptr;
    munmap(mapped, piece_bytes);
  }
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
}

void fill_and_check(std::size_t bytes) {
  auto* const words = static_cast<std::uint64_t*>(map(bytes));
  for (std::size_t i = 0; i < bytes / sizeof *words; ++i) words[i] = i * 0x9e3779b97f4a7c15;
  std::size_t bad = 0;
  for (std::size_t i = 0; i < bytes / sizeof *words; ++i) bad += words[i] != i * 0x9e3779b97f4a7c15;
  auto* const block = static_cast<unsigned char*>(std::malloc(bytes / 4));
  std::memset(block, 7, bytes / 4);
  for (std::size_t i = 0; i < bytes / 4; i += page) bad += block[i] != 7;
  std::printf("%zu wrong words\n", bad);
}

}  // namespace

int main(int count, char** arguments) {
  jumps = count > 1 && std::strcmp(arguments[1], "jump") == 0;
  dropped = static_cast<unsigned char*>(map(dropped_pages * page));
  std::memset(dropped, 0x55, dropped_pages * page);
  madvise(dropped, dropped_pages * page, 21 /* MADV_PAGEOUT */);
  interrupt_memory_calls();
  std::printf("%s, %d pages not dropped\n", seen >= wanted_signals ? "signals came" : "no signals", wrong);
  fill_and_check(std::size_t{192} << 20);
  return 0;
}
