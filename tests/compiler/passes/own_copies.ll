; RUN: %opt -passes=farheap-copies %s | %FileCheck %s
; A file with a memcpy() of its own that others do not see goes on calling that one. The function of the C library
; that the code no longer calls is named by the object file for as long as the code is there: the linker may drop both.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal ptr @memcpy(ptr %to, ptr %from, i64 %n) noinline {
  ret ptr %to
}

; CHECK-NOT: @llvm.used
; CHECK: @farheap.kept.memset = private constant ptr @memset
; CHECK-NOT: @llvm.used
; CHECK: @llvm.compiler.used = appending global [1 x ptr] [ptr @farheap.kept.memset]
; CHECK-NOT: @llvm.used

; CHECK-LABEL: @long(
; CHECK-NEXT: call void @llvm.memcpy
; CHECK-NEXT: call void @__farheap_set(ptr %to, i32 0, i64 %n)
; CHECK-NEXT: ret void
define void @long(ptr %to, ptr %from, i64 %n) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %n, i1 false)
  ret void
}
