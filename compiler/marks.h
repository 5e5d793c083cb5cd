// The marks of far/local.h: hot structures, whose accesses report their pages as used so that they stay, and data that
// is said to be local.
#pragma once

#include "llvm/IR/Instructions.h"
#include "llvm/IR/PassManager.h"

namespace far::compiler {

inline constexpr const char* hot_mark = "far_hot";
inline constexpr const char* hot_type_mark = "far_hot_type";
inline constexpr const char* local_mark = "far_local";
inline constexpr const char* local_region_mark = "far_local_region";  // of static variables between BEGIN and END

// Runs before everything else. Clang marks members and local variables by calls that hide their addresses from LLVM's
// passes, and types not at all: FAR_HOT_TYPE makes a function that steps over one. All these go, and the accesses that
// they mean get metadata. Warns of marks that mean none.
struct marks : llvm::PassInfoMixin<marks> {
  static llvm::PreservedAnalyses run(llvm::Module& module, llvm::ModuleAnalysisManager& analyses);
};

// Whether the access, which is by way of the pointer, is of a FAR_HOT member, variable or type.
[[nodiscard]] bool is_hot(const llvm::Instruction& access, const llvm::Value* pointer);

// Whether it is by way of FAR_LOCAL_DATA.
[[nodiscard]] bool is_said_to_be_local(const llvm::Instruction& access);

}  // namespace far::compiler
