; RUN: %opt -passes=farheap-copies %s | %FileCheck %s
; Copies that may be long go to the support; short and volatile ones, and those of local memory, stay.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

; The support calls these weakly where there is no C library: the reference has the linker find them.
; CHECK-DAG: @farheap.kept.memcpy = private constant ptr @memcpy
; CHECK-DAG: @farheap.kept.memmove = private constant ptr @memmove
; CHECK-DAG: @farheap.kept.memset = private constant ptr @memset

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; CHECK-LABEL: @long(
; CHECK-NEXT: call void @__farheap_copy(ptr %to, ptr %from, i64 %n)
; CHECK-NEXT: call void @__farheap_move(ptr %to, ptr %from, i64 %n)
; CHECK-NEXT: call void @__farheap_set(ptr %to, i32 0, i64 %n)
; CHECK-NEXT: ret void
define void @long(ptr %to, ptr %from, i64 %n) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %n, i1 false)
  ret void
}

; CHECK-LABEL: @short(
; CHECK-NEXT: call void @llvm.memcpy
define void @short(ptr %to, ptr %from) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 64, i1 false)
  ret void
}

; CHECK-LABEL: @volatile(
; CHECK-NEXT: call void @llvm.memcpy
define void @volatile(ptr %to, ptr %from, i64 %n) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 true)
  ret void
}

; CHECK-LABEL: @stack(
; CHECK-NOT: __farheap
; CHECK: call void @llvm.memcpy
define void @stack(i64 %n) {
  %from = alloca [65536 x i8]
  %to = alloca [65536 x i8]
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  ret void
}
