#include "backend/tcp/name_lookup.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace far::backend {
namespace {

using address_list = std::vector<socket_address>;

// A DNS server on the loopback interface that gives every name the same IPv4 addresses.
class dns_server {
 public:
  explicit dns_server(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {
    socket_ = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&at), bytes), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &bytes), 0);
    port_ = ntohs(at.sin_port);
    serving_ = std::thread([this] { serve(); });
  }
  ~dns_server() {
    stopping_.store(true);
    serving_.join();
    close(socket_);
  }
  dns_server(const dns_server&) = delete;
  dns_server& operator=(const dns_server&) = delete;

  [[nodiscard]] std::string text() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] int questions() const { return questions_.load(); }
  std::atomic<bool> is_silent{false};

 private:
  static constexpr std::size_t head_bytes = 12;  // RFC 1035, section 4.1.1

  void serve() {
    while (!stopping_.load()) {
      pollfd watched{.fd = socket_, .events = POLLIN, .revents = 0};
      if (poll(&watched, 1, 20) < 1) continue;
      std::array<unsigned char, 512> packet;
      sockaddr_in from{};
      socklen_t from_bytes = sizeof from;
      const ssize_t got =
          recvfrom(socket_, packet.data(), packet.size(), 0, reinterpret_cast<sockaddr*>(&from), &from_bytes);
      if (got < static_cast<ssize_t>(head_bytes)) continue;
      ++questions_;
      if (is_silent.load()) continue;
      const std::vector<unsigned char> reply = answer(packet.data(), static_cast<std::size_t>(got));
      sendto(socket_, reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), from_bytes);
    }
  }

  [[nodiscard]] std::vector<unsigned char> answer(const unsigned char* packet, std::size_t bytes) const {
    std::size_t end = head_bytes;
    while (end < bytes && packet[end] != 0) end += 1 + packet[end];  // the labels of the name
    const bool wants_v4 = packet[end + 2] == 1;
    end += 5;  // the root, the type and the class
    std::vector<unsigned char> reply(packet, packet + end);
    const auto count = static_cast<unsigned char>(wants_v4 ? addresses_.size() : 0);
    const std::array<unsigned char, 10> rest{0x81, 0x80, 0, 1, 0, count, 0, 0, 0, 0};  // an answer to one question
    std::copy(rest.begin(), rest.end(), reply.begin() + 2);
    for (std::size_t i = 0; i < count; ++i) {
      // The name of the question; a record A of the Internet; for a minute; 4 bytes.
      reply.insert(reply.end(), {0xc0, head_bytes, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4});
      in_addr number{};
      EXPECT_EQ(inet_pton(AF_INET, addresses_[i].c_str(), &number), 1);
      std::array<unsigned char, 4> raw;
      std::memcpy(raw.data(), &number, raw.size());
      reply.insert(reply.end(), raw.begin(), raw.end());
    }
    return reply;
  }

  const std::vector<std::string> addresses_;
  int socket_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<int> questions_{0};
  std::atomic<bool> stopping_{false};
  std::thread serving_;
};

result<address_list> wait_for(name_lookup& lookup) {
  while (true) {
    std::optional<result<address_list>> found = lookup.advance();
    if (found) return std::move(*found);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool holds(const address_list& found, const char* host, std::uint16_t port) {
  return std::find(found.begin(), found.end(), address_in_digits(host, port)) != found.end();
}

TEST(name_lookup, finds_what_the_hosts_file_says) {
  name_lookup lookup({.host = "localhost", .port = 7070});
  lookup.begin();
  EXPECT_TRUE(lookup.is_under_way());
  const result<address_list> found = wait_for(lookup);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_TRUE(holds(found.value(), "127.0.0.1", 7070));
  EXPECT_FALSE(lookup.is_under_way());
}

TEST(name_lookup, asks_dns_each_time) {
  const dns_server dns({"10.1.2.3", "10.1.2.4"});
  name_lookup lookup({.host = "cache.test", .port = 7071}, dns.text());
  for (int round = 1; round <= 2; ++round) {
    const int before = dns.questions();
    lookup.begin();
    const result<address_list> found = wait_for(lookup);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found.value().size(), 2u);
    EXPECT_TRUE(holds(found.value(), "10.1.2.3", 7071));
    EXPECT_TRUE(holds(found.value(), "10.1.2.4", 7071));
    EXPECT_GT(dns.questions(), before);
  }
}

TEST(name_lookup, a_name_without_an_address_is_an_error) {
  const dns_server dns({});
  name_lookup lookup({.host = "gone.test", .port = 7071}, dns.text());
  lookup.begin();
  const result<address_list> found = wait_for(lookup);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("gone.test"), std::string::npos) << found.error().message;
}

// Each of them would be asked twice, for 18 s in all.
TEST(name_lookup, silent_dns_servers_are_not_waited_for_longer_than_one) {
  std::array<dns_server, 3> silent{dns_server({}), dns_server({}), dns_server({})};
  for (dns_server& one : silent) one.is_silent.store(true);
  name_lookup lookup({.host = "cache.test", .port = 7071},
                     silent[0].text() + "," + silent[1].text() + "," + silent[2].text());
  const auto begun = std::chrono::steady_clock::now();
  lookup.begin();
  EXPECT_FALSE(lookup.advance().has_value()) << "it does not wait";
  const result<address_list> found = wait_for(lookup);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(12));
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("Timeout"), std::string::npos) << found.error().message;
}

TEST(name_lookup, can_be_given_up_and_begun_again) {
  dns_server dns({"10.1.2.3"});
  dns.is_silent.store(true);
  name_lookup lookup({.host = "cache.test", .port = 7071}, dns.text());
  lookup.begin();
  EXPECT_FALSE(lookup.advance().has_value());
  lookup.cancel();
  EXPECT_FALSE(lookup.is_under_way());
  dns.is_silent.store(false);
  lookup.begin();
  lookup.begin();
  EXPECT_TRUE(wait_for(lookup).ok());
}

}  // namespace
}  // namespace far::backend
