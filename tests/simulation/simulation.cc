#include "simulation.h"

#include <algorithm>
#include <memory>

#include "cluster.h"
#include "engine/engine.h"
#include "network_cluster.h"
#include "program.h"
#include "simulated_backend.h"
#include "simulated_cluster.h"
#include "simulated_kernel.h"
#include "simulated_pager.h"
#include "trace.h"

namespace far::simulation {
namespace {

// The seed's decisions before anything runs.
struct scenario {
  std::uint64_t heap_pages;
  std::uint64_t budget_pages;
  const char* policy;
  bool tracks_writes;
  engine::eviction_place where;
  bool measures_where;
  bool regions_come_whole;
  miss_mode misses;
  bool is_calm;  // nothing fails
  std::uint64_t read_patience_ns;
  std::size_t program_threads;
  std::size_t fetchers;
  std::uint64_t most_slices_unvalidated;
  schedule threads;
  far_tier far;
  cluster_options servers;
  program_options program;
};

const char* name_of(miss_mode mode) {
  switch (mode) {
    case miss_mode::by_handler: return "thread";
    case miss_mode::in_line: return "inline";
    case miss_mode::on_fibers: return "fibers";
  }
  return "";
}

// Of a network. With less, most of a run is waiting for time-outs (slices_for_code).
constexpr std::uint64_t least_slice_blocks = 30;

// Connections wait for milliseconds before they try again, so time is to pass faster.
void draw_network(random_source& random, scenario& drawn) {
  drawn.threads.slice_ns = random.one_of<std::uint64_t>({1000, 20'000});
  drawn.threads.slice_blocks = std::max(drawn.threads.slice_blocks, least_slice_blocks);
  drawn.threads.freeze_per_mille = random.one_of<std::uint64_t>({0, 0, 1});
  drawn.far.maximum_delay_ns = random.one_of<std::uint64_t>({0, 5, 50, 400}) * drawn.threads.slice_ns;
  drawn.servers.is_untroubled = random.chance(100);
}

// Slices of few basic blocks make every step of a transfer take many of them, and the other threads take theirs
// between. Measured, as the oldest request or handshake that a connection had at any look, where nothing fails and a
// function takes no time: 11'000 blocks at most in 110 seeds with slices of 30, 12'000 in 89 seeds with slices of 10.
std::uint64_t slices_for_code(const scenario& drawn) {
  constexpr std::uint64_t blocks_a_transfer = 15'000;
  constexpr std::uint64_t other_threads = 12;  // those of the pager, of the far tier and of its servers
  return blocks_a_transfer / drawn.threads.slice_blocks * (drawn.program_threads + other_threads);
}

scenario draw(random_source& random, const run_options& chosen) {
  scenario drawn{};
  drawn.heap_pages = engine::block_pages * random.between(2, 4);
  drawn.budget_pages = random.between(130, 900);
  drawn.policy = random.one_of<const char*>({"2q", "second-chance", "fifo", "lru:4", "priority"});
  drawn.tracks_writes = random.chance(850);
  drawn.where = random.one_of({engine::eviction_place::background, engine::eviction_place::at_miss});
  drawn.measures_where = random.chance(500);
  drawn.regions_come_whole = random.chance(500);
  drawn.misses = random.one_of({miss_mode::by_handler, miss_mode::in_line, miss_mode::on_fibers});
  drawn.is_calm = random.chance(300);
  // Servers are never all in trouble for so long; the one store may be.
  drawn.read_patience_ns = 30'000'000'000;
  if (chosen.tier == run_options::far_tier::memory) {
    drawn.read_patience_ns = random.one_of<std::uint64_t>({2'000'000, 5'000'000, 20'000'000});
  }
  drawn.program_threads = random.between(2, 5);
  drawn.fetchers = random.between(1, 4);
  drawn.most_slices_unvalidated = random.one_of<std::uint64_t>({300, 3000});
  drawn.threads = {.slice_blocks = random.one_of<std::uint64_t>({10, 30, 100, 300, 2000}),
                   .switch_per_mille = random.one_of<std::uint64_t>({100, 300, 800}),
                   .slice_ns = random.one_of<std::uint64_t>({100, 1000, 20'000}),
                   .freeze_per_mille = random.one_of<std::uint64_t>({0, 1, 4})};
  drawn.far = {
      .slots = drawn.heap_pages + 2 * engine::evictor::staging_pages,
      .maximum_delay_ns = random.one_of<std::uint64_t>({0, 2000, 50'000, 1'000'000}),
      .reorders = random.chance(700),
      .is_direct = random.chance(200),
      .needs_its_submitter = random.chance(300),
      .seed = random.next(),
      .speed = {.latency_ns = random.one_of<std::uint64_t>({0, 10'000, 1'000'000}), .bytes_per_second = 1'000'000'000}};
  drawn.program = {.heap_pages = drawn.heap_pages,
                   .target_pages = std::min(drawn.budget_pages * random.between(1, 5), drawn.heap_pages * 8 / 10),
                   .operations_a_thread = chosen.operations,
                   .write_per_mille = random.one_of<std::uint64_t>({50, 400, 900}),
                   .most_forks = random.one_of<std::uint64_t>({0, 1, 3}),
                   .drops_behind = random.chance(300)};
  // The far tier must be in the process's own memory, and have no threads of its own but those of servers.
  const bool forks = chosen.tier == run_options::far_tier::memory || chosen.tier == run_options::far_tier::network;
  if (!forks) drawn.program.most_forks = 0;
  if (chosen.tier == run_options::far_tier::network) {
    draw_network(random, drawn);
    // For 300 time-outs (network_cluster.cc), of which the code has its part.
    drawn.threads.longest_wait_slices += 400 * slices_for_code(drawn);
  }
  // Nobody tends connections while a fork waits for the engine to rest, and a server seems to be late.
  if (drawn.servers.is_untroubled) drawn.program.most_forks = 0;
  if (chosen.tier == run_options::far_tier::replicated && random.chance(250)) drawn.servers.copies = 1;
  const bool has_copies =
      chosen.tier == run_options::far_tier::replicated || chosen.tier == run_options::far_tier::network;
  if (has_copies && drawn.servers.copies == 2 && random.chance(250)) drawn.servers.copies = 3;
  drawn.servers = {.slots = drawn.far.slots,
                   .maximum_delay_ns = drawn.far.maximum_delay_ns,
                   .slice_ns = drawn.threads.slice_ns,
                   .code_slices = slices_for_code(drawn),
                   .copies = drawn.servers.copies,
                   .is_untroubled = drawn.servers.is_untroubled,
                   .is_calm = drawn.threads.freeze_per_mille == 0,
                   .has_parity = chosen.tier == run_options::far_tier::parity};
  if (chosen.tier != run_options::far_tier::memory) {
    drawn.far.is_direct = false;
    drawn.far.tended_every_ns = 50 * drawn.threads.slice_ns;
  }
  // A thread that waits for a transfer does not look every few nanoseconds.
  if (chosen.tier == run_options::far_tier::network) {
    drawn.far.maximum_delay_ns = std::max(drawn.far.maximum_delay_ns, 30 * drawn.threads.slice_ns);
  }
  return drawn;
}

// The world of one run.
class world {
 public:
  world(const run_options& chosen)
      : random_(chosen.seed),
        scenario_(draw(random_, chosen)),
        threads_(random_, clock_, scenario_.threads),
        kernel_(threads_, random_, scenario_.heap_pages),
        cluster_(make_cluster(chosen.tier)),
        far_(make_far()),
        expected_(scenario_.heap_pages),
        engine_(engine::engine::create(kernel_, far_, clock_,
                                       {.heap_pages = scenario_.heap_pages,
                                        .budget_pages = scenario_.budget_pages,
                                        .policy = scenario_.policy,
                                        .reads_parts = true,
                                        .tracks_writes = scenario_.tracks_writes,
                                        .where = scenario_.where,
                                        .measures_where = scenario_.measures_where,
                                        .regions_come_whole = scenario_.regions_come_whole,
                                        .read_patience_ns = scenario_.read_patience_ns,
                                        .hash_seed = chosen.seed + 1})
                    .value()),
        pager_(threads_, kernel_, expected_, *engine_, scenario_.misses),
        program_(threads_, random_, kernel_, pager_, expected_, *engine_, scenario_.program) {}

  report run();

 private:
  static constexpr std::uint64_t slices_to_seek = 250;
  static constexpr std::uint64_t validations_between_copies = 4;

  [[nodiscard]] std::unique_ptr<cluster> make_cluster(run_options::far_tier tier);
  [[nodiscard]] simulated_backend make_far();
  void run_weather();
  void run_end();
  [[nodiscard]] bool lose_patience();
  void lose_servers();
  void clear_weather();
  void outlive_parent();
  void between_slices();
  void judge_loss(page_id page, engine::page_word word) const;
  void check_mappings() const;

  random_source random_;
  simulated_clock clock_;
  const scenario scenario_;
  scheduler threads_;
  simulated_kernel kernel_;
  std::unique_ptr<cluster> cluster_;  // of a run with servers
  simulated_backend far_;
  model expected_;
  std::unique_ptr<engine::engine> engine_;
  simulated_pager pager_;
  program program_;
  std::size_t running_ = 0;
  thread_id end_ = 0;
  std::uint64_t pages_to_lose_ = 0;  // with all their servers, in the end
  std::uint64_t validations_ = 0;
  std::uint64_t validate_at_ = 100;
  std::uint64_t last_progress_ = 0;
  std::uint64_t progress_at_ = 0;
};

std::unique_ptr<cluster> world::make_cluster(run_options::far_tier tier) {
  switch (tier) {
    case run_options::far_tier::memory: return nullptr;
    case run_options::far_tier::replicated:
    case run_options::far_tier::parity:
      return std::make_unique<simulated_cluster>(threads_, random_, clock_, scenario_.servers);
    case run_options::far_tier::network:
      return std::make_unique<network_cluster>(threads_, random_, clock_, scenario_.servers);
  }
  return nullptr;
}

simulated_backend world::make_far() {
  if (cluster_ != nullptr) return {threads_, random_, scenario_.far, cluster_->take_tier()};
  return {threads_, random_, clock_, scenario_.far};
}

report world::run() {
  trace("heap %llu, budget %llu, %s, tracks writes %d, %s, calm %d",
        static_cast<unsigned long long>(scenario_.heap_pages), static_cast<unsigned long long>(scenario_.budget_pages),
        scenario_.policy, scenario_.tracks_writes, name_of(scenario_.misses), scenario_.is_calm);
  trace("%zu threads, %zu fetchers, slices of %llu ns and %llu blocks, frozen %llu per mille",
        scenario_.program_threads, scenario_.fetchers, static_cast<unsigned long long>(scenario_.threads.slice_ns),
        static_cast<unsigned long long>(scenario_.threads.slice_blocks),
        static_cast<unsigned long long>(scenario_.threads.freeze_per_mille));
  pager_.start(scenario_.fetchers, [this](page_id page, engine::page_word word) { judge_loss(page, word); });
  running_ = scenario_.program_threads;
  end_ = threads_.spawn("end", [this] { run_end(); });
  for (std::size_t i = 0; i < scenario_.program_threads; ++i) {
    threads_.spawn("program " + std::to_string(i), [this] {
      program_.run_thread();
      if (--running_ == 0) threads_.wake(end_);
    });
  }
  threads_.spawn("weather", [this] { run_weather(); });
  if (cluster_ != nullptr) {
    program_.on_fork([this] { cluster_->be_in_child(); }, [this] { outlive_parent(); });
    cluster_->serve(far_);
    cluster_->start();
  }
  threads_.run([this] { between_slices(); });
  engine_->validate();
  return {.statistics = engine_->snapshot(),
          .slices = threads_.slices(),
          .validations = validations_,
          .operations = program_.operations(),
          .accesses = program_.accesses(),
          .moves = program_.moves(),
          .populates = program_.populates(),
          .overwrites = program_.overwrites(),
          .lost_pages = expected_.lost_pages(),
          .lies = far_.lies(),
          .drops_behind = program_.drops_behind(),
          .forks = program_.forks(),
          .object_reads = program_.objects().done(),
          .copies_found = program_.objects().copies_found(),
          .lost_object_reads = program_.objects().lost_races(),
          .answers = program_.objects().answers(),
          .answers_about_rows = program_.objects().answers_about_rows(),
          .function_calls = program_.objects().function_calls(),
          .function_results = program_.objects().function_results(),
          .servers = cluster_ != nullptr ? cluster_->counted() : std::vector<cluster::count>{},
          .digest = threads_.digest()};
}

// The child keeps the sessions alive that it shares with its parent.
void world::outlive_parent() {
  const std::uint64_t until_ns = clock_.now_ns() + cluster_->end_parent();
  while (clock_.now_ns() < until_ns) {
    {
      const scheduler::engine_call call(threads_);
      static_cast<void>(engine_->tending().tend());
    }
    threads_.sleep(50 * scenario_.threads.slice_ns);
  }
}

void world::between_slices() {
  if (program_.is_child()) return;
  const std::uint64_t progress = program_.progress();
  if (progress != last_progress_) progress_at_ = threads_.slices();
  last_progress_ = progress;
  // What is waited for in particular has the first say.
  if (threads_.is_stuck_since(progress_at_, 2)) fail("nothing goes on any more");
  if (threads_.slices() < validate_at_) return;
  if (!threads_.quiescent()) {
    if (threads_.slices() == validate_at_) threads_.seek_quiescence(slices_to_seek);
    return;
  }
  engine_->validate();
  check_mappings();
  const bool has_copies = cluster_ != nullptr && !cluster_->may_lose();
  if (has_copies && validations_ % validations_between_copies == 0) cluster_->check_copies();
  ++validations_;
  // Seeking quiescence ends what was frozen in the middle of a call, so it must leave some time for that.
  validate_at_ = threads_.slices() + random_.between(50, scenario_.most_slices_unvalidated);
}

// Whether it may be lost: the far tier has failed to return it, or lied, and servers only where all of them were away
// for too long.
void world::judge_loss(page_id page, engine::page_word word) const {
  const bool has_place = word.has_place();
  const std::uint64_t failed = has_place ? far_.failed_reads(word.place()) : 0;
  const bool may_be = cluster_ == nullptr ? failed >= 2 || far_.lies() > 0 : failed >= 2 && cluster_->may_lose();
  if (may_be) return;
  if (cluster_ != nullptr && has_place) {
    const engine::page_checks& checks = engine_->state_for_tests().checks;
    cluster_->describe_slot(word.place(), [&](const std::byte* bytes) { return checks.fit(page, bytes); });
  }
  fail("page %llu is lost: %llu reads of it failed%s", static_cast<unsigned long long>(page),
       static_cast<unsigned long long>(failed), cluster_ == nullptr ? "" : ", and its servers were not away together");
}

// The page tables agree with the words: a page that is not Resident is not mapped, and a clean one reports its first
// write.
void world::check_mappings() const {
  const engine::core& state = engine_->state_for_tests();
  for (page_id page = 0; page < scenario_.heap_pages; ++page) {
    if (state.blocks.holding(page).kind != engine::block_kind::guarded) continue;
    const engine::page_word word = state.pages.load(page);
    const auto number = static_cast<unsigned long long>(page);
    const bool is_resident = word.where() == engine::state::resident;
    if (kernel_.is_present(page) != is_resident && !(is_resident && kernel_.was_dropped_behind(page))) {
      fail("page %llu is %s and is%s mapped", number, engine::name_of(word.where()), is_resident ? " not" : "");
    }
    if (is_resident && !word.dirty() && kernel_.is_present(page) && !kernel_.is_write_protected(page)) {
      fail("page %llu is clean, and nobody would notice a write", number);
    }
  }
}

// The faults, and the size of the budget, change all the time.
void world::run_weather() {
  while (running_ > 0) {
    threads_.sleep(random_.between(1, 400) * scenario_.threads.slice_ns);
    if (random_.chance(250)) {
      const std::uint64_t budget_pages = random_.between(150, 1200);
      trace("%8llu resize to %llu", static_cast<unsigned long long>(threads_.slices()),
            static_cast<unsigned long long>(budget_pages));
      const scheduler::engine_call call(threads_);
      engine_->eviction().resize(budget_pages);
      pager_.wake_reclaimer();
    }
    if (scenario_.is_calm) continue;
    kernel_.set_faults({.refused_populates = random_.one_of<std::uint64_t>({0, 0, 50, 500}),
                        .refused_lifts = random_.one_of<std::uint64_t>({0, 0, 50, 500}),
                        .failing_installs = random_.one_of<std::uint64_t>({0, 0, 20, 300}),
                        .failing_guards = random_.one_of<std::uint64_t>({0, 0, 100}),
                        .failing_unguards = random_.one_of<std::uint64_t>({0, 0, 300})});
    if (cluster_ != nullptr) continue;  // its servers have a weather of their own
    far::backend::faulty_backend& faults = far_.faults();
    faults.set_failing_reads_per_million(random_.one_of<std::uint32_t>({0, 0, 0, 10'000, 200'000, 600'000}));
    faults.set_failing_writes_per_million(random_.one_of<std::uint32_t>({0, 0, 10'000, 300'000, 1'000'000}));
    faults.set_lying_reads_per_million(random_.one_of<std::uint32_t>({0, 0, 0, 10'000, 200'000}));
    faults.set_lying_writes_per_million(random_.one_of<std::uint32_t>({0, 0, 0, 0, 1'000}));
    const std::uint64_t used = faults.report().used_slots;
    faults.set_slot_limit(random_.one_of<std::uint64_t>({scenario_.far.slots, scenario_.far.slots, used, used + 30}));
  }
  clear_weather();
}

void world::clear_weather() {
  kernel_.set_faults({});
  if (cluster_ != nullptr) return;
  far_.faults().set_failing_reads_per_million(0);
  far_.faults().set_failing_writes_per_million(0);
  far_.faults().set_lying_reads_per_million(0);
  far_.faults().set_lying_writes_per_million(0);
  far_.faults().set_slot_limit(scenario_.far.slots);
}

// Nobody answers: the page is lost, and with it at most what is read together with it.
bool world::lose_patience() {
  if (!program_.read_remote()) return false;
  if (expected_.lost_pages() == 0) fail("a page was read while every server was out of reach");
  return true;
}

// One of them, so that nothing is lost; or all, in the runs where the client is away beyond its leases.
void world::lose_servers() {
  const engine::core& state = engine_->state_for_tests();
  std::uint64_t remote = 0;
  for (page_id page = 0; page < scenario_.heap_pages; ++page) {
    remote += state.pages.load(page).where() == engine::state::remote;
  }
  if (cluster_->outlive_leases()) {
    pages_to_lose_ = remote;
  } else {
    cluster_->lose_one();
  }
}

// After the program's threads: every byte, from wherever it is, and again after all of it was made remote. Then
// everything is freed, and nothing must be left.
void world::run_end() {
  threads_.block();
  clear_weather();
  if (cluster_ != nullptr) cluster_->clear_weather();
  program_.verify_all();
  program_.evict_all();
  if (cluster_ != nullptr) {
    cluster_->wait_until_whole();
    cluster_->outlive_damage([this] {
      program_.verify_all();
      program_.evict_all();
    });
    cluster_->outlive_patience([this] { return lose_patience(); });
    lose_servers();
  }
  program_.verify_all();
  if (pages_to_lose_ > 0 && expected_.lost_pages() == 0) {
    fail("%llu pages were remote when their servers forgot them, and no loss was told",
         static_cast<unsigned long long>(pages_to_lose_));
  }
  program_.release_all();
  while (engine_->transfers().under_way() || !threads_.quiescent()) {
    {
      const scheduler::engine_call call(threads_);
      static_cast<void>(engine_->transfers().help());
    }
    threads_.sleep(1000);
  }
  // A slot whose copies are being scrubbed is freed when that is over.
  for (const std::uint64_t since = threads_.slices(); far_.report().used_slots != 0;) {
    if (threads_.is_stuck_since(since)) break;
    threads_.sleep(scenario_.threads.slice_ns);
  }
  const engine::core& state = engine_->state_for_tests();
  if (state.local.charged_pages() != 0) {
    fail("%llu frames are charged when everything is free",
         static_cast<unsigned long long>(state.local.charged_pages()));
  }
  if (far_.report().used_slots != 0) {
    fail("%llu slots are in use when everything is free", static_cast<unsigned long long>(far_.report().used_slots));
  }
  if (kernel_.present_pages() != 0) {
    fail("%llu frames exist when everything is free", static_cast<unsigned long long>(kernel_.present_pages()));
  }
  pager_.stop();
  if (cluster_ != nullptr) cluster_->stop();
}

}  // namespace

report run_simulation(const run_options& chosen) {
  const auto simulated = std::make_unique<world>(chosen);
  return simulated->run();
}

}  // namespace far::simulation
