// vfork(2), where raw system calls are noticed (fault_mode::thread): the child is not dispatched until it asks for
// that, and its calls concern the runtime as well, such as a limit that it sets before its exec.
//
// The child goes on with the stack and the thread-local variables of its parent, which waits for it. So the return
// address is kept in a register meanwhile, and the parent's selector will do.
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>

#include "preload/syscall_stubs.h"
#include "preload/threads.h"

extern "C" {

#pragma GCC visibility push(hidden)

void* far_next_vfork = nullptr;  // the C library's

int far_fail_vfork(int error) noexcept {
  errno = error;
  return -1;
}

#pragma GCC visibility pop

}  // extern "C"

// threads.cc knows where far_this_thread has `armed`.
asm(R"(
  .text
  .globl vfork
  .hidden far_next_vfork, far_fail_vfork, far_this_thread, far_undispatched
  .type vfork, @function
vfork:
  .cfi_startproc
  movq far_this_thread@gottpoff(%rip), %rax
  cmpb $0, %fs:1(%rax)
  jne 1f
  movq far_next_vfork(%rip), %rax
  testq %rax, %rax
  jz 1f
  jmp *%rax
1:
  popq %rdi
  .cfi_adjust_cfa_offset -8
  .cfi_register rip, rdi
  movl $58, %eax
  syscall
  pushq %rdi
  .cfi_adjust_cfa_offset 8
  .cfi_rel_offset rip, 0
  testl %eax, %eax
  js 3f
  jnz 2f
  movq far_this_thread@gottpoff(%rip), %r8
  cmpb $0, %fs:1(%r8)
  je 2f
  addq %fs:0, %r8
  movl $157, %eax
  movl $59, %edi
  movl $1, %esi
  movq far_undispatched(%rip), %rdx
  movq far_undispatched+8(%rip), %r10
  syscall
  xorl %eax, %eax
2:
  ret
3:
  movl %eax, %edi
  negl %edi
  jmp far_fail_vfork
  .cfi_endproc
  .size vfork, . - vfork
)");

namespace far::preload {

void find_next_vfork() noexcept {
  far_next_vfork = dlsym(RTLD_NEXT, "vfork");
}

}  // namespace far::preload
