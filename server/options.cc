#include "server/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/units.h"
#include "platform/system_memory.h"
#include "server/quiescent_states.h"
#include "server/store.h"

namespace far::server {
namespace {

constexpr const char* footer =
    "Beyond loopback farheapd listens only with a token or TLS, and shows metrics only with a token of their own. The "
    "token file has mode 0600 and one line for each "
    "tenant:\n"
    "TENANT TOKEN (or only TOKEN, for the tenant 'default'); make a token with: openssl rand -hex 32\n"
    "A configuration file holds the same options, one on each line, without the dashes: memory=\"16G\"\n"
    "SIGTERM drains: no new blocks, clients are told, and the server ends with the last of them. A second one ends "
    "it. SIGHUP reads tokens, certificates, quotas, limits and the log level again.\n"
    "Example: farheapd --listen 127.0.0.1:7070 --memory 4G";

constexpr std::uint64_t usual_lease_ns = 3'600'000'000'000;

// As written.
struct texts {
  std::string listen;
  std::string memory;
  std::string token_file;
  std::string certificate_file;
  std::string key_file;
  std::vector<std::string> quotas;
  std::vector<std::string> limits;
  std::vector<std::string> plugins;
  std::string metrics;
  std::string metrics_token_file;
  std::string shm_name;
  std::string spill;
  std::string spill_size;
  std::string spill_compress;
  std::string grace = "60s";
  std::string lease;
  std::string drain = "10s";
  std::string patience = "10s";
  std::string silence = "60s";
  std::string spin = "50us";
  std::string log_level = "info";
  std::string log_format = "text";
  unsigned threads = std::clamp(std::thread::hardware_concurrency() / 2, 1u, 8u);
  bool epoll = false;
  bool check = false;
};

// Values are read as text and checked afterwards, so that each message can say what to write instead.
void declare(CLI::App& parser, texts& into) {
  const auto text = [&](const char* name, std::string& value, const char* type, const char* help) {
    parser.add_option(name, value, help)->type_name(type);
  };
  text("--listen", into.listen, "ADDR:PORT", "where clients connect; default 127.0.0.1:7070; port 0: any");
  text("--memory", into.memory, "SIZE", "the most memory to lend, never exceeded: 512M, 16G");
  text("--spill", into.spill, "DIR", "keep the coldest blocks in a file there, on an SSD; needs --spill-size");
  text("--spill-size", into.spill_size, "SIZE", "the most that the file takes, and lent beside --memory");
  text("--spill-compress", into.spill_compress, "CODEC", "lz4 or zstd: compress what is written there");
  parser.add_option("--threads", into.threads, "event loops; default: half of the processors, at most 8")
      ->type_name("N")
      ->check(CLI::Range(1u, 64u));
  text("--token-file", into.token_file, "FILE", "clients must know their tenant's token");
  text("--tls-cert", into.certificate_file, "FILE", "encrypt with TLS 1.3: certificate chain, PEM");
  text("--tls-key", into.key_file, "FILE", "its private key, PEM, mode 0600");
  const auto list = [&](const char* name, std::vector<std::string>& values, const char* type, const char* help) {
    parser.add_option(name, values, help)
        ->type_name(type)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  list("--quota", into.quotas, "TENANT=SIZE", "the most that a tenant may hold; may be repeated");
  list("--limit", into.limits, "TENANT=LIMITS",
       "what a tenant (*: each other one) may ask for: connections:N,devices:N,requests:N,bandwidth:SIZE, the latter "
       "two "
       "a second; "
       "may be repeated");
  list("--plugin", into.plugins, "FILE[:OPTIONS]",
       "let clients have devices of this plugin, each in a process of its own; OPTIONS: deadline=DURATION,room=SIZE of "
       "one call and one device, and what the devices understand; may be repeated");
  text("--metrics", into.metrics, "ADDR:PORT", "HTTP: /metrics for Prometheus, / for people, /healthz, /readyz");
  text("--metrics-token-file", into.metrics_token_file, "FILE", "readers of the metrics must know its token");
  text("--shm", into.shm_name, "NAME", "lend to clients on this machine through shared memory: shm:NAME");
  text("--grace", into.grace, "DURATION",
       "how long slots outlive their client's last connection, in any case; default 60s");
  text("--lease", into.lease, "DURATION", "the same, while nobody else needs the memory; default 3600s");
  text("--drain", into.drain, "DURATION", "how long SIGTERM waits for clients to leave; default 10s");
  text("--patience", into.patience, "DURATION",
       "time limit for a handshake, a message, and reading replies; default 10s");
  text("--silence", into.silence, "DURATION", "disconnect a client that sends nothing for this long; default 60s");
  text("--spin", into.spin, "DURATION", "how long a loop spins before it sleeps; 0s: not at all; default 50us");
  text("--log-level", into.log_level, "LEVEL", "warning, info or debug (also clients that come and go); default info");
  text("--log-format", into.log_format, "FORMAT", "text or json, one object on each line; default text");
  parser.add_flag("--check", into.check, "say whether a server with these options could start here, and start none");
  parser.add_flag("--epoll", into.epoll, "use epoll even if io_uring is available");
  parser.set_config("--config", "", "read options from this file")->type_name("FILE");
  parser.set_version_flag("--version", "farheapd " FARHEAP_VERSION);
  parser.footer(footer);
}

error about(const char* option, const std::string& why) {
  return error{std::string(option) + ": " + why, EINVAL};
}

// A server that lent more memory than the machine has would be killed under load, so that is an error at the start.
result<void> take_sizes(const texts& from, options& into) {
  if (from.memory.empty()) return about("--memory", "--memory is missing; write for example --memory 4G");
  const result<std::uint64_t> memory = parse_size(from.memory);
  if (!memory) return about("--memory", memory.error().message);
  if (memory.value() < block_bytes) {
    return about("--memory", format_size(memory.value()) + " is less than one block of " + format_size(block_bytes) +
                                 "; write for example --memory 1G");
  }
  const result<platform::system_memory> machine = platform::read_system_memory();
  if (machine && memory.value() > machine.value().usable_bytes()) {
    return about("--memory", format_size(memory.value()) + " is more than this machine, or its memory cgroup, has (" +
                                 format_size(machine.value().usable_bytes()) + "); write less");
  }
  into.memory_bytes = memory.value();
  for (const std::string& quota : from.quotas) {
    const std::size_t sign = quota.find('=');
    const std::string tenant = quota.substr(0, sign);
    const result<std::uint64_t> size = parse_size(sign == quota.npos ? "" : quota.substr(sign + 1));
    if (sign == quota.npos || !size || !wire::is_tenant_name(tenant)) {
      return about("--quota", "'" + quota + "' is not a tenant and a size; write for example --quota alice=2G");
    }
    if (!into.quota_bytes.emplace(tenant, size.value()).second) {
      return about("--quota", "two quotas for tenant '" + tenant + "'; leave one out");
    }
  }
  return {};
}

result<void> take_limits(const texts& from, options& into) {
  for (const std::string& limit : from.limits) {
    const std::size_t sign = limit.find('=');
    const std::string tenant = limit.substr(0, sign);
    if (sign == limit.npos || (tenant != every_tenant && !wire::is_tenant_name(tenant))) {
      return about("--limit", "'" + limit +
                                  "' is not a tenant and its limits; write for example --limit "
                                  "alice=connections:64,requests:20000,bandwidth:200M");
    }
    const result<tenant_limits> parsed = parse_tenant_limits(limit.substr(sign + 1));
    if (!parsed) return about("--limit", parsed.error().message);
    if (!into.limits.emplace(tenant, parsed.value()).second) {
      return about("--limit", "'" + tenant + "' is there twice; write its limits as one, with commas between");
    }
  }
  return {};
}

result<void> take_spill(const texts& from, options& into) {
  if (from.spill.empty() != from.spill_size.empty()) {
    return about(from.spill.empty() ? "--spill" : "--spill-size",
                 "keeping blocks on disk needs both --spill DIR and --spill-size SIZE");
  }
  if (!from.spill_compress.empty()) {
    const std::optional<spill_codec> codec = spill_codec_named(from.spill_compress);
    if (!codec || from.spill.empty()) {
      return about("--spill-compress", codec ? "nothing is compressed without --spill DIR; add it, or leave this out"
                                             : "'" + from.spill_compress + "' is no codec; write lz4 or zstd");
    }
    into.spill_compress = *codec;
  }
  if (from.spill.empty()) return {};
  const result<std::uint64_t> size = parse_size(from.spill_size);
  if (!size) return about("--spill-size", size.error().message);
  constexpr std::uint64_t least_bytes = 2 * spiller::spare_places * block_bytes;
  if (size.value() < least_bytes) {
    return about("--spill-size", format_size(size.value()) + " is too little; write at least 64M");
  }
  // So few blocks in memory would only go to and fro.
  constexpr std::uint64_t least_memory_bytes = 8 * block_bytes;
  if (into.memory_bytes < least_memory_bytes) {
    return about("--memory", format_size(into.memory_bytes) + " is too little beside --spill; write at least 16M");
  }
  if (!from.shm_name.empty()) {
    return about("--spill", "clients of --shm map the blocks themselves, so these stay in memory; run two servers");
  }
  into.spill_directory = from.spill;
  into.spill_bytes = size.value();
  return {};
}

result<void> take_plugins(const texts& from, options& into) {
  for (const std::string& text : from.plugins) {
    result<plugin_choice> chosen = parse_plugin(text);
    if (!chosen) return chosen.error();
    into.plugins.push_back(std::move(chosen).value());
  }
  if (into.plugins.empty()) return {};
  // What a device holds is counted as memory, and with a spill file the memory that is lent is not all memory.
  if (!from.spill.empty()) {
    return about("--plugin", "devices stay in memory, and cannot be counted beside --spill; run two servers");
  }
  return {};
}

// The lower bounds keep a typing error (5 for 5s) from ending every connection at once.
result<void> take_durations(const texts& from, options& into) {
  const auto take = [](const char* option, const std::string& text, std::uint64_t& value) -> result<void> {
    const result<std::uint64_t> parsed = parse_duration_ns(text);
    if (!parsed) return about(option, parsed.error().message);
    value = parsed.value();
    return {};
  };
  if (result<void> done = take("--grace", from.grace, into.grace_ns); !done) return done;
  into.lease_ns = std::max(usual_lease_ns, into.grace_ns);
  if (!from.lease.empty()) {
    if (result<void> done = take("--lease", from.lease, into.lease_ns); !done) return done;
  }
  if (into.lease_ns < into.grace_ns) {
    return about("--lease", "it is shorter than --grace, for which slots are kept in any case; write at least " +
                                format_duration(into.grace_ns));
  }
  if (result<void> done = take("--drain", from.drain, into.drain_ns); !done) return done;
  if (result<void> done = take("--patience", from.patience, into.patience_ns); !done) return done;
  if (result<void> done = take("--silence", from.silence, into.silence_ns); !done) return done;
  if (result<void> done = take("--spin", from.spin, into.spin_ns); !done) return done;
  constexpr std::uint64_t longest_spin_ns = 10'000'000;
  if (into.spin_ns > longest_spin_ns) {
    return about("--spin", "an event loop that never sleeps occupies a processor; write at most 10ms");
  }
  constexpr std::uint64_t least_ns = 100'000'000;
  if (into.patience_ns < least_ns || into.silence_ns < least_ns) {
    return about(into.patience_ns < least_ns ? "--patience" : "--silence",
                 "too short for any client; write at least 100ms");
  }
  return {};
}

// A quota or a limit for a tenant without a token would never be used, which is always a mistake. The key file is read
// here only to check its mode, with a better message than OpenSSL has.
result<void> take_secrets(const texts& from, options& into) {
  if (!from.token_file.empty()) {
    result<token_book> tokens = token_book::read(from.token_file);
    if (!tokens) return about("--token-file", tokens.error().message);
    into.tokens = std::move(tokens).value();
    into.token_file = from.token_file;
    for (const auto& [tenant, bytes] : into.quota_bytes) {
      if (!into.tokens.tokens_of(tenant).empty()) continue;
      return about("--quota",
                   "the token file has no token for tenant '" + tenant + "'; add one, or leave the quota out");
    }
    for (const auto& [tenant, limits] : into.limits) {
      if (tenant == every_tenant || !into.tokens.tokens_of(tenant).empty()) continue;
      return about("--limit",
                   "the token file has no token for tenant '" + tenant + "'; add one, or leave the limit out");
    }
  }
  if (!from.metrics_token_file.empty()) {
    result<token_book> tokens = token_book::read(from.metrics_token_file);
    if (!tokens) return about("--metrics-token-file", tokens.error().message);
    if (tokens.value().tokens_of("default").empty()) {
      return about("--metrics-token-file", "it has only tokens with a tenant; write a line with the token alone");
    }
    into.metrics_tokens = std::move(tokens).value();
    into.metrics_token_file = from.metrics_token_file;
  }
  if (from.certificate_file.empty() != from.key_file.empty()) {
    return about(from.key_file.empty() ? "--tls-cert" : "--tls-key",
                 "TLS needs both --tls-cert FILE and --tls-key FILE");
  }
  if (!from.key_file.empty()) {
    const result<std::string> key = read_secret_file(from.key_file, "key file");
    if (!key) return about("--tls-key", key.error().message);
  }
  into.certificate_file = from.certificate_file;
  into.key_file = from.key_file;
  return {};
}

// `advice`: the options that would protect the address.
result<void> take_address(const char* option, const std::string& text, bool is_protected, const char* advice,
                          std::optional<address>& into) {
  const result<address> parsed = parse_address(text);
  if (!parsed) return about(option, parsed.error().message);
  if (!parsed.value().is_loopback() && !is_protected) {
    return about(option, parsed.value().text() + " can be reached from other machines; give " + advice +
                             ", or listen on 127.0.0.1");
  }
  into = parsed.value();
  return {};
}

// Secrets are read before addresses: a token or a certificate decides which addresses are permitted. A server with
// --shm alone opens no port.
result<options> check(const texts& from) {
  options checked;
  checked.threads = from.threads;
  checked.shm_name = from.shm_name;
  checked.use_io_uring = !from.epoll;
  const std::optional<log_level> least = log_level_named(from.log_level);
  if (!least) return about("--log-level", "'" + from.log_level + "' is no level; write warning, info or debug");
  checked.least_logged = *least;
  const std::optional<log_format> format = log_format_named(from.log_format);
  if (!format) return about("--log-format", "'" + from.log_format + "' is no format; write text or json");
  checked.logged_as = *format;
  checked.only_check = from.check;
  if (result<void> done = take_sizes(from, checked); !done) return done.error();
  if (result<void> done = take_spill(from, checked); !done) return done.error();
  if (result<void> done = take_plugins(from, checked); !done) return done.error();
  if (result<void> done = take_limits(from, checked); !done) return done.error();
  if (result<void> done = take_durations(from, checked); !done) return done.error();
  if (result<void> done = take_secrets(from, checked); !done) return done.error();
  const bool wants_tcp = !from.listen.empty() || from.shm_name.empty();
  const std::string listen = from.listen.empty() ? "127.0.0.1:7070" : from.listen;
  if (wants_tcp) {
    const bool is_protected = !checked.tokens.empty() || !checked.certificate_file.empty();
    if (result<void> done = take_address("--listen", listen, is_protected,
                                         "--token-file FILE (or --tls-cert FILE and --tls-key FILE)", checked.listen);
        !done) {
      return done.error();
    }
  }
  if (!from.metrics.empty()) {
    if (result<void> done = take_address("--metrics", from.metrics, !checked.metrics_tokens.empty(),
                                         "--metrics-token-file FILE", checked.metrics);
        !done) {
      return done.error();
    }
  }
  return checked;
}

std::string text_of(const std::optional<address>& where) {
  return where ? where->text() : "";
}

}  // namespace

// One line for each option, rather than a comparison of the structs: the message names the options whose new values
// wait for a restart. Tokens and certificates are compared by the names of their files, since their contents may
// change.
std::vector<std::string> fixed_differences(const options& before, const options& now) {
  std::vector<std::string> names;
  const auto compare = [&](const char* name, bool differs) {
    if (differs) names.emplace_back(name);
  };
  compare("--listen", text_of(before.listen) != text_of(now.listen));
  compare("--metrics", text_of(before.metrics) != text_of(now.metrics));
  compare("--threads", before.threads != now.threads);
  compare("--token-file", before.token_file != now.token_file);
  compare("--metrics-token-file", before.metrics_token_file != now.metrics_token_file);
  compare("--tls-cert", before.certificate_file != now.certificate_file);
  compare("--tls-key", before.key_file != now.key_file);
  compare("--shm", before.shm_name != now.shm_name);
  compare("--spill", before.spill_directory != now.spill_directory);
  compare("--spill-size", before.spill_bytes != now.spill_bytes);
  compare("--spill-compress", before.spill_compress != now.spill_compress);
  compare("--plugin", before.plugins != now.plugins);
  compare("--grace", before.grace_ns != now.grace_ns);
  compare("--lease", before.lease_ns != now.lease_ns);
  compare("--drain", before.drain_ns != now.drain_ns);
  compare("--patience", before.patience_ns != now.patience_ns);
  compare("--silence", before.silence_ns != now.silence_ns);
  compare("--spin", before.spin_ns != now.spin_ns);
  compare("--log-format", before.logged_as != now.logged_as);
  compare("--epoll", before.use_io_uring != now.use_io_uring);
  return names;
}

// CLI11 reports help, version and errors as exceptions; none of them leaves this function.
result<command_line> parse_command_line(std::vector<std::string> arguments) {
  texts said;
  CLI::App parser("Lends memory to programs on other machines, or on this one: the far tier tcp://ADDR:PORT.",
                  "farheapd");
  declare(parser, said);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    parser.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    return command_line{std::nullopt, parser.help()};
  } catch (const CLI::CallForVersion& version) {
    return command_line{std::nullopt, std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& failure) {
    std::string text = failure.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    return error{text + "; see `farheapd --help`", EINVAL};
  }
  result<options> chosen = check(said);
  if (!chosen) return chosen.error();
  return command_line{std::move(chosen).value(), ""};
}

}  // namespace far::server
