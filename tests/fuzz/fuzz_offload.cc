// What runs in a memory server beside the data (server/offload.h), and functions of plugins (far/plugin.h), with
// arguments that a client may have made up: they are refused as a whole or understood the same way everywhere, no byte
// is touched outside the session's blocks and the result's room, and the answers are those of a plain loop over the
// numbers.
#include <array>
#include <cmath>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/number_types.h"
#include "far/plugin.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/questions_about_rows.h"
#include "fuzz/spoilt_answers.h"
#include "server/devices/function_calls.h"
#include "server/offload.h"
#include "server/store.h"
#include "wire/function.h"
#include "wire/reduction.h"
#include "wire/rows.h"

namespace far::fuzz {

namespace {

using detail::bits_of;
using detail::key_of;
using detail::number_of;

// Heap blocks, so that the address sanitizer sees what is read beside them.
class heap_blocks final : public server::block_source {
 public:
  std::byte* take(std::uint64_t /*number*/) override {
    return new (std::align_val_t{page_bytes}) std::byte[server::block_bytes]{};
  }
  void give_back(std::uint64_t /*number*/, std::byte* block) override {
    ::operator delete[](block, std::align_val_t{page_bytes});
  }
};

// Numbers of every kind: few and many different ones, fractions, infinities, NaN, zeros.
void fill(std::uint64_t slot, std::byte* page) {
  std::uint64_t state = slot + 1;
  for (std::size_t at = 0; at < page_bytes; at += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::uint64_t bits = state ^ state >> 29;
    switch (slot % 6) {
      case 0: break;
      case 1: bits &= 0x0303030303030303u; break;
      case 2: bits = bits_of(static_cast<double>(bits >> 56) - 100.5); break;
      case 3: bits = std::uint64_t{bits_of(static_cast<float>(bits & 0xff))} * 0x100000001u; break;
      case 4: bits |= 0x7fe000007f800000u; break;
      default: bits = bits % 5 == 0 ? bits >> 40 : 0; break;
    }
    std::memcpy(page + at, &bits, sizeof bits);
  }
}

// A session that holds blocks 0, 1 and 3.
struct lent_data {
  std::unique_ptr<server::store> from;
  server::attachment client;

  static lent_data make() {
    auto created =
        server::store::create({.memory_bytes = 8 * server::block_bytes, .quota_bytes = {}, .make_source = [] {
                                 return std::make_unique<heap_blocks>();
                               }});
    FUZZ_EXPECT(created.ok());
    std::unique_ptr<server::store> from = std::move(created).value();
    auto opened = from->open("offload", 0);
    FUZZ_EXPECT(opened.ok());
    server::attachment client = std::move(opened).value();
    FUZZ_EXPECT(client.to->allocate({0, 2}) == wire::status::ok);
    FUZZ_EXPECT(client.to->allocate({3, 1}) == wire::status::ok);
    for (std::uint64_t slot = 0; slot < 4 * wire::block_slots; ++slot) {
      std::byte* const page = client.to->address_of(slot);
      if (page != nullptr) fill(slot, page);
    }
    return {std::move(from), std::move(client)};
  }
};

const server::session& data() {
  static const lent_data lent = lent_data::make();
  return *lent.client.to;
}

template <typename T>
bool counts(const reduction& how, T number) {
  return number >= number_of<T>(how.lowest) && number <= number_of<T>(how.highest);
}

bool is_same(double found, double expected) {
  return found == expected || (std::isnan(found) && std::isnan(expected));
}

// Sums of fractions depend on the order, which page_reduction.h states.
template <typename T>
void expect_summary(const reduction& how, const std::vector<T>& all, const std::byte* answer) {
  reduced_numbers found;
  std::memcpy(&found, answer, sizeof found);
  std::array<double, 8> sums{};
  unsigned __int128 sum = 0;
  std::uint64_t count = 0;
  T least{};
  T greatest{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!counts(how, all[i])) continue;
    if constexpr (std::is_floating_point_v<T>) {
      sums[i % 8] += static_cast<double>(all[i]);
    } else {
      sum += static_cast<unsigned __int128>(static_cast<__int128>(all[i]));
    }
    least = count == 0 ? all[i] : std::min(least, all[i]);
    greatest = count == 0 ? all[i] : std::max(greatest, all[i]);
    ++count;
  }
  FUZZ_EXPECT(found.count == count);
  if constexpr (std::is_floating_point_v<T>) {
    double total = 0;
    for (const double one : sums) total += one;
    FUZZ_EXPECT(is_same(number_of<double>(found.sum), total));
  } else {
    FUZZ_EXPECT(found.sum == static_cast<std::uint64_t>(sum));
    FUZZ_EXPECT(found.upper_sum == static_cast<std::uint64_t>(sum >> 64));
  }
  if (count == 0) return;
  FUZZ_EXPECT(number_of<T>(found.least) == least && number_of<T>(found.greatest) == greatest);
}

template <typename T>
void put(byte_string& to, std::size_t at, T value) {
  FUZZ_EXPECT(at + sizeof value <= to.size());
  std::memcpy(to.data() + at, &value, sizeof value);
}

template <typename T>
void put_list(byte_string& to, std::uint64_t count, const std::vector<T>& listed) {
  put(to, 0, count);
  if (count * sizeof(T) > detail::listed_bytes) return;
  for (std::size_t i = 0; i < listed.size(); ++i) put(to, sizeof count + i * sizeof(T), listed[i]);
}

template <typename T>
byte_string expected_counts(const reduction& how, const std::vector<T>& all) {
  byte_string expected(found_bytes(how));
  std::vector<std::uint16_t> buckets(expected.size() / sizeof(std::uint16_t));
  for (const T number : all) {
    if (counts(how, number)) ++buckets.at((key_of(number) - key_of(number_of<T>(how.lowest))) >> how.shift);
  }
  std::memcpy(expected.data(), buckets.data(), expected.size());
  return expected;
}

byte_string expected_matches(const reduction& how, std::span<const std::byte> all) {
  byte_string expected(found_bytes(how));
  std::array<std::byte, detail::most_text_bytes> text{};
  std::memcpy(text.data(), &how.lowest, sizeof how.lowest);
  std::memcpy(text.data() + sizeof how.lowest, &how.highest, sizeof how.highest);
  std::vector<std::uint16_t> places;
  for (std::size_t at = 0; at + how.shift <= all.size(); ++at) {
    if (std::equal(text.begin(), text.begin() + how.shift, all.begin() + static_cast<std::ptrdiff_t>(at))) {
      places.push_back(static_cast<std::uint16_t>(at));
    }
  }
  const std::uint64_t count = places.size();
  std::memcpy(expected.data(), &count, sizeof count);
  if (count > (how.groups == 0 ? 56u : how.groups)) places.clear();
  for (std::size_t i = 0; i < places.size(); ++i) std::memcpy(&expected.at(8 + 2 * i), &places[i], sizeof places[i]);
  const std::size_t ends = expected.size() - 2 * text.size();
  for (std::size_t i = 0; i < std::min(all.size(), text.size()); ++i) {
    const std::size_t shown = std::min(all.size(), text.size());
    expected.at(ends + i) = all[i];
    expected.at(ends + 16 + i) = all[all.size() - shown + i];
  }
  return expected;
}

// The bits of group i, from `i * bits` on.
std::uint64_t group_at(const std::byte* packed, std::size_t i, unsigned bits) {
  std::uint64_t group = 0;
  for (std::size_t bit = 0; bit < bits; ++bit) {
    const std::size_t at = i * bits + bit;
    group |= (std::to_integer<std::uint64_t>(packed[at / 8]) >> at % 8 & 1) << bit;
  }
  return group;
}

template <typename T>
byte_string expected_groups(const reduction& how, const std::vector<T>& all, const std::byte* packed) {
  using wide = unsigned __int128;
  const auto bits = static_cast<unsigned>(std::bit_width(unsigned{how.groups}));
  std::vector<double> reals(how.groups);
  std::vector<wide> wholes(how.groups);
  std::vector<std::uint16_t> counts_of(how.groups);
  std::vector<std::pair<T, T>> bounds(how.groups);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint64_t group = group_at(packed, i, bits);
    if (group >= how.groups || !counts(how, all[i])) continue;
    if constexpr (std::is_floating_point_v<T>) {
      reals[group] += static_cast<double>(all[i]);
    } else {
      wholes[group] += static_cast<wide>(static_cast<__int128>(all[i]));
    }
    auto& [least, greatest] = bounds[group];
    least = counts_of[group] == 0 ? all[i] : std::min(least, all[i]);
    greatest = counts_of[group] == 0 ? all[i] : std::max(greatest, all[i]);
    ++counts_of[group];
  }
  byte_string expected(found_bytes(how));
  const std::size_t counts_at = expected.size() - (2 * std::size_t{how.groups} + 7) / 8 * 8;
  for (std::size_t group = 0; group < how.groups; ++group) {
    put(expected, counts_at + 2 * group, counts_of[group]);
    if (how.kind == reduction_kind::group_bounds) {
      put(expected, 2 * group * sizeof(T), bounds[group].first);
      put(expected, (2 * group + 1) * sizeof(T), bounds[group].second);
    } else if constexpr (std::is_floating_point_v<T>) {
      put(expected, 8 * group, reals[group]);
    } else if constexpr (sizeof(T) == 8) {
      put(expected, 16 * group, wholes[group]);
    } else {
      put(expected, 8 * group, static_cast<std::uint64_t>(wholes[group]));
    }
  }
  return expected;
}

// Of every kind but the summary.
template <typename T>
byte_string expected_answer(const reduction& how, const std::vector<T>& all, const std::byte* groups) {
  if (how.kind == reduction_kind::counts) return expected_counts(how, all);
  if (detail::has_groups(how.kind)) return expected_groups(how, all, groups);
  byte_string expected(found_bytes(how));
  std::vector<T> within;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!counts(how, all[i])) continue;
    within.push_back(all[i]);
    if (how.kind == reduction_kind::marks) expected.at(i / 8) |= static_cast<std::byte>(1u << i % 8);
  }
  if (how.kind == reduction_kind::matches) return expected_matches(how, std::as_bytes(std::span(all)));
  if (how.kind == reduction_kind::values) put_list(expected, within.size(), within);
  if (how.kind == reduction_kind::distinct) {
    std::set<std::uint64_t> keys;
    for (const T number : within) keys.insert(key_of(number));
    std::vector<T> different;
    for (const std::uint64_t key : keys) different.push_back(detail::number_with_key<T>(key));
    put_list(expected, std::min(keys.size(), detail::listed_bytes / sizeof(T) + 1), different);
  }
  return expected;
}

// A sum that is not a number may have any of their bits.
void expect_same_sums(const byte_string& expected, const std::byte* answer) {
  for (std::size_t at = 0; at < expected.size(); at += 8) {
    std::uint64_t one = 0;
    std::uint64_t other = 0;
    std::memcpy(&one, expected.data() + at, sizeof one);
    std::memcpy(&other, answer + at, sizeof other);
    FUZZ_EXPECT(one == other || (std::isnan(number_of<double>(one)) && std::isnan(number_of<double>(other))));
  }
}

void expect_answer(const reduction& how, std::span<const std::byte> numbers, const std::byte* groups,
                   const std::byte* answer) {
  with_number_type(how.type, [&](auto number) {
    using T = decltype(number);
    std::vector<T> all(numbers.size() / sizeof(T));
    std::memcpy(all.data(), numbers.data(), all.size() * sizeof(T));
    if (how.kind == reduction_kind::summary) return expect_summary(how, all, answer);
    const byte_string expected = expected_answer(how, all, groups);
    if (std::is_floating_point_v<T> && how.kind == reduction_kind::group_sums)
      return expect_same_sums(expected, answer);
    FUZZ_EXPECT(std::equal(expected.begin(), expected.end(), answer));
  });
}

void expect_answers(std::span<const std::byte> arguments, std::span<const std::byte> result) {
  const std::optional<wire::reduction_request> asked = wire::decode_reduction(arguments);
  FUZZ_EXPECT(asked && result.size() == asked->ranges.count * answer_bytes(asked->how));
  const std::byte* at = result.data();
  const std::byte* groups = asked->groups;
  for (const wire::range& one : asked->ranges.all()) {
    const std::byte* const page = data().address_of(one.slot);
    expect_answer(asked->how, {page + one.offset_bytes, one.length_bytes}, groups, at);
    FUZZ_EXPECT(is_possible_of_page(asked->how, one.length_bytes, at));
    expect_no_reach(asked->how, one.length_bytes, at);
    if (groups != nullptr) groups += packed_group_bytes(asked->how, one.length_bytes);
    std::uint64_t check = 0;
    std::memcpy(&check, at + found_bytes(asked->how), sizeof check);
    FUZZ_EXPECT(check == hash_of_pieces(asked->hash, page));
    at += answer_bytes(asked->how);
  }
}

// The bytes of the ranges; false: some are not allocated.
bool collect(std::span<const wire::range> ranges, byte_string& into) {
  for (const wire::range& one : ranges) {
    for (std::uint64_t done = 0; done < one.length_bytes;) {
      const std::uint64_t at = one.offset_bytes + done;
      const std::byte* const page = data().address_of(one.slot + at / page_bytes);
      if (page == nullptr) return false;
      const std::uint64_t step = std::min(one.length_bytes - done, page_bytes - at % page_bytes);
      into.insert(into.end(), page + at % page_bytes, page + at % page_bytes + step);
      done += step;
    }
  }
  return true;
}

void call(const server::offload& tested, std::span<const std::byte> given) {
  const tight_copy arguments(given);
  const auto room = std::make_unique_for_overwrite<std::byte[]>(wire::maximum_payload_bytes);
  const std::span<std::byte> result(room.get(), wire::maximum_payload_bytes);
  wire::batch ranges;
  const bool is_accepted = tested.ranges_of(arguments.all(), &ranges);
  const server::offload::outcome found = tested.run(data(), arguments.all(), result);
  FUZZ_EXPECT(is_accepted == (found.result != wire::status::call_failed));
  if (!is_accepted) return;
  FUZZ_EXPECT(ranges.count > 0 && ranges.count <= wire::maximum_batch);
  byte_string bytes;
  const bool is_allocated = collect(ranges.all(), bytes);
  FUZZ_EXPECT(found.result == (is_allocated ? wire::status::ok : wire::status::not_allocated));
  if (!is_allocated) return;
  FUZZ_EXPECT(found.result_bytes <= result.size() && found.touched_bytes >= bytes.size());
  if (tested.name() == wire::reduction_name) return expect_answers(arguments.all(), result.first(found.result_bytes));
  if (tested.name() == wire::rows_name) {
    return expect_answers_about_rows(data(), arguments.all(), result.first(found.result_bytes));
  }
  std::uint64_t checksum = 0;
  FUZZ_EXPECT(found.result_bytes == sizeof checksum);
  std::memcpy(&checksum, result.data(), sizeof checksum);
  FUZZ_EXPECT(checksum == wire::checksum(bytes));
}

// Mostly as many as there are numbers.
void append_groups(choices& input, const reduction& how, std::span<const wire::range> ranges, byte_string& payload) {
  std::size_t bytes = input.number<std::uint8_t>() == 0xff ? 8 : 0;
  for (const wire::range& one : ranges) {
    bytes += packed_group_bytes({.type = how.type, .groups = std::max<std::uint8_t>(how.groups, 1)}, one.length_bytes);
  }
  std::uint64_t state = input.number<std::uint64_t>();
  for (std::size_t at = 0; at < bytes; at += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto* const word = reinterpret_cast<const std::byte*>(&state);
    payload.insert(payload.end(), word, word + sizeof state);
  }
}

// A question that mostly makes sense: the fields come from the input, its ranges lie near what is allocated.
byte_string question(choices& input) {
  reduction how;
  how.type = static_cast<detail::number_type>(input.number<std::uint8_t>() % 10);
  how.kind = static_cast<reduction_kind>(input.number<std::uint8_t>() % 8);
  const bool has_shift = how.kind == reduction_kind::counts || how.kind == reduction_kind::matches;
  how.shift = static_cast<std::uint8_t>(has_shift ? input.number<std::uint8_t>() % 65 : 0);
  if (detail::has_groups(how.kind)) how.groups = input.number<std::uint8_t>();
  // Room for some places.
  if (how.kind == reduction_kind::matches) how.groups = how.shift % 3 == 0 ? how.shift : 0;
  how.lowest = input.number<std::uint64_t>();
  how.highest = input.number<std::uint64_t>();
  const page_hasher hash{input.number<std::uint8_t>()};
  const std::size_t unit = number_bytes(how.type);
  std::vector<wire::range> ranges(1 + input.number<std::uint8_t>() % wire::maximum_batch);
  for (wire::range& one : ranges) {
    one.slot = input.number<std::uint16_t>() % (5 * wire::block_slots);
    one.offset_bytes = static_cast<std::uint32_t>(input.number<std::uint16_t>() % page_bytes / unit * unit);
    const std::uint64_t most = (page_bytes - one.offset_bytes) / unit;
    const auto length = input.number<std::uint16_t>();
    one.length_bytes = static_cast<std::uint32_t>((1 + length % most) * unit);
    // Now and then several slots, mostly as a whole.
    if (length % 8 == 0) one.length_bytes += static_cast<std::uint32_t>(length / 64 % 9 * page_bytes);
    if (length % 16 == 0) one.length_bytes = std::max<std::uint32_t>(one.length_bytes / page_bytes, 1) * page_bytes;
    if (length % 32 == 0) one.offset_bytes = 0;
  }
  byte_string payload(wire::call_header_bytes + wire::reduction_bytes + 8 + ranges.size() * wire::range_bytes);
  const bool joins = how.lowest % 2 == 0;
  payload.resize(wire::encode_reduction({how, &hash}, ranges, joins, payload));
  payload.erase(payload.begin(), payload.begin() + wire::call_header_bytes);
  if (detail::has_groups(how.kind)) append_groups(input, how, ranges, payload);
  return payload;
}

// A function of a plugin (far/plugin.h), whose result depends on each byte and its place.
struct mixed {
  static constexpr const char* plugin = "fuzz";
  static constexpr const char* version = "1.0";
  static constexpr std::uint32_t number = 1;
  using element = std::uint16_t;
  struct arguments {
    std::uint64_t factor = 0;
  };
  struct result {
    std::uint64_t sum = 0;
    std::uint32_t count = 0;
  };
  static result map(std::span<const std::uint16_t> part, const arguments& with) {
    result found;
    for (const std::uint16_t one : part) found.sum = found.sum * with.factor + one;
    found.count = static_cast<std::uint32_t>(part.size());
    return found;
  }
  static void combine(result& all, const result& next) { all.count += next.count; }
};
constexpr std::size_t mixed_bytes = plugin::detail::result_bytes_of<mixed>;

// What the plugin answers; nothing: it refuses.
std::optional<byte_string> ask_plugin(std::span<const std::byte> given) {
  const tight_copy arguments(given);
  byte_string said;
  const far_device_output into{&said, [](void* context, const void* bytes, std::size_t size) {
                                 auto& all = *static_cast<byte_string*>(context);
                                 const auto* const first = static_cast<const std::byte*>(bytes);
                                 all.insert(all.end(), first, first + size);
                                 return 0;
                               }};
  try {
    plugin::output collected(&into);
    plugin::detail::map_parts<mixed>(arguments.all(), collected);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  return said;
}

// From the payload of a client to the arguments of the plugin and what it answers.
void call_function(std::span<const std::byte> given) {
  const tight_copy payload(given);
  const std::optional<wire::function_request> asked = wire::decode_function(payload.all());
  if (!asked) return;
  FUZZ_EXPECT(asked->ranges.count > 0 && asked->ranges.count <= wire::maximum_batch);
  const auto room = std::make_unique_for_overwrite<std::byte[]>(server::gathered_bytes(*asked));
  const std::span<std::byte> arguments(room.get(), server::gathered_bytes(*asked));
  std::vector<std::uint64_t> checks;
  byte_string bytes;
  const bool is_allocated = server::gather(data(), *asked, checks, arguments);
  FUZZ_EXPECT(is_allocated == collect(asked->ranges.all(), bytes));
  if (!is_allocated) return;
  const std::span<const wire::range> ranges = asked->ranges.all();
  FUZZ_EXPECT(checks.size() == ranges.size());
  const bool fits = asked->element_bytes == sizeof(mixed::element) && asked->result_bytes == mixed_bytes &&
                    asked->arguments.size() == sizeof(mixed::arguments) &&
                    std::ranges::all_of(ranges, [](const wire::range& one) { return one.length_bytes % 2 == 0; });
  const std::optional<byte_string> said = ask_plugin(arguments);
  FUZZ_EXPECT(said.has_value() == fits);
  if (!fits) return;
  FUZZ_EXPECT(said->size() == sizeof(std::uint64_t) + ranges.size() * mixed_bytes);
  mixed::arguments with;
  std::memcpy(&with, asked->arguments.data(), sizeof with);
  const std::byte* at = bytes.data();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::byte* const page = data().address_of(ranges[i].slot);
    FUZZ_EXPECT(checks[i] == hash_of_pieces(asked->hash, page));
    std::vector<std::uint16_t> part(ranges[i].length_bytes / 2);
    std::memcpy(part.data(), at, ranges[i].length_bytes);
    at += ranges[i].length_bytes;
    const mixed::result expected = mixed::map(part, with);
    mixed::result found;
    std::memcpy(&found, said->data() + sizeof(std::uint64_t) + i * mixed_bytes, sizeof found);
    FUZZ_EXPECT(found.sum == expected.sum && found.count == expected.count);
  }
}

// A call that mostly makes sense.
byte_string function_question(choices& input) {
  const auto mostly = [&](std::uint32_t right) {
    const auto chosen = input.number<std::uint8_t>();
    return chosen < 240 ? right : right + chosen - 247;
  };
  std::array<char, 32> name{"fuzz"};
  std::array<char, 32> version{"1.0"};
  name[input.number<std::uint8_t>() % 64 / 2] ^= static_cast<char>(input.number<std::uint8_t>() == 0xff ? 1 : 0);
  detail::page_function function{.plugin = name,
                                 .version = version,
                                 .number = mixed::number,
                                 .element_bytes = mostly(sizeof(mixed::element)),
                                 .result_bytes = mostly(mixed_bytes),
                                 .argument_bytes = mostly(sizeof(mixed::arguments))};
  const auto factor = input.number<std::uint64_t>();
  std::memcpy(function.arguments.data(), &factor, sizeof factor);
  const page_hasher hash{input.number<std::uint8_t>()};
  std::vector<wire::range> ranges(1 + input.number<std::uint8_t>() % wire::maximum_batch);
  for (wire::range& one : ranges) {
    one.slot = input.number<std::uint16_t>() % (5 * wire::block_slots);
    one.offset_bytes = static_cast<std::uint32_t>(input.number<std::uint16_t>() % page_bytes);
    const std::uint64_t most = page_bytes - one.offset_bytes;
    one.length_bytes = static_cast<std::uint32_t>(1 + input.number<std::uint16_t>() % most);
    if (input.number<std::uint8_t>() < 250) one.length_bytes = one.length_bytes / 2 * 2;
    if (one.length_bytes == 0) one.length_bytes = 1;
  }
  byte_string payload(wire::call_header_bytes + wire::most_function_bytes + ranges.size() * wire::range_bytes);
  const page_reduction asked{{.kind = reduction_kind::computed, .function = &function}, &hash};
  payload.resize(wire::encode_function(asked, ranges, input.number<std::uint8_t>(), payload));
  payload.erase(payload.begin(), payload.begin() + wire::call_header_bytes);
  // What a client has changed on the way.
  for (std::uint8_t changes = input.number<std::uint8_t>() % 4; changes > 0 && input.number<std::uint8_t>() > 128;
       --changes) {
    payload[input.number<std::uint16_t>() % payload.size()] = static_cast<std::byte>(input.number<std::uint8_t>());
  }
  return payload;
}

}  // namespace

std::vector<byte_string> seeds() {
  std::vector<byte_string> all;
  const auto add = [&](detail::number_type type, reduction_kind kind, std::uint8_t shift, std::uint64_t lowest,
                       std::uint64_t highest) {
    for (std::uint16_t slot = 0; slot < 6; ++slot) {
      recipe made;
      made.number(std::uint8_t{0}).number(static_cast<std::uint8_t>(type)).number(static_cast<std::uint8_t>(kind));
      if (kind == reduction_kind::counts || kind == reduction_kind::matches) made.number(shift);
      if (detail::has_groups(kind)) made.number(shift);
      made.number(lowest).number(highest).number(std::uint8_t{7}).number(std::uint8_t{1});
      made.number(slot).number(std::uint16_t{0}).number(std::uint16_t{511});
      made.number(static_cast<std::uint16_t>(1535 + slot)).number(std::uint16_t{24}).number(std::uint16_t{100});
      all.push_back(made.bytes());
    }
  };
  using detail::number_type;
  for (unsigned kind = 0; kind < 5; ++kind) {
    const auto what = static_cast<reduction_kind>(kind);
    add(number_type::int8, what, 0, bits_of(std::int8_t{-3}), bits_of(std::int8_t{100}));
    add(number_type::int64, what, 56, bits_of(std::int64_t{-1} << 62), bits_of(std::int64_t{1} << 62));
    add(number_type::uint16, what, 8, 0, 0xffff);
    add(number_type::float32, what, 24, bits_of(-1e30f), bits_of(200.0f));
    add(number_type::float64, what, 56, bits_of(-60.5), bits_of(INFINITY));
  }
  for (const std::uint8_t length : std::to_array<std::uint8_t>({1, 2, 7, 16, 17})) {
    add(number_type::uint8, reduction_kind::matches, length, 0, 0);
    add(number_type::int8, reduction_kind::matches, length, 0x0303030303030303u, 0x0303030303030303u);
  }
  for (const reduction_kind kind : {reduction_kind::group_sums, reduction_kind::group_bounds}) {
    for (const std::uint8_t groups : std::to_array<std::uint8_t>({0, 1, 7, 35, 63, 64, 255})) {
      add(number_type::float64, kind, groups, bits_of(-60.5), bits_of(INFINITY));
      add(number_type::uint64, kind, groups, 0, ~std::uint64_t{0});
      add(number_type::int8, kind, groups, bits_of(std::int8_t{-3}), bits_of(std::int8_t{100}));
    }
  }
  add_seeds_about_rows(all);
  for (const std::uint8_t first : std::to_array<std::uint8_t>({64, 65, 66})) {
    for (std::uint16_t slot = 0; slot < 6; ++slot) {
      recipe made;
      made.number(first).number(std::uint16_t{0}).number(std::uint8_t{0}).number(std::uint16_t{0});
      made.number(std::uint64_t{31}).number(std::uint8_t{7}).number(std::uint8_t{1});
      made.number(slot).number(std::uint16_t{0}).number(std::uint16_t{4095}).number(std::uint8_t{0});
      made.number(static_cast<std::uint16_t>(1535 + slot)).number(std::uint16_t{25}).number(std::uint16_t{101});
      all.push_back(made.bytes());
    }
  }
  byte_string arguments(192);
  const std::uint64_t mark = FAR_FUNCTION_MARK;
  std::memcpy(arguments.data(), &mark, sizeof mark);
  const std::array<std::uint32_t, 8> numbers{2, mixed_bytes, 8, 2, 31, 0, 64, 10};
  std::memcpy(arguments.data() + sizeof mark, numbers.data(), sizeof numbers);
  all.push_back(recipe().number(std::uint8_t{66}).append(arguments).bytes());
  // As it comes from a client: a checksum over the end of a block, and a reduction that is cut short.
  const std::array<wire::range, 2> ranges{{{511, 4000, 5000}, {1, 2, 3}}};
  byte_string payload(8 + ranges.size() * wire::range_bytes);
  payload.resize(wire::encode_read(ranges, payload));
  all.push_back(recipe().number(std::uint8_t{1}).append(payload).bytes());
  all.push_back(recipe().number(std::uint8_t{2}).append(byte_string(wire::reduction_bytes)).append(payload).bytes());
  return all;
}

}  // namespace far::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  far::fuzz::choices input({reinterpret_cast<const std::byte*>(data), bytes});
  const std::uint8_t chosen = input.number<std::uint8_t>();
  if (chosen / 64 == 1) {
    switch (chosen % 3) {
      case 0: static_cast<void>(far::fuzz::ask_plugin(input.take(bytes))); break;
      case 1: far::fuzz::call_function(far::fuzz::function_question(input)); break;
      default: far::fuzz::call_function(input.take(bytes)); break;
    }
    return 0;
  }
  if (chosen / 64 == 2) {
    const far::server::offload* const group = far::server::find_offload(far::wire::rows_name);
    FUZZ_EXPECT(group != nullptr);
    far::fuzz::call(*group, chosen % 2 == 0 ? far::fuzz::question_about_rows(input) : input.take(bytes));
    return 0;
  }
  if (chosen % 3 == 0) {
    const far::server::offload* const reduce = far::server::find_offload(far::wire::reduction_name);
    FUZZ_EXPECT(reduce != nullptr);
    far::fuzz::call(*reduce, far::fuzz::question(input));
    return 0;
  }
  const auto all = far::server::built_in_offloads();
  far::fuzz::call(*all[(chosen % 3 - 1u) % all.size()], input.take(bytes));
  return 0;
}
