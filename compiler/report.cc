#include "report.h"

#include <mutex>

#include "llvm/ADT/StringSet.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instruction.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace far::compiler {
namespace {

constexpr const char* pass_name = "farheap";

std::string line_of_json(const llvm::Instruction& at, const finding& found) {
  llvm::json::Object line;
  line["kind"] = found.kind;
  line["done"] = found.done;
  line["why"] = found.why;
  line["function"] = at.getFunction()->getName().str();
  line["file"] = at.getModule()->getSourceFileName();
  if (const llvm::DILocation* const place = at.getDebugLoc().get()) {
    line["file"] = place->getFilename().str();
    line["line"] = place->getLine();
    line["column"] = place->getColumn();
  }
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(line)) << '\n';
  return text;
}

// Loops are unrolled, vectorised and copied before guards are placed, so an access may occur several times. It gets one
// line for each outcome.
bool once(const llvm::Instruction& at, const finding& found) {
  const llvm::DILocation* const place = at.getDebugLoc().get();
  if (place == nullptr) return true;
  static std::mutex adding;  // ThinLTO compiles several modules at once
  static llvm::StringSet<> known;
  const std::string key = (llvm::Twine(found.kind) + found.why + ":" + at.getFunction()->getName() + ":" +
                           llvm::Twine(place->getLine()) + ":" + llvm::Twine(place->getColumn()))
                              .str();
  const std::lock_guard<std::mutex> held(adding);
  return known.insert(key).second;
}

}  // namespace

// A build runs several compilers at once, so each line is appended to the file by one write. A report that cannot be
// written ends the compilation: one with lines missing would look as if there were nothing to say about those loops.
void report::add(const llvm::Instruction& at, llvm::OptimizationRemarkEmitter& remarks, const finding& found) const {
  remarks.emit([&]() -> llvm::OptimizationRemark {
    return llvm::OptimizationRemark(pass_name, found.kind, &at)
           << found.kind << (found.done ? ": " : ": none: ") << found.why;
  });
  if (path_.empty() || !once(at, found)) return;
  std::error_code failure;
  llvm::raw_fd_ostream file(path_, failure, llvm::sys::fs::CD_OpenAlways, llvm::sys::fs::FA_Write,
                            llvm::sys::fs::OF_Append);
  if (!failure) {
    file << line_of_json(at, found);
    file.flush();
    failure = file.error();
    file.clear_error();
  }
  if (failure) {
    llvm::report_fatal_error(llvm::Twine("--farheap-report: cannot write '") + path_ + "': " + failure.message() +
                                 "; name a file you may write",
                             false);
  }
}

}  // namespace far::compiler
