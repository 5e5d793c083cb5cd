; RUN: %opt -passes='loop-simplify,lcssa,farheap-streams' %s | %FileCheck %s
; A loop over memory that may be far says at each chunk how far it will go, and nothing in its body.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

@table = internal global [65536 x i64] zeroinitializer

; CHECK-LABEL: @sum(
; CHECK: [[SHORT:%.*]] = icmp ult i64 [[ITERATIONS:%.*]], 2048
; CHECK-NEXT: br i1 [[SHORT]], label %[[ENTER:.*]], label %[[ASK:.*]]
; CHECK: [[ASK]]:
; CHECK: br i1 {{.*}}, label %[[TELL:.*]], label %[[ENTER]], !prof
; CHECK: [[TELL]]:
; CHECK-NEXT: call preserve_mostcc void @__farheap_stream(ptr {{.*}}, i64 [[ITERATIONS]], i64 {{.*}}, ptr %a, ptr poison, ptr poison)
; CHECK: loop:
; CHECK-NOT: __farheap
; CHECK: br i1 {{.*}}, label %{{.*}}, label %loop
define i64 @sum(ptr %a, i64 %n) {
entry:
  %any = icmp ne i64 %n, 0
  br i1 %any, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total = phi i64 [ 0, %entry ], [ %more, %loop ]
  %at = getelementptr inbounds i64, ptr %a, i64 %i
  %one = load i64, ptr %at, align 8
  %more = add i64 %total, %one
  %next = add nuw i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %end, label %loop
end:
  %all = phi i64 [ 0, %entry ], [ %more, %loop ]
  ret i64 %all
}

; Both walks are told by one call.
; CHECK-LABEL: @copy_up(
; CHECK: @__farheap_stream(ptr {{.*}}, ptr %from, ptr %to, ptr poison)
; CHECK-NOT: @__farheap_stream
; CHECK: ret void
define void @copy_up(ptr noalias %to, ptr noalias %from, i64 %n) {
entry:
  %any = icmp ne i64 %n, 0
  br i1 %any, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %source = getelementptr inbounds i64, ptr %from, i64 %i
  %one = load i64, ptr %source, align 8
  %sum = add i64 %one, 1
  %target = getelementptr inbounds i64, ptr %to, i64 %i
  store i64 %sum, ptr %target, align 8
  %next = add nuw i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %end, label %loop
end:
  ret void
}

; The address is loaded in order, and what it leads to is read: a gather, whose indices are told ahead.
; CHECK-LABEL: @gather(
; CHECK: @__farheap_stream(ptr {{.*}}, ptr %indices, ptr poison, ptr poison)
; CHECK: [[FROM:%.*]] = getelementptr i8, ptr %indices,
; CHECK: @__farheap_gather(ptr [[FROM]], ptr %a,
; CHECK: loop:
; CHECK-NOT: __farheap
; CHECK: %one = load i64, ptr %at, align 8, !farheap.told
define i64 @gather(ptr %a, ptr %indices, i64 %n) {
entry:
  %any = icmp ne i64 %n, 0
  br i1 %any, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total = phi i64 [ 0, %entry ], [ %more, %loop ]
  %place = getelementptr inbounds i32, ptr %indices, i64 %i
  %index = load i32, ptr %place, align 4
  %wide = zext i32 %index to i64
  %at = getelementptr inbounds i64, ptr %a, i64 %wide
  %one = load i64, ptr %at, align 8
  %more = add i64 %total, %one
  %next = add nuw i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %end, label %loop
end:
  %all = phi i64 [ 0, %entry ], [ %more, %loop ]
  ret i64 %all
}

; Rows that lie more than a page apart: a column.
; CHECK-LABEL: @column(
; CHECK: @__farheap_column(ptr %a, i64 8192,
; CHECK: %one = load double, ptr %at, align 8, !farheap.told
define double @column(ptr %a, i64 %n) {
entry:
  %any = icmp ne i64 %n, 0
  br i1 %any, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total = phi double [ 0.0, %entry ], [ %more, %loop ]
  %at = getelementptr inbounds [1024 x double], ptr %a, i64 %i
  %one = load double, ptr %at, align 8
  %more = fadd double %total, %one
  %next = add nuw i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %end, label %loop
end:
  %all = phi double [ 0.0, %entry ], [ %more, %loop ]
  ret double %all
}

; Static memory is never far.
; CHECK-LABEL: @sum_static(
; CHECK-NOT: __farheap
; CHECK: ret i64
define i64 @sum_static(i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total = phi i64 [ 0, %entry ], [ %more, %loop ]
  %at = getelementptr inbounds [65536 x i64], ptr @table, i64 0, i64 %i
  %one = load i64, ptr %at, align 8
  %more = add i64 %total, %one
  %next = add nuw i64 %i, 1
  %done = icmp uge i64 %next, %n
  br i1 %done, label %end, label %loop
end:
  ret i64 %more
}

; Too short to be worth a word.
; CHECK-LABEL: @sum_few(
; CHECK-NOT: __farheap
; CHECK: ret i64
define i64 @sum_few(ptr %a) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total = phi i64 [ 0, %entry ], [ %more, %loop ]
  %at = getelementptr inbounds i64, ptr %a, i64 %i
  %one = load i64, ptr %at, align 8
  %more = add i64 %total, %one
  %next = add nuw nsw i64 %i, 1
  %done = icmp eq i64 %next, 100
  br i1 %done, label %end, label %loop
end:
  ret i64 %more
}

; The address is computed from an index: the loop's own computation is made ahead of it, to request and to wait.
; CHECK-LABEL: @computed(
; CHECK: %one = load i64, ptr %at, align 8, !farheap.told
; CHECK-COUNT-2: @__farheap_ahead(
; CHECK-NOT: @__farheap_ahead(
define i64 @computed(ptr %a, ptr %indices, i64 %n) {
entry:
  %any = icmp ne i64 %n, 0
  br i1 %any, label %loop, label %end
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total = phi i64 [ 0, %entry ], [ %more, %loop ]
  %place = getelementptr inbounds i32, ptr %indices, i64 %i
  %index = load i32, ptr %place, align 4
  %wide = zext i32 %index to i64
  %mixed = mul i64 %wide, 7919
  %inside = and i64 %mixed, 65535
  %at = getelementptr inbounds i64, ptr %a, i64 %inside
  %one = load i64, ptr %at, align 8
  %more = add i64 %total, %one
  %next = add nuw i64 %i, 1
  %done = icmp eq i64 %next, %n
  br i1 %done, label %end, label %loop
end:
  %all = phi i64 [ 0, %entry ], [ %more, %loop ]
  ret i64 %all
}

; A volatile access is left as it is.
; CHECK-LABEL: @sum_volatile(
; CHECK-NOT: __farheap
; CHECK: ret i64
define i64 @sum_volatile(ptr %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %total = phi i64 [ 0, %entry ], [ %more, %loop ]
  %at = getelementptr inbounds i64, ptr %a, i64 %i
  %one = load volatile i64, ptr %at, align 8
  %more = add i64 %total, %one
  %next = add nuw i64 %i, 1
  %done = icmp uge i64 %next, %n
  br i1 %done, label %end, label %loop
end:
  ret i64 %more
}
