#include "advances.h"
#include "emit.h"
#include "function_pass.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DepthFirstIterator.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Local.h"
#include "marks.h"
#include "passes.h"
#include "profile.h"
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
  bool hot;             // reports the page as used, too
  bool emitted;         // false: the access needs none, but those behind it can rely on its page
  bool needed = false;  // others rely on it
  bool left_out = false;
  bool hoisted = false;  // `before` is the end of a loop's preheader
  bool in_loop = false;  // `before` is in a loop
};

// Guards that are checked together, in front of the first one, so that their misses overlap.
constexpr std::size_t most_in_batch = 4;
using batch = llvm::SmallVector<guard*, most_in_batch>;

// Collects what computes the value behind `place`, in its block, in order. Returns false if some of it has to stay
// where it is: it depends on the access at `place`, on memory that is written in between, or on a call.
bool collect(llvm::Value* value, const llvm::Instruction& place, llvm::SmallSetVector<llvm::Instruction*, 8>& found) {
  auto* const one = llvm::dyn_cast<llvm::Instruction>(value);
  if (one == nullptr || one->getParent() != place.getParent() || one->comesBefore(&place) || found.contains(one)) {
    return true;
  }
  constexpr std::size_t most = 24;
  const auto* const load = llvm::dyn_cast<llvm::LoadInst>(one);
  if (one == &place || found.size() == most || (load != nullptr && !load->isSimple())) return false;
  if (load == nullptr && (one->mayReadOrWriteMemory() || !llvm::isSafeToSpeculativelyExecute(one))) return false;
  for (const llvm::Instruction* before = &place; load != nullptr && before != one; before = before->getNextNode()) {
    if (before->mayWriteToMemory() || !llvm::isGuaranteedToTransferExecutionToSuccessor(before)) return false;
  }
  for (llvm::Value* const operand : one->operands()) {
    if (!collect(operand, place, found)) return false;
  }
  return found.insert(one);
}

bool is_near(std::int64_t one, std::int64_t other) {
  return one - other <= reach_bytes && other - one <= reach_bytes;
}

// Whether both offsets from an address with this alignment are certainly on one page.
bool share_page(llvm::Align alignment, std::int64_t one, std::int64_t other) {
  const unsigned shift = std::min(llvm::Log2(alignment), page_shift);
  return one >> shift == other >> shift;
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
    llvm::SmallVector<batch, 8> batches;
    bool has_emitted = false;
    for (guard& one : guards_) {
      if (one.left_out || !one.emitted) continue;
      has_emitted = true;
      if (one.hot) {
        emit_hot(one);
        continue;
      }
      if (batches.empty() || !joins(batches.back(), one)) batches.push_back({&one});
    }
    for (const batch& together : batches) emit(together);
    // Last: they move into blocks of their own.
    for (llvm::LoadInst* const load : objects_) emit_read(*load);
    return has_emitted || !objects_.empty();
  }

 private:
  void consider(llvm::Instruction& access);
  const char* why_not(const llvm::Instruction& access, llvm::Value* pointer, const llvm::Value* base, bool hot);
  const char* why_unwanted(const llvm::Instruction& access);
  bool walks(const llvm::Instruction& access, llvm::Value* pointer);
  llvm::Instruction* place_of(llvm::Instruction& access, llvm::Value* pointer);
  bool is_covered(const guard& fresh);
  bool comes_guarded(const guard& one);
  bool is_object(const llvm::Instruction& access) const;
  bool joins(batch& together, guard& one);
  void emit(const batch& together);
  llvm::Value* has_evicted(llvm::IRBuilder<>& at);
  void emit_hot(const guard& one);
  void emit_read(llvm::LoadInst& load);

  bool guards_arguments_ = false;
  llvm::SmallVector<guard, 16> guards_;
  llvm::SmallVector<llvm::LoadInst*, 16> objects_;  // read without their pages
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
const char* guarder::why_not(const llvm::Instruction& access, llvm::Value* pointer, const llvm::Value* base, bool hot) {
  const char* why = nullptr;
  if (!may_be_far(access, pointer, &why)) return why;
  if (access.isVolatile()) return "volatile";
  if (llvm::isa<llvm::Argument>(base) && !guards_arguments_ && !hot) return "of an object that the caller handed over";
  if (llvm::isNoAliasCall(base)) return "just allocated";
  if (llvm::isa<llvm::UnreachableInst>(access.getParent()->getTerminator())) return "where the program ends";
  if (walks(access, pointer)) return "in order";
  if (advances(access, *pointer, loops_)) return "mostly in order";
  // What the loop looked ahead for has no page here, if it is an object.
  if (access.hasMetadata(told_metadata) && !hot && !is_object(access)) return "its loop reports the gather";
  if (access.hasMetadata(prepared_metadata)) return "prepared by an earlier compilation";
  if (access.hasMetadata(quiet_metadata)) return "in the copy of a loop that runs while nothing is far";
  return nullptr;
}

// What profiles say against a guard. It may be that the page is always there, or only that it seldom is not, so others
// do not rely on the access.
const char* guarder::why_unwanted(const llvm::Instruction& access) {
  return why_no_guard(chosen_profile().of(access), executions_of(access, frequencies_));
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
  const llvm::SmallVector<std::size_t, 4> of_base = by_base_.lookup(fresh.base);
  if (of_base.empty()) return false;
  const llvm::Align alignment = llvm::getKnownAlignment(const_cast<llvm::Value*>(fresh.base), function_.getDataLayout(),
                                                        fresh.before, &assumptions_, &dominators_);
  for (const std::size_t index : of_base) {
    guard& known = guards_[index];
    if (fresh.hot && !known.emitted) continue;
    if (!is_near(fresh.offset, known.offset) && !share_page(alignment, fresh.offset, known.offset)) continue;
    if (known.before != fresh.before && !dominators_.dominates(known.before, fresh.before)) continue;
    known.write |= fresh.write;
    known.hot |= fresh.hot;
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
      if (known.left_out || &known == &one || !comes_first || (one.hot && !known.emitted)) continue;
      if (is_near(offset.getSExtValue(), known.offset)) found = &known;
    }
    if (found == nullptr) return false;
    relied_on.push_back(found);
  }
  for (guard* const known : relied_on) {
    known->needed = true;
    known->hot |= one.hot;
  }
  return true;
}

// Whether it is a read that can do without its page: of a number or a pointer, and not by an atomic access, which might
// have to be the newest that another thread sees.
bool guarder::is_object(const llvm::Instruction& access) const {
  const auto* const load = llvm::dyn_cast<llvm::LoadInst>(&access);
  if (chosen_object_bytes() == 0 || load == nullptr || !load->isSimple()) return false;
  const llvm::Type& type = *load->getType();
  return type.isIntegerTy(8) || type.isIntegerTy(16) || type.isIntegerTy(32) || type.isIntegerTy(64) ||
         type.isFloatTy() || type.isDoubleTy() || (type.isPointerTy() && type.getPointerAddressSpace() == 0);
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
  const bool hot = is_hot(access, pointer);
  const char* const why = why_not(access, pointer, base, hot);
  llvm::Instruction* const before = why == nullptr ? place_of(access, pointer) : &access;
  const guard fresh{.before = before,
                    .pointer = pointer,
                    .base = base,
                    .offset = offset.getSExtValue(),
                    .write = writes,
                    .hot = hot,
                    .emitted = why == nullptr,
                    .hoisted = before != &access,
                    .in_loop = loops_.getLoopFor(before->getParent()) != nullptr};
  const bool covered = why == nullptr && is_covered(fresh);
  const char* const unwanted = why != nullptr || covered || hot ? nullptr : why_unwanted(access);
  const char* const elided = covered ? "behind an access of the same object" : unwanted != nullptr ? unwanted : why;
  const bool object = elided == nullptr && !hot && is_object(access);
  const char* const how = object   ? "read, as an object"
                          : hot    ? (writes ? "written, hot" : "read, hot")
                          : writes ? "written"
                                   : "read";
  chosen_report().add(access, remarks_, {"guard", elided == nullptr, elided != nullptr ? elided : how});
  if (covered || unwanted != nullptr || (why != nullptr && !llvm::isa<llvm::Instruction>(base))) return;
  if (object) {
    // Its page stays away, so nothing relies on it.
    objects_.push_back(llvm::cast<llvm::LoadInst>(&access));
    return;
  }
  by_base_[base].push_back(guards_.size());
  guards_.push_back(fresh);
}

// Adds the guard to the batch in front of it if its address can be known there: it is in the same block, and depends on
// none of the accesses. Then what computes it moves up.
bool guarder::joins(batch& together, guard& one) {
  llvm::Instruction* const place = together.front()->before;
  if (together.size() == most_in_batch || one.before->getParent() != place->getParent()) return false;
  if (one.before != place && !place->comesBefore(one.before)) return false;
  for (const llvm::Instruction* at = place; at != one.before; at = at->getNextNode()) {
    if (llvm::isa<llvm::CallBase>(at) && at->mayHaveSideEffects()) return false;
  }
  llvm::SmallSetVector<llvm::Instruction*, 8> computed;
  if (!collect(one.pointer, *place, computed)) return false;
  const auto is_guarded = [&computed](const guard* known) { return computed.contains(known->before); };
  if (llvm::any_of(together, is_guarded)) return false;
  for (llvm::Instruction* const part : computed) part->moveBefore(place);
  together.push_back(&one);
  return true;
}

// A guard in a loop looks at the page's state, and one outside of loops asks first whether any page has left: the slow
// path looks at the state, too, so less code has to.
void guarder::emit(const batch& together) {
  llvm::Instruction* const place = together.front()->before;
  llvm::IRBuilder<> at(place);
  llvm::SmallVector<llvm::Value*, most_in_batch> pointers;
  llvm::Value* states = nullptr;
  const bool in_loop = together.front()->in_loop;
  std::uint64_t written = 0;
  for (const guard* const one : together) {
    // In front of a loop, the address may be one that the loop would never access, and then LLVM may know nothing of
    // it.
    pointers.push_back(one->hoisted ? at.CreateFreeze(one->pointer) : one->pointer);
    if (in_loop) {
      llvm::Value* const state = emit_.state_of(at, pointers.back());
      states = states == nullptr ? state : at.CreateOr(states, state);
    }
    if (one->write) written |= std::uint64_t{1} << (pointers.size() - 1);
  }
  llvm::Value* const calls = in_loop ? at.CreateICmpUGT(states, at.getInt8(last_quiet_state)) : has_evicted(at);
  llvm::Instruction* const then = llvm::SplitBlockAndInsertIfThen(
      calls, place, false, llvm::MDBuilder(function_.getContext()).createUnlikelyBranchWeights());
  llvm::IRBuilder<> slow(then);
  llvm::CallInst* call = nullptr;
  if (pointers.size() == 1) {
    call = slow.CreateCall(emit_.guard(written != 0), {pointers[0]});
  } else {
    pointers.resize(most_in_batch, llvm::ConstantPointerNull::get(slow.getPtrTy()));
    call = slow.CreateCall(emit_.guards(), {pointers[0], pointers[1], pointers[2], pointers[3], slow.getInt64(written),
                                            emit_.site_of(function_)});
  }
  call->setCallingConv(llvm::CallingConv::PreserveMost);
}

// In place of the load: value = state > 1 ? __farheap_read(address, bytes) : *address.
void guarder::emit_read(llvm::LoadInst& load) {
  llvm::IRBuilder<> at(&load);
  llvm::Type* const type = load.getType();
  const llvm::TypeSize bits = function_.getDataLayout().getTypeSizeInBits(type);
  llvm::Value* const away =
      at.CreateICmpUGT(emit_.state_of(at, load.getPointerOperand()), at.getInt8(last_quiet_state));
  llvm::Instruction* then = nullptr;
  llvm::Instruction* otherwise = nullptr;
  llvm::SplitBlockAndInsertIfThenElse(away, load.getIterator(), &then, &otherwise,
                                      llvm::MDBuilder(function_.getContext()).createUnlikelyBranchWeights());
  llvm::BasicBlock* const after = load.getParent();
  llvm::IRBuilder<> slow(then);
  slow.SetCurrentDebugLocation(load.getDebugLoc());
  llvm::CallInst* const call =
      slow.CreateCall(emit_.read(), {load.getPointerOperand(), slow.getInt64(bits / 8), emit_.site_of(function_)});
  call->setCallingConv(llvm::CallingConv::PreserveMost);
  llvm::Value* const number = slow.CreateTrunc(call, slow.getIntNTy(static_cast<unsigned>(bits.getFixedValue())));
  llvm::Value* const copy = type->isPointerTy() ? slow.CreateIntToPtr(number, type) : slow.CreateBitCast(number, type);
  load.moveBefore(otherwise);
  llvm::PHINode* const value = llvm::PHINode::Create(type, 2, "", after->begin());
  load.replaceAllUsesWith(value);
  value->addIncoming(copy, then->getParent());
  value->addIncoming(&load, otherwise->getParent());
}

// Before the first page has left, all of them stay.
llvm::Value* guarder::has_evicted(llvm::IRBuilder<>& at) {
  llvm::Value* const count = at.CreateLoad(at.getInt64Ty(), emit_.load(at, field::has_evicted));
  return at.CreateICmpNE(count, at.getInt64(0));
}

void guarder::emit_hot(const guard& one) {
  llvm::IRBuilder<> at(one.before);
  llvm::Value* const pointer = one.hoisted ? at.CreateFreeze(one.pointer) : one.pointer;
  llvm::Instruction* const then = llvm::SplitBlockAndInsertIfThen(
      has_evicted(at), one.before, false, llvm::MDBuilder(function_.getContext()).createUnlikelyBranchWeights());
  llvm::IRBuilder<> slow(then);
  slow.CreateCall(emit_.hot(), {pointer, slow.getInt64(one.write ? 1 : 0), emit_.site_of(function_)})
      ->setCallingConv(llvm::CallingConv::PreserveMost);
}

}  // namespace

llvm::PreservedAnalyses guards::run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses) {
  if (is_left_alone(function)) return llvm::PreservedAnalyses::all();
  return guarder(function, analyses).run() ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
}

}  // namespace far::compiler
