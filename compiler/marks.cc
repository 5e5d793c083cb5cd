#include "hot.h"

#include "emit.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Module.h"

namespace far::compiler {
namespace {

// A scope of aliasing without any access outside of it says nothing to LLVM's passes, but they keep it where they
// combine or change accesses. Metadata of a kind of our own would be lost.
constexpr const char* scope_name = "farheap.hot";

llvm::MDNode* scope_of(llvm::Module& module) {
  llvm::NamedMDNode* const kept = module.getOrInsertNamedMetadata(scope_name);
  if (kept->getNumOperands() == 0) {
    llvm::MDBuilder builder(module.getContext());
    llvm::MDNode* const domain = builder.createAnonymousAliasScopeDomain("farheap");
    kept->addOperand(llvm::MDNode::get(module.getContext(), builder.createAnonymousAliasScope(domain, scope_name)));
  }
  return kept->getOperand(0);
}

bool marks_hot(const llvm::Instruction& one) {
  const auto* const call = llvm::dyn_cast<llvm::IntrinsicInst>(&one);
  if (call == nullptr || call->getIntrinsicID() != llvm::Intrinsic::ptr_annotation) return false;
  const auto* const text = llvm::dyn_cast<llvm::GlobalVariable>(call->getArgOperand(1)->stripPointerCasts());
  const auto* const bytes =
      text == nullptr ? nullptr : llvm::dyn_cast<llvm::ConstantDataSequential>(text->getInitializer());
  return bytes != nullptr && bytes->isCString() && bytes->getAsCString() == hot_annotation;
}

// The accesses of the member, or of elements or members in it.
void mark_accesses(llvm::Value& member, llvm::MDNode* scope) {
  llvm::SmallVector<llvm::Value*, 8> waiting{&member};
  while (!waiting.empty()) {
    llvm::Value* const pointer = waiting.pop_back_val();
    for (llvm::User* const user : pointer->users()) {
      auto* const access = llvm::cast<llvm::Instruction>(user);
      if (llvm::isa<llvm::GetElementPtrInst>(access)) waiting.push_back(access);
      if (llvm::isa<llvm::GetElementPtrInst>(access) || pointer_of(*access) != pointer) continue;
      llvm::MDNode* const others = access->getMetadata(llvm::LLVMContext::MD_alias_scope);
      access->setMetadata(llvm::LLVMContext::MD_alias_scope, llvm::MDNode::concatenate(others, scope));
    }
  }
}

}  // namespace

llvm::PreservedAnalyses hot_members::run(llvm::Function& function, llvm::FunctionAnalysisManager& /*analyses*/) {
  llvm::SmallVector<llvm::Instruction*, 8> marks;
  for (llvm::BasicBlock& block : function) {
    for (llvm::Instruction& one : block) {
      if (marks_hot(one)) marks.push_back(&one);
    }
  }
  for (llvm::Instruction* const mark : marks) {
    mark_accesses(*mark, scope_of(*function.getParent()));
    mark->replaceAllUsesWith(mark->getOperand(0));
    mark->eraseFromParent();
  }
  return marks.empty() ? llvm::PreservedAnalyses::all() : llvm::PreservedAnalyses::none();
}

bool is_hot(const llvm::Instruction& access, const llvm::Value* pointer) {
  if (const llvm::MDNode* const scopes = access.getMetadata(llvm::LLVMContext::MD_alias_scope)) {
    for (const llvm::MDOperand& scope : scopes->operands()) {
      const auto* const node = llvm::dyn_cast<llvm::MDNode>(scope);
      if (node != nullptr && llvm::AliasScopeNode(node).getName() == scope_name) return true;
    }
  }
  const llvm::Value* const object = llvm::getUnderlyingObject(pointer, 12);
  if (const auto* const load = llvm::dyn_cast<llvm::LoadInst>(object)) {
    const auto* const from = llvm::dyn_cast<llvm::GlobalVariable>(llvm::getUnderlyingObject(load->getPointerOperand()));
    return from != nullptr && is_annotated(*from, hot_annotation);
  }
  return is_hot_variable(object);
}

}  // namespace far::compiler
