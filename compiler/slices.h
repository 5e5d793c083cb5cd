// Accesses whose address a loop computes: a[hash(b[i])], a[i * n], a[x % n] with x = x * c + 1. The instructions that
// compute it can be copied in front of the loop, and there tell which pages the iterations to come will need. If what
// is read there is a pointer, which the loop follows, as from a bucket to its first entry, the copy follows it, too; or
// an index, as in a[b[c[i]]].
#pragma once

#include <cstdint>
#include <optional>

#include "emit.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Instructions.h"

namespace far::compiler {

inline constexpr std::size_t most_followed = 2;

// Where a loop goes from a pointer that it has read, or from a number, by which it computes an address.
struct follow {
  std::int64_t offset;  // bytes from where the pointer leads
  bool write;
  llvm::Value* pointer = nullptr;                       // the address that is computed by a number
  llvm::SmallVector<llvm::Instruction*, 8> computed{};  // ... and what computes it, as in a slice
};

struct slice {
  llvm::Instruction* access;
  llvm::Value* pointer;  // its address; in an inner loop that goes on from there, the first one
  bool write;
  bool is_local;  // in static data or on the stack: of interest is only where the pointer there leads
  // What computes the address in an iteration, in order, with what the iteration after it needs. Phis of the loop's
  // header come first.
  llvm::SmallVector<llvm::PHINode*, 4> carried;
  llvm::SmallVector<llvm::Instruction*, 16> computed;
  // Where the loop goes from the pointer there, and from the pointer that it reads there.
  llvm::SmallVector<follow, most_followed> next;
};

// The computation of the access's address; nothing if it is in order, or the copy could not run before the loop: it
// writes, calls, divides by what varies, or loads from anywhere but places that the loop walks over. Of memory that is
// not far only what may be a table of pointers. Requires that the
// access happens in each iteration, and may_read_ahead().
[[nodiscard]] std::optional<slice> slice_of(const touch& accessed, const llvm::Loop& loop,
                                            llvm::ScalarEvolution& evolution, const llvm::DominatorTree& dominators);

// Sets one.next. It stays empty if the loop reads no pointer and no index there, or if the copy must not read it, since
// it would read another address than the loop, which need not be one that can be read. Requires as slice_of().
void find_followed(slice& one, const llvm::Loop& loop, llvm::ScalarEvolution& evolution,
                   const llvm::DominatorTree& dominators, llvm::AAResults& aliases);

// The iterations that a copy is run for.
struct slice_call {
  llvm::Value* done;   // iterations of the loop so far
  llvm::Value* count;  // of the chunk that follows
  llvm::Value* rest;   // of the loop
  std::uint64_t number;
  llvm::Constant* loop;  // its struct far_loop
  llvm::BasicBlock* latch;
};

// Emits, at the end of the block of `at`, and leaves it at the end of the last block of, two loops that go through the
// addresses of the iterations to come: one that starts to fetch missing pages, and one that waits for those of the
// chunk; and two more for each pointer that it follows. `start_of`: the values of the header's phis in the first of the
// iterations.
void emit_look(const slice& one, const slice_call& call, llvm::function_ref<llvm::Value*(llvm::PHINode*)> start_of,
               emitter& emit, llvm::IRBuilder<>& at);

}  // namespace far::compiler
