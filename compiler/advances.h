// Addresses that advance as a program reads or writes along: *to++ here, to += length there.
#pragma once

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Instructions.h"

namespace far::compiler {

// Whether a loop around the access carries its address on, on some way by a constant of at most 256 bytes, and on no
// way to an unrelated place. Where the address is before the loop does not matter.
[[nodiscard]] bool advances(const llvm::Instruction& access, const llvm::Value& pointer, const llvm::LoopInfo& loops);

}  // namespace far::compiler
