// The function that a pass works on, and what LLVM knows of it.
#pragma once

#include "emit.h"
#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/PassManager.h"

namespace far::compiler {

class function_pass {
 public:
  function_pass(llvm::Function& function, llvm::FunctionAnalysisManager& analyses)
      : function_(function),
        loops_(analyses.getResult<llvm::LoopAnalysis>(function)),
        dominators_(analyses.getResult<llvm::DominatorTreeAnalysis>(function)),
        evolution_(analyses.getResult<llvm::ScalarEvolutionAnalysis>(function)),
        remarks_(analyses.getResult<llvm::OptimizationRemarkEmitterAnalysis>(function)),
        frequencies_(analyses.getResult<llvm::BlockFrequencyAnalysis>(function)),
        assumptions_(analyses.getResult<llvm::AssumptionAnalysis>(function)),
        aliases_(analyses.getResult<llvm::AAManager>(function)),
        emit_(*function.getParent()) {}

 protected:
  llvm::Function& function_;
  llvm::LoopInfo& loops_;
  llvm::DominatorTree& dominators_;
  llvm::ScalarEvolution& evolution_;
  llvm::OptimizationRemarkEmitter& remarks_;
  llvm::BlockFrequencyInfo& frequencies_;
  llvm::AssumptionCache& assumptions_;
  llvm::AAResults& aliases_;
  emitter emit_;
};

}  // namespace far::compiler
