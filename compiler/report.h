// The passes' report on each loop and access: remarks (-Rpass=farheap) and lines of JSON (--farheap-report).
#pragma once

#include <string>

#include "llvm/ADT/StringRef.h"

namespace llvm {
class Instruction;
class OptimizationRemarkEmitter;
}  // namespace llvm

namespace far::compiler {

struct finding {
  const char* kind;  // "stream", "gather", "guard", "copy"; "loop": one without any of the first two
  bool done;         // false: there is none, for the reason that `why` gives
  std::string why;
};

class report {
 public:
  // `path`: a file to which a line is appended for each finding; empty: none. Ends the compilation with a message when
  // it cannot be written.
  explicit report(std::string path) : path_(std::move(path)) {}
  // About the access or the branch of the loop `at`.
  void add(const llvm::Instruction& at, llvm::OptimizationRemarkEmitter& remarks, const finding& found) const;

 private:
  std::string path_;
};

// The report that the option -farheap-report asks for.
[[nodiscard]] const report& chosen_report();

}  // namespace far::compiler
