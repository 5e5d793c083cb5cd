#include "emit.h"
#include "function_pass.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DepthFirstIterator.h"
#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "passes.h"
#include "report.h"

namespace far::compiler {
namespace {

// Two addresses that are no farther apart share a guard: they are mostly on one page.
constexpr std::int64_t reach_bytes = 256;

struct guard {
  llvm::Instruction* before;
  llvm::Value* pointer;
  const llvm::Value* base;
  std::int64_t offset;
  bool write;
  bool emitted;         // false: the access needs none, but those behind it can rely on its page
  bool needed = false;  // others rely on it
  bool left_out = false;
  bool hoisted = false;  // `before` is the end of a loop's preheader
};

// The address that the instruction accesses; null if it is no access.
llvm::Value* pointer_of(llvm::Instruction& access) {
  if (auto* const update = llvm::dyn_cast<llvm::AtomicRMWInst>(&access)) return update->getPointerOperand();
  if (auto* const exchange = llvm::dyn_cast<llvm::AtomicCmpXchgInst>(&access)) return exchange->getPointerOperand();
  return llvm::getLoadStorePointerOperand(&access);
}

bool is_near(std::int64_t one, std::int64_t other) {
  return one - other <= reach_bytes && other - one <= reach_bytes;
}

class guarder : function_pass {
 public:
  using function_pass::function_pass;

  bool run() {
    guards_arguments_ = guards_arguments(function_);
    for (const auto* const node : llvm::depth_first(dominators_.getRootNode())) {
      for (llvm::Instruction& access : *node->getBlock()) consider(access);
    }
    for (guard& one : guards_) one.left_out = comes_guarded(one);
    bool any = false;
    for (const guard& one : guards_) {
      if (one.left_out || !one.emitted) continue;
      emit(one);
      any = true;
    }
    return any;
  }

 private:
  void consider(llvm::Instruction& access);
  const char* why_not(const llvm::Instruction& access, llvm::Value* pointer, const llvm::Value* base);
  bool walks(const llvm::Instruction& access, llvm::Value* pointer);
  llvm::Instruction* place_of(llvm::Instruction& access, llvm::Value* pointer);
  bool is_covered(const guard& fresh);
  bool comes_guarded(const guard& one);
  void emit(const guard& one);

  bool guards_arguments_ = false;
  llvm::SmallVector<guard, 16> guards_;
  llvm::DenseMap<const llvm::Value*, llvm::SmallVector<std::size_t, 4>> by_base_;
};

// Whether the address advances by at most half a page with each iteration: usually the previous iteration has used its
// page.
bool guarder::walks(const llvm::Instruction& access, llvm::Value* pointer) {
  const llvm::Loop* const loop = loops_.getLoopFor(access.getParent());
  if (loop == nullptr) return false;
  const auto* const walk = llvm::dyn_cast<llvm::SCEVAddRecExpr>(evolution_.getSCEV(pointer));
  if (walk == nullptr || walk->getLoop() != loop) return false;
  const auto* const step = llvm::dyn_cast<llvm::SCEVConstant>(walk->getStepRecurrence(evolution_));
  return step != nullptr && step->getAPInt().abs().ule(page_bytes / 2);
}

// The reason why there is no guard; null if there is to be one.
const char* guarder::why_not(const llvm::Instruction& access, llvm::Value* pointer, const llvm::Value* base) {
  const char* why = nullptr;
  if (!may_be_far(pointer, &why)) return why;
  if (access.isVolatile()) return "volatile";
  if (llvm::isa<llvm::Argument>(base) && !guards_arguments_) return "of an object that the caller handed over";
  if (llvm::isNoAliasCall(base)) return "just allocated";
  if (llvm::isa<llvm::UnreachableInst>(access.getParent()->getTerminator())) return "where the program ends";
  if (walks(access, pointer)) return "in order";
  if (access.hasMetadata(told_metadata)) return "its loop reports the gather";
  return nullptr;
}

// An address that a loop does not change is guarded before it.
llvm::Instruction* guarder::place_of(llvm::Instruction& access, llvm::Value* pointer) {
  llvm::Instruction* place = &access;
  for (const llvm::Loop* loop = loops_.getLoopFor(access.getParent()); loop != nullptr; loop = loop->getParentLoop()) {
    llvm::BasicBlock* const before = loop->getLoopPreheader();
    const auto* const computed = llvm::dyn_cast<llvm::Instruction>(pointer);
    if (before == nullptr || (computed != nullptr && !dominators_.dominates(computed, before->getTerminator()))) break;
    place = before->getTerminator();
  }
  return place;
}

bool guarder::is_covered(const guard& fresh) {
  for (const std::size_t index : by_base_.lookup(fresh.base)) {
    guard& known = guards_[index];
    if (!is_near(fresh.offset, known.offset)) continue;
    if (known.before != fresh.before && !dominators_.dominates(known.before, fresh.before)) continue;
    known.write |= fresh.write;
    return true;
  }
  return false;
}

// Whether the pointer is a phi whose incoming values all have a guard, or come from the caller. In a walk over a list
// it is the item that the last iteration has guarded.
bool guarder::comes_guarded(const guard& one) {
  const auto* const phi = llvm::dyn_cast<llvm::PHINode>(one.base);
  if (phi == nullptr || one.needed || !one.emitted) return false;
  llvm::SmallVector<guard*, 4> relied_on;
  for (unsigned i = 0; i < phi->getNumIncomingValues(); ++i) {
    llvm::APInt offset(64, one.offset, true);
    const llvm::Value* const base = phi->getIncomingValue(i)->stripAndAccumulateConstantOffsets(
        function_.getDataLayout(), offset, /*AllowNonInbounds=*/true);
    if (llvm::isa<llvm::Argument>(base) && !guards_arguments_) continue;
    guard* found = nullptr;
    for (const std::size_t index : by_base_.lookup(base)) {
      guard& known = guards_[index];
      const bool comes_first = dominators_.dominates(known.before, phi->getIncomingBlock(i)->getTerminator());
      if (!known.left_out && &known != &one && comes_first && is_near(offset.getSExtValue(), known.offset))
        found = &known;
    }
    if (found == nullptr) return false;
    relied_on.push_back(found);
  }
  for (guard* const known : relied_on) known->needed = true;
  return true;
}

// Enters the access among those that later ones can rely on. An access that has no guard of its own is entered, too: it
// brings the page itself. By way of an argument or a global variable no access has a guard, so nothing is entered.
void guarder::consider(llvm::Instruction& access) {
  llvm::Value* const pointer = pointer_of(access);
  if (pointer == nullptr || is_own(pointer)) return;
  llvm::APInt offset(64, 0);
  if (pointer->getType()->getPointerAddressSpace() != 0) return;
  const llvm::Value* const base =
      pointer->stripAndAccumulateConstantOffsets(function_.getDataLayout(), offset, /*AllowNonInbounds=*/true);
  const bool writes = !llvm::isa<llvm::LoadInst>(access);
  const char* const why = why_not(access, pointer, base);
  llvm::Instruction* const before = why == nullptr ? place_of(access, pointer) : &access;
  const guard fresh{.before = before,
                    .pointer = pointer,
                    .base = base,
                    .offset = offset.getSExtValue(),
                    .write = writes,
                    .emitted = why == nullptr,
                    .hoisted = before != &access};
  const bool covered = why == nullptr && is_covered(fresh);
  const char* const elided = covered ? "behind an access of the same object" : why;
  const char* const how = writes ? "written" : "read";
  chosen_report().add(access, remarks_, {"guard", elided == nullptr, elided != nullptr ? elided : how});
  if (covered || (why != nullptr && !llvm::isa<llvm::Instruction>(base))) return;
  by_base_[base].push_back(guards_.size());
  guards_.push_back(fresh);
}

void guarder::emit(const guard& one) {
  llvm::IRBuilder<> at(one.before);
  // In front of a loop, the address may be one that the loop would never access, and then LLVM may know nothing of it.
  llvm::Value* const pointer = one.hoisted ? at.CreateFreeze(one.pointer) : one.pointer;
  llvm::Value* const page = at.CreateLShr(at.CreatePtrToInt(pointer, at.getInt64Ty()), page_shift);
  llvm::Value* const index = at.CreateAnd(page, emit_.load(at, field::mask));
  llvm::Value* const state_at = at.CreatePtrAdd(emit_.load(at, field::states), index);
  // Another thread may write it. Not an atomic load, which the compiler would not fuse with the comparison: any byte
  // that is read is harmless.
  llvm::Value* const state = at.CreateLoad(at.getInt8Ty(), state_at);
  llvm::Value* const calls = at.CreateICmpUGT(state, at.getInt8(last_quiet_state));
  llvm::Instruction* const then = llvm::SplitBlockAndInsertIfThen(
      calls, one.before, false, llvm::MDBuilder(function_.getContext()).createUnlikelyBranchWeights());
  llvm::IRBuilder<> slow(then);
  llvm::CallInst* const call =
      slow.CreateCall(emit_.guard(), {pointer, slow.getInt64(one.write ? 1 : 0), emit_.site_of(function_)});
  call->setCallingConv(llvm::CallingConv::PreserveMost);
}

}  // namespace

llvm::PreservedAnalyses guards::run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses) {
  if (is_left_alone(function)) return llvm::PreservedAnalyses::all();
  return guarder(function, analyses).run() ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
}

}  // namespace far::compiler
