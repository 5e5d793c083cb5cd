#include "gathers.h"

#include "emit.h"
#include "llvm/Analysis/CFG.h"
#include "llvm/Analysis/LoopIterator.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IntrinsicInst.h"

namespace far::compiler {
namespace {

bool is_harmless(const llvm::Instruction& one) {
  if (one.isVolatile() || one.isAtomic() || !llvm::isGuaranteedToTransferExecutionToSuccessor(&one)) return false;
  const auto* const call = llvm::dyn_cast<llvm::CallBase>(&one);
  if (call == nullptr || call->doesNotAccessMemory()) return true;
  const auto* const intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(call);
  return intrinsic != nullptr && intrinsic->isAssumeLikeIntrinsic();
}

// Two gotos into each other's blocks: LLVM sees no loop there, so nobody knows whether it ends.
bool has_cycle_without_loop(llvm::Loop& loop, const llvm::LoopInfo& loops) {
  llvm::LoopBlocksRPO order(&loop);
  order.perform(&loops);
  return llvm::containsIrreducibleCFG<const llvm::BasicBlock*>(order, loops);
}

// Objects that are not known to be the same may still overlap. Then the runtime reads an index that the loop is going
// to change, and prefetches a page in vain.
}  // namespace

bool is_written(const llvm::Loop& loop, const llvm::LoadInst& index) {
  const llvm::Value* const array = llvm::getUnderlyingObject(index.getPointerOperand(), 12);
  for (const llvm::BasicBlock* const block : loop.blocks()) {
    for (const llvm::Instruction& one : *block) {
      const auto* const store = llvm::dyn_cast<llvm::StoreInst>(&one);
      if (store != nullptr && llvm::getUnderlyingObject(store->getPointerOperand(), 12) == array) return true;
    }
  }
  return false;
}

namespace {

// Takes what varies out of the address, and the sum of all else into `base`. Null if two parts vary, or none.
const llvm::SCEV* split_address(const llvm::SCEV* address, const llvm::Loop& loop, llvm::ScalarEvolution& evolution,
                                const llvm::SCEV*& base) {
  const llvm::SCEV* varying = nullptr;
  llvm::SmallVector<const llvm::SCEV*, 4> fixed;
  const auto* const sum = llvm::dyn_cast<llvm::SCEVAddExpr>(address);
  const auto parts = sum != nullptr ? sum->operands() : llvm::ArrayRef<const llvm::SCEV*>(address);
  for (const llvm::SCEV* const part : parts) {
    if (evolution.isLoopInvariant(part, &loop)) {
      fixed.push_back(part);
    } else if (varying == nullptr) {
      varying = part;
    } else {
      return nullptr;
    }
  }
  base = fixed.empty() ? nullptr : evolution.getAddExpr(fixed);
  return varying;
}

// The load at the bottom of `varying`, which is that load, widened and multiplied.
llvm::LoadInst* index_of(const llvm::SCEV* varying, std::int64_t& scale, bool& is_signed) {
  scale = 1;
  is_signed = false;
  if (const auto* const product = llvm::dyn_cast<llvm::SCEVMulExpr>(varying)) {
    const auto* const factor = llvm::dyn_cast<llvm::SCEVConstant>(product->getOperand(0));
    if (factor == nullptr || product->getNumOperands() != 2) return nullptr;
    scale = factor->getAPInt().getSExtValue();
    varying = product->getOperand(1);
  }
  if (const auto* const widened = llvm::dyn_cast<llvm::SCEVIntegralCastExpr>(varying)) {
    if (llvm::isa<llvm::SCEVTruncateExpr>(widened)) return nullptr;
    is_signed = llvm::isa<llvm::SCEVSignExtendExpr>(widened);
    varying = widened->getOperand();
  }
  const auto* const unknown = llvm::dyn_cast<llvm::SCEVUnknown>(varying);
  return unknown != nullptr ? llvm::dyn_cast<llvm::LoadInst>(unknown->getValue()) : nullptr;
}

bool is_index_type(const llvm::Type& type) {
  return type.isPointerTy() || type.isIntegerTy(8) || type.isIntegerTy(16) || type.isIntegerTy(32) ||
         type.isIntegerTy(64);
}

}  // namespace

bool may_read_ahead(llvm::Loop& loop, const llvm::LoopInfo& loops) {
  // An inner loop that never ends would leave unread what is ahead.
  for (const llvm::Loop* const inner : loop.getLoopsInPreorder()) {
    if (inner != &loop && !llvm::isMustProgress(inner)) return false;
  }
  if (has_cycle_without_loop(loop, loops)) return false;
  for (const llvm::BasicBlock* const block : loop.blocks()) {
    for (const llvm::Instruction& one : *block) {
      if (!is_harmless(one)) return false;
    }
  }
  return true;
}

std::optional<gather> gather_of(llvm::Instruction& access, llvm::Loop& loop, llvm::ScalarEvolution& evolution,
                                const llvm::DominatorTree& dominators, const char** why_not) {
  llvm::Value* const pointer = llvm::getLoadStorePointerOperand(&access);
  const char* why_local = nullptr;
  if (pointer == nullptr || !may_be_far(access, pointer, &why_local)) return std::nullopt;
  gather found{};
  found.access = &access;
  found.write = llvm::isa<llvm::StoreInst>(access);
  const llvm::SCEV* const varying = split_address(evolution.getSCEV(pointer), loop, evolution, found.base);
  if (varying == nullptr) return std::nullopt;
  found.index = index_of(varying, found.scale, found.is_signed);
  if (found.index == nullptr || !loop.contains(found.index) || !is_index_type(*found.index->getType()) ||
      found.index->getPointerAddressSpace() != 0 ||
      !dominators.dominates(found.index->getParent(), loop.getLoopLatch())) {
    return std::nullopt;
  }
  const auto* const walk = llvm::dyn_cast<llvm::SCEVAddRecExpr>(evolution.getSCEV(found.index->getPointerOperand()));
  if (walk == nullptr || walk->getLoop() != &loop || !walk->isAffine()) return std::nullopt;
  const auto* const step = llvm::dyn_cast<llvm::SCEVConstant>(walk->getStepRecurrence(evolution));
  if (step == nullptr) return std::nullopt;
  found.start = walk->getStart();
  found.step_bytes = step->getAPInt().getSExtValue();
  const bool is_small = found.step_bytes >= -4096 && found.step_bytes <= 4096;
  if (!is_small || found.step_bytes == 0 || found.scale != static_cast<std::int32_t>(found.scale)) return std::nullopt;
  if (is_written(loop, *found.index)) {
    *why_not = "the loop writes to the array of indices";
    return std::nullopt;
  }
  return found;
}

}  // namespace far::compiler
