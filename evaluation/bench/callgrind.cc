#include "callgrind.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>

#include "child.h"
#include "common/json.h"
#include "heap_bench.h"
#include "scratch_folder.h"

namespace far::bench {

namespace {

// The format is valgrind's "Callgrind Format Specification". Within a block that begins with fn=, a line that begins
// with a digit, + , - or * is a position and a cost: the function's own, or, after calls=, that of what it called.
std::map<std::string, std::uint64_t> sum_costs(std::istream& profile, const std::vector<std::string>& markers) {
  std::map<std::string, std::uint64_t> found;
  for (const std::string& marker : markers) found[marker] = 0;
  std::uint64_t* counted = nullptr;
  for (std::string text; std::getline(profile, text);) {
    if (text.starts_with("fn=")) {
      const auto place = std::find_if(markers.begin(), markers.end(), [&](const std::string& marker) {
        return text == "fn=" + marker || text.ends_with(" " + marker);
      });
      counted = place == markers.end() ? nullptr : &found[*place];
      continue;
    }
    if (counted == nullptr || text.empty()) continue;
    const bool is_cost = (text[0] >= '0' && text[0] <= '9') || text[0] == '+' || text[0] == '-' || text[0] == '*';
    const std::size_t gap = text.find(' ');
    if (is_cost && gap != std::string::npos) *counted += strtoull(text.c_str() + gap, nullptr, 10);
  }
  return found;
}

}  // namespace

result<std::map<std::string, std::uint64_t>> count_instructions(const evaluation::json& assignment,
                                                                const std::vector<std::string>& markers) {
  const std::string valgrind = find_program("valgrind");
  if (valgrind.empty()) return error{"instructions are counted by valgrind, which is not here; install it", ENOENT};
  const scratch_folder folder;
  if (folder.path().empty()) return error{"cannot make a temporary folder; set TMPDIR to one with room", errno};
  const std::string file = folder.path() + "/profile";
  // Without compression every block tells its function's name; without separated threads there is one file.
  const auto done = run_in_child(assignment, {valgrind, "--quiet", "--tool=callgrind", "--compress-strings=no",
                                              "--compress-pos=no", "--callgrind-out-file=" + file});
  if (!done) return error{"under valgrind: " + done.error().message, done.error().code};
  std::ifstream profile(file);
  if (!profile) return error{"valgrind wrote no profile", ENOENT};
  return sum_costs(profile, markers);
}

}  // namespace far::bench
