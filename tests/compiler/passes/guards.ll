; RUN: %opt -passes='loop-simplify,farheap-guards' %s | %FileCheck %s
; In front of an irregular access the state of its page is checked, and the runtime called where it is not resident.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

declare void @other()

; Outside of loops it asks first whether any page has left.
; CHECK-LABEL: @read(
; CHECK: load ptr, ptr getelementptr inbounds ({{.*}}@__farheap_compiled, i32 0, i32 2)
; CHECK-NEXT: load i64, ptr
; CHECK-NEXT: icmp ne i64 %{{.*}}, 0
; CHECK-NEXT: br i1 {{.*}}, label %[[SLOW:.*]], label %[[FAST:.*]], !prof
; CHECK: [[SLOW]]:
; CHECK-NEXT: call preserve_mostcc void @__farheap_guard(ptr %at)
; CHECK-NEXT: br label %[[FAST]]
; CHECK: [[FAST]]:
; CHECK-NEXT: %node = load ptr, ptr %at
; CHECK: call preserve_mostcc void @__farheap_guard(ptr %node)
; CHECK: %value = load i64, ptr %node
define i64 @read(ptr %nodes, i64 %i) {
  %at = getelementptr inbounds ptr, ptr %nodes, i64 %i
  %node = load ptr, ptr %at, align 8
  %value = load i64, ptr %node, align 8
  ret i64 %value
}

; Fields of one page that is checked already.
; CHECK-LABEL: @fields(
; CHECK: @__farheap_guard(ptr %at)
; CHECK-NOT: @__farheap_guard
; CHECK: ret i64
define i64 @fields(ptr align 4096 %pages, i64 %i) {
  %at = getelementptr inbounds [4096 x i8], ptr %pages, i64 %i
  %first = load i64, ptr %at, align 4096
  %far = getelementptr inbounds i8, ptr %at, i64 2048
  %second = load i64, ptr %far, align 8
  %sum = add i64 %first, %second
  ret i64 %sum
}

; CHECK-LABEL: @write(
; CHECK: call preserve_mostcc void @__farheap_guard_written(ptr %at)
; CHECK: store i64 1
define void @write(ptr %a, i64 %i) {
  %at = getelementptr inbounds i64, ptr %a, i64 %i
  store i64 1, ptr %at, align 8
  ret void
}

; CHECK-LABEL: @stack(
; CHECK-NOT: __farheap
; CHECK: ret i64
define i64 @stack(i64 %i) {
  %a = alloca [64 x i64]
  %at = getelementptr inbounds [64 x i64], ptr %a, i64 0, i64 %i
  store i64 1, ptr %at, align 8
  %value = load i64, ptr %at, align 8
  ret i64 %value
}

; One page is checked once, behind a call too: what was used just now seldom leaves, and then the access traps.
; CHECK-LABEL: @behind_a_call(
; CHECK: @__farheap_guard(ptr %at)
; CHECK: call void @other()
; CHECK-NOT: @__farheap_guard
; CHECK: ret i64
define i64 @behind_a_call(ptr %a, i64 %i) {
  %at = getelementptr inbounds i64, ptr %a, i64 %i
  %first = load i64, ptr %at, align 8
  call void @other()
  %second = load i64, ptr %at, align 8
  %sum = add i64 %first, %second
  ret i64 %sum
}

; The address does not change: one check, in front of the loop.
; CHECK-LABEL: @hoisted(
; CHECK: [[SURE:%.*]] = freeze ptr %at
; CHECK: call preserve_mostcc void @__farheap_guard(ptr [[SURE]])
; CHECK: loop:
; CHECK-NOT: __farheap
; CHECK: ret i64
define i64 @hoisted(ptr %nodes, i64 %i, i64 %n) {
entry:
  %at = getelementptr inbounds i64, ptr %nodes, i64 %i
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %value = load atomic i64, ptr %at monotonic, align 8
  %next = add i64 %k, %value
  %done = icmp uge i64 %next, %n
  br i1 %done, label %end, label %loop
end:
  ret i64 %next
}

; Another address space is not ours.
; CHECK-LABEL: @other_space(
; CHECK-NOT: __farheap
; CHECK: ret i64
define i64 @other_space(ptr addrspace(257) %a, i64 %i) {
  %at = getelementptr inbounds i64, ptr addrspace(257) %a, i64 %i
  %value = load i64, ptr addrspace(257) %at, align 8
  ret i64 %value
}

; In a loop the state of the page is looked up: shift, mask, table, compare, branch.
; CHECK-LABEL: @chain(
; CHECK: loop:
; CHECK: [[NUMBER:%.*]] = ptrtoint ptr %at to i64
; CHECK-NEXT: [[PAGE:%.*]] = lshr i64 [[NUMBER]], 12
; CHECK: [[INDEX:%.*]] = and i64 [[PAGE]],
; CHECK: [[STATE:%.*]] = load i8, ptr
; CHECK-NEXT: icmp ugt i8 [[STATE]], 1
; CHECK-NEXT: br i1
; CHECK: call preserve_mostcc void @__farheap_guard(ptr %at)
; CHECK: %next = load ptr, ptr %at
define void @chain(ptr %first) {
entry:
  br label %loop
loop:
  %at = phi ptr [ %first, %entry ], [ %next, %loop ]
  %next = load ptr, ptr %at, align 8
  %done = icmp eq ptr %next, null
  br i1 %done, label %end, label %loop
end:
  ret void
}

; Accesses of a loop that do not depend on one another are checked together, so that their misses overlap.
; CHECK-LABEL: @together(
; CHECK: loop:
; CHECK: or i8
; CHECK: call preserve_mostcc void @__farheap_guards(
; CHECK-NOT: @__farheap_guard(
; CHECK: ret i64
define i64 @together(ptr %a, ptr %b, i64 %from) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %from, %entry ], [ %next, %loop ]
  %k = phi i64 [ %from, %entry ], [ %other, %loop ]
  %here = getelementptr inbounds i64, ptr %a, i64 %i
  %there = getelementptr inbounds i64, ptr %b, i64 %k
  %next = load i64, ptr %here, align 8
  %other = load i64, ptr %there, align 8
  %done = icmp eq i64 %next, %other
  br i1 %done, label %end, label %loop
end:
  ret i64 %next
}
