#include "llvm/IR/Instructions.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/LoopUtils.h"
#include "plan.h"

namespace far::compiler {
namespace {

// A larger loop gains little by a copy: what is done before it is small beside it.
constexpr std::size_t most_copied = 100;

// Rows of no more chunks are reported at once, and run by the copy. The same as in support.c.
constexpr std::uint64_t row_chunks = 4;

// Where a loop is when it begins a chunk, in iterations.
struct progress {
  llvm::Value* done;  // null if nobody asks
  llvm::Value* count;
  llvm::Value* left;    // behind the chunk
  llvm::PHINode* rest;  // in front of it; followed by the phis that carry those of the loop's header
};

class chunker {
 public:
  chunker(const plan& chosen, llvm::Function& function, emitter& emit)
      : plan_(chosen), function_(function), emit_(emit) {}

  report_blocks run();

 private:
  llvm::BasicBlock* block(const char* name, llvm::BasicBlock* before) {
    return llvm::BasicBlock::Create(function_.getContext(), name, &function_, before);
  }
  // Whether short loops, too, have to look whether a page has left, because they would do without guards.
  bool is_quiet() const { return plan_.must_look_ahead() || (plan_.keeps_copy && !plan_.is_regular); }
  // Whether the copy may run while pages are far, once they are reported: it has no guards.
  bool runs_reported_rows() const { return plan_.keeps_copy && plan_.is_regular && !plan_.looks_ahead(); }
  llvm::Value* is_at_rest(llvm::IRBuilder<>& at);
  llvm::SmallVector<llvm::BasicBlock*, 8> clone_body(llvm::ValueToValueMapTy& map);
  void be_quiet(llvm::ArrayRef<llvm::BasicBlock*> blocks);
  llvm::BasicBlock* copy();
  void add_quiet_body(llvm::BasicBlock* enter, llvm::ArrayRef<llvm::BasicBlock*> at_rest, llvm::BasicBlock* end);
  void be_small();
  llvm::BasicBlock* branch_short(llvm::BasicBlock* at, llvm::BasicBlock* if_long, llvm::BasicBlock* if_short);
  llvm::BasicBlock* branch_to_copy(llvm::BasicBlock* preheader, llvm::BasicBlock* chunk, llvm::BasicBlock* plain);
  progress begin_chunk(llvm::BasicBlock* check, llvm::BasicBlock* tell, llvm::BasicBlock* enter, llvm::PHINode* rest);
  report_blocks tell_all(llvm::BasicBlock* tell, const progress& chunk, llvm::BasicBlock* enter,
                         llvm::BasicBlock* plain);
  void tell_streams(llvm::IRBuilder<>& at, const progress& chunk);
  void tell_gathers(llvm::IRBuilder<>& at, const progress& chunk);
  void look_ahead(llvm::IRBuilder<>& at, const progress& chunk);

  const plan& plan_;
  llvm::Function& function_;
  emitter& emit_;
  llvm::Constant* record_ = nullptr;  // the struct far_loop of one that looks ahead
};

// Whether there is nothing to report: no page has left; or, of a loop that looks ahead and needs no guards, so few
// since it last looked, and found all there, that it rests. Volatile: it changes while loops run, and nothing in them
// says so.
llvm::Value* chunker::is_at_rest(llvm::IRBuilder<>& at) {
  llvm::Value* const evicted = at.CreateLoad(at.getInt64Ty(), emit_.load(at, field::has_evicted), /*isVolatile=*/true);
  if (record_ == nullptr || !plan_.is_regular || !plan_.columns.empty())
    return at.CreateICmpEQ(evicted, at.getInt64(0));
  return at.CreateICmpULE(evicted, emit_.load_rest(at, record_));
}

// Three streams at a time.
void chunker::tell_streams(llvm::IRBuilder<>& at, const progress& chunk) {
  llvm::Constant* const none = llvm::PoisonValue::get(at.getPtrTy());
  for (std::size_t first = 0; first < plan_.streams.size(); first += walk_streams) {
    llvm::SmallVector<walked, walk_streams> walks;
    llvm::SmallVector<llvm::Value*, 6> arguments{nullptr, plan_.iterations, chunk.rest};
    for (std::size_t i = first; i < std::min(first + walk_streams, plan_.streams.size()); ++i) {
      const stream& one = plan_.streams[i];
      walks.push_back({static_cast<std::int32_t>(one.step_bytes), one.write, one.hot, one.overwrites});
      arguments.push_back(plan_.starts[i]);
    }
    arguments.resize(3 + walk_streams, none);
    arguments[0] = emit_.walk_of(walks, plan_.stream_iterations, function_);
    at.CreateCall(emit_.stream(), arguments)->setCallingConv(llvm::CallingConv::PreserveMost);
  }
}

void chunker::tell_gathers(llvm::IRBuilder<>& at, const progress& chunk) {
  if (plan_.gathers.empty()) return;
  llvm::Value* const is_first = at.CreateZExt(at.CreateICmpEQ(chunk.done, at.getInt64(0)), at.getInt64Ty());
  for (std::size_t i = 0; i < plan_.gathers.size(); ++i) {
    const gather& told = plan_.gathers[i];
    llvm::Value* const step = at.getInt64(static_cast<std::uint64_t>(told.step_bytes));
    llvm::Value* const position = at.CreatePtrAdd(plan_.indices[i], at.CreateMul(chunk.done, step));
    const std::uint64_t bits = told.index->getType()->isPointerTy() ? 64 : told.index->getType()->getIntegerBitWidth();
    llvm::Value* const kind = at.CreateOr(
        at.CreateShl(is_first, 1), at.getInt64(pack_gather(told.write, i, bits / 8, told.is_signed, told.step_bytes,
                                                           static_cast<std::int32_t>(told.scale))));
    llvm::CallInst* const call =
        at.CreateCall(emit_.gather(), {position, plan_.bases[i], chunk.count, chunk.rest, kind, record_});
    call->setCallingConv(llvm::CallingConv::PreserveMost);
  }
}

void chunker::look_ahead(llvm::IRBuilder<>& at, const progress& chunk) {
  // The phis of the chunk's block carry those of the header, in the same order, behind the number of iterations.
  const auto start_of = [&](llvm::PHINode* phi) -> llvm::Value* {
    auto carried = std::next(chunk.rest->getParent()->phis().begin());
    for (llvm::PHINode& other : plan_.loop->getHeader()->phis()) {
      if (&other == phi) break;
      ++carried;
    }
    return &*carried;
  };
  for (std::size_t i = 0; i < plan_.slices.size(); ++i) {
    emit_look(plan_.slices[i], {chunk.done, chunk.count, chunk.rest, i, record_, plan_.loop->getLoopLatch()}, start_of,
              emit_, at);
  }
}

// From `tell` to `enter`. The chunks of a loop that gathers are too short for its streams, so the runtime skips most.
// What the copy may run goes there.
report_blocks chunker::tell_all(llvm::BasicBlock* tell, const progress& chunk, llvm::BasicBlock* enter,
                                llvm::BasicBlock* plain) {
  llvm::IRBuilder<> at(tell);
  at.SetCurrentDebugLocation(plan_.loop->getHeader()->getTerminator()->getDebugLoc());
  llvm::SmallVector<llvm::BasicBlock*, 4> reports{tell};
  if (!plan_.looks_ahead() || plan_.streams.empty()) {
    tell_streams(at, chunk);
  } else {
    llvm::BasicBlock* const walks = block("farheap.tell.streams", enter);
    llvm::BasicBlock* const follows = block("farheap.tell.gathers", enter);
    at.CreateCondBr(at.CreateICmpULT(plan_.iterations, at.getInt64(plan_.least_walked)), follows, walks);
    at.SetInsertPoint(walks);
    tell_streams(at, chunk);
    at.CreateBr(follows);
    at.SetInsertPoint(follows);
    reports.append({walks, follows});
  }
  progress now = chunk;
  if (plan_.looks_ahead()) now.done = at.CreateSub(plan_.iterations, chunk.rest, "farheap.done");
  for (std::size_t i = 0; i < plan_.columns.size(); ++i) {
    tell_column(plan_, i, {plan_.column_starts[i], false, now.rest}, function_, emit_, at);
  }
  tell_gathers(at, now);
  look_ahead(at, now);
  if (runs_reported_rows()) {
    at.CreateCondBr(at.CreateICmpULE(plan_.iterations, at.getInt64(row_chunks * plan_.stream_iterations)), plain,
                    enter);
  } else {
    at.CreateBr(enter);
  }
  return {reports, tell};
}

using state = llvm::SmallVector<llvm::PHINode*, 8>;

// The values with which the loop's header begins pass through the chunk's block. `counter`: that of the loop, there.
state carry_in(const plan& one, llvm::BasicBlock* before, llvm::IRBuilder<>& chunk, llvm::PHINode** counter) {
  state carried;
  for (llvm::PHINode& phi : one.loop->getHeader()->phis()) {
    llvm::PHINode* const outer = chunk.CreatePHI(phi.getType(), 2, phi.getName() + ".farheap");
    outer->addIncoming(phi.getIncomingValueForBlock(before), before);
    carried.push_back(outer);
    if (&phi == one.counter) *counter = outer;
  }
  return carried;
}

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

llvm::SmallVector<llvm::BasicBlock*, 8> chunker::clone_body(llvm::ValueToValueMapTy& map) {
  llvm::SmallVector<llvm::BasicBlock*, 8> blocks;
  for (llvm::BasicBlock* const original : plan_.loop->blocks()) {
    llvm::BasicBlock* const one = llvm::CloneBasicBlock(original, map, ".farheap.copy", &function_);
    one->moveBefore(plan_.loop->getHeader());
    map[original] = one;
    blocks.push_back(one);
  }
  return blocks;
}

// No guards in these.
void chunker::be_quiet(llvm::ArrayRef<llvm::BasicBlock*> blocks) {
  for (llvm::BasicBlock* const one : blocks) {
    for (llvm::Instruction& access : *one) {
      if (!access.mayReadOrWriteMemory()) continue;
      access.setMetadata(quiet_metadata, llvm::MDNode::get(function_.getContext(), {}));
    }
  }
}

// The loop as it is, with a block in front of it, which is returned.
llvm::BasicBlock* chunker::copy() {
  llvm::Loop& loop = *plan_.loop;
  llvm::BasicBlock* const exit = loop.getExitBlock();
  llvm::BasicBlock* const preheader = loop.getLoopPreheader();
  llvm::ValueToValueMapTy map;
  const llvm::SmallVector<llvm::BasicBlock*, 8> blocks = clone_body(map);
  auto* const header = llvm::cast<llvm::BasicBlock>(map[loop.getHeader()]);
  llvm::BasicBlock* const before = block("farheap.copy", header);
  map[preheader] = before;
  llvm::remapInstructionsInBlocks(blocks, map);
  if (is_quiet()) be_quiet(blocks);
  llvm::IRBuilder<>(before).CreateBr(header);
  for (llvm::PHINode& phi : exit->phis()) {
    llvm::Value* const out = phi.getIncomingValueForBlock(loop.getLoopLatch());
    const auto copied = map.find(out);
    phi.addIncoming(copied != map.end() ? static_cast<llvm::Value*>(copied->second) : out,
                    llvm::cast<llvm::BasicBlock>(map[loop.getLoopLatch()]));
  }
  return before;
}

// Of a loop that is split: a second body beside the first one, between the same blocks, for chunks that `enter` is told
// of by the blocks `at_rest`.
void chunker::add_quiet_body(llvm::BasicBlock* enter, llvm::ArrayRef<llvm::BasicBlock*> at_rest,
                             llvm::BasicBlock* end) {
  llvm::BasicBlock* const header = plan_.loop->getHeader();
  llvm::BasicBlock* const latch = plan_.loop->getLoopLatch();
  llvm::ValueToValueMapTy map;
  const llvm::SmallVector<llvm::BasicBlock*, 8> blocks = clone_body(map);
  llvm::remapInstructionsInBlocks(blocks, map);
  be_quiet(blocks);
  for (llvm::PHINode& phi : end->phis()) {
    llvm::Value* const out = phi.getIncomingValueForBlock(latch);
    const auto copied = map.find(out);
    phi.addIncoming(copied != map.end() ? static_cast<llvm::Value*>(copied->second) : out,
                    llvm::cast<llvm::BasicBlock>(map[latch]));
  }
  llvm::IRBuilder<> choice(enter, enter->begin());
  llvm::PHINode* const is_told = choice.CreatePHI(choice.getInt1Ty(), 3, "farheap.told");
  for (llvm::BasicBlock* const from : llvm::predecessors(enter)) {
    is_told->addIncoming(choice.getInt1(!llvm::is_contained(at_rest, from)), from);
  }
  enter->getTerminator()->eraseFromParent();
  choice.SetInsertPoint(enter);
  choice.CreateCondBr(is_told, header, llvm::cast<llvm::BasicBlock>(map[header]),
                      llvm::MDBuilder(function_.getContext()).createUnlikelyBranchWeights());
}

// A loop with few iterations takes one comparison and two branches more than it did, and one without guards another
// look, whether a page has left. Returns the block from which short loops go on.
llvm::BasicBlock* chunker::branch_short(llvm::BasicBlock* place, llvm::BasicBlock* if_long,
                                        llvm::BasicBlock* if_short) {
  llvm::IRBuilder<> at(place);
  at.SetCurrentDebugLocation(plan_.loop->getHeader()->getTerminator()->getDebugLoc());
  llvm::Value* const least = at.getInt64(plan_.least_iterations);
  llvm::Value* const is_short = at.CreateICmpULT(plan_.iterations, least, "farheap.short");
  if (!is_quiet()) {
    at.CreateCondBr(is_short, if_short, if_long);
    return place;
  }
  llvm::BasicBlock* const quiet = block("farheap.quiet", if_long);
  at.CreateCondBr(is_short, quiet, if_long);
  at.SetInsertPoint(quiet);
  at.CreateCondBr(is_at_rest(at), if_short, if_long);
  return quiet;
}

// The copy runs short loops, and all until the first page leaves. Returns the block from which others go on to `chunk`.
llvm::BasicBlock* chunker::branch_to_copy(llvm::BasicBlock* preheader, llvm::BasicBlock* chunk,
                                          llvm::BasicBlock* plain) {
  preheader->getTerminator()->eraseFromParent();
  llvm::IRBuilder<> at(preheader);
  at.SetCurrentDebugLocation(plan_.loop->getHeader()->getTerminator()->getDebugLoc());
  if (!is_quiet()) {
    llvm::BasicBlock* const served = block("farheap.served", plain);
    llvm::Value* const least = at.getInt64(plan_.least_iterations);
    at.CreateCondBr(at.CreateICmpULT(plan_.iterations, least, "farheap.short"), plain, served);
    at.SetInsertPoint(served);
  }
  at.CreateCondBr(is_at_rest(at), plain, chunk, llvm::MDBuilder(function_.getContext()).createLikelyBranchWeights());
  be_small();
  return at.GetInsertBlock();
}

// Walks of which reports tell wait for memory: small code will do.
void chunker::be_small() {
  llvm::LLVMContext& context = function_.getContext();
  llvm::Metadata* const no_unrolling[] = {llvm::MDString::get(context, "llvm.loop.unroll.disable")};
  llvm::Metadata* const no_vectors[] = {llvm::MDString::get(context, "llvm.loop.vectorize.enable"),
                                        llvm::ConstantAsMetadata::get(llvm::ConstantInt::getFalse(context))};
  plan_.loop->setLoopID(llvm::makePostTransformationMetadata(
      context, plan_.loop->getLoopID(), {"llvm.loop.unroll.", "llvm.loop.interleave.", "llvm.loop.vectorize."},
      {llvm::MDNode::get(context, no_unrolling), llvm::MDNode::get(context, no_vectors)}));
}

// What is left to do, or as much of it as fits into a chunk. A loop with a copy gets here only after the first
// eviction.
progress chunker::begin_chunk(llvm::BasicBlock* check, llvm::BasicBlock* tell, llvm::BasicBlock* enter,
                              llvm::PHINode* rest) {
  llvm::IRBuilder<> at(check);
  at.SetCurrentDebugLocation(plan_.loop->getHeader()->getTerminator()->getDebugLoc());
  llvm::Value* limit = at.getInt64(plan_.chunk_iterations);
  llvm::Value* is_told = at.getTrue();
  if (!plan_.keeps_copy) {
    is_told = at.CreateNot(is_at_rest(at));
    limit = at.CreateSelect(is_told, limit, at.getInt64(plan_.idle_iterations));
  }
  llvm::Value* const count = at.CreateBinaryIntrinsic(llvm::Intrinsic::umin, rest, limit);
  llvm::Value* const left = at.CreateSub(rest, count);
  if (plan_.keeps_copy) {
    at.CreateBr(tell);
  } else {
    at.CreateCondBr(is_told, tell, enter, llvm::MDBuilder(function_.getContext()).createUnlikelyBranchWeights());
  }
  return {nullptr, count, left, rest};
}

//     preheader -> chunk (phis of the loop's state) -> check -> tell -> enter -> header ... latch -> chunk end
//
// and from there to the next chunk, or the exit. Short loops go from chunk to enter, or from the preheader to a copy of
// the loop. What enters without having been told may run a second body, without guards. The loop keeps its body. It
// counts the iterations of the chunk, and leaves after them.
report_blocks chunker::run() {
  llvm::Loop& loop = *plan_.loop;
  llvm::BasicBlock* before = loop.getLoopPreheader();
  llvm::BasicBlock* const header = loop.getHeader();
  llvm::BasicBlock* const latch = loop.getLoopLatch();
  llvm::BasicBlock* const exit = loop.getExitBlock();
  llvm::LLVMContext& context = function_.getContext();
  llvm::BasicBlock* const chunk = block("farheap.chunk", header);
  llvm::BasicBlock* const check = block("farheap.check", header);
  llvm::BasicBlock* const tell = block("farheap.tell", header);
  llvm::BasicBlock* const enter = block("farheap.enter", header);
  llvm::BasicBlock* const end = block("farheap.chunk.end", exit);

  if (!plan_.gathers.empty() || !plan_.slices.empty()) record_ = emit_.loop_of(function_);
  for (llvm::Instruction* const access : plan_.told) access->setMetadata(told_metadata, llvm::MDNode::get(context, {}));
  llvm::BasicBlock* plain = nullptr;
  if (plan_.keeps_copy) {
    plain = copy();
    llvm::BasicBlock* const served = branch_to_copy(before, chunk, plain);
    header->replacePhiUsesWith(before, served);
    before = served;
  } else {
    before->getTerminator()->replaceSuccessorWith(header, chunk);
  }

  llvm::IRBuilder<> begin(chunk);
  begin.SetCurrentDebugLocation(header->getTerminator()->getDebugLoc());
  llvm::PHINode* const rest = begin.CreatePHI(begin.getInt64Ty(), 2, "farheap.rest");
  llvm::PHINode* counter = nullptr;
  const state carried = carry_in(plan_, before, begin, &counter);
  llvm::BasicBlock* direct = nullptr;
  if (plan_.keeps_copy) {
    begin.CreateBr(check);
  } else {
    direct = branch_short(chunk, check, enter);
  }

  const progress all = begin_chunk(check, tell, enter, rest);
  report_blocks reports = tell_all(tell, all, enter, plain);

  llvm::IRBuilder<> entry(enter);
  llvm::Type* const word = entry.getInt64Ty();
  llvm::PHINode* const count = entry.CreatePHI(word, 3, "farheap.count");
  llvm::PHINode* const behind = entry.CreatePHI(word, 3, "farheap.left");
  for (llvm::BasicBlock* const from : llvm::predecessors(enter)) {
    count->addIncoming(from == direct ? rest : all.count, from);
    behind->addIncoming(from == direct ? llvm::ConstantInt::get(word, 0) : all.left, from);
  }
  entry.CreateBr(header);

  llvm::IRBuilder<> chunk_end(end);
  carry_on(loop, carried, enter, chunk_end);
  carry_out(loop, chunk_end);
  chunk_end.SetCurrentDebugLocation(latch->getTerminator()->getDebugLoc());
  rest->addIncoming(plan_.iterations, before);
  rest->addIncoming(behind, end);
  chunk_end.CreateCondBr(chunk_end.CreateICmpEQ(behind, chunk_end.getInt64(0)), exit, chunk);

  if (counter == nullptr) {
    count_iterations(loop, count, enter, end);
  } else {
    llvm::IRBuilder<> last(enter->getTerminator());
    end_chunk(plan_, counter, count, last, end);
  }
  if (plan_.has_quiet_body) {
    add_quiet_body(enter, {check, direct}, end);
    be_small();
  }
  return reports;
}

}  // namespace

void tell_column(const plan& one, std::size_t number, const column_report& call, const llvm::Function& user,
                 emitter& emit, llvm::IRBuilder<>& at) {
  const column& told = one.columns[number];
  llvm::Constant* const record =
      emit.column_of(told.row_bytes, one.chunk_iterations, told.accessed.write, call.is_here, user);
  at.CreateCall(emit.column(), {call.from, one.column_steps[number], one.iterations, call.rest, record})
      ->setCallingConv(llvm::CallingConv::PreserveMost);
}

void sink(llvm::ArrayRef<llvm::Instruction*> expanded, const report_blocks& reports) {
  for (llvm::Instruction* const one : llvm::reverse(expanded)) {
    if (one->use_empty() || llvm::isa<llvm::PHINode>(one) || one->mayReadOrWriteMemory()) continue;
    llvm::SmallPtrSet<llvm::BasicBlock*, 4> users;
    for (llvm::User* const user : one->users()) users.insert(llvm::cast<llvm::Instruction>(user)->getParent());
    if (!llvm::all_of(users, [&](llvm::BasicBlock* user) { return llvm::is_contained(reports.all, user); })) continue;
    llvm::BasicBlock* const to = users.size() == 1 ? *users.begin() : reports.first;
    if (to != nullptr) one->moveBefore(*to, to->getFirstInsertionPt());
  }
}

bool can_keep_copy(const llvm::Loop& loop) {
  return loop.isInnermost() && loop.getParentLoop() != nullptr && can_be_doubled(loop);
}

bool can_be_doubled(const llvm::Loop& loop) {
  std::size_t instructions = 0;
  for (const llvm::BasicBlock* const block : loop.blocks()) {
    if (block->hasAddressTaken()) return false;
    for (const llvm::Instruction& one : *block) {
      if (!one.isDebugOrPseudoInst() && ++instructions > most_copied) return false;
      const auto* const call = llvm::dyn_cast<llvm::CallBase>(&one);
      if (one.getType()->isTokenTy()) return false;
      // Assembly may define symbols.
      if (call != nullptr && (call->cannotDuplicate() || call->isConvergent() || call->isInlineAsm())) return false;
    }
  }
  return true;
}

report_blocks split(const plan& one, llvm::Function& function, emitter& emit) {
  return chunker(one, function, emit).run();
}

}  // namespace far::compiler
