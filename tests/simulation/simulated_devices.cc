#include "simulated_devices.h"

#include <algorithm>

#include "device/plugin_runner.h"
#include "ledger.h"
#include "trace.h"

namespace far::simulation {

class simulated_devices::body final : public server::device_body {
 public:
  explicit body(simulated_devices& owner) : owner_(owner) { owner_.bodies_.push_back(this); }
  ~body() override { std::erase(owner_.bodies_, this); }

  void begin(std::span<const std::byte> encoded, std::uint64_t now_ns, std::uint64_t deadline_ns) override {
    const std::optional<wire::device_request> asked = wire::decode_device_request(encoded);
    if (!asked) fail("a device gets what is no request");
    const bool computes = asked->op == wire::device_op::compute || asked->op == wire::device_op::ask;
    hangs_ = computes && asked->code == ledger_hang;
    is_dead_ |= computes && asked->code == ledger_crash;
    deadline_ns_ = deadline_ns;
    due_ns_ = now_ns + owner_.random_.below(owner_.chosen_.longest_call_ns + 1);
    if (hangs_ || is_dead_) return;
    const wire::device_reply said = runner_.run(*asked);
    reply_.resize(wire::device_reply_bytes);
    wire::encode(said, std::span(reply_).first<wire::device_reply_bytes>());
    reply_.insert(reply_.end(), said.bytes.begin(), said.bytes.end());
  }
  // A call that is late by the server's clock, but has replied before anybody looked, has not been too long.
  [[nodiscard]] state advance(std::uint64_t now_ns) override {
    if (is_dead_) return state::crashed;
    if (!hangs_ && now_ns >= due_ns_) return state::replied;
    return now_ns >= deadline_ns_ ? state::timed_out : state::waiting;
  }
  [[nodiscard]] std::span<const std::byte> reply() const override { return reply_; }

  [[nodiscard]] bool has_ended() const override { return is_dead_; }

  [[nodiscard]] bool die() { return !std::exchange(is_dead_, true); }

 private:
  simulated_devices& owner_;
  device_parts::plugin_runner runner_{ledger_plugin(), ""};
  std::vector<std::byte> reply_;
  std::uint64_t due_ns_ = 0;
  std::uint64_t deadline_ns_ = 0;
  bool hangs_ = false;
  bool is_dead_ = false;
};

simulated_devices::simulated_devices(random_source& random, const device_speed& chosen)
    : random_(random), chosen_(chosen) {
  server::loaded_plugin plugin;
  plugin.name = ledger_plugin().name;
  plugin.chosen.deadline_ns = chosen.deadline_ns;
  host_ = server::device_host::simulate({plugin}, [this](const server::loaded_plugin&) {
    return result<std::unique_ptr<server::device_body>>(std::make_unique<body>(*this));
  });
}

std::uint64_t simulated_devices::kill_some() {
  std::uint64_t killed = 0;
  for (body* const one : bodies_) killed += random_.chance(500) && one->die();
  return killed;
}

}  // namespace far::simulation
