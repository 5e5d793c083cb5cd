// Gathers: accesses a[b[i]] of a loop that reads b[] in order.
#pragma once

#include <optional>

#include "emit.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Instructions.h"

namespace far::compiler {

struct gather {
  llvm::Instruction* access;  // a[b[i]]
  llvm::LoadInst* index;      // b[i]
  bool of_rows;               // where inner walks begin
  const llvm::SCEV* start;    // the address of the first index
  std::int64_t step_bytes;    // from one index to the next
  const llvm::SCEV* base;     // the address for the index 0; null: the indices are the addresses
  std::int64_t scale;         // bytes for each index
  bool is_signed;
  bool write;
};

// Whether the runtime may read the indices of later iterations: the loop reads them itself, whatever happens. So it
// has no inner loop that may go on for ever, and nothing in it can end the program, leave the loop, wait for a thread,
// or unmap memory.
[[nodiscard]] bool may_read_ahead(llvm::Loop& loop, const llvm::LoopInfo& loops);

// Whether the loop is known to write to the array that the index is loaded from.
[[nodiscard]] bool is_written(const llvm::Loop& loop, const llvm::LoadInst& index);

// The access as a gather of `loop`; nothing if it is none, or the loop writes to the array of indices. Requires that
// the access happens in each iteration, and may_read_ahead().
[[nodiscard]] std::optional<gather> gather_of(const touch& accessed, llvm::Loop& loop, llvm::ScalarEvolution& evolution,
                                              const llvm::DominatorTree& dominators, const char** why_not);

// The places where the rows begin that an inner loop walks over, as in `for (at = first[i]; at < first[i + 1]; ++at)
// sum += a[at]`: a gather a[first[i]] of `loop`. The access stays one in order; most rows are too short to be reported
// by the inner loop. The index may be the one that the iteration before has read. Requires may_read_ahead().
[[nodiscard]] std::optional<gather> rows_of(llvm::Instruction& access, llvm::Loop& loop, const llvm::LoopInfo& loops,
                                            llvm::ScalarEvolution& evolution, const llvm::DominatorTree& dominators);

}  // namespace far::compiler
