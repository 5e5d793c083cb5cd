#include "ledger.h"

#include "base/xxh3.h"
#include "trace.h"

namespace far::simulation {
namespace {

void put(std::vector<std::byte>& into, std::uint64_t number) {
  const auto bytes = std::as_bytes(std::span(&number, 1));
  into.insert(into.end(), bytes.begin(), bytes.end());
}

class ledger_device final : public plugin::device {
 public:
  ledger_device(std::string_view /*options*/, plugin::bytes /*parameters*/) {}

  void read(std::uint64_t object, plugin::output& into) override {
    answer({.op = wire::device_op::read, .object = object}, &into);
  }
  void write(std::uint64_t object, plugin::bytes contents) override {
    answer({.op = wire::device_op::write, .object = object, .bytes = contents}, nullptr);
  }
  void erase(std::uint64_t object) override { answer({.op = wire::device_op::erase, .object = object}, nullptr); }
  void compute(std::uint32_t opcode, plugin::bytes arguments, plugin::output& into) override {
    answer({.op = wire::device_op::compute, .code = opcode, .bytes = arguments}, &into);
  }
  void save(plugin::output& into) override { into.append(held_.save()); }
  void load(plugin::bytes all) override { held_.load(all); }

 private:
  void answer(const wire::device_request& asked, plugin::output* into) {
    const ledger::answer got = held_.apply(asked);
    if (got.outcome == wire::device_outcome::no_object) throw plugin::no_object();
    if (got.outcome == wire::device_outcome::refused) throw std::runtime_error("as it was asked to");
    if (into != nullptr) into->append(got.bytes);
  }

  ledger held_;
};

}  // namespace

ledger::answer ledger::apply(const wire::device_request& asked) {
  const std::uint64_t object = asked.object % most_objects;
  const std::uint64_t change = asked.object / most_objects;
  plugin::bytes arguments = asked.bytes;
  switch (asked.op) {
    case wire::device_op::read: {
      const auto found = objects_.find(object);
      if (found == objects_.end()) return {wire::device_outcome::no_object, {}};
      return {wire::device_outcome::ok, found->second};
    }
    case wire::device_op::write:
      note_change(change, object, asked.bytes);
      objects_[object].assign(asked.bytes.begin(), asked.bytes.end());
      return {};
    case wire::device_op::erase:
      note_change(change, object, {});
      return {objects_.erase(object) > 0 ? wire::device_outcome::ok : wire::device_outcome::no_object, {}};
    default: break;
  }
  if (asked.code == ledger_refuse) return {wire::device_outcome::refused, {}};
  if (asked.code == ledger_add) {
    const auto number = plugin::take<std::uint64_t>(arguments);
    const auto amount = plugin::take<std::uint64_t>(arguments);
    note_change(number, most_objects, asked.bytes);
    sum_ += amount;
  }
  return summary();
}

void ledger::note_change(std::uint64_t change, std::uint64_t object, std::span<const std::byte> bytes) {
  if (change <= last_change_) {
    fail("a device executes change %llu after change %llu", static_cast<unsigned long long>(change),
         static_cast<unsigned long long>(last_change_));
  }
  last_change_ = change;
  std::vector<std::byte> hashed(bytes.begin(), bytes.end());
  for (const std::uint64_t number : {history_, change, object}) put(hashed, number);
  history_ = fastest_xxh3().hash_64(hashed.data(), hashed.size());
}

ledger::answer ledger::summary() const {
  answer all;
  for (const std::uint64_t number : {sum_, last_change_, history_, std::uint64_t{objects_.size()}}) {
    put(all.bytes, number);
  }
  return all;
}

std::vector<std::byte> ledger::save() const {
  std::vector<std::byte> all;
  for (const std::uint64_t number : {sum_, last_change_, history_}) put(all, number);
  for (const auto& [object, bytes] : objects_) {
    put(all, object);
    put(all, bytes.size());
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

void ledger::load(std::span<const std::byte> all) {
  sum_ = plugin::take<std::uint64_t>(all);
  last_change_ = plugin::take<std::uint64_t>(all);
  history_ = plugin::take<std::uint64_t>(all);
  objects_.clear();
  while (!all.empty()) {
    const auto object = plugin::take<std::uint64_t>(all);
    const auto size = plugin::take<std::uint64_t>(all);
    objects_[object].assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(size));
    all = all.subspan(size);
  }
}

const far_device_functions& ledger_plugin() {
  static const far_device_functions all = plugin::detail::functions<ledger_device>("ledger", "1.0");
  return all;
}

}  // namespace far::simulation
