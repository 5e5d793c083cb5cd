// Calls of memcpy(), memmove() and memset(): code of the C library, which tells the runtime nothing.
#include "function_pass.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "passes.h"
#include "report.h"

namespace far::compiler {
namespace {

// Fewer bytes are not worth a report: a walk that is as short has none, either.
constexpr std::uint64_t least_bytes = 4 * page_bytes;

// The function of the C library that the code generator calls for it.
llvm::StringRef function_of(const llvm::MemIntrinsic& call) {
  if (llvm::isa<llvm::MemSetInst>(call)) return "memset";
  return llvm::isa<llvm::MemMoveInst>(call) ? "memmove" : "memcpy";
}

// Why the call stays as it is; null if it is to be told.
const char* why_not(const llvm::MemIntrinsic& call, llvm::ScalarEvolution& evolution) {
  if (call.isVolatile()) return "volatile";
  if (evolution.getUnsignedRangeMax(evolution.getSCEV(call.getLength())).ult(least_bytes)) return "short";
  const auto* const transfer = llvm::dyn_cast<llvm::MemTransferInst>(&call);
  if (call.getDestAddressSpace() != 0 || (transfer != nullptr && transfer->getSourceAddressSpace() != 0)) {
    return "in an address space of its own";
  }
  const llvm::GlobalValue* const own = call.getModule()->getNamedValue(function_of(call));
  if (own != nullptr && own->hasLocalLinkage()) return "a call of a function of this file";
  const char* why = nullptr;
  if (may_be_far(call, call.getDest(), &why)) return nullptr;
  return transfer != nullptr && may_be_far(call, transfer->getSource(), &why) ? nullptr : why;
}

// Programs without the C library may have the function in a static library of their own.
void keep_function_of(const llvm::MemIntrinsic& call, llvm::IRBuilder<>& at) {
  llvm::Module& module = *at.GetInsertBlock()->getModule();
  llvm::Type* second = at.getPtrTy();
  if (llvm::isa<llvm::MemSetInst>(call)) second = at.getInt32Ty();
  const llvm::StringRef name = function_of(call);
  auto* const type = llvm::FunctionType::get(at.getPtrTy(), {at.getPtrTy(), second, at.getInt64Ty()}, false);
  keep_reference(module, name, *llvm::cast<llvm::Constant>(module.getOrInsertFunction(name, type).getCallee()));
}

// In the place of the call: the argument registers are the same, so that the code does not grow.
void tell(llvm::MemIntrinsic& call, emitter& emit) {
  llvm::IRBuilder<> at(&call);
  keep_function_of(call, at);
  llvm::Value* const bytes = at.CreateZExtOrTrunc(call.getLength(), at.getInt64Ty());
  llvm::CallInst* told = nullptr;
  if (auto* const set = llvm::dyn_cast<llvm::MemSetInst>(&call)) {
    told = at.CreateCall(emit.set(), {call.getDest(), at.CreateZExt(set->getValue(), at.getInt32Ty()), bytes});
  } else {
    llvm::Value* const source = llvm::cast<llvm::MemTransferInst>(call).getSource();
    told =
        at.CreateCall(llvm::isa<llvm::MemMoveInst>(call) ? emit.move() : emit.copy(), {call.getDest(), source, bytes});
  }
  told->setTailCallKind(call.getTailCallKind());
  call.eraseFromParent();
}

class copy_teller : function_pass {
 public:
  using function_pass::function_pass;

  bool run() {
    llvm::SmallVector<llvm::MemIntrinsic*, 8> found;
    for (llvm::Instruction& one : llvm::instructions(function_)) {
      auto* const call = llvm::dyn_cast<llvm::MemIntrinsic>(&one);
      if (call == nullptr || llvm::isa<llvm::MemCpyInlineInst, llvm::MemSetInlineInst>(call)) continue;
      const char* const why = why_not(*call, evolution_);
      chosen_report().add(*call, remarks_, {"copy", why == nullptr, why == nullptr ? "a call of the C library" : why});
      if (why == nullptr) found.push_back(call);
    }
    for (llvm::MemIntrinsic* const call : found) tell(*call, emit_);
    return !found.empty();
  }
};

}  // namespace

llvm::PreservedAnalyses copies::run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses) {
  if (is_left_alone(function)) return llvm::PreservedAnalyses::all();
  return copy_teller(function, analyses).run() ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
}

}  // namespace far::compiler
