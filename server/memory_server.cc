#include "server/memory_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "platform/clock.h"
#include "platform/system_memory.h"
#include "server/event_log.h"
#include "server/own_metrics.h"
#include "server/service_manager.h"

namespace far::server {
namespace {

// How often expired sessions are looked for, and freed blocks while there are some.
constexpr int idle_ms = 100;
constexpr int reclaim_ms = 2;
constexpr int draining_ms = 20;

// How many connections are accepted at a time.
constexpr std::size_t most_accepted = 64;

// How long loops may take to close their connections when they must.
constexpr std::uint64_t closing_ns = 5'000'000'000;

std::uint64_t now() {
  return platform::monotonic_clock().now_ns();
}

void use_all_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  // If this is not granted, fewer clients can connect.
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
}

void tell_manager(std::string_view state) {
  if (const result<void> sent = tell_service_manager(state); !sent) {
    log_event(sent.error().message, log_level::warning);
  }
}

// Waits for a signal, or for the listener, for at most so long. Returns the signal's number; 0: none has come.
int wait_for(int signals, int listener, int timeout_ms) {
  std::array<pollfd, 2> watched{{{signals, POLLIN, 0}, {listener, POLLIN, 0}}};
  if (poll(watched.data(), watched.size(), timeout_ms) <= 0) return 0;
  if ((watched[0].revents & POLLIN) == 0) return 0;
  signalfd_siginfo taken{};
  return read(signals, &taken, sizeof taken) == sizeof taken ? static_cast<int>(taken.ssi_signo) : 0;
}

// The same while the server ends, when there is no point in reloading.
bool has_end_signal(int signals, int timeout_ms) {
  const int number = wait_for(signals, -1, timeout_ms);
  return number != 0 && number != SIGHUP;
}

}  // namespace

memory_server::memory_server(options chosen)
    : chosen_(std::move(chosen)), started_at_ns_(now()), looked_after_at_ns_(started_at_ns_) {}

result<std::unique_ptr<memory_server>> memory_server::start(options chosen) {
  std::unique_ptr<memory_server> created(new memory_server(std::move(chosen)));
  if (result<void> done = created->prepare(); !done) return done.error();
  return created;
}

memory_server::~memory_server() {
  metrics_.reset();
  shared_memory_.reset();
  for (const auto& loop : loops_) loop->end_now();
  loops_.clear();
  if (listener_ >= 0) close(listener_);
}

// Steps that can fail because of the configuration come first, and those that start threads come last.
result<void> memory_server::prepare() {
  set_log_level(chosen_.least_logged);
  use_all_descriptors();
  if (!chosen_.certificate_file.empty()) {
    result<std::unique_ptr<wire::tls_context>> context =
        wire::tls_context::for_server(chosen_.certificate_file, chosen_.key_file);
    if (!context) return context.error();
    security_ = std::move(context).value();
  }
  if (!chosen_.plugins.empty()) {
    result<std::shared_ptr<device_host>> devices = device_host::start(chosen_.plugins);
    if (!devices) return devices.error();
    protocol_.devices = std::move(devices).value();
  }
  if (result<void> done = make_store(); !done) return done;
  protocol_.lent = store_.get();
  protocol_.tokens = &chosen_.tokens;
  protocol_.failures = &failures_;
  protocol_.patience_ns = chosen_.patience_ns;
  protocol_.silence_ns = chosen_.silence_ns;
  // It identifies the process and not the machine, because the memory disappears with the process.
  wire::fill_random(protocol_.identity);
  loop_ = {.protocol = &protocol_,
           .security = security_.get(),
           .use_io_uring = chosen_.use_io_uring,
           .spin_ns = chosen_.spin_ns};
  if (chosen_.listen) {
    bound_ = chosen_.listen;
    const result<int> listening = listen_at(&*bound_);
    if (!listening) return listening.error();
    listener_ = listening.value();
    for (unsigned i = 0; i < chosen_.threads; ++i) {
      loops_.push_back(std::make_unique<event_loop>(loop_, store_->readers()));
    }
  }
  if (result<void> done = start_shared_memory(); !done) return done;
  return start_metrics();
}

result<void> memory_server::make_store() {
  const result<platform::system_memory> machine = platform::read_system_memory();
  store_settings settings{.memory_bytes = chosen_.memory_bytes,
                          .most_memory_bytes = machine ? machine.value().usable_bytes() : 0,
                          .grace_ns = chosen_.grace_ns,
                          .lease_ns = chosen_.lease_ns,
                          .quota_bytes = chosen_.quota_bytes,
                          .limits = chosen_.limits,
                          .make_source = {}};
  if (!chosen_.spill_directory.empty()) {
    const std::uint64_t places = chosen_.spill_bytes / block_bytes;
    // Compressed blocks take less than their places, so their space is not reserved.
    result<std::unique_ptr<spill_disk>> disk =
        open_spill_file(chosen_.spill_directory, places * block_bytes, chosen_.spill_compress == spill_codec::none);
    if (!disk) return error{"--spill: " + disk.error().message, disk.error().code};
    settings.spill = std::make_shared<spill_area>(std::move(disk).value(), places, chosen_.spill_compress);
  }
  result<std::unique_ptr<store>> lent = store::create(std::move(settings));
  if (!lent) return lent.error();
  store_ = std::move(lent).value();
  return {};
}

result<void> memory_server::start_shared_memory() {
  if (chosen_.shm_name.empty()) return {};
  shm_service_options wanted;
  wanted.name = chosen_.shm_name;
  wanted.settings = {.lent = store_.get(),
                     .tokens = &chosen_.tokens,
                     .failures = &failures_,
                     .patience_ns = chosen_.patience_ns,
                     .devices = protocol_.devices};
  wanted.spin_ns = chosen_.spin_ns;
  result<std::unique_ptr<shm_service>> service = shm_service::start(wanted);
  if (!service) return service.error();
  shared_memory_ = std::move(service).value();
  return {};
}

result<void> memory_server::start_metrics() {
  if (!chosen_.metrics) return {};
  server_view view{
      .lent = store_.get(), .loops = {}, .address = {}, .started_at_ns = started_at_ns_, .devices = protocol_.devices};
  for (const auto& loop : loops_) view.loops.push_back(&loop->counters());
  if (shared_memory_) view.loops.push_back(&shared_memory_->counters());
  for (const std::string& address : addresses()) view.address += (view.address.empty() ? "" : " and ") + address;
  result<std::unique_ptr<metrics_server>> server =
      metrics_server::start(*chosen_.metrics, std::make_unique<own_metrics>(std::move(view), &looked_after_at_ns_),
                            {.tokens = &chosen_.metrics_tokens});
  if (!server) return server.error();
  metrics_ = std::move(server).value();
  log_event("metrics on http://" + metrics_->where() + "/");
  return {};
}

std::vector<std::string> memory_server::addresses() const {
  std::vector<std::string> all;
  if (shared_memory_) all.push_back("shm:" + chosen_.shm_name);
  if (bound_) all.push_back(bound_->text());
  return all;
}

void memory_server::run(int signals, const std::function<result<options>()>& read_again) {
  const bool open_to_all = chosen_.tokens.empty();
  const std::string on_disk = chosen_.spill_directory.empty()
                                  ? ""
                                  : " and " + format_size(chosen_.spill_bytes) + " of " + chosen_.spill_directory;
  log_event("lending " + format_size(chosen_.memory_bytes) + on_disk + (security_ ? ", with TLS" : "") +
            (open_to_all ? ", without tokens" : ", with tokens"));
  tell_manager("READY=1\nSTATUS=serving");
  serve_until_signal(signals, read_again);
  drain(signals);
  const std::string said = farewell();
  end(signals);
  log_event(said);
}

void memory_server::serve_until_signal(int signals, const std::function<result<options>()>& read_again) {
  for (;;) {
    const int pause_ms = housekeeping_ms();
    const int listener = accepting_ ? listener_ : -1;
    accepting_ = true;
    const int number = wait_for(signals, listener, pause_ms);
    if (number != 0 && number != SIGHUP) return;
    if (number == SIGHUP) {
      tell_manager("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(now() / 1000));
      reload(read_again());
      tell_manager("READY=1\nSTATUS=serving");
    }
    accept_some();
  }
}

// All mistakes are found before the first change. Existing connections are not affected.
void memory_server::reload(result<options> fresh) {
  result<bool> renewed = false;
  if (fresh && security_) renewed = security_->refresh(wire::tls_context::telling::every_time);
  if (!fresh || !renewed) {
    const std::string& why = fresh ? renewed.error().message : fresh.error().message;
    log_event("nothing is reloaded: " + why, log_level::warning);
    return;
  }
  options& now = fresh.value();
  std::string left;
  for (const std::string& name : fixed_differences(chosen_, now)) left += (left.empty() ? "" : ", ") + name;
  // A server that started with tokens keeps requiring tokens, and one without keeps running without.
  if (now.token_file == chosen_.token_file) chosen_.tokens = std::move(now.tokens);
  if (now.metrics_token_file == chosen_.metrics_token_file) chosen_.metrics_tokens = std::move(now.metrics_tokens);
  if (now.memory_bytes != chosen_.memory_bytes) {
    store_->set_memory(now.memory_bytes);
    log_event("lending " + format_size(now.memory_bytes) + ", before " + format_size(chosen_.memory_bytes));
    chosen_.memory_bytes = now.memory_bytes;
  }
  store_->set_quotas(std::move(now.quota_bytes));
  store_->set_limits(std::move(now.limits));
  set_log_level(now.least_logged);
  log_event(std::string("reloaded tokens, quotas, limits and log level") +
            (renewed.value() ? "; new connections get the new certificate" : ""));
  if (!left.empty()) log_event("not changed before the next start: " + left, log_level::warning);
}

// A flood of newcomers must not keep this thread from signals and from what expires; the others wait for the next turn.
void memory_server::accept_some() {
  for (std::size_t accepted = 0; listener_ >= 0 && accepted < most_accepted; ++accepted) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket >= 0) {
      deal_out(socket);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    // Out of descriptors or memory: clients wait until some are free.
    log_limited(std::string("cannot accept a connection: ") + std::strerror(errno), now());
    accepting_ = false;
    return;
  }
}

// To the loop with the fewest connections; among equals, the next one.
void memory_server::deal_out(int socket) {
  const int on = 1;
  static_cast<void>(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  std::size_t best = next_loop_++ % loops_.size();
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    if (loops_[i]->connections() < loops_[best]->connections()) best = i;
  }
  loops_[best]->adopt(socket, peer_of(socket));
}

int memory_server::housekeeping_ms() {
  store_->expire(now());
  if (protocol_.devices) protocol_.devices->look_after(now());
  looked_after_at_ns_ = now();
  const std::uint64_t ended_early = store_->sessions_ended_early();
  if (ended_early > ended_early_logged_) {
    log_limited(std::to_string(ended_early - ended_early_logged_) +
                    " session(s) without a connection ended before their lease, because others needed the memory",
                now());
    ended_early_logged_ = ended_early;
  }
  std::uint64_t left = store_->reclaim();
  for (std::uint64_t before = left + 1; left > 0 && left < before;) {
    before = left;
    looked_after_at_ns_ = now();  // the memory of a large session takes longer than a server may be silent
    left = store_->reclaim();
  }
  return left > 0 ? reclaim_ms : idle_ms;
}

bool memory_server::is_deserted() const {
  const bool loops_ended =
      std::all_of(loops_.begin(), loops_.end(), [](const auto& loop) { return loop->has_ended(); });
  return loops_ended && store_->report().connections == 0;
}

std::string memory_server::farewell() const {
  const std::uint64_t lost = store_->report().needed_blocks * block_bytes;
  return lost == 0 ? "stopped; no client had anything here"
                   : "stopped; clients had " + format_size(lost) + " here, which they lose unless they have copies";
}

// Clients whose connection breaks meanwhile must be able to come back for their bytes, so it goes on listening.
void memory_server::drain(int signals) {
  log_event("draining: no new blocks and sessions; ending when no client has anything here, in at most " +
            format_duration(chosen_.drain_ns) + ", or at a second signal");
  tell_manager("STOPPING=1\nSTATUS=draining");
  store_->drain();
  for (const auto& loop : loops_) loop->drain();
  const std::uint64_t started_ns = now();
  while (store_->report().needed_blocks > 0 && now() - started_ns < chosen_.drain_ns) {
    const int pause_ms = std::min(housekeeping_ms(), draining_ms);
    const int listener = std::exchange(accepting_, true) ? listener_ : -1;
    const int number = wait_for(signals, listener, pause_ms);
    if (number != 0 && number != SIGHUP) return;
    accept_some();
  }
}

void memory_server::end(int signals) {
  if (listener_ >= 0) close(std::exchange(listener_, -1));
  for (const auto& loop : loops_) loop->end_now();
  shared_memory_.reset();
  const std::uint64_t closing_since_ns = now();
  while (!is_deserted() && now() - closing_since_ns < closing_ns) {
    if (has_end_signal(signals, 5)) _exit(1);
  }
}

}  // namespace far::server
