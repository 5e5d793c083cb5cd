// The two passes.
#pragma once

#include "llvm/IR/PassManager.h"

namespace far::compiler {

// Before loops are vectorised: splits a loop that walks memory that may be far into chunks of 64 KiB, and tells the
// runtime at each how far the loop is and how far it will go (TrackFM, section 3.4, moved out of the loop's body).
// Without a runtime, and for few iterations, there is one chunk.
struct streams : llvm::PassInfoMixin<streams> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// After everything else: in front of an access that is not in order, a look at the state of its page, and a call where
// it is not resident (TrackFM, section 3.3). Six instructions; what they let pass the hardware guard catches.
struct guards : llvm::PassInfoMixin<guards> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

}  // namespace far::compiler
