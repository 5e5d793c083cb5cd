#include "platform/call_on_stack.h"

extern "C" __attribute__((visibility("hidden"))) void far_call_on_stack(void (*body)(void*), void* context,
                                                                        std::byte* top) noexcept;

#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  .globl far_call_on_stack
  .hidden far_call_on_stack
  .type far_call_on_stack, @function
far_call_on_stack:
  .cfi_startproc
  endbr64
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register rbp
  movq %rdx, %rsp
  movq %rdi, %rax
  movq %rsi, %rdi
  call *%rax
  leave
  .cfi_def_cfa rsp, 8
  ret
  .cfi_endproc
  .size far_call_on_stack, . - far_call_on_stack
  .popsection
)");
#elif defined(__aarch64__)
asm(R"(
  .pushsection .text
  .globl far_call_on_stack
  .hidden far_call_on_stack
  .type far_call_on_stack, %function
far_call_on_stack:
  .cfi_startproc
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x29, -16
  .cfi_offset x30, -8
  mov x29, sp
  .cfi_def_cfa_register x29
  mov sp, x2
  mov x9, x0
  mov x0, x1
  blr x9
  mov sp, x29
  ldp x29, x30, [sp], #16
  .cfi_def_cfa sp, 0
  ret
  .cfi_endproc
  .size far_call_on_stack, . - far_call_on_stack
  .popsection
)");
#else
#error "say here how a function is called on another stack"
#endif

namespace far::platform {

void call_on_stack(void (*body)(void* context), void* context, std::byte* top) noexcept {
  far_call_on_stack(body, context, top);
}

}  // namespace far::platform
