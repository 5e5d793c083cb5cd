#include "server/token_book.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace far::server {
namespace {

const std::string token = "0123456789abcdef0123456789abcdef";

TEST(TokenBook, LinesNameTenants) {
  const result<token_book> book =
      token_book::parse("# who may come\n\nalice " + token + "\r\n  bob\t" + token + "2  \n" + token + "3", "f");
  ASSERT_TRUE(book.ok()) << book.error().message;
  EXPECT_EQ(book.value().tokens_of("alice"), std::vector{token});
  EXPECT_EQ(book.value().tokens_of("bob"), std::vector{token + "2"});
  EXPECT_EQ(book.value().tokens_of("default"), std::vector{token + "3"});
  EXPECT_TRUE(book.value().tokens_of("carol").empty());
  EXPECT_FALSE(book.value().empty());
}

TEST(TokenBook, WhatMakesNoSenseIsNamedWithoutItsToken) {
  for (const std::string& text :
       {std::string(), std::string("\n#\n"), std::string("short"), "a/b " + token, "alice " + token + " " + token,
        "alice " + token + "\nalice " + token + "2\nalice " + token + "3", "alice " + std::string(2000, 'x')}) {
    const result<token_book> book = token_book::parse(text, "the-file");
    ASSERT_FALSE(book.ok()) << text;
    EXPECT_NE(book.error().message.find("the-file"), std::string::npos);
    EXPECT_EQ(book.error().message.find(token), std::string::npos);
    EXPECT_EQ(book.error().message.find('\n'), std::string::npos);
  }
}

TEST(TokenBook, ATokenIsReplacedWhileBothAreValid) {
  result<token_book> book = token_book::parse("alice " + token + "\nalice " + token + "2\n", "test");
  ASSERT_TRUE(book.ok()) << book.error().message;
  EXPECT_EQ(book.value().tokens_of("alice"), (std::vector{token, token + "2"}));
}

TEST(TokenBook, AnotherBookTakesItsPlaceWhileOthersLookIntoIt) {
  token_book used = std::move(token_book::parse("alice " + token, "test")).value();
  std::atomic<bool> ends{false};
  std::thread reader([&] {
    while (!ends) {
      const std::vector<std::string> seen = used.tokens_of("alice");
      ASSERT_EQ(seen.size(), 1u);
      ASSERT_TRUE(seen[0] == token || seen[0] == token + "2");
    }
  });
  for (int i = 0; i < 1000; ++i) {
    used = std::move(token_book::parse("alice " + token + (i % 2 == 0 ? "2" : ""), "test")).value();
  }
  ends = true;
  reader.join();
  EXPECT_EQ(used.tokens_of("alice"), std::vector{token});
}

TEST(TokenBook, AFileThatOthersCanReadIsRefused) {
  const std::string path = testing::TempDir() + "farheapd-token-book-test";
  std::ofstream(path) << token << "\n";
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  const result<token_book> open = token_book::read(path);
  ASSERT_FALSE(open.ok());
  EXPECT_NE(open.error().message.find("chmod 600"), std::string::npos);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_TRUE(token_book::read(path).ok());
  EXPECT_FALSE(token_book::read(testing::TempDir()).ok()) << "a directory";
  std::remove(path.c_str());
  EXPECT_FALSE(token_book::read(path).ok()) << "not there";
}

}  // namespace
}  // namespace far::server
