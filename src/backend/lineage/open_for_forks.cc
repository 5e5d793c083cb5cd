// Far tiers that outlive forks, by name.
#include <limits.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "backend/lineage/lineage_backend.h"
#include "backend/stacked/stacked_backend.h"
#include "backend/uri.h"

namespace far::backend {
namespace {

// The name that a child opens for itself when `name` is open in its parent: the same, but never the same file. Relative
// paths are made absolute now: daemons go elsewhere.
result<std::string> name_for_children(const std::string& name) {
  const result<uri> parsed = uri::parse(name);
  if (!parsed) return parsed.error();
  const std::string& path = parsed.value().rest();
  if (parsed.value().scheme() != "file") return parsed.value().text_from_root();
  if (path.empty()) return name;
  struct stat status{};
  if (stat(path.c_str(), &status) != 0 || S_ISBLK(status.st_mode)) {
    return error{"far tier '" + name + "' has room for one process; name a directory, file:DIRECTORY", EBUSY};
  }
  const std::size_t slash = path.find_last_of('/');
  const std::string directory = S_ISDIR(status.st_mode)      ? path
                                : slash == std::string::npos ? std::string(".")
                                                             : path.substr(0, slash + 1);
  std::array<char, PATH_MAX> absolute;  // not from malloc(3), which may be the program's own
  if (realpath(directory.c_str(), absolute.data()) == nullptr)
    return error{"far tier '" + name + "': " + directory + " cannot be found", errno};
  const std::string options = name.substr(std::string("file:").size() + path.size());
  return std::string("file:") + absolute.data() + (options.empty() ? "?" : options);
}

result<std::unique_ptr<backend>> open_one(const std::string& name, const platform::clock& time) {
  result<std::unique_ptr<backend>> opened = open(name);
  if (!opened || opened.value()->is_copied_by_fork()) return opened;
  const result<std::string> for_children = name_for_children(name);
  auto open_own = [for_children]() -> result<std::unique_ptr<backend>> {
    if (!for_children) return for_children.error();
    return open(for_children.value());
  };
  return std::unique_ptr<backend>(
      std::make_unique<lineage_backend>(std::move(opened).value(), std::move(open_own), time));
}

}  // namespace

// Each tier of a stack is opened by itself, because a fork may copy one of them and not another.
result<std::unique_ptr<backend>> open_for_forks(std::string_view name, const platform::clock& time) {
  return open_stacked(split_tiers(name), time, [&time](const std::string& one) { return open_one(one, time); });
}

}  // namespace far::backend
