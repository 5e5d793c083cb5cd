#include "server/check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace far::server {
namespace {

// The files of /proc and /sys that are read, under a folder of the test.
class check_test : public testing::Test {
 protected:
  check_test() : root_(std::filesystem::temp_directory_path() / ("farheapd-check-" + std::to_string(getpid()))) {
    write("proc/meminfo", "MemTotal:       8000000 kB\nMemAvailable:   4000000 kB\n");
    write("proc/self/status", "Name:\tfarheapd\nCpus_allowed_list:\t0-15\nMems_allowed_list:\t0-1\n");
    write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    std::filesystem::create_directories(root_ / "sys/devices/system/node/node0");
    chosen_.memory_bytes = std::uint64_t{1} << 30;
    chosen_.listen = parse_address("127.0.0.1:0").value();
  }
  ~check_test() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  finding about(const std::string& subject) {
    for (const finding& one : examine(chosen_, root_)) {
      if (one.subject == subject) return one;
    }
    ADD_FAILURE() << "nothing is said about " << subject;
    return {};
  }

  const std::filesystem::path root_;
  options chosen_;
};

TEST_F(check_test, a_server_on_loopback_would_serve) {
  const std::vector<finding> found = examine(chosen_, root_);
  EXPECT_FALSE(has_problem(found)) << to_text(found);
  EXPECT_EQ(about("--listen").found, verdict::ok);
  EXPECT_NE(about("--listen").value.find("without tokens, not encrypted"), std::string::npos);
  EXPECT_NE(to_text(found).find("farheapd would serve.\n"), std::string::npos);
}

TEST_F(check_test, an_address_in_use_may_be_its_own_and_a_foreign_one_is_a_problem) {
  address taken = parse_address("127.0.0.1:0").value();
  const int listening = listen_at(&taken).value();
  chosen_.listen = taken;
  EXPECT_EQ(about("--listen").found, verdict::note);
  close(listening);
  EXPECT_EQ(about("--listen").found, verdict::ok);
  chosen_.listen = parse_address("192.0.2.1:7070").value();
  EXPECT_EQ(about("--listen").found, verdict::problem);
  EXPECT_NE(to_text(examine(chosen_, root_)).find("would not serve"), std::string::npos);
}

TEST_F(check_test, memory_of_several_nodes_is_told_unless_the_server_is_bound_to_one) {
  EXPECT_EQ(about("NUMA").value, "one node");
  std::filesystem::create_directories(root_ / "sys/devices/system/node/node1");
  EXPECT_EQ(about("NUMA").found, verdict::note);
  EXPECT_NE(about("NUMA").value.find("2 nodes; memory from 0-1, processors 0-15"), std::string::npos);
  EXPECT_NE(about("NUMA").advice.find("numactl"), std::string::npos);
  write("proc/self/status", "Cpus_allowed_list:\t8-15\nMems_allowed_list:\t1\n");
  EXPECT_EQ(about("NUMA").found, verdict::ok);
}

TEST_F(check_test, memory_and_huge_pages_that_are_not_there_are_told) {
  EXPECT_EQ(about("memory").found, verdict::ok);
  EXPECT_EQ(about("huge pages").found, verdict::ok);
  chosen_.memory_bytes = std::uint64_t{6} << 30;
  EXPECT_EQ(about("memory").found, verdict::note);
  write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_EQ(about("huge pages").found, verdict::note);
}

TEST_F(check_test, a_certificate_that_cannot_be_used_is_a_problem) {
  chosen_.certificate_file = chosen_.key_file = (root_ / "none.pem").string();
  EXPECT_EQ(about("certificate").found, verdict::problem);
}

TEST_F(check_test, connections_that_the_limits_forbid_are_told) {
  EXPECT_EQ(about("descriptors").found, verdict::ok);
  chosen_.threads = 64'000'000;
  EXPECT_EQ(about("descriptors").found, verdict::note);
}

}  // namespace
}  // namespace far::server
