#include "overwrites.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IntrinsicInst.h"
#include "reaches.h"

namespace far::compiler {
namespace {

// More of them are not looked at.
constexpr std::size_t most_loads = 32;

// All loads of a loop that does nothing else that could read memory, or let another thread know how far it is, or
// leave the loop before its end.
bool find_loads(const llvm::Loop& loop, llvm::SmallVectorImpl<const llvm::LoadInst*>& found) {
  for (const llvm::BasicBlock* const block : loop.blocks()) {
    for (const llvm::Instruction& one : *block) {
      if (one.isVolatile() || one.isAtomic() || !llvm::isGuaranteedToTransferExecutionToSuccessor(&one)) return false;
      if (const auto* const call = llvm::dyn_cast<llvm::CallBase>(&one)) {
        const auto* const intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(call);
        const bool is_note = intrinsic != nullptr && intrinsic->isAssumeLikeIntrinsic();
        if (!is_note && !call->doesNotAccessMemory()) return false;
      }
      if (const auto* const load = llvm::dyn_cast<llvm::LoadInst>(&one)) {
        if (found.size() == most_loads) return false;
        found.push_back(load);
      }
    }
  }
  return true;
}

// An inner loop without an end would leave bytes unwritten for ever.
bool ends(const llvm::Loop& loop, llvm::ScalarEvolution& evolution) {
  return llvm::all_of(loop.getSubLoops(), [&evolution](const llvm::Loop* inner) {
    return evolution.hasLoopInvariantBackedgeTakenCount(inner) && ends(*inner, evolution);
  });
}

}  // namespace

bool overwrites_all(const llvm::StoreInst& store, std::int64_t step_bytes, const llvm::Loop& loop,
                    llvm::ScalarEvolution& evolution, llvm::AAResults& aliases) {
  const llvm::DataLayout& layout = store.getDataLayout();
  const llvm::Type* const type = store.getValueOperand()->getType();
  const llvm::TypeSize bits = layout.getTypeSizeInBits(const_cast<llvm::Type*>(type));
  if (bits.isScalable() || step_bytes <= 0 || bits.getFixedValue() != 8 * static_cast<std::uint64_t>(step_bytes) ||
      !store.isSimple() || !loop.contains(&store)) {
    return false;
  }
  llvm::SmallVector<const llvm::LoadInst*, 8> loads;
  if (!find_loads(loop, loads) || !ends(loop, evolution)) return false;
  llvm::BatchAAResults across(aliases);
  across.enableCrossIterationMode();
  const scope_set around = scopes_around(loop);
  const auto reach = [&around](const llvm::Instruction& access) {
    // Types say only that no load after the store sees what it wrote: memory that was allocated holds a number first,
    // and then one of another type in its place.
    llvm::MemoryLocation all = reach_of(access, around);
    all.AATags.TBAA = all.AATags.TBAAStruct = nullptr;
    return all;
  };
  const llvm::MemoryLocation written = reach(store);
  return llvm::all_of(loads, [&](const llvm::LoadInst* load) {
    return across.alias(reach(*load), written) == llvm::AliasResult::NoAlias;
  });
}

}  // namespace far::compiler
