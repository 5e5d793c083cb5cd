// Hot structures (FAR_HOT of far/local.h): each access reports its page as used, so that the page stays.
#pragma once

#include "llvm/IR/Instructions.h"
#include "llvm/IR/PassManager.h"

namespace far::compiler {

inline constexpr const char* hot_annotation = "far_hot";

// Runs before everything else. Clang marks accesses of annotated members by a call that hides the address from LLVM's
// passes. This one replaces the call by metadata on the access.
struct hot_members : llvm::PassInfoMixin<hot_members> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses);
};

// Whether the access, which is by way of the pointer, is of a FAR_HOT member or variable.
[[nodiscard]] bool is_hot(const llvm::Instruction& access, const llvm::Value* pointer);

}  // namespace far::compiler
