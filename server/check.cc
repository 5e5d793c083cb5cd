#include "server/check.h"

#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "base/units.h"
#include "platform/system_memory.h"
#include "server/devices/host.h"
#include "server/event_loop.h"
#include "server/frames.h"
#include "server/shm_socket.h"
#include "server/spill_disk.h"
#include "server/store.h"
#include "server/transport.h"
#include "wire/certificate.h"
#include "wire/tls.h"

namespace far::server {
namespace {

using findings = std::vector<finding>;

constexpr std::int64_t days_to_renew = 21;

// Descriptors beside those of connections: files, sockets, rings.
constexpr std::uint64_t other_descriptors = 64;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The value after "Mems_allowed_list:" and the like in /proc/self/status.
std::string status_value(const std::string& root, const std::string& name) {
  std::ifstream file(root + "/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    const std::size_t begin = line.find_first_not_of(" \t", name.size() + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return "";
}

void examine_memory(const options& chosen, const std::string& root, findings& found) {
  const result<platform::system_memory> machine = platform::read_system_memory(root);
  if (!machine) {
    found.push_back({"memory", verdict::problem, machine.error().message, "mount /proc"});
    return;
  }
  const std::uint64_t free_bytes = machine.value().available_bytes;
  const bool fits = chosen.memory_bytes <= free_bytes;
  found.push_back(
      {"memory", fits ? verdict::ok : verdict::note,
       "--memory " + format_size(chosen.memory_bytes) + ", and " + format_size(free_bytes) + " are available",
       fits ? "" : "the server stops lending when the machine runs short; lower --memory, or free some"});
}

void examine_spill(const options& chosen, findings& found) {
  if (chosen.spill_directory.empty()) return;
  const auto file = open_spill_file(chosen.spill_directory, chosen.spill_bytes, false);
  const result<std::uint64_t> free_bytes = free_space(chosen.spill_directory);
  if (!file || !free_bytes) {
    const std::string why = file ? free_bytes.error().message : file.error().message;
    return found.push_back({"--spill", verdict::problem, why, ""});
  }
  struct statfs facts{};
  const bool is_memory = statfs(chosen.spill_directory.c_str(), &facts) == 0 && facts.f_type == TMPFS_MAGIC;
  const bool fits = chosen.spill_bytes <= free_bytes.value();
  std::string advice;
  if (is_memory) {
    advice = "this file system is memory itself; name a directory on an SSD";
  } else if (!fits) {
    advice = "right if it is this server's file that takes the space; otherwise free some, or lower --spill-size";
  }
  found.push_back({"--spill", advice.empty() ? verdict::ok : verdict::note,
                   "--spill-size " + format_size(chosen.spill_bytes) + ", and " + format_size(free_bytes.value()) +
                       " are free in " + chosen.spill_directory,
                   advice});
}

void examine_huge_pages(const options& chosen, const std::string& root, findings& found) {
  const std::uint64_t pool_bytes = frames::free_in_pool() * block_bytes;
  const std::string enabled = first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  if (pool_bytes >= chosen.memory_bytes) {
    found.push_back({"huge pages", verdict::ok, "the pool has " + format_size(pool_bytes), ""});
  } else if (enabled.find("[madvise]") != enabled.npos || enabled.find("[always]") != enabled.npos) {
    found.push_back({"huge pages", verdict::ok,
                     "transparent ones" + (pool_bytes > 0 ? ", and " + format_size(pool_bytes) + " in the pool" : ""),
                     ""});
  } else {
    found.push_back({"huge pages", verdict::note, "none for most of the memory",
                     "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  }
}

// A server whose threads and memory are on different nodes works at a part of its speed.
void examine_nodes(const std::string& root, findings& found) {
  std::size_t nodes = 0;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/sys/devices/system/node", failure)) {
    const std::string name = entry.path().filename();
    nodes += name.starts_with("node") && name.find_first_not_of("0123456789", 4) == name.npos && name.size() > 4;
  }
  if (nodes <= 1) {
    found.push_back({"NUMA", verdict::ok, "one node", ""});
    return;
  }
  const std::string memory = status_value(root, "Mems_allowed_list");
  const std::string processors = status_value(root, "Cpus_allowed_list");
  const bool bound = memory.find_first_of(",-") == memory.npos;
  found.push_back(
      {"NUMA", bound ? verdict::ok : verdict::note,
       std::to_string(nodes) + " nodes; memory from " + memory + ", processors " + processors,
       bound ? ""
             : "run one server for each node: numactl --cpunodebind=0 --membind=0 farheapd ... (or NUMAPolicy= "
               "and NUMAMask= in the unit)"});
}

void examine_limits(const options& chosen, findings& found) {
  rlimit descriptors{};
  const bool known = getrlimit(RLIMIT_NOFILE, &descriptors) == 0;
  const std::uint64_t wanted =
      event_loop::most_descriptors(loop_settings()) * std::uint64_t{chosen.threads} + other_descriptors;
  const bool enough = known && descriptors.rlim_max >= wanted;
  found.push_back(
      {"descriptors", enough ? verdict::ok : verdict::note,
       std::to_string(descriptors.rlim_max) + " of the " + std::to_string(wanted) + " that all connections need",
       enough ? "" : "raise LimitNOFILE= of the unit, or ulimit -n, for so many clients"});
  if (!chosen.use_io_uring) return found.push_back({"io_uring", verdict::note, "not wanted (--epoll)", ""});
  const auto ring = make_ring_transport(1);
  found.push_back({"io_uring", ring ? verdict::ok : verdict::note, ring ? "permitted" : ring.error().message,
                   ring ? "" : "the server uses epoll, which is slower; sysctl kernel.io_uring_disabled=0"});
}

void examine_address(const char* option, std::optional<address> where, const std::string& protection, findings& found) {
  if (!where) return;
  const std::string text = where->text();
  const result<int> listening = listen_at(&*where);
  if (listening) {
    close(listening.value());
    found.push_back({option, verdict::ok, text + ", " + protection, ""});
    return;
  }
  const bool in_use = listening.error().code == EADDRINUSE;
  found.push_back({option, in_use ? verdict::note : verdict::problem, listening.error().message,
                   in_use ? "right if it is this server that runs there" : ""});
}

void examine_shared_memory(const options& chosen, findings& found) {
  if (chosen.shm_name.empty()) return;
  const auto socket = shm_socket::listen(chosen.shm_name, !chosen.tokens.empty());
  if (socket) return found.push_back({"--shm", verdict::ok, socket.value()->path(), ""});
  const bool in_use = socket.error().code == EADDRINUSE;
  found.push_back({"--shm", in_use ? verdict::note : verdict::problem, socket.error().message,
                   in_use ? "right if it is this server that runs there" : ""});
}

void examine_certificate(const options& chosen, findings& found) {
  if (chosen.certificate_file.empty()) return;
  const auto context = wire::tls_context::for_server(chosen.certificate_file, chosen.key_file);
  if (!context) return found.push_back({"certificate", verdict::problem, context.error().message, ""});
  const result<wire::certificate_facts> facts = wire::read_certificate(chosen.certificate_file);
  if (!facts) return found.push_back({"certificate", verdict::problem, facts.error().message, ""});
  const wire::certificate_facts& read = facts.value();
  if (read.days_left < 0 || !read.is_valid_yet) {
    return found.push_back({"certificate", verdict::problem,
                            read.is_valid_yet ? "it has expired" : "it is not valid yet",
                            "replace it; clients refuse it"});
  }
  if (read.names.empty()) {
    return found.push_back({"certificate", verdict::problem, "it has no subject alternative names",
                            "clients compare these with the host of their URI; make one with DNS: or IP: names"});
  }
  const bool is_old = read.days_left < days_to_renew;
  found.push_back({"certificate", is_old ? verdict::note : verdict::ok,
                   read.names + "; valid for " + std::to_string(read.days_left) + " days",
                   is_old ? "replace it soon, then SIGHUP" : ""});
}

// Each is loaded in a process of its own, which ends again.
void examine_plugins(const options& chosen, findings& found) {
  if (chosen.plugins.empty()) return;
  const result<std::shared_ptr<device_host>> host = device_host::start(chosen.plugins);
  if (!host) return found.push_back({"plugins", verdict::problem, host.error().message, ""});
  std::string names;
  for (const loaded_plugin& one : host.value()->plugins()) {
    names += (names.empty() ? "" : ", ") + one.name + " " + one.version;
  }
  found.push_back({"plugins", verdict::ok, names, ""});
}

void examine_tokens(const options& chosen, findings& found) {
  const std::size_t tenants = chosen.tokens.tenants();
  if (tenants > 0) {
    return found.push_back({"tokens", verdict::ok, "of " + std::to_string(tenants) + " tenant(s)", ""});
  }
  const bool reachable = chosen.listen && !chosen.listen->is_loopback();
  found.push_back({"tokens", reachable ? verdict::note : verdict::ok,
                   reachable ? "none: whoever reaches the port may use the memory, under any tenant's name"
                             : "none: every program on this machine may use the memory",
                   reachable ? "TLS encrypts, and does not tell clients apart; give --token-file FILE" : ""});
}

const char* word(verdict found) {
  switch (found) {
    case verdict::ok: return "ok";
    case verdict::note: return "note";
    case verdict::problem: return "PROBLEM";
  }
  return "";
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

}  // namespace

std::vector<finding> examine(const options& chosen, const std::string& root) {
  findings found;
  const bool has_tls = !chosen.certificate_file.empty();
  const bool has_tokens = !chosen.tokens.empty();
  const std::string protection =
      std::string(has_tokens ? "with tokens" : "without tokens") + (has_tls ? ", TLS 1.3" : ", not encrypted");
  examine_address("--listen", chosen.listen, protection, found);
  examine_shared_memory(chosen, found);
  examine_address("--metrics", chosen.metrics, chosen.metrics_tokens.empty() ? "without a token" : "with a token",
                  found);
  examine_tokens(chosen, found);
  examine_certificate(chosen, found);
  examine_memory(chosen, root, found);
  examine_spill(chosen, found);
  examine_plugins(chosen, found);
  examine_huge_pages(chosen, root, found);
  examine_nodes(root, found);
  examine_limits(chosen, found);
  return found;
}

std::string to_text(const std::vector<finding>& found) {
  std::string text;
  for (const finding& one : found) {
    text += padded(one.subject, 14) + padded(word(one.found), 9) + one.value + "\n";
    if (!one.advice.empty()) text += padded("", 14) + padded("", 9) + "-> " + one.advice + "\n";
  }
  return text + "\n" +
         (has_problem(found) ? "farheapd would not serve: see the lines marked PROBLEM.\n" : "farheapd would serve.\n");
}

bool has_problem(const std::vector<finding>& found) {
  return std::ranges::any_of(found, [](const finding& one) { return one.found == verdict::problem; });
}

}  // namespace far::server
