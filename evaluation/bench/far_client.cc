#include <fmt/format.h>
#include <string.h>

#include <array>
#include <vector>

#include "backend/backend.h"
#include "base/check.h"
#include "base/units.h"
#include "clocks.h"
#include "transport_client.h"

namespace far::bench {

namespace {

constexpr std::uint64_t deadline_ns = 20'000'000'000;

class far_client final : public transport_client {
 public:
  far_client(std::unique_ptr<backend::backend> far, const transport_shape& shape)
      : shape_(shape), far_(std::move(far)), buffers_(shape.depth * stride()), items_of_tag_(shape.depth) {}

  [[nodiscard]] result<void> prepare() {
    auto opened = far_->open_channel(shape_.depth);
    if (!opened) return opened.error();
    channel_ = std::move(opened).value();
    const std::size_t slots_an_item = pages_for(shape_.bytes);
    while (first_slots_.size() < shape_.items) {
      const auto slot = far_->allocate(slots_an_item);
      if (slot) {
        first_slots_.push_back(slot.value());
        continue;
      }
      if (slot.error().code != EAGAIN) return slot.error();
      static_cast<void>(far_->tend());  // more slots are on their way
    }
    for (std::uint32_t item = 0; item < shape_.items; ++item) {
      const std::uint32_t tag = 0;
      start(true, {&item, 1}, {&tag, 1});
      std::uint32_t done = 0;
      while (finish({&done, 1}) == 0) continue;
    }
    return {};
  }

  void start(bool write, std::span<const std::uint32_t> items, std::span<const std::uint32_t> tags) override {
    requests_.clear();
    for (std::size_t i = 0; i < items.size(); ++i) {
      std::byte* const buffer = buffers_.data() + tags[i] * stride();
      const std::uint64_t mark = write ? transport_mark(items[i]) : 0;
      memcpy(buffer, &mark, sizeof mark);
      items_of_tag_[tags[i]] = {items[i], write};
      requests_.push_back({.op = write ? backend::operation::write : backend::operation::read,
                           .slot = first_slots_[items[i]],
                           .offset_bytes = 0,
                           .length_bytes = static_cast<std::uint32_t>(shape_.bytes),
                           .buffer = buffer,
                           .cookie = tags[i]});
    }
    const std::size_t taken = channel_->submit(requests_);
    FAR_CHECK(taken == requests_.size(), "a channel holds as many requests as it was opened for");
  }

  [[nodiscard]] std::size_t finish(std::span<std::uint32_t> tags) override {
    std::array<backend::completion, 64> done;
    std::size_t count = 0;
    std::uint64_t since_ns = 0;
    while ((count = channel_->poll({done.data(), std::min(done.size(), tags.size())})) == 0) {
      if (since_ns == 0) since_ns = monotonic_ns();
      FAR_CHECK(monotonic_ns() - since_ns < deadline_ns, "the far tier answers within 20 s");
      channel_->wait(1'000'000);
    }
    for (std::size_t i = 0; i < count; ++i) {
      FAR_CHECK(done[i].error_code == 0, "the far tier takes and returns bytes");
      tags[i] = static_cast<std::uint32_t>(done[i].cookie);
      const auto& [item, write] = items_of_tag_[tags[i]];
      std::uint64_t mark = 0;
      memcpy(&mark, buffers_.data() + tags[i] * stride(), sizeof mark);
      FAR_CHECK(write || mark == transport_mark(item), "the far tier returns the bytes that were written");
    }
    return count;
  }

 private:
  struct outstanding {
    std::uint32_t item = 0;
    bool write = false;
  };

  [[nodiscard]] std::size_t stride() const { return round_up(shape_.bytes, page_bytes); }

  transport_shape shape_;
  std::unique_ptr<backend::backend> far_;
  std::unique_ptr<backend::channel> channel_;
  std::vector<std::byte> buffers_;
  std::vector<outstanding> items_of_tag_;
  std::vector<backend::slot_id> first_slots_;
  std::vector<backend::request> requests_;
};

}  // namespace

result<std::unique_ptr<transport_client>> open_far_client(const std::string& uri, const transport_shape& shape) {
  auto far = backend::open(uri);
  if (!far) return far.error();
  auto client = std::make_unique<far_client>(std::move(far).value(), shape);
  const result<void> prepared = client->prepare();
  if (!prepared) return prepared.error();
  return std::unique_ptr<transport_client>(std::move(client));
}

}  // namespace far::bench
