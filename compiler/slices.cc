#include "slices.h"

#include "gathers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Transforms/Utils/ValueMapper.h"
#include "passes.h"
#include "reaches.h"

namespace far::compiler {
namespace {

// More is not worth running twice.
constexpr std::size_t most_instructions = 48;

class slicer {
 public:
  // `given`: what the copy knows otherwise.
  slicer(const llvm::Loop& loop, llvm::ScalarEvolution& evolution, const llvm::DominatorTree& dominators,
         const llvm::Instruction* given = nullptr)
      : loop_(loop), evolution_(evolution), dominators_(dominators), given_(given) {}

  // Adds what computes the value. Returns false if it cannot be copied.
  bool add(llvm::Value* value);
  void put_into(slice& one) const;
  [[nodiscard]] bool needs_given() const { return needs_given_; }

 private:
  bool can_be_copied(const llvm::Instruction& one) const;
  bool is_walk(const llvm::LoadInst& load) const;

  const llvm::Loop& loop_;
  llvm::ScalarEvolution& evolution_;
  const llvm::DominatorTree& dominators_;
  const llvm::Instruction* given_;
  bool needs_given_ = false;
  llvm::SmallSetVector<llvm::Instruction*, 16> found_;
};

// A step of no more than a page from one iteration to the next.
bool is_in_order(const llvm::Value* pointer, const llvm::Loop& loop, llvm::ScalarEvolution& evolution) {
  const auto* const walk = llvm::dyn_cast<llvm::SCEVAddRecExpr>(evolution.getSCEV(const_cast<llvm::Value*>(pointer)));
  if (walk == nullptr || walk->getLoop() != &loop || !walk->isAffine()) return false;
  const auto* const step = llvm::dyn_cast<llvm::SCEVConstant>(walk->getStepRecurrence(evolution));
  return step != nullptr && step->getAPInt().abs().ule(page_bytes);
}

// What the loop reads in each iteration, and in order. Data may be old when the copy reads it, if the loop writes it;
// then the copy finds another address than the loop, and a page is fetched in vain.
bool slicer::is_walk(const llvm::LoadInst& load) const {
  return load.isSimple() && load.getPointerAddressSpace() == 0 &&
         is_in_order(load.getPointerOperand(), loop_, evolution_) &&
         dominators_.dominates(load.getParent(), loop_.getLoopLatch()) && !is_written(loop_, load);
}

// It must end, change nothing, and not trap whatever it reads.
bool slicer::can_be_copied(const llvm::Instruction& one) const {
  if (const auto* const phi = llvm::dyn_cast<llvm::PHINode>(&one)) return phi->getParent() == loop_.getHeader();
  if (const auto* const load = llvm::dyn_cast<llvm::LoadInst>(&one)) return is_walk(*load);
  if (one.getType()->isVectorTy() || one.getType()->isTokenTy()) return false;
  switch (one.getOpcode()) {
    case llvm::Instruction::UDiv:
    case llvm::Instruction::URem: return loop_.isLoopInvariant(one.getOperand(1));
    case llvm::Instruction::SDiv:
    case llvm::Instruction::SRem: {
      const auto* const divisor = llvm::dyn_cast<llvm::ConstantInt>(one.getOperand(1));
      return divisor != nullptr && !divisor->isZero() && !divisor->isMinusOne();
    }
    default: break;
  }
  return !one.mayReadOrWriteMemory() && !one.isTerminator() && llvm::isSafeToSpeculativelyExecute(&one);
}

bool slicer::add(llvm::Value* value) {
  llvm::SmallVector<llvm::Value*, 16> waiting{value};
  while (!waiting.empty()) {
    auto* const one = llvm::dyn_cast<llvm::Instruction>(waiting.pop_back_val());
    if (one == nullptr || !loop_.contains(one) || found_.contains(one)) continue;
    needs_given_ |= one == given_;
    if (one == given_) continue;
    if (found_.size() == most_instructions || !can_be_copied(*one)) return false;
    found_.insert(one);
    if (auto* const phi = llvm::dyn_cast<llvm::PHINode>(one)) {
      waiting.push_back(phi->getIncomingValueForBlock(loop_.getLoopLatch()));
    } else {
      for (llvm::Value* const operand : one->operands()) waiting.push_back(operand);
    }
  }
  return true;
}

// In an order in which each instruction comes behind its operands: those of the blocks, which dominate one another
// wherever one uses another.
void slicer::put_into(slice& one) const {
  for (llvm::Instruction* const found : found_) {
    if (auto* const phi = llvm::dyn_cast<llvm::PHINode>(found)) {
      one.carried.push_back(phi);
    } else {
      one.computed.push_back(found);
    }
  }
  llvm::SmallPtrSet<llvm::Instruction*, 16> placed;
  llvm::SmallVector<llvm::Instruction*, 16> ordered;
  while (ordered.size() < one.computed.size()) {
    for (llvm::Instruction* const next : one.computed) {
      const auto is_ready = [&](const llvm::Value* operand) {
        auto* const used = llvm::dyn_cast<llvm::Instruction>(const_cast<llvm::Value*>(operand));
        return used == nullptr || !found_.contains(used) || llvm::isa<llvm::PHINode>(used) || placed.contains(used);
      };
      if (placed.contains(next) || !llvm::all_of(next->operand_values(), is_ready)) continue;
      placed.insert(next);
      ordered.push_back(next);
    }
  }
  one.computed = std::move(ordered);
}

// The copy of what an iteration computes, at `at`. `values`: what it needs; then everything else, too.
void copy_computed(llvm::ArrayRef<llvm::Instruction*> computed, llvm::ValueToValueMapTy& values,
                   llvm::IRBuilder<>& at) {
  for (llvm::Instruction* const original : computed) {
    llvm::Instruction* const copy = original->clone();
    copy->dropPoisonGeneratingFlags();
    copy->dropUnknownNonDebugMetadata();
    copy->setDebugLoc(at.getCurrentDebugLocation());
    at.Insert(copy);
    llvm::RemapInstruction(copy, values, llvm::RF_NoModuleLevelChanges | llvm::RF_IgnoreMissingLocals);
    values[original] = copy;
  }
}

// What the access refers to first, in an inner loop that goes on from one address to the next: what a list hangs on. In
// other blocks than its header, the first address may be skipped.
llvm::Value* first_pointer(const touch& accessed, const llvm::Loop& loop) {
  llvm::Value* const pointer = accessed.pointer;
  if (!llvm::isa<llvm::PHINode>(pointer)) return pointer;
  const llvm::BasicBlock* const place = accessed.access->getParent();
  if (llvm::cast<llvm::PHINode>(pointer)->getParent() != place) return pointer;
  for (const llvm::Loop* const inner : loop.getSubLoops()) {
    if (inner->getHeader() == place && inner->getLoopPreheader() != nullptr) {
      return llvm::cast<llvm::PHINode>(pointer)->getIncomingValueForBlock(inner->getLoopPreheader());
    }
  }
  return pointer;
}

bool loads_pointer(const llvm::LoadInst& load) {
  return load.getType()->isPointerTy() && load.getType()->getPointerAddressSpace() == 0;
}

// A pointer that is read from static data, or from the stack.
bool is_in_local_table(const llvm::Instruction& access, const llvm::Value& pointer) {
  const llvm::Value* const object = llvm::getUnderlyingObject(&pointer, 12);
  return llvm::isa<llvm::LoadInst>(access) && loads_pointer(llvm::cast<llvm::LoadInst>(access)) &&
         (llvm::isa<llvm::GlobalVariable>(object) || llvm::isa<llvm::AllocaInst>(object));
}

}  // namespace

std::optional<slice> slice_of(const touch& accessed, const llvm::Loop& loop, llvm::ScalarEvolution& evolution,
                              const llvm::DominatorTree& dominators) {
  llvm::Instruction& access = *accessed.access;
  llvm::Value* const pointer = first_pointer(accessed, loop);
  const char* why = nullptr;
  const bool is_local = !may_be_far(access, pointer, &why);
  if (is_local && !is_in_local_table(access, *pointer)) return std::nullopt;
  if (evolution.isLoopInvariant(evolution.getSCEV(pointer), &loop)) return std::nullopt;
  if (is_in_order(pointer, loop, evolution)) return std::nullopt;
  slicer found(loop, evolution, dominators);
  if (!found.add(pointer)) return std::nullopt;
  slice one{&access, pointer, accessed.write, is_local, {}, {}, {}};
  found.put_into(one);
  return one;
}

namespace {

// Whether no store of the loop changes what one of the loads reads.
bool are_settled(llvm::ArrayRef<const llvm::LoadInst*> loads, const llvm::Loop& loop, llvm::AAResults& aliases) {
  llvm::BatchAAResults across(aliases);
  across.enableCrossIterationMode();
  const scope_set around = scopes_around(loop);
  for (const llvm::BasicBlock* const block : loop.blocks()) {
    for (const llvm::Instruction& written : *block) {
      if (!llvm::isa<llvm::StoreInst, llvm::MemIntrinsic>(written)) continue;
      for (const llvm::LoadInst* const load : loads) {
        const auto alias = across.alias(reach_of(*load, around), reach_of(written, around));
        if (alias != llvm::AliasResult::NoAlias) return false;
      }
    }
  }
  return true;
}

struct found_access {
  llvm::Instruction* access;
  std::int64_t offset;
  bool is_exact;  // and not of another pointer in some iterations
};

// The accesses of the loop at a constant distance from the pointer, which may pass through phis on its way.
llvm::SmallVector<found_access, 8> accesses_from(llvm::Value* pointer, const llvm::Loop& loop,
                                                 const llvm::DataLayout& layout) {
  llvm::SmallVector<found_access, 8> found;
  struct way {
    llvm::Value* value;
    std::int64_t offset;
    bool is_exact;
  };
  llvm::SmallVector<way, 8> waiting{{pointer, 0, true}};
  llvm::SmallPtrSet<llvm::Value*, 8> seen{pointer};
  while (!waiting.empty()) {
    const auto [value, offset, is_exact] = waiting.pop_back_val();
    for (llvm::User* const user : value->users()) {
      auto* const one = llvm::dyn_cast<llvm::Instruction>(user);
      if (one == nullptr || !loop.contains(one) || seen.size() == most_instructions) continue;
      if (llvm::getLoadStorePointerOperand(one) == value) found.push_back({one, offset, is_exact});
      llvm::APInt further(layout.getIndexTypeSizeInBits(value->getType()), 0);
      auto* const element = llvm::dyn_cast<llvm::GEPOperator>(one);
      const bool is_near = element != nullptr && element->getPointerOperand() == value &&
                           element->accumulateConstantOffset(layout, further) && further.abs().ult(page_bytes);
      if ((is_near || llvm::isa<llvm::PHINode>(one)) && seen.insert(one).second) {
        waiting.push_back({one, offset + further.getSExtValue(), is_exact && is_near});
      }
    }
  }
  return found;
}

// Whether the loop, once it has read the pointer, goes through the block before it does so again, if it does.
bool follows_surely(const llvm::BasicBlock* place, const llvm::LoadInst& pointer, const llvm::Loop& loop,
                    const llvm::DominatorTree& dominators) {
  const auto is_around = [&pointer](const llvm::Loop* inner) { return inner->contains(&pointer); };
  if (llvm::any_of(loop.getSubLoops(), is_around)) return place == pointer.getParent();
  return dominators.dominates(place, loop.getLoopLatch());
}

// Whether the loop reads it whenever it has read the pointer, unless that is null.
bool is_read_unless_null(const llvm::LoadInst& load, const llvm::LoadInst& pointer, const llvm::Loop& loop,
                         const llvm::DominatorTree& dominators) {
  const llvm::BasicBlock* const place = load.getParent();
  if (follows_surely(place, pointer, loop, dominators)) return true;
  const llvm::BasicBlock* const before = place->getSinglePredecessor();
  if (before == nullptr || !follows_surely(before, pointer, loop, dominators)) return false;
  const auto* const branch = llvm::dyn_cast<llvm::BranchInst>(before->getTerminator());
  if (branch == nullptr || !branch->isConditional()) return false;
  const auto* const test = llvm::dyn_cast<llvm::ICmpInst>(branch->getCondition());
  if (test == nullptr || !test->isEquality() || test->getOperand(0) != &pointer) return false;
  if (!llvm::isa<llvm::ConstantPointerNull>(test->getOperand(1))) return false;
  return branch->getSuccessor(test->getPredicate() == llvm::ICmpInst::ICMP_EQ ? 1 : 0) == place;
}

// As of -ffast-math.
bool is_loose_arithmetic(const llvm::Instruction* one) {
  const auto* const arithmetic = llvm::dyn_cast<llvm::FPMathOperator>(one);
  return arithmetic != nullptr && arithmetic->getFastMathFlags().any();
}

// Where the loop goes from the number that it reads, if it computes an address by it. That address is only looked at.
std::optional<follow> address_by(const llvm::LoadInst& number, const slice& one, const llvm::Loop& loop,
                                 llvm::ScalarEvolution& evolution, const llvm::DominatorTree& dominators) {
  for (llvm::BasicBlock* const block : loop.blocks()) {
    if (!dominators.dominates(block, loop.getLoopLatch())) continue;
    for (llvm::Instruction& access : *block) {
      llvm::Value* const pointer = llvm::getLoadStorePointerOperand(&access);
      const char* why = nullptr;
      if (pointer == nullptr || !may_be_far(access, pointer, &why)) continue;
      slicer found(loop, evolution, dominators, &number);
      if (!found.add(pointer) || !found.needs_given()) continue;
      slice all{};
      found.put_into(all);
      const auto is_known = [&one](const auto* part) { return llvm::is_contained(one.carried, part); };
      if (!llvm::all_of(all.carried, is_known)) continue;
      llvm::erase_if(all.computed, [&one](auto* part) { return llvm::is_contained(one.computed, part); });
      follow next{0, llvm::isa<llvm::StoreInst>(access), pointer};
      next.computed.append(all.computed.begin(), all.computed.end());
      return next;
    }
  }
  return std::nullopt;
}

}  // namespace

void find_followed(slice& one, const llvm::Loop& loop, llvm::ScalarEvolution& evolution,
                   const llvm::DominatorTree& dominators, llvm::AAResults& aliases) {
  // What may be calculated in another order may be so in the copy alone, which would read beside the loop's place.
  if (llvm::any_of(one.computed, is_loose_arithmetic)) return;
  const llvm::DataLayout& layout = loop.getHeader()->getDataLayout();
  // All that the copy reads to come to the next address.
  llvm::SmallVector<const llvm::LoadInst*, 8> loads;
  for (const llvm::Instruction* const computed : one.computed) {
    if (const auto* const load = llvm::dyn_cast<llvm::LoadInst>(computed)) loads.push_back(load);
  }
  auto* pointer = llvm::dyn_cast<llvm::LoadInst>(one.access);
  if (pointer != nullptr && pointer->getType()->isIntegerTy() && are_settled(loads, loop, aliases)) {
    if (std::optional<follow> next = address_by(*pointer, one, loop, evolution, dominators)) {
      one.next.push_back(std::move(*next));
    }
    return;
  }
  while (pointer != nullptr && loads_pointer(*pointer) && one.next.size() < most_followed) {
    if (!are_settled(loads, loop, aliases)) return;
    loads.push_back(pointer);
    const auto found = accesses_from(pointer, loop, layout);
    const found_access* best = nullptr;  // a pointer that leads farther, or else a read, or else a write
    llvm::LoadInst* further = nullptr;
    for (const found_access& each : found) {
      auto* const load = llvm::dyn_cast<llvm::LoadInst>(each.access);
      if (load != nullptr && each.is_exact && loads_pointer(*load) &&
          is_read_unless_null(*load, *pointer, loop, dominators)) {
        best = &each;
        further = load;
        break;
      }
      if (best == nullptr || (load != nullptr && llvm::isa<llvm::StoreInst>(best->access))) best = &each;
    }
    if (best == nullptr) return;
    one.next.push_back({.offset = best->offset, .write = llvm::isa<llvm::StoreInst>(best->access)});
    pointer = further;
  }
}

namespace {

// Reads what `original` reads, at `address`, and returns where the loop goes from there. If that is nowhere, the code
// goes on with `next`.
llvm::Value* follow_on(const follow& step, llvm::LoadInst& original, llvm::Align alignment, llvm::Value* address,
                       llvm::BasicBlock* next, llvm::ValueToValueMapTy& values, llvm::IRBuilder<>& at) {
  llvm::LLVMContext& context = at.getContext();
  const bool is_number = step.pointer != nullptr;
  llvm::LoadInst* const read = at.CreateAlignedLoad(is_number ? original.getType() : at.getPtrTy(), address, alignment);
  read->setMetadata(told_metadata, llvm::MDNode::get(context, {}));
  llvm::Value* const there = at.CreateFreeze(read);
  if (is_number) {
    values[&original] = there;
    copy_computed(step.computed, values, at);
    const auto copied = values.find(step.pointer);
    return at.CreateFreeze(copied != values.end() ? static_cast<llvm::Value*>(copied->second) : step.pointer);
  }
  auto* const further = llvm::BasicBlock::Create(context, "farheap.look.further", next->getParent());
  at.CreateCondBr(at.CreateIsNull(there), next, further);
  at.SetInsertPoint(further);
  return at.CreatePtrAdd(there, at.getInt64(static_cast<std::uint64_t>(step.offset)));
}

}  // namespace

// For each pass:
//
//     plan = __farheap_look(pass, ...);                 how many iterations to go through, and from which one to look
//     for (k = 0; k < plan & 0xffffffff; ++k) {
//       address = copy of the loop's computation;
//       if (k >= plan >> 32 && states[address >> 12 & mask] > 1) __farheap_ahead(address, pass, ...);
//     }
//
// Two passes more follow the pointers at these addresses, whose pages have come: address = *address + offset, unless it
// is null; and two more those that they lead to. Or they compute the next address by the number that lies there.
void emit_look(const slice& one, const slice_call& call, llvm::function_ref<llvm::Value*(llvm::PHINode*)> start_of,
               emitter& emit, llvm::IRBuilder<>& at) {
  llvm::LLVMContext& context = at.getContext();
  llvm::Function* const function = at.GetInsertBlock()->getParent();
  for (std::size_t pass = one.is_local ? 2 : 0; pass < 2 + 2 * one.next.size(); ++pass) {
    const std::size_t followed = pass / 2;
    const auto block = [&](const char* name) { return llvm::BasicBlock::Create(context, name, function); };
    auto* const body = block("farheap.look");
    auto* const missing = block("farheap.look.missing");
    auto* const next = block("farheap.look.next");
    auto* const end = block("farheap.look.end");
    const bool write = followed != 0 ? one.next[followed - 1].write : one.write;
    llvm::Value* const kind =
        at.getInt64((write ? 1u : 0u) | (pass & 1) << 1 | (followed != 0 ? number_of_followed : call.number) << 2 |
                    (!write && chosen_object_bytes() != 0 ? looks_for_objects : 0));
    llvm::CallInst* const plan = at.CreateCall(emit.look(), {kind, call.done, call.count, call.rest, call.loop});
    plan->setCallingConv(llvm::CallingConv::PreserveMost);
    llvm::Value* const limit = at.CreateAnd(plan, at.getInt64(0xffffffff));
    llvm::Value* const from = at.CreateLShr(plan, 32);
    llvm::BasicBlock* const before = at.GetInsertBlock();
    at.CreateCondBr(at.CreateICmpEQ(limit, at.getInt64(0)), end, body);

    at.SetInsertPoint(body);
    llvm::PHINode* const k = at.CreatePHI(at.getInt64Ty(), 2);
    k->addIncoming(at.getInt64(0), before);
    llvm::ValueToValueMapTy values;
    for (llvm::PHINode* const phi : one.carried) {
      llvm::PHINode* const copy = at.CreatePHI(phi->getType(), 2);
      copy->addIncoming(start_of(phi), before);
      values[phi] = copy;
    }
    copy_computed(one.computed, values, at);
    const auto copy_of = [&values](llvm::Value* original) {
      const auto known = values.find(original);
      return known != values.end() ? static_cast<llvm::Value*>(known->second) : original;
    };
    llvm::Value* address = at.CreateFreeze(copy_of(one.pointer));
    for (std::size_t i = 0; i < followed; ++i) {
      auto* const read = llvm::cast<llvm::LoadInst>(one.access);
      address = follow_on(one.next[i], *read, i == 0 ? read->getAlign() : llvm::Align(1), address, next, values, at);
    }
    llvm::Value* const is_missing = at.CreateICmpUGT(emit.state_of(at, address), at.getInt8(last_quiet_state));
    at.CreateCondBr(at.CreateAnd(at.CreateICmpUGE(k, from), is_missing), missing, next);

    at.SetInsertPoint(missing);
    at.CreateCall(emit.ahead(), {address, kind, call.loop})->setCallingConv(llvm::CallingConv::PreserveMost);
    at.CreateBr(next);

    at.SetInsertPoint(next);
    llvm::Value* const following = at.CreateAdd(k, at.getInt64(1));
    k->addIncoming(following, next);
    for (llvm::PHINode* const phi : one.carried) {
      llvm::Value* const later = phi->getIncomingValueForBlock(call.latch);
      llvm::cast<llvm::PHINode>(values[phi])->addIncoming(copy_of(later), next);
    }
    at.CreateCondBr(at.CreateICmpEQ(following, limit), end, body);
    at.SetInsertPoint(end);
  }
}

}  // namespace far::compiler
