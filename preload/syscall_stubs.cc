#include "preload/syscall_stubs.h"

#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>

#include "preload/signals.h"

// The offsets and numbers below.
static_assert(offsetof(far::preload::pushed_call, result) == 16);
static_assert(offsetof(far::preload::pushed_call, kept_r10) == 48 &&
              offsetof(far::preload::pushed_call, kept_rdi) == 72);
static_assert(far::preload::far_pushed_bytes == 208);
static_assert(offsetof(far::preload::own_action, action) == 8 && offsetof(far::preload::own_action, next) == 40);
static_assert(SYS_rt_sigaction == 13 && sizeof(far::preload::kernel_mask) == 8);
static_assert(SYS_rt_sigreturn == 15 && SYS_prctl == 157 && SYS_munmap == 11 && SYS_exit == 60);

// far_plain_call and far_guarded_call describe themselves to unwinders, since cancelled threads are unwound through
// them. far_signal_return must have just these bytes, by which unwinders know the end of a signal frame.
//
// The kernel looks at the address behind the instruction, so something must follow the last one.
asm(R"(
  .section .text.farheap_stubs, "ax", @progbits
  .balign 64
  .globl far_stubs_begin, far_stubs_end, far_plain_call, far_masked_call, far_guarded_call, far_guarded_return
  .globl far_signal_return, far_signal_return_call, far_raw_syscall, far_raw_clone, far_end_thread, far_site_direct
  .hidden far_site_direct, far_undispatched
  .globl far_undispatched
  .hidden far_stubs_begin, far_stubs_end, far_plain_call, far_masked_call, far_guarded_call, far_guarded_return
  .hidden far_signal_return, far_signal_return_call, far_raw_syscall, far_raw_clone, far_end_thread
  .globl far_relay_signal, far_relay_shut
  .hidden far_relay_signal, far_relay_shut, far_move_frame, far_open_signals
  .type far_raw_syscall, @function
  .type far_raw_clone, @function
  .type far_end_thread, @function
far_stubs_begin:
  nop
  .cfi_startproc
  .cfi_def_cfa_offset 208
  .cfi_offset rip, -208
far_plain_call:
  syscall
  ret $200
far_masked_call:
  syscall
  movq 48(%rsp), %r10
  movq 56(%rsp), %r8
  movq 64(%rsp), %r9
  movq 72(%rsp), %rdi
  ret $200
far_guarded_call:
  syscall
  movq %rax, 16(%rsp)
  jmp far_report
  .cfi_endproc

far_site_direct:
  .cfi_startproc
  syscall
  ret
  .cfi_endproc

far_raw_syscall:
  .cfi_startproc
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  syscall
  ret
  .cfi_endproc

far_raw_clone:
  .cfi_startproc
  pushq %r12
  .cfi_adjust_cfa_offset 8
  pushq %r13
  .cfi_adjust_cfa_offset 8
  pushq %r14
  .cfi_adjust_cfa_offset 8
  movq %rsi, %r12
  movq %rdx, %r13
  movq %rcx, %r14
  movq %rdi, %rcx
  movq (%rcx), %rax
  movq 8(%rcx), %rdi
  movq 16(%rcx), %rsi
  movq 24(%rcx), %rdx
  movq 32(%rcx), %r10
  movq 40(%rcx), %r8
  syscall
  testq %rax, %rax
  jz 1f
  popq %r14
  popq %r13
  popq %r12
  ret
1:
  movq %r12, %rsp
2:
  testq %r14, %r14
  jz 3f
  movl $13, %eax
  movl (%r14), %edi
  leaq 8(%r14), %rsi
  xorl %edx, %edx
  movl $8, %r10d
  syscall
  movq 40(%r14), %r14
  jmp 2b
3:
  testq %r13, %r13
  jz far_signal_return
  movl $157, %eax
  movl $59, %edi
  movl $1, %esi
  movq far_undispatched(%rip), %rdx
  movq far_undispatched+8(%rip), %r10
  movq %r13, %r8
  syscall
  movb $1, (%r13)
  jmp far_signal_return
  .cfi_endproc

far_end_thread:
  movq %rdx, %r12
  movl $11, %eax
  syscall
  movq %r12, %rdi
  movl $60, %eax
  syscall
  hlt

far_relay_signal:
  movl %edi, %ebx
  movl $14, %eax
  xorl %edi, %edi
  leaq far_relay_blocked(%rip), %rsi
  leaq 16(%rsp), %rdx
  movl $8, %r10d
  syscall
far_relay_shut:
  movq 16(%rsp), %r13
  movl %ebx, %edi
  movq %rsp, %rsi
  subq $8, %rsp
  call far_move_frame
  movq %rdx, %r12
  leaq -8(%rax), %rsp
  movq %r13, %rdi
  call far_open_signals
  addq $8, %rsp
  movl %ebx, %edi
  leaq 312(%rsp), %rsi
  leaq 8(%rsp), %rdx
  xorl %eax, %eax
  jmp *%r12
  .balign 8
far_relay_blocked:
  .quad ~(1 << 6 | 1 << 10 | 1 << 30)

  nop
far_signal_return:
  movq $15, %rax
far_signal_return_call:
  syscall
  hlt
far_stubs_end:

  .cfi_startproc
  .cfi_def_cfa_offset 208
  .cfi_offset rip, -208
far_report:
  movl $-1, %eax
  syscall
far_guarded_return:
  nop
  .cfi_endproc

  .bss
  .balign 8
far_undispatched: .skip 16
  .text
)");
