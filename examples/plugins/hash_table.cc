// A hash table as a device: a look-up walks its chain where the entries are, so it takes one round trip however long
// the chain is. cached_table.h is its client. It is built with Farheap's header alone:
//
//     c++ -std=c++20 -O2 -shared -fPIC -Iinclude examples/plugins/hash_table.cc -o hash_table.so
//     farheapd --memory 1G --plugin ./hash_table.so
//
// It hashes keys without a secret: clients of one table trust each other.
#include "hash_table.h"

#include <far/plugin.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using far::plugin::bytes;
using far::plugin::output;
using far::plugin::take;
namespace operations = hash_table_operation;

std::string_view text_of(bytes from) {
  return {reinterpret_cast<const char*>(from.data()), from.size()};
}

// A length, and so many bytes.
std::string_view take_text(bytes& from) {
  const auto size = take<std::uint32_t>(from);
  if (size > from.size()) throw std::invalid_argument("a key or a value is cut short");
  const std::string_view text = text_of(from.first(size));
  from = from.subspan(size);
  return text;
}

void append_text(std::string_view text, output& into) {
  into.append(static_cast<std::uint32_t>(text.size()));
  into.append(text);
}

class hash_table final : public far::plugin::device {
 public:
  hash_table(std::string_view, bytes) : chains_(64) {}

  void read(std::uint64_t, output&) override { throw std::invalid_argument("a table has keys, not objects"); }
  void write(std::uint64_t, bytes) override { throw std::invalid_argument("a table has keys, not objects"); }
  void erase(std::uint64_t) override { throw std::invalid_argument("a table has keys, not objects"); }

  void compute(std::uint32_t opcode, bytes arguments, output& into) override {
    switch (opcode) {
      case operations::get: return answer(find(text_of(arguments)).get(), into);
      case operations::put: return put_all(arguments);
      case operations::take: {
        const std::string_view key = take_text(arguments);
        const std::unique_ptr<entry> taken = remove(key);
        put_all(arguments);
        return answer(taken.get(), into);
      }
      case operations::count: return into.append(static_cast<std::uint64_t>(count_));
      default: throw std::invalid_argument("hash_table has the operations 1 to 4");
    }
  }

  void save(output& into) override {
    for (const std::unique_ptr<entry>& first : chains_) {
      for (const entry* one = first.get(); one != nullptr; one = one->next.get()) {
        append_text(one->key, into);
        append_text(one->value, into);
      }
    }
  }
  void load(bytes all) override { put_all(all); }

 private:
  struct entry {
    std::string key;
    std::string value;
    std::unique_ptr<entry> next;
  };

  // The link to the entry with this key, or the empty one at the end of its chain.
  std::unique_ptr<entry>& find(std::string_view key) {
    std::unique_ptr<entry>* link = &chains_[std::hash<std::string_view>{}(key) % chains_.size()];
    while (*link && (*link)->key != key) link = &(*link)->next;
    return *link;
  }

  std::unique_ptr<entry> remove(std::string_view key) {
    std::unique_ptr<entry>& link = find(key);
    if (!link) return nullptr;
    std::unique_ptr<entry> taken = std::move(link);
    link = std::move(taken->next);
    --count_;
    return taken;
  }

  void put_all(bytes entries) {
    while (!entries.empty()) {
      const std::string_view key = take_text(entries);
      const std::string_view value = take_text(entries);
      std::unique_ptr<entry>& link = find(key);
      if (link) {
        link->value = value;
        continue;
      }
      link = std::make_unique<entry>(entry{std::string(key), std::string(value), nullptr});
      if (++count_ > 2 * chains_.size()) grow();
    }
  }

  void grow() {
    std::vector<std::unique_ptr<entry>> old(4 * chains_.size());
    old.swap(chains_);
    for (std::unique_ptr<entry>& first : old) {
      while (first) {
        std::unique_ptr<entry> one = std::move(first);
        first = std::move(one->next);
        find(one->key) = std::move(one);
      }
    }
  }

  // 1 and the value, or 0.
  static void answer(const entry* found, output& into) {
    into.append(static_cast<std::uint8_t>(found != nullptr ? 1 : 0));
    if (found != nullptr) into.append(std::string_view(found->value));
  }

  std::vector<std::unique_ptr<entry>> chains_;
  std::size_t count_ = 0;
};

}  // namespace

FAR_DEVICE_PLUGIN(hash_table, "hash_table", "1.0")
