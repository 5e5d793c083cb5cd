// Columns: accesses of a loop that go on by more than a page, or by a distance that is known only when the loop runs,
// as a[i * n] does, or as rows of some hundred bytes do that begin so far apart: memcpy(to, a + i * n, 256).
#pragma once

#include <cstdint>
#include <optional>

#include "emit.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/IR/Dominators.h"

namespace far::compiler {

struct plan;

// Blocks that report; `first` comes before all others, if there is one that does.
struct report_blocks {
  llvm::SmallVector<llvm::BasicBlock*, 4> all;
  llvm::BasicBlock* first;
};

struct column {
  touch accessed;           // the first access of the row
  bool is_direct;           // by the loop itself, and not by an inner one
  const llvm::SCEV* base;   // where each iteration loads the address of it all again, or null
  const llvm::SCEV* start;  // the first byte of the first row, behind the base
  const llvm::SCEV* step;   // bytes from one row to the next
  std::int64_t offset;      // of the row's first byte from what is accessed first
  std::uint64_t row_bytes;
  llvm::SmallVector<llvm::Instruction*, 4> accesses;
};

// The column that the access of `loop`, or of short inner loops, goes through; nothing if there is none, or an
// iteration may leave it out.
[[nodiscard]] std::optional<column> column_of(const touch& accessed, const llvm::Loop& loop,
                                              const llvm::LoopInfo& loops, llvm::ScalarEvolution& evolution,
                                              const llvm::DominatorTree& dominators);

// Whether both are one, as are those of a[i * n].x and a[i * n].y; then `known` has what both access. `fresh` comes
// behind it, or on another way.
[[nodiscard]] bool merge(column& known, const column& fresh, llvm::ScalarEvolution& evolution,
                         const llvm::DominatorTree& dominators);

// Whether a loop of long iterations reports it: fewer bytes are not worth the code.
[[nodiscard]] bool is_row(const column& one);

// After so many rows columns are reported again: a power of two.
[[nodiscard]] std::uint64_t rows_at_once(llvm::ArrayRef<column> columns, std::uint64_t most);

// Whether the iterations are so long that a test in each, of two instructions, costs little. Those of a loop with rows
// may be unrolled; others become vectors.
[[nodiscard]] bool is_heavy(const llvm::Loop& loop, bool has_rows);

// Of a loop that only goes through columns: reports them every so many iterations, or once, in front of a loop that is
// known to have few. Everything has been expanded.
report_blocks watch(const plan& one, llvm::Function& function, llvm::LoopInfo& loops, emitter& emit);

}  // namespace far::compiler
