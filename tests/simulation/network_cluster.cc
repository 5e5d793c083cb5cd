#include "network_cluster.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "backend/tcp/tcp_backend.h"
#include "base/units.h"
#include "device/server_link.h"
#include "trace.h"

namespace far::simulation {
namespace {

// The threads of a program may have their functions behind one another on one connection, and behind the start of the
// functions' process. All of them get a quarter of the time that a request may take.
constexpr std::uint64_t most_functions = 6;
constexpr std::uint64_t function_parts = 4 * most_functions;

// What devices take never keeps anybody else from having memory.
constexpr std::uint64_t blocks_for_devices = 1'000;

// The bytes that may be on their way to one server at a time.
constexpr std::uint64_t busy_bytes = 2 * mib;

constexpr const char* secret = "a token for the simulation";

// How long the scheduler keeps a thread from running, with room to spare.
constexpr std::uint64_t freezing_slices = 8'000;

// A client may be away until every server has noticed it, and mostly it has come back before.
constexpr std::uint64_t longest_absence_timeouts = 64;
constexpr std::uint64_t usual_absence_timeouts = 8;

// A patience that is set is longer than any absence but the last.
constexpr std::uint64_t patience_timeouts = 200;
// How long after it a read is given up at the latest, besides the time until its servers count as lost: it rests for a
// second between two attempts.
constexpr std::uint64_t patience_slack_ns = 5'000'000'000;

// A long way with room for little would make everybody late.
network_options draw_network(random_source& random, const cluster_options& chosen) {
  const std::uint64_t window_bytes = random.one_of<std::uint64_t>({30'000, 100'000, mib});
  return {.maximum_delay_ns = chosen.maximum_delay_ns,
          .window_bytes = chosen.maximum_delay_ns > 10 * chosen.slice_ns ? mib : window_bytes,
          .longest_segment_bytes = random.one_of<std::uint64_t>({1500, 9000, 65'536}),
          .slice_ns = chosen.slice_ns};
}

}  // namespace

network_cluster::network_cluster(scheduler& threads, random_source& random, const simulated_clock& time,
                                 const cluster_options& chosen)
    : cluster(threads, random, chosen),
      time_(time),
      freezing_ns_(chosen.is_calm ? 0 : freezing_slices * chosen.slice_ns),
      network_(threads, random, time, server_count(), draw_network(random, chosen)) {
  if (random.chance(500)) tokens_ = std::string("analysis ") + secret;
  std::replace(tokens_.begin() + (tokens_.empty() ? 0 : 9), tokens_.end(), ' ', '-');
  // Everything under way at once passes within it. And a frozen thread is not late: a server that is well is never
  // taken for one that is not, so one at a time is in trouble, or all are, when the client is cut off.
  const std::uint64_t windows = 2 + 2 * busy_bytes / network_.options().window_bytes;
  const std::uint64_t slices = random.one_of<std::uint64_t>({2000, 6000}) + chosen.code_slices;
  const std::uint64_t without_functions_ns =
      2 * windows * chosen.maximum_delay_ns + slices * chosen.slice_ns + freezing_ns_;
  timeout_ns_ = without_functions_ns * 4 / 3;
  trace("delays up to %llu ns, %llu bytes on their way, segments of %llu bytes, transfers may take %llu ns",
        static_cast<unsigned long long>(chosen.maximum_delay_ns),
        static_cast<unsigned long long>(network_.options().window_bytes),
        static_cast<unsigned long long>(network_.options().longest_segment_bytes),
        static_cast<unsigned long long>(timeout_ns_));
  const std::uint64_t capacity_slots = round_up(chosen.slots, backend::group_slots) + 4 * backend::group_slots;
  make_servers(capacity_slots);
  std::vector<std::unique_ptr<backend::backend>> members;
  for (std::size_t i = 0; i < server_count(); ++i) members.push_back(make_client(i, capacity_slots));
  backend::striped_options options;
  options.copies = chosen.copies;
  options.capacity_slots = chosen.slots;
  options.clock = &time;
  options.probe_interval_ns = timeout_ns_ / 2;
  lost_after_ns_ = timeout_ns_ * random.one_of<std::uint64_t>({2, 5, 50}) + 2 * freezing_ns_;
  options.lost_after_ns = lost_after_ns_;
  options.patience_ns = read_patience_ns_;
  make_tier(std::move(members), options);
  trouble_lasts_ = {.usual_slices = 1000, .longest_slices = 20'000};
  make_device_users();
  network_.on_wait([this] {
    for (const auto& server : servers()) server->pump();
  });
}

// Patience for one exchange, in which a thread may be late, and no more: a device that waits for one server must not be
// silent towards another for longer than that keeps its session.
device_parts::device_tier network_cluster::device_tier(std::size_t copies) {
  backend::tcp_trust trust;
  trust.shown = login();
  device_parts::device_tier tier;
  tier.copies = copies;
  tier.patience_ns = timeout_ns_;
  tier.has_keeper = false;
  tier.random = network::random_bytes;
  tier.times = {.clock = &time_,
                .first_pause_ns = 5 * chosen_.slice_ns,
                .longest_pause_ns = timeout_ns_ / 8,
                .ping_after_ns = timeout_ns_ / 2,
                .ping_patience_ns = timeout_ns_,
                .mending_pause_ns = timeout_ns_ / 4,
                .mending_reach_ns = timeout_ns_,
                .farewell_ns = timeout_ns_ / 4,
                .longest_unlooked_ns = timeout_ns_,
                .slack_ns = timeout_ns_ / 2,
                .least_start_ns = 0,
                .longest_call_ns = timeout_ns_ / 2};
  for (std::size_t i = 0; i < server_count(); ++i) {
    tier.servers.push_back([this, i, trust, times = tier.times] {
      return result<std::unique_ptr<device_parts::device_link>>(device_parts::server_link::assemble(
          "tcp://" + servers_[i]->name(), network_.make_device_stream(i), trust, times));
    });
  }
  return tier;
}

void network_cluster::make_device_users() {
  for (std::uint64_t left = random_.one_of<std::uint64_t>({0, 1, 1, 2}); left > 0; --left) {
    const bool is_durable = random_.chance(700);
    users_.push_back(std::make_unique<device_user>(
        threads_, random_, time_,
        device_user_options{.tier = device_tier(is_durable ? chosen_.copies : 1),
                            .slice_ns = chosen_.slice_ns,
                            .deadline_ms = std::max<std::uint64_t>(1, timeout_ns_ / 4'000'000),
                            .is_calm = random_.chance(300),
                            .is_durable = is_durable,
                            .kills = [this] { return device_kills_; }}));
  }
}

void network_cluster::end_users() {
  for (const auto& user : users_) user->end();
  const std::uint64_t since = threads_.slices();
  for (const auto& user : users_) {
    while (!user->has_ended()) {
      if (threads_.is_stuck_since(since)) fail("a device never comes to its end");
      threads_.sleep(100 * chosen_.slice_ns);
    }
  }
}

wire::credentials network_cluster::login() const {
  wire::credentials shown;
  shown.random = network::random_bytes;
  if (tokens_.empty()) return shown;
  shown.tenant = tokens_.substr(0, tokens_.find(' '));
  shown.token = tokens_.substr(tokens_.find(' ') + 1);
  return shown;
}

network_cluster::~network_cluster() {
  drop_members();
}

void network_cluster::make_servers(std::uint64_t capacity_slots) {
  has_short_leases_ = random_.chance(200);
  if (!has_short_leases_ && random_.chance(150))
    read_patience_ns_ = patience_timeouts * timeout_ns_ + 10 * freezing_ns_;
  for (std::size_t i = 0; i < server_count(); ++i) {
    const std::uint64_t graces = random_.one_of<std::uint64_t>({2, 16, has_short_leases_ ? 16u : 1000u});
    std::uint64_t leases = random_.one_of<std::uint64_t>({0, has_short_leases_ ? 32u : 10'000u});
    if (read_patience_ns_ > 0) leases = 10'000;
    const std::uint64_t silences = random_.one_of<std::uint64_t>({4, has_short_leases_ ? 4u : 1000u});
    const std::uint64_t grace_ns = graces * timeout_ns_ + freezing_ns_;
    const std::uint64_t lease_ns = leases * timeout_ns_ + freezing_ns_;
    const std::uint64_t silence_ns = silences * timeout_ns_ + freezing_ns_;
    longest_kept_ns_ = std::max(longest_kept_ns_, silence_ns + std::max(grace_ns, lease_ns));
    least_grace_ns_ = std::min(least_grace_ns_, grace_ns);
    least_silence_ns_ = std::min(least_silence_ns_, silence_ns);
    least_kept_ns_ = std::min(least_kept_ns_, std::max(grace_ns, lease_ns));
    servers_[i] = std::make_unique<network_server>(
        threads_, random_, time_, network_,
        network_server_options{
            .name = "server " + std::to_string(i),
            .number = i,
            .memory_blocks = capacity_slots / wire::block_slots + random_.between(0, 8) + blocks_for_devices,
            .grace_ns = grace_ns,
            .lease_ns = lease_ns,
            .patience_ns = random_.one_of<std::uint64_t>({4, 1000}) * timeout_ns_ + freezing_ns_,
            .silence_ns = silence_ns,
            .loops = random_.between(1, 3),
            .stuck_per_mille = random_.one_of<std::uint64_t>({0, 50, 300}),
            .slice_ns = chosen_.slice_ns,
            .tokens = tokens_,
            .devices = {.longest_call_ns = timeout_ns_ / 8,
                        .deadline_ns = timeout_ns_ / 2,
                        .longest_function_ns = timeout_ns_ / function_parts}});
  }
}

std::unique_ptr<backend::backend> network_cluster::make_client(std::size_t server, std::uint64_t capacity_slots) {
  backend::tcp_options wanted;
  wanted.connections = random_.between(1, 3);
  streams_ += wanted.connections;
  wanted.timeout_ns = timeout_ns_;
  wanted.capacity_bytes = capacity_slots * page_bytes;
  backend::tcp_trust trust;
  trust.shown = login();
  std::vector<std::unique_ptr<backend::byte_stream>> streams;
  for (std::uint64_t i = 0; i < wanted.connections; ++i) streams.push_back(network_.make_stream(server));
  return backend::tcp_backend::assemble("tcp://" + servers_[server]->name(), wanted, trust, std::move(streams), time_);
}

void network_cluster::start() {
  cluster::start();
  for (const auto& server : servers()) server->start_threads();
  for (const auto& user : users_) threads_.spawn_timely("device", [one = user.get()] { one->run(); });
}

void network_cluster::stop() {
  cluster::stop();
  if (!has_damaged_ && damaged_slots() > 0) {
    fail("%llu copies were taken for damaged, and none is", static_cast<unsigned long long>(damaged_slots()));
  }
  for (const auto& server : servers()) server->stop();
}

void network_cluster::make_trouble(std::size_t server) {
  network_server& victim = *servers_[server];
  const std::uint64_t drawn = random_.below(16);
  note_trouble(drawn, victim.name());
  // What is written after an absence may be on one server only, which must not be the one that is about to end.
  const bool may_be_away =
      std::none_of(servers().begin(), servers().end(), [](const auto& one) { return one->drains(); });
  if (drawn == 10 && may_be_away) return partition();
  if (drawn == 11 && may_be_away) return stop_client();
  if (drawn == 12) return damage(victim);
  const scheduler::uninterrupted body;
  road& way = network_.road_to(server);
  switch (drawn) {
    case 0: way.resets_per_mille = random_.one_of<std::uint64_t>({5, 50, 300}); return;
    case 1: way.damages_per_mille = random_.one_of<std::uint64_t>({5, 50, 300}); return;
    case 2: way.delay_factor = random_.one_of<std::uint64_t>({10, 100}); return;
    case 3:
    case 4: way.is_cut = random_.chance(700); return;
    case 5: return network_.break_all(server);
    case 6: return network_.forget_all(server);
    case 7: return victim.set_paused(random_.chance(700));
    case 8: return victim.drain();
    case 13:
    case 14:
    case 15: {
      const simulated_devices::killed now = victim.kill_devices();
      device_kills_ += now.devices;
      function_kills_ += now.function_processes;
      return;
    }
    default: break;
  }
  note_crash();
  victim.crash();
  if (random_.chance(300)) network_.forget_all(server);  // the machine, not only the process
  if (random_.chance(400)) victim.start();
}

// How long the client is away from all servers at once: at most half the time that any of them keeps what a client that
// is away has stored there, also beyond its grace, as nobody else needs the memory. Nothing may be lost by it, whatever
// is wrong with the one server besides.
std::uint64_t network_cluster::draw_absence() {
  const std::uint64_t timeouts = random_.chance(300) ? longest_absence_timeouts : usual_absence_timeouts;
  const std::uint64_t ns = 1 + random_.below(std::min(least_kept_ns_ / 2, timeouts * timeout_ns_));
  absences_beyond_grace_ += ns > least_grace_ns_;
  return ns;
}

// The client's own network is away: every road is cut at once.
void network_cluster::partition() {
  ++partitions_;
  std::array<bool, most_servers> were_cut{};
  {
    const scheduler::uninterrupted body;
    for (std::size_t i = 0; i < server_count(); ++i) were_cut[i] = std::exchange(network_.road_to(i).is_cut, true);
  }
  threads_.sleep(draw_absence());
  const scheduler::uninterrupted body;
  for (std::size_t i = 0; i < server_count(); ++i) network_.road_to(i).is_cut = were_cut[i];
  end_troubles();
}

// The client's process is stopped, as by a debugger, and time goes on at the servers.
void network_cluster::stop_client() {
  ++client_stops_;
  const std::uint64_t ns = draw_absence();
  threads_.stop_process(ns);
  threads_.sleep(ns);
  end_troubles();
}

// The memory of a server is damaged. Whoever reads there has to notice, take the bytes from the other server, and have
// them written here again. Only their writer can tell wrong bytes, so this is where no page moves between servers,
// which would be the case after other troubles, and what nobody has noticed in the end is mended before the next.
void network_cluster::damage(network_server& victim) {
  if (!is_first_trouble() || has_late()) return;
  {
    const scheduler::uninterrupted body;
    has_damaged_ = true;
    victim.damage(random_.one_of<std::uint64_t>({20, 200, 1000}));
  }
  threads_.sleep(random_.between(1, trouble_lasts_.longest_slices) * chosen_.slice_ns);
  const scheduler::uninterrupted body;
  victim.undo_damage();
  end_troubles();
}

void network_cluster::after_trouble(std::size_t server) {
  const scheduler::uninterrupted body;
  if (random_.chance(300)) servers_[server]->set_paused(false);
  if (random_.chance(300)) network_.road_to(server).is_cut = false;
}

void network_cluster::heal(std::size_t server) {
  const scheduler::uninterrupted body;
  network_.mend(server);
  servers_[server]->set_paused(false);
  // One that drains does not come back.
  if (!servers_[server]->is_up()) servers_[server]->crash();
  servers_[server]->start();
  all_over_at_ns_ = time_.now_ns() + timeout_ns_ + freezing_ns_;
}

void network_cluster::be_in_child() {
  for (std::size_t i = 0; i < server_count(); ++i) {
    const scheduler::uninterrupted body;
    network_.mend(i);
    servers_[i]->set_paused(false);
    servers_[i]->undo_damage();
    servers_[i]->start();
  }
}

// Beyond the grace of a session that nobody is connected to, or that nobody is heard of.
std::uint64_t network_cluster::end_parent() {
  const scheduler::uninterrupted body;
  for (std::size_t i = 0; i < server_count(); ++i) network_.break_others(i);
  return std::min(2 * (least_silence_ns_ + least_grace_ns_), longest_absence_timeouts * timeout_ns_);
}

// All of a server's pages, so that mostly some are read there. Not where pages may move: see damage().
void network_cluster::outlive_damage(const std::function<void()>& read) {
  if (has_late() || !random_.chance(200)) return;
  network_server& victim = *servers_[random_.below(server_count())];
  trace("%8llu %s is damaged", static_cast<unsigned long long>(threads_.slices()), victim.name().c_str());
  {
    const scheduler::uninterrupted body;
    has_damaged_ = true;
    victim.damage(1000);
  }
  read();
  {
    const scheduler::uninterrupted body;
    victim.undo_damage();
  }
  wait_until_whole();
}

// Each server must have ended the client's session by then, and what comes of it is the client's to tell.
bool network_cluster::outlive_leases() {
  if (!has_short_leases_) return false;
  begin_losing();
  ++leases_outlived_;
  std::array<std::uint64_t, most_servers> before{};
  for (std::size_t i = 0; i < server_count(); ++i) before[i] = servers_[i]->sessions_expired();
  const std::uint64_t ns = 2 * longest_kept_ns_ + freezing_ns_;
  trace("%8llu the client is stopped for %llu ns", static_cast<unsigned long long>(threads_.slices()),
        static_cast<unsigned long long>(ns));
  threads_.stop_process(ns);
  threads_.sleep(ns);
  const scheduler::uninterrupted body;
  for (std::size_t i = 0; i < server_count(); ++i) {
    if (!is_late(i) && servers_[i]->sessions_expired() == before[i])
      fail("%s keeps a session beyond its lease", servers_[i]->name().c_str());
  }
  return true;
}

// The servers keep everything: only what the program asked for meanwhile is lost to it, and neither before nor long
// after the time that was set.
void network_cluster::outlive_patience(const std::function<bool()>& read) {
  if (read_patience_ns_ == 0) return;
  begin_losing();
  ++patiences_outlived_;
  {
    const scheduler::uninterrupted body;
    for (std::size_t i = 0; i < server_count(); ++i) network_.road_to(i).is_cut = true;
  }
  const std::uint64_t since_ns = time_.now_ns();
  const bool has_read = read();
  const std::uint64_t waited_ns = time_.now_ns() - since_ns;
  const std::uint64_t longest_ns = 2 * (read_patience_ns_ + lost_after_ns_) + patience_slack_ns;
  if (has_read && (waited_ns < read_patience_ns_ || waited_ns > longest_ns)) {
    fail("a read was given up after %llu ns, with a patience of %llu ns", static_cast<unsigned long long>(waited_ns),
         static_cast<unsigned long long>(read_patience_ns_));
  }
  for (std::size_t i = 0; i < server_count(); ++i) heal(i);
  wait_until_whole();
}

void network_cluster::take_away(std::size_t server) {
  const scheduler::uninterrupted body;
  servers_[server]->crash();
  network_.break_all(server);
}

// The clients must have noticed, too: a session whose connections are not back yet may still end, and what was under
// way may still fail. A connection that was forgotten is missed only when somebody uses it, long after the trouble.
bool network_cluster::all_well() const {
  const scheduler::uninterrupted body;
  if (time_.now_ns() < all_over_at_ns_) return false;
  for (std::size_t i = 0; i < server_count(); ++i) {
    const road& way = network_.road_to(i);
    const bool is_clear =
        !way.is_cut && way.delay_factor == 1 && way.resets_per_mille == 0 && way.damages_per_mille == 0;
    if (!is_clear || !servers_[i]->is_up()) return false;
    if (!is_late(i) && !network_.connected_for(i, timeout_ns_ + freezing_ns_)) return false;
  }
  return std::ranges::all_of(users_, [this](const auto& user) { return user->is_whole_since(all_over_at_ns_); });
}

void network_cluster::describe_servers() const {
  for (std::size_t i = 0; i < server_count(); ++i) {
    std::fprintf(stderr, "%s: up %d, cut %d, connected %d\n", servers_[i]->name().c_str(), servers_[i]->is_up(),
                 network_.road_to(i).is_cut, network_.all_connected(i));
  }
  for (const auto& user : users_) std::fprintf(stderr, "a device: whole %d\n", user->is_whole_since(all_over_at_ns_));
}

// Each stream connects once then. A client that gives up on a server that is well makes two of them fail at a time.
void network_cluster::check_untroubled() const {
  const std::uint64_t connections = network_.counted().connections;
  if (connections > streams_) {
    fail("%llu connections were made for %llu streams, and every server was well",
         static_cast<unsigned long long>(connections), static_cast<unsigned long long>(streams_));
  }
  const network_counts& seen = network_.counted();
  if (seen.device_connections > seen.device_streams) {
    fail("%llu connections were made for %llu streams of devices, and every server was well",
         static_cast<unsigned long long>(seen.device_connections),
         static_cast<unsigned long long>(seen.device_streams));
  }
}

std::vector<cluster::count> network_cluster::counted() const {
  std::vector<count> all = cluster::counted();
  const network_counts& seen = network_.counted();
  std::uint64_t expired = 0;
  std::uint64_t damaged = 0;
  std::uint64_t fenced = 0;
  for (const auto& server : servers()) {
    expired += server->sessions_expired();
    damaged += server->counters().damaged_requests.value();
    fenced += server->counters().endings[static_cast<std::size_t>(server::close_reason::fenced)].value();
  }
  all.insert(all.end(), {{"partitions", partitions_},
                         {"stops of the client", client_stops_},
                         {"absences beyond grace", absences_beyond_grace_},
                         {"leases outlived", leases_outlived_},
                         {"patience outlived", patiences_outlived_},
                         {"damaged slots", damaged_slots()},
                         {"connections", seen.connections},
                         {"resets", seen.resets},
                         {"refusals", seen.refused_connections},
                         {"damaged segments", seen.damaged_segments},
                         {"damaged requests", damaged, true},
                         {"fenced", fenced},
                         {"expired sessions", expired, true},
                         {"bytes sent", seen.bytes}});
  device_counts sum;
  for (const auto& user : users_) sum += user->counted();
  all.insert(all.end(), {{"device calls", sum.calls},
                         {"devices", sum.constructions},
                         {"doubtful calls", sum.doubtful},
                         {"that happened", sum.happened, true},
                         {"crashed calls", sum.crashed},
                         {"calls that hung", sum.timed_out},
                         {"killed devices", device_kills_},
                         {"killed processes of functions", function_kills_},
                         {"lost devices", sum.lost}});
  return all;
}

}  // namespace far::simulation
