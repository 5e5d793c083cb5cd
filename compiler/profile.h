// What profiles tell about an access: misses.profile of `farheap trace` (-ffar-profile, src/trace/profile.h), and how
// often code ran (-fprofile-use).
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Instruction.h"

namespace llvm {
class BlockFrequencyInfo;
}  // namespace llvm

namespace far::compiler {

// The misses that a traced run had at a source line.
struct line_misses {
  std::uint64_t count = 0;
  bool in_order = false;  // one page after the other, as the pager reads ahead
};

class miss_profile {
 public:
  // `path`: the file; empty: there is no profile. Ends the compilation with a message when it cannot be read.
  explicit miss_profile(std::string path);

  // Of the source line of the access. Nothing if there is no profile, the line is not known, or the profile cannot know
  // it: its source is another one by now, or the traced program did not have it. Then a warning says so, once.
  [[nodiscard]] std::optional<line_misses> of(const llvm::Instruction& access);

  // All misses of the run.
  [[nodiscard]] std::uint64_t misses() const { return misses_; }

 private:
  struct source {
    std::string hash;
    llvm::DenseMap<unsigned, line_misses> lines;
    std::optional<bool> is_usable;
  };

  void read(llvm::StringRef text);
  bool knows_program_of(const llvm::Instruction& access);
  bool is_usable(llvm::StringRef path, source& known, const llvm::Instruction& access);

  std::string path_;
  std::uint64_t misses_ = 0;
  std::mutex checking_;  // ThinLTO compiles several modules at once
  llvm::StringMap<source> sources_;
};

// The profile that the option -farheap-profile names.
[[nodiscard]] miss_profile& chosen_profile();

// Whether profiles are against a check in front of the access: why. Null if they are for it, or know nothing.
// `executed`: how often the access ran, by -fprofile-use.
[[nodiscard]] const char* why_no_guard(const std::optional<line_misses>& missed, std::optional<std::uint64_t> executed);

// The same for reporting the loop of a stream or a gather. Null if the accesses missed.
[[nodiscard]] const char* why_no_report(const std::optional<line_misses>& missed,
                                        std::optional<std::uint64_t> executed);

// How often the instruction ran, by -fprofile-use.
[[nodiscard]] std::optional<std::uint64_t> executions_of(const llvm::Instruction& one,
                                                         const llvm::BlockFrequencyInfo& frequencies);

}  // namespace far::compiler
