#include "profile.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

namespace far::compiler {
namespace {

// A trap costs about as much as so many checks of a guard (docs/decisions/0083-profiles.md).
constexpr std::uint64_t checks_of_a_trap = 5000;
// Lines with a smaller part of all misses are not worth code.
constexpr std::uint64_t least_part = 1000;

constexpr const char* first_line = "farheap profile 1";

[[noreturn]] void fail(const std::string& path, const llvm::Twine& what) {
  llvm::report_fatal_error(llvm::Twine("-ffar-profile: '") + path + "' " + what, false);
}

std::string path_of(const llvm::DIFile& file) {
  llvm::SmallString<256> path(file.getFilename());
  if (!llvm::sys::path::is_absolute(path)) {
    path = file.getDirectory();
    llvm::sys::path::append(path, file.getFilename());
  }
  llvm::sys::path::remove_dots(path, /*remove_dot_dot=*/true);
  return path.str().str();
}

std::string hash_of(llvm::StringRef text) {
  std::string hash;
  llvm::raw_string_ostream(hash) << llvm::format_hex_no_prefix(llvm::xxh3_64bits(text), 16);
  return hash;
}

void warn(const llvm::Instruction& at, llvm::StringRef file, const llvm::Twine& message) {
  at.getContext().diagnose(llvm::DiagnosticInfoPGOProfile(file.str().c_str(), message, llvm::DS_Warning));
}

}  // namespace

miss_profile::miss_profile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  const auto file = llvm::MemoryBuffer::getFile(path_, /*IsText=*/true);
  if (!file) fail(path_, "cannot be read: " + file.getError().message());
  read((*file)->getBuffer());
}

void miss_profile::read(llvm::StringRef text) {
  auto [line, rest] = text.split('\n');
  if (line != first_line) fail(path_, "is no profile of this release; run `farheap report` on its folder again");
  source* current = nullptr;
  while (!rest.empty()) {
    std::tie(line, rest) = rest.split('\n');
    const auto [word, arguments] = line.split(' ');
    const auto [first, others] = arguments.split(' ');
    unsigned number = 0;
    line_misses missed;
    if (word == "misses" && !arguments.getAsInteger(10, misses_)) continue;
    if (word == "source" && !others.empty()) {
      current = &sources_[others];
      current->hash = first.str();
      continue;
    }
    const auto [count, pattern] = others.split(' ');
    if (word != "access" || current == nullptr || first.getAsInteger(10, number) ||
        count.getAsInteger(10, missed.count)) {
      fail(path_, "is damaged at '" + line + "'; run `farheap report` on its folder again");
    }
    missed.in_order = pattern == "forward" || pattern == "backward";
    current->lines[number] = missed;
  }
}

bool miss_profile::is_usable(llvm::StringRef path, source& known, const llvm::Instruction& access) {
  if (known.is_usable) return *known.is_usable;
  const auto text = llvm::MemoryBuffer::getFile(path);
  known.is_usable = known.hash == "unknown" || (text && known.hash == hash_of((*text)->getBuffer()));
  if (!*known.is_usable) {
    warn(access, path, "changed since it was traced for '" + path_ + "', which is not used for it; trace again");
  }
  return *known.is_usable;
}

// In a source that the traced program did not have, nobody knows what would miss.
bool miss_profile::knows_program_of(const llvm::Instruction& access) {
  const llvm::DISubprogram* const program = access.getFunction()->getSubprogram();
  if (program == nullptr || program->getUnit() == nullptr) return false;
  const std::string path = path_of(*program->getUnit()->getFile());
  const auto [known, is_new] = sources_.try_emplace(path);
  if (!is_new) return is_usable(path, known->second, access);
  known->second.is_usable = false;
  warn(access, path, "is no part of the program that was traced for '" + path_ + "', which is not used for it");
  return false;
}

std::optional<line_misses> miss_profile::of(const llvm::Instruction& access) {
  const llvm::DILocation* const place = access.getDebugLoc().get();
  if (path_.empty() || place == nullptr || place->getLine() == 0) return std::nullopt;
  const std::lock_guard<std::mutex> held(checking_);
  if (!knows_program_of(access)) return std::nullopt;
  const std::string path = path_of(*place->getFile());
  const auto known = sources_.find(path);
  if (known == sources_.end()) return line_misses{};
  if (!is_usable(path, known->second, access)) return std::nullopt;
  const auto line = known->second.lines.find(place->getLine());
  return line == known->second.lines.end() ? line_misses{} : line->second;
}

const char* why_no_guard(const std::optional<line_misses>& missed, std::optional<std::uint64_t> executed) {
  if (executed == 0) return "never executed, by the profile";
  if (!missed) return nullptr;
  if (missed->count == 0) return "no misses, by the profile";
  if (executed) return missed->count * checks_of_a_trap < *executed ? "few misses, by the profile" : nullptr;
  if (missed->count * least_part < chosen_profile().misses()) return "few misses, by the profile";
  return missed->in_order ? "misses in order, by the profile" : nullptr;
}

const char* why_no_report(const std::optional<line_misses>& missed, std::optional<std::uint64_t> executed) {
  if (executed == 0) return "never executed, by the profile";
  if (!missed) return nullptr;
  if (missed->count == 0) return "no misses, by the profile";
  return missed->count * least_part < chosen_profile().misses() ? "few misses, by the profile" : nullptr;
}

std::optional<std::uint64_t> executions_of(const llvm::Instruction& one, const llvm::BlockFrequencyInfo& frequencies) {
  return frequencies.getBlockProfileCount(one.getParent());
}

}  // namespace far::compiler
