// The code that a call site of the C library jumps to, in assembler, x86-64 only. direct_calls.cc fills the tables, and
// makes sure of the offsets and numbers.
//
// In fault_mode::in_line the calls of dispatched threads are looked at. In fault_mode::thread far_site_watched turns
// that on, on all threads, for a few calls. The child of a vfork has the thread-local variables of its parent, which
// waits; a process that runs beside such a parent must not touch them.
//
// A site jumps to its own few instructions in far_sites, which push where it goes on, below the red zone. The C library
// holds nothing in rcx and r11 there. Unwinders see a call from the site; in the two instructions before the push they
// see the end of the stack.
asm(R"(
  .section .text.farheap_sites, "ax", @progbits
  .balign 64
  .globl far_sites_begin, far_sites_end, far_site_rax_4096, far_site_rax_4095, far_site_eax_4096, far_site_eax_4095, far_site_numbered
  .hidden far_sites_begin, far_sites_end, far_site_rax_4096, far_site_rax_4095, far_site_eax_4096, far_site_eax_4095, far_site_numbered
  .hidden far_site_rules, far_site_heap, far_site_returns, far_site_targets, far_site_saves_all, far_site_watched, far_site_looks
  .hidden far_begin_site_call, far_end_site_call, far_this_thread, far_site_direct

  .cfi_startproc
  .cfi_def_cfa rsp, 8
  .cfi_undefined rip
far_sites_begin:
  .set site, 0
  .rept 640
  leaq -128(%rsp), %rsp
  pushq far_site_returns+8*site(%rip)
  jmp *far_site_targets+8*site(%rip)
  .balign 8
  .set site, site+1
  .endr
far_sites_end:
  .cfi_endproc

  .macro compared name
  .cfi_startproc
  .cfi_def_cfa rsp, 136
  .cfi_offset rip, -136
\name:
  call far_site_entry
  .endm

  compared far_site_rax_4096
  cmpq $-4096, %rax
  ret $128
  .cfi_endproc
  compared far_site_rax_4095
  cmpq $-4095, %rax
  ret $128
  .cfi_endproc
  compared far_site_eax_4096
  cmpl $-4096, %eax
  ret $128
  .cfi_endproc
  compared far_site_eax_4095
  cmpl $-4095, %eax
  ret $128
  .cfi_endproc

  .cfi_startproc
  .cfi_def_cfa rsp, 136
  .cfi_offset rip, -136
far_site_numbered:
  movq (%rsp), %rax
  movzwl -2(%rax), %eax
  call far_site_entry
  ret $128
  .cfi_endproc

  .globl far_site_raw
  .hidden far_site_raw
  .cfi_startproc
  .cfi_undefined rip
far_site_raw:
  pushfq
  call far_site_closer
  popfq
  popq %rcx
  popq %r11
  movq %r11, %rsp
  jmp *%rcx
  .cfi_endproc

  .macro look_at register, bit
  testb $\bit, %cl
  jz 9f
  movq %\register, %r11
  subq far_site_heap(%rip), %r11
  cmpq far_site_heap+8(%rip), %r11
  jb far_site_closer
9:
  .endm

  .balign 64
  .cfi_startproc
far_site_entry:
  cmpb $0, far_site_looks(%rip)
  je far_site_direct
  movq far_this_thread@gottpoff(%rip), %rcx
  cmpb $0, %fs:(%rcx)
  je 2f
  cmpq $512, %rax
  jae far_site_dispatched
  leaq far_site_rules(%rip), %rcx
  movzbl (%rcx, %rax), %ecx
  testb $0xc0, %cl
  jnz 1f
  look_at rdi, 1
  look_at rsi, 2
  look_at rdx, 4
  look_at r10, 8
  look_at r8, 16
  look_at r9, 32
  jmp far_site_direct
1:
  testb $0x80, %cl
  jz far_site_closer
far_site_dispatched:
  syscall
  ret
2:
  cmpb $0, far_site_watched(%rip)
  je far_site_direct
  cmpq $512, %rax
  jae far_site_direct
  leaq far_site_rules(%rip), %rcx
  testb $0x40, (%rcx, %rax)
  jz far_site_direct
  .cfi_endproc

  .cfi_startproc
far_site_closer:
  movq far_this_thread@gottpoff(%rip), %rcx
  cmpb $0, far_site_watched(%rip)
  jne 1f
  cmpw $0, %fs:2(%rcx)
  jne far_site_dispatched
  jmp 2f
1:
  cmpb $0, %fs:3(%rcx)
  jne far_site_direct
2:
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register rbp
  pushq %r12
  .cfi_offset r12, -24
  pushq %r13
  .cfi_offset r13, -32
  subq $2944, %rsp
  andq $-64, %rsp
  movq %rax, (%rsp)
  movq %rdi, 8(%rsp)
  movq %rsi, 16(%rsp)
  movq %rdx, 24(%rsp)
  movq %r10, 32(%rsp)
  movq %r8, 40(%rsp)
  movq %r9, 48(%rsp)
  leaq 16(%rbp), %rcx
  movq %rcx, 120(%rsp)
  cmpb $0, far_site_saves_all(%rip)
  je 1f
  movq $0, 704(%rsp)
  movq $0, 712(%rsp)
  movq $0, 720(%rsp)
  movq $0, 728(%rsp)
  movq $0, 736(%rsp)
  movq $0, 744(%rsp)
  movq $0, 752(%rsp)
  movq $0, 760(%rsp)
  movl $0xe6, %eax
  xorl %edx, %edx
  xsave64 192(%rsp)
  jmp 2f
1:
  fxsave64 192(%rsp)
2:
  call far_site_begin_guard
  movq %rsp, %rdi
  call far_begin_site_call
  call far_site_end_guard
  cmpq $1, 128(%rsp)
  je 4f
  cmpq $2, 128(%rsp)
  je 7f
3:
  movq (%rsp), %rax
  movq 56(%rsp), %rdi
  movq 64(%rsp), %rsi
  movq 72(%rsp), %rdx
  movq 80(%rsp), %r10
  movq 88(%rsp), %r8
  movq 96(%rsp), %r9
  call far_site_direct
  movq %rax, 104(%rsp)
  cmpq $0, 112(%rsp)
  je 4f
  call far_site_begin_guard
  movq %rsp, %rdi
  call far_end_site_call
  movb %al, 136(%rsp)
  call far_site_end_guard
  cmpb $0, 136(%rsp)
  jne 3b
4:
  call 8f
  movq 104(%rsp), %rax
  movq -8(%rbp), %r12
  movq -16(%rbp), %r13
  .cfi_remember_state
  leave
  .cfi_def_cfa rsp, 8
  ret
  .cfi_restore_state
7:
  call 8f
  movq (%rsp), %rax
  movq -8(%rbp), %r12
  movq -16(%rbp), %r13
  .cfi_remember_state
  leave
  .cfi_def_cfa rsp, 8
  jmp far_site_dispatched
  .cfi_restore_state
8:
  cmpb $0, far_site_saves_all(%rip)
  je 1f
  movl $0xe6, %eax
  xorl %edx, %edx
  xrstor64 200(%rsp)
  jmp 2f
1:
  fxrstor64 200(%rsp)
2:
  movq 16(%rsp), %rdi
  movq 24(%rsp), %rsi
  movq 32(%rsp), %rdx
  movq 40(%rsp), %r10
  movq 48(%rsp), %r8
  movq 56(%rsp), %r9
  ret

far_site_begin_guard:
  movq far_this_thread@gottpoff(%rip), %rdx
  addq %fs:0, %rdx
  addq $8, %rdx
  movq (%rdx), %r13
  movl $14, %eax
  movl $2, %edi
  leaq far_site_blocked(%rip), %rsi
  movl $8, %r10d
  call far_site_direct
  movq far_this_thread@gottpoff(%rip), %rcx
  movq %fs:8(%rcx), %r12
  movq %r13, %fs:8(%rcx)
  movb %fs:(%rcx), %al
  movb %al, 8+137(%rsp)
  movb $0, %fs:(%rcx)
  ret

far_site_end_guard:
  movq far_this_thread@gottpoff(%rip), %rsi
  movb 8+137(%rsp), %al
  movb %al, %fs:(%rsi)
  movq %r12, %fs:8(%rsi)
  addq %fs:0, %rsi
  addq $8, %rsi
  movl $14, %eax
  movl $2, %edi
  xorl %edx, %edx
  movl $8, %r10d
  call far_site_direct
  movq far_this_thread@gottpoff(%rip), %rcx
  movq %r13, %fs:8(%rcx)
  ret
  .cfi_endproc

  .section .rodata
  .balign 8
far_site_blocked: .quad ~(1 << (7 - 1) | 1 << (31 - 1))

  .bss
  .balign 64
  .globl far_site_rules, far_site_heap, far_site_returns, far_site_targets, far_site_saves_all, far_site_watched, far_site_looks
far_site_rules: .skip 512
far_site_heap: .skip 16
far_site_returns: .skip 5120
far_site_targets: .skip 5120
far_site_saves_all: .skip 8
far_site_watched: .skip 8
far_site_looks: .skip 8
  .text
)");
