// A virtual machine by KVM, whose memory is far: it counts in all of its pages, and they leave between its runs. Exit
// code 77: no machine can be made here. 1: the kernel refuses its memory; 2: wrong counts, or it does not run.
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int skipped = 77;
constexpr std::size_t page = 4096;
constexpr std::size_t machine_bytes = std::size_t{1} << 20;
constexpr std::size_t code_at = 0x800;
constexpr std::size_t first_counted = 0x10;  // pages
constexpr std::size_t end_counted = 0x90;
constexpr int runs = 12;

// In the real mode of the processor.
constexpr std::uint8_t code[] = {
    0xb8, 0x00, 0x10,        //    mov ax, 0x1000
    0x8e, 0xd8,              // 1: mov ds, ax
    0xff, 0x06, 0x00, 0x00,  //    inc word [0]
    0x05, 0x00, 0x01,        //    add ax, 0x100
    0x3d, 0x00, 0x90,        //    cmp ax, 0x9000
    0x75, 0xf2,              //    jne 1b
    0xf4,                    //    hlt
};

unsigned char* map(std::size_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) std::exit(2);
  return static_cast<unsigned char*>(mapped);
}

// More memory than the budget.
void press() {
  constexpr std::size_t bytes = std::size_t{96} << 20;
  unsigned char* const block = map(bytes);
  for (std::size_t i = 0; i < bytes; i += page) block[i] = 1;
  munmap(block, bytes);
}

[[noreturn]] void end(int code_of_exit, const char* what) {
  std::printf("%s: %s\n", what, std::strerror(errno));
  std::fflush(stdout);
  _exit(code_of_exit);
}

// As every program with virtual machines does: an interrupt of the host may end a run before its end, without a signal.
bool run_to_its_end(int processor) {
  int ended = 0;
  do {
    ended = ioctl(processor, KVM_RUN, 0);
  } while (ended != 0 && errno == EINTR);
  return ended == 0;
}

bool run_once(int processor, const kvm_run& state) {
  kvm_sregs segments{};
  kvm_regs registers{};
  if (ioctl(processor, KVM_GET_SREGS, &segments) != 0) return false;
  segments.cs.base = 0;
  segments.cs.selector = 0;
  registers.rip = code_at;
  registers.rflags = 2;
  return ioctl(processor, KVM_SET_SREGS, &segments) == 0 && ioctl(processor, KVM_SET_REGS, &registers) == 0 &&
         run_to_its_end(processor) && state.exit_reason == KVM_EXIT_HLT;
}

}  // namespace

int main() {
  const int system = open("/dev/kvm", O_RDWR | O_CLOEXEC);
  const int machine = system < 0 ? -1 : ioctl(system, KVM_CREATE_VM, 0);
  if (machine < 0) end(skipped, "no machine");
  unsigned char* const memory = map(machine_bytes);
  std::memcpy(memory + code_at, code, sizeof code);
  for (std::size_t i = first_counted; i < end_counted; ++i) memory[i * page + 100] = static_cast<unsigned char>(i);
  const kvm_userspace_memory_region region{0, 0, 0, machine_bytes, reinterpret_cast<std::uintptr_t>(memory)};
  if (ioctl(machine, KVM_SET_USER_MEMORY_REGION, &region) != 0) end(1, "its memory");
  const int processor = ioctl(machine, KVM_CREATE_VCPU, 0);
  const int state_bytes = ioctl(system, KVM_GET_VCPU_MMAP_SIZE, 0);
  if (processor < 0 || state_bytes <= 0) end(skipped, "no processor");
  void* const mapped =
      mmap(nullptr, static_cast<std::size_t>(state_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, processor, 0);
  if (mapped == MAP_FAILED) end(skipped, "no state");
  for (int i = 0; i < runs; ++i) {
    if (!run_once(processor, *static_cast<const kvm_run*>(mapped))) end(2, "a run");
    if (i % 2 == 1) press();
  }
  for (std::size_t i = first_counted; i < end_counted; ++i) {
    std::uint16_t count = 0;
    std::memcpy(&count, memory + i * page, sizeof count);
    if (count != runs || memory[i * page + 100] != static_cast<unsigned char>(i)) end(2, "a count");
  }
  std::puts("counted");
  return 0;
}
