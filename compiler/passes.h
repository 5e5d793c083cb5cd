// The passes over functions.
#pragma once

#include "llvm/IR/PassManager.h"

namespace far::compiler {

// Runs before the others. Bitcode that they made may be compiled again, by this compiler or in the linker: functions
// that have their code already, also from functions that were inlined since, get an attribute, and are left alone.
// Their accesses are marked, too, because the linker of full LTO inlines behind this pass: where it joins two accesses
// the mark is lost, and there is a second guard.
struct prepared : llvm::PassInfoMixin<prepared> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// Runs before loops are vectorised. Splits a loop over memory that may be far into chunks of 64 KiB. At each chunk it
// tells the runtime how far the loop is and how far it will go (TrackFM, section 3.4, moved out of the loop's body).
// Without a runtime, and for few iterations, there is one chunk. Gathers (gathers.h) are told at chunks, too.
struct streams : llvm::PassInfoMixin<streams> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// Runs before guards. Sends calls of memcpy(), memmove() and memset() that may move much memory to the support
// (support.c). After the first eviction, it makes long ones in chunks and tells of them as a loop does.
struct copies : llvm::PassInfoMixin<copies> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// Runs after everything else. In front of an access that is not in order it checks the state of the page, and calls the
// runtime where the page is not resident (TrackFM, section 3.3). It costs six instructions. The hardware guard catches
// all other misses.
struct guards : llvm::PassInfoMixin<guards> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// How many bytes around a small object are read in place of its page (-ffar-objects); 0: pages come.
[[nodiscard]] unsigned chosen_object_bytes();

}  // namespace far::compiler
