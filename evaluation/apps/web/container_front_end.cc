// The same on containers, far ones or those of the standard library. All that a request needs is fetched at a time.
#include <span>
#include <stdexcept>

#include "apps/containers.h"
#include "apps/far_statistics.h"
#include "site.h"

namespace web {
namespace {

struct key_hash {
  std::size_t operator()(const key& name) const { return hash_of(name); }
};
using element = std::array<std::uint64_t, element_bytes / sizeof(std::uint64_t)>;

class task_gate final : public gate {
 public:
  void wait() override { passes_.acquire(); }
  void let_pass(unsigned count) override { passes_.release(count); }

 private:
  apps::semaphore passes_{0};
};

class container_front_end final : public site {
 public:
  explicit container_front_end(const site_options& options)
      : site(options),
        runtime_({.local_bytes = options.local_bytes, .far = options.far, .workers = options.threads}),
        table_(runtime_),
        array_(runtime_, options.elements) {
    for (std::uint32_t i = 0; i < options.keys; ++i) table_.insert(name_of(i), value_of(i));
    apps::in_parallel(runtime_, options.elements, 8, [&](std::size_t first, std::size_t last) {
      const memory::scope here(runtime_);
      for (std::size_t i = first; i < last; ++i) {
        std::uint64_t at = i * element_bytes;
        for (std::uint64_t& word : array_.deref_mut(here, i)) {
          word = word_of(at);
          at += sizeof word;
        }
      }
    });
  }

  [[nodiscard]] std::size_t workers_on(unsigned threads) const override { return apps::tasks_for(threads); }
  void run_workers(std::size_t count, const std::function<void(std::size_t)>& body,
                   const std::function<void()>& beside) const override {
    std::vector<memory::task<void>> running;
    for (std::size_t i = 0; i < count; ++i) running.push_back(runtime_.spawn([&body, i] { body(i); }));
    beside();
    for (memory::task<void>& one : running) one.join();
  }
  [[nodiscard]] std::unique_ptr<gate> make_gate() const override { return std::make_unique<task_gate>(); }
  [[nodiscard]] std::string far_statistics() const override { return apps::statistics_of(runtime_).dump(); }

 private:
  [[nodiscard]] std::uint64_t serve(const request_keys& names, encoder& with) const override {
    const memory::scope here(runtime_);
    std::array<const std::uint32_t*, keys_per_request> values;
    table_.find_many(here, std::span<const key>(names), std::span<const std::uint32_t*>(values));
    std::uint64_t sum = 0;
    for (const std::uint32_t* value : values) {
      if (value == nullptr) throw std::logic_error("web: a key that was inserted is not in the table");
      sum += *value;
    }
    return with.encode(reinterpret_cast<const std::byte*>(&array_.deref(here, element_for(sum))));
  }

  mutable memory::runtime runtime_;
  memory::hash_map<key, std::uint32_t, key_hash> table_;
  memory::vector<element> array_;
};

}  // namespace

const bool is_far = apps::is_far;

std::unique_ptr<site> open_site(const site_options& options) {
  return std::make_unique<container_front_end>(options);
}

}  // namespace web
