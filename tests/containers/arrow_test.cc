// All types of Arrow's C data interface into data frames, by structs as other libraries make them, and streams. Needs
// permission for userfaultfd.
#include "far/arrow.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/units.h"
#include "far/dataframe.h"
#include "far/runtime.h"
#include "tests/support/real_pager.h"

namespace far {
namespace {

// A release() of what the test frees itself.
template <typename Struct>
void keep(Struct*) {}

class arrow_import : public heap::real_pager_test<> {
 protected:
  arrow_import() {
    runtime_options chosen = heap::small_runtime(16 * mib);
    chosen.far = "memory:";
    home_ = std::make_unique<runtime>(chosen);
  }

  // A table with one column "x" of this format, of these buffers behind the bitmap of values.
  struct one_column {
    std::string format;
    std::vector<const void*> buffers;
    std::int64_t length;
    std::vector<std::uint8_t> valid = {0xff, 0xff};
    ArrowSchema* dictionary_schema = nullptr;
    ArrowArray* dictionary = nullptr;
  };
  dataframe imported(const one_column& from) {
    dataframe frame(*home_);
    append(from, frame);
    return frame;
  }
  static void append(const one_column& from, dataframe& to) {
    std::vector<const void*> buffers = {from.valid.data()};
    buffers.insert(buffers.end(), from.buffers.begin(), from.buffers.end());
    ArrowSchema column_schema{
        from.format.c_str(), "x",    nullptr, ARROW_FLAG_NULLABLE, 0, nullptr, from.dictionary_schema,
        keep<ArrowSchema>,   nullptr};
    ArrowArray column{from.length,    -1,      0,       std::ssize(buffers), 0,
                      buffers.data(), nullptr, nullptr, keep<ArrowArray>,    nullptr};
    column.dictionary = from.dictionary;
    ArrowSchema* schemas[] = {&column_schema};
    ArrowArray* columns[] = {&column};
    const void* no_bitmap[] = {nullptr};
    const ArrowSchema schema{"+s", "", nullptr, 0, 1, schemas, nullptr, keep<ArrowSchema>, nullptr};
    const ArrowArray array{from.length, 0, 0, 1, 1, no_bitmap, columns, nullptr, keep<ArrowArray>, nullptr};
    import_from_arrow(schema, array, to);
  }
  std::vector<cell> cells(const one_column& from) {
    const dataframe frame = imported(from);
    std::vector<cell> all;
    for (std::size_t row = 0; row < frame.rows(); ++row) all.push_back(frame["x"].at(row));
    return all;
  }
  template <typename T>
  void expect_integers(const char* format) {
    const std::array<T, 3> numbers = {std::numeric_limits<T>::max(), T{7}, T{5}};
    EXPECT_EQ(cells({format, {numbers.data()}, 3, {0b011}}),
              (std::vector<cell>{static_cast<std::int64_t>(std::numeric_limits<T>::max()), std::int64_t{7}, null}))
        << format;
  }
  template <typename Error, typename Import>
  static void expect_error(const Import& import, const std::string& said) {
    try {
      import();
      ADD_FAILURE() << said;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
    }
  }

  std::unique_ptr<runtime> home_;
};

TEST_F(arrow_import, of_integers) {
  expect_integers<std::int8_t>("c");
  expect_integers<std::uint8_t>("C");
  expect_integers<std::int16_t>("s");
  expect_integers<std::uint16_t>("S");
  expect_integers<std::int32_t>("i");
  expect_integers<std::uint32_t>("I");
  expect_integers<std::int64_t>("l");
  const std::array<std::uint64_t, 2> numbers = {INT64_MAX, std::uint64_t{INT64_MAX} + 1};
  EXPECT_EQ(cells({"L", {numbers.data()}, 1}), std::vector<cell>{INT64_MAX});
  expect_error<std::range_error>([&] { imported({"L", {numbers.data()}, 2}); },
                                 "row 1 of the Arrow column 'x': 9223372036854775808 does not fit");
  EXPECT_EQ(cells({"L", {numbers.data()}, 2, {0b01}})[1], cell(null)) << "what a null has in its place is nothing";
  const std::int64_t least = INT64_MIN;
  EXPECT_THROW(imported({"l", {&least}, 1}), std::range_error);
}

TEST_F(arrow_import, of_floating_point) {
  const float single[] = {0.1f, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(cells({"f", {single}, 2}), (std::vector<cell>{static_cast<double>(0.1f), null}));
  const double wide[] = {0.1, -std::numeric_limits<double>::infinity()};
  EXPECT_EQ(cells({"g", {wide}, 2}), (std::vector<cell>{0.1, -std::numeric_limits<double>::infinity()}));
  // 1, the largest, the least above 0, -2, infinity, NaN.
  const std::uint16_t half[] = {0x3c00, 0x7bff, 0x0001, 0xc000, 0x7c00, 0x7e00};
  EXPECT_EQ(cells({"e", {half}, 6}), (std::vector<cell>{1.0, 65504.0, std::ldexp(1.0, -24), -2.0,
                                                        std::numeric_limits<double>::infinity(), null}));
}

TEST_F(arrow_import, of_booleans) {
  const std::uint8_t bits[] = {0b1010, 0b1};
  const std::vector<cell> got = cells({"b", {bits}, 9, {0xfd, 1}});
  EXPECT_EQ(got, (std::vector<cell>{false, null, false, true, false, false, false, false, true}));
}

TEST_F(arrow_import, of_times_and_dates) {
  const std::vector<cell> expected = {timestamp{1'457'976'295}, timestamp{-1}};
  const std::int64_t seconds[] = {1'457'976'295, -1};
  for (const auto& [format, units] : {std::pair<const char*, std::int64_t>{"tss:", 1},
                                      {"tsm:", 1'000},
                                      {"tsu:Europe/Zurich", 1'000'000},
                                      {"tsn:", 1'000'000'000},
                                      {"tdm", 1'000}}) {
    const std::int64_t times[] = {seconds[0] * units, seconds[1] * units};
    EXPECT_EQ(cells({format, {times}, 2}), expected) << format;
    if (units == 1) continue;
    const std::int64_t between = times[0] + 1;
    expect_error<std::range_error>([&] { imported({format, {&between}, 1}); }, "row 0 of the Arrow column 'x'");
    EXPECT_EQ(cells({format, {&between}, 1, {0}}), std::vector<cell>{null});
  }
  const std::int32_t days[] = {16'874, -1};
  EXPECT_EQ(cells({"tdD", {days}, 2}), (std::vector<cell>{timestamp{16'874 * 86'400}, timestamp{-86'400}}));
}

TEST_F(arrow_import, of_texts) {
  const char bytes[] = "abbccc";
  const std::int32_t offsets[] = {0, 1, 1, 6};
  const std::int64_t large_offsets[] = {0, 1, 1, 6};
  const std::vector<cell> expected = {"a", "", "bbccc"};
  EXPECT_EQ(cells({"u", {offsets, bytes}, 3}), expected);
  EXPECT_EQ(cells({"U", {large_offsets, bytes}, 3}), expected);
  // Without a buffer where all texts are empty.
  const std::int32_t nothing[] = {0, 0};
  EXPECT_EQ(cells({"u", {nothing, nullptr}, 1}), std::vector<cell>{""});
  // Views: 12 characters lie in the view, and more in the second buffer, from its third character on.
  struct view {
    std::int32_t length;
    char inlined[12];
  };
  struct long_view {
    std::int32_t length;
    char beginning[4];
    std::int32_t buffer;
    std::int32_t place;
  };
  const std::string other = "??a text of 21 letters";
  std::array<std::array<char, 16>, 2> views{};
  const view short_one{12, {'t', 'w', 'e', 'l', 'v', 'e', ' ', 'b', 'y', 't', 'e', 's'}};
  const long_view long_one{20, {'a', ' ', 't', 'e'}, 1, 2};
  std::memcpy(views[0].data(), &short_one, 16);
  std::memcpy(views[1].data(), &long_one, 16);
  const std::int64_t lengths[] = {6, 22};
  EXPECT_EQ(cells({"vu", {views.data(), bytes, other.data(), lengths}, 2}),
            (std::vector<cell>{"twelve bytes", "a text of 21 letters"}));
  for (const long_view& wrong : {long_view{-1, {}, 1, 2}, long_view{20, {}, 2, 2}, long_view{20, {}, -1, 2},
                                 long_view{20, {}, 1, -1}, long_view{20, {}, 1, 3}}) {
    std::memcpy(views[1].data(), &wrong, 16);
    expect_error<std::invalid_argument>([&] { imported({"vu", {views.data(), bytes, other.data(), lengths}, 2}); },
                                        "'x' of type text (format 'vu') has a text in row 1 that is in no buffer");
  }
}

// Structs as no library should hand them over, each with one fault.
struct faulty_table {
  static constexpr std::array<std::int64_t, 4> numbers = {1, 2, 3, 4};
  static constexpr std::array<std::int32_t, 4> offsets = {0, 1, 3, 6};
  static constexpr std::array<std::uint8_t, 1> bits = {0b101};

  const void* buffers[3] = {nullptr, numbers.data(), "abbccc"};
  const void* table_buffers[1] = {nullptr};
  ArrowSchema column_schema{"l", "x", nullptr, ARROW_FLAG_NULLABLE, 0, nullptr, nullptr, keep<ArrowSchema>, nullptr};
  ArrowArray column{3, 0, 0, 2, 0, buffers, nullptr, nullptr, keep<ArrowArray>, nullptr};
  ArrowSchema text_schema{"u", "", nullptr, 0, 0, nullptr, nullptr, keep<ArrowSchema>, nullptr};
  const void* text_buffers[3] = {nullptr, offsets.data(), "abbccc"};
  ArrowArray texts{3, 0, 0, 3, 0, text_buffers, nullptr, nullptr, keep<ArrowArray>, nullptr};
  ArrowSchema* schemas[1] = {&column_schema};
  ArrowArray* columns[1] = {&column};
  ArrowSchema schema{"+s", "", nullptr, 0, 1, schemas, nullptr, keep<ArrowSchema>, nullptr};
  ArrowArray array{3, 0, 0, 1, 1, table_buffers, columns, nullptr, keep<ArrowArray>, nullptr};

  void have_texts(const std::array<std::int32_t, 4>& of) {
    column_schema.format = "u";
    column.n_buffers = 3;
    buffers[1] = of.data();
  }
  void have_dictionary() {
    column_schema.dictionary = &text_schema;
    column.dictionary = &texts;
  }
};

TEST_F(arrow_import, refuses_structs_that_cannot_be_right) {
  static constexpr std::array<std::int32_t, 4> descending = {0, 5, 2, 6};
  static constexpr std::array<std::int32_t, 4> negative = {-5, 2, 3, 6};
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const struct {
    const char* said;
    void (*spoil)(faulty_table&);
  } faults[] = {
      {"'x' of type int64 (format 'l') lacks the buffer", [](faulty_table& all) { all.buffers[1] = nullptr; }},
      {"'x' of type int64 (format 'l') has too few buffers", [](faulty_table& all) { all.column.buffers = nullptr; }},
      {"'x' of type int64 (format 'l') has too few buffers", [](faulty_table& all) { all.column.n_buffers = 1; }},
      {"'x' of type text (format 'u') has too few buffers",
       [](faulty_table& all) { all.have_texts(faulty_table::offsets), all.column.n_buffers = 2; }},
      {"'x' of type int64 (format 'l') has a length", [](faulty_table& all) { all.column.length = -3; }},
      {"'x' of type int64 (format 'l') has a length", [](faulty_table& all) { all.column.length = most; }},
      {"'x' of type int64 (format 'l') has an offset", [](faulty_table& all) { all.column.offset = -1; }},
      {"'x' of type int64 (format 'l') has an offset", [](faulty_table& all) { all.column.offset = most / 16 - 3; }},
      {"'x' of type int64 (format 'l') has fewer rows", [](faulty_table& all) { all.column.length = 2; }},
      {"'x' of type int64 (format 'l') has fewer rows", [](faulty_table& all) { all.array.offset = 1; }},
      {"'x' of type int64 (format 'l') has a null count", [](faulty_table& all) { all.column.null_count = -2; }},
      {"'x' of type int64 (format 'l') has a null count", [](faulty_table& all) { all.column.null_count = 4; }},
      {"'x' of type int64 (format 'l') has nulls, but", [](faulty_table& all) { all.column.null_count = 1; }},
      {"'x' of type int64 (format 'l') has no array, or one", [](faulty_table& all) { all.column.release = nullptr; }},
      {"column 0 has no array", [](faulty_table& all) { all.columns[0] = nullptr; }},
      {"'x' has no format", [](faulty_table& all) { all.column_schema.format = nullptr; }},
      {"column 0 has no schema, or one", [](faulty_table& all) { all.column_schema.release = nullptr; }},
      {"column 0 has no schema, or one", [](faulty_table& all) { all.schemas[0] = nullptr; }},
      {"'x' of type text (format 'u') has a text in row 1", [](faulty_table& all) { all.have_texts(descending); }},
      {"'x' of type text (format 'u') has a text in row 0", [](faulty_table& all) { all.have_texts(negative); }},
      {"'x' of type text (format 'u') has a text in row 0",
       [](faulty_table& all) { all.have_texts(faulty_table::offsets), all.buffers[2] = nullptr; }},
      {"'x' of type text (format 'u') has too few",
       [](faulty_table& all) { all.have_dictionary(), all.texts.n_buffers = 2; }},
      {"'x' of type text (format 'u') has a length",
       [](faulty_table& all) { all.have_dictionary(), all.texts.length = -1; }},
      {"'x' has the type dictionary of others than texts",
       [](faulty_table& all) { all.have_dictionary(), all.text_schema.dictionary = &all.text_schema; }},
      {"table has a length", [](faulty_table& all) { all.array.length = -3; }},
      {"table has an offset", [](faulty_table& all) { all.array.offset = -1; }},
      {"table has nulls, but", [](faulty_table& all) { all.array.null_count = 1; }},
      {"table has too few buffers", [](faulty_table& all) { all.array.buffers = nullptr; }},
      {"table has too few buffers", [](faulty_table& all) { all.array.n_buffers = 0; }},
      {"table has no array, or one that is released", [](faulty_table& all) { all.array.release = nullptr; }},
      {"table has no schema, or one that is released", [](faulty_table& all) { all.schema.release = nullptr; }},
      {"table has no format", [](faulty_table& all) { all.schema.format = nullptr; }},
      {"a child for each column", [](faulty_table& all) { all.schema.children = nullptr; }},
      {"a child for each column", [](faulty_table& all) { all.array.children = nullptr; }},
      {"a child for each column", [](faulty_table& all) { all.schema.n_children = all.array.n_children = -1; }},
  };
  for (const auto& [said, spoil] : faults) {
    faulty_table all;
    spoil(all);
    dataframe got(*home_);
    expect_error<std::invalid_argument>([&, table = &all] { import_from_arrow(table->schema, table->array, got); },
                                        said);
  }
  // Without a fault, also as dictionary and as texts, with nulls and without any rows.
  faulty_table right;
  dataframe got(*home_);
  import_from_arrow(right.schema, right.array, got);
  EXPECT_EQ(got["x"].at(2), cell(std::int64_t{3}));
  right.column.null_count = 1;
  right.buffers[0] = faulty_table::bits.data();
  import_from_arrow(right.schema, right.array, got);
  EXPECT_EQ(got["x"].at(4), cell(null));
  right.array.length = right.column.length = right.column.null_count = 0;
  right.column.buffers = right.array.buffers = nullptr;
  import_from_arrow(right.schema, right.array, got);
  EXPECT_EQ(got.rows(), 6u);
}

TEST_F(arrow_import, refuses_streams_that_cannot_be_right) {
  ArrowArrayStream released{};
  dataframe got(*home_);
  EXPECT_THROW(import_from_arrow(released, got), std::invalid_argument);
  ArrowArrayStream faulty{};
  faulty.release = keep<ArrowArrayStream>;
  faulty.get_next = [](ArrowArrayStream*, ArrowArray*) { return EIO; };
  faulty.get_schema = [](ArrowArrayStream*, ArrowSchema* out) {
    *out = {"+s", "", nullptr, 0, -1, nullptr, nullptr, keep<ArrowSchema>, nullptr};
    return 0;
  };
  EXPECT_THROW(import_from_arrow(faulty, got), std::invalid_argument);
  faulty.get_schema = [](ArrowArrayStream*, ArrowSchema*) { return EIO; };
  EXPECT_THROW(import_from_arrow(faulty, got), std::runtime_error) << "with no text of its own";
}

TEST_F(arrow_import, of_dictionaries) {
  const char bytes[] = "onetwo";
  const std::int64_t offsets[] = {0, 3, 6};
  const void* text_buffers[] = {nullptr, offsets, bytes};
  ArrowSchema texts{"U", nullptr, nullptr, 0, 0, nullptr, nullptr, keep<ArrowSchema>, nullptr};
  ArrowArray values{2, 0, 0, 3, 0, text_buffers, nullptr, nullptr, keep<ArrowArray>, nullptr};
  const std::uint8_t indices[] = {1, 0, 1, 0};
  EXPECT_EQ(cells({"C", {indices}, 4, {0b0111}, &texts, &values}), (std::vector<cell>{"two", "one", "two", null}));
  const std::int8_t outside[] = {0, 2};
  EXPECT_THROW(imported({"c", {outside}, 2, {0xff}, &texts, &values}), std::invalid_argument);
  const std::int8_t below[] = {-1};
  EXPECT_THROW(imported({"c", {below}, 1, {0xff}, &texts, &values}), std::invalid_argument);
  texts.format = "l";
  expect_error<std::invalid_argument>([&] { imported({"c", {outside}, 1, {0xff}, &texts, &values}); },
                                      "'x' has the type dictionary of others than texts");
}

// Values of all rows of which slices are made, by the row.
struct whole_columns {
  static constexpr std::size_t rows = 64;

  std::vector<std::uint8_t> valid = std::vector<std::uint8_t>(rows / 8);
  std::vector<std::uint8_t> bits = valid;
  std::vector<std::uint8_t> struct_valid = valid;
  std::vector<std::int16_t> shorts;
  std::vector<double> reals;
  std::vector<std::int32_t> offsets{0};
  std::vector<std::int64_t> times;
  std::vector<std::uint8_t> indices;
  std::string letters;

  whole_columns() {
    for (std::size_t row = 0; row < rows; ++row) {
      const auto bit = static_cast<std::uint8_t>(1 << row % 8);
      if (row % 5 != 0) valid[row / 8] |= bit;
      if (row % 7 != 0) struct_valid[row / 8] |= bit;
      if (row % 3 == 0) bits[row / 8] |= bit;
      shorts.push_back(static_cast<std::int16_t>(row * 100));
      reals.push_back(static_cast<double>(row) / 2);
      times.push_back(static_cast<std::int64_t>(row) * 1'000);
      indices.push_back(static_cast<std::uint8_t>(row % 2));
      letters += std::string(row % 4, static_cast<char>('a' + row % 26));
      offsets.push_back(static_cast<std::int32_t>(letters.size()));
    }
  }
};

// A part of a part: rows of a struct that begins in the middle, of columns that do, with bitmaps and bits that begin
// within a byte. Nulls of the struct are nulls in all columns.
TEST_F(arrow_import, of_slices) {
  whole_columns all;
  // The dictionary is a slice, too.
  const char words[] = "?onetwo";
  const std::int32_t word_offsets[] = {0, 1, 4, 7};
  const void* word_buffers[] = {nullptr, word_offsets, words};
  ArrowSchema word_schema{"u", nullptr, nullptr, 0, 0, nullptr, nullptr, keep<ArrowSchema>, nullptr};
  ArrowArray word_array{2, 0, 1, 3, 0, word_buffers, nullptr, nullptr, keep<ArrowArray>, nullptr};
  struct {
    const char* format;
    std::vector<const void*> buffers;
    std::function<cell(std::size_t)> expected;
  } const table[] = {
      {"s", {all.shorts.data()}, [](std::size_t row) { return cell(static_cast<std::int64_t>(row * 100)); }},
      {"g", {all.reals.data()}, [](std::size_t row) { return cell(static_cast<double>(row) / 2); }},
      {"b", {all.bits.data()}, [](std::size_t row) { return cell(row % 3 == 0); }},
      {"tsm:UTC", {all.times.data()}, [](std::size_t row) { return cell(timestamp{static_cast<std::int64_t>(row)}); }},
      {"u",
       {all.offsets.data(), all.letters.data()},
       [](std::size_t row) { return cell(std::string(row % 4, static_cast<char>('a' + row % 26))); }},
      {"C", {all.indices.data()}, [](std::size_t row) { return cell(row % 2 == 0 ? "one" : "two"); }},
  };
  constexpr std::int64_t of_struct = 3;
  constexpr std::int64_t of_column = 10;
  constexpr std::int64_t rows = 40;
  for (const auto& [format, buffers, expected] : table) {
    std::vector<const void*> with_bitmap = {all.valid.data()};
    with_bitmap.insert(with_bitmap.end(), buffers.begin(), buffers.end());
    const bool has_words = format[0] == 'C';
    ArrowSchema column_schema{
        format, "x", nullptr, 2, 0, nullptr, has_words ? &word_schema : nullptr, keep<ArrowSchema>, nullptr};
    ArrowArray column{rows + of_struct,
                      -1,
                      of_column,
                      std::ssize(with_bitmap),
                      0,
                      with_bitmap.data(),
                      nullptr,
                      has_words ? &word_array : nullptr,
                      keep<ArrowArray>,
                      nullptr};
    ArrowSchema* schemas[] = {&column_schema};
    ArrowArray* columns[] = {&column};
    const void* struct_buffers[] = {all.struct_valid.data()};
    const ArrowSchema schema{"+s", "", nullptr, 2, 1, schemas, nullptr, keep<ArrowSchema>, nullptr};
    const ArrowArray array{rows, -1, of_struct, 1, 1, struct_buffers, columns, nullptr, keep<ArrowArray>, nullptr};
    dataframe got(*home_);
    import_from_arrow(schema, array, got);
    ASSERT_EQ(got.rows(), static_cast<std::size_t>(rows)) << format;
    for (std::size_t row = 0; row < got.rows(); ++row) {
      const std::size_t in_struct = row + of_struct;
      const std::size_t in_column = in_struct + of_column;
      const bool is_null = in_struct % 7 == 0 || in_column % 5 == 0;
      EXPECT_EQ(got["x"].at(row), is_null ? cell(null) : expected(in_column)) << format << row;
    }
    if (!has_words) continue;
    column.dictionary = nullptr;
    expect_error<std::invalid_argument>([&] { import_from_arrow(schema, array, got); }, "'x' lacks its dictionary");
  }
}

TEST_F(arrow_import, refuses_other_types_by_their_names) {
  const std::int64_t numbers[] = {0, 0};
  for (const auto& [format, name] : {std::pair{"d:19,10", "decimal"},
                                     {"z", "binary"},
                                     {"w:16", "fixed binary"},
                                     {"ttm", "time of day"},
                                     {"tDn", "duration"},
                                     {"tiM", "interval"},
                                     {"+l", "list"},
                                     {"+s", "struct"},
                                     {"+m", "map"},
                                     {"+ud:0,1", "union"},
                                     {"+r", "run ends"},
                                     {"n", "null"},
                                     {"?", "unknown"}}) {
    expect_error<std::invalid_argument>(
        [&, as = format] { imported({as, {numbers}, 1}); },
        "the Arrow column 'x' has the type " + std::string(name) + " (format '" + format + "')");
  }
}

// Batches with a number each, and an error behind them if there is to be one.
struct counting_stream {
  ArrowArrayStream stream{};
  dataframe& from;
  std::size_t next = 0;
  int error = 0;
  int schemas = 0;

  explicit counting_stream(dataframe& frame) : from(frame) {
    stream.private_data = this;
    stream.release = keep<ArrowArrayStream>;
    stream.get_schema = [](ArrowArrayStream* self, ArrowSchema* out) {
      auto& mine = *static_cast<counting_stream*>(self->private_data);
      ArrowArray unused;
      export_to_arrow(mine.from, 0, 0, *out, unused);
      unused.release(&unused);
      ++mine.schemas;
      return 0;
    };
    stream.get_next = [](ArrowArrayStream* self, ArrowArray* out) {
      auto& mine = *static_cast<counting_stream*>(self->private_data);
      out->release = nullptr;
      if (mine.next == mine.from.rows()) return mine.error;
      ArrowSchema schema;
      export_to_arrow(mine.from, mine.next++, 1, schema, *out);
      schema.release(&schema);
      return 0;
    };
    stream.get_last_error = [](ArrowArrayStream*) { return "the disk is gone"; };
  }
};

TEST_F(arrow_import, of_streams) {
  dataframe made(*home_);
  made.add("x", column_type::int64);
  for (std::int64_t i = 0; i < 5; ++i) made.append({i * i});
  counting_stream source(made);
  dataframe got(*home_);
  import_from_arrow(source.stream, got);
  ASSERT_EQ(got.rows(), 5u);
  EXPECT_EQ(got["x"].at(4), cell(std::int64_t{16}));
  EXPECT_EQ(source.schemas, 1);
  source.next = 3;
  source.error = EIO;
  expect_error<std::runtime_error>([&] { import_from_arrow(source.stream, got); }, "the disk is gone");
  EXPECT_EQ(got.rows(), 7u);
  // A file without rows has columns all the same, and dictionaries of texts.
  made.add("text", column_type::text);
  counting_stream without_rows(made);
  without_rows.next = made.rows();
  dataframe empty(*home_);
  import_from_arrow(without_rows.stream, empty);
  EXPECT_EQ(empty.names(), (std::vector<std::string>{"x", "text"}));
  EXPECT_EQ(empty.rows(), 0u);
  EXPECT_EQ(empty["text"].type(), column_type::text);
  EXPECT_THROW(import_from_arrow(without_rows.stream, got), std::invalid_argument) << "of other columns";
}

int releases = 0;

// Of a stream, the schema and each batch are released once, whatever fails.
TEST_F(arrow_import, releases_what_a_stream_gave_once) {
  dataframe made(*home_);
  made.add("x", column_type::int64);
  for (std::int64_t i = 0; i < 3; ++i) made.append({i});
  counting_stream source(made);
  releases = 0;
  source.stream.get_next = [](ArrowArrayStream* self, ArrowArray* out) {
    auto& mine = *static_cast<counting_stream*>(self->private_data);
    out->release = nullptr;
    if (mine.next == mine.from.rows()) return mine.error;
    static const void* no_bitmap[] = {nullptr};
    static std::int64_t numbers[] = {5, 5, std::numeric_limits<std::int64_t>::min()};
    static const void* buffers[] = {nullptr, nullptr};
    buffers[1] = &numbers[mine.next++];
    static ArrowArray column{1, 0, 0, 2, 0, buffers, nullptr, nullptr, keep<ArrowArray>, nullptr};
    static ArrowArray* columns[] = {&column};
    *out = {1, 0, 0, 1, 1, no_bitmap, columns, nullptr, keep<ArrowArray>, nullptr};
    out->release = [](ArrowArray* array) {
      ++releases;
      array->release = nullptr;
    };
    return 0;
  };
  dataframe got(*home_);
  EXPECT_THROW(import_from_arrow(source.stream, got), std::range_error);
  EXPECT_EQ(releases, 3);
  EXPECT_EQ(got.rows(), 2u);
}

}  // namespace
}  // namespace far
