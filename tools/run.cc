#include "run.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include "backend/backend.h"
#include "backend/file/store_file.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/policy.h"
#include "message.h"
#include "platform/kernel_features.h"
#include "platform/program_limits.h"
#include "platform/system_memory.h"
#include "preload/budget.h"
#include "preload/default_tier.h"
#include "preload/fault_mode_choice.h"
#include "preload/job_region.h"
#include "preload/settings.h"
#include "program.h"

namespace far::tools {
namespace {

namespace variable = preload::variable;

// Everything that was checked, ready to be handed over.
struct plan {
  std::string program_path;
  std::string library;
  std::uint64_t budget_bytes = 0;
  bool local_auto = false;  // it changes from then on
  std::string far_uri;
  std::string far_uri_under_limit;  // empty: far_uri
  std::string far_description;
  std::string fault_mode;
  std::string remark;      // not empty: why the fault mode is not the usual one
  std::string why_native;  // not empty: nothing is possible here, and the program runs without far memory
  std::string policy = preload::default_policy;
  std::string stats_json;  // absolute
  std::string job;         // empty: none can be had
};

constexpr std::string_view automatic_budget = "auto";

// An error of a part that does not know about exit codes.
error with_exit_code(const error& failure, int exit_code, const std::string& prefix = "") {
  return error{prefix + failure.message, exit_code};
}

result<void> check_budget(const run_options& chosen, plan& launch) {
  const result<platform::system_memory> memory = platform::read_system_memory();
  if (!memory) return with_exit_code(memory.error(), exit_failure);
  launch.budget_bytes = preload::default_budget_bytes(memory.value());
  launch.local_auto = chosen.local == automatic_budget;
  if (launch.local_auto && chosen.local_each) {
    return error{"--local auto is for the whole process tree; leave --local-each out, or give a size", exit_usage};
  }
  if (chosen.local.empty() || launch.local_auto) return {};
  const result<std::uint64_t> budget = preload::parse_budget(chosen.local, memory.value());
  if (!budget) return with_exit_code(budget.error(), exit_usage, "--local: ");
  launch.budget_bytes = budget.value();
  if (launch.budget_bytes > memory.value().usable_bytes()) {
    log_line(log_level::warning, "--local %s is more than the %s that there is here; the system may run out of memory",
             chosen.local.c_str(), format_size(memory.value().usable_bytes()).c_str());
  }
  return {};
}

result<void> check_policy(const run_options& chosen, plan& launch) {
  if (chosen.policy.empty()) return {};
  launch.policy = chosen.policy;
  const result<void> known = engine::check_policy(chosen.policy);
  if (!known) return error{"--policy: " + known.error().message, exit_usage};
  return {};
}

result<void> check_pace(const run_options& chosen) {
  if (!chosen.free_ahead.empty()) {
    const result<double> share = engine::parse_free_share(chosen.free_ahead);
    if (!share) return with_exit_code(share.error(), exit_usage, "--free-ahead: ");
  }
  if (!chosen.batch.empty()) {
    const result<std::size_t> pages = engine::parse_batch(chosen.batch);
    if (!pages) return with_exit_code(pages.error(), exit_usage, "--batch: ");
  }
  return {};
}

const char* name_of(pager::fault_mode mode) {
  return mode == pager::fault_mode::in_line ? "inline" : "thread";
}

// A mode that was asked for must be there. By default it is the best that there is, and where there is none the program
// runs natively: it is told of in one line.
result<void> check_fault_mode(const run_options& chosen, plan& launch) {
  std::optional<pager::fault_mode> asked;
  if (!chosen.fault_mode.empty()) {
    const result<std::optional<pager::fault_mode>> mode = pager::parse_fault_mode(chosen.fault_mode);
    if (!mode) return with_exit_code(mode.error(), exit_usage, "--fault-mode: ");
    asked = mode.value();
  }
  const result<preload::fault_mode_choice> choice = preload::choose_fault_mode(platform::probe_kernel(), asked);
  if (!choice && asked) return with_exit_code(choice.error(), exit_failure, "--fault-mode: ");
  if (!choice) {
    launch.why_native = choice.error().message;
    return {};
  }
  if (choice.value().why_not_asked != nullptr) {
    const std::string why = choice.value().why_not_asked;
    if (asked) return error{"--fault-mode " + chosen.fault_mode + ": " + why, exit_failure};
    launch.remark = why + ". Until then this runs with --fault-mode " + name_of(choice.value().mode);
  }
  launch.fault_mode = asked ? name_of(choice.value().mode) : preload::automatic_fault_mode;
  if (choice.value().risk != nullptr)
    launch.remark += (launch.remark.empty() ? "" : "; ") + std::string(choice.value().risk);
  return {};
}

bool limits_leave_room(plan& launch) {
  const result<void> fits = pager::check_limit_on_data();
  if (!fits && launch.why_native.empty()) launch.why_native = fits.error().message;
  return fits.ok();
}

result<preload::tier_circumstances> tier_circumstances_with(std::uint64_t budget_bytes) {
  const result<platform::system_memory> memory = platform::read_system_memory();
  if (!memory) return memory.error();
  return preload::tier_circumstances{
      .memory = memory.value(),
      .budget_bytes = budget_bytes,
      .files_in_ram = backend::lies_in_ram(backend::default_place_of_files().directory),
      .data_is_limited = preload::data_is_limited(),
  };
}

// The far tier is opened once, as the program will, and given back.
result<void> check_far(const run_options& chosen, plan& launch) {
  launch.far_uri = chosen.far_uri;
  if (launch.far_uri.empty()) {
    const result<preload::tier_circumstances> here = tier_circumstances_with(launch.budget_bytes);
    if (!here) return with_exit_code(here.error(), exit_failure);
    launch.far_uri = preload::default_far_uri_for(here.value());
    launch.far_uri_under_limit = preload::default_far_uri_under_limit(here.value());
  }
  set_log_level(log_level::error);  // the program will give the warnings, once
  const result<std::unique_ptr<backend::backend>> opened = backend::open(launch.far_uri);
  set_log_level(log_level::info);
  if (!opened) {
    return with_exit_code(opened.error(), opened.error().code == EINVAL ? exit_usage : exit_failure, "--far: ");
  }
  launch.far_description = opened.value()->describe();
  // Programs that it starts may do so in other directories.
  launch.far_uri = backend::name_from_root(launch.far_uri);
  return {};
}

// A path that means the same wherever the program goes. Links are followed, so that the runtime can replace the file in
// one step; but what lies in /dev and /proc is written to as it is.
std::string absolute_path(const std::string& path) {
  std::error_code failure;
  const std::filesystem::path absolute = std::filesystem::absolute(path, failure).lexically_normal();
  const std::string text = absolute.string();
  if (text.starts_with("/dev/") || text.starts_with("/proc/")) return text;
  const std::filesystem::path followed = std::filesystem::canonical(absolute, failure);
  return failure ? text : followed.string();
}

// The program has done all its work by the time the file is written, so whether it can be is looked at before the
// start.
result<void> check_stats_json(const run_options& chosen, plan& launch) {
  if (chosen.stats_json.empty()) return {};
  launch.stats_json = absolute_path(chosen.stats_json);
  const auto refuse = [&chosen](const std::string& why) {
    return error{"--stats-json: cannot write '" + chosen.stats_json + "': " + why + "; name a file you may write",
                 exit_failure};
  };
  struct stat status{};
  const bool exists = lstat(launch.stats_json.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) return refuse("it is a directory");
  // A regular file is replaced by a new one beside it; anything else is written to.
  const bool beside = !exists || S_ISREG(status.st_mode);
  const std::string parent = std::filesystem::path(launch.stats_json).parent_path().string();
  if (beside && stat(parent.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) {
    return refuse("'" + parent + "' is not a directory");
  }
  const int wrong = beside ? access(parent.c_str(), W_OK | X_OK) : access(launch.stats_json.c_str(), W_OK);
  if (wrong == 0) return {};
  const int failure = errno;
  return refuse((beside ? "directory '" + parent + "': " : "") + std::strerror(failure));
}

result<void> check_program(const run_options& chosen, plan& launch) {
  if (chosen.program.empty()) {
    return error{"no program is given; write it last, as in: farheap run --local 2G -- python3 analysis.py",
                 exit_usage};
  }
  const result<std::string> path = find_program(chosen.program.front(), std::getenv("PATH"));
  if (!path) return path.error();
  launch.program_path = path.value();
  return check_preloadable(launch.program_path);
}

result<void> check_library(plan& launch) {
  const result<std::string> library = find_preload_library();
  if (!library) return library.error();
  launch.library = library.value();
  return {};
}

// The processes of this run find each other by it.
void choose_job(plan& launch) {
  preload::remove_abandoned_jobs();
  const result<preload::job_name> name = preload::new_job_name();
  if (name) {
    launch.job = name.value().text();
  } else {
    log_line(log_level::warning, "%s; each process of this run has a budget of its own", name.error().message.c_str());
  }
}

// The user's options are checked first, then the machine.
result<plan> make_plan(const run_options& chosen) {
  plan launch;
  result<void> checked = check_program(chosen, launch);
  if (checked.ok()) checked = check_budget(chosen, launch);
  if (checked.ok()) checked = check_policy(chosen, launch);
  if (checked.ok()) checked = check_pace(chosen);
  if (checked.ok()) checked = check_fault_mode(chosen, launch);
  if (checked.ok() && limits_leave_room(launch)) checked = check_far(chosen, launch);
  if (checked.ok()) checked = check_stats_json(chosen, launch);
  if (checked.ok()) checked = check_library(launch);
  if (!checked) return checked.error();
  choose_job(launch);
  return launch;
}

void put(const char* name, const std::string& value) {
  if (value.empty()) {
    unsetenv(name);  // of a `farheap run` around this one
  } else if (setenv(name, value.c_str(), 1) != 0) {
    std::exit(fail(exit_failure, "out of memory for the environment; free some and try again"));
  }
}

void set_environment(const plan& launch, const run_options& chosen) {
  if (!launch.why_native.empty()) return put(variable::local_bytes, "");
  put(variable::local_bytes, std::to_string(launch.budget_bytes));
  put(variable::far_uri, launch.far_uri);
  put(variable::far_uri_under_limit, launch.far_uri_under_limit);
  put(variable::fault_mode, launch.fault_mode);
  put(variable::policy, launch.policy);
  put(variable::free_ahead, chosen.free_ahead);
  put(variable::batch, chosen.batch);
  put(variable::stats_json, launch.stats_json);
  put(variable::trace_directory, chosen.trace_directory);
  put(variable::trace_sample, chosen.trace_directory.empty() ? "" : std::to_string(chosen.trace_sample));
  if (!chosen.object_bytes.empty()) put(variable::object_bytes, chosen.object_bytes);
  put(variable::verbose, chosen.verbose ? "1" : "0");
  put(variable::job, launch.job);
  put(variable::local_auto, launch.local_auto ? "1" : "0");
  put(variable::local_each, chosen.local_each ? "1" : "0");
  put(variable::main_pid, std::to_string(getpid()));
  const std::string files = backend::default_place_of_files().directory;
  if (!files.starts_with('/')) put("FARHEAP_DIR", absolute_path(files));
  const char* const others = std::getenv("LD_PRELOAD");
  const bool any = others != nullptr && *others != 0;
  put("LD_PRELOAD", any ? launch.library + ":" + others : launch.library);
}

}  // namespace

result<std::string> default_far_uri(std::uint64_t budget_bytes) {
  const result<preload::tier_circumstances> here = tier_circumstances_with(budget_bytes);
  if (!here) return here.error();
  return preload::default_far_uri_for(here.value());
}

result<std::string> find_preload_library() {
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return error{"cannot read /proc/self/exe: " + failure.message() + "; mount /proc", exit_failure};
  const std::filesystem::path libraries = self.parent_path().parent_path() / "lib";
  const std::string installed = (libraries / "farheap" / "libfarheap-preload.so").string();
  const bool is_installed = access(installed.c_str(), F_OK) == 0;
  const std::string library = is_installed ? installed : (libraries / "libfarheap-preload.so").string();
  if (access(library.c_str(), R_OK) != 0) {
    return error{
        "the runtime '" + library + "' cannot be read: " + std::strerror(errno) + "; build or install it again",
        exit_failure};
  }
  // The loader splits LD_PRELOAD there.
  if (library.find_first_of(": ") != std::string::npos) {
    return error{"the runtime '" + library + "' has a blank or a colon in its path; install it elsewhere",
                 exit_failure};
  }
  return library;
}

// Replaces this process by the program, so that its process id, signals and exit code are its own.
int run(const run_options& chosen) {
  // What is tried here is the runtime's, whose memory does not count.
  platform::take_over_address_limit();
  const result<plan> prepared = make_plan(chosen);
  if (!prepared) return fail(prepared.error().code, prepared.error().message);
  const plan& ready = prepared.value();
  if (chosen.verbose) {
    fmt::print(stderr, "farheap: running {}: local {}, far {}, fault mode {}, policy {}\n", ready.program_path,
               format_size(ready.budget_bytes), ready.far_description,
               ready.fault_mode.empty() ? "none" : ready.fault_mode, ready.policy);
  }
  if (!ready.remark.empty()) log_line(log_level::warning, "%s", ready.remark.c_str());
  if (!ready.why_native.empty()) {
    log_line(log_level::warning,
             "%s. Until then '%s' runs natively: without far memory, and in as much memory as it wants",
             ready.why_native.c_str(), ready.program_path.c_str());
  }
  set_environment(ready, chosen);
  std::vector<char*> arguments;
  for (const std::string& argument : chosen.program) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  platform::give_limits_to_kernel();
  execv(ready.program_path.c_str(), arguments.data());
  return fail(exit_not_executable, fmt::format("'{}' cannot be executed: {}; check that it runs without farheap",
                                               ready.program_path, std::strerror(errno)));
}

}  // namespace far::tools
