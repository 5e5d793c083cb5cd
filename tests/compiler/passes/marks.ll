; RUN: %opt -passes=farheap-marks %s | %FileCheck %s
; The marks of far/local.h become metadata of the accesses that they mean, and nothing is left of the calls.

target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

%union.anon = type { ptr }
%struct.tagged = type { %union.anon, i32 }
%struct.text = type { i64, [200 x i8] }

@hot = private constant [8 x i8] c"far_hot\00", section "llvm.metadata"
@local = private constant [10 x i8] c"far_local\00", section "llvm.metadata"
@other = private constant [6 x i8] c"other\00", section "llvm.metadata"
@file = private constant [7 x i8] c"test.c\00", section "llvm.metadata"
@llvm.global.annotations = appending global [2 x { ptr, ptr, ptr, i32, ptr }] [
  { ptr, ptr, ptr, i32, ptr } { ptr @apart, ptr @local, ptr @file, i32 1, ptr null },
  { ptr, ptr, ptr, i32, ptr } { ptr @jobs, ptr @local, ptr @file, i32 2, ptr null }], section "llvm.metadata"

@jobs = global ptr null

declare ptr @llvm.ptr.annotation.p0.p0(ptr, ptr, ptr, i32, ptr)
declare ptr @malloc(i64)

; CHECK-LABEL: @hot_member(
; CHECK-NEXT: load i64, ptr %at, align 8, !alias.scope ![[HOT:[0-9]+]]
define i64 @hot_member(ptr %at) {
  %bytes = call ptr @llvm.ptr.annotation.p0.p0(ptr %at, ptr @hot, ptr @file, i32 3, ptr null)
  %value = load i64, ptr %bytes, align 8
  ret i64 %value
}

; CHECK-LABEL: @another_annotation(
; CHECK-NEXT: call ptr @llvm.ptr.annotation
; CHECK-NOT: !alias.scope
; CHECK: ret i64
define i64 @another_annotation(ptr %at) {
  %bytes = call ptr @llvm.ptr.annotation.p0.p0(ptr %at, ptr @other, ptr @file, i32 4, ptr null)
  %value = load i64, ptr %bytes, align 8
  ret i64 %value
}

; The member at the beginning of its structure has the address of the structure, and is marked like the others.
; CHECK-LABEL: @local_member(
; CHECK-NOT: @llvm.ptr.annotation
; CHECK: load i64, ptr %member, align 8, !alias.scope ![[LOCAL:[0-9]+]]
define i64 @local_member(ptr %at, i64 %i) {
  %member = getelementptr inbounds %struct.text, ptr %at, i32 0, i32 0
  %marked = call ptr @llvm.ptr.annotation.p0.p0(ptr %member, ptr @local, ptr @file, i32 5, ptr null)
  %value = load i64, ptr %marked, align 8
  ret i64 %value
}

; What is allocated for local data comes from local memory.
; CHECK-LABEL: @allocate(
; CHECK-NEXT: call ptr @__farheap_local_malloc(i64 100)
define void @allocate() {
  %made = call ptr @malloc(i64 100)
  store ptr %made, ptr @jobs, align 8
  ret void
}

; It is not inlined into a function that has guards.
; CHECK-LABEL: @apart()
; CHECK-SAME: #[[APART:[0-9]+]]
define void @apart() {
  ret void
}

; Of a union clang names no member: the mark is about the pointer that is read from it.
; CHECK-LABEL: @local_member_of_union(
; CHECK: %pointer = load ptr, ptr %member, align 8{{$}}
; CHECK-NEXT: load i64, ptr %pointer, align 8, !alias.scope ![[LOCAL]]
define i64 @local_member_of_union(ptr %at) {
  %member = getelementptr inbounds %struct.tagged, ptr %at, i32 0, i32 0
  %marked = call ptr @llvm.ptr.annotation.p0.p0(ptr %member, ptr @local, ptr @file, i32 6, ptr null)
  %pointer = load ptr, ptr %marked, align 8
  %value = load i64, ptr %pointer, align 8
  ret i64 %value
}

; CHECK: attributes #[[APART]] = { noinline }
; CHECK: !farheap.hot = !{![[HOT]]}
; CHECK: !farheap.local = !{![[LOCAL]]}
