#include "backend/redis/cluster_directory.h"

#include <gtest/gtest.h>

#include <string>

namespace far::backend {
namespace {

constexpr std::uint64_t pause_ns = 1'000;

std::string line(const std::string& id, std::uint16_t port, const std::string& flags, const std::string& slots) {
  return id + " 127.0.0.1:" + std::to_string(port) + "@1" + std::to_string(port) + " " + flags + " - 0 0 1 connected " +
         slots + "\n";
}

const std::string three_masters = line("a", 7001, "myself,master", "0-5000") + line("b", 7002, "master", "5001-10000") +
                                  line("c", 7003, "master", "10001-16383");
const node_address asked = node_address::parse("127.0.0.1:7001");

// The ports of the masters in which no member lives.
std::string vacancies(cluster_directory& directory, std::uint64_t* now_ns) {
  std::string ports;
  *now_ns += 10 * pause_ns;
  while (const auto found = directory.next_vacancy(*now_ns, pause_ns))
    ports += std::to_string(found->master.port) + " ";
  return ports;
}

TEST(cluster_directory, a_master_without_a_member_is_told_after_two_replies) {
  cluster_directory directory;
  directory.add_home(6000);
  std::uint64_t now_ns = 1;
  EXPECT_EQ(directory.take(three_masters, asked, 6000).owner.port, 7002);
  EXPECT_EQ(vacancies(directory, &now_ns), "");
  static_cast<void>(directory.take(three_masters, asked, 6000));
  EXPECT_EQ(vacancies(directory, &now_ns), "7001 7003 ");
  directory.add_home(1);
  static_cast<void>(directory.take(three_masters, asked, 6000));
  EXPECT_EQ(vacancies(directory, &now_ns), "7003 ");
}

TEST(cluster_directory, a_node_out_of_use_is_no_vacancy_even_when_its_slots_change) {
  cluster_directory directory;
  directory.add_home(6000);
  directory.add_home(12000);
  directory.add_home(1);
  std::uint64_t now_ns = 1;
  directory.shun(node_address::parse("127.0.0.1:7003"));
  // The slot that kept other members away goes to another node.
  const std::string moved = line("a", 7001, "myself,master", "0-5000 12000") + line("b", 7002, "master", "5001-10000") +
                            line("c", 7003, "master", "10001-11999 12001-16383");
  for (int i = 0; i < 3; ++i) static_cast<void>(directory.take(moved, asked, 12000));
  EXPECT_EQ(vacancies(directory, &now_ns), "");
}

TEST(cluster_directory, a_node_that_goes_out_of_use_is_no_vacancy_any_more) {
  cluster_directory directory;
  directory.add_home(6000);
  std::uint64_t now_ns = 1;
  for (int i = 0; i < 2; ++i) static_cast<void>(directory.take(three_masters, asked, 6000));
  directory.shun(node_address::parse("127.0.0.1:7003"));
  directory.shun(node_address::parse("127.0.0.1:7003"));
  EXPECT_EQ(vacancies(directory, &now_ns), "7001 ");
}

}  // namespace
}  // namespace far::backend
