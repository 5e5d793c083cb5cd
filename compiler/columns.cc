#include "columns.h"

#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "plan.h"

namespace far::compiler {
namespace {

// Longer inner walks report themselves.
constexpr std::uint64_t most_row_bytes = 4 * page_bytes;
// Of a loop with so many instructions, and a row that is unrolled.
constexpr std::size_t heavy_instructions = 48;
constexpr std::uint64_t least_row_bytes = 64;

std::uint64_t absolute(const llvm::APInt& value) {
  return value.abs().getLimitedValue();
}

// A row of an inner loop: what it accesses from first to last. False if the loop may be too long for a row.
bool add_row(const llvm::SCEVAddRecExpr& walk, const llvm::Loop& inner, llvm::ScalarEvolution& evolution,
             column& found) {
  const auto* const step = llvm::dyn_cast<llvm::SCEVConstant>(walk.getStepRecurrence(evolution));
  const std::uint64_t most = evolution.getSmallConstantMaxTripCount(&inner);
  if (step == nullptr || !walk.isAffine() || most == 0 || most > most_row_bytes) return false;
  const std::uint64_t length = absolute(step->getAPInt()) * (most - 1);
  if (absolute(step->getAPInt()) > page_bytes || found.row_bytes + length > most_row_bytes) return false;
  found.row_bytes += length;
  found.start = walk.getStart();
  if (step->getAPInt().isNegative()) {
    const llvm::SCEV* const back = evolution.getConstant(step->getType(), 0 - length, /*isSigned=*/true);
    found.start = evolution.getAddExpr(found.start, back);
  }
  return true;
}

// Takes out of the sum what each iteration loads from the same place, such as the address of a vector's elements that
// a store of the loop might change: it seldom does, and then pages are fetched in vain.
const llvm::SCEV* without_base(const llvm::SCEV* address, const llvm::Loop& loop, llvm::ScalarEvolution& evolution,
                               const llvm::SCEV*& base) {
  const auto* const sum = llvm::dyn_cast<llvm::SCEVAddExpr>(address);
  if (sum == nullptr) return address;
  llvm::SmallVector<const llvm::SCEV*, 4> others;
  for (const llvm::SCEV* const part : sum->operands()) {
    const auto* const unknown = llvm::dyn_cast<llvm::SCEVUnknown>(part);
    auto* const load = unknown == nullptr ? nullptr : llvm::dyn_cast<llvm::LoadInst>(unknown->getValue());
    const bool is_again = load != nullptr && loop.contains(load) && load->getType()->isPointerTy() &&
                          loop.isLoopInvariant(load->getPointerOperand());
    if (is_again) {
      base = evolution.getSCEV(load->getPointerOperand());
    } else {
      others.push_back(part);
    }
  }
  return base == nullptr || others.empty() ? address : evolution.getAddExpr(others);
}

}  // namespace

std::optional<column> column_of(const touch& accessed, const llvm::Loop& loop, const llvm::LoopInfo& loops,
                                llvm::ScalarEvolution& evolution, const llvm::DominatorTree& dominators) {
  const char* why = nullptr;
  const llvm::BasicBlock* const place = accessed.access->getParent();
  if (!dominators.dominates(place, loop.getLoopLatch())) return std::nullopt;
  if (accessed.bytes == 0 || accessed.bytes > most_row_bytes) return std::nullopt;
  if (!may_be_far(*accessed.access, accessed.pointer, &why)) return std::nullopt;
  column found{};
  found.accessed = accessed;
  found.start = evolution.getSCEV(accessed.pointer);
  found.row_bytes = accessed.bytes;
  found.accesses.push_back(accessed.access);
  found.is_direct = loops.getLoopFor(place) == &loop;
  if (found.is_direct) found.start = without_base(found.start, loop, evolution, found.base);
  for (const llvm::Loop* inner = loops.getLoopFor(place); inner != &loop; inner = inner->getParentLoop()) {
    const auto* const walk = llvm::dyn_cast<llvm::SCEVAddRecExpr>(found.start);
    if (walk == nullptr || walk->getLoop() != inner) continue;  // the same in each iteration
    if (!add_row(*walk, *inner, evolution, found)) return std::nullopt;
  }
  const auto* const walk = llvm::dyn_cast<llvm::SCEVAddRecExpr>(found.start);
  if (walk == nullptr || walk->getLoop() != &loop || !walk->isAffine()) return std::nullopt;
  found.start = walk->getStart();
  found.step = walk->getStepRecurrence(evolution);
  const auto* const known = llvm::dyn_cast<llvm::SCEVConstant>(found.step);
  if (known != nullptr && absolute(known->getAPInt()) <= page_bytes) return std::nullopt;  // a stream
  return found;
}

bool merge(column& known, const column& fresh, llvm::ScalarEvolution& evolution,
           const llvm::DominatorTree& dominators) {
  if (known.step != fresh.step || known.base != fresh.base || known.is_direct != fresh.is_direct) return false;
  if (!dominators.dominates(known.accessed.access, fresh.accessed.access)) return false;
  const auto* const distance = llvm::dyn_cast<llvm::SCEVConstant>(evolution.getMinusSCEV(fresh.start, known.start));
  if (distance == nullptr || absolute(distance->getAPInt()) >= page_bytes) return false;
  const std::uint64_t bytes = absolute(distance->getAPInt());
  if (std::max(known.row_bytes, fresh.row_bytes) + bytes > most_row_bytes) return false;
  if (distance->getAPInt().isNegative()) {
    known.start = fresh.start;
    known.offset -= static_cast<std::int64_t>(bytes);
    known.row_bytes = std::max(known.row_bytes + bytes, fresh.row_bytes);
  } else {
    known.row_bytes = std::max(known.row_bytes, fresh.row_bytes + bytes);
  }
  known.accessed.write |= fresh.accessed.write;
  known.accesses.append(fresh.accesses);
  return true;
}

bool is_row(const column& one) {
  return one.row_bytes >= least_row_bytes;
}

std::uint64_t rows_at_once(llvm::ArrayRef<column> columns, std::uint64_t most) {
  std::uint64_t longest = page_bytes;
  for (const column& one : columns) longest = std::max(longest, one.row_bytes);
  return most / llvm::PowerOf2Ceil(llvm::divideCeil(longest, page_bytes));
}

bool is_heavy(const llvm::Loop& loop, bool has_rows) {
  if (!loop.isInnermost()) return true;
  std::size_t instructions = 0;
  for (const llvm::BasicBlock* const block : loop.blocks()) {
    for (const llvm::Instruction& one : *block) {
      if (llvm::isa<llvm::CallBase>(one) && one.mayReadOrWriteMemory() && !one.isDebugOrPseudoInst()) return true;
      if (!one.isDebugOrPseudoInst()) ++instructions;
    }
  }
  return has_rows && instructions >= heavy_instructions;
}

namespace {

// The number of iterations before this one: what the loop counts itself, if it does.
llvm::Value* count_of(const llvm::Loop& loop, llvm::IRBuilder<>& at) {
  if (llvm::PHINode* const counter = loop.getCanonicalInductionVariable();
      counter != nullptr && counter->getType()->isIntegerTy(64)) {
    return counter;
  }
  llvm::BasicBlock* const latch = loop.getLoopLatch();
  llvm::PHINode* const counter =
      llvm::PHINode::Create(at.getInt64Ty(), 2, "farheap.counter", loop.getHeader()->begin());
  llvm::IRBuilder<> last(latch->getTerminator());
  counter->addIncoming(at.getInt64(0), loop.getLoopPreheader());
  counter->addIncoming(last.CreateAdd(counter, at.getInt64(1)), latch);
  return counter;
}

}  // namespace

//     if (i % 512 == 0 && *has_evicted) tell(&a[i * n], n * 8, iterations, iterations - i);
//     row of a[i * n]
report_blocks watch(const plan& one, llvm::Function& function, llvm::LoopInfo& loops, emitter& emit) {
  llvm::Loop& loop = *one.loop;
  for (llvm::Instruction* const access : one.told) {
    access->setMetadata(told_metadata, llvm::MDNode::get(function.getContext(), {}));
  }
  const llvm::DebugLoc where = loop.getHeader()->getTerminator()->getDebugLoc();
  const auto split = [&](llvm::Value* condition, llvm::Instruction* before) {
    return llvm::SplitBlockAndInsertIfThen(condition, before, false,
                                           llvm::MDBuilder(function.getContext()).createUnlikelyBranchWeights(),
                                           nullptr, &loops);
  };
  llvm::SmallVector<llvm::BasicBlock*, 4> reports;
  llvm::IRBuilder<> at(&*loop.getHeader()->getFirstInsertionPt());
  at.SetCurrentDebugLocation(where);
  llvm::Value* const done = one.is_short ? at.getInt64(0) : count_of(loop, at);
  for (std::size_t i = 0; i < one.columns.size(); ++i) {
    const column& told = one.columns[i];
    llvm::Instruction* place = one.is_short     ? loop.getLoopPreheader()->getTerminator()
                               : told.is_direct ? told.accessed.access
                                                : &*loop.getHeader()->getFirstInsertionPt();
    at.SetInsertPoint(place);
    at.SetCurrentDebugLocation(where);
    if (!one.is_short) {
      llvm::Value* const position = at.CreateAnd(done, at.getInt64(one.chunk_iterations - 1));
      place = split(at.CreateICmpEQ(position, at.getInt64(0)), place);
      at.SetInsertPoint(place);
      at.SetCurrentDebugLocation(where);
    }
    llvm::Value* const evicted = at.CreateLoad(at.getInt64Ty(), emit.load(at, field::has_evicted), /*isVolatile=*/true);
    at.SetInsertPoint(split(at.CreateICmpNE(evicted, at.getInt64(0)), place));
    at.SetCurrentDebugLocation(where);
    const bool is_here = !one.is_short && told.is_direct;
    llvm::Value* const from =
        is_here ? at.CreatePtrAdd(told.accessed.pointer, at.getInt64(static_cast<std::uint64_t>(told.offset)))
                : one.column_starts[i];
    tell_column(one, i, {from, is_here, at.CreateSub(one.iterations, done)}, function, emit, at);
    reports.push_back(at.GetInsertBlock());
  }
  return {reports, nullptr};
}

}  // namespace far::compiler
