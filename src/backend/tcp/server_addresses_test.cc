#include "backend/tcp/server_addresses.h"

#include <gtest/gtest.h>

#include <vector>

namespace far::backend {
namespace {

socket_address numbered(int last) {
  return address_in_digits("10.0.0." + std::to_string(last), 7070);
}

TEST(server_addresses, are_tried_by_turns) {
  const server_addresses name({numbered(1), numbered(2), numbered(3)});
  EXPECT_EQ(name.after(0), 1u);
  EXPECT_EQ(name.after(2), 0u);
  EXPECT_TRUE(name.at(1) == numbered(2));
  EXPECT_FALSE(name.at(1) == numbered(3));
}

TEST(server_addresses, none_are_known_at_first) {
  server_addresses name({});
  EXPECT_EQ(name.at(0).bytes, 0u);
  EXPECT_EQ(name.after(0), 0u);
  EXPECT_TRUE(name.replace({numbered(1)}));
  EXPECT_TRUE(name.at(0) == numbered(1));
  EXPECT_EQ(name.after(0), 0u) << "there is no other";
}

TEST(server_addresses, keep_their_numbers_when_the_name_moves) {
  server_addresses name({numbered(1), numbered(2)});
  EXPECT_TRUE(name.replace({numbered(3), numbered(2)}));
  EXPECT_TRUE(name.at(0) == numbered(1));
  EXPECT_TRUE(name.at(1) == numbered(2));
  EXPECT_TRUE(name.at(2) == numbered(3));
  EXPECT_EQ(name.after(2), 1u) << "not the one that the name does not stand for any more";
  EXPECT_FALSE(name.replace({numbered(1)})) << "that one was known";
  EXPECT_EQ(name.after(2), 0u);
  EXPECT_EQ(name.after(1), 0u);
}

TEST(server_addresses, of_two_families_and_ports_differ) {
  EXPECT_FALSE(address_in_digits("::1", 1) == address_in_digits("::1", 2));
  EXPECT_FALSE(address_in_digits("::1", 1) == address_in_digits("127.0.0.1", 1));
  EXPECT_TRUE(address_in_digits("::1", 1) == address_in_digits("::1", 1));
}

}  // namespace
}  // namespace far::backend
