#include "simulated_devices.h"

#include <algorithm>

#include "device/plugin_runner.h"
#include "ledger.h"
#include "part_digest.h"
#include "trace.h"

namespace far::simulation {

class simulated_devices::body final : public server::device_body {
 public:
  body(simulated_devices& owner, const far_device_functions& plugin, std::size_t window_bytes)
      : owner_(owner),
        runner_({.functions = plugin}, ""),
        window_(window_bytes),
        calls_functions_(&plugin == &digest_plugin()) {
    owner_.bodies_.push_back(this);
  }
  ~body() override { std::erase(owner_.bodies_, this); }

  void begin(std::span<const std::byte> encoded, std::uint64_t now_ns, std::uint64_t deadline_ns) override {
    run(decoded(encoded), now_ns, deadline_ns);
  }
  [[nodiscard]] std::span<std::byte> window() override { return window_; }
  void begin_in_window(std::span<const std::byte> encoded, std::size_t bytes, std::uint64_t now_ns,
                       std::uint64_t deadline_ns) override {
    wire::device_request asked = decoded(encoded);
    asked.bytes = std::span(window_).first(bytes);
    run(asked, now_ns, deadline_ns);
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
  [[nodiscard]] bool calls_functions() const { return calls_functions_; }

 private:
  [[nodiscard]] static wire::device_request decoded(std::span<const std::byte> encoded) {
    const std::optional<wire::device_request> asked = wire::decode_device_request(encoded);
    if (!asked) fail("a device gets what is no request");
    return *asked;
  }
  void run(const wire::device_request& asked, std::uint64_t now_ns, std::uint64_t deadline_ns) {
    const bool computes = asked.op == wire::device_op::compute || asked.op == wire::device_op::ask;
    hangs_ = computes && asked.code == ledger_hang;
    is_dead_ |= computes && asked.code == ledger_crash;
    deadline_ns_ = deadline_ns;
    const device_speed& speed = owner_.chosen_;
    due_ns_ = now_ns + owner_.random_.below((calls_functions_ ? speed.longest_function_ns : speed.longest_call_ns) + 1);
    if (hangs_ || is_dead_) return;
    const wire::device_reply said = runner_.run(asked);
    reply_.resize(wire::device_reply_bytes);
    wire::encode(said, std::span(reply_).first<wire::device_reply_bytes>());
    reply_.insert(reply_.end(), said.bytes.begin(), said.bytes.end());
  }

  simulated_devices& owner_;
  device_parts::plugin_runner runner_;
  std::vector<std::byte> window_;
  const bool calls_functions_;
  std::vector<std::byte> reply_;
  std::uint64_t due_ns_ = 0;
  std::uint64_t deadline_ns_ = 0;
  bool hangs_ = false;
  bool is_dead_ = false;
};

simulated_devices::simulated_devices(random_source& random, const device_speed& chosen)
    : random_(random), chosen_(chosen) {
  std::vector<server::loaded_plugin> plugins(2);
  plugins[0].name = ledger_plugin().name;
  plugins[1].name = digest_plugin().name;
  plugins[1].version = digest_plugin().version;
  plugins[0].chosen.deadline_ns = chosen.deadline_ns;
  plugins[1].chosen.deadline_ns = chosen.longest_function_ns;
  host_ = server::device_host::simulate(plugins, [this](const server::loaded_plugin& of, std::size_t window_bytes) {
    const far_device_functions& plugin = of.name == digest_plugin().name ? digest_plugin() : ledger_plugin();
    // Some systems have none.
    const std::size_t bytes = random_.chance(500) ? window_bytes : 0;
    return result<std::unique_ptr<server::device_body>>(std::make_unique<body>(*this, plugin, bytes));
  });
}

simulated_devices::killed simulated_devices::kill_some() {
  killed now;
  for (body* const one : bodies_) {
    if (!random_.chance(500) || !one->die()) continue;
    ++(one->calls_functions() ? now.function_processes : now.devices);
  }
  return now;
}

}  // namespace far::simulation
