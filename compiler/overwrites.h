// Stores that overwrite all that their loop walks over: what was there need not come.
#pragma once

#include <cstdint>

#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/IR/Instructions.h"

namespace far::compiler {

// Whether the loop, which goes on by `step_bytes` with each iteration, writes to every byte that it passes, upwards,
// and neither it nor, without a data race, anybody else can read a byte between the beginning of the loop and that
// write. Requires: it has one exit, at its end, and the store is in each of its iterations.
[[nodiscard]] bool overwrites_all(const llvm::StoreInst& store, std::int64_t step_bytes, const llvm::Loop& loop,
                                  llvm::ScalarEvolution& evolution, llvm::AAResults& aliases);

}  // namespace far::compiler
