#include "far/device.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <utility>

#include "backend/shm/shm_backend.h"
#include "backend/tcp/tcp_backend.h"
#include "backend/tcp/tcp_uri.h"
#include "device/device_group.h"
#include "device/plugin_runner.h"
#include "device/server_link.h"
#include "device/shm_link.h"

namespace far {
namespace device_parts {
namespace {

// In this process.
class local_link final : public device_link {
 public:
  local_link(const plugin_code& plugin, std::string options) : runner_(plugin, std::move(options)) {}

  [[nodiscard]] link_answer ask(const wire::device_request& asked, const patience&) override {
    const wire::device_reply said = runner_.run(asked);
    std::vector<std::byte> bytes(wire::device_reply_bytes);
    wire::encode(said, std::span(bytes).first<wire::device_reply_bytes>());
    bytes.insert(bytes.end(), said.bytes.begin(), said.bytes.end());
    return {link_answer::kind::answered, std::move(bytes), ""};
  }
  [[nodiscard]] const std::string& peer() const override { return peer_; }

 private:
  const std::string peer_ = local_peer;
  plugin_runner runner_;
};

result<device_tier> parse_memory(const backend::uri& name) {
  if (const result<void> known = name.allow_options({"plugin", "options"}); !known) return known.error();
  const std::optional<std::string> file = name.file("plugin");
  if (!file) return error{"far tier '" + name.text() + "' has no devices; write memory:?plugin=FILE", EINVAL};
  const result<plugin_code> plugin = load_plugin(*file);
  if (!plugin) return plugin.error();
  const std::string options = name.text_value("options").value_or("");
  device_tier tier;
  tier.has_servers = false;
  tier.servers.push_back([loaded = plugin.value(), options] {
    return result<std::unique_ptr<device_link>>(std::make_unique<local_link>(loaded, options));
  });
  return tier;
}

result<device_tier> parse_shared(const backend::uri& name) {
  const result<backend::shm_options> parsed = backend::parse_shm(name);
  if (!parsed) return parsed.error();
  backend::shm::connection_options chosen;
  chosen.name = parsed.value().name;
  chosen.shown.tenant = parsed.value().tenant;
  chosen.shown.token = parsed.value().token;
  device_tier tier;
  tier.patience_ns = parsed.value().timeout_ns;
  tier.servers.push_back([chosen] { return result<std::unique_ptr<device_link>>(std::make_unique<shm_link>(chosen)); });
  return tier;
}

}  // namespace

result<device_tier> device_tier::parse(std::string_view text) {
  const result<backend::uri> name = backend::uri::parse(text);
  if (!name) return name.error();
  if (name.value().scheme() == "memory") return parse_memory(name.value());
  if (name.value().scheme() == "shm") return parse_shared(name.value());
  if (name.value().scheme() != "tcp") {
    return error{"far tier '" + name.value().text() + "' has no devices; tcp:, shm: and memory: have them", EINVAL};
  }
  const result<backend::tcp_name> parsed = backend::parse_tcp(name.value());
  if (!parsed) return parsed.error();
  const result<backend::tcp_trust> trust = backend::tcp_trust::load(parsed.value().options);
  if (!trust) return trust.error();
  device_tier tier;
  tier.copies = parsed.value().options.copies;
  tier.patience_ns = parsed.value().options.timeout_ns;
  for (const backend::tcp_endpoint& server : parsed.value().servers) {
    tier.servers.push_back([server, shown = trust.value()] { return server_link::create(server, shown); });
  }
  return tier;
}

namespace {

device_tier tier_named(std::string_view name) {
  result<device_tier> tier = device_tier::parse(name);
  if (!tier) throw device_error(device_error::reason::bad_tier, tier.error().message);
  return std::move(tier).value();
}

}  // namespace
}  // namespace device_parts

using wire::device_op;

device_error::~device_error() = default;

device::device(std::string_view tier, std::string_view plugin, const device_options& options)
    : group_(std::make_unique<device_parts::device_group>(device_parts::tier_named(tier), plugin, options)) {}
device::~device() = default;
device::device(device&&) noexcept = default;
device& device::operator=(device&&) noexcept = default;

std::vector<std::byte> device::read(std::uint64_t object) {
  return group_->call({.op = device_op::read, .object = object});
}

void device::write(std::uint64_t object, std::span<const std::byte> bytes) {
  group_->call({.op = device_op::write, .object = object, .bytes = bytes});
}

void device::erase(std::uint64_t object) {
  group_->call({.op = device_op::erase, .object = object});
}

std::vector<std::byte> device::compute(std::uint32_t opcode, std::span<const std::byte> arguments) {
  return group_->call({.op = device_op::compute, .code = opcode, .bytes = arguments});
}

std::vector<std::byte> device::ask(std::uint32_t opcode, std::span<const std::byte> arguments) {
  return group_->call({.op = device_op::ask, .code = opcode, .bytes = arguments});
}

std::size_t device::copies() const {
  return group_->copies();
}

std::vector<device_plugin> device::plugins_of(std::string_view name) {
  const device_parts::device_tier tier = device_parts::tier_named(name);
  std::string why;
  for (const device_parts::device_tier::opener& open : tier.servers) {
    const result<std::unique_ptr<device_parts::device_link>> link = open();
    const device_parts::link_answer got =
        link ? link.value()->ask({.op = device_op::list}, {tier.patience_ns, tier.patience_ns})
             : device_parts::link_answer::failed(device_parts::link_answer::kind::unreachable, link.error().message);
    const std::optional<wire::device_reply> said = wire::decode_device_reply(got.bytes);
    why = got.why;
    if (!said || said->outcome != wire::device_outcome::ok) continue;
    std::istringstream lines(std::string(reinterpret_cast<const char*>(said->bytes.data()), said->bytes.size()));
    std::vector<device_plugin> found;
    for (device_plugin one; lines >> one.name >> one.version >> one.interface_version;) found.push_back(one);
    return found;
  }
  throw device_error(device_error::reason::unreachable, why);
}

}  // namespace far
