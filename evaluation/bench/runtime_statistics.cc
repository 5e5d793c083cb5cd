#include "runtime_statistics.h"

#include <errno.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace far::bench {

result<runtime_statistics> read_statistics(const std::string& file) {
  std::ifstream stream(file);
  const nlohmann::json said = nlohmann::json::parse(stream, nullptr, false);
  if (!said.is_object()) return error{"it ran without the runtime: it left no statistics", EPROTO};
  return runtime_statistics{.misses = said.at("misses"), .fetched_pages = said.at("fetched_pages")};
}

}  // namespace far::bench
