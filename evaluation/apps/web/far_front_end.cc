// The same on far containers: what a request needs is fetched at a time.
#include <span>
#include <stdexcept>

#include "far/hash_map.h"
#include "far/runtime.h"
#include "far/scope.h"
#include "far/vector.h"
#include "site.h"

namespace web {
namespace {

struct key_hash {
  std::size_t operator()(const key& name) const { return hash_of(name); }
};
using element = std::array<std::uint64_t, element_bytes / sizeof(std::uint64_t)>;

far::runtime_options options_of(const site_options& options) {
  far::runtime_options chosen;
  chosen.local_bytes = options.local_bytes;
  chosen.far = options.far;
  return chosen;
}

class far_front_end final : public site {
 public:
  explicit far_front_end(const site_options& options)
      : site(options), runtime_(options_of(options)), table_(runtime_), array_(runtime_, options.elements) {
    for (std::uint32_t i = 0; i < options.keys; ++i) table_.insert(name_of(i), value_of(i));
    array_.for_each_chunk_mut([](std::span<element> part, std::size_t first) {
      for (element& one : part) {
        std::uint64_t at = first++ * element_bytes;
        for (std::uint64_t& word : one) {
          word = word_of(at);
          at += sizeof word;
        }
      }
    });
  }

 private:
  [[nodiscard]] std::uint64_t serve(const request_keys& names, encoder& with) const override {
    const far::scope here(runtime_);
    std::array<const std::uint32_t*, keys_per_request> values;
    table_.find_many(here, std::span<const key>(names), std::span<const std::uint32_t*>(values));
    std::uint64_t sum = 0;
    for (const std::uint32_t* value : values) {
      if (value == nullptr) throw std::logic_error("web: a key that was inserted is not in the table");
      sum += *value;
    }
    return with.encode(reinterpret_cast<const std::byte*>(&array_.deref(here, element_for(sum))));
  }

  mutable far::runtime runtime_;
  far::hash_map<key, std::uint32_t, key_hash> table_;
  far::vector<element> array_;
};

}  // namespace

const bool is_far = true;

std::unique_ptr<site> open_site(const site_options& options) {
  return std::make_unique<far_front_end>(options);
}

}  // namespace web
