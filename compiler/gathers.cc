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
  if (const auto* const moved = llvm::dyn_cast<llvm::MemIntrinsic>(call)) {
    return llvm::isa<llvm::ConstantInt>(moved->getLength());
  }
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
      const auto* const call = llvm::dyn_cast<llvm::MemIntrinsic>(&one);
      const llvm::Value* const to = store != nullptr  ? store->getPointerOperand()
                                    : call != nullptr ? call->getRawDest()
                                                      : nullptr;
      if (to != nullptr && llvm::getUnderlyingObject(to, 12) == array) return true;
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

// What the iteration before has loaded, for a value that an iteration hands on; or else the value itself.
llvm::Value* loaded_before(llvm::Value* value, const llvm::Loop& loop) {
  const auto* const handed = llvm::dyn_cast<llvm::PHINode>(value);
  return handed != nullptr && handed->getParent() == loop.getHeader()
             ? handed->getIncomingValueForBlock(loop.getLoopLatch())
             : value;
}

// The load at the bottom of `varying`, which is that load, widened and multiplied. `of_rows`: or the one of the
// iteration before.
llvm::LoadInst* index_of(const llvm::SCEV* varying, const llvm::Loop& loop, bool of_rows, std::int64_t& scale,
                         bool& is_signed) {
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
  if (unknown == nullptr) return nullptr;
  llvm::Value* value = unknown->getValue();
  if (of_rows) {
    value = loaded_before(value, loop);
    if (auto* const widened = llvm::dyn_cast<llvm::CastInst>(value);
        llvm::isa_and_present<llvm::SExtInst, llvm::ZExtInst>(widened)) {
      is_signed = llvm::isa<llvm::SExtInst>(widened);
      value = widened->getOperand(0);
    }
  }
  return llvm::dyn_cast<llvm::LoadInst>(value);
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

namespace {

std::optional<gather> gather_at(const llvm::SCEV* address, gather found, llvm::Loop& loop,
                                llvm::ScalarEvolution& evolution, const llvm::DominatorTree& dominators,
                                const char** why_not) {
  const llvm::SCEV* const varying = split_address(address, loop, evolution, found.base);
  if (varying == nullptr) return std::nullopt;
  found.index = index_of(varying, loop, found.of_rows, found.scale, found.is_signed);
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

}  // namespace

std::optional<gather> gather_of(const touch& accessed, llvm::Loop& loop, llvm::ScalarEvolution& evolution,
                                const llvm::DominatorTree& dominators, const char** why_not) {
  const char* why_local = nullptr;
  if (!may_be_far(*accessed.access, accessed.pointer, &why_local)) return std::nullopt;
  gather found{};
  found.access = accessed.access;
  found.write = accessed.write;
  return gather_at(evolution.getSCEV(accessed.pointer), found, loop, evolution, dominators, why_not);
}

std::optional<gather> rows_of(llvm::Instruction& access, llvm::Loop& loop, const llvm::LoopInfo& loops,
                              llvm::ScalarEvolution& evolution, const llvm::DominatorTree& dominators) {
  llvm::Value* const pointer = llvm::getLoadStorePointerOperand(&access);
  const llvm::Loop* const inner = loops.getLoopFor(access.getParent());
  const char* why = nullptr;
  if (pointer == nullptr || inner->getParentLoop() != &loop || !may_be_far(access, pointer, &why)) return std::nullopt;
  const auto* const walk = llvm::dyn_cast<llvm::SCEVAddRecExpr>(evolution.getSCEV(pointer));
  if (walk == nullptr || walk->getLoop() != inner || !walk->isAffine()) return std::nullopt;
  const auto* const step = llvm::dyn_cast<llvm::SCEVConstant>(walk->getStepRecurrence(evolution));
  if (step == nullptr || step->getAPInt().abs().ugt(page_bytes)) return std::nullopt;
  gather found{};
  found.access = &access;
  found.of_rows = true;
  found.write = llvm::isa<llvm::StoreInst>(access);
  return gather_at(walk->getStart(), found, loop, evolution, dominators, &why);
}

}  // namespace far::compiler
