#include "reaches.h"

#include "llvm/IR/IntrinsicInst.h"

namespace far::compiler {

scope_set scopes_around(const llvm::Loop& loop) {
  scope_set around;
  scope_set inside;
  for (const llvm::BasicBlock& block : *loop.getHeader()->getParent()) {
    for (const llvm::Instruction& one : block) {
      const auto* const declares = llvm::dyn_cast<llvm::NoAliasScopeDeclInst>(&one);
      if (declares == nullptr) continue;
      (loop.contains(&block) ? inside : around).insert(declares->getScopeList()->getOperand(0));
    }
  }
  // Where LLVM has made two loops of one (loop unswitching), both declare the scopes of their iterations: one loop's
  // declaration is outside of the other one.
  for (const llvm::Metadata* const scope : inside) around.erase(scope);
  return around;
}

llvm::MemoryLocation reach_of(const llvm::Instruction& access, const scope_set& around) {
  const auto* const call = llvm::dyn_cast<llvm::MemIntrinsic>(&access);
  llvm::MemoryLocation all =
      call != nullptr ? llvm::MemoryLocation::getForDest(call) : llvm::MemoryLocation::get(&access);
  all = all.getWithNewSize(llvm::LocationSize::beforeOrAfterPointer());
  const bool holds = all.AATags.Scope == nullptr || llvm::all_of(all.AATags.Scope->operands(), [&](const auto& scope) {
                       return around.contains(scope.get());
                     });
  if (!holds) all.AATags.Scope = nullptr;
  return all;
}

}  // namespace far::compiler
