#include "runtime_statistics.h"

#include <errno.h>

#include <fstream>
#include <iterator>

#include "common/json.h"

namespace far::bench {

result<runtime_statistics> read_statistics(const std::string& file) {
  std::ifstream stream(file);
  const evaluation::json said = evaluation::json::parse({std::istreambuf_iterator<char>(stream), {}});
  if (!said.is_object()) return error{"it ran without the runtime: it left no statistics", EPROTO};
  return runtime_statistics{.misses = said.at("misses"), .fetched_pages = said.at("fetched_pages")};
}

}  // namespace far::bench
