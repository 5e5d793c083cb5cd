// What accesses of a loop reach in all of its iterations, to ask alias analysis about.
#pragma once

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/MemoryLocation.h"
#include "llvm/IR/Instructions.h"

namespace far::compiler {

using scope_set = llvm::SmallPtrSet<const llvm::Metadata*, 8>;

// The scopes of `restrict` that are declared before the loop and not in it, and so hold for all of its iterations.
[[nodiscard]] scope_set scopes_around(const llvm::Loop& loop);

// Whatever the loop accesses by way of the access's pointer, or what a memcpy() or memset() writes, in all of its
// iterations. For alias analysis across iterations (BatchAAResults::enableCrossIterationMode()).
[[nodiscard]] llvm::MemoryLocation reach_of(const llvm::Instruction& access, const scope_set& around);

}  // namespace far::compiler
