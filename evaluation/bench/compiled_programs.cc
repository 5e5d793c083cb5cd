#include "compiled_programs.h"

#include <elf.h>
#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "application_programs.h"
#include "base/units.h"
#include "child.h"
#include "common/json.h"
#include "runtime_statistics.h"

namespace far::bench {

namespace {

constexpr std::uint64_t compile_deadline_ns = 600'000'000'000;

// The build folder is inside the source tree, as the presets have it.
std::string source(const std::string& path) {
  return product("../../evaluation/" + path);
}

std::string path_of(compiler by) {
  return by == compiler::door ? product("farheap-clang++") : find_program("clang++-19");
}

// A kernel of evaluation/apps/compiled.
struct kernel {
  const char* name;
  unsigned rounds;        // that take clang's program less than a second with 128 MiB
  unsigned quick_rounds;  // ... or a part of that
  unsigned few_rounds;    // on 2 MiB; some 20 million instructions
};

constexpr std::array kernels = {
    kernel{"stream", 12, 4, 12},  kernel{"kmeans", 3, 1, 2},     kernel{"hashmap", 3, 1, 8},
    kernel{"gradient", 10, 4, 8}, kernel{"fourier", 3, 1, 3},    kernel{"integers", 5, 2, 4},
    kernel{"multigrid", 6, 2, 6}, kernel{"compressor", 1, 1, 1},
};

compiled_program describe(const kernel& one, std::uint64_t bytes, bool quick) {
  const std::string name = one.name;
  return {.name = name,
          .sources = {"compiled/" + name + ".cc"},
          .libraries = {},
          .arguments = {std::to_string(bytes / mib), std::to_string(quick ? one.quick_rounds : one.rounds)},
          .few = {"2", std::to_string(one.few_rounds)}};
}

compiled_program taxi(std::uint64_t bytes) {
  constexpr std::uint64_t row_bytes = 80;
  return {.name = "taxi",
          .sources = {"taxi/main.cc", "taxi/analyses.cc", "taxi/csv.cc", "taxi/generator.cc", "taxi/results.cc",
                      "hinted.cc"},
          .libraries = {"-lfmt"},
          .arguments = {"--json", "--rows", std::to_string(bytes / row_bytes)},
          .few = {"--json", "--rows", "40000"}};
}

compiled_program cached(std::uint64_t bytes) {
  constexpr std::uint64_t value_bytes = 512;
  constexpr std::uint64_t pair_bytes = value_bytes + 128;
  std::vector<std::string> sources = {"hinted.cc"};
  for (const char* const name : {"command", "item", "main", "server", "session", "session_commands", "session_stats",
                                 "shard_store", "socket", "store"}) {
    sources.push_back(fmt::format("cached/{}.cc", name));
  }
  return {.name = "cached",
          .sources = std::move(sources),
          .libraries = {"-lfmt", "-pthread"},
          .arguments = {"--port", "0", "--memory", "8G", "--threads", "2"},
          .few = {},
          .load = {"--keys", std::to_string(bytes / pair_bytes), "--value-bytes", std::to_string(value_bytes),
                   "--operations", "400000", "--zipf", "1", "--connections", "2"}};
}

result<double> code_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (!file || header.e_shentsize != sizeof(Elf64_Shdr)) return error{path + " is no program of 64 bits", EPROTO};
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  file.seekg(static_cast<std::streamoff>(header.e_shoff));
  file.read(reinterpret_cast<char*>(sections.data()),
            static_cast<std::streamsize>(sections.size() * sizeof(Elf64_Shdr)));
  if (!file) return error{path + " ends before its sections", EPROTO};
  double sum = 0;
  for (const Elf64_Shdr& section : sections) {
    if ((section.sh_flags & SHF_EXECINSTR) != 0) sum += static_cast<double>(section.sh_size);
  }
  return sum;
}

result<evaluation::json> read_json(const std::string& text) {
  evaluation::json said = evaluation::json::parse(text);
  if (!said.is_object()) return error{"it printed no figures", EPROTO};
  return said;
}

// A server leaves no statistics that end with its work.
result<compiled_outcome> run_server_program(const compiled_program& program, const std::vector<std::string>& command,
                                            std::uint64_t deadline_ns) {
  const auto ran = run_server(command, program.load, deadline_ns);
  if (!ran) return ran.error();
  compiled_outcome outcome;
  outcome.seconds = ran.value().seconds;
  outcome.cpu_ns = ran.value().cpu_ns;
  outcome.peak_bytes = ran.value().peak_bytes;
  outcome.results = ran.value().results;
  return outcome;
}

}  // namespace

std::vector<compiled_program> compiled_programs(bool quick, std::uint64_t bytes) {
  std::vector<compiled_program> all;
  for (const kernel& one : kernels) {
    all.push_back(describe(one, bytes, quick));
    if (all.back().name != "hashmap") continue;
    all.back().sources.emplace_back("web/zipf.cc");
    all.push_back(all.back());
    all.back().name = "hashmap-objects";
    all.back().door_options = {"-ffar-objects"};
  }
  // The headers that these include take a compiler longer than all kernels.
  if (!quick) {
    all.push_back(taxi(bytes));
    all.push_back(cached(bytes));
  }
  return all;
}

result<void> find_compilers() {
  if (path_of(compiler::clang).empty()) {
    return error{"clang++-19 is not there; install it: scripts/install-packages compiler", ENOENT};
  }
  for (const std::string& needed : {path_of(compiler::door), product("farheap")}) {
    if (access(needed.c_str(), X_OK) != 0) {
      return error{fmt::format("{} is not there; build it first: make compiler", needed), ENOENT};
    }
  }
  if (!std::filesystem::exists(source("apps/compiled/kernel.h"))) {
    return error{fmt::format("the programs' sources are not at {}; run it from a build folder in the source tree",
                             source("apps")),
                 ENOENT};
  }
  return {};
}

result<built_program> build_program(const compiled_program& program, compiler by, const std::string& folder) {
  built_program built;
  built.path = fmt::format("{}/{}-{}", folder, program.name, by == compiler::door ? "door" : "clang");
  std::vector<std::string> command = {path_of(by), "-std=c++20",          "-O3", "-I",
                                      source(""),  "-DAPP_WITHOUT_HINTS", "-o",  built.path};
  for (const std::string& one : program.sources) command.push_back(source("apps/" + one));
  command.insert(command.end(), program.libraries.begin(), program.libraries.end());
  if (by == compiler::door) command.insert(command.end(), program.door_options.begin(), program.door_options.end());
  const auto compiled = run_child(command, compile_deadline_ns);
  if (!compiled) return error{fmt::format("compiling {}: {}", program.name, compiled.error().message), ECHILD};
  built.compile_ns = static_cast<double>(compiled.value().cpu_ns);
  const auto size = code_bytes(built.path);
  if (!size) return size.error();
  built.code_bytes = size.value();
  return built;
}

result<double> support_code_bytes(const std::string& folder) {
  const compiled_program empty{
      .name = "empty", .sources = {"compiled/empty.cc"}, .libraries = {}, .arguments = {}, .few = {}};
  const auto plain = build_program(empty, compiler::clang, folder);
  if (!plain) return plain.error();
  const auto door = build_program(empty, compiler::door, folder);
  if (!door) return door.error();
  return door.value().code_bytes - plain.value().code_bytes;
}

result<compiled_outcome> run_program(const compiled_program& program, const std::string& path,
                                     const std::vector<std::string>& launcher, const std::string& stats_file,
                                     std::uint64_t deadline_ns) {
  std::vector<std::string> command = launcher;
  command.push_back(path);
  command.insert(command.end(), program.arguments.begin(), program.arguments.end());
  if (!program.load.empty()) return run_server_program(program, command, deadline_ns);
  std::error_code ignored;  // there may be none yet
  std::filesystem::remove(stats_file, ignored);
  const auto ended = run_child(command, deadline_ns);
  if (!ended) return ended.error();
  const auto said = read_json(ended.value().output);
  if (!said) return said.error();
  compiled_outcome outcome;
  outcome.seconds = said.value().value("seconds", 0.0);
  const evaluation::json* found = said.value().find("results");
  if (found == nullptr) found = said.value().find("checksum");
  outcome.results = found == nullptr ? "null" : found->dump();
  outcome.cpu_ns = static_cast<double>(ended.value().cpu_ns);
  outcome.peak_bytes = static_cast<double>(ended.value().peak_bytes);
  if (stats_file.empty()) return outcome;
  const auto left = read_statistics(stats_file);
  if (!left) return left.error();
  outcome.misses = left.value().misses;
  outcome.fetched_pages = left.value().fetched_pages;
  return outcome;
}

result<double> count_program_instructions(const compiled_program& program, const std::string& path,
                                          const std::string& folder) {
  const std::string valgrind = find_program("valgrind");
  if (valgrind.empty()) return error{"instructions are counted by valgrind, which is not here; install it", ENOENT};
  const std::string profile = folder + "/profile";
  std::vector<std::string> command = {valgrind, "--quiet", "--tool=callgrind", "--callgrind-out-file=" + profile, path};
  command.insert(command.end(), program.few.begin(), program.few.end());
  const auto ended = run_child(command, program_deadline_ns);
  if (!ended) return error{"under valgrind: " + ended.error().message, ended.error().code};
  std::ifstream file(profile);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("totals: ")) return std::stod(line.substr(8));
  }
  return error{"valgrind wrote no total", EPROTO};
}

}  // namespace far::bench
