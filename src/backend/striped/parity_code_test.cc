#include "backend/striped/parity_code.h"

#include <gtest/gtest.h>
#include <isa-l/erasure_code.h>

#include <random>
#include <vector>

#include "backend/striped/galois.h"

namespace far::backend {
namespace {

constexpr std::size_t page = 1003;  // no multiple of what is computed at once

std::vector<std::vector<std::byte>> random_row(const parity_code& code, std::mt19937_64& random) {
  std::vector<std::vector<std::byte>> row(code.shape().places(), std::vector<std::byte>(page));
  std::vector<const std::byte*> data;
  for (std::size_t i = 0; i < code.shape().data; ++i) {
    for (std::byte& byte : row[i]) byte = static_cast<std::byte>(random());
    data.push_back(row[i].data());
  }
  for (std::size_t i = 0; i < code.shape().parity; ++i) {
    code.encode(i, data, row[code.shape().data + i].data(), page);
  }
  return row;
}

TEST(galois, products_are_those_of_isa_l) {
  for (unsigned a = 0; a < 256; ++a) {
    for (unsigned b = 0; b < 256; ++b) {
      ASSERT_EQ(galois::multiply(static_cast<std::uint8_t>(a), static_cast<std::uint8_t>(b)),
                gf_mul(static_cast<unsigned char>(a), static_cast<unsigned char>(b)));
    }
    if (a != 0) {
      ASSERT_EQ(galois::inverse(static_cast<std::uint8_t>(a)), gf_inv(static_cast<unsigned char>(a)));
    }
  }
}

TEST(galois, long_products_are_those_of_their_bytes) {
  std::mt19937_64 random(3);
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{4099}}) {
    for (unsigned factor = 0; factor < 256; ++factor) {
      std::vector<std::byte> from(count);
      std::vector<std::byte> into(count);
      for (std::byte& byte : from) byte = static_cast<std::byte>(random());
      for (std::byte& byte : into) byte = static_cast<std::byte>(random());
      std::vector<std::byte> expected = into;
      for (std::size_t i = 0; i < count; ++i) {
        expected[i] ^= static_cast<std::byte>(
            galois::multiply(static_cast<std::uint8_t>(from[i]), static_cast<std::uint8_t>(factor)));
      }
      galois::add_multiple(into.data(), from.data(), static_cast<std::uint8_t>(factor), count);
      ASSERT_TRUE(into == expected) << factor << " of " << count;
    }
  }
}

TEST(parity_code, parity_is_that_of_isa_l) {
  std::mt19937_64 random(5);
  for (std::size_t data = 2; data <= most_data; ++data) {
    const parity_code code({data, 2});
    auto row = random_row(code, random);
    std::vector<unsigned char> matrix((data + 2) * data);
    gf_gen_rs_matrix(matrix.data(), static_cast<int>(data + 2), static_cast<int>(data));
    std::vector<unsigned char> tables(32 * data * 2);
    ec_init_tables(static_cast<int>(data), 2, matrix.data() + data * data, tables.data());
    std::vector<std::vector<unsigned char>> parity(2, std::vector<unsigned char>(page));
    std::vector<unsigned char*> sources;
    for (std::size_t i = 0; i < data; ++i) sources.push_back(reinterpret_cast<unsigned char*>(row[i].data()));
    unsigned char* into[] = {parity[0].data(), parity[1].data()};
    ec_encode_data(page, static_cast<int>(data), 2, tables.data(), sources.data(), into);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(std::memcmp(row[data + i].data(), parity[i].data(), page), 0) << data << "+2, parity " << i;
    }
  }
}

// Every page, from every choice of sources without it.
TEST(parity_code, any_data_pages_give_each_other_page) {
  std::mt19937_64 random(7);
  for (std::size_t data = 2; data <= most_data; ++data) {
    for (std::size_t parity = 1; parity <= most_parity; ++parity) {
      const parity_code code({data, parity});
      const auto row = random_row(code, random);
      const std::size_t places = data + parity;
      for (unsigned choice = 0; choice < 1u << places; ++choice) {
        if (static_cast<std::size_t>(std::popcount(choice)) != data) continue;
        std::vector<std::uint8_t> sources;
        for (std::size_t i = 0; i < places; ++i) {
          if ((choice >> i & 1) != 0) sources.push_back(static_cast<std::uint8_t>(i));
        }
        for (std::size_t wanted = 0; wanted < places; ++wanted) {
          if ((choice >> wanted & 1) != 0) continue;
          const parity_code::factors factors = code.recover(sources, wanted);
          std::vector<std::byte> found(page);
          for (std::size_t i = 0; i < data; ++i) {
            galois::add_multiple(found.data(), row[sources[i]].data(), factors[i], page);
          }
          ASSERT_TRUE(found == row[wanted]) << data << "+" << parity << ": page " << wanted;
        }
      }
    }
  }
}

TEST(parity_code, a_page_that_is_not_there_is_one_of_zeros) {
  const parity_code code({4, 2});
  std::vector<std::byte> zeros(page);
  std::vector<std::byte> bytes(page, std::byte{0x5a});
  const std::byte* with_zeros[] = {bytes.data(), zeros.data(), bytes.data(), zeros.data()};
  const std::byte* without[] = {bytes.data(), nullptr, bytes.data(), nullptr};
  for (std::size_t number = 0; number < 2; ++number) {
    std::vector<std::byte> expected(page);
    std::vector<std::byte> found(page, std::byte{1});
    code.encode(number, with_zeros, expected.data(), page);
    code.encode(number, without, found.data(), page);
    EXPECT_TRUE(found == expected);
  }
}

}  // namespace
}  // namespace far::backend
