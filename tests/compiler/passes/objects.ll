; RUN: %opt -farheap-objects=128 -passes='loop-simplify,farheap-guards' %s | %FileCheck %s
; With -ffar-objects a read whose page is away gets its value from the runtime; a write brings the page.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

; CHECK-LABEL: @read(
; CHECK: br i1 {{.*}}, label %[[AWAY:.*]], label %[[HERE:.*]], !prof
; CHECK: [[AWAY]]:
; CHECK-NEXT: [[VALUE:%.*]] = call preserve_mostcc i64 @__farheap_read(ptr %at, i64 8,
; CHECK: [[HERE]]:
; CHECK-NEXT: %value = load i64, ptr %at
; CHECK: [[EITHER:%.*]] = phi i64 [ [[VALUE]], %[[AWAY]] ], [ %value, %[[HERE]] ]
; CHECK-NEXT: ret i64 [[EITHER]]
define i64 @read(ptr %a, i64 %i) {
  %at = getelementptr inbounds i64, ptr %a, i64 %i
  %value = load i64, ptr %at, align 8
  ret i64 %value
}

; CHECK-LABEL: @write(
; CHECK-NOT: @__farheap_read
; CHECK: @__farheap_guard_written(ptr %at)
; CHECK: store i64 1
define void @write(ptr %a, i64 %i) {
  %at = getelementptr inbounds i64, ptr %a, i64 %i
  store i64 1, ptr %at, align 8
  ret void
}
