// A device that keeps its objects sorted by their contents. It is built with Farheap's header alone:
//
//     c++ -std=c++20 -O2 -shared -fPIC -Iinclude examples/plugins/sorted.cc -o sorted.so
//     farheapd --memory 1G --plugin ./sorted.so
//
// docs/devices.md has its client.
#include <far/plugin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace {

class sorted final : public far::plugin::device {
 public:
  // Arguments and results are numbers of 8 bytes.
  enum operations : std::uint32_t {
    count = 1,  // how many objects there are
    rank = 2,   // arguments: a rank, 0 being the least, and how many; result: the objects' numbers, in order
    below = 3,  // arguments: contents; result: how many objects are less
  };

  sorted(std::string_view, far::plugin::bytes) {}

  void read(std::uint64_t object, far::plugin::output& into) override { into.append(find(object)->second->first); }

  // All that needs memory comes first: a call that finds none has changed nothing.
  void write(std::uint64_t object, far::plugin::bytes contents) override {
    std::set<entry> fresh;
    fresh.emplace(std::string(reinterpret_cast<const char*>(contents.data()), contents.size()), object);
    const auto [place, is_new] = objects_.try_emplace(object);
    if (!is_new) order_.erase(place->second);
    place->second = order_.insert(fresh.extract(fresh.begin())).position;
  }

  void erase(std::uint64_t object) override {
    const auto found = find(object);
    order_.erase(found->second);
    objects_.erase(found);
  }

  void compute(std::uint32_t opcode, far::plugin::bytes arguments, far::plugin::output& into) override {
    switch (opcode) {
      case count: return into.append(static_cast<std::uint64_t>(objects_.size()));
      case rank: return list(arguments, into);
      case below: {
        const std::string text(reinterpret_cast<const char*>(arguments.data()), arguments.size());
        const auto end = order_.lower_bound({text, 0});
        return into.append(static_cast<std::uint64_t>(std::distance(order_.begin(), end)));
      }
      default: throw std::invalid_argument("sorted has the operations 1 to 3");
    }
  }

  void save(far::plugin::output& into) override {
    for (const auto& [text, object] : order_) {
      into.append(object);
      into.append(static_cast<std::uint64_t>(text.size()));
      into.append(std::string_view(text));
    }
  }

  void load(far::plugin::bytes all) override {
    while (!all.empty()) {
      const auto object = far::plugin::take<std::uint64_t>(all);
      const auto size = far::plugin::take<std::uint64_t>(all);
      if (size > all.size()) throw std::invalid_argument("an object is cut short");
      write(object, all.first(size));
      all = all.subspan(size);
    }
  }

 private:
  using entry = std::pair<std::string, std::uint64_t>;  // contents, and whose they are

  std::map<std::uint64_t, std::set<entry>::iterator>::iterator find(std::uint64_t object) {
    const auto found = objects_.find(object);
    if (found == objects_.end()) throw far::plugin::no_object();
    return found;
  }

  void list(far::plugin::bytes arguments, far::plugin::output& into) const {
    const auto first = far::plugin::take<std::uint64_t>(arguments);
    const auto most = far::plugin::take<std::uint64_t>(arguments);
    if (first >= order_.size()) return;
    auto next = std::next(order_.begin(), static_cast<std::ptrdiff_t>(first));
    for (std::uint64_t i = 0; i < most && next != order_.end(); ++i, ++next) into.append(next->second);
  }

  std::map<std::uint64_t, std::set<entry>::iterator> objects_;
  std::set<entry> order_;
};

}  // namespace

FAR_DEVICE_PLUGIN(sorted, "sorted", "1.0")
