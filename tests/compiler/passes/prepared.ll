; RUN: %opt -passes='function(farheap-prepared),inline,function(loop-simplify,farheap-guards)' %s | %FileCheck %s
; RUN: %opt -passes='lto<O2>' %s | %FileCheck %s
; Bitcode that the passes made is linked by full LTO, with functions that they have not seen: what was guarded is not
; guarded again, where it was inlined either.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

@__farheap_compiled = external hidden global { i64, ptr, ptr }

declare hidden preserve_mostcc void @__farheap_guard(ptr) cold nounwind

; CHECK-LABEL: define i64 @prepared(
; CHECK: call preserve_mostcc void @__farheap_guard(ptr %at)
; CHECK-NOT: __farheap_guard
; CHECK: ret i64
define i64 @prepared(ptr %nodes, i64 %i) alwaysinline {
  %at = getelementptr inbounds i64, ptr %nodes, i64 %i
  %count = load ptr, ptr getelementptr inbounds ({ i64, ptr, ptr }, ptr @__farheap_compiled, i32 0, i32 2), align 8
  %evicted = load i64, ptr %count, align 8
  %any = icmp ne i64 %evicted, 0
  br i1 %any, label %slow, label %fast, !prof !0

slow:
  call preserve_mostcc void @__farheap_guard(ptr %at)
  br label %fast

fast:
  %value = load i64, ptr %at, align 8
  ret i64 %value
}

; CHECK-LABEL: define i64 @user(
; CHECK: call preserve_mostcc void @__farheap_guard(ptr %[[ITS:.*]])
; CHECK-NOT: __farheap_guard
; CHECK: load i64, ptr %[[ITS]]
; CHECK-NOT: __farheap_guard
; CHECK: ret i64
define i64 @user(ptr %nodes, i64 %i) {
  %value = call i64 @prepared(ptr %nodes, i64 %i)
  ret i64 %value
}

; Its own access is guarded as ever.
; CHECK-LABEL: define i64 @user_that_reads(
; CHECK: call preserve_mostcc void @__farheap_guard(ptr %[[INLINED:.*]])
; CHECK-NOT: __farheap_guard
; CHECK: load i64, ptr %[[INLINED]]
; CHECK: call preserve_mostcc void @__farheap_guard(ptr %own)
; CHECK-NOT: __farheap_guard
; CHECK: load i64, ptr %own
; CHECK-NOT: __farheap_guard
; CHECK: ret i64
define i64 @user_that_reads(ptr %nodes, i64 %i, i64 %k) {
  %value = call i64 @prepared(ptr %nodes, i64 %i)
  %own = getelementptr inbounds i64, ptr %nodes, i64 %k
  %more = load i64, ptr %own, align 8
  %sum = add i64 %value, %more
  ret i64 %sum
}

!0 = !{!"branch_weights", i32 1, i32 1048575}
