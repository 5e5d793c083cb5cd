// Bitcode that these passes made, and that is compiled again.
#include "emit.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/InstIterator.h"
#include "passes.h"

namespace far::compiler {
namespace {

// All that the passes emit loads the shared struct, but for calls in the place of memcpy() and the like, which they do
// not know as such any more.
bool has_our_code(const llvm::Function& function) {
  const llvm::GlobalVariable* const shared = function.getParent()->getNamedGlobal(shared_struct);
  if (shared == nullptr) return false;
  const auto is_load = [shared](const llvm::Instruction& one) {
    const auto* const load = llvm::dyn_cast<llvm::LoadInst>(&one);
    return load != nullptr && load->getPointerOperand()->stripInBoundsConstantOffsets() == shared;
  };
  return llvm::any_of(llvm::instructions(function), is_load);
}

}  // namespace

llvm::PreservedAnalyses prepared::run(llvm::Function& function, llvm::FunctionAnalysisManager& /*analyses*/) {
  if (!has_our_code(function)) return llvm::PreservedAnalyses::all();
  function.addFnAttr(prepared_attribute);
  for (llvm::Instruction& one : llvm::instructions(function)) {
    if (pointer_of(one) == nullptr) continue;
    one.setMetadata(prepared_metadata, llvm::MDNode::get(function.getContext(), {}));
  }
  return llvm::PreservedAnalyses::all();
}

}  // namespace far::compiler
