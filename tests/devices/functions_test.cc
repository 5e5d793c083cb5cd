// far::compute() on every kind of far tier: real servers, real plugins. Needs permission for userfaultfd.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/units.h"
#include "far/array.h"
#include "far/compute.h"
#include "far/runtime.h"
#include "far/vector.h"
#include "statistics.h"
#include "tests/devices/built.h"
#include "tests/devices/device_server.h"
#include "tests/support/real_pager.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/tls_test_files.h"
#include "tests/support/today.h"
#include "tests/support/unruly.h"

namespace far {
namespace {

using testing_support::device_server;

std::unique_ptr<device_server> start(std::vector<std::string> more = {}) {
  std::vector<std::string> options{"--memory", "256M", "--grace", "120s", "--plugin", STATISTICS, "--plugin", UNRULY};
  options.insert(options.end(), more.begin(), more.end());
  return std::make_unique<device_server>(options);
}

std::vector<double> some(std::size_t count) {
  std::mt19937_64 random(count);
  std::vector<double> numbers(count);
  for (double& one : numbers) one = static_cast<double>(random() % 2'000'000) / 3 - 300'000;
  return numbers;
}

// The same parts in the same order, so that sums have the same bits.
template <typename F>
typename F::result plainly(std::span<const typename F::element> all, const typename F::arguments& with,
                           std::size_t on_a_page = page_bytes / sizeof(typename F::element)) {
  typename F::result found{};
  for (std::size_t at = 0; at < all.size(); at += on_a_page) {
    F::combine(found, F::map(all.subspan(at, std::min(on_a_page, all.size() - at)), with));
  }
  return found;
}

template <typename Result>
std::string bits(const Result& of) {
  return {reinterpret_cast<const char*>(&of), sizeof of};
}

class functions : public heap::far_tier_test {
 protected:
  // On a busy machine it may take longer than a call until the server has begun a process.
  static void evict_and_begin(runtime& home, const vector<double>& all) {
    const std::uint64_t before = home.statistics().reduced_pages;
    for (int tries = 0; tries < 100 && home.statistics().reduced_pages == before; ++tries) {
      home.evict_all();
      static_cast<void>(compute<square_sum>(all, 0, std::min<std::size_t>(all.size(), 20'000)));
    }
    home.evict_all();
  }
  // A call of which the server does not hear in time is computed here: again, until that many were reduced there.
  template <typename Compute>
  static void until_reduced(runtime& home, std::uint64_t pages, const Compute& once) {
    const std::uint64_t before = home.statistics().reduced_pages;
    for (int tries = 0; tries < 100 && home.statistics().reduced_pages <= before + pages; ++tries) {
      if (tries > 0) home.evict_all();
      once();
    }
    EXPECT_GT(home.statistics().reduced_pages, before + pages);
  }
  static void expect_right(const vector<double>& all, std::span<const double> plain, const std::string& where) {
    const square_sum::arguments within{-1'000, 250'000.5};
    EXPECT_EQ(bits(compute<square_sum>(all, within)), bits(plainly<square_sum>(plain, within))) << where;
    EXPECT_EQ(bits(compute<largest_step>(all)), bits(plainly<largest_step>(plain, {}))) << where;
    EXPECT_EQ(bits(compute<square_sum>(all, within, work::here)), bits(plainly<square_sum>(plain, within))) << where;
  }
};

TEST_F(functions, are_called_by_the_server_and_fetch_nothing) {
  const auto server = start();
  runtime& home = farheap("tcp://" + server->host());
  const std::vector<double> plain = some(1'000'000);
  const vector<double> all(home, std::span<const double>(plain));
  evict_and_begin(home, all);
  const runtime_statistics before = home.statistics();
  const square_sum::arguments within{-1'000, 250'000.5};
  EXPECT_EQ(bits(compute<square_sum>(all, within)), bits(plainly<square_sum>(plain, within)));
  const runtime_statistics after = home.statistics();
  EXPECT_GT(after.reduced_pages, before.reduced_pages + 1'875);
  EXPECT_LT(after.fetched_pages, before.fetched_pages + 100);
  EXPECT_EQ(server->children(), 1u) << "one process for the plugin that was asked";
  EXPECT_EQ(bits(compute<largest_step>(all)), bits(plainly<largest_step>(plain, {})));
  EXPECT_EQ(server->children(), 1u);
  home.validate();
}

// What was changed since it left is here, and is looked at here.
TEST_F(functions, see_what_has_changed_here) {
  const auto server = start();
  runtime& home = farheap("tcp://" + server->host());
  std::vector<double> plain = some(2'200'011);
  vector<double> all(home, std::span<const double>(plain));
  home.evict_all();
  for (int round = 0; round < 3; ++round) {
    for (std::size_t at = static_cast<std::size_t>(round); at < plain.size(); at += 70'001) {
      plain[at] += 0.25;
      all.write(at, plain[at]);
    }
    expect_right(all, plain, "round " + std::to_string(round));
  }
  home.validate();
}

TEST_F(functions, over_encrypted_connections) {
  wire::tls_test_files files;
  const std::string authority = files.make_authority("authority");
  files.make_server("server", "authority", "IP:127.0.0.1");
  const auto server = start({"--tls-cert", files.certificate("server"), "--tls-key", files.key("server")});
  runtime& home = farheap("tcp://" + server->host() + "?tls=1&ca=" + authority);
  const std::vector<double> plain = some(300'000);
  const vector<double> all(home, std::span<const double>(plain));
  evict_and_begin(home, all);
  until_reduced(home, 500, [&] { expect_right(all, plain, "TLS"); });
}

// Parts of pages at both ends, and where nothing is.
TEST_F(functions, look_at_ranges_and_at_no_others) {
  const auto server = start();
  runtime& home = farheap("tcp://" + server->host());
  const std::vector<double> plain = some(300'000);
  const vector<double> all(home, std::span<const double>(plain));
  home.evict_all();
  const auto sum_of = [&](std::size_t first, std::size_t count) {
    square_sum::result found;
    for (std::size_t at = first, next = 0; at < first + count; at = next) {
      next = std::min(first + count, (at / 512 + 1) * 512);
      square_sum::combine(found, square_sum::map(std::span(plain).subspan(at, next - at), {}));
    }
    return found;
  };
  for (const auto [first, count] : {std::array<std::size_t, 2>{0, 512},
                                    {1, 511},
                                    {511, 2},
                                    {700, 100'000},
                                    {131'071, 3},
                                    {0, 0},
                                    {300'000, 0},
                                    {299'999, 1},
                                    {8'191, 65'537}}) {
    const square_sum::result found = compute<square_sum>(all, first, count);
    EXPECT_EQ(found.count, count) << first;
    EXPECT_NEAR(found.sum, sum_of(first, count).sum, 1e-9 * found.sum) << first;
  }
  EXPECT_THROW(static_cast<void>(compute<square_sum>(all, 300'000, 1)), std::out_of_range);
  EXPECT_THROW(static_cast<void>(compute<square_sum>(all, 1, SIZE_MAX)), std::out_of_range);
  const vector<double> none(home);
  EXPECT_EQ(compute<square_sum>(none).count, 0u);
  vector<double, 8> grouped(home, std::span<const double>(plain).first(10'000));
  home.evict_all();
  EXPECT_EQ(compute<square_sum>(grouped).count, 10'000u);
  array<double, 5'000> fixed(home);
  EXPECT_EQ(compute<square_sum>(fixed).count, 5'000u);
}

TEST_F(functions, of_far_tiers_that_call_none_are_called_here) {
  const scratch_folder place;
  const auto with_shm = start({"--shm", place.path() + "/socket"});
  const device_server without({"--memory", "256M"});
  const std::vector<double> plain = some(2'200'011);
  std::size_t number = 0;
  for (const std::string& tier :
       {std::string("memory:"), std::string("memory:?latency=5us&gbps=25"), std::string("zmem:"),
        "file:" + place.path(), "shm:" + place.path() + "/socket", "tcp://" + without.host()}) {
    if (!testing_support::is_of_today(number++, 2)) continue;
    runtime& home = farheap(tier);
    const vector<double> all(home, std::span<const double>(plain));
    home.evict_all();
    expect_right(all, plain, tier);
    EXPECT_EQ(home.statistics().reduced_pages, 0u) << tier;
  }
}

TEST_F(functions, of_copies_stripes_and_parity) {
  const auto first = start();
  const auto second = start();
  const auto third = start();
  const std::string both = first->host() + "," + second->host();
  const std::vector<double> plain = some(1'000'011);
  for (const std::string& tier : {"tcp://" + both + "?copies=2&timeout=20s", "tcp://" + both + "?copies=1&timeout=20s",
                                  "tcp://" + both + "," + third->host() + "?parity=2+1&timeout=20s"}) {
    runtime& home = farheap(tier);
    const vector<double> all(home, std::span<const double>(plain));
    evict_and_begin(home, all);
    const runtime_statistics before = home.statistics();
    EXPECT_EQ(compute<square_sum>(all).count, plain.size()) << tier;
    EXPECT_GT(home.statistics().reduced_pages, before.reduced_pages + 1'650) << tier;
    EXPECT_LT(home.statistics().fetched_pages, before.fetched_pages + 100) << tier;
    expect_right(all, plain, tier);
  }
}

// Some of the pages lie in the tier above, which calls none, and some with the server.
TEST_F(functions, under_a_tier_that_calls_none_are_called_by_the_server) {
  const auto server = start();
  runtime& home = farheap("zmem:4M,tcp://" + server->host());
  const std::vector<double> plain = some(3'000'011);
  const vector<double> all(home, std::span<const double>(plain));
  home.evict_all();
  until_reduced(home, 1'000, [&] { expect_right(all, plain, "two tiers"); });
  home.validate();
}

// Only one of them can call it: what the other is asked first, the first one answers.
TEST_F(functions, of_a_copy_whose_server_has_no_plugin) {
  const auto first = start();
  const device_server second({"--memory", "256M"});
  runtime& home = farheap("tcp://" + first->host() + "," + second.host() + "?copies=2&timeout=20s");
  const std::vector<double> plain = some(1'000'011);
  const vector<double> all(home, std::span<const double>(plain));
  evict_and_begin(home, all);
  until_reduced(home, 500, [&] { expect_right(all, plain, "copies"); });
}

TEST_F(functions, survive_a_server_of_two_that_ends_while_they_are_called) {
  const auto first = start();
  const auto second = start();
  runtime& home = farheap("tcp://" + first->host() + "," + second->host() + "?copies=2&timeout=1s");
  const std::vector<double> plain = some(3'000'011);
  const vector<double> all(home, std::span<const double>(plain));
  home.evict_all();
  const std::string expected = bits(plainly<square_sum>(plain, {}));
  std::atomic<int> rounds{0};
  std::thread killer([&] {
    while (rounds.load() < 2) std::this_thread::yield();
    first->signal(SIGKILL);
  });
  for (; rounds.load() < 12; ++rounds) EXPECT_EQ(bits(compute<square_sum>(all)), expected) << rounds.load();
  killer.join();
  home.validate();
}

// The page in which a range ends has elements of others.
TEST_F(functions, run_beside_writers_of_neighbouring_elements) {
  const auto server = start();
  runtime& home = farheap("tcp://" + server->host());
  const std::vector<double> plain = some(2'000'000);
  vector<double> all(home, std::span<const double>(plain));
  home.evict_all();
  constexpr std::size_t first = 500'100;
  constexpr std::size_t count = 1'000'300;
  const std::string expected = bits(compute<square_sum>(all, first, count));
  std::atomic<bool> ends{false};
  std::vector<std::thread> writers;
  for (std::uint64_t worker = 0; worker < 2; ++worker) {
    writers.emplace_back([&, worker] {
      std::mt19937_64 random(worker);
      while (!ends.load()) {
        // In the same pages, too, but beside the range.
        const std::size_t at = random() % 2 == 0 ? first - 1 - worker - 2 * (random() % 40)
                                                 : first + count + worker + 2 * (random() % 400'000 / 2);
        all.write(std::min(at, all.size() - 1 - worker), static_cast<double>(random() % 1'000));
      }
    });
  }
  for (int round = 0; round < 20; ++round) EXPECT_EQ(bits(compute<square_sum>(all, first, count)), expected) << round;
  ends = true;
  for (std::thread& one : writers) one.join();
  home.validate();
}

// Another function of the same name, which the plugin's author has not given another version.
struct misfit : square_sum {
  struct result {
    double sum = 0;
    std::array<std::uint64_t, 3> others{};
  };
  static result map(std::span<const double> part, const arguments& within) {
    return {square_sum::map(part, within).sum, {}};
  }
  static void combine(result& all, const result& next) { all.sum += next.sum; }
};
struct newer : square_sum {
  static constexpr const char* version = "1.1";
};
struct unknown : square_sum {
  static constexpr std::uint32_t number = 99;
};
struct of_no_plugin : square_sum {
  static constexpr const char* plugin = "statistics-of-others";
};

TEST_F(functions, that_are_others_on_the_server_are_called_here) {
  const auto server = start();
  runtime& home = farheap("tcp://" + server->host());
  const std::vector<double> plain = some(200'000);
  const vector<double> all(home, std::span<const double>(plain));
  home.evict_all();
  const double expected = plainly<square_sum>(plain, {}).sum;
  EXPECT_EQ(compute<misfit>(all).sum, expected);
  home.evict_all();
  EXPECT_EQ(compute<newer>(all).sum, expected);
  home.evict_all();
  EXPECT_EQ(compute<unknown>(all).sum, expected);
  home.evict_all();
  EXPECT_EQ(compute<of_no_plugin>(all).sum, expected);
  EXPECT_EQ(home.statistics().reduced_pages, 0u);
  evict_and_begin(home, all);
  // A function that is refused is no reason to ask for none.
  until_reduced(home, 300, [&] { EXPECT_EQ(compute<square_sum>(all).sum, expected); });
}

// The caller hears why, and so does whoever reads what the program logs.
TEST_F(functions, that_are_refused_say_why_to_their_caller) {
  const auto server = start();
  runtime& home = farheap("tcp://" + server->host());
  const std::vector<double> plain = some(200'000);
  const vector<double> all(home, std::span<const double>(plain));
  std::vector<std::uint64_t> integers(200'000, 3);
  const vector<std::uint64_t> others(home, std::span<const std::uint64_t>(integers));
  const auto expect = [&](const auto& call, const std::string& expected) {
    home.evict_all();
    std::string refusal = "not heard of";
    ::testing::internal::CaptureStderr();
    call(&refusal);
    const std::string logged = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(refusal.find(expected), std::string::npos) << refusal << "\nand not: " << expected;
    EXPECT_NE(logged.find(refusal), std::string::npos) << logged;
  };
  expect([&](std::string* why) { static_cast<void>(compute<newer>(all, {}, work::there, why)); },
         "the server does not have plugin 'statistics' 1.1: there is statistics 1.0, unruly 1.0");
  expect([&](std::string* why) { static_cast<void>(compute<of_no_plugin>(all, {}, work::there, why)); },
         "the server does not have plugin 'statistics-of-others'");
  expect([&](std::string* why) { static_cast<void>(compute<unknown>(all, {}, work::there, why)); },
         "the plugin has no function");
  const auto misbehave = [&](unruly::way how, const std::string& expected) {
    expect([&](std::string* why) { static_cast<void>(compute<unruly>(others, {how}, work::there, why)); }, expected);
    std::this_thread::sleep_for(std::chrono::milliseconds(1'100));  // a process that has failed rests for a second
  };
  misbehave(unruly::throw_text, "a function of plugin 'unruly' refuses a call: a text");
  misbehave(unruly::hang, "took too long, and is ended");
  misbehave(unruly::leave, "the process for the functions of plugin 'unruly' has failed");
  misbehave(unruly::take_memory, "plugin 'unruly'");
  misbehave(unruly::too_long, "which are no results");
  evict_and_begin(home, all);
  std::string refusal = "not heard of";
  EXPECT_EQ(compute<square_sum>(all, {}, work::there, &refusal).count, plain.size());
  EXPECT_EQ(refusal, "") << "nothing was refused";
}

TEST_F(functions, that_nobody_can_call_say_so) {
  const auto full = start({"--quota", "default=26M"});
  const std::vector<double> plain = some(1'500'000);
  std::string refusal = "not heard of";
  {
    runtime& home = farheap("tcp://" + full->host());
    const vector<double> all(home, std::span<const double>(plain));
    home.evict_all();
    static_cast<void>(compute<square_sum>(all, {}, work::there, &refusal));
    EXPECT_NE(refusal.find("there is no room for a process for the functions of plugin 'statistics'"),
              std::string::npos)
        << refusal;
  }
  runtime& home = farheap("memory:");
  const vector<double> all(home, std::span<const double>(plain));
  home.evict_all();
  ::testing::internal::CaptureStderr();
  static_cast<void>(compute<square_sum>(all, {}, work::there, &refusal));
  EXPECT_EQ(refusal, "the far tier calls no functions");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "as is written";
}

// Whatever the plugin does, it spoils nothing but its own call, which is computed here.
TEST_F(functions, that_misbehave_on_the_server_spoil_their_own_call_only) {
  const auto server = start();
  const std::vector<double> doubles = some(500'000);
  std::vector<std::uint64_t> plain(500'000);
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) expected += plain[i] = i * i;
  for (const unruly::way how :
       {unruly::throw_text, unruly::throw_number, unruly::hang, unruly::write_outside, unruly::leave, unruly::flood,
        unruly::too_long, unruly::too_short, unruly::unmarked, unruly::take_memory, unruly::scribble}) {
    runtime& home = farheap("tcp://" + server->host());
    const vector<std::uint64_t> all(home, std::span<const std::uint64_t>(plain));
    const vector<double> others(home, std::span<const double>(doubles));
    home.evict_all();
    EXPECT_EQ(compute<unruly>(all, {how}).sum, expected) << how;
    EXPECT_EQ(home.statistics().reduced_pages, 0u) << how;
    evict_and_begin(home, others);
    SCOPED_TRACE("after way " + std::to_string(how));
    until_reduced(home, 900, [&] { expect_right(others, doubles, "others"); });
    home.validate();
  }
  // A process that has failed is not begun again for a second.
  runtime& home = farheap("tcp://" + server->host());
  const vector<std::uint64_t> all(home, std::span<const std::uint64_t>(plain));
  for (int tries = 0; tries < 100 && home.statistics().reduced_pages < 900; ++tries) {
    home.evict_all();
    EXPECT_EQ(compute<unruly>(all, {tries == 0 ? unruly::leave : unruly::well}).sum, expected);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_GE(home.statistics().reduced_pages, 900u);
}

// A child that comes out of the call answers nothing: its answer would be taken for that about the next pages.
TEST_F(functions, that_fork_on_the_server_are_answered_once) {
  const auto server = start();
  runtime& home = farheap("tcp://" + server->host());
  std::vector<std::uint64_t> plain(500'000);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = i * i;
  const vector<std::uint64_t> all(home, std::span<const std::uint64_t>(plain));
  for (const unruly::way how : {unruly::fork_and_return, unruly::fork_and_stay, unruly::fork_and_leave}) {
    // A process that has failed is not begun again for a second.
    for (std::uint64_t tries = 0, before = home.statistics().reduced_pages;
         home.statistics().reduced_pages < before + 900; ++tries) {
      ASSERT_LT(tries, 100u) << how;
      home.evict_all();
      const unruly::way now = how == unruly::fork_and_leave && tries > 0 ? unruly::well : how;
      for (std::size_t first = 0; first < plain.size(); first += 50'000) {
        const auto expected =
            std::accumulate(plain.begin() + static_cast<std::ptrdiff_t>(first),
                            plain.begin() + static_cast<std::ptrdiff_t>(first) + 50'000, std::uint64_t{0});
        ASSERT_EQ(compute<unruly>(all, first, 50'000, {now}).sum, expected) << how << " from " << first;
      }
      if (home.statistics().reduced_pages == before) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    home.validate();
  }
  const std::vector<pid_t> devices = server->devices();
  server->signal(SIGKILL);
  for (const pid_t one : devices) {
    for (int i = 0; i < 3000 && kill(one, 0) == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_NE(kill(one, 0), 0);
  }
}

// Where it is called here, its exception is the caller's.
struct picky : square_sum {
  static constexpr std::uint32_t number = 3;  // no server has it
  static result map(std::span<const double> part, const arguments&) {
    for (const double one : part) {
      if (one == 1'000'000) throw std::domain_error("a million");
    }
    return {};
  }
};

TEST_F(functions, that_throw_here_throw_to_their_caller) {
  const auto server = start();
  runtime& home = farheap("tcp://" + server->host());
  std::vector<double> plain = some(300'000);
  vector<double> all(home, std::span<const double>(plain));
  EXPECT_EQ(compute<picky>(all).count, 0u);
  all.write(200'000, 1'000'000);
  home.evict_all();
  EXPECT_THROW(static_cast<void>(compute<picky>(all)), std::domain_error);
  EXPECT_EQ(compute<square_sum>(all).count, plain.size());
  home.validate();
}

// The room of the process is the tenant's: where there is none, pages are fetched.
TEST_F(functions, without_room_on_the_server_are_called_here) {
  const auto server = start({"--quota", "default=26M"});
  runtime& home = farheap("tcp://" + server->host());
  const std::vector<double> plain = some(1'500'000);
  const vector<double> all(home, std::span<const double>(plain));
  home.evict_all();
  EXPECT_EQ(bits(compute<square_sum>(all)), bits(plainly<square_sum>(plain, {})));
  EXPECT_EQ(server->children(), 0u);
}

TEST_F(functions, are_as_the_document_says) {
  const scratch_folder folder;
  const std::string page = SOURCE "/docs/devices.md";
  const auto write = [&](const std::string& name, const std::string& first_line, const std::string& more = "") {
    std::ofstream(folder.path() + "/" + name) << testing_support::code_of(page, first_line) << more;
  };
  write("squares.h", "#pragma once");
  write("squares.cc", "#include \"squares.h\"");
  write("client.cc", "#include <far/compute.h>",
        "extern \"C\" double run(const far::vector<double>& numbers) { return squares_from(numbers, 1000, 2); }\n");
  testing_support::build(folder.path() + "/squares.cc", folder.path() + "/squares.so");
  testing_support::build(folder.path() + "/client.cc", folder.path() + "/client.so");
  // The client's symbols of Farheap are those of this program.
  void* const client = dlopen((folder.path() + "/client.so").c_str(), RTLD_NOW);
  ASSERT_NE(client, nullptr) << dlerror();
  const auto run = reinterpret_cast<double (*)(const vector<double>&)>(dlsym(client, "run"));
  ASSERT_NE(run, nullptr);
  const device_server server({"--memory", "64M", "--plugin", folder.path() + "/squares.so"});
  runtime& home = farheap("tcp://" + server.host());
  vector<double> numbers(home, std::vector<double>(100'000, 3));
  numbers.write(50'000, 1);
  for (int tries = 0; tries < 100 && home.statistics().reduced_pages < 150; ++tries) {
    home.evict_all();
    EXPECT_EQ(run(numbers), 98'999.0 * 9);
  }
  EXPECT_GE(home.statistics().reduced_pages, 150u);
}

}  // namespace
}  // namespace far
