// A hash table as a device: a look-up walks its chain where the entries are, so it takes one round trip however long
// the chain is, and one for any number of keys. far::remote_hash_map and cached_table.h are its clients. It is built
// with two headers of Farheap:
//
//     c++ -std=c++20 -O2 -shared -fPIC -Iinclude examples/plugins/hash_table.cc -o hash_table.so
//     farheapd --memory 1G --plugin ./hash_table.so
//
// It hashes keys without a secret: clients of one table trust each other.
#include <far/plugin.h>
#include <far/remote_table.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using far::plugin::bytes;
using far::plugin::output;
using far::plugin::take;
namespace operations = far::remote_table;

// What an output has room for, less the count in front.
constexpr std::size_t most_answer_bytes = 1'048'000 - sizeof(std::uint32_t);
// The result, its copies on the way, and the last one.
constexpr std::size_t room_for_answers = std::size_t{4} << 20;

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

template <typename Number>
void append_number(Number number, std::string& into) {
  into.append(reinterpret_cast<const char*>(&number), sizeof number);
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
      case operations::put: return into.append(static_cast<std::uint64_t>(put_all(new_entries(arguments))));
      case operations::take: {
        const std::string_view key = take_text(arguments);
        std::vector<std::unique_ptr<entry>> given = new_entries(arguments);
        answer(find(key).get(), into);
        static_cast<void>(remove(key));
        put_all(std::move(given));
        return;
      }
      case operations::count: return into.append(static_cast<std::uint64_t>(count_));
      case operations::get_many: return into.append(std::string_view(answers(take_keys(arguments)).first));
      case operations::exchange: return exchange(arguments, into);
      case operations::clear: return clear();
      default: throw std::invalid_argument("hash_table has the operations 1 to 7");
    }
  }

  void save(output& into) override {
    into.append(last_exchange_);
    append_text(last_result_, into);
    for (const std::unique_ptr<entry>& first : chains_) {
      for (const entry* one = first.get(); one != nullptr; one = one->next.get()) {
        append_text(one->key, into);
        append_text(one->value, into);
      }
    }
  }
  void load(bytes all) override {
    last_exchange_ = take<std::uint64_t>(all);
    last_result_ = take_text(all);
    put_all(new_entries(all));
  }

 private:
  struct entry {
    std::string key;
    std::string value;
    std::unique_ptr<entry> next;
  };
  using entries = std::vector<std::unique_ptr<entry>>;

  // The link to the entry with this key, or the empty one at the end of its chain.
  std::unique_ptr<entry>& find(std::string_view key) noexcept {
    std::unique_ptr<entry>* link = &chains_[std::hash<std::string_view>{}(key) % chains_.size()];
    while (*link && (*link)->key != key) link = &(*link)->next;
    return *link;
  }

  std::unique_ptr<entry> remove(std::string_view key) noexcept {
    std::unique_ptr<entry>& link = find(key);
    if (!link) return nullptr;
    std::unique_ptr<entry> taken = std::move(link);
    link = std::move(taken->next);
    --count_;
    return taken;
  }

  // Makes them, and room for them. Only this may fail: what follows happens as a whole.
  entries new_entries(bytes from) {
    const std::size_t from_bytes = from.size();
    entries made;
    while (!from.empty()) {
      const std::string_view key = take_text(from);
      const std::string_view value = take_text(from);
      made.push_back(std::make_unique<entry>(entry{std::string(key), std::string(value), nullptr}));
    }
    while (count_ + made.size() > 2 * chains_.size()) grow();
    if (!made.empty()) keep_room_for_answers(from_bytes);
    return made;
  }

  // A table that is full must still answer, so that entries can be taken away. Looks from time to time whether there
  // would be memory for it. Throws std::bad_alloc.
  void keep_room_for_answers(std::size_t more) {
    unchecked_bytes_ += more;
    if (unchecked_bytes_ < room_for_answers / 16) return;
    void* volatile const room = std::malloc(room_for_answers);
    if (room == nullptr) throw std::bad_alloc();
    std::free(room);
    unchecked_bytes_ = 0;
  }

  // Returns how many keys are new.
  std::size_t put_all(entries given) noexcept {
    const std::size_t before = count_;
    for (std::unique_ptr<entry>& one : given) {
      std::unique_ptr<entry>& link = find(one->key);
      if (link) {
        link->value.swap(one->value);
      } else {
        link = std::move(one);
        ++count_;
      }
    }
    return count_ - before;
  }

  void grow() {
    entries old(4 * chains_.size());
    old.swap(chains_);
    for (std::unique_ptr<entry>& first : old) {
      while (first) {
        std::unique_ptr<entry> one = std::move(first);
        first = std::move(one->next);
        find(one->key) = std::move(one);
      }
    }
  }

  static std::vector<std::string_view> take_keys(bytes from) {
    std::vector<std::string_view> keys;
    while (!from.empty()) keys.push_back(take_text(from));
    return keys;
  }

  // The result for the first keys, as many as there is room for, and how many these are.
  std::pair<std::string, std::size_t> answers(std::span<const std::string_view> keys) {
    std::string result;
    std::size_t answered = 0;
    for (const std::string_view key : keys) {
      const entry* const found = find(key).get();
      const std::size_t more = 1 + (found == nullptr ? 0 : sizeof(std::uint32_t) + found->value.size());
      if (result.size() + more > most_answer_bytes) break;
      result.push_back(found == nullptr ? '\0' : '\1');
      if (found != nullptr) {
        append_number(static_cast<std::uint32_t>(found->value.size()), result);
        result.append(found->value);
      }
      ++answered;
    }
    std::string count;
    append_number(static_cast<std::uint32_t>(answered), count);
    return {count + result, answered};
  }

  void exchange(bytes arguments, output& into) {
    const auto number = take<std::uint64_t>(arguments);
    if (number < last_exchange_) throw std::invalid_argument("an exchange comes too late");
    if (number == last_exchange_) return into.append(std::string_view(last_result_));
    std::vector<std::string_view> keys;
    for (auto left = take<std::uint32_t>(arguments); left > 0; --left) keys.push_back(take_text(arguments));
    entries given = new_entries(arguments);
    auto [result, answered] = answers(keys);
    into.append(std::string_view(result));
    for (std::size_t i = 0; i < answered; ++i) static_cast<void>(remove(keys[i]));
    put_all(std::move(given));
    last_exchange_ = number;
    last_result_.swap(result);
  }

  void clear() noexcept {
    for (std::unique_ptr<entry>& first : chains_) {
      // One by one: the destructor of a long chain would call itself as often.
      while (first) first = std::move(first->next);
    }
    count_ = 0;
  }

  // 1 and the value, or 0.
  static void answer(const entry* found, output& into) {
    into.append(static_cast<std::uint8_t>(found != nullptr ? 1 : 0));
    if (found != nullptr) into.append(std::string_view(found->value));
  }

  entries chains_;
  std::size_t count_ = 0;
  std::size_t unchecked_bytes_ = 0;
  std::uint64_t last_exchange_ = 0;
  std::string last_result_;
};

}  // namespace

FAR_DEVICE_PLUGIN(hash_table, "hash_table", "2.0")
