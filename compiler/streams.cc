#include <optional>

#include "emit.h"
#include "function_pass.h"
#include "gathers.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"
#include "passes.h"
#include "profile.h"
#include "report.h"
#include "slices.h"

namespace far::compiler {
namespace {

constexpr std::size_t most_streams = 8;
// Loops that are known to walk fewer bytes are left alone. At run time, a loop with fewer bytes to go does not report
// them, either.
constexpr std::uint64_t least_bytes = 4 * page_bytes;
// A loop that gathers has shorter chunks, since each of its iterations may need a page of its own. It always reports
// them, however short it is at run time, because their accesses have no guards.
constexpr std::size_t most_gathers = 4;
constexpr std::uint64_t gather_iterations = 512;
constexpr std::uint64_t least_gather_iterations = 128;

struct stream {
  const llvm::SCEV* start;  // the first address
  std::int64_t step_bytes;  // an iteration
  bool write;
  llvm::Instruction* access;
  const char* unwanted;  // what profiles say against reporting it, or null
};

// A loop that is going to be split. Everything that needs scalar evolution is expanded before any loop is changed.
struct plan {
  llvm::Loop* loop;
  llvm::SmallVector<stream, most_streams> streams;
  llvm::SmallVector<gather, most_gathers> gathers;
  llvm::SmallVector<slice, most_gathers> slices;
  llvm::SmallVector<llvm::Instruction*, most_gathers> told;  // the accesses of the gathers and slices
  const llvm::SCEV* iterations_less_one = nullptr;
  llvm::PHINode* counter = nullptr;  // of the loop, if it can end a chunk
  bool counts_down = false;
  std::uint64_t chunk_iterations = 0;
  std::uint64_t stream_iterations = 0;  // streams are reported after so many: a multiple of a chunk
  std::uint64_t least_iterations = 0;
  // Expanded, in the preheader.
  llvm::Value* iterations = nullptr;
  llvm::SmallVector<llvm::Value*, most_streams> starts;
  llvm::SmallVector<llvm::Value*, most_gathers> indices;
  llvm::SmallVector<llvm::Value*, most_gathers> bases;
};

// Where a loop is when it begins a chunk: iterations that have ended, those of the chunk, and all that are left.
struct progress {
  llvm::Value* done;
  llvm::Value* count;
  llvm::PHINode* rest;  // followed by the phis that carry those of the loop's header
};

class splitter : function_pass {
 public:
  using function_pass::function_pass;

  bool run() {
    llvm::SmallVector<plan, 4> plans;
    for (llvm::Loop* const loop : loops_.getLoopsInPreorder()) {
      if (std::optional<plan> found = look_at(*loop)) plans.push_back(std::move(*found));
    }
    for (plan& one : plans) expand(one);
    for (plan& one : plans) split(one);
    return !plans.empty();
  }

 private:
  std::optional<plan> look_at(llvm::Loop& loop);
  const char* why_not_split(llvm::Loop& loop, plan& chosen);
  void find_streams(llvm::Loop& loop, plan& chosen);
  const char* why_unwanted(const llvm::Instruction& access);
  std::optional<stream> stream_of(llvm::Instruction& access, llvm::Loop& loop);
  bool merge(plan& chosen, const stream& fresh);
  bool is_short(const llvm::Loop& loop, std::int64_t step_bytes);
  void find_gathers(llvm::Loop& loop, plan& chosen);
  void find_counter(const llvm::Loop& loop, plan& chosen);
  bool merge(plan& chosen, const gather& fresh);
  bool merge(plan& chosen, const slice& fresh);
  void expand(plan& one);
  void split(plan& one);
  llvm::BasicBlock* branch_short(const plan& one, llvm::Value* has_evicted, llvm::BasicBlock* chunk,
                                 llvm::BasicBlock* check, llvm::BasicBlock* enter);
  void tell_all(const plan& one, llvm::BasicBlock* tell, const progress& at_chunk, llvm::BasicBlock* enter);
  void tell_streams(const plan& one, llvm::IRBuilder<>& at, const progress& chunk);
  void tell_gathers(const plan& one, llvm::IRBuilder<>& at, const progress& chunk);
  void look_ahead(const plan& one, llvm::IRBuilder<>& at, const progress& chunk);
};

std::uint64_t absolute(std::int64_t value) {
  return value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
}

// Whether the loop is known to walk so little that its parent loop should report the stream.
bool splitter::is_short(const llvm::Loop& loop, std::int64_t step_bytes) {
  const unsigned most = evolution_.getSmallConstantMaxTripCount(&loop);
  return most != 0 && most * absolute(step_bytes) < least_bytes;
}

// The address as a walk of `loop`. In a short inner loop, it is the start of the inner walk that counts.
std::optional<stream> splitter::stream_of(llvm::Instruction& access, llvm::Loop& loop) {
  llvm::Value* const pointer = llvm::getLoadStorePointerOperand(&access);
  const char* why = nullptr;
  if (pointer == nullptr || !may_be_far(pointer, &why)) return std::nullopt;
  const llvm::SCEV* address = evolution_.getSCEV(pointer);
  for (const llvm::Loop* inner = loops_.getLoopFor(access.getParent()); inner != &loop;
       inner = inner->getParentLoop()) {
    const auto* const walk = llvm::dyn_cast<llvm::SCEVAddRecExpr>(address);
    if (walk == nullptr || walk->getLoop() != inner) continue;  // the same in each iteration
    const auto* const step = llvm::dyn_cast<llvm::SCEVConstant>(walk->getStepRecurrence(evolution_));
    if (step == nullptr || !is_short(*inner, step->getAPInt().getSExtValue())) return std::nullopt;
    address = walk->getStart();
  }
  const auto* const walk = llvm::dyn_cast<llvm::SCEVAddRecExpr>(address);
  if (walk == nullptr || walk->getLoop() != &loop || !walk->isAffine()) return std::nullopt;
  const auto* const step = llvm::dyn_cast<llvm::SCEVConstant>(walk->getStepRecurrence(evolution_));
  if (step == nullptr) return std::nullopt;
  const std::int64_t step_bytes = step->getAPInt().getSExtValue();
  if (step_bytes == 0 || absolute(step_bytes) > page_bytes || is_short(loop, step_bytes)) return std::nullopt;
  return stream{walk->getStart(), step_bytes, llvm::isa<llvm::StoreInst>(access), &access, why_unwanted(access)};
}

const char* splitter::why_unwanted(const llvm::Instruction& access) {
  return why_no_report(chosen_profile().of(access), executions_of(access, frequencies_));
}

// Adjacent walks over one array, as by a[i] and a[i + 1], are one stream.
bool splitter::merge(plan& chosen, const stream& fresh) {
  for (stream& known : chosen.streams) {
    if (known.step_bytes != fresh.step_bytes) continue;
    const auto* const distance = llvm::dyn_cast<llvm::SCEVConstant>(evolution_.getMinusSCEV(fresh.start, known.start));
    if (distance == nullptr || distance->getAPInt().abs().uge(page_bytes)) continue;
    known.write |= fresh.write;
    if (fresh.unwanted == nullptr) known.unwanted = nullptr;
    return true;
  }
  return false;
}

void splitter::find_streams(llvm::Loop& loop, plan& chosen) {
  const llvm::BasicBlock* const latch = loop.getLoopLatch();
  for (llvm::BasicBlock* const block : loop.blocks()) {
    const bool in_inner = loops_.getLoopFor(block) != &loop;
    if (!in_inner && !dominators_.dominates(block, latch)) continue;  // perhaps it is never needed
    for (llvm::Instruction& access : *block) {
      if (!llvm::isa<llvm::LoadInst, llvm::StoreInst>(access) || access.isVolatile()) continue;
      const std::optional<stream> found = stream_of(access, loop);
      if (found && !merge(chosen, *found)) chosen.streams.push_back(*found);
    }
  }
  llvm::erase_if(chosen.streams, [this](const stream& one) {
    if (one.unwanted != nullptr) chosen_report().add(*one.access, remarks_, {"stream", false, one.unwanted});
    return one.unwanted != nullptr;
  });
  if (chosen.streams.size() > most_streams) chosen.streams.truncate(most_streams);
}

// Accesses of one item, as of a[b[i]].x and a[b[i]].y, are one gather.
bool splitter::merge(plan& chosen, const gather& fresh) {
  for (gather& known : chosen.gathers) {
    if (known.index != fresh.index || known.scale != fresh.scale) continue;
    if (known.base != fresh.base) {
      if (known.base == nullptr || fresh.base == nullptr) continue;
      if (known.base->getType() != fresh.base->getType()) continue;
      const auto* const distance = llvm::dyn_cast<llvm::SCEVConstant>(evolution_.getMinusSCEV(fresh.base, known.base));
      if (distance == nullptr || distance->getAPInt().abs().uge(page_bytes)) continue;
    }
    known.write |= fresh.write;
    return true;
  }
  return false;
}

// Accesses that differ by a constant, as of a[hash(i)].x and a[hash(i)].y, have one computation.
bool splitter::merge(plan& chosen, const slice& fresh) {
  for (slice& known : chosen.slices) {
    const auto* const distance = llvm::dyn_cast<llvm::SCEVConstant>(
        evolution_.getMinusSCEV(evolution_.getSCEV(fresh.pointer), evolution_.getSCEV(known.pointer)));
    if (distance == nullptr || distance->getAPInt().abs().uge(page_bytes)) continue;
    known.write |= fresh.write;
    return true;
  }
  return false;
}

void splitter::find_gathers(llvm::Loop& loop, plan& chosen) {
  const unsigned most = evolution_.getSmallConstantMaxTripCount(&loop);
  if ((most != 0 && most < least_gather_iterations) || !may_read_ahead(loop)) return;
  for (llvm::BasicBlock* const block : loop.blocks()) {
    if (!dominators_.dominates(block, loop.getLoopLatch())) continue;
    for (llvm::Instruction& access : *block) {
      const char* why = nullptr;
      const std::optional<gather> found = gather_of(access, loop, evolution_, dominators_, &why);
      std::optional<slice> computed;
      if (!found && why == nullptr) computed = slice_of(access, loop, evolution_, dominators_);
      if (found || computed) why = why_unwanted(access);
      if (why != nullptr) chosen_report().add(access, remarks_, {"gather", false, why});
      if (why != nullptr || (!found && !computed)) continue;
      const bool is_known = found ? merge(chosen, *found) : merge(chosen, *computed);
      if (!is_known) {
        if (chosen.gathers.size() + chosen.slices.size() == most_gathers) continue;
        if (found) chosen.gathers.push_back(*found);
        if (computed) chosen.slices.push_back(std::move(*computed));
      }
      chosen.told.push_back(&access);
    }
  }
}

// A second counter would cost a tight loop a third more instructions. One that goes by 1 or -1 reaches each value once
// in as many iterations as its type has values. What the loop compares itself is no poison.
void splitter::find_counter(const llvm::Loop& loop, plan& chosen) {
  const auto* const branch = llvm::cast<llvm::BranchInst>(loop.getLoopLatch()->getTerminator());
  const auto* const condition = llvm::dyn_cast<llvm::ICmpInst>(branch->getCondition());
  if (condition == nullptr) return;
  for (llvm::PHINode& phi : loop.getHeader()->phis()) {
    if (!phi.getType()->isIntegerTy() || phi.getType()->getIntegerBitWidth() > 64) continue;
    const llvm::Value* const next = phi.getIncomingValueForBlock(loop.getLoopLatch());
    if (condition->getOperand(0) != next && condition->getOperand(1) != next) continue;
    const auto* const walk = llvm::dyn_cast<llvm::SCEVAddRecExpr>(evolution_.getSCEV(&phi));
    if (walk == nullptr || walk->getLoop() != &loop || !walk->isAffine()) continue;
    const llvm::SCEV* const step = walk->getStepRecurrence(evolution_);
    if (!step->isOne() && !step->isAllOnesValue()) continue;
    if (evolution_.getTypeSizeInBits(chosen.iterations_less_one->getType()) > phi.getType()->getIntegerBitWidth()) {
      continue;
    }
    chosen.counter = &phi;
    chosen.counts_down = !step->isOne();
    return;
  }
}

// The reason, or null if the loop can be split.
const char* splitter::why_not_split(llvm::Loop& loop, plan& chosen) {
  if (loop.getExitingBlock() == nullptr || loop.getExitingBlock() != loop.getLoopLatch()) {
    return "the loop has more than one exit, or not at its end";
  }
  chosen.iterations_less_one = evolution_.getBackedgeTakenCount(&loop);
  if (llvm::isa<llvm::SCEVCouldNotCompute>(chosen.iterations_less_one)) return "the number of iterations is not known";
  if (chosen.iterations_less_one->getType()->getIntegerBitWidth() > 64) return "the number of iterations is too large";
  if (!llvm::isa<llvm::BranchInst>(loop.getLoopLatch()->getTerminator())) return "its end is no branch";
  llvm::SCEVExpander expander(evolution_, function_.getDataLayout(), "farheap");
  const llvm::Instruction* const place = loop.getLoopPreheader()->getTerminator();
  llvm::SmallVector<const llvm::SCEV*, 8> needed{chosen.iterations_less_one};
  for (const stream& one : chosen.streams) needed.push_back(one.start);
  for (const gather& one : chosen.gathers) {
    needed.push_back(one.start);
    if (one.base != nullptr) needed.push_back(one.base);
  }
  for (const llvm::SCEV* const one : needed) {
    if (!expander.isSafeToExpandAt(one, place)) return "its bounds cannot be computed before it begins";
  }
  return nullptr;
}

// Only plans: splitting one loop changes what scalar evolution knows about the others. Chunks are measured by the
// stream with the longest step, so that no stream walks more than `chunk_bytes` in a chunk.
std::optional<plan> splitter::look_at(llvm::Loop& loop) {
  if (!loop.isLoopSimplifyForm() || !loop.isLCSSAForm(dominators_)) return std::nullopt;
  plan chosen{};
  chosen.loop = &loop;
  find_streams(loop, chosen);
  find_gathers(loop, chosen);
  if (chosen.streams.empty() && chosen.told.empty()) return std::nullopt;
  if (const char* const why = why_not_split(loop, chosen)) {
    for (const stream& one : chosen.streams) chosen_report().add(*one.access, remarks_, {"stream", false, why});
    for (const gather& one : chosen.gathers) chosen_report().add(*one.access, remarks_, {"gather", false, why});
    for (const slice& one : chosen.slices) chosen_report().add(*one.access, remarks_, {"gather", false, why});
    return std::nullopt;
  }
  std::uint64_t longest = 1;
  for (const stream& one : chosen.streams) longest = std::max(longest, absolute(one.step_bytes));
  for (const gather& one : chosen.gathers) longest = std::max(longest, absolute(one.step_bytes));
  chosen.chunk_iterations = std::max<std::uint64_t>(1, chunk_bytes / longest);
  chosen.least_iterations = std::max<std::uint64_t>(1, least_bytes / longest);
  if (!chosen.told.empty()) {
    chosen.chunk_iterations = std::min(chosen.chunk_iterations, gather_iterations);
    chosen.least_iterations = gather_iterations;
  }
  chosen.stream_iterations = std::max<std::uint64_t>(1, chunk_bytes / longest / chosen.chunk_iterations);
  chosen.stream_iterations *= chosen.chunk_iterations;
  find_counter(loop, chosen);
  for (const stream& one : chosen.streams) {
    chosen_report().add(
        *one.access, remarks_,
        {"stream", true, (one.write ? "written, step " : "read, step ") + std::to_string(one.step_bytes)});
  }
  for (const gather& one : chosen.gathers) {
    chosen_report().add(*one.access, remarks_, {"gather", true, one.write ? "written" : "read"});
  }
  for (const slice& one : chosen.slices) {
    chosen_report().add(*one.access, remarks_, {"gather", true, one.write ? "written, computed" : "read, computed"});
  }
  return chosen;
}

void splitter::expand(plan& one) {
  llvm::Instruction* const place = one.loop->getLoopPreheader()->getTerminator();
  llvm::SCEVExpander expander(evolution_, function_.getDataLayout(), "farheap");
  llvm::IRBuilder<> at(place);
  llvm::Value* const less_one =
      expander.expandCodeFor(one.iterations_less_one, one.iterations_less_one->getType(), place);
  // It may wrap around, for a loop that is left in another way, by longjmp() or exit(). Then all sums below wrap
  // around, too, and the loop's own counter continues.
  one.iterations = at.CreateAdd(at.CreateZExtOrTrunc(less_one, at.getInt64Ty()), at.getInt64(1), "farheap.iterations");
  for (const stream& walked : one.streams) {
    one.starts.push_back(expander.expandCodeFor(walked.start, at.getPtrTy(), place));
  }
  for (const gather& found : one.gathers) {
    one.indices.push_back(expander.expandCodeFor(found.start, at.getPtrTy(), place));
    if (found.base == nullptr) {
      one.bases.push_back(llvm::ConstantPointerNull::get(at.getPtrTy()));
    } else if (found.base->getType()->isPointerTy()) {
      one.bases.push_back(expander.expandCodeFor(found.base, at.getPtrTy(), place));
    } else {
      llvm::Value* const offset = expander.expandCodeFor(found.base, found.base->getType(), place);
      one.bases.push_back(at.CreateIntToPtr(offset, at.getPtrTy()));
    }
  }
}

void splitter::tell_streams(const plan& one, llvm::IRBuilder<>& at, const progress& chunk) {
  llvm::Value* const is_first = at.CreateZExt(at.CreateICmpEQ(chunk.done, at.getInt64(0)), at.getInt64Ty());
  for (std::size_t i = 0; i < one.streams.size(); ++i) {
    llvm::Value* const step = at.getInt64(static_cast<std::uint64_t>(one.streams[i].step_bytes));
    // Downwards, a range ends behind its first element.
    const std::int64_t behind = one.streams[i].step_bytes < 0 ? -one.streams[i].step_bytes : 0;
    llvm::Value* const passed =
        at.CreateAdd(at.CreateMul(chunk.done, step), at.getInt64(static_cast<std::uint64_t>(behind)));
    llvm::Value* const position = at.CreatePtrAdd(one.starts[i], passed);
    llvm::Value* const kind = at.CreateOr(at.CreateShl(is_first, 1), at.getInt64(one.streams[i].write ? 1 : 0));
    llvm::CallInst* const call = at.CreateCall(
        emit_.stream(),
        {position, at.CreateMul(chunk.count, step), at.CreateMul(chunk.rest, step), kind, emit_.site_of(function_)});
    call->setCallingConv(llvm::CallingConv::PreserveMost);
  }
}

void splitter::tell_gathers(const plan& one, llvm::IRBuilder<>& at, const progress& chunk) {
  if (one.gathers.empty()) return;
  llvm::Value* const is_first = at.CreateZExt(at.CreateICmpEQ(chunk.done, at.getInt64(0)), at.getInt64Ty());
  for (std::size_t i = 0; i < one.gathers.size(); ++i) {
    const gather& told = one.gathers[i];
    llvm::Value* const step = at.getInt64(static_cast<std::uint64_t>(told.step_bytes));
    llvm::Value* const position = at.CreatePtrAdd(one.indices[i], at.CreateMul(chunk.done, step));
    const std::uint64_t bits = told.index->getType()->isPointerTy() ? 64 : told.index->getType()->getIntegerBitWidth();
    llvm::Value* const kind = at.CreateOr(
        at.CreateShl(is_first, 1), at.getInt64(pack_gather(told.write, i, bits / 8, told.is_signed, told.step_bytes,
                                                           static_cast<std::int32_t>(told.scale))));
    llvm::CallInst* const call = at.CreateCall(
        emit_.gather(), {position, one.bases[i], chunk.count, chunk.rest, kind, emit_.site_of(function_)});
    call->setCallingConv(llvm::CallingConv::PreserveMost);
  }
}

void splitter::look_ahead(const plan& one, llvm::IRBuilder<>& at, const progress& chunk) {
  // The phis of the chunk's block carry those of the header, in the same order, behind the number of iterations.
  const auto start_of = [&](llvm::PHINode* phi) -> llvm::Value* {
    auto carried = std::next(chunk.rest->getParent()->phis().begin());
    for (llvm::PHINode& other : one.loop->getHeader()->phis()) {
      if (&other == phi) break;
      ++carried;
    }
    return &*carried;
  };
  for (std::size_t i = 0; i < one.slices.size(); ++i) {
    emit_look(one.slices[i],
              {chunk.done, chunk.count, chunk.rest, i, emit_.site_of(function_), one.loop->getLoopLatch()}, start_of,
              emit_, at);
  }
}

// From `tell` to `enter`. The chunks of a loop that gathers are too short for its streams.
void splitter::tell_all(const plan& one, llvm::BasicBlock* tell, const progress& chunk, llvm::BasicBlock* enter) {
  llvm::IRBuilder<> at(tell);
  at.SetCurrentDebugLocation(one.loop->getHeader()->getTerminator()->getDebugLoc());
  progress now = chunk;
  now.done = at.CreateSub(one.iterations, chunk.rest, "farheap.done");
  if (one.told.empty() || one.streams.empty()) {
    tell_streams(one, at, now);
  } else {
    auto* const walks = llvm::BasicBlock::Create(function_.getContext(), "farheap.tell.streams", &function_, enter);
    auto* const follows = llvm::BasicBlock::Create(function_.getContext(), "farheap.tell.gathers", &function_, enter);
    llvm::Value* const stride = at.getInt64(one.stream_iterations);
    at.CreateCondBr(at.CreateICmpEQ(at.CreateURem(now.done, stride), at.getInt64(0)), walks, follows);
    at.SetInsertPoint(walks);
    tell_streams(one, at, {now.done, at.CreateBinaryIntrinsic(llvm::Intrinsic::umin, now.rest, stride), now.rest});
    at.CreateBr(follows);
    at.SetInsertPoint(follows);
  }
  tell_gathers(one, at, now);
  look_ahead(one, at, now);
  at.CreateBr(enter);
}

using state = llvm::SmallVector<llvm::PHINode*, 8>;

// Values that the loop's header takes from its latch pass through the end of the chunk into the next one.
void carry_on(const llvm::Loop& loop, const state& carried, llvm::BasicBlock* enter, llvm::IRBuilder<>& chunk_end) {
  llvm::BasicBlock* const latch = loop.getLoopLatch();
  std::size_t index = 0;
  for (llvm::PHINode& phi : loop.getHeader()->phis()) {
    llvm::PHINode* const next = chunk_end.CreatePHI(phi.getType(), 1, phi.getName() + ".farheap.next");
    next->addIncoming(phi.getIncomingValueForBlock(latch), latch);
    carried[index]->addIncoming(next, chunk_end.GetInsertBlock());
    const int from_before = phi.getIncomingBlock(0) == latch ? 1 : 0;
    phi.setIncomingBlock(static_cast<unsigned>(from_before), enter);
    phi.setIncomingValueForBlock(enter, carried[index]);
    ++index;
  }
}

// Values that are used behind the loop pass through the end of the chunk, too.
void carry_out(const llvm::Loop& loop, llvm::IRBuilder<>& chunk_end) {
  llvm::BasicBlock* const latch = loop.getLoopLatch();
  for (llvm::PHINode& phi : loop.getExitBlock()->phis()) {
    llvm::PHINode* const out = chunk_end.CreatePHI(phi.getType(), 1, phi.getName() + ".farheap.out");
    const auto from = static_cast<unsigned>(phi.getBasicBlockIndex(latch));
    out->addIncoming(phi.getIncomingValue(from), latch);
    phi.setIncomingValue(from, out);
    phi.setIncomingBlock(from, chunk_end.GetInsertBlock());
  }
}

// The loop leaves for `end` when its counter has gone on by `count` from its value at the chunk's begin.
void end_chunk(const plan& one, llvm::Value* begin, llvm::Value* count, llvm::IRBuilder<>& chunk,
               llvm::BasicBlock* end) {
  llvm::Value* const distance = chunk.CreateTrunc(count, begin->getType());
  llvm::Value* const last = one.counts_down ? chunk.CreateSub(begin, distance) : chunk.CreateAdd(begin, distance);
  auto* const branch = llvm::cast<llvm::BranchInst>(one.loop->getLoopLatch()->getTerminator());
  llvm::IRBuilder<> at(branch);
  branch->setCondition(at.CreateICmpEQ(one.counter->getIncomingValueForBlock(one.loop->getLoopLatch()), last));
  branch->setSuccessor(0, end);
  branch->setSuccessor(1, one.loop->getHeader());
  branch->setMetadata(llvm::LLVMContext::MD_prof, nullptr);
}

// The same for a loop without such a counter: it gets one.
void count_iterations(const llvm::Loop& loop, llvm::Value* count, llvm::BasicBlock* enter, llvm::BasicBlock* end) {
  llvm::BasicBlock* const header = loop.getHeader();
  llvm::IRBuilder<> first(header, header->begin());
  llvm::PHINode* const counter = first.CreatePHI(first.getInt64Ty(), 2, "farheap.counter");
  auto* const branch = llvm::cast<llvm::BranchInst>(loop.getLoopLatch()->getTerminator());
  llvm::IRBuilder<> last(branch);
  llvm::Value* const counted = last.CreateAdd(counter, last.getInt64(1));
  counter->addIncoming(last.getInt64(0), enter);
  counter->addIncoming(counted, loop.getLoopLatch());
  branch->setCondition(last.CreateICmpEQ(counted, count));
  branch->setSuccessor(0, end);
  branch->setSuccessor(1, header);
  branch->setMetadata(llvm::LLVMContext::MD_prof, nullptr);
}

// Whether to split is decided in the chunk's block, so that a loop with few iterations takes one comparison and two
// branches more than it did. One that gathers reports that at once if a page has left. Returns the block from which
// short loops enter.
llvm::BasicBlock* splitter::branch_short(const plan& one, llvm::Value* has_evicted, llvm::BasicBlock* chunk,
                                         llvm::BasicBlock* check, llvm::BasicBlock* enter) {
  llvm::IRBuilder<> at(chunk);
  at.SetCurrentDebugLocation(one.loop->getHeader()->getTerminator()->getDebugLoc());
  llvm::Value* const is_short = at.CreateICmpULT(one.iterations, at.getInt64(one.least_iterations), "farheap.short");
  if (one.told.empty()) {
    at.CreateCondBr(is_short, enter, check);
    return chunk;
  }
  auto* const quiet = llvm::BasicBlock::Create(function_.getContext(), "farheap.quiet", &function_, check);
  at.CreateCondBr(is_short, quiet, check);
  at.SetInsertPoint(quiet);
  llvm::Value* const evicted = at.CreateLoad(at.getInt64Ty(), has_evicted, /*isVolatile=*/true);
  at.CreateCondBr(at.CreateICmpEQ(evicted, at.getInt64(0)), enter, check);
  return quiet;
}

//     preheader -> chunk (phis of the loop's state) -> check -> tell -> enter -> header ... latch -> chunk end
//
// and from there to the next chunk, or the exit. Short loops go from chunk to enter. The loop keeps its body. It counts
// the iterations of the chunk, and leaves after them.
void splitter::split(plan& one) {
  llvm::Loop& loop = *one.loop;
  llvm::BasicBlock* const preheader = loop.getLoopPreheader();
  llvm::BasicBlock* const header = loop.getHeader();
  llvm::BasicBlock* const latch = loop.getLoopLatch();
  llvm::BasicBlock* const exit = loop.getExitBlock();
  llvm::LLVMContext& context = function_.getContext();
  auto* const chunk = llvm::BasicBlock::Create(context, "farheap.chunk", &function_, header);
  auto* const check = llvm::BasicBlock::Create(context, "farheap.check", &function_, header);
  auto* const tell = llvm::BasicBlock::Create(context, "farheap.tell", &function_, header);
  auto* const enter = llvm::BasicBlock::Create(context, "farheap.enter", &function_, header);
  auto* const end = llvm::BasicBlock::Create(context, "farheap.chunk.end", &function_, exit);

  llvm::IRBuilder<> before(preheader->getTerminator());
  llvm::Type* const word = before.getInt64Ty();
  llvm::Value* const has_evicted = emit_.load(before, field::has_evicted);
  for (llvm::Instruction* const access : one.told) access->setMetadata(told_metadata, llvm::MDNode::get(context, {}));
  preheader->getTerminator()->replaceSuccessorWith(header, chunk);

  llvm::IRBuilder<> begin(chunk);
  begin.SetCurrentDebugLocation(header->getTerminator()->getDebugLoc());
  llvm::PHINode* const rest = begin.CreatePHI(word, 2, "farheap.rest");
  llvm::PHINode* counter = nullptr;
  state carried;
  for (llvm::PHINode& phi : header->phis()) {
    llvm::PHINode* const outer = begin.CreatePHI(phi.getType(), 2, phi.getName() + ".farheap");
    outer->addIncoming(phi.getIncomingValueForBlock(preheader), preheader);
    carried.push_back(outer);
    if (&phi == one.counter) counter = outer;
  }
  const llvm::BasicBlock* const direct = branch_short(one, has_evicted, chunk, check, enter);

  llvm::IRBuilder<> at(check);
  at.SetCurrentDebugLocation(header->getTerminator()->getDebugLoc());
  // Volatile: it changes while the loop runs, and nothing here says so.
  llvm::Value* const evicted = at.CreateLoad(word, has_evicted, /*isVolatile=*/true);
  llvm::Value* const is_told = at.CreateICmpNE(evicted, at.getInt64(0));
  llvm::Value* const served = at.CreateICmpNE(has_evicted, emit_.shared());
  llvm::Value* const idle = at.CreateSelect(served, at.getInt64(one.stream_iterations), one.iterations);
  llvm::Value* const limit = at.CreateSelect(is_told, at.getInt64(one.chunk_iterations), idle);
  llvm::Value* const part = at.CreateBinaryIntrinsic(llvm::Intrinsic::umin, rest, limit);
  llvm::Value* const left = at.CreateSub(rest, part);
  at.CreateCondBr(is_told, tell, enter);
  tell_all(one, tell, {nullptr, part, rest}, enter);

  llvm::IRBuilder<> entry(enter);
  llvm::PHINode* const count = entry.CreatePHI(word, 3, "farheap.count");
  llvm::PHINode* const behind = entry.CreatePHI(word, 3, "farheap.left");
  for (llvm::BasicBlock* const from : llvm::predecessors(enter)) {
    count->addIncoming(from == direct ? rest : part, from);
    behind->addIncoming(from == direct ? llvm::ConstantInt::get(word, 0) : left, from);
  }
  entry.CreateBr(header);

  llvm::IRBuilder<> chunk_end(end);
  carry_on(loop, carried, enter, chunk_end);
  carry_out(loop, chunk_end);
  chunk_end.SetCurrentDebugLocation(latch->getTerminator()->getDebugLoc());
  rest->addIncoming(one.iterations, preheader);
  rest->addIncoming(behind, end);
  chunk_end.CreateCondBr(chunk_end.CreateICmpEQ(behind, chunk_end.getInt64(0)), exit, chunk);

  if (counter == nullptr) return count_iterations(loop, count, enter, end);
  llvm::IRBuilder<> last(enter->getTerminator());
  end_chunk(one, counter, count, last, end);
}

}  // namespace

llvm::PreservedAnalyses streams::run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses) {
  if (is_left_alone(function)) return llvm::PreservedAnalyses::all();
  return splitter(function, analyses).run() ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
}

}  // namespace far::compiler
