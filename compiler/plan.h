// How a loop is going to be split into chunks: streams.cc finds out, chunks.cc does it.
#pragma once

#include <cstdint>

#include "columns.h"
#include "emit.h"
#include "gathers.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "slices.h"

namespace far::compiler {

inline constexpr std::size_t most_streams = 8;
inline constexpr std::size_t most_gathers = 4;
inline constexpr std::size_t most_columns = 4;
static_assert(most_gathers <= number_of_followed);

struct stream {
  const llvm::SCEV* start;  // the first address
  std::int64_t step_bytes;  // an iteration
  bool write;
  bool hot;
  bool overwrites;  // all that it passes: what was there is not needed
  llvm::Instruction* access;
  const char* unwanted;  // what profiles say against reporting it, or null
};

// Everything that needs scalar evolution is expanded before any loop is changed.
struct plan {
  llvm::Loop* loop;
  llvm::SmallVector<stream, most_streams> streams;
  llvm::SmallVector<gather, most_gathers> gathers;
  llvm::SmallVector<slice, most_gathers> slices;
  llvm::SmallVector<column, most_columns> columns;
  llvm::SmallPtrSet<const llvm::Value*, most_columns> column_pointers;
  llvm::SmallVector<llvm::Instruction*, most_gathers> told;  // accesses of the three, which need no guards
  const llvm::SCEV* iterations_less_one = nullptr;
  llvm::PHINode* counter = nullptr;  // of the loop, if it can end a chunk
  bool counts_down = false;
  bool keeps_copy = false;      // the loop as it was, for few iterations and for runs without a runtime
  bool has_quiet_body = false;  // each chunk that begins before a page has left runs a body without guards
  bool is_watched = false;      // the loop is not split: all that it reports are columns
  bool is_short = false;        // ... once, in front of it
  bool is_regular = true;       // all that it accesses is in order, does not change, or is told
  std::uint64_t chunk_iterations = 0;
  std::uint64_t stream_iterations = 0;  // streams are reported after so many: a multiple of a chunk
  std::uint64_t idle_iterations = 0;    // before the first eviction the loop looks after so many: a multiple of these
  std::uint64_t least_iterations = 0;
  std::uint64_t least_walked = 0;  // with fewer iterations, streams are not worth a report
  // Expanded, in front of the loop.
  llvm::Value* iterations = nullptr;
  llvm::SmallVector<llvm::Value*, most_streams> starts;
  llvm::SmallVector<llvm::Value*, most_gathers> indices;
  llvm::SmallVector<llvm::Value*, most_gathers> bases;
  llvm::SmallVector<llvm::Value*, most_columns> column_starts;
  llvm::SmallVector<llvm::Value*, most_columns> column_steps;
  llvm::SmallVector<llvm::Instruction*, 16> expanded;  // in an order in which each comes behind its operands

  [[nodiscard]] bool looks_ahead() const { return !gathers.empty() || !slices.empty() || !columns.empty(); }
  // Whether accesses have no guards because the loop looks ahead, however few iterations it has.
  [[nodiscard]] bool must_look_ahead() const {
    return !slices.empty() || !columns.empty() || llvm::any_of(gathers, [](const gather& one) { return !one.of_rows; });
  }
};

// Whether the loop is so small that it may be there twice, and can be.
[[nodiscard]] bool can_be_doubled(const llvm::Loop& loop);

// Whether the loop is worth a copy that stays as it is, and can have one.
[[nodiscard]] bool can_keep_copy(const llvm::Loop& loop);

struct column_report {
  llvm::Value* from;  // the first row, or the one that the loop is at:
  bool is_here;
  llvm::Value* rest;  // iterations from there
};

// Reports a column.
void tell_column(const plan& one, std::size_t number, const column_report& call, const llvm::Function& user,
                 emitter& emit, llvm::IRBuilder<>& at);

// What only the reports need is computed there, or in the first of their blocks: loops that report nothing neither
// compute nor keep it.
void sink(llvm::ArrayRef<llvm::Instruction*> expanded, const report_blocks& reports);

// Splits the loop. It keeps its body; analyses of the function are no longer valid.
report_blocks split(const plan& one, llvm::Function& function, emitter& emit);

}  // namespace far::compiler
