#include "preload/call_sites.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace far::preload {
namespace {

using bytes = std::vector<std::uint8_t>;

const bytes load_39{0xb8, 39, 0, 0, 0};
const bytes call{0x0f, 0x05};
const bytes compare_rax_4096{0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff};
const bytes compare_rax_4095{0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff};
const bytes compare_eax_4096{0x3d, 0x00, 0xf0, 0xff, 0xff};
const bytes compare_other{0x48, 0x3d, 0x00, 0x00, 0xff, 0xff};

// Code that does nothing of interest around `parts`.
bytes code_of(std::initializer_list<bytes> parts) {
  constexpr std::size_t padding = 300;
  bytes code(padding, 0x90);
  for (const bytes& part : parts) code.insert(code.end(), part.begin(), part.end());
  code.insert(code.end(), padding, 0x90);
  return code;
}

constexpr std::size_t first = 300;

bool none_stays(long /*number*/) {
  return false;
}

std::vector<call_site> find(const bytes& code) {
  return find_call_sites(code, none_stays);
}

TEST(call_sites_test, finds_calls_whose_result_is_compared) {
  for (const auto& [compare, kind] :
       {std::pair{compare_rax_4096, site_kind::rax_with_4096}, std::pair{compare_rax_4095, site_kind::rax_with_4095},
        std::pair{compare_eax_4096, site_kind::eax_with_4096}}) {
    const std::vector<call_site> found = find(code_of({call, compare}));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].at, first);
    EXPECT_EQ(found[0].kind, kind);
    EXPECT_EQ(found[0].bytes(), call.size() + compare.size());
  }
  EXPECT_TRUE(find(code_of({call, compare_other})).empty());
  EXPECT_TRUE(find(code_of({call})).empty()) << "there is no room for a jump";
}

TEST(call_sites_test, finds_calls_whose_number_is_known) {
  const std::vector<call_site> found = find(code_of({load_39, call}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at, first);
  EXPECT_EQ(found[0].kind, site_kind::numbered);
  EXPECT_EQ(found[0].bytes(), 7u);
  EXPECT_TRUE(find(code_of({{0x41}, load_39, call})).empty()) << "that is another register";
  EXPECT_TRUE(
      find_call_sites(code_of({load_39, call, compare_rax_4096}), [](long number) { return number == 39; }).empty());
}

TEST(call_sites_test, an_instruction_at_the_end_is_not_read_past) {
  bytes code = code_of({});
  code.insert(code.end(), call.begin(), call.end());
  for (const std::uint8_t next : compare_rax_4096) {
    EXPECT_TRUE(find(code).empty()) << code.size();
    code.push_back(next);
  }
  EXPECT_EQ(find(code).size(), 1u);
}

TEST(call_sites_test, leaves_what_is_jumped_into) {
  // Back to the comparison, by each form.
  EXPECT_TRUE(find(code_of({call, compare_rax_4096, {0x77, 0xf8}})).empty());
  EXPECT_TRUE(find(code_of({call, compare_rax_4096, {0xeb, 0xf8}})).empty());
  EXPECT_TRUE(find(code_of({call, compare_rax_4096, {0xe9, 0xf5, 0xff, 0xff, 0xff}})).empty());
  EXPECT_TRUE(find(code_of({call, compare_rax_4096, {0x0f, 0x87, 0xf4, 0xff, 0xff, 0xff}})).empty());
  EXPECT_TRUE(find(code_of({{0x74, 0x02}, call, compare_rax_4096})).empty()) << "forward";
  EXPECT_TRUE(find(code_of({{0x74, 0x05}, load_39, call})).empty()) << "to the call behind the load";
  // To the call itself, as loops do; and to what comes after.
  EXPECT_EQ(find(code_of({call, compare_rax_4096, {0x77, 0xf6}})).size(), 1u);
  EXPECT_EQ(find(code_of({{0x74, 0x08}, call, compare_rax_4096})).size(), 1u);
}

TEST(call_sites_test, a_far_jump_from_anywhere_counts) {
  bytes code = code_of({call, compare_rax_4096});
  code.resize(100'000, 0x90);
  ASSERT_EQ(find(code).size(), 1u);
  const std::size_t at = 90'000;
  const auto distance =
      static_cast<std::int32_t>(static_cast<std::int64_t>(first + 2) - static_cast<std::int64_t>(at + 5));
  code[at] = 0xe9;
  std::memcpy(&code[at + 1], &distance, sizeof distance);
  EXPECT_TRUE(find(code).empty());
  code[at] = 0x90;
  EXPECT_EQ(find(code).size(), 1u) << "no jump";
}

TEST(call_sites_test, finds_all_in_order) {
  const std::vector<call_site> found =
      find(code_of({load_39, call, {0xc3}, call, compare_rax_4095, {0xc3}, call, compare_eax_4096}));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end(), [](auto& a, auto& b) { return a.at < b.at; }));
}

TEST(call_sites_test, writes_jumps) {
  bytes site = call;
  site.insert(site.end(), compare_rax_4096.begin(), compare_rax_4096.end());
  write_jump(site, site_kind::rax_with_4096, 0x1000, 0x2005);
  EXPECT_EQ(site, (bytes{0xe9, 0x00, 0x10, 0, 0, 0xcc, 0xcc, 0xcc}));
  bytes numbered{0xb8, 0x44, 0x01, 0, 0, 0x0f, 0x05};
  write_jump(numbered, site_kind::numbered, 0x2000, 0x1000);
  EXPECT_EQ(numbered, (bytes{0xe9, 0xfb, 0xef, 0xff, 0xff, 0x44, 0x01})) << "the number comes after the jump";
}

TEST(call_sites_test, knows_how_far_a_jump_reaches) {
  constexpr std::uintptr_t here = 0x7f0000000000;
  constexpr std::uintptr_t most = 0x80000000;
  EXPECT_TRUE(is_near(here, here + 5 + most - 1));
  EXPECT_FALSE(is_near(here, here + 5 + most));
  EXPECT_TRUE(is_near(here, here + 5 - most));
  EXPECT_FALSE(is_near(here, here + 4 - most));
}

}  // namespace
}  // namespace far::preload
