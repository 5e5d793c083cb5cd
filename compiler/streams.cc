#include <optional>

#include "function_pass.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"
#include "marks.h"
#include "overwrites.h"
#include "passes.h"
#include "plan.h"
#include "profile.h"
#include "report.h"

namespace far::compiler {
namespace {

// Loops that are known to walk fewer bytes are left alone. At run time, a loop with fewer bytes to go does not report
// them, either.
constexpr std::uint64_t least_bytes = 4 * page_bytes;
// A loop that gathers has shorter chunks, since each of its iterations may need a page of its own. It always reports
// them, however short it is at run time, because their accesses have no guards.
constexpr std::uint64_t gather_iterations = 512;
constexpr std::uint64_t least_gather_iterations = 128;
// Fewer rows of a column are not worth a report.
constexpr std::uint64_t least_rows = 16;

// A look whether a page has left takes some ten instructions.
constexpr std::uint64_t least_idle_iterations = 1024;

class splitter : function_pass {
 public:
  using function_pass::function_pass;

  bool run() {
    llvm::SmallVector<plan, 4> plans;
    for (llvm::Loop* const loop : loops_.getLoopsInPreorder()) {
      if (std::optional<plan> found = look_at(*loop)) plans.push_back(std::move(*found));
    }
    for (plan& one : plans) one.has_quiet_body = wants_quiet_body(one, plans);
    for (plan& one : plans) expand(one);
    llvm::SmallVector<report_blocks, 4> reports(plans.size());
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (plans[i].is_watched) reports[i] = watch(plans[i], function_, loops_, emit_);
    }
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (!plans[i].is_watched) reports[i] = split(plans[i], function_, emit_);
    }
    // Last: plans share what they have expanded.
    for (std::size_t i = 0; i < plans.size(); ++i) sink(plans[i].expanded, reports[i]);
    return !plans.empty();
  }

 private:
  std::optional<plan> look_at(llvm::Loop& loop);
  bool is_known_before(const llvm::Loop& loop, llvm::ArrayRef<const llvm::SCEV*> needed);
  const char* why_not_split(llvm::Loop& loop, plan& chosen);
  void find_streams(llvm::Loop& loop, plan& chosen);
  const char* why_unwanted(const llvm::Instruction& access);
  std::optional<stream> stream_of(llvm::Instruction& access, llvm::Loop& loop);
  bool merge(plan& chosen, const stream& fresh);
  bool is_short(const llvm::Loop& loop, std::int64_t step_bytes);
  void find_overwritten(plan& chosen);
  bool is_followed(const touch& accessed, llvm::Loop& loop);
  void find_columns(llvm::Loop& loop, plan& chosen);
  void find_gathers(llvm::Loop& loop, plan& chosen);
  void find_gathers(const touch& accessed, llvm::Loop& loop, plan& chosen);
  void find_rows(llvm::Loop& loop, plan& chosen);
  bool is_regular(const llvm::Loop& loop, llvm::ArrayRef<llvm::Instruction*> told);
  void find_counter(const llvm::Loop& loop, plan& chosen);
  bool merge(plan& chosen, const gather& fresh);
  bool merge(plan& chosen, const slice& fresh);
  bool merge(plan& chosen, const column& fresh);
  void choose_watch(llvm::Loop& loop, plan& chosen);
  void choose_chunks(plan& chosen);
  const char* why_not_looked_at(const llvm::Loop& loop);
  std::nullopt_t refuse(const llvm::Loop& loop, const char* why);
  void report(const plan& chosen, const char* why_not);
  static bool wants_quiet_body(const plan& one, llvm::ArrayRef<plan> all);
  void expand(plan& one);
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
  if (pointer == nullptr || !may_be_far(access, pointer, &why)) return std::nullopt;
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
  const bool hot = is_hot(access, pointer);
  return stream{.start = walk->getStart(),
                .step_bytes = step_bytes,
                .write = llvm::isa<llvm::StoreInst>(access),
                .hot = hot,
                .overwrites = false,
                .access = &access,
                .unwanted = hot ? nullptr : why_unwanted(access)};
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
    known.hot |= fresh.hot;
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

// Of a plan that is going to be carried out: the loop has one exit, at its end.
void splitter::find_overwritten(plan& chosen) {
  for (stream& one : chosen.streams) {
    const auto* const store = llvm::dyn_cast<llvm::StoreInst>(one.access);
    if (store == nullptr || loops_.getLoopFor(store->getParent()) != chosen.loop) continue;
    one.overwrites = overwrites_all(*store, one.step_bytes, *chosen.loop, evolution_, aliases_);
  }
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
    const bool write = known.write || fresh.write;
    if (known.next.size() < fresh.next.size()) known = fresh;
    known.write = write;
    return true;
  }
  return false;
}

bool splitter::merge(plan& chosen, const column& fresh) {
  for (column& known : chosen.columns) {
    if (far::compiler::merge(known, fresh, evolution_, dominators_)) return true;
  }
  if (chosen.columns.size() == most_columns) return false;
  chosen.columns.push_back(fresh);
  return true;
}

// Whether the loop looks ahead for where a pointer or a number leads that lies there.
bool splitter::is_followed(const touch& accessed, llvm::Loop& loop) {
  const unsigned most = evolution_.getSmallConstantMaxTripCount(&loop);
  if ((most != 0 && most < least_gather_iterations) || !may_read_ahead(loop, loops_)) return false;
  std::optional<slice> computed = slice_of(accessed, loop, evolution_, dominators_);
  if (computed) find_followed(*computed, loop, evolution_, dominators_, aliases_);
  return computed && !computed->next.empty();
}

// Objects come without their pages (-ffar-objects), so columns of them are looked ahead for as other addresses are.
void splitter::find_columns(llvm::Loop& loop, plan& chosen) {
  const unsigned most = evolution_.getSmallConstantMaxTripCount(&loop);
  if (most != 0 && most < least_rows) return;
  for (llvm::BasicBlock* const block : loop.blocks()) {
    for (llvm::Instruction& access : *block) {
      for (const touch& accessed : touches_of(access)) {
        const bool is_single = loops_.getLoopFor(block) == &loop && !llvm::isa<llvm::CallBase>(access);
        if (is_single && chosen_object_bytes() != 0 && !accessed.write) continue;
        const std::optional<column> found = column_of(accessed, loop, loops_, evolution_, dominators_);
        if (!found || !is_known_before(loop, {found->base == nullptr ? found->start : nullptr, found->step})) continue;
        if (is_single && is_followed(accessed, loop)) continue;
        if (const char* const why = why_unwanted(access)) {
          chosen_report().add(access, remarks_, {"gather", false, why});
        } else if (merge(chosen, *found)) {
          chosen.column_pointers.insert(accessed.pointer);
        }
      }
    }
  }
}

void splitter::find_gathers(llvm::Loop& loop, plan& chosen) {
  const unsigned most = evolution_.getSmallConstantMaxTripCount(&loop);
  if ((most != 0 && most < least_gather_iterations) || !may_read_ahead(loop, loops_)) return;
  for (llvm::BasicBlock* const block : loop.blocks()) {
    if (!dominators_.dominates(block, loop.getLoopLatch())) continue;
    for (llvm::Instruction& access : *block) {
      for (const touch& accessed : touches_of(access)) {
        if (!chosen.column_pointers.contains(accessed.pointer)) find_gathers(accessed, loop, chosen);
      }
    }
  }
  find_rows(loop, chosen);
}

void splitter::find_gathers(const touch& accessed, llvm::Loop& loop, plan& chosen) {
  llvm::Instruction& access = *accessed.access;
  const char* why = nullptr;
  std::optional<gather> found = gather_of(accessed, loop, evolution_, dominators_, &why);
  std::optional<slice> computed;
  if (why == nullptr) computed = slice_of(accessed, loop, evolution_, dominators_);
  if (computed) find_followed(*computed, loop, evolution_, dominators_, aliases_);
  if (computed && computed->is_local && computed->next.empty()) computed.reset();
  if (computed && !computed->next.empty()) found.reset();
  if (found) computed.reset();
  // Around inner loops, single places were not worth their code.
  if (!loop.isInnermost() && (!computed || computed->next.empty())) return;
  if (found || computed) why = why_unwanted(access);
  if (why != nullptr) chosen_report().add(access, remarks_, {"gather", false, why});
  if (why != nullptr || (!found && !computed)) return;
  // In an inner loop, what follows the first address is not told of.
  const bool is_first_of_many = computed && computed->pointer != accessed.pointer;
  const bool is_known = found ? merge(chosen, *found) : merge(chosen, *computed);
  if (!is_known) {
    if (chosen.gathers.size() + chosen.slices.size() == most_gathers) return;
    if (found) chosen.gathers.push_back(*found);
    if (computed) chosen.slices.push_back(std::move(*computed));
  }
  if (!is_first_of_many) chosen.told.push_back(&access);
}

void splitter::find_rows(llvm::Loop& loop, plan& chosen) {
  for (llvm::BasicBlock* const block : loop.blocks()) {
    if (loops_.getLoopFor(block) == &loop) continue;
    for (llvm::Instruction& access : *block) {
      const std::optional<gather> found = rows_of(access, loop, loops_, evolution_, dominators_);
      // A loop does not lose its streams for rows, which it can do without.
      if (!found || !is_known_before(loop, {found->start, found->base})) continue;
      if (const char* const why = why_unwanted(access)) {
        chosen_report().add(access, remarks_, {"gather", false, why});
      } else if (!merge(chosen, *found) && chosen.gathers.size() + chosen.slices.size() < most_gathers) {
        chosen.gathers.push_back(*found);
      }
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

// Whether no access of an innermost loop would have a guard inside.
bool splitter::is_regular(const llvm::Loop& loop, llvm::ArrayRef<llvm::Instruction*> told) {
  for (const llvm::BasicBlock* const block : loop.blocks()) {
    for (const llvm::Instruction& access : *block) {
      if (access.isAtomic()) return false;
      llvm::Value* const pointer = const_cast<llvm::Value*>(llvm::getLoadStorePointerOperand(&access));
      const char* why = nullptr;
      if (pointer == nullptr || !may_be_far(access, pointer, &why) || llvm::is_contained(told, &access)) continue;
      const llvm::SCEV* const address = evolution_.getSCEV(pointer);
      if (evolution_.isLoopInvariant(address, &loop)) continue;
      const auto* const walk = llvm::dyn_cast<llvm::SCEVAddRecExpr>(address);
      if (walk == nullptr || !llvm::isa<llvm::SCEVConstant>(walk->getStepRecurrence(evolution_))) return false;
    }
  }
  return true;
}

// Whether the loop's preheader can compute all of them; null is nothing to compute.
bool splitter::is_known_before(const llvm::Loop& loop, llvm::ArrayRef<const llvm::SCEV*> needed) {
  llvm::SCEVExpander expander(evolution_, function_.getDataLayout(), "farheap");
  const llvm::Instruction* const place = loop.getLoopPreheader()->getTerminator();
  return llvm::all_of(needed,
                      [&](const llvm::SCEV* one) { return one == nullptr || expander.isSafeToExpandAt(one, place); });
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
  llvm::SmallVector<const llvm::SCEV*, 8> needed{chosen.iterations_less_one};
  for (const stream& one : chosen.streams) needed.push_back(one.start);
  for (const gather& one : chosen.gathers) needed.append({one.start, one.base});
  if (!is_known_before(loop, needed)) return "its bounds cannot be computed before it begins";
  return nullptr;
}

// A loop that goes through nothing but columns, and is short or has long iterations, is not split.
void splitter::choose_watch(llvm::Loop& loop, plan& chosen) {
  const unsigned most = evolution_.getSmallConstantMaxTripCount(&loop);
  chosen.is_short = most != 0 && most < least_gather_iterations;
  const bool is_alone = chosen.streams.empty() && chosen.gathers.empty() && chosen.slices.empty();
  const bool is_long = is_alone && !chosen.is_short && is_heavy(loop, llvm::any_of(chosen.columns, is_row));
  llvm::erase_if(chosen.columns, [&](const column& one) { return is_long ? !is_row(one) : one.base != nullptr; });
  for (const column& one : chosen.columns) {
    if (!one.is_direct) continue;
    llvm::copy_if(one.accesses, std::back_inserter(chosen.told),
                  [](auto* each) { return !llvm::isa<llvm::CallBase>(each); });
  }
  if (chosen.columns.empty() || !is_alone || (!is_long && !chosen.is_short)) return;
  const llvm::SCEV* const less_one = evolution_.getBackedgeTakenCount(&loop);
  if (llvm::isa<llvm::SCEVCouldNotCompute>(less_one) || less_one->getType()->getIntegerBitWidth() > 64) return;
  if (!is_known_before(loop, {less_one})) return;
  chosen.iterations_less_one = less_one;
  chosen.is_watched = true;
  chosen.chunk_iterations = rows_at_once(chosen.columns, gather_iterations);
}

// Chunks are measured by the stream with the longest step, so that no stream walks more than `chunk_bytes` in a chunk.
void splitter::choose_chunks(plan& chosen) {
  std::uint64_t longest = 1;
  for (const stream& one : chosen.streams) longest = std::max(longest, absolute(one.step_bytes));
  for (const gather& one : chosen.gathers) longest = std::max(longest, absolute(one.step_bytes));
  chosen.chunk_iterations = std::max<std::uint64_t>(1, chunk_bytes / longest);
  chosen.least_walked = std::max<std::uint64_t>(1, least_bytes / longest);
  chosen.least_iterations = chosen.least_walked;
  if (chosen.looks_ahead()) {
    chosen.chunk_iterations = std::min(chosen.chunk_iterations, rows_at_once(chosen.columns, gather_iterations));
    chosen.least_iterations =
        chosen.must_look_ahead() ? gather_iterations : std::min(chosen.least_walked, gather_iterations);
  }
  chosen.stream_iterations = std::max<std::uint64_t>(1, chunk_bytes / longest / chosen.chunk_iterations);
  chosen.stream_iterations *= chosen.chunk_iterations;
  chosen.idle_iterations = llvm::alignTo(least_idle_iterations, chosen.stream_iterations);
}

// `why_not`: why nothing of it is done, or null.
void splitter::report(const plan& chosen, const char* why_not) {
  const auto say = [&](const llvm::Instruction& access, const char* kind, const std::string& how) {
    chosen_report().add(access, remarks_, {kind, why_not == nullptr, why_not != nullptr ? why_not : how});
  };
  const auto rights = [](bool write) { return std::string(write ? "written" : "read"); };
  for (const stream& one : chosen.streams) {
    say(*one.access, "stream",
        (one.overwrites ? "overwritten" : rights(one.write)) + ", step " + std::to_string(one.step_bytes));
  }
  for (const gather& one : chosen.gathers) {
    say(*one.access, "gather", rights(one.write) + (one.of_rows ? ", rows" : ""));
  }
  for (const slice& one : chosen.slices) {
    say(*one.access, "gather", rights(one.write) + (one.next.empty() ? ", computed" : ", computed, followed"));
  }
  for (const column& one : chosen.columns) {
    say(*one.accessed.access, "gather",
        rights(one.accessed.write) + ", column of " + std::to_string(one.row_bytes) + " bytes");
  }
}

const char* splitter::why_not_looked_at(const llvm::Loop& loop) {
  if (!loop.isLoopSimplifyForm()) return "its beginning or its end is not a single block";
  if (!loop.isLCSSAForm(dominators_)) return "values leave it in another way than by its exits";
  return nullptr;
}

// Of a loop without anything to report on by itself.
std::nullopt_t splitter::refuse(const llvm::Loop& loop, const char* why) {
  chosen_report().add(*loop.getHeader()->getTerminator(), remarks_, {"loop", false, why});
  return std::nullopt;
}

// Only plans: splitting one loop changes what scalar evolution knows about the others.
std::optional<plan> splitter::look_at(llvm::Loop& loop) {
  if (const char* const why = why_not_looked_at(loop)) return refuse(loop, why);
  plan chosen{};
  chosen.loop = &loop;
  find_streams(loop, chosen);
  find_columns(loop, chosen);
  find_gathers(loop, chosen);
  if (chosen.streams.empty() && !chosen.looks_ahead()) {
    return refuse(loop, "no access of it that may be far is a stream, gather or column of some length");
  }
  choose_watch(loop, chosen);
  if (chosen.streams.empty() && !chosen.looks_ahead()) {
    return refuse(loop, "its columns are not reported beside its walks");
  }
  const char* const why_not = chosen.is_watched ? nullptr : why_not_split(loop, chosen);
  if (why_not == nullptr && !chosen.is_watched) {
    choose_chunks(chosen);
    find_overwritten(chosen);
    find_counter(loop, chosen);
    chosen.is_regular = is_regular(loop, chosen.told);
    chosen.keeps_copy = evolution_.getSmallConstantTripCount(&loop) == 0 && can_keep_copy(loop);
  }
  report(chosen, why_not);
  if (why_not != nullptr) return std::nullopt;
  return chosen;
}

// A loop that looks ahead in vain natively would have guards, too. Loops inside it must stay as they are.
bool splitter::wants_quiet_body(const plan& one, llvm::ArrayRef<plan> all) {
  if (one.keeps_copy || one.is_regular || !one.must_look_ahead() || !can_be_doubled(*one.loop)) return false;
  return llvm::none_of(all, [&one](const plan& other) { return &other != &one && one.loop->contains(other.loop); });
}

void splitter::expand(plan& one) {
  llvm::Instruction* const place = one.loop->getLoopPreheader()->getTerminator();
  llvm::SCEVExpander expander(evolution_, function_.getDataLayout(), "farheap");
  llvm::IRBuilder<> at(place);
  llvm::Value* const less_one =
      expander.expandCodeFor(one.iterations_less_one, one.iterations_less_one->getType(), place);
  // It may wrap around, for a loop that is left in another way, by longjmp() or exit(). Then all sums below wrap
  // around, too, and the loop's own counter continues.
  llvm::Value* const widened = at.CreateZExtOrTrunc(less_one, at.getInt64Ty());
  one.iterations = at.CreateAdd(widened, at.getInt64(1), "farheap.iterations");
  for (const stream& walked : one.streams) {
    one.starts.push_back(expander.expandCodeFor(walked.start, at.getPtrTy(), place));
  }
  for (const column& walked : one.columns) {
    const bool is_here = one.is_watched && !one.is_short && walked.is_direct;
    one.column_starts.push_back(is_here ? nullptr : expander.expandCodeFor(walked.start, at.getPtrTy(), place));
    one.column_steps.push_back(expander.expandCodeFor(walked.step, at.getInt64Ty(), place));
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
  llvm::SmallPtrSet<llvm::Instruction*, 16> listed;
  const auto list = [&](auto& self, llvm::Value* value) -> void {
    auto* const found = llvm::dyn_cast_if_present<llvm::Instruction>(value);
    if (found == nullptr || !expander.isInsertedInstruction(found) || !listed.insert(found).second) return;
    for (llvm::Value* const operand : found->operands()) self(self, operand);
    one.expanded.push_back(found);
  };
  for (llvm::Value* const value :
       llvm::concat<llvm::Value*>(one.starts, one.column_starts, one.column_steps, one.indices, one.bases)) {
    list(list, value);
  }
  if (!one.is_watched) return;
  list(list, less_one);
  for (llvm::Value* const value : {widened, one.iterations}) {
    auto* const computed = llvm::dyn_cast<llvm::Instruction>(value);
    if (computed != nullptr && value != less_one) one.expanded.push_back(computed);
  }
}

}  // namespace

llvm::PreservedAnalyses streams::run(llvm::Function& function, llvm::FunctionAnalysisManager& analyses) {
  if (is_left_alone(function)) return llvm::PreservedAnalyses::all();
  return splitter(function, analyses).run() ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
}

}  // namespace far::compiler
