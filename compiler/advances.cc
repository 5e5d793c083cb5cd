#include "advances.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"

namespace far::compiler {
namespace {

constexpr std::uint64_t most_step_bytes = 256;
// A search that does not end sooner has found an address that is computed, and not carried on.
constexpr std::size_t most_values = 64;

// Where a value comes from: from anywhere, from in front of the loop, or from one that the loop carries on, by sums.
enum class origin { anywhere, fixed, carried };

class search {
 public:
  search(const llvm::Instruction& access, const llvm::LoopInfo& loops)
      : place_(access.getParent()),
        loops_(loops),
        innermost_(loops.getLoopFor(place_)),
        layout_(access.getModule()->getDataLayout()) {}

  bool run(const llvm::Value& pointer) { return follow(&pointer, 1) == origin::carried && is_small_; }

 private:
  // `scale`: bytes for each 1 of the value.
  origin follow(const llvm::Value* value, std::uint64_t scale);
  origin look(const llvm::Instruction& value, std::uint64_t scale);
  origin follow_phi(const llvm::PHINode& phi, std::uint64_t scale);
  origin follow_element(const llvm::GetElementPtrInst& element);
  origin follow_sum(const llvm::Instruction& sum, std::uint64_t scale);
  void step(const llvm::APInt& by, std::uint64_t scale);
  // Whether the value may be added: where the address is carried on, any distance may be.
  bool may_add(const llvm::Value* value) const { return is_inside_ || innermost_->isLoopInvariant(value); }

  const llvm::BasicBlock* place_;
  const llvm::LoopInfo& loops_;
  const llvm::Loop* innermost_;
  const llvm::DataLayout& layout_;
  llvm::DenseMap<const llvm::Value*, origin> known_;
  bool is_inside_ = false;  // between two phis, and no longer between one and the access
  bool is_small_ = false;   // one of the steps is
};

void search::step(const llvm::APInt& by, std::uint64_t scale) {
  if (is_inside_ && !by.isZero() && by.abs().ule(most_step_bytes / scale)) is_small_ = true;
}

origin search::follow_phi(const llvm::PHINode& phi, std::uint64_t scale) {
  const llvm::Loop* const loop = loops_.getLoopFor(phi.getParent());
  const bool carries = loop != nullptr && loop->getHeader() == phi.getParent() && loop->contains(place_);
  origin found = carries ? origin::carried : origin::fixed;
  known_[&phi] = found;
  const bool was_inside = std::exchange(is_inside_, true);
  for (unsigned i = 0; i < phi.getNumIncomingValues() && found != origin::anywhere; ++i) {
    if (carries && !loop->contains(phi.getIncomingBlock(i))) continue;  // where it begins
    const origin one = follow(phi.getIncomingValue(i), scale);
    if (one != origin::fixed) found = one;
  }
  is_inside_ = was_inside;
  return found;
}

// An index of an array that stays where it is, or a distance from an address that is carried on.
origin search::follow_element(const llvm::GetElementPtrInst& element) {
  const unsigned width = layout_.getIndexTypeSizeInBits(element.getType());
  llvm::MapVector<llvm::Value*, llvm::APInt> varying;
  llvm::APInt constant(width, 0);
  if (!llvm::cast<llvm::GEPOperator>(element).collectOffset(layout_, width, varying, constant)) return origin::anywhere;
  const llvm::Value* const base = element.getPointerOperand();
  if (!innermost_->isLoopInvariant(base)) {
    if (varying.empty()) step(constant, 1);
    const auto may_be_added = [this](const auto& part) { return may_add(part.first); };
    return llvm::all_of(varying, may_be_added) ? follow(base, 1) : origin::anywhere;
  }
  if (varying.size() != 1 || !varying.front().second.isStrictlyPositive()) return origin::anywhere;
  return follow(varying.front().first, varying.front().second.getLimitedValue());
}

origin search::follow_sum(const llvm::Instruction& sum, std::uint64_t scale) {
  const bool is_difference = sum.getOpcode() == llvm::Instruction::Sub;
  if (const auto* const by = llvm::dyn_cast<llvm::ConstantInt>(sum.getOperand(1))) {
    step(by->getValue(), scale);
    return follow(sum.getOperand(0), scale);
  }
  const bool was_small = is_small_;
  for (const unsigned i : {0u, 1u}) {
    if ((i == 1 && is_difference) || !may_add(sum.getOperand(1 - i))) continue;
    if (follow(sum.getOperand(i), scale) == origin::carried) return origin::carried;
    is_small_ = was_small;  // it was the distance that has small steps
  }
  return origin::anywhere;
}

origin search::look(const llvm::Instruction& value, std::uint64_t scale) {
  switch (value.getOpcode()) {
    case llvm::Instruction::PHI: return follow_phi(llvm::cast<llvm::PHINode>(value), scale);
    case llvm::Instruction::GetElementPtr: return follow_element(llvm::cast<llvm::GetElementPtrInst>(value));
    case llvm::Instruction::Add:
    case llvm::Instruction::Sub: return follow_sum(value, scale);
    case llvm::Instruction::ZExt:
    case llvm::Instruction::SExt:
    case llvm::Instruction::Trunc:
    case llvm::Instruction::Freeze: return follow(value.getOperand(0), scale);
    case llvm::Instruction::Select: {
      const origin one = follow(value.getOperand(1), scale);
      const origin other = follow(value.getOperand(2), scale);
      if (one == origin::anywhere || other == origin::anywhere) return origin::anywhere;
      return one == origin::carried ? one : other;
    }
    default: return origin::anywhere;
  }
}

origin search::follow(const llvm::Value* value, std::uint64_t scale) {
  if (innermost_->isLoopInvariant(value)) return origin::fixed;
  const auto known = known_.find(value);
  if (known != known_.end()) return known->second;
  if (known_.size() == most_values || scale > most_step_bytes) return origin::anywhere;
  known_[value] = origin::fixed;  // while it is looked at
  const origin found = look(*llvm::cast<llvm::Instruction>(value), scale);
  known_[value] = found;
  return found;
}

}  // namespace

bool advances(const llvm::Instruction& access, const llvm::Value& pointer, const llvm::LoopInfo& loops) {
  return loops.getLoopFor(access.getParent()) != nullptr && search(access, loops).run(pointer);
}

}  // namespace far::compiler
