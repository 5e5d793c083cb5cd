#include "backends_under_test.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "backend/file/file_backend.h"
#include "backend/redis/redis_backend.h"
#include "backend/replicated/replicated_backend.h"
#include "backend/stacked/stacked_backend.h"
#include "backend/striped/striped_backend.h"
#include "backend/tcp/tcp_backend.h"
#include "backend/tcp/tcp_uri.h"
#include "backend/uri.h"
#include "backend/zmem/zmem_backend.h"
#include "base/units.h"
#include "memory_server.h"
#include "tests/support/faulty_backend.h"
#include "tests/support/redis_test_cluster.h"
#include "tests/support/redis_test_server.h"
#include "tests/support/shm_test_server.h"
#include "tests/support/tls_test_files.h"

namespace far::backend {
namespace {

std::unique_ptr<backend> require(result<std::unique_ptr<backend>> opened) {
  if (!opened.ok()) {
    std::fprintf(stderr, "cannot open a backend to test: %s\n", opened.error().message.c_str());
    std::abort();
  }
  return std::move(opened).value();
}

backend_under_test by_uri(const std::string& name, const std::string& uri_without_capacity) {
  return {name, [=](std::uint64_t capacity_slots) {
            return require(open(uri_without_capacity + "capacity=" + std::to_string(capacity_slots * page_bytes)));
          }};
}

// With room for slots that do not compress.
backend_under_test compressed(const std::string& name, codec_choice codec) {
  return {name, [=](std::uint64_t capacity_slots) {
            const std::uint64_t bytes = round_up(capacity_slots * page_bytes, mib);
            return require(zmem_backend::create({.capacity_bytes = bytes, .codec = codec, .slots = capacity_slots}));
          }};
}

// Half of the slots in memory of one kind or the other, half in a file.
backend_under_test stacked(const std::string& name, const std::string& above) {
  return {name, [=](std::uint64_t capacity_slots) -> std::unique_ptr<backend> {
            static const platform::monotonic_clock time;
            const std::uint64_t slots = capacity_slots / 2;
            const std::uint64_t bytes = slots * page_bytes;
            auto first = require(
                above.empty()
                    ? zmem_backend::create({.capacity_bytes = round_up(bytes, mib), .codec = {}, .slots = slots})
                    : open(above + std::to_string(bytes)));
            auto next = require(open("file:/var/tmp?capacity=" + std::to_string(capacity_slots * page_bytes - bytes)));
            return std::make_unique<stacked_backend>(std::move(first), std::move(next), time);
          }};
}

// As on a machine that does not permit io_uring.
backend_under_test without_io_uring(const std::string& name, bool direct) {
  return {name, [=](std::uint64_t capacity_slots) {
            file_options chosen;
            chosen.path = "/var/tmp";
            chosen.capacity_bytes = capacity_slots * page_bytes;
            if (!direct) chosen.direct = false;
            chosen.use_io_uring = false;
            return require(file_backend::create(chosen));
          }};
}

backend_under_test faulty(const std::string& name, const faulty_options& chosen) {
  return {name, [=](std::uint64_t capacity_slots) -> std::unique_ptr<backend> {
            auto inner = require(open("memory:?capacity=" + std::to_string(capacity_slots * page_bytes)));
            return std::make_unique<faulty_backend>(std::move(inner), chosen);
          }};
}

// Over three members in memory, the first of which may be `flawed`.
backend_under_test replicated(const std::string& name, std::size_t copies, const faulty_options* flawed,
                              const std::string& member = "memory:?") {
  const faulty_options flaws = flawed != nullptr ? *flawed : faulty_options{};
  const bool is_flawed = flawed != nullptr;
  return {name, [=](std::uint64_t capacity_slots) -> std::unique_ptr<backend> {
            const std::uint64_t member_bytes = round_up(capacity_slots, 512) * page_bytes;
            std::vector<std::unique_ptr<backend>> members;
            for (int i = 0; i < 3; ++i) {
              members.push_back(require(open(member + "capacity=" + std::to_string(member_bytes))));
            }
            if (is_flawed) members[0] = std::make_unique<faulty_backend>(std::move(members[0]), flaws);
            replicated_options chosen;
            chosen.copies = copies;
            chosen.capacity_slots = capacity_slots;
            return std::move(replicated_backend::create(std::move(members), chosen)).value();
          }};
}

// As many members in memory as a row has places, with room for rows of one page each: nobody tends them.
backend_under_test with_parity(const std::string& name, parity_shape shape, const faulty_options* flawed,
                               const std::string& member = "memory:?") {
  const faulty_options flaws = flawed != nullptr ? *flawed : faulty_options{};
  const bool is_flawed = flawed != nullptr;
  return {name, [=](std::uint64_t capacity_slots) -> std::unique_ptr<backend> {
            const std::uint64_t member_bytes = (round_up(capacity_slots, 512) + 4 * 512) * page_bytes;
            std::vector<std::unique_ptr<backend>> members;
            for (std::size_t i = 0; i < shape.places(); ++i) {
              members.push_back(require(open(member + "capacity=" + std::to_string(member_bytes))));
            }
            if (is_flawed) members[0] = std::make_unique<faulty_backend>(std::move(members[0]), flaws);
            striped_options chosen;
            chosen.shape = shape;
            chosen.capacity_slots = capacity_slots;
            return std::move(striped_backend::create(std::move(members), chosen)).value();
          }};
}

// Started by the first test that needs it, and there until the end, as one that is shared by programs would be.
using testing_support::memory_server;

const std::string& token_of_servers() {
  static const std::string token = "a-token-for-the-contract-tests";
  return token;
}

// One server, with or without the layer that every tcp: has above its servers.
std::unique_ptr<backend> tcp_at(const memory_server& server, const std::string& options, std::uint64_t capacity_slots,
                                bool layered) {
  const std::uint64_t lent_slots = layered ? round_up(capacity_slots, group_slots) : capacity_slots;
  const std::string text =
      "tcp://" + server.address() + "?" + options + "capacity=" + std::to_string(lent_slots * page_bytes);
  const tcp_name name = parse_tcp(uri::parse(text).value()).value();
  std::unique_ptr<backend> opened =
      require(tcp_backend::open(name.servers[0], name.options, tcp_trust::load(name.options).value()));
  if (!layered) return opened;
  std::vector<std::unique_ptr<backend>> members;
  members.push_back(std::move(opened));
  replicated_options chosen;
  chosen.capacity_slots = capacity_slots;
  return std::move(replicated_backend::create(std::move(members), chosen)).value();
}

backend_under_test tcp_plain(const std::string& name, const std::string& options, bool layered = false) {
  return {name, [=](std::uint64_t capacity_slots) {
            static memory_server server({});
            return tcp_at(server, options, capacity_slots, layered);
          }};
}

std::string write_token(const std::string& folder) {
  const std::string path = folder + "/token";
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr || chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 ||
      std::fputs((token_of_servers() + "\n").c_str(), file) < 0 || std::fclose(file) != 0) {
    std::perror(path.c_str());
    std::abort();
  }
  return path;
}

backend_under_test tcp_with_token() {
  return {"tcp_with_token", [](std::uint64_t capacity_slots) {
            static const wire::tls_test_files files;
            static memory_server server({.token = token_of_servers()});
            static const std::string path = write_token(files.folder());
            return tcp_at(server, "token-file=" + path + "&", capacity_slots, false);
          }};
}

backend_under_test shared_memory(const std::string& name, const std::string& options) {
  return {name, [=](std::uint64_t capacity_slots) {
            static server::shm_test_server lender(512 * mib);
            return require(open("shm:" + lender.path() + "?" + options +
                                "capacity=" + std::to_string(capacity_slots * page_bytes)));
          }};
}

using testing_support::redis_test_cluster;
using testing_support::redis_test_server;

std::unique_ptr<backend> redis_at(const redis_test_server& server, const std::string& scheme,
                                  const std::string& options, std::uint64_t capacity_slots) {
  const std::string text =
      scheme + "://" + server.address() + "?" + options + "capacity=" + std::to_string(capacity_slots * page_bytes);
  const redis_name name = parse_redis(uri::parse(text).value()).value();
  return require(redis_backend::open(name.servers[0], name.options, redis_trust::load(name.options).value()));
}

// Without the layer that every redis: has above its servers.
backend_under_test redis(const std::string& name, const std::string& options) {
  return {name,
          [=](std::uint64_t capacity_slots) {
            static const redis_test_server server;
            return redis_at(server, "redis", options, capacity_slots);
          },
          redis_test_server::is_installed() ? "" : redis_test_server::missing};
}

// The certificates of the test's own authority.
struct certificates {
  wire::tls_test_files files;
  certificates() {
    files.make_authority("authority");
    files.make_server("server", "authority", "IP:127.0.0.1");
  }
};

backend_under_test tcp_with_tls() {
  return {"tcp_with_tls", [](std::uint64_t capacity_slots) {
            static const certificates files;
            static memory_server server({.token = token_of_servers(),
                                         .certificate_file = files.files.certificate("server"),
                                         .key_file = files.files.key("server")});
            static const std::string path = write_token(files.files.folder());
            return tcp_at(server, "tls=1&ca=" + files.files.certificate("authority") + "&token-file=" + path + "&",
                          capacity_slots, false);
          }};
}

// With TLS, and a user who may do nothing but what docs/run.md lists.
backend_under_test redis_with_tls() {
  return {"redis_with_tls",
          [=](std::uint64_t capacity_slots) {
            static const certificates files;
            static const redis_test_server server({"--tls-port",
                                                   "0",
                                                   "--tls-auth-clients",
                                                   "no",
                                                   "--tls-cert-file",
                                                   files.files.certificate("server"),
                                                   "--tls-key-file",
                                                   files.files.key("server"),
                                                   "--tls-ca-cert-file",
                                                   files.files.certificate("authority"),
                                                   "--user",
                                                   "far",
                                                   "on",
                                                   ">" + token_of_servers(),
                                                   "~job:*",
                                                   "resetchannels",
                                                   "-@all",
                                                   "+info",
                                                   "+select",
                                                   "+client|id",
                                                   "+client|kill",
                                                   "+script|load",
                                                   "+evalsha",
                                                   "+exists",
                                                   "+getrange",
                                                   "+setrange",
                                                   "+pexpire",
                                                   "+unlink",
                                                   "+ping"});
            static const std::string path = write_token(files.files.folder());
            return redis_at(
                server, "rediss",
                "prefix=job&user=far&password-file=" + path + "&ca=" + files.files.certificate("authority") + "&",
                capacity_slots);
          },
          redis_test_server::is_installed() ? "" : redis_test_server::missing};
}

// Parts of the test's cluster, in hash slots of its first masters; several are under the layer.
backend_under_test redis_cluster(const std::string& name, std::size_t parts, std::size_t copies) {
  return {
      name,
      [=](std::uint64_t capacity_slots) {
        static const redis_test_cluster cluster;
        const std::string text = "redis+cluster://" + cluster.addresses() +
                                 "?capacity=" + std::to_string(round_up(capacity_slots, group_slots) * page_bytes);
        redis_name parsed = parse_redis(uri::parse(text).value()).value();
        if (parts == 1) parsed.options.capacity_bytes = capacity_slots * page_bytes;
        const auto directory = std::make_shared<cluster_directory>();
        std::vector<std::unique_ptr<backend>> members;
        for (std::size_t i = 0; i < parts; ++i) {
          const cluster_home home{.directory = directory,
                                  .master = node_address::parse(parsed.servers[i].text()),
                                  .slot = static_cast<std::uint32_t>(100 + i * cluster_slots / 3)};
          members.push_back(require(redis_backend::open(home, parsed.options, {})));
        }
        if (parts == 1) return std::move(members.front());
        replicated_options together;
        together.copies = copies;
        together.capacity_slots = capacity_slots;
        return std::unique_ptr<backend>(std::move(replicated_backend::create(std::move(members), together)).value());
      },
      redis_test_server::is_installed() ? "" : redis_test_server::missing};
}

}  // namespace

std::vector<backend_under_test> backends_under_test() {
  faulty_options unruly;
  unruly.seed = 20240817;
  unruly.maximum_delay_ticks = 20;
  unruly.reorders = true;
  unruly.takes_partial_batches = true;
  faulty_options failing = unruly;
  failing.failing_reads_per_million = 200'000;
  failing.failing_writes_per_million = 200'000;
  return {
      by_uri("memory", "memory:?"),
      by_uri("memory_with_latency", "memory:?latency=100us&gbps=20&"),
      by_uri("memory_with_short_latency", "memory:?latency=3us&"),
      compressed("zmem", {}),
      compressed("zmem_with_zstd", {codec_name::zstd, 3}),
      stacked("file_under_memory", "memory:?capacity="),
      stacked("file_under_zmem", ""),
      by_uri("file", "file:/var/tmp?"),
      by_uri("file_through_page_cache", "file:/var/tmp?direct=0&"),
      without_io_uring("file_without_io_uring", true),
      without_io_uring("file_without_io_uring_through_page_cache", false),
      faulty("faulty_without_faults", {}),
      faulty("faulty_delaying_and_reordering", unruly),
      replicated("striped_over_three", 1, nullptr),
      replicated("two_copies_on_three", 2, nullptr),
      replicated("two_copies_with_latency", 2, nullptr, "memory:?latency=100us&gbps=20&"),
      replicated("two_copies_and_a_member_that_fails", 2, &failing),
      with_parity("parity_2_1", {2, 1}, nullptr),
      with_parity("parity_4_2", {4, 2}, nullptr),
      with_parity("parity_2_1_with_latency", {2, 1}, nullptr, "memory:?latency=100us&gbps=20&"),
      with_parity("parity_4_2_and_a_member_that_fails", {4, 2}, &failing),
      tcp_plain("tcp", ""),
      tcp_plain("tcp_with_one_connection", "connections=1&"),
      tcp_plain("tcp_under_the_layer", "", true),
      tcp_with_token(),
      tcp_with_tls(),
      redis("redis", ""),
      redis("redis_with_one_connection", "connections=1&"),
      redis_with_tls(),
      redis_cluster("redis_cluster_part", 1, 1),
      redis_cluster("redis_cluster_striped", 3, 1),
      redis_cluster("redis_cluster_with_two_copies", 3, 2),
      shared_memory("shm", ""),
      shared_memory("shm_copied_by_the_server", "copy=server&"),
  };
}

}  // namespace far::backend
