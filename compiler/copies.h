// Calls of memcpy(), memmove() and memset(): code of the C library, which tells the runtime nothing.
#pragma once

#include "emit.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"

namespace far::compiler {

// Lets calls that move much memory go to the support (support.c) after the first eviction, which moves it in chunks
// and tells of them as a loop does. Returns whether there are any.
bool tell_copies(llvm::Function& function, llvm::OptimizationRemarkEmitter& remarks, emitter& emit);

}  // namespace far::compiler
