#include "copies.h"

#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "report.h"

namespace far::compiler {
namespace {

// Fewer bytes are not worth a report: a walk that is as short has none, either.
constexpr std::uint64_t least_bytes = 4 * page_bytes;

bool may_be_long(const llvm::MemIntrinsic& call) {
  const auto* const bytes = llvm::dyn_cast<llvm::ConstantInt>(call.getLength());
  return bytes == nullptr || bytes->getValue().uge(least_bytes);
}

// Why the call stays as it is; null if it is to be told.
const char* why_not(const llvm::MemIntrinsic& call) {
  if (call.isVolatile()) return "volatile";
  const char* why = nullptr;
  const auto* const transfer = llvm::dyn_cast<llvm::MemTransferInst>(&call);
  if (transfer != nullptr && transfer->getSourceAddressSpace() != 0) return "in an address space of its own";
  if (may_be_far(call, call.getDest(), &why)) return nullptr;
  return transfer != nullptr && may_be_far(call, transfer->getSource(), &why) ? nullptr : why;
}

//     before -> is long? -> has evicted? -> support -> behind
//         \_____________________\__> the call as it is _/
void tell(llvm::MemIntrinsic& call, emitter& emit) {
  llvm::Function& function = *call.getFunction();
  llvm::BasicBlock* const before = call.getParent();
  llvm::BasicBlock* const plain = llvm::SplitBlock(before, &call);
  llvm::BasicBlock* const behind = llvm::SplitBlock(plain, call.getNextNode());
  llvm::BasicBlock* const is_long = llvm::BasicBlock::Create(function.getContext(), "farheap.copy", &function, behind);
  llvm::BasicBlock* const told =
      llvm::BasicBlock::Create(function.getContext(), "farheap.copy.told", &function, behind);
  llvm::MDNode* const unlikely = llvm::MDBuilder(function.getContext()).createUnlikelyBranchWeights();

  before->getTerminator()->eraseFromParent();
  llvm::IRBuilder<> at(before);
  at.SetCurrentDebugLocation(call.getDebugLoc());
  llvm::Value* const bytes = at.CreateZExtOrTrunc(call.getLength(), at.getInt64Ty());
  at.CreateCondBr(at.CreateICmpUGE(bytes, at.getInt64(least_bytes)), is_long, plain, unlikely);
  at.SetInsertPoint(is_long);
  llvm::Value* const evicted = at.CreateLoad(at.getInt64Ty(), emit.load(at, field::has_evicted), /*isVolatile=*/true);
  at.CreateCondBr(at.CreateICmpNE(evicted, at.getInt64(0)), told, plain, unlikely);
  at.SetInsertPoint(told);
  if (const auto* const transfer = llvm::dyn_cast<llvm::MemTransferInst>(&call)) {
    at.CreateCall(emit.copy(), {call.getDest(), transfer->getSource(), bytes, emit.site_of(function)});
  } else {
    llvm::Value* const value = llvm::cast<llvm::MemSetInst>(call).getValue();
    at.CreateCall(emit.set(), {call.getDest(), value, bytes, emit.site_of(function)});
  }
  at.CreateBr(behind);
}

}  // namespace

bool tell_copies(llvm::Function& function, llvm::OptimizationRemarkEmitter& remarks, emitter& emit) {
  llvm::SmallVector<llvm::MemIntrinsic*, 8> found;
  for (llvm::Instruction& one : llvm::instructions(function)) {
    auto* const call = llvm::dyn_cast<llvm::MemIntrinsic>(&one);
    if (call == nullptr || llvm::isa<llvm::MemCpyInlineInst, llvm::MemSetInlineInst>(call) || !may_be_long(*call)) {
      continue;
    }
    const char* const why = why_not(*call);
    chosen_report().add(*call, remarks, {"copy", why == nullptr, why == nullptr ? "a call of the C library" : why});
    if (why == nullptr) found.push_back(call);
  }
  for (llvm::MemIntrinsic* const call : found) tell(*call, emit);
  return !found.empty();
}

}  // namespace far::compiler
